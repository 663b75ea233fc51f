/** The left factor of projected attention, where it follows from raw attention and the right factor. */

/**
 * Rows of `right` [key, column] added up by the weights of each query, four keys at a time: [query, column].
 * @param {Float32Array} raw @param {Float64Array} right @param {number} queries @param {number} keys
 * @param {number} columns
 */
export function weighted(raw, right, queries, keys, columns) {
  const rows = new Float64Array(queries * columns);
  const places = new Int32Array(keys + 3);
  const weights = new Float64Array(keys + 3);
  for (let query = 0; query < queries; query++) {
    let count = 0;
    for (let key = 0; key < keys; key++)
      if (raw[query * keys + key] !== 0) {
        places[count] = key * columns;
        weights[count++] = raw[query * keys + key];
      }
    // The last four are made full by keys without weight.
    weights.fill(0, count, count + 3);
    for (let at = 0; at < count; at += 4) {
      const w0 = weights[at],
        w1 = weights[at + 1],
        w2 = weights[at + 2],
        w3 = weights[at + 3];
      let k0 = places[at],
        k1 = places[at + 1],
        k2 = places[at + 2],
        k3 = places[at + 3];
      for (let to = query * columns; to < (query + 1) * columns; to++, k0++, k1++, k2++, k3++)
        rows[to] += w0 * right[k0] + w1 * right[k1] + w2 * right[k2] + w3 * right[k3];
    }
  }
  return rows;
}

/**
 * The same rows, each times (ridge + RᵀR)⁻¹ of the rows R of `right` that its query may see, the first `stop` ones.
 * A row more changes the inverse by the product of two vectors; that, the query's row times the new inverse, and the
 * next row of `right` times it are had in one walk over the matrix.
 * @param {Float64Array} rows [query, column], changed
 * @param {Float64Array} right @param {Int32Array} stop @param {number} columns
 * @param {number} ridge  the square of the step that `right` was rounded to
 */
export function solvedByPrefix(rows, right, stop, columns, ridge) {
  const inverse = new Float64Array(columns * columns);
  for (let column = 0; column < columns; column++) inverse[column * columns + column] = 1 / ridge;
  const last = right.length / columns - 1;
  const found = new Float64Array(columns);
  let ahead = right.slice(0, columns).map((value) => value / ridge);
  let along = new Float64Array(columns);
  for (let query = 0, seen = 0; query < stop.length; query++) {
    const row = rows.subarray(query * columns, (query + 1) * columns);
    do {
      const more = seen < stop[query];
      let size = 1;
      for (let column = 0; column < columns; column++) size += ahead[column] * right[seen * columns + column];
      [along, ahead] = [ahead, along];
      if (more) seen++;
      const next = Math.min(seen, last) * columns;
      walk(inverse, more ? 1 / size : 0, along, row, right.subarray(next, next + columns), found, ahead);
    } while (seen < stop[query]);
    row.set(found);
  }
  return rows;
}

/**
 * inverse − scale·along·alongᵀ, and two vectors times that; two rows of the matrix at a time.
 * @param {Float64Array} inverse  changed @param {number} scale @param {Float64Array} along
 * @param {Float64Array} one @param {Float64Array} other @param {Float64Array} oneFound @param {Float64Array} otherFound
 */
function walk(inverse, scale, along, one, other, oneFound, otherFound) {
  const columns = along.length;
  for (let row = 0; row < columns; row += 2) {
    // Of the last row of an odd number there is one copy, done twice the same.
    const second = Math.min(row + 1, columns - 1);
    const a = along[row] * scale,
      b = along[second] * scale;
    let a0 = 0,
      a1 = 0,
      b0 = 0,
      b1 = 0;
    for (let column = 0, from = row * columns, below = second * columns; column < columns; column++, from++, below++) {
      const x = along[column],
        y = one[column],
        z = other[column];
      const upper = inverse[from] - a * x,
        lower = inverse[below] - b * x;
      inverse[from] = upper;
      inverse[below] = lower;
      a0 += upper * y;
      a1 += upper * z;
      b0 += lower * y;
      b1 += lower * z;
    }
    oneFound[row] = a0;
    otherFound[row] = a1;
    oneFound[second] = b0;
    otherFound[second] = b1;
  }
}
