/** The viewer: everything a page's data allow to be shown, inside one element. */

import { themeOf } from "./colour.js";
import { makeGrid } from "./corpus.js";
import { choice, html } from "./dom.js";
import { makeEngine } from "./engine.js";
import { makeHead } from "./head.js";
import { makeLines } from "./lines.js";
import { makeOverview, makeVerdict } from "./overview.js";
import { makeAttribution, makeFigure, makeStructure, makeTable, makeTokenRates } from "./results.js";
import { makeRow } from "./row.js";

/**
 * @typedef {object} ViewerOptions
 * @property {(() => Worker)|null} [worker]  makes the worker; without one the page's own thread computes
 * @property {boolean} [links]  whether the place is written to and read from the address (`#layer=3&head=7&row=12`)
 * @property {boolean} [alone]  whether the viewer has the whole page, so that arrows work wherever the focus is
 *
 * @typedef {object} Viewer  what tests and scripts may use; on a report it is `window.identiscope`
 * @property {Promise<void>} ready  the first head has been drawn
 * @property {() => import("./data.js").Place} place
 * @property {(place: Partial<import("./data.js").Place>) => Promise<void>} choose
 * @property {(layer: number, head: number) => Promise<import("./data.js").Maps>} maps
 * @property {() => {weights: Float64Array, now: Float64Array, other: Float64Array|null, freedom: number}|null} row
 * @property {(name: string, row: number, column: number) => {x: number, y: number}} pointOf
 * @property {import("./data.js").Header} header
 * @property {{first: number, compute: number, change: number, threaded: boolean}} timing  milliseconds: to all views, and of the
 *   last change of head until its maps were there and until they were drawn
 * @property {() => void} close
 */

/**
 * @param {HTMLElement} root
 * @param {import("./data.js").PageData} data
 * @param {ViewerOptions} [options]
 * @returns {Viewer}
 */
export function mount(root, data, options = {}) {
  const { header } = data;
  const began = performance.now();
  const preference = matchMedia("(prefers-color-scheme: dark)");
  /** @type {boolean|null} */
  let asked = null;
  const isDark = () => asked ?? preference.matches;
  const theme = () => themeOf(isDark());
  root.classList.add("identiscope");
  const timing = { first: 0, compute: 0, change: 0, threaded: false };

  const { layers } = header;
  /** @type {import("./data.js").Place} */
  const place = { layer: layers[0]?.layer ?? 0, head: layers[0]?.heads[0] ?? 0, row: 0 };
  const engine = makeEngine(data, options.worker ?? null);
  timing.threaded = engine.threaded;

  const toggle = html("button", { type: "button", class: "small", onclick: () => { asked = !isDark(); paintAll(); } });
  const top = html(
    "header",
    {},
    html("p", { class: "brand" }, html("b", {}, "identi"), "scope"),
    html("div", {}, html("h1", {}, header.title), html("p", { class: "subtitle" }, header.subtitle)),
    toggle
  );
  const main = html("main", {});
  root.replaceChildren(top, main);

  /** @type {{draw?: () => void, close?: () => void}[]} */
  const parts = [];
  const verdict = makeVerdict(header);
  /** @type {ReturnType<typeof makeOverview>|null} */
  let overview = null;
  /** @type {ReturnType<typeof makeHead>|null} */
  let head = null;
  /** @type {ReturnType<typeof makeRow>|null} */
  let row = null;
  /** @type {ReturnType<typeof makeLines>|null} */
  let lines = null;
  /** @type {{layerList: HTMLSelectElement, headList: HTMLSelectElement}|null} */
  let lists = null;
  if (layers.length) {
    overview = makeOverview(header, theme, (chosen) => void choose(chosen));
    const first = html("div", { class: "first" }, ...[verdict, overview.element].filter((part) => part !== null));
    head = makeHead(header, theme, (chosen) => void choose({ row: chosen }));
    row = makeRow(header, theme, engine, (chosen) => void choose({ row: chosen }));
    lines = makeLines(header, theme, (chosen) => void choose({ row: chosen }));
    const layerChoice = choice("Layer", layers.map(({ layer }) => ({ value: String(layer), text: String(layer) })), (value) => void choose({ layer: Number(value) }));
    const headChoice = choice("Head", [], (value) => void choose({ head: Number(value) }));
    lists = { layerList: layerChoice.list, headList: headChoice.list };
    const nav = html(
      "nav",
      { class: "places", "aria-label": "Choose a head" },
      layerChoice.element,
      headChoice.element,
      html("span", { class: "hint" }, "← → heads · ↑ ↓ layers · Shift ↑ ↓ rows")
    );
    main.append(first, nav, head.element, html("div", { class: "two" }, row.element, lines.element));
    parts.push({ draw: head.refresh, close: head.close }, row, lines);
  } else if (verdict) main.append(verdict);
  if (header.attribution) {
    const made = makeAttribution(data, header.attribution, theme);
    main.append(made.element);
    parts.push(made);
  }
  if (header.token_rates) {
    const made = makeTokenRates(header.token_rates, theme);
    main.append(made.element);
    parts.push(made);
  }
  const structure = header.structure ? makeStructure(data, header.structure, theme) : null;
  if (structure) {
    main.append(structure.element);
    parts.push(structure);
  }
  const corpus = [
    ...header.grids.map((grid, at) => makeGrid(grid, at, theme)),
    ...header.curves.map((curve, at) => makeTokenRates(curve, theme, `curve-${at}`)),
  ];
  for (const made of corpus) {
    main.append(made.element);
    parts.push(made);
  }
  header.tables.forEach((table, at) => main.append(makeTable(table, at, theme)));
  header.figures.forEach((figure) => main.append(makeFigure(figure)));
  main.append(
    html("footer", {}, ...header.notes.map((note) => html("p", {}, note)), html("p", {}, `Made by identiscope ${header.version}. This page asks nothing of any network.`))
  );

  function paintAll() {
    root.dataset.theme = isDark() ? "dark" : "light";
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    for (const part of parts) part.draw?.();
  }
  const repaint = () => void (asked === null && paintAll());
  preference.addEventListener("change", repaint);

  /** The nearest place that exists. @param {Partial<import("./data.js").Place>} wanted */
  function settle(wanted) {
    const layer = layers.find((one) => one.layer === (wanted.layer ?? place.layer)) ?? layers[0];
    const chosen = wanted.head ?? place.head;
    place.layer = layer.layer;
    place.head = layer.heads.includes(chosen) ? chosen : layer.heads[0];
    place.row = Math.min(Math.max(0, Math.trunc(wanted.row ?? place.row) || 0), layer.queries - 1);
    return layer;
  }

  let turn = 0;
  /** @param {Partial<import("./data.js").Place>} wanted */
  async function choose(wanted) {
    if (!head || !row || !lines || !overview || !lists) return;
    const start = performance.now();
    const mine = ++turn;
    const layer = settle(wanted);
    const index = layers.indexOf(layer);
    overview.mark(place);
    structure?.follow(place);
    lists.layerList.value = String(place.layer);
    lists.headList.replaceChildren(...layer.heads.map((one) => html("option", { value: one }, String(one))));
    lists.headList.value = String(place.head);
    if (options.links) {
      const address = `#layer=${place.layer}&head=${place.head}&row=${place.row}`;
      if (location.hash !== address) history.replaceState(null, "", address);
    }
    const maps = await engine.maps(index, layer.heads.indexOf(place.head));
    if (mine !== turn) return;
    timing.compute = performance.now() - start;
    head.show(maps, layer, place.head, place.row);
    timing.change = performance.now() - start;
    // The maps first: let them be seen before the rest is drawn.
    await new Promise((resolve) => setTimeout(resolve, 0));
    if (mine !== turn) return;
    lines.show(maps, place.layer, place.head, place.row);
    await row.show(maps, layer, index, place.head, place.row);
    // What an arrow key would ask for next, once nothing else is asked for.
    setTimeout(() => {
      if (mine !== turn || layer.queries * layer.keys > 2 ** 20) return;
      const at = layer.heads.indexOf(place.head);
      for (const next of [at + 1, at - 1]) if (next >= 0 && next < layer.heads.length) void engine.maps(index, next);
    }, 300);
  }

  /** @returns {Partial<import("./data.js").Place>} */
  function linked() {
    const found = new URLSearchParams(location.hash.slice(1));
    /** @type {Partial<import("./data.js").Place>} */
    const wanted = {};
    for (const name of /** @type {const} */ (["layer", "head", "row"])) {
      const value = found.get(name);
      if (value !== null && /^\d{1,6}$/.test(value)) wanted[name] = Number(value);
    }
    return wanted;
  }

  /** @param {KeyboardEvent} event */
  function onkey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (!layers.length || event.altKey || event.ctrlKey || event.metaKey || /^(SELECT|INPUT|TEXTAREA)$/.test(target.tagName)) return;
    const steps = /** @type {Object<string, number[]>} */ ({ ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] });
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    if (event.shiftKey) return void choose({ row: place.row + step[0] + step[1] });
    const at = layers.findIndex((one) => one.layer === place.layer);
    const layer = layers[Math.min(Math.max(at + step[0], 0), layers.length - 1)];
    const heads = layer.heads;
    const next = heads[Math.min(Math.max(heads.indexOf(place.head) + step[1], 0), heads.length - 1)];
    const inGrid = target.closest(".grid");
    void choose({ layer: layer.layer, head: next }).then(() => {
      if (inGrid) /** @type {HTMLElement|null} */ (root.querySelector('.grid [aria-pressed="true"]'))?.focus();
    });
  }
  const listener = options.alone ? document : root;
  listener.addEventListener("keydown", /** @type {EventListener} */ (onkey));
  const follow = () => void choose(linked());
  if (options.links) addEventListener("hashchange", follow);

  paintAll();
  const ready = choose({ ...header.start, ...(options.links ? linked() : {}) }).then(() => void (timing.first = performance.now() - began));
  return {
    ready,
    header,
    timing,
    place: () => ({ ...place }),
    choose,
    maps(layer, chosen) {
      const index = layers.findIndex((one) => one.layer === layer);
      return engine.maps(index, layers[index].heads.indexOf(chosen));
    },
    row() {
      const found = row?.answer();
      return found && row ? { weights: found.weights, now: row.weightsNow(), other: found.other, freedom: found.freedom } : null;
    },
    pointOf(name, at, column) {
      const one = head?.panels.find((panel) => panel.name === name);
      if (!one) throw new Error(`there is no map ${name}`);
      return one.panel.pointOf(at, column);
    },
    close() {
      preference.removeEventListener("change", repaint);
      listener.removeEventListener("keydown", /** @type {EventListener} */ (onkey));
      removeEventListener("hashchange", follow);
      for (const part of parts) part.close?.();
      engine.close();
    },
  };
}
