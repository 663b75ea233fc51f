/** Asks the worker, opens each layer once, and remembers the maps last looked at. */

import { makeAnswerer } from "./worker.js";

/** How many cells of maps are remembered. */
const REMEMBERED = 2 ** 23;

/**
 * @typedef {object} Engine
 * @property {(layer: number, place: number) => Promise<import("./data.js").Maps>} maps  by index of layer and of head
 * @property {(layer: number, place: number, query: number, wish: import("./worker.js").Wish) =>
 *   Promise<import("./worker.js").RowAnswer|null>} row
 * @property {(layer: number, place: number, query: number, keys: number[]) =>
 *   Promise<import("./worker.js").Bounds|null>} bounds  of some keys together
 * @property {(layer: number, place: number, name: string) => Promise<import("./thumbnail.js").Thumbnail>} thumbnail
 * @property {() => void} close
 * @property {boolean} threaded
 */

/**
 * @param {import("./data.js").PackedLayer[]} layers
 * @param {(name: string) => Promise<Uint8Array>} chunk
 * @param {(() => Worker)|null} makeWorker
 * @returns {Engine}
 */
export function makeEngine(layers, chunk, makeWorker) {
  const { ask, close, threaded } = makeAsker(makeWorker);
  /** @type {Map<number, Promise<any>>} */
  const opened = new Map();
  /** @type {Map<string, Promise<import("./data.js").Maps>>} */
  const remembered = new Map();
  /** @param {number} layer */
  const open = (layer) => {
    let opening = opened.get(layer);
    if (!opening) {
      const described = layers[layer];
      opening = chunk(described.chunk).then((bytes) => ask({ op: "open", layer, described, bytes }));
      opened.set(layer, opening);
    }
    return opening;
  };
  return {
    threaded,
    close,
    maps(layer, place) {
      const name = `${layer} ${place}`;
      let asked = remembered.get(name);
      if (!asked) {
        asked = open(layer).then(() => ask({ op: "maps", layer, place }));
        remembered.set(name, asked);
        const { queries, keys } = layers[layer];
        const most = Math.max(2, Math.floor(REMEMBERED / (3 * queries * keys)));
        for (const old of Array.from(remembered.keys()).slice(0, -most)) remembered.delete(old);
      }
      return asked;
    },
    row(layer, place, query, wish) {
      return open(layer).then(() => ask({ op: "row", layer, place, query, wish }));
    },
    bounds(layer, place, query, keys) {
      return open(layer).then(() => ask({ op: "bounds", layer, place, query, keys }));
    },
    thumbnail(layer, place, name) {
      return open(layer).then(() => ask({ op: "thumbnail", layer, place, name }));
    },
  };
}

/** @param {(() => Worker)|null} makeWorker */
function makeAsker(makeWorker) {
  /** @type {Worker|null} */
  let worker = null;
  try {
    worker = makeWorker ? makeWorker() : null;
  } catch {
    worker = null;
  }
  if (!worker) {
    // No worker may be made here (some notebooks forbid it): the same answers, on the page's own thread.
    const answer = makeAnswerer();
    return {
      ask: (/** @type {import("./worker.js").Question} */ question) => answer(question),
      close() {},
      threaded: false,
    };
  }
  const made = worker;
  let count = 0;
  /** @type {Map<number, {resolve: (value: any) => void, reject: (error: Error) => void}>} */
  const waiting = new Map();
  made.onmessage = ({ data }) => {
    const one = waiting.get(data.id);
    waiting.delete(data.id);
    if (one) data.error ? one.reject(new Error(data.error)) : one.resolve(data.answer);
  };
  made.onerror = (event) => {
    for (const one of waiting.values()) one.reject(new Error(event.message));
    waiting.clear();
  };
  return {
    /** @param {import("./worker.js").Question} question @returns {Promise<any>} */
    ask(question) {
      return new Promise((resolve, reject) => {
        waiting.set(++count, { resolve, reject });
        made.postMessage({ id: count, question });
      });
    },
    close: () => made.terminate(),
    threaded: true,
  };
}
