/** The first screen: the verdict, and all heads by how much of their attention has no effect. */

import { css, inkOn, shareColour } from "./colour.js";
import { html, svg } from "./dom.js";
import { framed } from "./saving.js";
import { makeSection } from "./section.js";
import { number } from "./text.js";

const GRID_NOTE =
  "Each square is a head. Null share is ‖A∥‖²/‖A‖² with A∥ in LN([T,1]): how much of the squared attention weight may be" +
  " exchanged, each row keeping its sum, and nothing that the model computes would change, however it is written. 0: everything" +
  " shown matters; 1: nothing does.";

const PLAIN_NOTE =
  "Each square is a head. The values were not given, so how much of the attention is real cannot be told.";

/** With more layers than this the squares are low, so that the grid fits on the first screen beside the verdict. */
const DEEP = 12;

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {() => import("./colour.js").Theme} theme
 * @param {(place: {layer: number, head: number}) => void} choose
 */
export function makeOverview(about, theme, choose) {
  const { layers } = about;
  const heads = Array.from(new Set(layers.flatMap((layer) => layer.heads))).sort((one, other) => one - other);
  const known = layers.some((layer) => layer.effective_simplex_span);
  const note = known ? GRID_NOTE : PLAIN_NOTE;
  const section = makeSection(`${about.name}_heads`, known ? "All heads by null share" : "All heads", note, () => ({
    name: "null-share",
    picture: () => gridPicture(about, heads, theme(), note),
    table: () => [
      ["layer", "head", "simplex_null_share", "merged_null_share", "simplex_correlation"],
      ...layers.flatMap((layer) =>
        layer.heads.map((head, place) => [
          layer.layer,
          head,
          layer.simplex_null_share[place],
          layer.merged_null_share[place],
          layer.simplex_correlation[place],
        ]),
      ),
    ],
  }));
  /** @type {Map<string, HTMLElement>} */
  const cells = new Map();
  const rows = layers.map((layer) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, String(layer.layer)),
      ...heads.map((head) => {
        const place = layer.heads.indexOf(head);
        if (place < 0) return html("td", {});
        const share = layer.simplex_null_share[place];
        const colour = known ? shareColour(share) : [128, 140, 155];
        const button = html(
          "button",
          {
            type: "button",
            tabindex: "-1",
            "aria-label": `Layer ${layer.layer}, head ${head}${known ? `, null share ${number(share, 2)}` : ""}`,
            title: `Layer ${layer.layer}, head ${head}\nnull share ${number(share)}\nwith equal tokens added up ${number(layer.merged_null_share[place])}\ncorrelation of raw attention and what is left of it ${number(layer.simplex_correlation[place])}`,
            onclick: () => choose({ layer: layer.layer, head }),
          },
          known ? number(share, 2).replace(/^0/, "") : "",
        );
        button.style.backgroundColor = css(colour);
        button.style.color = inkOn(colour);
        cells.set(`${layer.layer} ${head}`, button);
        return html("td", {}, button);
      }),
    ),
  );
  const ramp = html("span", { class: "ramp", "aria-hidden": "true" });
  ramp.style.backgroundImage = `linear-gradient(to right, ${[0, 0.2, 0.4, 0.6, 0.8, 1].map((share) => css(shareColour(share))).join(",")})`;
  const table = html(
    "table",
    { class: layers.length > DEEP ? "grid deep" : "grid" },
    html("caption", { class: "hidden" }, "Null share by layer and head"),
    html(
      "thead",
      {},
      html(
        "tr",
        {},
        html("th", { scope: "col" }, "layer"),
        ...heads.map((head) => html("th", { scope: "col" }, String(head))),
      ),
    ),
    html("tbody", {}, ...rows),
  );
  const holder = html("div", { class: layers.length > 3 * DEEP ? "scroll tall" : "scroll", tabindex: "-1" }, table);
  section.body.append(
    holder,
    html(
      "p",
      { class: "legend" },
      ...(known ? [html("span", {}, "0 all real"), ramp, html("span", {}, "1 all null")] : []),
      html("span", { class: "hint" }, "columns are heads · click, or ← → for heads and ↑ ↓ for layers"),
    ),
  );
  return {
    element: section.element,
    /** @param {{layer: number, head: number}} place */
    mark(place) {
      for (const [name, button] of cells) {
        const chosen = name === `${place.layer} ${place.head}`;
        button.setAttribute("aria-pressed", String(chosen));
        // One stop for the tab key; arrows do the rest.
        button.tabIndex = chosen ? 0 : -1;
        // Where there are too many layers to be seen at once, the one chosen is; the page itself stays where it is.
        if (chosen && holder.scrollHeight > holder.clientHeight) {
          const [outer, inner] = [holder.getBoundingClientRect(), button.getBoundingClientRect()];
          if (inner.top < outer.top || inner.bottom > outer.bottom)
            holder.scrollTop += inner.top - outer.top - outer.height / 2;
        }
      }
    },
  };
}

/**
 * @param {import("./attention_view.js").Attended} about @param {number[]} heads
 * @param {import("./colour.js").Theme} theme @param {string} note
 */
function gridPicture(about, heads, theme, note) {
  const size = 40;
  const parts = heads.map((head, at) =>
    svg(
      "text",
      { x: 60 + (at + 0.5) * size, y: 12, "font-size": 12, fill: theme.faint, "text-anchor": "middle" },
      String(head),
    ),
  );
  about.layers.forEach((layer, row) => {
    parts.push(
      svg(
        "text",
        { x: 50, y: 24 + (row + 0.6) * size, "font-size": 12, fill: theme.faint, "text-anchor": "end" },
        String(layer.layer),
      ),
    );
    layer.heads.forEach((head, place) => {
      const colour = shareColour(layer.simplex_null_share[place]);
      const at = { x: 60 + heads.indexOf(head) * size, y: 20 + row * size };
      parts.push(svg("rect", { ...at, width: size - 2, height: size - 2, rx: 4, fill: css(colour) }));
      parts.push(
        svg(
          "text",
          {
            x: at.x + size / 2 - 1,
            y: at.y + size / 2 + 3,
            "font-size": 11,
            fill: inkOn(colour),
            "text-anchor": "middle",
          },
          number(layer.simplex_null_share[place], 2),
        ),
      );
    });
  });
  const width = Math.max(80 + heads.length * size, 420);
  return framed(
    theme,
    `Null share by layer (rows) and head (columns): ${about.title}`,
    note,
    width,
    30 + about.layers.length * size,
    ...parts,
  );
}

/** @param {import("./data.js").Header} header */
export function makeVerdict(header) {
  const [first, ...rest] = header.verdict;
  if (!first) return null;
  return html(
    "section",
    { id: "verdict", "aria-labelledby": "verdict-title" },
    html("h2", { id: "verdict-title", class: "hidden" }, "Verdict"),
    html("p", { class: "lead" }, first),
    ...rest.map((sentence) => html("p", {}, sentence)),
  );
}
