/** Maps of one head from its thin matrices: raw, projected on col([T,1]), what that leaves, canonical. */

import { flags, floats, positions, sizeOf, wholeNumbers } from "./decode.js";
import { product, turned } from "./product.js";
import { solvedByPrefix, weighted } from "./projected.js";
import { scaleOf } from "./scale.js";

/**
 * One layer, unpacked: rounded factors as they came, and what else the maps need.
 * @typedef {{left: Int16Array|null, right: Int16Array, columns: number, groups: number}} Unpacked
 * @typedef {object} OpenLayer
 * @property {import("./data.js").PackedLayer} described
 * @property {ArrayBuffer} buffer
 * @property {Unpacked|null} raw
 * @property {Unpacked|null} projected
 * @property {Int32Array} start
 * @property {Int32Array} stop
 * @property {Uint8Array|null} matrix
 */

/**
 * @param {import("./data.js").PackedLayer} described
 * @param {ArrayBuffer} buffer
 * @returns {OpenLayer}
 */
export function openLayer(described, buffer) {
  const { queries, keys, mask } = described;
  const start = new Int32Array(queries);
  const stop = new Int32Array(queries).fill(keys);
  if (mask && mask.start && mask.stop) {
    start.set(positions(buffer, mask.start));
    stop.set(positions(buffer, mask.stop));
  }
  return {
    described,
    buffer,
    raw: unpack(described.raw, buffer),
    projected: described.effective_simplex_span ? unpack(described.effective_simplex_span, buffer) : null,
    start,
    stop,
    matrix: mask && mask.matrix ? flags(buffer, mask.matrix) : null,
  };
}

/**
 * @param {import("./data.js").PackedMap} packed
 * @param {ArrayBuffer} buffer
 * @returns {Unpacked|null}
 */
function unpack(packed, buffer) {
  if (!packed.factors) return null;
  const { left, right } = packed.factors;
  const [columns, groups] = right.shape;
  return { left: left && wholeNumbers(buffer, left), right: wholeNumbers(buffer, right), columns, groups };
}

/**
 * Left and right factor of one head as rows of numbers: [query, column] and [key, column].
 * @param {OpenLayer} layer
 * @param {import("./data.js").PackedMap} packed
 * @param {Unpacked} factors
 * @param {number} place
 * @param {Float32Array|null} raw  of the head, where the left factor follows from it and the right one
 */
export function factorsOf(layer, packed, factors, place, raw = null) {
  const { queries, keys, heads } = layer.described;
  const { columns, groups } = factors;
  if (!packed.factors) throw new Error("this map has no factors");
  const group = Math.floor(place / (heads.length / groups));
  const right = turned(factors.right, columns, groups, keys, group, packed.factors.right_step[group]);
  if (factors.left) {
    const left = turned(factors.left, columns, heads.length, queries, place, packed.factors.left_step[place]);
    return { columns, left, right };
  }
  const left = weighted(raw ?? new Float32Array(queries * keys), right, queries, keys, columns);
  if (raw && layer.described.mask)
    solvedByPrefix(left, right, layer.stop, columns, packed.factors.right_step[group] ** 2);
  return { columns, left, right };
}

/** Zero where a query may not look. @param {OpenLayer} layer @param {Float32Array} cells */
function masked(layer, cells) {
  const { queries, keys } = layer.described;
  for (let query = 0; query < queries; query++) {
    cells.fill(0, query * keys, query * keys + layer.start[query]);
    cells.fill(0, query * keys + layer.stop[query], (query + 1) * keys);
  }
  if (layer.matrix) for (let cell = 0; cell < cells.length; cell++) cells[cell] *= layer.matrix[cell];
  return cells;
}

/**
 * @param {OpenLayer} layer @param {Float32Array} cells
 * @param {import("./data.js").PackedRaw} packed @param {number} place
 */
function softmax(layer, cells, packed, place) {
  const { queries, keys } = layer.described;
  const { softcap, position } = packed;
  const sink = packed.sinks ? packed.sinks[place] : null;
  const count = position ? position.values.shape[1] : 0;
  const added = position ? floats(layer.buffer, position.values).subarray(place * count, (place + 1) * count) : null;
  for (let query = 0; query < queries; query++) {
    const base = query * keys;
    const shift = position && position.by === "distance" ? queries - 1 - query : 0;
    let top = sink === null ? -Infinity : sink;
    for (let key = layer.start[query]; key < layer.stop[query]; key++) {
      if (layer.matrix && !layer.matrix[base + key]) continue;
      if (softcap !== null) cells[base + key] = Math.tanh(cells[base + key] / softcap) * softcap;
      if (added) cells[base + key] += added[key + shift];
      if (cells[base + key] > top) top = cells[base + key];
    }
    let total = sink === null ? 0 : Math.exp(sink - top);
    for (let key = layer.start[query]; key < layer.stop[query]; key++) {
      const allowed = !layer.matrix || layer.matrix[base + key];
      const weight = allowed ? Math.exp(cells[base + key] - top) : 0;
      cells[base + key] = weight;
      total += weight;
    }
    if (total > 0) for (let key = 0; key < keys; key++) cells[base + key] /= total;
  }
}

/**
 * Rows that are stored cell by cell, put in their places.
 * @param {OpenLayer} layer @param {import("./data.js").PackedMap} packed @param {number} place @param {Float32Array} cells
 */
function storedRows(layer, packed, place, cells) {
  if (!packed.cells) return;
  const { queries, keys } = layer.described;
  const low = new Uint8Array(layer.buffer, packed.cells.offset, sizeOf(packed.cells.shape));
  const high = new Uint8Array(layer.buffer, packed.cells.offset + low.length, low.length);
  const steps = packed.steps ? floats(layer.buffer, packed.steps) : null;
  /** @param {number} from @param {number} query */
  const value = (from, query) => {
    const coded = low[from] | (high[from] << 8);
    const code = (coded >>> 1) ^ -(coded & 1);
    return steps ? code * steps[query] : (code * Math.abs(code)) / packed.levels ** 2;
  };
  /** @param {number} from @param {number} query */
  const copy = (from, query) => {
    for (let key = 0; key < keys; key++) cells[query * keys + key] = value(from * keys + key, query);
  };
  if (!packed.rows && steps) {
    let from = place * packed.cells.shape[1];
    for (let key = 0; key < keys; key++)
      for (let query = 0; query < queries; query++)
        if (key >= layer.start[query] && key < layer.stop[query] && (!layer.matrix || layer.matrix[query * keys + key]))
          cells[query * keys + key] = value(from++, query);
    return;
  }
  if (!packed.rows) {
    for (let query = 0; query < queries; query++) copy(place * queries + query, query);
    return;
  }
  positions(layer.buffer, packed.rows).forEach((code, from) => {
    if (Math.floor(code / 2 ** 20) === place) copy(from, code % 2 ** 20);
  });
}

/**
 * The maps of the place-th head of a layer.
 * @param {OpenLayer} layer
 * @param {number} place
 * @returns {import("./data.js").Maps}
 */
export function mapsOf(layer, place) {
  const { described } = layer;
  const { queries, keys } = described;
  /** @type {Float32Array} */
  let raw = new Float32Array(queries * keys);
  if (layer.raw) {
    raw = masked(layer, product(factorsOf(layer, described.raw, layer.raw, place), layer));
    softmax(layer, raw, described.raw, place);
  }
  storedRows(layer, described.raw, place, raw);
  /** @type {Float32Array|null} */
  let projected = null;
  /** @type {Float32Array|null} */
  let none = null;
  const span = described.effective_simplex_span;
  if (span) {
    const cells = layer.projected
      ? masked(layer, product(factorsOf(layer, span, layer.projected, place, raw), layer))
      : new Float32Array(queries * keys);
    storedRows(layer, span, place, cells);
    none = nullOf(layer, place, raw, cells);
    projected = cells;
  }
  /** @type {Float32Array|null} */
  let effective = null;
  if (described.effective) {
    effective = new Float32Array(queries * keys);
    storedRows(layer, described.effective, place, effective);
  }
  return {
    raw,
    effective_simplex_span: projected,
    simplex_null: none,
    // Without null attention raw is the shortest itself, to within twice the rounding that a row may hide.
    canonical: canonicalOf(layer, place) ?? (none && !none.some(Boolean) ? raw.slice() : null),
    effective,
    queries,
    keys,
    scale: scaleOf([raw, projected, none, effective], keys),
  };
}

/**
 * The difference of both; zero in rows where it would be the rounding of this page and nothing else.
 * @param {OpenLayer} layer @param {number} place @param {Float32Array} raw @param {Float32Array} projected
 */
function nullOf(layer, place, raw, projected) {
  const { queries, keys, null_rows } = layer.described;
  const cells = new Float32Array(queries * keys);
  if (!null_rows) return cells;
  const known = flags(layer.buffer, null_rows);
  for (let query = 0; query < queries; query++)
    if (known[place * queries + query])
      for (let cell = query * keys; cell < (query + 1) * keys; cell++) cells[cell] = raw[cell] - projected[cell];
  return cells;
}

/**
 * @param {OpenLayer} layer @param {number} place
 * @returns {Float32Array|null}
 */
function canonicalOf(layer, place) {
  const { canonical, heads, queries, keys } = layer.described;
  const at = canonical ? canonical.heads.indexOf(heads[place]) : -1;
  if (!canonical || at < 0) return null;
  const codes = wholeNumbers(layer.buffer, canonical.cells);
  const cells = new Float32Array(queries * keys);
  for (let cell = 0; cell < cells.length; cell++) {
    const root = codes[at * cells.length + cell] / canonical.levels;
    cells[cell] = root * Math.abs(root);
  }
  return cells;
}

/**
 * T of one head over all keys, up to a rotation of its columns: [key, column].
 * @param {OpenLayer} layer
 * @param {number} place
 */
export function outputRows(layer, place) {
  const { described } = layer;
  const span = described.effective_simplex_span;
  if (!layer.projected || !span || !described.output) return null;
  const { right, columns } = factorsOf(layer, span, layer.projected, place);
  const [, rows, width] = described.output.matrix.shape;
  const small = wholeNumbers(layer.buffer, described.output.matrix).subarray(
    place * rows * width,
    (place + 1) * rows * width,
  );
  const step = described.output.step[place];
  const result = new Float64Array(described.keys * width);
  for (let key = 0; key < described.keys; key++)
    for (let column = 0; column < columns; column++) {
      const factor = right[key * columns + column] * step;
      for (let to = 0; to < width; to++) result[key * width + to] += factor * small[column * width + to];
    }
  return { rows: result, width, rowError: described.output.row_error[place] };
}
