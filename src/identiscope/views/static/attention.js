/** Maps of one head from its thin matrices: raw, projected on col([T,1]), what that leaves, canonical. */

import { flags, floats, positions, sizeOf, wholeNumbers } from "./decode.js";
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
 * @param {Float32Array|null} raw  of the head, where the left factor is its product with the right one
 */
export function factorsOf(layer, packed, factors, place, raw = null) {
  const { queries, keys, heads } = layer.described;
  const { columns, groups } = factors;
  if (!packed.factors) throw new Error("this map has no factors");
  const group = Math.floor(place / (heads.length / groups));
  const right = turned(factors.right, columns, groups, keys, group, packed.factors.right_step[group]);
  const left = factors.left
    ? turned(factors.left, columns, heads.length, queries, place, packed.factors.left_step[place])
    : weighted(raw ?? new Float32Array(queries * keys), right, queries, keys, columns);
  return { columns, left, right };
}

/**
 * Rows of `right` [key, column] added up by the weights of each query: [query, column].
 * @param {Float32Array} raw @param {Float64Array} right @param {number} queries @param {number} keys
 * @param {number} columns
 */
function weighted(raw, right, queries, keys, columns) {
  const rows = new Float64Array(queries * columns);
  for (let query = 0; query < queries; query++)
    for (let key = 0; key < keys; key++) {
      const weight = raw[query * keys + key];
      const [to, from] = [query * columns, key * columns];
      for (let column = 0; column < columns; column++) rows[to + column] += weight * right[from + column];
    }
  return rows;
}

/**
 * From [column, head, token] of whole numbers to [token, column] of one head.
 * @param {Int16Array} values @param {number} columns @param {number} heads @param {number} tokens
 * @param {number} head @param {number} step
 */
function turned(values, columns, heads, tokens, head, step) {
  const rows = new Float64Array(tokens * columns);
  for (let column = 0; column < columns; column++) {
    const from = (column * heads + head) * tokens;
    for (let token = 0; token < tokens; token++) rows[token * columns + column] = values[from + token] * step;
  }
  return rows;
}

/**
 * left·rightᵀ on the allowed keys of each query: two queries and four keys at a time, the page's slowest loop.
 * @param {{left: Float64Array, right: Float64Array, columns: number}} factors
 * @param {OpenLayer} layer
 */
function product({ left, right, columns }, layer) {
  const { queries, keys } = layer.described;
  const cells = new Float32Array(queries * keys);
  for (let query = 0; query < queries; query += 2) {
    const pair = query + 1 < queries ? 1 : 0;
    const first = Math.min(layer.start[query], layer.start[query + pair]);
    const last = Math.max(layer.stop[query], layer.stop[query + pair]);
    for (let key = first; key < last; key += 4) {
      const from = Math.max(0, Math.min(key, keys - 4));
      if (keys < 4) {
        for (let at = first; at < last; at++)
          for (let row = query; row <= query + pair; row++)
            for (let column = 0; column < columns; column++)
              cells[row * keys + at] += left[row * columns + column] * right[at * columns + column];
        break;
      }
      let a0 = 0,
        a1 = 0,
        a2 = 0,
        a3 = 0,
        b0 = 0,
        b1 = 0,
        b2 = 0,
        b3 = 0;
      let one = query * columns,
        two = (query + pair) * columns,
        place = from * columns;
      for (let column = 0; column < columns; column++, one++, two++, place++) {
        const a = left[one],
          b = left[two];
        const r0 = right[place],
          r1 = right[place + columns],
          r2 = right[place + 2 * columns],
          r3 = right[place + 3 * columns];
        a0 += a * r0;
        a1 += a * r1;
        a2 += a * r2;
        a3 += a * r3;
        b0 += b * r0;
        b1 += b * r1;
        b2 += b * r2;
        b3 += b * r3;
      }
      const cell = query * keys + from;
      cells[cell] = a0;
      cells[cell + 1] = a1;
      cells[cell + 2] = a2;
      cells[cell + 3] = a3;
      if (pair) {
        cells[cell + keys] = b0;
        cells[cell + keys + 1] = b1;
        cells[cell + keys + 2] = b2;
        cells[cell + keys + 3] = b3;
      }
    }
  }
  return cells;
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
  /** @param {number} from @param {number} query */
  const copy = (from, query) => {
    for (let key = 0; key < keys; key++) {
      const coded = low[from * keys + key] | (high[from * keys + key] << 8);
      const root = ((coded >>> 1) ^ -(coded & 1)) / packed.levels;
      cells[query * keys + key] = root * Math.abs(root);
    }
  };
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
    canonical: canonicalOf(layer, place),
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
  const small = floats(layer.buffer, described.output.matrix).subarray(
    place * rows * width,
    (place + 1) * rows * width,
  );
  const result = new Float64Array(described.keys * width);
  for (let key = 0; key < described.keys; key++)
    for (let column = 0; column < columns; column++) {
      const factor = right[key * columns + column];
      for (let to = 0; to < width; to++) result[key * width + to] += factor * small[column * width + to];
    }
  return { rows: result, width, rowError: described.output.row_error[place] };
}
