/** The heads of a text: all of them at a glance, one with its maps, one of its rows, and lines between tokens. */

import { makeChoices } from "./choices.js";
import { choice, html } from "./dom.js";
import { makeEngine } from "./engine.js";
import { makeHead } from "./head.js";
import { lensOf } from "./lens.js";
import { makeLines } from "./lines.js";
import { makeOverview } from "./overview.js";
import { makeReading } from "./reading.js";
import { makeRow } from "./row.js";
import { playOnce } from "./slider.js";
import { makeWatchedRow } from "./watched_row.js";
import { isSpecial } from "./words.js";

/**
 * @typedef {import("./data.js").AttentionData & {name: string, title: string, live: boolean}} Attended
 *
 * @typedef {object} Heads  what tests and scripts may use
 * @property {() => import("./data.js").Place} place
 * @property {(place: Partial<import("./data.js").Place>) => Promise<void>} choose
 * @property {(layer: number, head: number) => Promise<import("./data.js").Maps>} maps
 * @property {() => {weights: Float64Array, now: Float64Array, other: Float64Array|null, freedom: number}|null} row
 * @property {(name: string, row: number, column: number) => {x: number, y: number}} pointOf
 * @property {(listener: (place: import("./data.js").Place) => void) => void} watch  told of every place that is shown
 */

/**
 * @param {import("./sections.js").Drawn<import("./data.js").AttentionData>[]} sections  each by itself
 * @param {import("./sections.js").View} view
 * @returns {import("./sections.js").Part}
 */
export function drawAttention([section], view) {
  const { theme, timing } = view;
  const { layers, start } = section.data;
  /** @type {Attended} */
  const about = { ...section.data, name: section.name, title: view.title, live: view.live };
  const engine = makeEngine(layers, section.chunk, view.worker);
  timing.threaded = engine.threaded;
  /** @type {import("./data.js").Place} */
  const place = { layer: layers[0]?.layer ?? 0, head: layers[0]?.heads[0] ?? 0, row: 0 };
  /** @type {((place: import("./data.js").Place) => void)[]} */
  const watching = [];

  const overview = makeOverview(about, theme, engine, (chosen) => void moveTo(chosen));
  const { verdict } = view;
  view.verdict = null;
  const watched = makeWatchedRow(about, engine);
  const chooseRow = (/** @type {number} */ chosen) => void moveTo({ row: chosen });
  const reading = makeReading(about, theme, watched, chooseRow);
  const head = makeHead(about, theme, chooseRow);
  const row = makeRow(about, theme, watched, chooseRow);
  const lines = makeLines(about, theme, chooseRow);
  /** @type {{maps: import("./data.js").Maps, layer: import("./data.js").PackedLayer}|null} */
  let current = null;
  const choices = makeChoices(() => {
    reading.setWords(choices.chosen.words);
    if (current) look(current.maps);
    head.refresh();
  });
  reading.setWords(false);

  /** Through the lens that was chosen. @param {import("./data.js").Maps} maps */
  function look(maps) {
    const { chosen } = choices;
    head.look(lensOf(about.tokens, chosen, maps.raw), chosen.mode);
    row.look(lensOf(about.tokens, { ...chosen, order: "text" }, maps.raw));
  }
  const layerChoice = choice(
    "Layer",
    layers.map(({ layer }) => ({ value: String(layer), text: String(layer) })),
    (value) => void moveTo({ layer: Number(value) }),
  );
  const headChoice = choice("Head", [], (value) => void moveTo({ head: Number(value) }));
  const nav = html(
    "nav",
    { class: "places", "aria-label": "Choose a head" },
    layerChoice.element,
    headChoice.element,
    choices.element,
    html("span", { class: "hint" }, "← → heads · ↑ ↓ layers · Shift ↑ ↓ rows"),
  );
  const element = html(
    "div",
    { id: section.name, class: "attention" },
    verdict,
    html("div", { class: "first" }, reading.element, overview.element),
    nav,
    head.element,
    html("div", { class: "two" }, row.element, lines.element),
  );

  /** The nearest place that exists. @param {Partial<import("./data.js").Place>} wanted */
  function settle(wanted) {
    const layer = layers.find((one) => one.layer === (wanted.layer ?? place.layer)) ?? layers[0];
    const chosen = wanted.head ?? place.head;
    place.layer = layer.layer;
    place.head = layer.heads.includes(chosen) ? chosen : layer.heads[0];
    place.row = Math.min(Math.max(0, Math.trunc(wanted.row ?? place.row) || 0), layer.queries - 1);
    return layer;
  }

  /** @param {Partial<import("./data.js").Place>} wanted */
  function moveTo(wanted) {
    const done = choose(wanted);
    view.moved(section.name, { ...place });
    return done;
  }

  let turn = 0;
  /** @param {Partial<import("./data.js").Place>} wanted */
  async function choose(wanted) {
    if (!layers.length) return;
    const began = performance.now();
    const mine = ++turn;
    const layer = settle(wanted);
    const index = layers.indexOf(layer);
    overview.mark(place);
    for (const listener of watching) listener({ ...place });
    layerChoice.list.value = String(place.layer);
    headChoice.list.replaceChildren(...layer.heads.map((one) => html("option", { value: one }, String(one))));
    headChoice.list.value = String(place.head);
    const maps = await engine.maps(index, layer.heads.indexOf(place.head));
    if (mine !== turn) return;
    timing.compute = performance.now() - began;
    current = { maps, layer };
    look(maps);
    // The text at once, as it is on the first screen; what could be otherwise is looked for meanwhile.
    const answered = watched.show({ maps, layer, index, head: place.head, row: place.row });
    head.show(maps, layer, place.head, place.row);
    timing.change = performance.now() - began;
    // Let these be seen before the rest is drawn.
    await new Promise((resolve) => setTimeout(resolve, 0));
    if (mine !== turn) return;
    lines.show(maps, place.layer, place.head, place.row);
    await answered;
    // What an arrow key would ask for next, once nothing else is asked for.
    setTimeout(() => {
      if (mine !== turn || layer.queries * layer.keys > 2 ** 20) return;
      const at = layer.heads.indexOf(place.head);
      for (const next of [at + 1, at - 1]) if (next >= 0 && next < layer.heads.length) void engine.maps(index, next);
    }, 300);
  }

  /** The first place: where the address leads, where the page wants it, or where there is something to be seen. */
  async function begin() {
    const linked = view.linked(section.name);
    const wanted = { ...start, ...linked };
    if (!start && layers.length && linked.layer === undefined) {
      // In the middle, as the first layers look at themselves and at the next word.
      const layer = layers[layers.length >> 1];
      Object.assign(wanted, { layer: layer.layer, head: linked.head ?? layer.heads[0] });
      if (linked.row === undefined) {
        const at = Math.max(0, layer.heads.indexOf(Number(wanted.head)));
        wanted.row = tellingRow(await engine.maps(layers.indexOf(layer), at), about.tokens);
      }
    }
    await choose(wanted);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!still && view.plays && watched.facts()) playOnce(watched, element);
    view.plays = false;
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (
      !layers.length ||
      event.altKey ||
      event.ctrlKey ||
      event.metaKey ||
      /^(SELECT|INPUT|TEXTAREA)$/.test(target.tagName)
    )
      return;
    const steps = /** @type {Object<string, number[]>} */ ({
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
    });
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    if (event.shiftKey) return void moveTo({ row: place.row + step[0] + step[1] });
    const at = layers.findIndex((one) => one.layer === place.layer);
    const layer = layers[Math.min(Math.max(at + step[0], 0), layers.length - 1)];
    const next = layer.heads[Math.min(Math.max(layer.heads.indexOf(place.head) + step[1], 0), layer.heads.length - 1)];
    const inGrid = target.closest(".square");
    void moveTo({ layer: layer.layer, head: next }).then(() => {
      if (inGrid) /** @type {HTMLElement|null} */ (element.querySelector('.grid [aria-pressed="true"]'))?.focus();
    });
  }

  return {
    element,
    ready: begin(),
    press,
    draw() {
      overview.draw();
      reading.draw();
      head.refresh();
      row.draw();
      lines.draw();
    },
    close() {
      overview.close();
      head.close();
      row.close();
      lines.close();
      engine.close();
    },
    go: choose,
    heads: {
      place: () => ({ ...place }),
      choose: moveTo,
      watch: (listener) => void watching.push(listener),
      maps(layer, chosen) {
        const index = layers.findIndex((one) => one.layer === layer);
        return engine.maps(index, layers[index].heads.indexOf(chosen));
      },
      row() {
        const found = watched.answer();
        return found
          ? { weights: found.weights, now: watched.now(), other: found.other, freedom: found.freedom }
          : null;
      },
      pointOf(name, at, column) {
        const one = head.panels.find((panel) => panel.name === name);
        if (!one) throw new Error(`there is no map ${name}`);
        return one.panel.pointOf(at, column);
      },
    },
  };
}

/** The row of the largest weight from one word to another. @param {import("./data.js").Maps} maps @param {import("./data.js").Tokens} tokens */
function tellingRow({ raw, queries, keys }, tokens) {
  const names = tokens.keys ?? tokens.queries;
  const words = names.map((name) => !isSpecial(name));
  let [row, most] = [0, -1];
  for (let query = 0; query < queries; query++) {
    if (tokens.queries[query] !== undefined && isSpecial(tokens.queries[query])) continue;
    for (let key = 0; key < keys; key++)
      if (raw[query * keys + key] > most && words[key] !== false && (tokens.keys !== null || key !== query))
        [row, most] = [query, raw[query * keys + key]];
  }
  return row;
}
