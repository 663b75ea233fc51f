/** The answer in words, above everything else. */

import { html } from "./dom.js";

/** @param {import("./data.js").Header} header */
export function makeVerdict(header) {
  const [first, second, ...rest] = header.verdict;
  if (!first) return null;
  return html(
    "section",
    { id: "verdict", "aria-labelledby": "verdict-title" },
    html("h2", { id: "verdict-title", class: "hidden" }, "Verdict"),
    html("p", { class: "lead" }, first),
    second ? html("p", {}, second) : null,
    rest.length
      ? html(
          "details",
          { class: "what" },
          html("summary", {}, "Where do these numbers come from?"),
          ...rest.map((sentence) => html("p", {}, sentence)),
        )
      : null,
  );
}
