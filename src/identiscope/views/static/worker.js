/** Answers the viewer's questions, in a worker or, where there can be none, on the page itself. */

import { alternativeRow } from "./alternative.js";
import { mapsOf, openLayer, outputRows } from "./attention.js";
import { gunzip } from "./decode.js";

/**
 * @typedef {{op: "open", layer: number, described: import("./data.js").PackedLayer, bytes: Uint8Array}
 *   | {op: "maps", layer: number, place: number}
 *   | {op: "row", layer: number, place: number, query: number, wish: {kind: "away"|"least"|"most", key: number}}} Question
 * @typedef {{weights: Float64Array, other: Float64Array, freedom: number, allowed: Uint8Array,
 *   output: {rows: Float64Array, width: number, rowError: number}}} RowAnswer
 */

/** @returns {(question: Question) => Promise<any>} */
export function makeAnswerer() {
  /** @type {Map<number, import("./attention.js").OpenLayer>} */
  const layers = new Map();
  /** @type {{layer: number, place: number, maps: import("./data.js").Maps}|null} */
  let last = null;
  return async (question) => {
    if (question.op === "open") {
      layers.set(question.layer, openLayer(question.described, await gunzip(question.bytes)));
      return null;
    }
    const layer = layers.get(question.layer);
    if (!layer) throw new Error(`layer ${question.layer} has not been opened`);
    if (!last || last.layer !== question.layer || last.place !== question.place)
      last = { layer: question.layer, place: question.place, maps: mapsOf(layer, question.place) };
    if (question.op === "maps") return last.maps;
    const { keys } = layer.described;
    const { query } = question;
    const weights = Float64Array.from(last.maps.raw.subarray(query * keys, (query + 1) * keys));
    const allowed = Uint8Array.from(weights, (_, key) =>
      Number(
        key >= layer.start[query] && key < layer.stop[query] && (!layer.matrix || layer.matrix[query * keys + key] > 0),
      ),
    );
    const output = outputRows(layer, question.place);
    if (!output) return null;
    const { row, freedom } = alternativeRow(weights, output, allowed, question.wish);
    return { weights, other: row, freedom, allowed, output };
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
