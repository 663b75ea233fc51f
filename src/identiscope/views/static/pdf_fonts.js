/** The fonts that every PDF reader has, and how letters are written in them. */

/** Widths of the signs 32 to 255, in thousandths of the size: two digits of base 36 each. @type {Object<string, string>} */
const WIDTHS = {
  Helvetica:
    "7q7q9vfgfgopij5b9999atg87q997q7qfgfgfgfgfgfgfgfgfgfg7q7qg8g8g8fgs7ijijk2k2ijgzlmk27qdwijfgn5k2lmijlmk2ijgzk2ijq8" +
    "ijijgz7q7q7qd1fg99fgfgdwfgfg7qfgfg6666dw66n5fgfgfgfg99dw7qfgdwk2dwdwdw9a789ag800fgrs66fg99rsfgfg99rsij99rsrsgzrs" +
    "rs666699999qfgrs99rsdw99q8rsdwij7q99fgfgfgfg78fg99khaafgg899kh99b4g8999999fgex7q9999a5fgn6n6n6gzijijijijijijrsk2" +
    "ijijijij7q7q7q7qk2k2lmlmlmlmlmg8lmk2k2k2k2ijijgzfgfgfgfgfgfgopdwfgfgfgfg7q7q7q7qfgfgfgfgfgfgfgg8gzfgfgfgfgdwfgdw",
  "Helvetica-Bold":
    "7q99d6fgfgopk26m9999atg87q997q7qfgfgfgfgfgfgfgfgfgfg9999g8g8g8gzr3k2k2k2k2ijgzlmk27qfgk2gzn5k2lmijlmk2ijgzk2ijq8" +
    "ijijgz997q99g8fg99fggzfggzfg99gzgz7q7qfg7qopgzgzgzgzatfg99gzfglmfgfgdwat7satg800fgrs7qfgdwrsfgfg99rsij99rsrsgzrs" +
    "rs7q7qdwdw9qfgrs99rsfg99q8rsdwij7q99fgfgfgfg7sfg99khaafgg899kh99b4g8999999gzfg7q9999a5fgn6n6n6gzk2k2k2k2k2k2rsk2" +
    "ijijijij7q7q7q7qk2k2lmlmlmlmlmg8lmk2k2k2k2ijijgzfgfgfgfgfgfgopfgfgfgfgfg7q7q7q7qgzgzgzgzgzgzgzg8gzgzgzgzgzfggzfg",
  "Times-Roman":
    "6y99bcdwdwn5lm509999dwfo6y996y7qdwdwdwdwdwdwdwdwdwdw7q7qfofofoccplk2ijijk2gzfgk2k299atk2gzopk2k2fgk2ijfggzk2k2q8" +
    "k2k2gz997q99d1dw99ccdwccdwcc99dwdw7q7qdw7qlmdwdwdwdw99at7qdwdwk2dwdwccdc5kdcf100dwrs99dwccrsdwdw99rsfg99oprsgzrs" +
    "rs9999cccc9qdwrs99r8at99k2rscck26y99dwdwdwdw5kdw99l47odwfo99l499b4fo8c8c99dwcl6y998c8mdwkukukucck2k2k2k2k2k2opij" +
    "gzgzgzgz99999999k2k2k2k2k2k2k2fok2k2k2k2k2k2fgdwccccccccccccijcccccccccc7q7q7q7qdwdwdwdwdwdwdwfodwdwdwdwdwdwdwdw",
  "Times-Bold":
    "6y99ffdwdwrsn57q9999dwfu6y996y7qdwdwdwdwdwdwdwdwdwdw9999fufufudwpuk2ijk2k2ijgzlmlmatdwlmijq8k2lmgzlmk2fgijk2k2rs" +
    "k2k2ij997q99g5dw99dwfgccfgcc99dwfg7q99fg7qn5fgdwfgfgccat99fgdwk2dwdwccay64ayeg00dwrs99dwdwrsdwdw99rsfg99rsrsijrs" +
    "rs9999dwdw9qdwrs99rsat99k2rscck26y99dwdwdwdw64dw99kr8cdwfu99kr99b4fu8c8c99fgf06y998c96dwkukukudwk2k2k2k2k2k2rsk2" +
    "ijijijijatatatatk2k2lmlmlmlmlmfulmk2k2k2k2k2gzfgdwdwdwdwdwdwk2cccccccccc7q7q7q7qdwfgdwdwdwdwdwfudwfgfgfgfgdwfgdw",
};

/** The signs 128 to 159 of the usual encoding. */
const MIDDLE = "€?‚ƒ„…†‡ˆ‰Š‹Œ?Ž??‘’“”•–—˜™š›œ?žŸ";

/** Signs that the Symbol font has, with their codes there and their widths. @type {Object<string, number[]>} */
const SYMBOLS = {
  "−": [0x2d, 549],
  "≤": [0xa3, 549],
  "≥": [0xb3, 549],
  "∞": [0xa5, 713],
  "′": [0xa2, 247],
  "″": [0xb2, 411],
  "≈": [0xbb, 549],
  "≠": [0xb9, 549],
  "→": [0xae, 987],
  "←": [0xac, 987],
  "∈": [0xce, 713],
  "⊥": [0x5e, 658],
  α: [0x61, 631],
  β: [0x62, 549],
  ε: [0x65, 439],
  λ: [0x6c, 549],
  σ: [0x73, 603],
  Σ: [0x53, 592],
};

/** Their names, as a PDF knows them; the last is that of SYMBOLS. */
export const FONTS = [...Object.keys(WIDTHS), "Symbol"];

/**
 * A part of a text that is written in one way: with codes of a font, or, without codes, as a shape.
 * @typedef {{text: string, from: number, font: string|null, codes: number[], width: number}} Run  from: its first sign; width: of size 1
 */

/** @param {string} sign @returns {number|null} */
function latinCode(sign) {
  const code = /** @type {number} */ (sign.codePointAt(0));
  if ((code >= 32 && code < 127) || (code >= 160 && code < 256)) return code;
  const at = sign === "?" ? -1 : MIDDLE.indexOf(sign);
  return at >= 0 ? 128 + at : null;
}

/** @param {string} text @param {boolean} serif @param {boolean} bold @returns {Run[]} */
export function runsOf(text, serif, bold) {
  const latin = serif ? (bold ? "Times-Bold" : "Times-Roman") : bold ? "Helvetica-Bold" : "Helvetica";
  /** @type {Run[]} */
  const runs = [];
  let at = 0;
  for (const sign of text) {
    const code = latinCode(sign);
    const symbol = code === null ? SYMBOLS[sign] : undefined;
    const font = code !== null ? latin : symbol ? "Symbol" : null;
    let run = runs[runs.length - 1];
    if (!run || run.font !== font) runs.push((run = { text: "", from: at, font, codes: [], width: 0 }));
    run.text += sign;
    at += sign.length;
    if (code !== null) run.codes.push(code);
    else if (symbol) run.codes.push(symbol[0]);
    const width = code !== null ? parseInt(WIDTHS[latin].slice(2 * (code - 32), 2 * (code - 32) + 2), 36) : symbol?.[1];
    run.width += (width ?? 0) / 1000;
  }
  return runs;
}
