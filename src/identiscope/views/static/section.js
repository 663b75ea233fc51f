/** A part of the page: a heading, one sentence that explains it, buttons to save it, and what it shows. */

import { html } from "./dom.js";
import { saveButtons } from "./saving.js";

/**
 * @param {string} id
 * @param {string} title
 * @param {string} note  one sentence, with the number of the equation
 * @param {() => import("./saving.js").Exportable} exported
 */
export function makeSection(id, title, note, exported) {
  const heading = html("h2", { id: `${id}-title` }, title);
  const body = html("div", { class: "body" });
  const element = html(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    html("div", { class: "top" }, heading, saveButtons(exported)),
    html("p", { class: "note" }, note),
    body
  );
  return { element, heading, body };
}
