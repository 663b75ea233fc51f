/** What a corpus says of each head: means over its texts, one column at a time. */

import { css, inkOn, shareColour } from "./colour.js";
import { choice, html, svg } from "./dom.js";
import { framed } from "./saving.js";
import { makeSection } from "./section.js";
import { number } from "./text.js";

const CORPUS_NOTE = "Means over all texts of the corpus, by layer (rows) and head (columns); beside the list, what a column means.";

/** @param {import("./data.js").Grid} given @param {number} at @param {() => import("./colour.js").Theme} theme */
export function makeGrid(given, at, theme) {
  let chosen = given.columns.find(({ name }) => name === "null_share") ?? given.columns[0];
  const section = makeSection(`corpus-${at}`, given.title, CORPUS_NOTE, () => ({
    name: `corpus-${chosen.name}`,
    picture,
    table: () => [
      ["layer", "head", ...given.columns.flatMap(({ name }) => [name, `${name}_deviation`])],
      ...given.layers.flatMap((layer, row) =>
        given.heads.map((head, place) => [layer, head, ...given.columns.flatMap((one) => [one.mean[row][place], one.deviation[row][place]])])
      ),
    ],
  }));
  const columns = choice("Column", given.columns.map(({ name }) => ({ value: name, text: name.replaceAll("_", " ") })), (value) => {
    chosen = given.columns.find(({ name }) => name === value) ?? chosen;
    draw();
  });
  columns.list.value = chosen.name;
  const said = html("p", { class: "said", "aria-live": "polite" });
  const holder = html("div", { class: "scroll" });
  section.body.append(html("div", { class: "tools" }, columns.element, said), holder);

  /** Colours run from least to most of the means; shares from 0 to 1. */
  function range() {
    const known = chosen.mean.flat().filter((value) => value !== null);
    const [least, most] = [Math.min(...known), Math.max(...known)];
    return least >= 0 && most <= 1 && most > 0.2 ? [0, 1] : [least, most > least ? most : least + 1];
  }

  function draw() {
    const [least, most] = range();
    said.replaceChildren(`${chosen.meaning}; colours from ${number(least, 2)} (dark) to ${number(most, 2)} (bright)`);
    holder.replaceChildren(
      html(
        "table",
        { class: "grid wide" },
        html("caption", { class: "hidden" }, `${chosen.name} by layer and head`),
        html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "layer"), ...given.heads.map((head) => html("th", { scope: "col" }, String(head))))),
        html(
          "tbody",
          {},
          ...given.layers.map((layer, row) =>
            html(
              "tr",
              {},
              html("th", { scope: "row" }, String(layer)),
              ...given.heads.map((head, place) => {
                const value = chosen.mean[row][place];
                const colour = shareColour(value === null ? null : (value - least) / (most - least));
                const cell = html("td", { class: "value", title: `Layer ${layer}, head ${head}: ${number(value)} ± ${number(chosen.deviation[row][place])}` }, number(value, 2));
                cell.style.backgroundColor = css(colour);
                cell.style.color = inkOn(colour);
                return cell;
              })
            )
          )
        )
      )
    );
  }

  function picture() {
    const [least, most] = range();
    const size = 40;
    const parts = given.layers.flatMap((layer, row) =>
      given.heads.flatMap((head, place) => {
        const value = chosen.mean[row][place];
        const colour = shareColour(value === null ? null : (value - least) / (most - least));
        const [x, y] = [60 + place * size, 4 + row * size];
        return [
          svg("rect", { x, y, width: size - 2, height: size - 2, rx: 4, fill: css(colour) }),
          svg("text", { x: x + 19, y: y + 23, "font-size": 11, fill: inkOn(colour), "text-anchor": "middle" }, number(value, 2)),
        ];
      })
    );
    const title = `${given.title}: ${chosen.name}`;
    return framed(theme(), title, CORPUS_NOTE, Math.max(80 + given.heads.length * size, 420), 12 + given.layers.length * size, ...parts);
  }

  draw();
  return { element: section.element, draw };
}
