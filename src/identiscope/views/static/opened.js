/** The map of one head, opened where its thumbnail stands: with its words, to be read, zoomed and saved. */

import { cellsOf } from "./decode.js";
import { html } from "./dom.js";
import { makeMapPanel } from "./map_panel.js";
import { saveButtons } from "./saving.js";
import { number, shown } from "./text.js";
import { MOVABLE } from "./thumbnail.js";

const HINT = "point at a cell for its number · click a line to see its word above · Escape closes";

/**
 * @typedef {{layer: number, head: number, index: number, at: number}} Chosen  at: which of the layer's heads
 * @typedef {{cells: Float32Array, rows: number, columns: number, scale: import("./colour.js").Scale}} Opened
 */

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {() => import("./colour.js").Theme} theme
 * @param {import("./engine.js").Engine} engine
 * @param {{row: (row: number) => void, close: () => void}} tell
 */
export function makeOpened(about, theme, engine, tell) {
  const [queries, keys] = [about.tokens.queries, about.tokens.keys ?? about.tokens.queries];
  const window = { left: 0, top: 0, zoom: 1 };
  /** @type {{one: Chosen, name: string, map: Opened|null}|null} */
  let current = null;
  let turn = 0;
  const heading = html("h3", {});
  const said = html("p", { class: "hint", role: "status" }, HINT);
  /** Where a cell of the picture is in the text: of a thumbnail a cell stands for several. @param {number} at @param {number} count @param {number} all */
  const first = (at, count, all) => Math.min(Math.ceil((at * all) / count), all - 1);
  const sampled = (/** @type {number} */ at, /** @type {number} */ count) =>
    count > 1 ? Math.round((at * (queries.length - 1)) / (count - 1)) : 0;
  const rowAt = (/** @type {number} */ row) => {
    const count = current?.map?.rows ?? 1;
    return count === queries.length ? row : sampled(row, count);
  };
  const columnAt = (/** @type {number} */ column) => first(column, current?.map?.columns ?? 1, keys.length);
  const panel = makeMapPanel({
    title: "Map of this head",
    window,
    theme,
    onmove: () => panel.draw(),
    onpick: (row) => tell.row(rowAt(row)),
    onhover(cell) {
      panel.hover(cell);
      const map = current?.map;
      said.textContent =
        cell && map
          ? `“${shown(queries[rowAt(cell.row)] ?? "", 24)}” looks at “${shown(keys[columnAt(cell.column)] ?? "", 24)}”: ${number(map.cells[cell.row * map.columns + cell.column], 4)}`
          : HINT;
    },
  });
  const title = () => (current ? `${titleOf(current.name)} layer ${current.one.layer}, head ${current.one.head}` : "");
  const titleOf = (/** @type {string} */ name) =>
    name === MOVABLE
      ? "How far weights can move:"
      : `${about.maps.find((one) => one.name === name)?.title ?? name} attention of`;
  const element = html(
    "figure",
    { class: "panel opened" },
    html(
      "figcaption",
      {},
      heading,
      html(
        "div",
        { class: "saving" },
        saveButtons(() => ({
          name: `${current?.name}-layer-${current?.one.layer}-head-${current?.one.head}`,
          picture: () => panel.picture(about.title),
          table,
        })),
        html(
          "button",
          { type: "button", class: "small", "aria-label": "Close this map", onclick: tell.close },
          "Close",
        ),
      ),
    ),
    panel.element,
    said,
  );

  function table() {
    /** @type {(string|number|null)[][]} */
    const lines = [["query", "key", "query_token", "key_token", current?.name ?? ""]];
    const map = current?.map;
    for (let cell = 0; map && cell < map.cells.length; cell++) {
      const [query, key] = [rowAt(Math.floor(cell / map.columns)), columnAt(cell % map.columns)];
      lines.push([query, key, queries[query] ?? "", keys[key] ?? "", map.cells[cell]]);
    }
    return lines;
  }

  /** @param {Chosen} one @param {string} name @returns {Promise<Opened|null>} */
  async function mapOf(one, name) {
    if (name === MOVABLE) {
      const { cells, rows, columns, scale } = await engine.thumbnail(one.index, one.at, name);
      return cells && { cells, rows, columns, scale };
    }
    const maps = await engine.maps(one.index, one.at);
    const cells = cellsOf(maps, name);
    return cells && { cells, rows: maps.queries, columns: maps.keys, scale: maps.scale };
  }

  function draw() {
    if (!current) return;
    const { map } = current;
    heading.textContent = title();
    panel.canvas.setAttribute("aria-label", `${title()}: lines look, columns are looked at; the table has its numbers`);
    panel.show({
      cells: map?.cells ?? null,
      rows: map?.rows ?? 1,
      columns: map?.columns ?? 1,
      scale: map?.scale ?? { limit: 1, most: 1, noise: 0.02 },
      signed: true,
      rowLabel: (row) => queries[rowAt(row)] ?? String(row),
      columnLabel: (column) => keys[columnAt(column)] ?? String(column),
      chosen: null,
      missing: "Not computed for this head.",
    });
  }

  return {
    element,
    draw,
    /** @param {Chosen} one @param {string} name */
    async show(one, name) {
      if (current?.one === one && current.name === name) return;
      const mine = ++turn;
      const map = await mapOf(one, name);
      if (mine !== turn) return;
      Object.assign(window, { left: 0, top: 0, zoom: 1 });
      current = { one, name, map };
      draw();
      panel.hover(null);
    },
    close: () => panel.close(),
  };
}
