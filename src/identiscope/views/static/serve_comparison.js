/** Two texts side by side in a few numbers. */

import { html } from "./dom.js";
import { attentionOf } from "./serve_side.js";
import { number } from "./text.js";

/** Both at a glance. @param {(import("./data.js").Header|null)[]} headers */
export function comparison(headers) {
  const rows = headers.map((header, at) => {
    if (!header) return html("tr", {});
    const heads = attentionOf(header);
    const shares = (heads?.layers ?? [])
      .flatMap((layer) => layer.simplex_null_share.filter((share) => share !== null))
      .sort((one, other) => Number(one) - Number(other));
    const cells = [
      header.title,
      String(heads?.tokens.queries.length ?? "–"),
      number(real(median(/** @type {number[]} */ (shares))), 2),
      `${shares.filter((share) => Number(share) > 0.5).length} of ${shares.length}`,
    ];
    return html(
      "tr",
      {},
      html("th", { scope: "row" }, "AB"[at]),
      ...cells.map((cell, place) => html("td", { class: place ? "number" : "" }, cell)),
    );
  });
  const columns = ["", "model", "tokens", "how much is real (median head)", "heads less than half real"];
  return html(
    "table",
    { class: "plain compared" },
    html("caption", { class: "hidden" }, "Both texts compared"),
    html(
      "thead",
      {},
      html(
        "tr",
        {},
        ...columns.map((column, at) => html("th", { scope: "col", class: at > 1 ? "number" : "" }, column)),
      ),
    ),
    html("tbody", {}, ...rows),
  );
}

/** @param {number|null} share  null share */
const real = (share) => (share === null ? null : 1 - share);

/** @param {number[]} sorted */
function median(sorted) {
  const half = sorted.length >> 1;
  return sorted.length ? (sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2) : null;
}
