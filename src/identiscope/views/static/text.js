/** Tokens as text that can be read and does no harm, as token_text.py has them too; and numbers. */

const SPACES = /[Ġ▁]/g;
/** Control characters, and marks that would turn the text around them. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** @param {string} sign */
function visible(sign) {
  const code = /** @type {number} */ (sign.codePointAt(0));
  if (code === 10) return "⏎";
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/**
 * A token as it is shown: spaces and control characters made visible, cut where it is long.
 * @param {string} token
 * @param {number} [longest]
 */
export function shown(token, longest = 20) {
  const signs = Array.from(
    token
      .slice(0, 4 * longest + 40)
      .replace(SPACES, "␣")
      .replace(/Ċ/g, "⏎")
      .replace(INVISIBLE, visible),
  );
  const cut = signs.length > longest || token.length > 4 * longest + 40;
  return cut ? signs.slice(0, longest - 1).join("") + "…" : signs.join("");
}

/**
 * @param {number|null|undefined} value
 * @param {number} [digits]
 */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** @param {number} value  a small positive number, for an error */
export function small(value) {
  if (value === 0) return "0";
  return value >= 0.001 ? value.toPrecision(2) : scientific(value);
}

/** Two digits and a power of ten. @param {number} value  positive */
export function scientific(value) {
  const [digits, power] = value.toExponential(1).split("e");
  return `${digits}·10${Array.from(power, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)] ?? (sign === "-" ? "⁻" : "")).join("")}`;
}
