/** A row of a head, made ready to be moved without a change of its output. */

import { rowProblem } from "./alternative.js";
import { outputRows } from "./attention.js";
import { beginWalk, extremes } from "./corner_walk.js";

/**
 * @typedef {{walk: import("./corner_walk.js").Walk|null, problem: import("./alternative.js").RowProblem, allowed: Uint8Array,
 *   output: {rows: Float64Array, width: number, rowError: number}}} MadeRow
 */

/** The keys that a query may look at: 1 or 0 each. @param {import("./attention.js").OpenLayer} layer @param {number} query */
export function allowedKeys(layer, query) {
  const { keys } = layer.described;
  return Uint8Array.from({ length: keys }, (_, key) =>
    Number(
      key >= layer.start[query] && key < layer.stop[query] && (!layer.matrix || layer.matrix[query * keys + key] > 0),
    ),
  );
}

/**
 * null where the page does not have the head's values.
 * @param {import("./attention.js").OpenLayer} layer @param {number} place @param {Float32Array} raw  of the head
 * @param {number} query @param {ReturnType<typeof outputRows>} [known]  T of the head, if it was made before
 * @returns {MadeRow|null}
 */
export function madeRow(layer, place, raw, query, known) {
  const { keys } = layer.described;
  const output = known ?? outputRows(layer, place);
  if (!output) return null;
  const weights = Float64Array.from(raw.subarray(query * keys, (query + 1) * keys));
  const allowed = allowedKeys(layer, query);
  return { walk: null, problem: rowProblem(weights, output, allowed), allowed, output };
}

/**
 * What some keys of the row weigh together, and the least and the most that it may be with the same output; null where
 * that could not be found.
 * @param {MadeRow} made @param {number[]} keys @returns {import("./worker.js").Bounds|null}
 */
export function boundsOf(made, keys) {
  const { places, basis, start, freedom } = made.problem;
  const wanted = new Set(keys);
  const inside = Uint8Array.from(places, (key) => Number(wanted.has(key)));
  const weight = start.reduce((sum, value, place) => sum + (inside[place] ? value : 0), 0);
  if (freedom <= 0) return { weight, lower: weight, upper: weight };
  made.walk ??= beginWalk(basis, start);
  const found = extremes(made.walk, inside);
  // Where rounding has led the walk astray the next one begins anew.
  if (!found) made.walk = null;
  return found;
}
