/** Answers the viewer's questions, in a worker or, where there can be none, on the page itself. */

import { alternativeRow } from "./alternative.js";
import { mapsOf, openLayer } from "./attention.js";
import { gunzip } from "./decode.js";
import { boundsOf, madeRow } from "./moving_row.js";
import { thumbnailOf } from "./thumbnail.js";

/**
 * @typedef {{kind: "away"|"least"|"most", key: number}} Wish
 * @typedef {{op: "open", layer: number, described: import("./data.js").PackedLayer, bytes: Uint8Array}
 *   | {op: "maps", layer: number, place: number}
 *   | {op: "thumbnail", layer: number, place: number, name: string}
 *   | {op: "row", layer: number, place: number, query: number, wish: Wish}
 *   | {op: "bounds", layer: number, place: number, query: number, keys: number[]}} Question
 * @typedef {{weights: Float64Array, other: Float64Array, freedom: number, allowed: Uint8Array,
 *   output: {rows: Float64Array, width: number, rowError: number}}} RowAnswer
 * @typedef {{weight: number, lower: number, upper: number}} Bounds
 */

/** @returns {(question: Question) => Promise<any>} */
export function makeAnswerer() {
  /** @type {Map<number, import("./attention.js").OpenLayer>} */
  const layers = new Map();
  /** @type {{layer: number, place: number, maps: import("./data.js").Maps}|null} */
  let last = null;
  /** @type {{layer: number, place: number, query: number, made: import("./moving_row.js").MadeRow|null}|null} */
  let lastRow = null;
  return async (question) => {
    if (question.op === "open") {
      layers.set(question.layer, openLayer(question.described, await gunzip(question.bytes)));
      return null;
    }
    const layer = layers.get(question.layer);
    if (!layer) throw new Error(`layer ${question.layer} has not been opened`);
    // A thumbnail does not take the place of the head that is looked at.
    if (question.op === "thumbnail") return thumbnailOf(layer, question.place, question.name);
    if (!last || last.layer !== question.layer || last.place !== question.place)
      last = { layer: question.layer, place: question.place, maps: mapsOf(layer, question.place) };
    if (question.op === "maps") return last.maps;
    const { query, place } = question;
    if (!lastRow || lastRow.layer !== question.layer || lastRow.place !== place || lastRow.query !== query)
      lastRow = { layer: question.layer, place, query, made: madeRow(layer, place, last.maps.raw, query) };
    if (!lastRow.made) return null;
    const { problem, allowed, output } = lastRow.made;
    if (question.op === "bounds") return boundsOf(lastRow.made, question.keys);
    const other = alternativeRow(problem, question.wish);
    return { weights: problem.weights, other, freedom: problem.freedom, allowed, output };
  };
}

/** Listen, if this is a worker. */
export function listen() {
  const scope = /** @type {any} */ (globalThis);
  const answer = makeAnswerer();
  scope.onmessage = async (/** @type {MessageEvent} */ { data }) => {
    try {
      scope.postMessage({ id: data.id, answer: await answer(data.question) });
    } catch (error) {
      scope.postMessage({ id: data.id, error: String(error) });
    }
  };
}
