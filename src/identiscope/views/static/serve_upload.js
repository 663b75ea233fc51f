/** A text file of this machine, read by the browser into the text: nothing is sent before it is asked for. */

import { html } from "./dom.js";

/** @param {number} longest  characters @param {(text: string|null, why: string) => void} done  the text, or why there is none */
export function makeUpload(longest, done) {
  const input = /** @type {HTMLInputElement} */ (
    html("input", { type: "file", class: "hidden", accept: ".txt,.md,.text,text/plain", onchange: () => void read() })
  );
  async function read() {
    const file = input.files?.[0];
    input.value = "";
    if (!file) return;
    // Four bytes are the most that a character takes.
    if (file.size > 4 * longest)
      return done(null, `${file.name} has ${file.size} bytes; at most ${longest} characters are taken here.`);
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.length > longest)
        return done(null, `${file.name} has ${text.length} characters; at most ${longest} are taken here.`);
      if (text.includes("\u0000")) return done(null, `${file.name} is not a text file.`);
      done(text, text.trim() ? "" : `${file.name} has no words in it.`);
    } catch {
      done(null, `${file.name} is not a text file in UTF-8; save it as such, and try again.`);
    }
  }
  return { element: html("label", { class: "upload" }, input, html("span", {}, "Open a file …")) };
}
