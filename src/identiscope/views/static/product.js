/** Thin matrices of whole numbers, and the map that is their product. */

/**
 * From [column, head, token] of whole numbers to [token, column] of one head.
 * @param {Int16Array} values @param {number} columns @param {number} heads @param {number} tokens
 * @param {number} head @param {number} step
 */
export function turned(values, columns, heads, tokens, head, step) {
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
 * @param {import("./attention.js").OpenLayer} layer
 */
export function product({ left, right, columns }, layer) {
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
