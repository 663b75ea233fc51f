/** Who looks at whom: lines from the tokens that look to those looked at. */

import { choice, html, svg } from "./dom.js";
import { cellsOf } from "./decode.js";
import { framed, pictureWidth } from "./saving.js";
import { makeSection } from "./section.js";
import { shown } from "./text.js";

const LINES_NOTE =
  "A line for each of the strongest weights, from the query on the left to the key on the right; the stronger, the thicker." +
  " Compare raw attention with its simplex span: lines that vanish had no effect. Blue is negative.";

const MOST = 600;
const STEP = 19;

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {() => import("./colour.js").Theme} theme
 * @param {(row: number) => void} chooseRow
 */
export function makeLines(about, theme, chooseRow) {
  const tokens = about.tokens;
  const [queries, keys] = [tokens.queries, tokens.keys ?? tokens.queries];
  /** @type {{maps: import("./data.js").Maps, layer: number, head: number, row: number}|null} */
  let current = null;
  const first = about.maps[0].name;
  let name = first;
  let only = false;
  const section = makeSection(`${about.name}_lines`, "Token to token", LINES_NOTE, () => ({
    name: `lines-${name}-layer-${current?.layer}-head-${current?.head}`,
    picture: () => {
      const width = pictureWidth(560);
      const { parts, height } = drawing(width, theme());
      return framed(
        theme(),
        `${about.title}: ${name}, layer ${current?.layer}, head ${current?.head}`,
        LINES_NOTE,
        width,
        height,
        ...parts,
      );
    },
    table: () => [
      ["query", "key", "query_token", "key_token", name],
      ...strongest().map(({ query, key, weight }) => [query, key, queries[query] ?? "", keys[key] ?? "", weight]),
    ],
  }));
  const maps = choice(
    "Map",
    about.maps.map((one) => ({ value: one.name, text: one.title.toLowerCase() })),
    (value) => {
      name = value;
      draw();
    },
  );
  const rows = choice(
    "Show",
    [
      { value: "all", text: "the strongest of all" },
      { value: "row", text: "the chosen row only" },
    ],
    (value) => {
      only = value === "row";
      draw();
    },
  );
  const holder = html("div", { class: "lines", tabindex: "0", role: "group", "aria-label": "Lines between tokens" });
  section.body.append(html("div", { class: "tools" }, maps.element, rows.element), holder);

  /** @returns {{query: number, key: number, weight: number}[]} */
  function strongest() {
    const cells = current ? cellsOf(current.maps, name) : null;
    if (!current || !cells) return [];
    const width = current.maps.keys;
    const from = only ? current.row * width : 0;
    const to = only ? from + width : cells.length;
    let top = 0;
    for (let cell = from; cell < to; cell++) top = Math.max(top, Math.abs(cells[cell]));
    // How many cells there are at each strength, to know from which on they are few enough.
    const counts = new Uint32Array(257);
    for (let cell = from; cell < to; cell++) counts[Math.floor((256 * Math.abs(cells[cell])) / (top || 1))]++;
    let level = 256;
    for (let sum = counts[256]; level > 8 && sum + counts[level - 1] <= MOST;) sum += counts[--level];
    const found = [];
    for (let cell = from; cell < to && top > 0; cell++)
      if (256 * Math.abs(cells[cell]) >= level * top)
        found.push({ query: Math.floor(cell / width), key: cell % width, weight: cells[cell] });
    return found.sort((one, other) => Math.abs(other.weight) - Math.abs(one.weight)).slice(0, 2 * MOST);
  }

  /** @param {number} width @param {import("./colour.js").Theme} colours */
  function drawing(width, colours) {
    const lines = strongest().reverse();
    const top = lines.reduce((most, { weight }) => Math.max(most, Math.abs(weight)), 0) || 1;
    const side = Math.min(150, width * 0.3);
    const y = (/** @type {number} */ place) => 14 + place * STEP;
    /** @type {SVGElement[]} */
    const parts = lines.map(({ query, key, weight }) =>
      svg("path", {
        d: `M${side + 6} ${y(query)}C${width / 2} ${y(query)} ${width / 2} ${y(key)} ${width - side - 6} ${y(key)}`,
        fill: "none",
        stroke: weight < 0 ? colours.series[0] : colours.series[1],
        "stroke-width": 0.6 + (3.4 * Math.abs(weight)) / top,
        "stroke-opacity": 0.12 + (0.78 * Math.abs(weight)) / top,
      }),
    );
    const rowNow = current ? current.row : -1;
    const text = { "font-size": 12.5 };
    queries.forEach((token, place) => {
      const label = svg(
        "text",
        {
          ...text,
          x: side,
          y: y(place) + 4,
          "text-anchor": "end",
          fill: place === rowNow ? colours.mark : colours.ink,
          "font-weight": place === rowNow ? 700 : 400,
          cursor: "pointer",
          "data-query": place,
        },
        shown(token, 16),
      );
      label.addEventListener("click", () => chooseRow(place));
      parts.push(label);
    });
    keys.forEach((token, place) =>
      parts.push(svg("text", { ...text, x: width - side, y: y(place) + 4, fill: colours.ink }, shown(token, 16))),
    );
    return { parts, height: 24 + Math.max(queries.length, keys.length) * STEP };
  }

  function draw() {
    if (!current) return;
    const width = Math.max(300, Math.min(holder.clientWidth || 600, 820));
    const { parts, height } = drawing(width, theme());
    holder.replaceChildren(
      svg(
        "svg",
        {
          width,
          height,
          viewBox: `0 0 ${width} ${height}`,
          role: "img",
          "aria-label": `${name} attention as lines`,
          "font-family": "system-ui, sans-serif",
        },
        ...parts,
      ),
    );
    for (const option of maps.list.options) option.disabled = !cellsOf(current.maps, option.value);
  }

  const watcher = new ResizeObserver(() => draw());
  watcher.observe(holder);
  return {
    element: section.element,
    draw,
    close: () => watcher.disconnect(),
    /** @param {import("./data.js").Maps} found @param {number} layer @param {number} head @param {number} row */
    show(found, layer, head, row) {
      current = { maps: found, layer, head, row };
      if (!cellsOf(found, name)) {
        name = first;
        maps.list.value = first;
      }
      draw();
    },
  };
}
