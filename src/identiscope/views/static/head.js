/** One head: its maps side by side. */

import { FADES, inMode } from "./colour.js";
import { cellsOf } from "./decode.js";
import { html, svg } from "./dom.js";
import { makeMapPanel } from "./map_panel.js";
import { LEGEND, scaleBar } from "./map_picture.js";
import { figures, framed, saveButtons } from "./saving.js";
import { scaleOf } from "./scale.js";
import { makeSection } from "./section.js";
import { number, shown, small } from "./text.js";

const HEAD_NOTE =
  "Each line is a word that looks, each column a word that is looked at. First what the model shows; then what of it has an" +
  " effect, and what has none; last, of all maps that do the same, the one that spreads its weight most evenly.";

const HEAD_WHAT =
  "Raw is the softmax (eq. 1), A. Simplex span is A projected on col([T,1]), T = V·H being what the head reads from each word:" +
  " the part that the output A·T depends on, row sums kept. Null is the rest, in LN([T,1]): any part of it may be taken away, and" +
  " A·T stays. Canonical is the A′ ≥ 0 with A′·[T,1] = A·[T,1] of least ‖A′‖: there is exactly one, and it is attention too. These" +
  " are the same however the model is written. The paper's effective attention (eq. 9) is not: it changes with where the value" +
  " bias is kept, though nothing that the model computes does (docs/what-survives.md).";

/** @type {("lower"|"upper"|"copies"|"merged_lower"|"merged_upper")[]} */
const BOUNDS = ["lower", "upper", "copies", "merged_lower", "merged_upper"];

const ADDED = " identiscope report --with effective adds it.";

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {() => import("./colour.js").Theme} theme
 * @param {(row: number) => void} chooseRow
 */
export function makeHead(about, theme, chooseRow) {
  /** @type {{lens: import("./lens.js").Lens, mode: import("./colour.js").ScaleMode}|null} */
  let seen = null;
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

  const held = about.maps.some(({ name }) => name === "effective");
  const section = makeSection(
    `${about.name}_maps`,
    "Attention of the head",
    HEAD_NOTE,
    () => ({ name: file("attention"), picture: () => together(), table: table(about.maps.map((one) => one.name)) }),
    held ? HEAD_WHAT : HEAD_WHAT + ADDED,
  );
  /** The cells of each map as they are shown. @type {Map<string, Float32Array>} */
  const seenCells = new Map();
  const tip = html("div", { class: "tip", role: "status", hidden: true });
  const panels = about.maps.map(({ name, title, note }) => {
    const panel = makeMapPanel({
      title: `${title} attention`,
      window: view,
      theme,
      onmove: () => panels.forEach((one) => one.panel.draw()),
      onpick: (row) => chooseRow(seen ? seen.lens.rows[row][0] : row),
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
        "aria-label": `Enlarge ${title.toLowerCase()} attention`,
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
  section.body.append(stats, tools, grid, tip);

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
    const { lens } = seen ?? { lens: null };
    const at = cell.row * (lens ? lens.columns.length : maps.keys) + cell.column;
    // Intervals are of single weights, and of a token with its copies.
    const [query, key] = lens ? [lens.rows[cell.row][0], lens.columns[cell.column][0]] : [cell.row, cell.column];
    const single = !lens || (lens.rows[cell.row].length === 1 && lens.columns[cell.column].length === 1);
    const bound = single ? bounds.get(`${layer.layer} ${head} ${query} ${key}`) : undefined;
    const line = (/** @type {string} */ name, /** @type {string} */ value) =>
      html("div", {}, html("span", {}, name), html("b", {}, value));
    tip.replaceChildren(
      html(
        "p",
        {},
        html("bdi", {}, shown(lens ? lens.rowNames[cell.row] : (queries[query] ?? String(query)), 32)),
        ` (${query}) → `,
        html("bdi", {}, shown(lens ? lens.columnNames[cell.column] : (keys[key] ?? String(key)), 32)),
        ` (${key})`,
      ),
      ...about.maps.map(({ name, title }) => {
        const cells = seenCells.get(name) ?? null;
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
    // In a paper two and two, over two columns.
    const across = figures.paper ? 2 : parts.length;
    const [wide, tall] = ["width", "height"].map((name) =>
      Math.max(0, ...parts.map((one) => Number(one.getAttribute(name)))),
    );
    parts.forEach((part, at) => {
      part.setAttribute("x", String(wide * (at % across)));
      part.setAttribute("y", String(tall * Math.floor(at / across)));
    });
    const x = wide * Math.min(across, parts.length);
    const height = tall * Math.ceil(parts.length / across);
    const picture = framed(theme(), `${about.title}, ${label()}`, HEAD_NOTE, x, height, ...parts);
    if (figures.paper && parts.length > 1) picture.dataset.columns = "2";
    return picture;
  }

  function refresh() {
    if (!current) return;
    const { maps, layer, head, row } = current;
    // Where there are values, all maps of a head follow from the page, but for one that is computed for some heads only.
    const missing = !maps.effective_simplex_span
      ? "Needs the head's values, which were not given."
      : about.live
        ? "Not computed for this head yet: the button above does so."
        : "Not computed for this head: identiscope report --canonical all has it for every head.";
    const lens = seen?.lens ?? null;
    seenCells.clear();
    for (const { name } of panels) {
      const cells = lens ? lens.through(cellsOf(maps, name)) : cellsOf(maps, name);
      if (cells) seenCells.set(name, cells);
    }
    const shownMaps = Array.from(seenCells.values());
    const columns = lens ? lens.columns.length : maps.keys;
    const own = !lens || lens.plain ? maps.scale : scaleOf(shownMaps, columns);
    const scale = inMode(own, seen?.mode ?? "auto", shownMaps);
    for (const { name, panel } of panels)
      panel.show({
        cells: seenCells.get(name) ?? null,
        rows: lens ? lens.rows.length : maps.queries,
        columns,
        scale,
        signed: true,
        rowLabel: (place) => (lens ? lens.rowNames : queries)[place] ?? String(place),
        columnLabel: (place) => (lens ? lens.columnNames : keys)[place] ?? String(place),
        chosen: row === null || !lens ? row : lens.rowOf(row),
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
    const fading = scale.mode === "auto" ? `weights below ${small(FADES * scale.noise)} fade` : "";
    bar.replaceChildren(
      svg(
        "svg",
        {
          width: LEGEND,
          height: 28,
          role: "img",
          "aria-label": `colour scale, ${scale.mode}, from minus ${number(scale.limit, 2)} over zero to ${number(scale.limit, 2)}${fading && `; ${fading}`}`,
        },
        ...scaleBar(theme(), scale),
      ),
      html(
        "span",
        { class: "hint", title: "Twice the weight that uniform attention would give, or 0.04 in a short text." },
        fading,
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
    /** Through which lens and in which colours the maps are seen, from the next drawing on. @param {import("./lens.js").Lens} lens @param {import("./colour.js").ScaleMode} mode */
    look(lens, mode) {
      // Another number of cells: what was zoomed into is elsewhere.
      if (seen && (seen.lens.rows.length !== lens.rows.length || seen.lens.columns.length !== lens.columns.length))
        Object.assign(view, { left: 0, top: 0, zoom: 1 });
      seen = { lens, mode };
    },
    tip,
    close: () => panels.forEach((one) => one.panel.close()),
  };
}
