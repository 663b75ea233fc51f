/** Views of other results: attribution over layers, token identifiability, structure, tables and figures. */

import { floats, gunzip, wholeNumbers } from "./decode.js";
import { choice, html, svg } from "./dom.js";
import { makeMapPanel, scaleBar } from "./map_panel.js";
import { framed } from "./saving.js";
import { makeSection } from "./section.js";
import { number, shown } from "./text.js";

const ATTRIBUTION_NOTE =
  "What the hidden embedding of one word is made of, layer by layer: the share of each input token in it," +
  " ‖∂e_j/∂x_i‖ / Σ_k ‖∂e_j/∂x_k‖ (Hidden Token Attribution, eq. 11). Each row sums to 1.";

const STRUCTURE_NOTE =
  "W, what the attention of many inputs has in common: their mean map, cut at a threshold and normalised by rows" +
  " (structure-aware draft, eq. 7 and 8). It weighs the cells of the structure-aware norm (eq. 5).";

const RATES_NOTE =
  "How often the nearest input embedding of the sentence to a hidden embedding (as it is, or after a learned map) is that of" +
  " its own token (§4, Fig. 2a). Bands: bootstrap intervals over sentences.";

/**
 * @param {import("./data.js").PageData} data @param {import("./data.js").Attribution} given
 * @param {() => import("./colour.js").Theme} theme
 */
export function makeAttribution(data, given, theme) {
  /** @type {{contribution: Float32Array, error: Float32Array|null}|null} */
  let arrays = null;
  let word = Math.min(1, given.outputs.length - 1);
  const [layers, inputs, outputs] = [given.layers.length, given.inputs.length, given.outputs.length];
  const share = (/** @type {number} */ layer, /** @type {number} */ input) =>
    arrays ? arrays.contribution[(layer * inputs + input) * outputs + word] : 0;
  const section = makeSection("attribution", "Attribution over layers", ATTRIBUTION_NOTE, () => ({
    name: `attribution-${word}`,
    picture: () => panel.picture(`${ATTRIBUTION_NOTE} Word: ${shown(given.outputs[word])} (${word}).`),
    table: () => [
      ["layer", "input", "input_token", "output", "output_token", "contribution"],
      ...given.layers.flatMap((layer, at) => given.inputs.map((token, input) => [layer, input, token, word, given.outputs[word], share(at, input)])),
    ],
  }));
  const said = html("p", { class: "said", "aria-live": "polite" });
  const bar = html("div", { class: "bar" });
  const panel = makeMapPanel({
    title: "Attribution: layers × input tokens",
    window: { left: 0, top: 0, zoom: 1 },
    theme,
    cellHeight: 26,
    onmove: () => panel.draw(),
    onpick: () => {},
    onhover: (cell) => {
      panel.hover(cell);
      if (!cell || !arrays) return;
      const error = arrays.error ? ` ± ${number(arrays.error[(cell.row * inputs + cell.column) * outputs + word])}` : "";
      said.replaceChildren(
        `layer ${given.layers[cell.row]}: `, html("bdi", {}, shown(given.inputs[cell.column], 32)), ` (${cell.column}) is ${number(share(cell.row, cell.column))}${error} of `,
        html("bdi", {}, shown(given.outputs[word], 32))
      );
    },
  });
  const words = choice("Word", given.outputs.map((token, place) => ({ value: String(place), text: `${place} ${shown(token)}` })), (value) => {
    word = Number(value);
    draw();
  });
  words.list.value = String(word);
  section.body.append(html("div", { class: "tools" }, words.element, bar), panel.element, said);

  function draw() {
    if (!arrays) return;
    const cells = new Float32Array(layers * inputs);
    for (let layer = 0; layer < layers; layer++) for (let input = 0; input < inputs; input++) cells[layer * inputs + input] = share(layer, input);
    const limit = cells.reduce((most, value) => Math.max(most, value), 0);
    panel.show({
      cells, rows: layers, columns: inputs, limit, signed: false, chosen: null, missing: "",
      rowLabel: (row) => `layer ${given.layers[row]}`,
      columnLabel: (column) => given.inputs[column],
    });
    bar.replaceChildren(svg("svg", { width: 240, height: 28, role: "img", "aria-label": "colour scale" }, ...scaleBar(theme(), limit, false)));
    said.textContent = `own share: ${given.layers.map((layer, at) => `layer ${layer}: ${number(share(at, word + inputs - outputs), 2)}`).join(" · ")}${given.mode === "estimate" ? " (estimated)" : ""}`;
  }
  const ready = data.chunk(given.chunk).then(gunzip).then((buffer) => {
    arrays = { contribution: floats(buffer, given.contribution), error: given.error ? floats(buffer, given.error) : null };
    draw();
  });
  return { element: section.element, draw, ready, close: () => panel.close() };
}

/**
 * @param {import("./data.js").PageData} data @param {import("./data.js").Structure} given
 * @param {() => import("./colour.js").Theme} theme
 */
export function makeStructure(data, given, theme) {
  /** @type {Float32Array|null} */
  let all = null;
  let place = 0;
  const size = given.rows.length * given.columns.length;
  const cells = () => (all ? all.subarray(place * size, (place + 1) * size) : null);
  const where = () => (given.places ? `layer ${given.places[place][0]}, head ${given.places[place][1]}` : "");
  const section = makeSection("structure", "Structure W", STRUCTURE_NOTE, () => ({
    name: `structure-${place}`,
    picture: () => panel.picture(`${STRUCTURE_NOTE} ${given.note} ${where()}`),
    table: () => [
      ["row", "column", "row_label", "column_label", "weight"],
      ...given.rows.flatMap((row, at) => given.columns.map((column, to) => [at, to, row, column, cells()?.[at * given.columns.length + to] ?? null])),
    ],
  }));
  const said = html("p", { class: "said", "aria-live": "polite" }, given.note);
  const bar = html("div", { class: "bar" });
  const heads = choice("Head", (given.places ?? []).map(([layer, head], at) => ({ value: String(at), text: `layer ${layer}, head ${head}` })), (value) => {
    place = Number(value);
    draw();
  });
  heads.element.hidden = !given.places;
  const panel = makeMapPanel({
    title: "Structure W",
    window: { left: 0, top: 0, zoom: 1 },
    theme,
    onmove: () => panel.draw(),
    onpick: () => {},
    onhover: (cell) => {
      panel.hover(cell);
      const now = cells();
      if (cell && now)
        said.textContent = `${shown(given.rows[cell.row])} → ${shown(given.columns[cell.column])}: ${number(now[cell.row * given.columns.length + cell.column])}`;
    },
  });
  section.body.append(html("div", { class: "tools" }, heads.element, bar), html("div", { class: "middle" }, panel.element), said);
  function draw() {
    const now = cells();
    if (!now) return;
    const limit = now.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    panel.show({
      cells: now, rows: given.rows.length, columns: given.columns.length, limit, signed: false, chosen: null, missing: "",
      rowLabel: (row) => given.rows[row],
      columnLabel: (column) => given.columns[column],
    });
    bar.replaceChildren(svg("svg", { width: 240, height: 28, role: "img", "aria-label": "colour scale" }, ...scaleBar(theme(), limit, false)));
  }
  const ready = data.chunk(given.chunk).then(gunzip).then((buffer) => {
    const codes = wholeNumbers(buffer, given.cells);
    all = Float32Array.from(codes, (code) => (code * Math.abs(code)) / given.levels ** 2);
    draw();
  });
  return {
    element: section.element,
    draw,
    ready,
    close: () => panel.close(),
    /** Show the head that the other views show, if its structure is known. @param {{layer: number, head: number}} chosen */
    follow(chosen) {
      const at = (given.places ?? []).findIndex(([layer, head]) => layer === chosen.layer && head === chosen.head);
      if (at < 0 || at === place) return;
      place = at;
      heads.list.value = String(at);
      draw();
    },
  };
}

/** @param {import("./data.js").TokenRates} given @param {() => import("./colour.js").Theme} theme @param {string} [id] */
export function makeTokenRates(given, theme, id = "tokens") {
  const note = given.note ?? RATES_NOTE;
  const section = makeSection(id, given.title, note, () => ({
    name: id,
    picture: () => {
      const { parts, height } = chart(680, theme());
      return framed(theme(), given.title, note, 680, height, ...parts);
    },
    table: () => [
      ["probe", "layer", "rate", "low", "high"],
      ...given.probes.flatMap((probe, at) => given.layers.map((layer, place) => [probe, layer, given.rate[at][place], given.low[at]?.[place] ?? null, given.high[at]?.[place] ?? null])),
    ],
  }));
  const holder = html("div", { class: "bars" });
  const values = html(
    "details",
    {},
    html("summary", {}, "The numbers"),
    html(
      "div",
      { class: "scroll", tabindex: "0" },
      html(
        "table",
        { class: "plain" },
        html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "probe"), ...given.layers.map((layer) => html("th", { scope: "col" }, `layer ${layer}`)))),
        html("tbody", {}, ...given.probes.map((probe, at) => html("tr", {}, html("th", { scope: "row" }, probe), ...given.rate[at].map((rate) => html("td", {}, number(rate))))))
      )
    )
  );
  section.body.append(holder, values);

  /** @param {number} width @param {import("./colour.js").Theme} colours */
  function chart(width, colours) {
    const longest = Math.max(...given.probes.map((probe) => probe.length));
    const [left, right, top, tall] = [44, width < 520 ? 12 : 40 + 6.8 * longest, 10, 280];
    const last = given.layers.length - 1;
    const x = (/** @type {number} */ place) => left + (last ? (place / last) * (width - left - right) : (width - left - right) / 2);
    const y = (/** @type {number} */ rate) => top + (1 - rate) * tall;
    /** @type {SVGElement[]} */
    const parts = [];
    for (const rate of [0, 0.25, 0.5, 0.75, 1])
      parts.push(
        svg("line", { x1: left, x2: width - right, y1: y(rate), y2: y(rate), stroke: colours.line }),
        svg("text", { x: left - 8, y: y(rate) + 4, "text-anchor": "end", "font-size": 11, fill: colours.faint }, `${100 * rate} %`)
      );
    given.layers.forEach((layer, place) => {
      if (given.layers.length <= 16 || place % 2 === 0)
        parts.push(svg("text", { x: x(place), y: top + tall + 18, "text-anchor": "middle", "font-size": 11, fill: colours.faint }, String(layer)));
    });
    parts.push(svg("text", { x: left, y: top + tall + 36, "font-size": 11, fill: colours.faint }, "layer"));
    if (given.guess !== null)
      parts.push(
        svg("line", { x1: left, x2: width - right, y1: y(given.guess), y2: y(given.guess), stroke: colours.faint, "stroke-dasharray": "4 4" }),
        svg("text", { x: left + 4, y: y(given.guess) - 5, "font-size": 11, fill: colours.faint }, "random guess")
      );
    const ends = given.probes.map((probe, at) => ({ probe, at, y: y(given.rate[at][last] ?? 0) })).sort((one, other) => one.y - other.y);
    ends.forEach((one, place) => void (place && (one.y = Math.max(one.y, ends[place - 1].y + 15))));
    given.probes.forEach((probe, at) => {
      const colour = colours.series[at % colours.series.length];
      const points = given.rate[at].map((rate, place) => (rate === null ? null : `${x(place)},${y(rate)}`)).filter((point) => point !== null);
      const band = given.low[at]?.every((value) => value !== null) && given.high[at]?.every((value) => value !== null);
      if (band) {
        const edge = [
          ...given.high[at].map((value, place) => `${x(place)},${y(value ?? 0)}`),
          ...given.low[at].map((value, place) => `${x(place)},${y(value ?? 0)}`).reverse(),
        ];
        parts.push(svg("polygon", { points: edge.join(" "), fill: colour, "fill-opacity": 0.16 }));
      }
      parts.push(svg("polyline", { points: points.join(" "), fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": at >= colours.series.length ? "6 3" : null }));
      for (const point of points) parts.push(svg("circle", { cx: point.split(",")[0], cy: point.split(",")[1], r: 3, fill: colour }));
    });
    let height = top + tall + 44;
    for (const { probe, at, y: end } of ends) {
      const colour = colours.series[at % colours.series.length];
      if (width >= 520)
        parts.push(
          svg("rect", { x: width - right + 8, y: end - 1.5, width: 12, height: 3, fill: colour }),
          svg("text", { x: width - right + 26, y: end + 4, "font-size": 12, fill: colours.ink }, probe)
        );
      else {
        parts.push(
          svg("rect", { x: left, y: height, width: 12, height: 3, fill: colour }),
          svg("text", { x: left + 18, y: height + 6, "font-size": 12, fill: colours.ink }, probe)
        );
        height += 18;
      }
    }
    return { parts, height };
  }
  function draw() {
    const width = Math.max(300, Math.min(holder.clientWidth || 680, 900));
    const { parts, height } = chart(width, theme());
    holder.replaceChildren(svg("svg", { width, height, role: "img", "aria-label": given.title, "font-family": "system-ui, sans-serif" }, ...parts));
  }
  const watcher = new ResizeObserver(() => draw());
  watcher.observe(holder);
  return { element: section.element, draw, close: () => watcher.disconnect() };
}

/** @param {import("./data.js").Table} given @param {number} place @param {() => import("./colour.js").Theme} theme */
export function makeTable(given, place, theme) {
  const section = makeSection(`table-${place}`, given.name, "", () => ({
    name: `table-${place}`,
    picture: () => {
      const lines = [given.columns, ...given.rows].map((row, at) =>
        svg("text", { x: 12, y: 16 + at * 18, "font-size": 12, fill: theme().ink }, row.map((value) => cellText(value)).join("   "))
      );
      return framed(theme(), given.name, "", 800, 24 + lines.length * 18, ...lines);
    },
    table: () => [given.columns, ...given.rows],
  }));
  section.body.append(
    html(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": given.name },
      html(
        "table",
        { class: "plain" },
        html("thead", {}, html("tr", {}, ...given.columns.map((column, at) => html("th", { scope: "col", class: typeof given.rows[0]?.[at] === "number" ? "number" : "" }, column)))),
        html("tbody", {}, ...given.rows.map((row) => html("tr", {}, ...row.map((value) => html("td", { class: typeof value === "number" ? "number" : "" }, cellText(value))))))
      )
    )
  );
  return section.element;
}

/** @param {string|number|null} value */
function cellText(value) {
  if (typeof value === "string") return shown(value, 60);
  return value !== null && Number.isInteger(value) ? String(value) : number(value);
}

/** @param {{image: string, caption: string}} given */
export function makeFigure(given) {
  return html("figure", { class: "figure" }, html("img", { src: given.image, alt: given.caption }), html("figcaption", {}, given.caption));
}
