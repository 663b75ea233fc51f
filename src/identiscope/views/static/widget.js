/** A notebook: the data come from the kernel, once. */

import { mount } from "./viewer.js";

/** What stands in for the viewer where it does not run is not needed where it does. @param {string} name @param {number} tries */
function hideStill(name, tries) {
  const still = document.querySelector(`[data-identiscope-still="${CSS.escape(name)}"]`);
  if (still) /** @type {HTMLElement} */ (still).hidden = true;
  else if (tries > 0) setTimeout(() => hideStill(name, tries - 1), 250);
}

/** @param {{model: {get: (name: string) => any}, el: HTMLElement}} given */
export function renderWidget({ model, el }) {
  const chunks = model.get("chunks");
  const source = model.get("worker");
  const viewer = mount(
    el,
    {
      header: JSON.parse(model.get("header")),
      chunk: async (name) => {
        const view = chunks[name];
        return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
      },
    },
    { worker: () => new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" }))) },
  );
  // It may come after the viewer.
  if (model.get("still")) hideStill(model.get("still"), 40);
  return () => viewer.close();
}
