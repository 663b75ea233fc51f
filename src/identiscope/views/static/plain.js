/** Any result: its picture, if there is one, and its numbers as tables. */

import { html, svg } from "./dom.js";
import { framed, saveButtons } from "./saving.js";
import { number, scientific, shown } from "./text.js";

/** Of more tables than these only the first is open, and none of more rows where there is something else to see. */
const OPEN_TABLES = 3;
const OPEN_ROWS = 24;

/**
 * @param {import("./sections.js").Drawn<import("./data.js").PlainData>[]} sections  each by itself
 * @param {import("./sections.js").View} view
 * @returns {import("./sections.js").Part}
 */
export function drawPlain([{ name, title, says, data }], view) {
  const tables = data.tables.map((given, at) => {
    const made = makeTable(given, given.name || title, `${name}-${at}`, view.theme);
    // The only table of a section without a name of its own has that of the section.
    return { ...made, heading: given.name ? html("h3", {}, given.name) : null };
  });
  const isFolded = (/** @type {number} */ at) => {
    const long = data.tables[at].rows.length > OPEN_ROWS;
    return at > 0 ? long || tables.length > OPEN_TABLES : long && !!data.image;
  };
  const alone = tables.length === 1 && !tables[0].heading ? tables[0] : null;
  const element = html(
    "section",
    { id: name, "aria-labelledby": `${name}_title` },
    html(
      "div",
      { class: "top" },
      html("h2", { id: `${name}_title` }, title),
      alone ? saveButtons(alone.exported) : null,
    ),
    says ? html("p", { class: "note" }, says) : null,
    data.image ? html("figure", { class: "figure" }, html("img", { src: data.image, alt: title })) : null,
    ...tables.flatMap((table, at) => {
      if (table.heading && isFolded(at)) {
        const summary = html("summary", {}, table.heading.textContent ?? "");
        return [html("details", {}, summary, saveButtons(table.exported), table.element)];
      }
      return [alone ? null : html("div", { class: "top" }, table.heading, saveButtons(table.exported)), table.element];
    }),
  );
  return { element };
}

/**
 * @param {import("./data.js").Table} given @param {string} title @param {string} file @param {() => import("./colour.js").Theme} theme
 */
function makeTable(given, title, file, theme) {
  // Names with one value each, of whatever kind: numbers stand where words do.
  const mixed = given.columns.length === 2 && given.columns[1] === "value";
  const numeric = (/** @type {string|number|boolean|null|undefined} */ value) =>
    mixed || typeof value !== "number" ? "" : "number";
  return {
    /** @type {() => import("./saving.js").Exportable} */
    exported: () => ({
      name: file,
      picture: () => {
        const lines = [given.columns, ...given.rows].map((row, at) =>
          svg(
            "text",
            { x: 12, y: 16 + at * 18, "font-size": 12, fill: theme().ink },
            row.map((value) => cellText(value)).join("   "),
          ),
        );
        return framed(theme(), title, "", 800, 24 + lines.length * 18, ...lines);
      },
      table: () => [given.columns, ...given.rows],
    }),
    element: html(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": title },
      html(
        "table",
        { class: "plain" },
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            ...given.columns.map((column, at) =>
              html("th", { scope: "col", class: numeric(given.rows.find((row) => row[at] !== null)?.[at]) }, column),
            ),
          ),
        ),
        html(
          "tbody",
          {},
          ...given.rows.map((row) =>
            html(
              "tr",
              {},
              ...row.map((value) =>
                html(
                  "td",
                  { class: numeric(value) || (typeof value === "string" && value.length > 60 ? "words" : "") },
                  cellText(value),
                ),
              ),
            ),
          ),
        ),
      ),
    ),
  };
}

/** A cell of any kind; a number that three decimals would hide or fill the column with is written with its power of ten.
 * @param {string|number|boolean|null} value */
function cellText(value) {
  if (typeof value === "string") return shown(value, 400);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (value === null || Number.isInteger(value)) return value === null ? "–" : String(value).replace("-", "−");
  const size = Math.abs(value);
  return size >= 0.001 && size < 1e6 ? number(value) : `${value < 0 ? "−" : ""}${scientific(size)}`;
}
