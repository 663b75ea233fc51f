/** A notebook: the data come from the kernel, once. */

import { mount } from "./viewer.js";

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
  return () => viewer.close();
}
