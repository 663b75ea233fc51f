/** A report: the page's own data, read from the elements that hold them. */

import { fromText } from "./decode.js";
import { mount } from "./viewer.js";

/**
 * @param {string} workerSource  the worker's modules as one script
 */
export function openReport(workerSource) {
  /** @param {string} id */
  const text = (id) => /** @type {HTMLElement} */ (document.getElementById(id)).textContent ?? "";
  const data = {
    header: JSON.parse(text("header")),
    chunk: async (/** @type {string} */ name) => fromText(text(`chunk-${name}`)),
  };
  const root = /** @type {HTMLElement} */ (document.getElementById("viewer"));
  const source = new Blob([workerSource], { type: "text/javascript" });
  const viewer = mount(root, data, { worker: () => new Worker(URL.createObjectURL(source)), links: true, alone: true });
  /** @type {any} */ (window).identiscope = viewer;
  viewer.ready.catch((error) => {
    const notice = document.createElement("p");
    notice.setAttribute("role", "alert");
    notice.textContent = `This page could not be read: ${error}`;
    root.prepend(notice);
  });
}
