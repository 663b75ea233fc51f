/** Shares by layer as lines, each chart by itself or several side by side. */

import { html, svg } from "./dom.js";
import { framed, pictureWidth } from "./saving.js";
import { makeSection, standing } from "./section.js";
import { number } from "./text.js";

/**
 * @param {import("./sections.js").Drawn<import("./data.js").CurveData>[]} sections  of the same layers
 * @param {import("./sections.js").View} view
 * @returns {import("./sections.js").Part}
 */
export function drawCurves(sections, view) {
  const cards = sections.map((section) => makeCurve(section, view.theme));
  return {
    element: standing(cards, html("div", { class: "tools", hidden: true })),
    draw: () => cards.forEach((one) => one.draw()),
    close: () => cards.forEach((one) => one.close()),
  };
}

/** @param {import("./sections.js").Drawn<import("./data.js").CurveData>} drawn @param {() => import("./colour.js").Theme} theme */
function makeCurve({ name, title, says, data: given }, theme) {
  const section = makeSection(name, title, says, () => ({
    name,
    picture: () => {
      const width = pictureWidth(680);
      const { parts, height } = chart(width, theme());
      return framed(theme(), title, says, width, height, ...parts);
    },
    table: () => [
      ["name", "layer", "rate", "low", "high"],
      ...given.names.flatMap((probe, at) =>
        given.layers.map((layer, place) => [
          probe,
          layer,
          given.rate[at][place],
          given.low[at]?.[place] ?? null,
          given.high[at]?.[place] ?? null,
        ]),
      ),
    ],
  }));
  const holder = html("div", { class: "bars" });
  if (!given.names.length || !given.layers.length) {
    section.body.append(html("p", { class: "missing" }, "There is nothing to draw: no line, or no layer."));
    return { ...section, draw: () => {}, close: () => {} };
  }
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
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            html("th", { scope: "col" }, ""),
            ...given.layers.map((layer) =>
              html("th", { scope: "col" }, typeof layer === "number" ? `layer ${layer}` : layer),
            ),
          ),
        ),
        html(
          "tbody",
          {},
          ...given.names.map((probe, at) =>
            html(
              "tr",
              {},
              html("th", { scope: "row" }, probe),
              ...given.rate[at].map((rate) => html("td", {}, number(rate))),
            ),
          ),
        ),
      ),
    ),
  );
  section.body.append(holder, values);

  /** @param {number} width @param {import("./colour.js").Theme} colours */
  function chart(width, colours) {
    const longest = Math.max(...given.names.map((probe) => probe.length));
    const [left, right, top, tall] = [44, width < 520 ? 12 : 40 + 6.8 * longest, 10, 280];
    const last = given.layers.length - 1;
    const x = (/** @type {number} */ place) =>
      left + (last ? (place / last) * (width - left - right) : (width - left - right) / 2);
    const y = (/** @type {number} */ rate) => top + (1 - rate) * tall;
    /** @type {SVGElement[]} */
    const parts = [];
    for (const rate of [0, 0.25, 0.5, 0.75, 1])
      parts.push(
        svg("line", { x1: left, x2: width - right, y1: y(rate), y2: y(rate), stroke: colours.line }),
        svg(
          "text",
          { x: left - 8, y: y(rate) + 4, "text-anchor": "end", "font-size": 11, fill: colours.faint },
          `${100 * rate} %`,
        ),
      );
    given.layers.forEach((layer, place) => {
      if (given.layers.length <= 16 || place % 2 === 0)
        parts.push(
          svg(
            "text",
            { x: x(place), y: top + tall + 18, "text-anchor": "middle", "font-size": 11, fill: colours.faint },
            String(layer),
          ),
        );
    });
    parts.push(svg("text", { x: left, y: top + tall + 36, "font-size": 11, fill: colours.faint }, "layer"));
    if (given.guess !== null)
      parts.push(
        svg("line", {
          x1: left,
          x2: width - right,
          y1: y(given.guess),
          y2: y(given.guess),
          stroke: colours.faint,
          "stroke-dasharray": "4 4",
        }),
        svg("text", { x: left + 4, y: y(given.guess) - 5, "font-size": 11, fill: colours.faint }, "random guess"),
      );
    const ends = given.names
      .map((probe, at) => ({ probe, at, y: y(given.rate[at][last] ?? 0) }))
      .sort((one, other) => one.y - other.y);
    ends.forEach((one, place) => void (place && (one.y = Math.max(one.y, ends[place - 1].y + 15))));
    given.names.forEach((probe, at) => {
      const colour = colours.series[at % colours.series.length];
      const points = given.rate[at]
        .map((rate, place) => (rate === null ? null : `${x(place)},${y(rate)}`))
        .filter((point) => point !== null);
      const band = given.low[at]?.every((value) => value !== null) && given.high[at]?.every((value) => value !== null);
      if (band) {
        const edge = [
          ...given.high[at].map((value, place) => `${x(place)},${y(value ?? 0)}`),
          ...given.low[at].map((value, place) => `${x(place)},${y(value ?? 0)}`).reverse(),
        ];
        parts.push(svg("polygon", { points: edge.join(" "), fill: colour, "fill-opacity": 0.16 }));
      }
      parts.push(
        svg("polyline", {
          points: points.join(" "),
          fill: "none",
          stroke: colour,
          "stroke-width": 2,
          "stroke-dasharray": at >= colours.series.length ? "6 3" : null,
        }),
      );
      for (const point of points)
        parts.push(svg("circle", { cx: point.split(",")[0], cy: point.split(",")[1], r: 3, fill: colour }));
    });
    let height = top + tall + 44;
    for (const { probe, at, y: end } of ends) {
      const colour = colours.series[at % colours.series.length];
      if (width >= 520)
        parts.push(
          svg("rect", { x: width - right + 8, y: end - 1.5, width: 12, height: 3, fill: colour }),
          svg("text", { x: width - right + 26, y: end + 4, "font-size": 12, fill: colours.ink }, probe),
        );
      else {
        parts.push(
          svg("rect", { x: left, y: height, width: 12, height: 3, fill: colour }),
          svg("text", { x: left + 18, y: height + 6, "font-size": 12, fill: colours.ink }, probe),
        );
        height += 18;
      }
    }
    return { parts, height };
  }
  function draw() {
    const width = Math.max(300, Math.min(holder.clientWidth || 680, 900));
    const { parts, height } = chart(width, theme());
    holder.replaceChildren(
      svg("svg", { width, height, role: "img", "aria-label": title, "font-family": "system-ui, sans-serif" }, ...parts),
    );
  }
  const watcher = new ResizeObserver(() => draw());
  watcher.observe(holder);
  return { ...section, draw, close: () => watcher.disconnect() };
}
