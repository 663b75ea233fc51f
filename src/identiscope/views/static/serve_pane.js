/** A viewer in a part of the page of its own: names and styles inside it touch nothing outside, so there may be two. */

import { html } from "./dom.js";
import { mount } from "./viewer.js";

/** What may move to another head or row. */
const MOVES = ["click", "keydown", "change", "pointerup"];

/**
 * @param {string} label
 * @param {(place: import("./data.js").Place) => void} onplace  the reader has chosen a place
 */
export function makePane(label, onplace) {
  const element = html("div", { class: "pane", role: "region", "aria-label": label });
  const inside = element.attachShadow({ mode: "open" });
  const sheets = ["viewer", "serve_pane"].map((name) =>
    html("link", { rel: "stylesheet", href: `/static/${name}.css` }),
  );
  const styled = Promise.all(sheets.map((sheet) => new Promise((resolve) => sheet.addEventListener("load", resolve))));
  inside.append(...sheets);
  /** @type {import("./viewer.js").Viewer|null} */
  let viewer = null;
  /** @type {HTMLElement|null} */
  let root = null;
  let dark = false;
  const placed = () => void (viewer && onplace(viewer.place()));
  function paint() {
    const toggle = /** @type {HTMLElement|null|undefined} */ (root?.querySelector("header button"));
    if (toggle && root && (root.dataset.theme === "dark") !== dark) toggle.click();
  }
  function clear() {
    viewer?.close();
    root?.remove();
    viewer = root = null;
  }
  return {
    element,
    viewer: () => viewer,
    clear,
    /** @param {import("./data.js").PageData} data @param {import("./data.js").Place|null} place @param {boolean} links */
    async show(data, place, links) {
      await styled;
      clear();
      root = html("div", {});
      inside.append(root);
      viewer = mount(root, data, { worker: () => new Worker("/static/serve_worker.js", { type: "module" }), links });
      for (const move of MOVES) root.addEventListener(move, placed);
      paint();
      await viewer.ready;
      if (place) await viewer.choose(place);
      return viewer;
    },
    /** @param {boolean} wanted */
    setDark(wanted) {
      dark = wanted;
      paint();
    },
    /** @param {boolean} half */
    setHalf(half) {
      element.toggleAttribute("data-half", half);
    },
  };
}
