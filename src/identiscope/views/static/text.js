/** Tokens as text that can be read and does no harm, as token_text.py has them too; and numbers. */

const SPACES = /[Ġ▁]/g;
/** Control characters, marks that would turn the text around them, and what takes no room or looks like a space. */
const INVISIBLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\u{e0000}-\u{e0fff}]/gu;

/** @param {string} sign */
function visible(sign) {
  const code = /** @type {number} */ (sign.codePointAt(0));
  if (code === 10) return "⏎";
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Parts of characters, as tokens have them. */
const BYTES = /((?:<0x[89A-F][0-9A-F]>)+)/;
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Names of tokens one after the other, with the characters that their bytes make. @param {string[]} names */
export function wholeCharacters(names) {
  let [text, pending] = ["", ""];
  // A token has all letters of a byte, or it is a text in which somebody writes of bytes.
  for (const piece of names.flatMap((name) => name.split(BYTES)).filter((part) => part !== "")) {
    if (BYTES.test(piece)) pending += piece;
    else [text, pending] = [text + ofBytes(pending) + piece, ""];
  }
  return text + ofBytes(pending);
}

/** @param {string} signs */
function ofBytes(signs) {
  const bytes = Array.from(signs.matchAll(/[0-9A-F]{2}/g), ([digits]) => parseInt(digits, 16));
  let made = "";
  for (let at = 0; at < bytes.length;) {
    const count = bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
    try {
      const sign = UTF8.decode(new Uint8Array(bytes.slice(at, at + count)));
      // What would be taken for a space stays bytes.
      if (/[Ġ▁Ċ]/.test(sign)) throw new TypeError(sign);
      made += sign;
      at += count;
    } catch {
      made += `<0x${bytes[at++].toString(16).toUpperCase()}>`;
    }
  }
  return made;
}

/** What is left of a token without parts of characters. @param {string} token */
export function withoutParts(token) {
  return token.replace(new RegExp(BYTES, "g"), "");
}

/** Whether a token ends, and whether it begins, within a character. @param {string} token */
export function cutIn(token) {
  return { end: /<0x[89A-F][0-9A-F]>$/.test(token), start: /^<0x[89A-F][0-9A-F]>/.test(token) };
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
