/** How everything below is shown: pieces of words, copies, order, colours. */

import { SCALE_MODES } from "./colour.js";
import { choice, html } from "./dom.js";

/**
 * @typedef {import("./lens.js").LensChoice & {mode: import("./colour.js").ScaleMode}} Choices
 */

/** @param {() => void} onchange */
export function makeChoices(onchange) {
  /** @type {Choices} */
  const chosen = { words: false, copies: false, order: "text", mode: "auto" };
  /** @param {"words"|"copies"} name @param {string} text @param {string} title */
  const tick = (name, text, title) => {
    const box = /** @type {HTMLInputElement} */ (
      html("input", {
        type: "checkbox",
        "data-choice": name,
        onchange: () => {
          chosen[name] = box.checked;
          onchange();
        },
      })
    );
    return html("label", { class: "choice", title }, box, html("span", {}, text));
  };
  const order = choice(
    "Columns",
    [
      { value: "text", text: "as in the text" },
      { value: "weight", text: "most looked at first" },
    ],
    (value) => {
      chosen.order = value === "weight" ? "weight" : "text";
      onchange();
    },
  );
  const mode = choice("Colours", SCALE_MODES, (value) => {
    chosen.mode = /** @type {import("./colour.js").ScaleMode} */ (value);
    onchange();
  });
  order.list.dataset.choice = "order";
  mode.list.dataset.choice = "mode";
  const element = html(
    "div",
    { class: "choices", role: "group", "aria-label": "How it is shown" },
    tick("words", "whole words", "Pieces of a word become one: columns added up, lines averaged"),
    tick("copies", "copies added up", "A word that stands several times has one column"),
    order.element,
    mode.element,
  );
  return { element, chosen };
}
