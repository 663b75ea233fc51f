/** What was asked for in this browser: kept by it alone, the last ones first, to be opened or asked again. */

import { html } from "./dom.js";

const NAME = "identiscope-asked";
const MOST = 20;

/** What was typed into a text and not asked yet, in this tab alone. */
const DRAFT = "identiscope-draft";

/**
 * @typedef {{page: string, model: number, text: string, target?: string, attention?: string,
 *   outcome?: string|null}} Asking
 * @typedef {Asking & {when: string}} Asked
 */

/** Keeps what is typed over a reload, until it is asked. @param {HTMLTextAreaElement} text @param {() => string} page  that the address names */
export function keptDraft(text, page) {
  const attempt = (/** @type {() => string|null|void} */ what) => {
    try {
      return what() ?? null;
    } catch {
      // A browser that keeps nothing.
      return null;
    }
  };
  text.addEventListener("input", () => attempt(() => sessionStorage.setItem(DRAFT, `${page()} ${text.value}`)));
  return {
    kept() {
      const found = attempt(() => sessionStorage.getItem(DRAFT));
      return found?.startsWith(`${page()} `) ? found.slice(page().length + 1) : null;
    },
    forget: () => void attempt(() => sessionStorage.removeItem(DRAFT)),
  };
}

/** @returns {Asked[]} */
export function askedBefore() {
  try {
    const found = JSON.parse(localStorage.getItem(NAME) ?? "[]");
    const isOne = (/** @type {any} */ one) =>
      one && typeof one.page === "string" && typeof one.text === "string" && Number.isInteger(one.model);
    return Array.isArray(found) ? found.filter(isOne).slice(0, MOST) : [];
  } catch {
    // A browser that keeps nothing, or what another program has left there.
    return [];
  }
}

/** @param {Asked[]} list */
function keep(list) {
  try {
    localStorage.setItem(NAME, JSON.stringify(list.slice(0, MOST)));
  } catch {
    // There may be no room, or none allowed: then there is no history.
  }
}

/** @param {Asked} one */
export function remember(one) {
  const same = (/** @type {Asked} */ other) => other.text === one.text && other.model === one.model;
  keep([one, ...askedBefore().filter((other) => !same(other))]);
}

/**
 * @param {string[]} models  their names
 * @param {(one: Asked) => void} open
 */
export function makeHistory(models, open) {
  const list = html("ul", {});
  const element = html("details", { class: "history" }, html("summary", {}, "Asked before"), list);
  function draw() {
    const every = askedBefore();
    element.hidden = every.length === 0;
    list.replaceChildren(
      ...every.map((one) =>
        html(
          "li",
          {},
          html(
            "button",
            { type: "button", class: "small", onclick: () => open(one) },
            html("bdi", {}, one.text.length > 70 ? `${one.text.slice(0, 69)}…` : one.text),
          ),
          html("span", { class: "hint" }, ` ${models[one.model] ?? "another model"} · ${one.when}`),
        ),
      ),
      html(
        "li",
        {},
        html(
          "button",
          {
            type: "button",
            class: "small",
            onclick: () => {
              keep([]);
              draw();
            },
          },
          "Forget all",
        ),
      ),
    );
  }
  draw();
  return { element, draw };
}
