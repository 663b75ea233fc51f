/** The numbers of a view as a table on the page, for whoever reads rather than looks. */

import { html } from "./dom.js";

/** Rows that are shown: a browser with many thousands of them stands still. The file has all. */
const MOST_ROWS = 300;

/** @param {(string|number|boolean|null)[][]} rows  with a row of headings */
export function tableOf(rows) {
  const [columns, ...lines] = rows;
  const cell = (/** @type {string|number|boolean|null} */ value) =>
    typeof value === "number"
      ? html("td", { class: "number" }, Number.isInteger(value) ? String(value) : value.toPrecision(4))
      : html("td", {}, value === null ? "–" : String(value));
  const more = lines.length - MOST_ROWS;
  return html(
    "div",
    { class: "scroll behind", tabindex: "0", role: "group", "aria-label": "The numbers of this view" },
    html(
      "table",
      { class: "plain" },
      html(
        "thead",
        {},
        html("tr", {}, ...columns.map((name) => html("th", { scope: "col" }, String(name).replaceAll("_", " ")))),
      ),
      html("tbody", {}, ...lines.slice(0, MOST_ROWS).map((line) => html("tr", {}, ...line.map(cell)))),
    ),
    more > 0 ? html("p", { class: "hint" }, `and ${more} more rows: the CSV file has all.`) : null,
  );
}
