/**
 * The least and the most that keys of a row may weigh together, by walking from corner to corner of all rows with the same
 * output: the simplex method, as linalg/simplex/corner_walk_compiled.py has it. A corner has weight on at most as many keys
 * as there are constraints, the basic ones; the tableau [basic, free] says by how much each basic weight falls when a free
 * one grows. All questions of a row share tableau and corner, so that each begins where the last one ended.
 */

/** A cost falls along an edge if it falls by more than this; entries and weights below these are rounding. */
const [FALLING, ENTRY, ZERO] = [1e-11, 1e-11, 5e-15];
/** After so many steps of no length the first possible one is taken, by which no corner is met twice. */
const STALLED = 60;
/** A corner that is off by more has not been followed well: nothing is said then. */
const LOST = 1e-7;

/**
 * @typedef {object} Walk
 * @property {Float64Array[]} basis  orthonormal columns over the keys
 * @property {Float64Array} start  the row
 * @property {Int32Array} basic
 * @property {Int32Array} free
 * @property {Float64Array[]} tableau  a line for each basic key
 * @property {Float64Array} weights  of the basic keys
 */

/**
 * @param {Float64Array[]} basis @param {Float64Array} start
 * @returns {Walk}
 */
export function beginWalk(basis, start) {
  const [keys, size] = [start.length, basis.length];
  // Points [key, constraint], reduced with whole pivoting: this chooses keys that are well apart, and is the tableau.
  const points = Array.from({ length: size }, (_, line) => Float64Array.from(basis[line]));
  const basic = new Int32Array(size);
  const taken = new Uint8Array(keys);
  for (let line = 0; line < size; line++) {
    let [row, key, most] = [line, 0, -1];
    for (let one = line; one < size; one++)
      for (let at = 0; at < keys; at++)
        if (!taken[at] && Math.abs(points[one][at]) > most) [row, key, most] = [one, at, Math.abs(points[one][at])];
    [points[line], points[row]] = [points[row], points[line]];
    const own = points[line];
    const inverse = 1 / own[key];
    for (let at = 0; at < keys; at++) own[at] *= inverse;
    for (let one = 0; one < size; one++) {
      if (one === line) continue;
      const [other, factor] = [points[one], points[one][key]];
      if (factor !== 0) for (let at = 0; at < keys; at++) other[at] -= factor * own[at];
    }
    basic[line] = key;
    taken[key] = 1;
  }
  const free = Int32Array.from(start.keys()).filter((key) => !taken[key]);
  const tableau = points.map((line) => Float64Array.from(free, (key) => line[key]));
  const walk = { basis, start, basic, free, tableau, weights: Float64Array.from(basic, (key) => start[key]) };
  toCorner(walk);
  return walk;
}

/** Take the weight of free keys away, the smallest first, each as far as the others stay non-negative. @param {Walk} walk */
function toCorner(walk) {
  const { start, free, tableau, weights } = walk;
  const shares = Float64Array.from(free, (key) => start[key]);
  const costs = new Float64Array(free.length);
  const order = Array.from(shares.keys()).sort((one, other) => shares[one] - shares[other]);
  for (const column of order) {
    if (shares[column] <= 0) continue;
    let [step, pivot] = [shares[column], -1];
    for (let line = 0; line < weights.length; line++) {
      const rise = -tableau[line][column];
      if (rise > ENTRY && weights[line] < step * rise) [step, pivot] = [weights[line] / rise, line];
    }
    for (let line = 0; line < weights.length; line++)
      weights[line] = Math.max(weights[line] + step * tableau[line][column], 0);
    if (pivot < 0) continue;
    weights[pivot] = shares[column] - step;
    exchange(walk, costs, pivot, column);
  }
}

/** Walk to the corner of least cost; whether it was reached. @param {Walk} walk @param {Float64Array} cost  of every key */
function descend(walk, cost) {
  const { basic, free, tableau, weights } = walk;
  const costs = Float64Array.from(free, (key) => cost[key]);
  basic.forEach((key, line) => {
    if (cost[key] !== 0) for (let at = 0; at < costs.length; at++) costs[at] -= cost[key] * tableau[line][at];
  });
  let stalled = 0;
  for (let steps = 0; steps < 50 * cost.length; steps++) {
    let [column, least] = [-1, -FALLING];
    for (let at = 0; at < costs.length; at++) {
      if (stalled < STALLED) {
        if (costs[at] < least) [column, least] = [at, costs[at]];
      } else if (costs[at] < -FALLING && (column < 0 || free[at] < free[column])) column = at;
    }
    if (column < 0) return true;
    let bound = Infinity;
    for (let line = 0; line < weights.length; line++) {
      const fall = tableau[line][column];
      if (fall > ENTRY) bound = Math.min(bound, (weights[line] + 1e-14) / fall);
    }
    // As far as every weight stays above zero but for rounding; of those that end it, by the largest entry.
    let pivot = -1;
    for (let line = 0; line < weights.length; line++) {
      const fall = tableau[line][column];
      if (fall > ENTRY && weights[line] <= bound * fall && (pivot < 0 || fall > tableau[pivot][column])) pivot = line;
    }
    if (pivot < 0) return false;
    const step = weights[pivot] / tableau[pivot][column];
    for (let line = 0; line < weights.length; line++)
      weights[line] = Math.max(weights[line] - step * tableau[line][column], 0);
    weights[pivot] = step;
    exchange(walk, costs, pivot, column);
    stalled = step <= ZERO ? stalled + 1 : 0;
  }
  return false;
}

/** A basic key becomes free and a free one basic. @param {Walk} walk @param {Float64Array} costs @param {number} pivot @param {number} column */
function exchange({ basic, free, tableau }, costs, pivot, column) {
  const own = tableau[pivot];
  const inverse = 1 / own[column];
  for (let at = 0; at < own.length; at++) own[at] *= inverse;
  own[column] = inverse;
  const subtract = (/** @type {Float64Array} */ line) => {
    const factor = line[column];
    if (factor === 0) return;
    for (let at = 0; at < line.length; at++) line[at] -= factor * own[at];
    line[column] = -factor * inverse;
  };
  tableau.forEach((line, at) => void (at !== pivot && subtract(line)));
  subtract(costs);
  [basic[pivot], free[column]] = [free[column], basic[pivot]];
}

/** How far the corner is from the row's output: its weights were followed from step to step. @param {Walk} walk */
function astray({ basis, start, basic, weights }) {
  let most = 0;
  for (const vector of basis) {
    let sum = 0;
    basic.forEach((key, line) => void (sum += vector[key] * weights[line]));
    for (let key = 0; key < start.length; key++) sum -= vector[key] * start[key];
    most = Math.max(most, Math.abs(sum));
  }
  return most;
}

/**
 * What some keys weigh together, and the least and the most that it may be; null where the way was lost.
 * @param {Walk} walk @param {Uint8Array} inside  1 for these keys
 */
export function extremes(walk, inside) {
  const { start, basic, weights } = walk;
  const weight = start.reduce((sum, value, key) => sum + (inside[key] ? value : 0), 0);
  const ends = [];
  for (const sign of [-1, 1]) {
    const cost = Float64Array.from(inside, (one) => sign * one);
    if (!descend(walk, cost) || astray(walk) > LOST) return null;
    ends.push(weights.reduce((sum, value, line) => sum + (inside[basic[line]] ? value : 0), 0));
  }
  return { weight, lower: Math.min(ends[1], weight), upper: Math.max(ends[0], weight) };
}
