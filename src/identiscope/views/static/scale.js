/** The colour scale that fits some maps: apart from drawing, so that a worker can find it. */

/** The share of cells that may be stronger than the strongest colour. */
const BEYOND = 0.001;

/** In a short text even the weight that uniform attention would give is worth a colour: noise is at most this. */
const MOST_NOISE = 0.02;

const BINS = 4096;

/** @param {Float32Array} cells */
function largest(cells) {
  let most = 0;
  for (let cell = 0; cell < cells.length; cell++) {
    const size = Math.abs(cells[cell]);
    if (size > most) most = size;
  }
  return most;
}

/** The magnitude that all but the share BEYOND of the cells keep to. @param {Float32Array} cells @param {number} most */
function robustLimit(cells, most) {
  const counts = new Uint32Array(BINS + 1);
  // By their roots, so that small values have bins of their own, too.
  for (let cell = 0; cell < cells.length; cell++)
    if (cells[cell] !== 0) counts[Math.ceil(BINS * Math.sqrt(Math.abs(cells[cell]) / most)) || 0]++;
  let bin = BINS;
  for (let above = counts[bin]; bin > 1 && above <= BEYOND * cells.length;) above += counts[--bin];
  return most * (bin / BINS) ** 2;
}

/**
 * One scale for several maps of the same size.
 * @param {(Float32Array|null)[]} maps @param {number} columns  what uniform weights would be shared among
 * @returns {import("./colour.js").Scale}
 */
export function scaleOf(maps, columns) {
  let [limit, most] = [0, 0];
  for (const cells of maps) {
    const own = cells ? largest(cells) : 0;
    if (cells && own > 0) limit = Math.max(limit, robustLimit(cells, own));
    most = Math.max(most, own);
  }
  return { limit, most, noise: Math.min(1 / Math.max(columns, 1), MOST_NOISE) };
}
