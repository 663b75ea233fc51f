/** One head: its maps side by side. */

import { FADES } from "./colour.js";
import { cellsOf } from "./decode.js";
import { html, svg } from "./dom.js";
import { LEGEND, makeMapPanel, scaleBar } from "./map_panel.js";
import { saveButtons } from "./saving.js";
import { makeSection } from "./section.js";
import { number, shown, small } from "./text.js";

const HEAD_NOTE =
  "The same head on one colour scale: what the softmax gave (eq. 1), the part of it that the output depends on with row sums" +
  " kept, the part that it does not, and of all attention with this output the most even one. Rows look, columns are looked at.";

const SURVIVES =
  "These are the same however the model is written. The paper's effective attention (eq. 9) is not: it changes with where" +
  " the value bias is kept, though nothing that the model computes does (docs/what-survives.md).";

/** @type {("lower"|"upper"|"copies"|"merged_lower"|"merged_upper")[]} */
const BOUNDS = ["lower", "upper", "copies", "merged_lower", "merged_upper"];

const ADDED = " identiscope report --with effective adds it.";

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {() => import("./colour.js").Theme} theme
 * @param {(row: number) => void} chooseRow
 */
export function makeHead(about, theme, chooseRow) {
  const tokens = about.tokens;
  const [queries, keys] = [tokens.queries, tokens.keys ?? tokens.queries];
  const view = { left: 0, top: 0, zoom: 1 };
  /** @type {{maps: import("./data.js").Maps, layer: import("./data.js").PackedLayer, head: number, row: number|null}|null} */
  let current = null;
  /** @type {Map<string, import("./data.js").Interval>} */
  const bounds = new Map(about.intervals.map((one) => [`${one.layer} ${one.head} ${one.query} ${one.key}`, one]));
  const label = () => (current ? `layer ${current.layer.layer}, head ${current.head}` : "");
  const file = (/** @type {string} */ name) => `${name}-layer-${current?.layer.layer}-head-${current?.head}`;

  const table = (/** @type {string[]} */ names) => () => {
    /** @type {(string|number|null)[][]} */
    const rows = [["query", "key", "query_token", "key_token", ...names, ...BOUNDS]];
    if (!current) return rows;
    const { maps, layer, head } = current;
    const chosen = names.map((name) => cellsOf(maps, name));
    for (let query = 0; query < maps.queries; query++)
      for (let key = 0; key < maps.keys; key++) {
        const bound = bounds.get(`${layer.layer} ${head} ${query} ${key}`);
        const cell = query * maps.keys + key;
        rows.push([
          query,
          key,
          queries[query] ?? "",
          keys[key] ?? "",
          ...chosen.map((cells) => (cells ? cells[cell] : null)),
          ...BOUNDS.map((one) => (bound ? bound[one] : null)),
        ]);
      }
    return rows;
  };

  const section = makeSection(`${about.name}_maps`, "Attention of the head", HEAD_NOTE, () => ({
    name: file("attention"),
    picture: () => together(),
    table: table(about.maps.map((one) => one.name)),
  }));
  const tip = html("div", { class: "tip", role: "status", hidden: true });
  const panels = about.maps.map(({ name, title, note }) => {
    const panel = makeMapPanel({
      title: `${title} attention`,
      window: view,
      theme,
      onmove: () => panels.forEach((one) => one.panel.draw()),
      onpick: (row) => chooseRow(row),
      onhover: (cell, event) => {
        panels.forEach((one) => one.panel.hover(cell));
        tell(cell, event);
      },
    });
    const enlarge = html(
      "button",
      {
        type: "button",
        class: "small",
        "aria-pressed": "false",
        "aria-label": `Enlarge the ${name} map`,
        title: "Enlarge",
        onclick: () => toggle(name),
      },
      "⤢",
    );
    const element = html(
      "figure",
      { class: "panel", "data-map": name },
      html(
        "figcaption",
        {},
        html("h3", {}, title),
        html(
          "div",
          { class: "saving" },
          enlarge,
          saveButtons(() => ({
            name: file(name),
            picture: () => panel.picture(`${note} ${about.title}, ${label()}.`),
            table: table([name]),
          })),
        ),
        html("p", {}, note),
      ),
      panel.element,
    );
    return { name, title, panel, element, enlarge };
  });
  const stats = html("p", { class: "stats", "aria-live": "polite" });
  const bar = html("div", { class: "bar" });
  const zoomButton = (/** @type {string} */ text, /** @type {string} */ says, /** @type {number} */ by) =>
    html(
      "button",
      { type: "button", class: "small", "aria-label": says, onclick: () => panels[0].panel.zoom(by) },
      text,
    );
  const tools = html(
    "div",
    { class: "tools" },
    bar,
    html(
      "div",
      { role: "group", "aria-label": "Zoom of all maps" },
      zoomButton("+", "Zoom in", 2),
      zoomButton("−", "Zoom out", 0.5),
      zoomButton("Whole map", "Show the whole map", 1e-9),
    ),
    html("span", { class: "hint" }, "drag to move · Ctrl and wheel, or + and −, to zoom · click a row to look into it"),
  );
  const grid = html("div", { class: "panels" }, ...panels.map((one) => one.element));
  const held = about.maps.some(({ name }) => name === "effective");
  const known = about.layers.some((layer) => layer.effective_simplex_span);
  const survives = known ? [html("p", { class: "hint" }, held ? SURVIVES : SURVIVES + ADDED)] : [];
  section.body.append(stats, tools, grid, ...survives, tip);

  /** @param {string} name */
  function toggle(name) {
    for (const one of panels) {
      const large = one.name === name && !one.element.classList.contains("large");
      one.element.classList.toggle("large", large);
      one.enlarge.setAttribute("aria-pressed", String(large));
      one.enlarge.textContent = large ? "Side by side" : "⤢";
    }
  }

  /** @param {{row: number, column: number}|null} cell @param {PointerEvent|null} event */
  function tell(cell, event) {
    tip.hidden = !cell || !current;
    if (!cell || !current) return;
    const { maps, layer, head } = current;
    const at = cell.row * maps.keys + cell.column;
    const bound = bounds.get(`${layer.layer} ${head} ${cell.row} ${cell.column}`);
    const line = (/** @type {string} */ name, /** @type {string} */ value) =>
      html("div", {}, html("span", {}, name), html("b", {}, value));
    tip.replaceChildren(
      html(
        "p",
        {},
        html("bdi", {}, shown(queries[cell.row] ?? String(cell.row), 32)),
        ` (${cell.row}) → `,
        html("bdi", {}, shown(keys[cell.column] ?? String(cell.column), 32)),
        ` (${cell.column})`,
      ),
      ...about.maps.map(({ name, title }) => {
        const cells = cellsOf(maps, name);
        return line(title.toLowerCase(), cells ? number(cells[at], 4) : "not computed");
      }),
      line("may be", bound ? `${number(bound.lower)} … ${number(bound.upper)}` : "not computed"),
      ...(bound && bound.copies > 1
        ? [
            line(`all ${bound.copies} copies`, number(bound.merged_weight)),
            line("may be together", `${number(bound.merged_lower)} … ${number(bound.merged_upper)}`),
          ]
        : []),
    );
    if (!event) return;
    const box = section.body.getBoundingClientRect();
    const x = event.clientX - box.left;
    tip.style.left = `${Math.max(0, Math.min(x + 14, box.width - 240))}px`;
    tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  function together() {
    const parts = panels
      .filter((one) => current && cellsOf(current.maps, one.name))
      .map((one) => one.panel.picture(""));
    let x = 0;
    let height = 0;
    for (const part of parts) {
      part.setAttribute("x", String(x));
      x += Number(part.getAttribute("width"));
      height = Math.max(height, Number(part.getAttribute("height")));
    }
    return svg(
      "svg",
      {
        xmlns: "http://www.w3.org/2000/svg",
        width: x,
        height: height + 28,
        viewBox: `0 0 ${x} ${height + 28}`,
        "font-family": "system-ui, sans-serif",
      },
      svg("rect", { width: x, height: height + 28, fill: theme().paper }),
      ...parts,
      svg(
        "text",
        { x: 12, y: height + 12, "font-size": 12, fill: theme().faint },
        `${about.title}, ${label()}. ${HEAD_NOTE}`,
      ),
    );
  }

  function refresh() {
    if (!current) return;
    const { maps, layer, head, row } = current;
    // Where there are values, all maps of a head follow from the page, but for one that is computed for some heads only.
    const missing = !maps.effective_simplex_span
      ? "Needs the head's values, which were not given."
      : about.live
        ? "Not computed for this head yet: the button above does so."
        : "Not computed for this head. It is for the heads that are chosen when the report is made: identiscope report --canonical.";
    for (const { name, panel } of panels)
      panel.show({
        cells: cellsOf(maps, name),
        rows: maps.queries,
        columns: maps.keys,
        scale: maps.scale,
        signed: true,
        rowLabel: (place) => queries[place] ?? String(place),
        columnLabel: (place) => keys[place] ?? String(place),
        chosen: row,
        missing,
      });
    const place = layer.heads.indexOf(head);
    const errors = Object.entries(layer.error).map(([name, error]) => `${name} ${small(error)}`);
    stats.replaceChildren(
      html("b", {}, `Layer ${layer.layer}, head ${head}`),
      layer.effective_simplex_span
        ? ` · null share ${number(layer.simplex_null_share[place])}, ${number(layer.merged_null_share[place])} with equal tokens added up · correlation of raw attention and what is left of it ${number(layer.simplex_correlation[place])}`
        : "",
      html(
        "span",
        { class: "hint" },
        ` · largest rounding error in this page, of all cells of the layer: ${errors.join(", ")}`,
      ),
    );
    bar.replaceChildren(
      svg(
        "svg",
        {
          width: LEGEND,
          height: 28,
          role: "img",
          "aria-label": `colour scale from minus ${number(maps.scale.limit, 2)} over zero to ${number(maps.scale.limit, 2)}, nearly logarithmic; weights below ${small(FADES * maps.scale.noise)} fade`,
        },
        ...scaleBar(theme(), maps.scale),
      ),
      html(
        "span",
        { class: "hint", title: "Twice the weight that uniform attention would give, or 0.04 in a short text." },
        `weights below ${small(FADES * maps.scale.noise)} fade`,
      ),
    );
    section.heading.textContent = `Attention of layer ${layer.layer}, head ${head}`;
  }

  return {
    element: section.element,
    panels,
    /** @param {import("./data.js").Maps} maps @param {import("./data.js").PackedLayer} layer @param {number} head @param {number|null} row */
    show(maps, layer, head, row) {
      current = { maps, layer, head, row };
      refresh();
    },
    refresh,
    tip,
    close: () => panels.forEach((one) => one.panel.close()),
  };
}
