/** Colours: two themes, a diverging scale for signed values, a sequential one for shares. Safe for colour-blind readers. */

/**
 * @typedef {object} Theme
 * @property {boolean} dark
 * @property {string} paper
 * @property {string} ink
 * @property {string} faint
 * @property {string} line
 * @property {string} accent
 * @property {string} mark
 * @property {string[]} series
 * @property {string[]} negative  from zero to the strongest
 * @property {string[]} positive
 * @property {string[]} words  behind the words of a text, which are read on all of them
 * @property {string[]} real  from what is null to what is real
 */

/** @type {Theme} */
const LIGHT = {
  dark: false,
  paper: "#ffffff",
  ink: "#1c2430",
  faint: "#56606e",
  line: "#d9dee5",
  accent: "#1f5fa8",
  mark: "#7a3fb0",
  series: ["#0072b2", "#d55e00", "#009e73", "#a84f8a", "#8a6d00", "#3b4252"],
  negative: ["#fbfaf7", "#b9d7ee", "#5f9fd3", "#1f66ac", "#0a2f5c"],
  positive: ["#fbfaf7", "#fbd3a8", "#f08f3e", "#c2500f", "#6b2104"],
  words: ["#ffffff", "#fde3c4", "#f2a052"],
  real: ["#eef0f3", "#a9c8e6", "#4d8fcb", "#14508f"],
};

/** @type {Theme} */
const DARK = {
  dark: true,
  paper: "#171b21",
  ink: "#e8ebf0",
  faint: "#a4aebb",
  line: "#343c47",
  accent: "#7db8f5",
  mark: "#d0a6ff",
  series: ["#56b4e9", "#f5914a", "#2cc295", "#e39ac7", "#e8c547", "#c3cad4"],
  negative: ["#1d222a", "#1c4673", "#3a83c9", "#7fbdf2", "#dbeeff"],
  positive: ["#1d222a", "#6d3211", "#cf6a1f", "#f7a75f", "#ffe9cf"],
  words: ["#171b21", "#4c2c12", "#9c5210"],
  real: ["#262b33", "#27496d", "#3f83c4", "#a9d6ff"],
};

/** @param {boolean} dark */
export function themeOf(dark) {
  return dark ? DARK : LIGHT;
}

const SHARES = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"];

/** @param {string} colour @returns {number[]} */
export function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** @param {string[]} stops @param {number} share @returns {number[]} */
function between(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  const [one, other] = [channels(stops[low]), channels(stops[low + 1])];
  return one.map((value, at) => Math.round(value + (other[at] - value) * (place - low)));
}

/** @param {number[]} colour */
export function css(colour) {
  return `rgb(${colour.join(",")})`;
}

/** The colour of a share from 0 to 1. @param {number|null} share */
export function shareColour(share) {
  return share === null ? [128, 128, 128] : between(SHARES, share);
}

/** How much of a head's attention is real: faint where none is. @param {Theme} theme @param {number|null} null_share */
export function realColour(theme, null_share) {
  return null_share === null ? [128, 128, 128] : between(theme.real, 1 - null_share);
}

/** Behind a word. @param {Theme} theme @param {number} strength  from 0 to 1 */
export function wordColour(theme, strength) {
  return between(theme.words, strength);
}

/** Black or white, whichever is read more easily on a colour. @param {number[]} colour */
export function inkOn(colour) {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

/**
 * From values to colours: white at zero, full at `limit` and beyond. `noise` is the weight that uniform attention would
 * give in a long text: what is not twice as large fades, so that a map shows what stands out of it. `most` is the largest
 * magnitude there is. `mode` is how strength grows with the value (`auto` where it is left out); for ranks, `ranks` has
 * magnitudes at equal steps of their order.
 * @typedef {"auto"|"linear"|"root"|"rank"} ScaleMode
 * @typedef {{limit: number, noise: number, most: number, mode?: ScaleMode, ranks?: Float32Array}} Scale
 */

/** What a reader may choose from. @type {{value: ScaleMode, text: string}[]} */
export const SCALE_MODES = [
  { value: "auto", text: "automatic" },
  { value: "linear", text: "linear" },
  { value: "root", text: "square root" },
  { value: "rank", text: "rank" },
];

/** Up to so many times the noise the scale is nearly linear, and from there on nearly logarithmic. */
const LINEAR = 3;
/** Below so many times the noise colours fade. */
export const FADES = 2;

/** How strong the colour of a value is, from 0 to 1. @param {Scale} scale @param {number} value */
export function strengthOf({ limit, noise, mode, ranks }, value) {
  const size = Math.abs(value);
  if (!(limit > 0)) return 0;
  if (mode === "linear") return Math.min(size / limit, 1);
  if (mode === "root") return Math.sqrt(Math.min(size / limit, 1));
  if (mode === "rank" && ranks) return rankOf(ranks, size);
  const strength = Math.min(Math.asinh(size / (LINEAR * noise)) / Math.asinh(limit / (LINEAR * noise)), 1);
  return strength * Math.min(size / (FADES * noise), 1);
}

/** The value at a place of the legend, from -1 to 1. @param {Scale} scale @param {number} place */
export function valueAt({ limit, noise, mode, ranks }, place) {
  if (mode === "linear") return place * limit;
  if (mode === "root") return place * Math.abs(place) * limit;
  if (mode === "rank" && ranks) {
    const at = Math.abs(place) * (ranks.length - 1);
    const low = Math.min(Math.floor(at), ranks.length - 2);
    return Math.sign(place) * (ranks[low] + (ranks[low + 1] - ranks[low]) * (at - low));
  }
  return LINEAR * noise * Math.sinh(place * Math.asinh(limit / (LINEAR * noise)));
}

/** The share of magnitudes that are smaller. @param {Float32Array} ranks @param {number} size */
function rankOf(ranks, size) {
  if (size <= 0) return 0;
  let [low, high] = [0, ranks.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranks[middle] < size) low = middle + 1;
    else high = middle;
  }
  return Math.min(low / (ranks.length - 1), 1);
}

/** How many steps the ranks of a scale have. */
const RANKS = 256;
/** Cells that are put in order, evenly taken from all: to sort a million takes longer than to draw them. */
const MOST_RANKED = 2 ** 17;

/** The scale in another mode. @param {Scale} scale @param {ScaleMode} mode @param {(Float32Array|null)[]} maps  whose cells are ranked */
export function inMode(scale, mode, maps) {
  if (mode !== "rank") return { ...scale, mode };
  // Cells that nobody may look at, and those of nothing, have no rank.
  const step = Math.ceil(maps.reduce((count, cells) => count + (cells?.length ?? 0), 0) / MOST_RANKED);
  const some = (/** @type {Float32Array} */ cells) =>
    Float32Array.from({ length: Math.floor(cells.length / step) }, (_, at) => Math.abs(cells[at * step]));
  const sizes = maps.flatMap((cells) => (cells ? [some(cells).filter((size) => size > 0)] : []));
  const every = new Float32Array(sizes.reduce((count, { length }) => count + length, 0));
  sizes.reduce((at, part) => (every.set(part, at), at + part.length), 0);
  every.sort();
  if (!every.length) return { ...scale, mode: /** @type {ScaleMode} */ ("linear") };
  const ranks = new Float32Array(RANKS + 1);
  for (let at = 1; at <= RANKS; at++) ranks[at] = every[Math.round((at * (every.length - 1)) / RANKS)];
  return { ...scale, mode, ranks, limit: Math.max(ranks[RANKS], 1e-12) };
}

/** @param {Theme} theme @param {Scale} scale @param {number} value */
export function signedColour(theme, scale, value) {
  return between(value < 0 ? theme.negative : theme.positive, strengthOf(scale, value));
}

/** Half as many colours as a table has. */
const STEPS = 2047;

/**
 * Colours as packed RGBA numbers by the root of a value's share of the limit: a root is quick to take for every cell.
 * @param {Theme} theme @param {Scale} scale
 */
export function colourTable(theme, scale) {
  const table = new Uint32Array(2 * STEPS + 1);
  for (let at = -STEPS; at <= STEPS; at++) {
    const share = at / STEPS;
    const [red, green, blue] = signedColour(theme, scale, share * Math.abs(share) * scale.limit);
    table[STEPS + at] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return table;
}

/**
 * Paint cells on a canvas of one pixel a cell.
 * @param {Float32Array} cells @param {number} rows @param {number} columns @param {number} limit
 * @param {Uint32Array} table  from `colourTable`
 */
export function paint(cells, rows, columns, limit, table) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const scale = limit > 0 ? 1 / limit : 1;
  for (let cell = 0; cell < cells.length; cell++) {
    const value = cells[cell] * scale;
    const root = Math.min(Math.sqrt(Math.abs(value)), 1) * STEPS;
    pixels[cell] = table[STEPS + Math.round(value < 0 ? -root : root)];
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
