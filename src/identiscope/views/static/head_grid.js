/** Numbers by layer and head, one at a time: of a text, or means over a corpus; several grids side by side. */

import { css, inkOn, shareColour } from "./colour.js";
import { choice, html, svg } from "./dom.js";
import { framed } from "./saving.js";
import { makeSection, standing } from "./section.js";
import { number } from "./text.js";

/**
 * @param {import("./sections.js").Drawn<import("./data.js").HeadData>[]} sections  of the same layers and heads
 * @param {import("./sections.js").View} view
 * @returns {import("./sections.js").Part}
 */
export function drawHeads(sections, view) {
  /** Colours run from least to most of what the grids call by one name; shares from 0 to 1. @param {string} name */
  function range(name) {
    const known = sections
      .flatMap(({ data }) => data.columns.filter((one) => one.name === name).flatMap(({ values }) => values.flat()))
      .filter((value) => value !== null);
    if (!known.length) return [0, 1];
    const [least, most] = [Math.min(...known), Math.max(...known)];
    return least >= 0 && most <= 1 && most > 0.2 ? [0, 1] : [least, most > least ? most : least + 1];
  }
  const grids = sections.map((section) => makeGrid(section, view, range));
  return {
    element: standing(grids, html("div", { class: "tools", hidden: true })),
    draw: () => grids.forEach((one) => one.draw()),
    go({ column }) {
      if (column !== undefined) grids.forEach((one) => one.choose(column));
    },
  };
}

/** @param {import("./sections.js").Drawn<import("./data.js").HeadData>} drawn @param {import("./sections.js").View} view @param {(name: string) => number[]} range */
function makeGrid({ name: own, title: heading, says, data: given }, view, range) {
  const { theme } = view;
  let chosen = given.columns[0];
  const section = makeSection(own, heading, says, () => ({
    name: `${own}-${chosen.name}`,
    picture,
    table: () => [
      [
        "layer",
        "head",
        ...given.columns.flatMap(({ name, deviation }) => (deviation ? [name, `${name}_deviation`] : [name])),
      ],
      ...given.layers.flatMap((layer, row) =>
        given.heads.map((head, place) => [
          layer,
          head,
          ...given.columns.flatMap((one) =>
            one.deviation ? [one.values[row][place], one.deviation[row][place]] : [one.values[row][place]],
          ),
        ]),
      ),
    ],
  }));
  const columns = choice(
    "Column",
    given.columns.map(({ name }) => ({ value: name, text: name.replaceAll("_", " ") })),
    (value) => {
      chosen = given.columns.find(({ name }) => name === value) ?? chosen;
      draw();
      view.moved(own, { column: given.columns.indexOf(chosen) });
    },
  );
  columns.list.value = chosen.name;
  const said = html("p", { class: "said", "aria-live": "polite" });
  const holder = html("div", { class: "scroll" });
  section.body.append(html("div", { class: "tools" }, columns.element, said), holder);

  function draw() {
    const [least, most] = range(chosen.name);
    said.replaceChildren(`${chosen.meaning}; colours from ${number(least, 2)} (dark) to ${number(most, 2)} (bright)`);
    holder.replaceChildren(
      html(
        "table",
        { class: "grid wide" },
        html("caption", { class: "hidden" }, `${chosen.name} by layer and head`),
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            html("th", { scope: "col" }, "layer"),
            ...given.heads.map((head) => html("th", { scope: "col" }, String(head))),
          ),
        ),
        html(
          "tbody",
          {},
          ...given.layers.map((layer, row) =>
            html(
              "tr",
              {},
              html("th", { scope: "row" }, String(layer)),
              ...given.heads.map((head, place) => {
                const value = chosen.values[row][place];
                const colour = shareColour(value === null ? null : (value - least) / (most - least));
                const cell = html(
                  "td",
                  {
                    class: "value",
                    title: `Layer ${layer}, head ${head}: ${number(value)}${chosen.deviation ? ` ± ${number(chosen.deviation[row][place])}` : ""}`,
                  },
                  number(value, 2),
                );
                cell.style.backgroundColor = css(colour);
                cell.style.color = inkOn(colour);
                return cell;
              }),
            ),
          ),
        ),
      ),
    );
  }

  function picture() {
    const [least, most] = range(chosen.name);
    const size = 40;
    const parts = given.layers.flatMap((layer, row) =>
      given.heads.flatMap((head, place) => {
        const value = chosen.values[row][place];
        const colour = shareColour(value === null ? null : (value - least) / (most - least));
        const [x, y] = [60 + place * size, 4 + row * size];
        return [
          svg("rect", { x, y, width: size - 2, height: size - 2, rx: 4, fill: css(colour) }),
          svg(
            "text",
            { x: x + 19, y: y + 23, "font-size": 11, fill: inkOn(colour), "text-anchor": "middle" },
            number(value, 2),
          ),
        ];
      }),
    );
    const title = `${heading}: ${chosen.name}`;
    return framed(
      theme(),
      title,
      says,
      Math.max(80 + given.heads.length * size, 420),
      12 + given.layers.length * size,
      ...parts,
    );
  }

  draw();
  return {
    ...section,
    draw,
    /** @param {number} column */
    choose(column) {
      chosen = given.columns[Math.min(column, given.columns.length - 1)];
      columns.list.value = chosen.name;
      draw();
    },
  };
}
