/** Weights and the intervals that they may lie in, the loosest first; several side by side on one axis. */

import { html, svg } from "./dom.js";
import { framed, pictureWidth } from "./saving.js";
import { makeSection, standing } from "./section.js";
import { number, shown } from "./text.js";

/** So many intervals are drawn unasked. */
const LOOSEST = 24;

/**
 * @param {import("./sections.js").Drawn<import("./data.js").FreedomData>[]} sections
 * @param {import("./sections.js").View} view
 * @returns {import("./sections.js").Part}
 */
export function drawFreedom(sections, view) {
  const every = sections.flatMap(({ data }) =>
    data.cells.flatMap(({ weight, lower, upper, together }) => [
      weight ?? lower,
      lower,
      together?.upper ?? upper,
      upper,
    ]),
  );
  const ends = every.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [0, 0.02]);
  const cards = sections.map((section) => makeIntervals(section, view.theme, ends));
  const watcher = new ResizeObserver(() => cards.forEach((one) => one.draw()));
  cards.forEach(({ body }) => watcher.observe(body));
  return {
    element: standing(cards, html("div", { class: "tools", hidden: true })),
    draw: () => cards.forEach((one) => one.draw()),
    close: () => watcher.disconnect(),
  };
}

/**
 * @param {import("./sections.js").Drawn<import("./data.js").FreedomData>} section
 * @param {() => import("./colour.js").Theme} theme @param {number[]} ends  of the axis
 */
function makeIntervals({ name, title, says, data }, theme, [low, high]) {
  // By what is free whatever copies there are: weight between copies of a word means little.
  const width = (/** @type {import("./data.js").FreedomCell} */ one) =>
    one.together ? one.together.upper - one.together.lower : one.upper - one.lower;
  const sorted = [...data.cells].sort((one, other) => width(other) - width(one));
  let all = false;
  const card = makeSection(name, title, says, () => ({
    name,
    picture: () => {
      const width = pictureWidth(680);
      const { parts, height } = chart(width, theme());
      return framed(theme(), title, says, width, height, ...parts);
    },
    table: () => [
      ["cell", "weight", "lower", "upper", "copies", "merged_weight", "merged_lower", "merged_upper"],
      ...data.cells.map(({ name: cell, weight, lower, upper, together: all }) => [
        ...[cell, weight, lower, upper],
        ...(all ? [all.copies, all.weight, all.lower, all.upper] : [1, weight, lower, upper]),
      ]),
    ],
  }));
  const holder = html("div", { class: "bars" });
  const more = html("button", {
    type: "button",
    class: "small",
    hidden: sorted.length <= LOOSEST,
    onclick: () => {
      all = !all;
      draw();
    },
  });
  const merged = html("p", { class: "legend" }, "The lower whisker: a token and its copies together.");
  merged.hidden = !data.cells.some((one) => one.together);
  card.body.append(merged, holder, more);

  /** @param {number} width @param {import("./colour.js").Theme} colours */
  function chart(width, colours) {
    const [line, left, right] = [24, Math.min(250, width * 0.42), 12];
    const x = (/** @type {number} */ value) => left + ((value - low) / (high - low)) * (width - left - right);
    const rows = all ? sorted : sorted.slice(0, LOOSEST);
    const bottom = 10 + rows.length * line;
    /** @type {SVGElement[]} */
    const parts = [low, (low + high) / 2, high].flatMap((value) => [
      svg("line", { x1: x(value), x2: x(value), y1: 4, y2: bottom, stroke: colours.line }),
      svg(
        "text",
        {
          x: x(value),
          y: bottom + 14,
          "font-size": 11,
          fill: colours.faint,
          "text-anchor": value === high ? "end" : "middle",
        },
        number(value, 2),
      ),
    ]);
    rows.forEach(({ name: cell, weight, lower, upper, together }, at) => {
      const y = 6 + at * line + line / 2;
      if (together) {
        const below = y + 7;
        const end = (/** @type {number} */ value) =>
          svg("line", { x1: x(value), x2: x(value), y1: below - 3, y2: below + 3 });
        parts.push(
          svg(
            "g",
            { stroke: colours.series[2], "stroke-width": 2, class: "together" },
            svg("line", { x1: x(together.lower), x2: x(together.upper), y1: below, y2: below }),
            end(together.lower),
            end(together.upper),
            svg("title", {}, `all ${together.copies} copies: ${number(together.lower)} … ${number(together.upper)}`),
          ),
        );
      }
      const tick = (/** @type {number} */ value) => svg("line", { x1: x(value), x2: x(value), y1: y - 5, y2: y + 5 });
      parts.push(
        svg(
          "text",
          { x: left - 10, y: y + 4, "font-size": 12, fill: colours.ink, "text-anchor": "end" },
          shown(cell, Math.max(8, Math.floor(left / 7.2))),
        ),
        svg(
          "g",
          { stroke: colours.mark, "stroke-width": 2, class: "whisker" },
          svg("line", { x1: x(lower), x2: x(upper), y1: y, y2: y }),
          tick(lower),
          tick(upper),
        ),
      );
      if (weight !== null) parts.push(svg("circle", { cx: x(weight), cy: y, r: 4, fill: colours.series[0] }));
    });
    return { parts, height: bottom + 22 };
  }

  function draw() {
    const width = Math.max(280, Math.min(holder.clientWidth || 680, 900));
    const { parts, height } = chart(width, theme());
    holder.replaceChildren(
      svg("svg", { width, height, role: "img", "aria-label": title, "font-family": "system-ui, sans-serif" }, ...parts),
    );
    more.textContent = all ? `Show the ${LOOSEST} loosest` : `Show all ${sorted.length}`;
  }
  return { ...card, draw };
}
