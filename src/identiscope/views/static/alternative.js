/**
 * Another attention row with the same output (eq. 7), found here: of all rows a' ≥ 0 with a'·[T,1] = a·[T,1], the one
 * nearest to a point that lies far in a wanted direction. With B an orthonormal basis of col([T,1]) the answer is
 * max(0, point + B·λ), and λ, of as many numbers as a head has channels plus one, is found by Newton's method.
 */

/**
 * Orthonormal basis of the columns of [rows, 1], by Gram–Schmidt twice over.
 * @param {Float64Array} rows [key, width]
 * @param {number} keys
 * @param {number} width
 * @returns {Float64Array[]}
 */
function basisWithOnes(rows, keys, width) {
  /** @type {Float64Array[]} */
  const basis = [];
  for (let column = width; column >= 0; column--) {
    const vector = new Float64Array(keys);
    for (let key = 0; key < keys; key++) vector[key] = column === width ? 1 : rows[key * width + column];
    const before = Math.hypot(...vector);
    for (let again = 0; again < 2; again++)
      for (const other of basis) {
        let dot = 0;
        for (let key = 0; key < keys; key++) dot += vector[key] * other[key];
        for (let key = 0; key < keys; key++) vector[key] -= dot * other[key];
      }
    const norm = Math.hypot(...vector);
    // What is left of a column that the others span is rounding.
    if (norm > 1e-9 * before && norm > 0) basis.push(vector.map((value) => value / norm));
  }
  return basis;
}

/**
 * Solve the symmetric positive definite system in place of `right`, by Cholesky.
 * @param {Float64Array} matrix [size, size], overwritten
 * @param {Float64Array} right
 */
function solve(matrix, right) {
  const size = right.length;
  for (let row = 0; row < size; row++) {
    for (let column = 0; column <= row; column++) {
      let sum = matrix[row * size + column];
      for (let k = 0; k < column; k++) sum -= matrix[row * size + k] * matrix[column * size + k];
      matrix[row * size + column] =
        row === column ? Math.sqrt(Math.max(sum, 1e-300)) : sum / matrix[column * size + column];
    }
    for (let k = 0; k < row; k++) right[row] -= matrix[row * size + k] * right[k];
    right[row] /= matrix[row * size + row];
  }
  for (let row = size - 1; row >= 0; row--) {
    for (let k = row + 1; k < size; k++) right[row] -= matrix[k * size + row] * right[k];
    right[row] /= matrix[row * size + row];
  }
  return right;
}

/**
 * max(0, point + B·λ) with Bᵀ of it = goal.
 * @param {Float64Array[]} basis @param {Float64Array} point @param {Float64Array} goal
 * @param {Float64Array} dual  where to begin; changed to where it ended
 */
function nearest(basis, point, goal, dual) {
  const size = basis.length;
  const keys = point.length;
  const row = new Float64Array(keys);
  /** @param {Float64Array} at */
  const missing = (at) => {
    for (let key = 0; key < keys; key++) {
      let value = point[key];
      for (let k = 0; k < size; k++) value += basis[k][key] * at[k];
      row[key] = value > 0 ? value : 0;
    }
    return basis.map((vector, k) => {
      let sum = goal[k];
      for (let key = 0; key < keys; key++) sum -= vector[key] * row[key];
      return sum;
    });
  };
  let gap = missing(dual);
  for (let step = 0; step < 60 && Math.hypot(...gap) > 1e-13; step++) {
    const matrix = new Float64Array(size * size);
    for (let key = 0; key < keys; key++) {
      if (row[key] <= 0) continue;
      for (let k = 0; k < size; k++) for (let l = 0; l <= k; l++) matrix[k * size + l] += basis[k][key] * basis[l][key];
    }
    // With few positive weights the matrix is singular: a little of the identity, less as the gap closes.
    const ridge = 1e-12 + 1e-3 * Math.min(1, Math.hypot(...gap));
    for (let k = 0; k < size; k++) matrix[k * size + k] += ridge;
    const move = solve(matrix, Float64Array.from(gap));
    const size0 = Math.hypot(...gap);
    let length = 1;
    let next = gap;
    let to = dual;
    for (; length > 1e-6; length /= 2) {
      to = dual.map((value, k) => value + length * move[k]);
      next = missing(to);
      if (Math.hypot(...next) < size0 * (1 - 1e-4 * length)) break;
    }
    if (Math.hypot(...next) >= size0) break;
    dual.set(to);
    gap = next;
  }
  missing(dual);
  return { row, gap: Math.hypot(...gap) };
}

/**
 * A row that is to be moved without a change of its output, made ready once for all questions about it.
 * @typedef {object} RowProblem
 * @property {Float64Array} weights  over all keys
 * @property {number[]} places  the keys that the row may see
 * @property {Float64Array[]} basis  of col([T,1]) on these
 * @property {Float64Array} start  the weights of these
 * @property {number} freedom  in how many dimensions it may move
 */

/**
 * @param {Float64Array} weights  a row over all keys
 * @param {{rows: Float64Array, width: number}} output  T over all keys
 * @param {Uint8Array} allowed  which keys the row may see
 * @returns {RowProblem}
 */
export function rowProblem(weights, { rows, width }, allowed) {
  const places = Array.from(weights.keys()).filter((key) => allowed[key]);
  const own = new Float64Array(places.length * width);
  places.forEach((key, place) => own.set(rows.subarray(key * width, (key + 1) * width), place * width));
  const basis = basisWithOnes(own, places.length, width);
  const start = Float64Array.from(places, (key) => weights[key]);
  return { weights, places, basis, start, freedom: places.length - basis.length };
}

/**
 * @param {RowProblem} problem
 * @param {{kind: "away"|"least"|"most", key: number}} wish  away from the row itself, or little or much on one key
 * @returns {Float64Array}  the row itself where nothing may move
 */
export function alternativeRow({ weights, places, basis, start, freedom }, wish) {
  const found = Float64Array.from(weights);
  if (freedom <= 0) return found;
  const goal = Float64Array.from(basis, (vector) =>
    vector.reduce((sum, value, place) => sum + value * start[place], 0),
  );
  const top = Math.max(...start);
  const direction = start.map((value, place) =>
    wish.kind === "away" ? -value / top : places[place] !== wish.key ? 0 : wish.kind === "least" ? -1 : 1,
  );
  let best = start;
  /** Farther and farther points; a Newton iteration that does not close its gap ends the search. @param {number[]} distances */
  const follow = (distances) => {
    const dual = new Float64Array(basis.length);
    for (const distance of distances) {
      const { row, gap } = nearest(
        basis,
        start.map((value, place) => value + distance * direction[place]),
        goal,
        dual,
      );
      if (gap > 1e-10) break;
      best = row.slice();
    }
  };
  follow([0.1, 0.3, 1, 3, 10, 30]);
  // A row of one large weight can hardly move: begin nearer.
  if (best === start) follow([0.001, 0.003, 0.01, 0.03, 0.1]);
  places.forEach((key, place) => void (found[key] = best[place]));
  return found;
}

/**
 * ‖(other − weights)·T‖ and ‖weights·T‖.
 * @param {Float64Array} weights @param {Float64Array} other @param {{rows: Float64Array, width: number}} output
 */
export function outputDifference(weights, other, { rows, width }) {
  const change = new Float64Array(width);
  const whole = new Float64Array(width);
  for (let key = 0; key < weights.length; key++)
    for (let column = 0; column < width; column++) {
      const value = rows[key * width + column];
      change[column] += (other[key] - weights[key]) * value;
      whole[column] += weights[key] * value;
    }
  return { change: Math.hypot(...change), whole: Math.hypot(...whole) };
}
