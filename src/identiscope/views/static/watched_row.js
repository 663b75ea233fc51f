/** The row that is looked at, shared by all views of it: its weights, another with the same output, what words may be. */

import { outputDifference } from "./alternative.js";

/** How long the browser looks for bounds of words, two linear programs each and the most looked at first, in milliseconds. */
const SEEKING = 8000;

/**
 * @typedef {import("./worker.js").Bounds & {exact: boolean}} KnownBounds
 *
 * @typedef {object} RowPlace
 * @property {import("./data.js").Maps} maps
 * @property {import("./data.js").PackedLayer} layer
 * @property {number} index  of the layer
 * @property {number} head
 * @property {number} row
 *
 * @typedef {object} Facts  what is so where the slider stands
 * @property {number} moved  share of the weight
 * @property {number} change  of the output, as a share of it
 * @property {number} random  the change if as much is moved without care
 * @property {number} hidden  what the rounding of T in this page could hide at most
 * @property {number} farthest  share of the weight that is moved at the end of the slider
 *
 * @typedef {ReturnType<typeof makeWatchedRow>} WatchedRow
 */

/** @param {number} weight @param {number} lower @param {number} upper @returns {KnownBounds} */
export const exactly = (weight, lower, upper) => ({
  weight,
  lower,
  upper,
  exact: true,
});

/** A set of keys by name. @param {number[]} keys */
const nameOf = (keys) => keys.join(" ");

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {import("./engine.js").Engine} engine
 */
export function makeWatchedRow(about, engine) {
  /** @type {RowPlace|null} */
  let current = null;
  /** @type {import("./worker.js").RowAnswer|null} */
  let answer = null;
  let [waiting, seeking, step, turn] = [false, false, 0, 0];
  /** @type {import("./worker.js").Wish} */
  const wish = { kind: "away", key: 0 };
  /** @type {Map<string, KnownBounds>} */
  const bounds = new Map();
  /** @type {((what: "row"|"step"|"bounds") => void)[]} */
  const listeners = [];
  /** @type {number[][]} */
  let wanted = [];
  const tell = (/** @type {"row"|"step"|"bounds"} */ what) => listeners.forEach((listener) => listener(what));

  /** Exact intervals that came with the page. @param {RowPlace} place */
  function readIntervals({ layer, head, row }) {
    bounds.clear();
    const keys = about.tokens.keys ?? about.tokens.queries;
    for (const one of about.intervals) {
      if (one.layer !== layer.layer || one.head !== head || one.query !== row) continue;
      bounds.set(nameOf([one.key]), exactly(one.weight, one.lower, one.upper));
      const copies = keys.flatMap((token, place) => (token === keys[one.key] ? [place] : []));
      // Those that the row may not see have no weight in any case.
      if (copies.length > 1 && copies.length >= one.copies)
        bounds.set(nameOf(copies), exactly(one.merged_weight, one.merged_lower, one.merged_upper));
    }
  }

  async function ask() {
    if (!current) return;
    const mine = ++turn;
    answer = null;
    waiting = !!current.layer.effective_simplex_span;
    tell("row");
    if (waiting) {
      const { layer, index, head, row } = current;
      const found = await engine.row(index, layer.heads.indexOf(head), row, { ...wish });
      if (mine !== turn) return;
      answer = found;
    }
    waiting = false;
    tell("row");
    void seek(mine);
  }

  /** Bounds of words, one after the other, as long as nothing else is looked at. @param {number} mine */
  async function seek(mine) {
    if (!current || !answer || answer.freedom <= 0) return;
    const { layer, index, head, row } = current;
    const { weights, other } = answer;
    const strength = (/** @type {number[]} */ keys) =>
      Math.max(...[weights, other].map((values) => keys.reduce((sum, key) => sum + values[key], 0)));
    const { allowed } = answer;
    // All that are seen: a word with hardly any weight may be one that could have much.
    const open = wanted
      .filter((keys) => keys.some((key) => allowed[key]) && !bounds.has(nameOf(keys)))
      .sort((one, next) => strength(next) - strength(one));
    seeking = open.length > 0;
    const end = performance.now() + SEEKING;
    for (const keys of open) {
      if (performance.now() > end) break;
      const found = await engine.bounds(index, layer.heads.indexOf(head), row, keys);
      if (mine !== turn) return;
      if (!found) continue;
      bounds.set(nameOf(keys), { ...found, exact: false });
      tell("bounds");
    }
    seeking = false;
    tell("bounds");
  }

  /** The weights where the slider stands. */
  function now() {
    if (!current) return new Float64Array();
    const { maps, row } = current;
    if (!answer) return Float64Array.from(maps.raw.subarray(row * maps.keys, (row + 1) * maps.keys));
    const { weights, other } = answer;
    return weights.map((weight, key) => weight + step * (other[key] - weight));
  }

  /** @returns {Facts|null} */
  function facts() {
    if (!answer || answer.freedom <= 0) return null;
    const { weights, other, output } = answer;
    const weightsNow = now();
    const { change, whole } = outputDifference(weights, weightsNow, output);
    const moved = distance(weights, weightsNow);
    const careless = outputDifference(weights, elsewhere(answer, moved), output);
    return {
      moved,
      change: whole > 0 ? change / whole : change,
      random: careless.whole > 0 ? careless.change / careless.whole : 0,
      // At most so much for each unit of weight that moved.
      hidden: whole > 0 ? (2 * moved * output.rowError) / whole : 0,
      farthest: distance(weights, other),
    };
  }

  return {
    place: () => current,
    answer: () => answer,
    waiting: () => waiting,
    seeking: () => seeking,
    step: () => step,
    wish: () => ({ ...wish }),
    now,
    facts,
    /** What is known of some keys together. @param {number[]} keys @returns {KnownBounds|null} */
    bounds: (keys) => bounds.get(nameOf(keys)) ?? null,
    /** @param {(what: "row"|"step"|"bounds") => void} listener */
    watch: (listener) => void listeners.push(listener),
    /** The sets of keys whose bounds are wanted. @param {number[][]} sets */
    want(sets) {
      wanted = sets;
      if (answer && !waiting) {
        // What was sought for before is not wanted any more.
        turn++;
        void seek(turn);
      }
    },
    /** @param {number} share  from 0 to 1 */
    slide(share) {
      step = share;
      tell("step");
    },
    /** @param {Partial<import("./worker.js").Wish>} other */
    ask(other) {
      Object.assign(wish, other);
      return ask();
    },
    /** @param {RowPlace} place */
    show(place) {
      current = place;
      step = 0;
      if (wish.key >= place.maps.keys) wish.key = 0;
      readIntervals(place);
      return ask();
    },
  };
}

/** Total variation. @param {Float64Array} one @param {Float64Array} other */
function distance(one, other) {
  return one.reduce((sum, weight, key) => sum + Math.abs(weight - other[key]), 0) / 2;
}

/** The same weight moved without care: towards the row read backwards. @param {import("./worker.js").RowAnswer} found @param {number} moved */
function elsewhere({ weights, allowed }, moved) {
  const places = Array.from(weights.keys()).filter((key) => allowed[key]);
  const aim = weights.slice();
  places.forEach((key, at) => void (aim[key] = weights[places[places.length - 1 - at]]));
  const reach = distance(aim, weights);
  const step = reach > 0 ? Math.min(1, moved / reach) : 0;
  return weights.map((weight, key) => weight + step * (aim[key] - weight));
}
