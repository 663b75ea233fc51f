/** A head's map made small, and a few numbers of it: what the overview of all heads shows. */

import { alternativeRow } from "./alternative.js";
import { mapsOf, outputRows } from "./attention.js";
import { cellsOf } from "./decode.js";
import { madeRow } from "./moving_row.js";
import { scaleOf } from "./scale.js";

/** The name of the map that no file holds: how far each weight goes to the farthest row found with the same output. */
export const MOVABLE = "movable";

/** Cells along a side, at most. */
const SIDE = 64;
/** Rows of a head that are moved: each takes a search of its own. */
const MOVED_ROWS = 24;

/**
 * @typedef {{cells: Float32Array|null, rows: number, columns: number, scale: import("./colour.js").Scale,
 *   first: number, evenness: number, strongest: number}} Thumbnail
 */

/** @param {import("./attention.js").OpenLayer} layer @param {number} place @param {string} name @returns {Thumbnail} */
export function thumbnailOf(layer, place, name) {
  const maps = mapsOf(layer, place);
  const { queries, keys, raw } = maps;
  const moved = name === MOVABLE ? movable(layer, place, raw) : null;
  const cells = name === MOVABLE ? (moved?.cells ?? null) : cellsOf(maps, name);
  const rows = moved ? moved.rows : queries;
  const numbers = numbersOf(layer, raw);
  const scale = scaleOf([cells ?? raw], keys);
  if (!cells) return { cells: null, rows: 1, columns: 1, scale, ...numbers };
  const size = { rows: Math.min(rows, SIDE), columns: Math.min(keys, SIDE) };
  return { cells: smaller(cells, rows, keys, size.rows, size.columns), ...size, scale, ...numbers };
}

/** Of each block of cells the strongest. @param {Float32Array} cells @param {number} rows @param {number} columns @param {number} fewRows @param {number} fewColumns */
export function smaller(cells, rows, columns, fewRows, fewColumns) {
  const small = new Float32Array(fewRows * fewColumns);
  for (let row = 0; row < rows; row++) {
    const to = Math.floor((row * fewRows) / rows) * fewColumns;
    for (let column = 0; column < columns; column++) {
      const at = to + Math.floor((column * fewColumns) / columns);
      const value = cells[row * columns + column];
      if (Math.abs(value) > Math.abs(small[at])) small[at] = value;
    }
  }
  return small;
}

/** Rows spread over the text, each at its farthest alternative: |a' − a|. @param {import("./attention.js").OpenLayer} layer @param {number} place @param {Float32Array} raw */
function movable(layer, place, raw) {
  const { queries, keys } = layer.described;
  const output = outputRows(layer, place);
  if (!output) return null;
  const rows = Math.min(queries, MOVED_ROWS);
  const cells = new Float32Array(rows * keys);
  for (let at = 0; at < rows; at++) {
    const query = rows > 1 ? Math.round((at * (queries - 1)) / (rows - 1)) : 0;
    const made = madeRow(layer, place, raw, query, output);
    if (!made) return null;
    const other = alternativeRow(made.problem, { kind: "away", key: 0 });
    for (let key = 0; key < keys; key++) cells[at * keys + key] = Math.abs(other[key] - made.problem.weights[key]);
  }
  return { cells, rows };
}

/** What heads are ordered by: the weight on the first token, how even rows are (1: the same on all), the largest weight off the diagonal. @param {import("./attention.js").OpenLayer} layer @param {Float32Array} raw */
function numbersOf(layer, raw) {
  const { queries, keys } = layer.described;
  let [first, evenness, strongest] = [0, 0, 0];
  for (let query = 0; query < queries; query++) {
    const seen = Math.max(layer.stop[query] - layer.start[query], 1);
    let entropy = 0;
    for (let key = layer.start[query]; key < layer.stop[query]; key++) {
      const weight = raw[query * keys + key];
      if (weight > 0) entropy -= weight * Math.log(weight);
      if (key !== query && weight > strongest) strongest = weight;
    }
    first += raw[query * keys];
    evenness += seen > 1 ? entropy / Math.log(seen) : 1;
  }
  return { first: first / queries, evenness: evenness / queries, strongest };
}
