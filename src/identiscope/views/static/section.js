/** A part of the page: a heading, one sentence that explains it, buttons to save it, and what it shows. */

import { choice, html } from "./dom.js";
import { saveButtons } from "./saving.js";

/**
 * @param {string} id
 * @param {string} title
 * @param {string} note  one sentence, with the number of the equation
 * @param {() => import("./saving.js").Exportable} exported
 * @param {string} [what]  one paragraph with a formula, for whoever asks what this is
 */
export function makeSection(id, title, note, exported, what) {
  // No section's own name has such a line in it.
  const heading = html("h2", { id: `${id}_title` }, title);
  const body = html("div", { class: "body" });
  const element = html(
    "section",
    { id, "aria-labelledby": `${id}_title` },
    html("div", { class: "top" }, heading, saveButtons(exported)),
    note ? html("p", { class: "note" }, note) : null,
    body,
    what ? html("details", { class: "what" }, html("summary", {}, "What is this?"), html("p", {}, what)) : null,
  );
  return { element, heading, body };
}

/**
 * Sections of one kind: one with its tools inside, several side by side under the tools that they share.
 * @param {{element: HTMLElement, body: HTMLElement}[]} sections
 * @param {HTMLElement} tools
 */
export function standing(sections, tools) {
  if (sections.length === 1) {
    sections[0].body.prepend(tools);
    return sections[0].element;
  }
  return html(
    "div",
    { class: "beside", role: "group", "aria-label": `${sections.length} side by side` },
    tools,
    html("div", { class: "columns" }, ...sections.map(({ element }) => element)),
  );
}

/**
 * Whether colours mean the same in all sections, or each has its own scale: a choice where there are several.
 * @param {{length: number}} sections
 * @param {() => void} onchange
 */
export function scaleChoice(sections, onchange) {
  const options = [
    { value: "one", text: "one scale for all" },
    { value: "own", text: "each its own scale" },
  ];
  const { list, element } = choice("Colours", options, onchange);
  element.hidden = sections.length < 2;
  return {
    element,
    together: () => list.value === "one",
    /** What is chosen unasked. @param {number[]} limits  the largest number of each */
    suit(limits) {
      const known = limits.filter((limit) => limit > 0);
      const comparable = known.length < 2 || Math.max(...known) <= 10 * Math.min(...known);
      list.value = comparable ? "one" : "own";
    },
  };
}
