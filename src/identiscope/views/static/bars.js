/** The weights of a row as bars: where the slider stands, as the model has them, and between which bounds they may lie. */

import { svg } from "./dom.js";
import { number, shown } from "./text.js";

/**
 * @typedef {object} Bar
 * @property {string} name
 * @property {number} place  of its first key
 * @property {number} now
 * @property {number} raw
 * @property {number} other  in the alternative
 * @property {number|null} span  effective simplex span
 * @property {number|null} canonical
 * @property {import("./watched_row.js").KnownBounds|null} bounds  of itself
 * @property {import("./watched_row.js").KnownBounds|null} together  with its copies, where they are not added up
 * @property {number} copies
 */

const [LINE, LEFT, RIGHT] = [24, 118, 58];

/** @param {Bar[]} bars @param {number} width @param {import("./colour.js").Theme} colours */
export function drawBars(bars, width, colours) {
  let [low, high] = [0, 0.02];
  for (const { raw, other, span, bounds, together } of bars) {
    high = Math.max(high, raw, other, span ?? 0, bounds?.upper ?? 0, together?.upper ?? 0);
    low = Math.min(low, span ?? 0);
  }
  const scale = (width - LEFT - RIGHT) / (high - low);
  const x = (/** @type {number} */ value) => LEFT + (value - low) * scale;
  const parts = bars.map((bar, at) => drawBar(bar, 6 + at * LINE, x, scale, width, colours));
  const height = 12 + bars.length * LINE;
  parts.unshift(svg("line", { x1: x(0), x2: x(0), y1: 4, y2: height - 4, stroke: colours.faint, "stroke-width": 1 }));
  return { parts, height };
}

/**
 * @param {Bar} bar @param {number} y @param {(value: number) => number} x @param {number} scale @param {number} width
 * @param {import("./colour.js").Theme} colours
 */
function drawBar(bar, y, x, scale, width, colours) {
  const middle = y + LINE / 2 - 2;
  const weight = Math.max(bar.now, 0);
  const box = { x: x(0), y: y + 3, height: LINE - 10, rx: 2 };
  const group = svg(
    "g",
    { "data-key": bar.place },
    svg(
      "text",
      { x: LEFT - 10, y: middle + 4, "font-size": 12, fill: colours.ink, "text-anchor": "end" },
      shown(bar.name, 11),
      svg("tspan", { fill: colours.faint, "font-size": 10, dx: 4 }, String(bar.place)),
    ),
    svg("rect", { ...box, width: Math.max(weight * scale, 0.5), fill: colours.series[0] }),
    svg("rect", {
      ...box,
      width: Math.max(bar.raw * scale, 0.5),
      fill: "none",
      stroke: colours.ink,
      "stroke-width": 1,
      "stroke-opacity": 0.55,
    }),
    svg(
      "text",
      { x: width - 6, y: middle + 4, "font-size": 11.5, fill: colours.ink, "text-anchor": "end" },
      number(weight),
    ),
  );
  const { bounds, together, copies, span, canonical } = bar;
  // A little lower, so that the weight's own whisker does not hide it.
  if (together) {
    const words = `all ${copies} copies: ${number(together.lower)} … ${number(together.upper)}`;
    group.append(whisker(together, x, middle + 8, 3, colours.series[2], "together", words));
  }
  if (bounds) {
    const words = `${bounds.exact ? "" : "about "}${number(bounds.lower)} … ${number(bounds.upper)}`;
    group.append(whisker(bounds, x, middle, 6, colours.mark, "whisker", words));
  }
  if (span !== null)
    group.append(svg("path", { d: `M${x(span)} ${middle - 4}l4 4-4 4-4-4z`, fill: colours.series[1] }));
  if (canonical !== null)
    group.append(
      svg("circle", {
        cx: x(canonical),
        cy: middle,
        r: 3.2,
        fill: "none",
        stroke: colours.series[2],
        "stroke-width": 1.6,
      }),
    );
  return group;
}

/**
 * @param {import("./watched_row.js").KnownBounds} bounds @param {(value: number) => number} x @param {number} y
 * @param {number} half  of an end's height
 * @param {string} colour @param {string} name @param {string} words
 */
function whisker({ lower, upper, exact }, x, y, half, colour, name, words) {
  const end = (/** @type {number} */ value) => svg("line", { x1: x(value), x2: x(value), y1: y - half, y2: y + half });
  return svg(
    "g",
    { stroke: colour, "stroke-width": 2, class: exact ? name : `${name} found` },
    svg("line", { x1: x(lower), x2: x(upper), y1: y, y2: y, "stroke-dasharray": exact ? null : "3 2" }),
    end(lower),
    end(upper),
    svg("title", {}, words),
  );
}
