/** All heads at a glance: one number of each as squares, or the map of each as a thumbnail that opens in place. */

import { colourTable, css, inkOn, paint, realColour } from "./colour.js";
import { choice, html, svg } from "./dom.js";
import { makeOpened } from "./opened.js";
import { framed } from "./saving.js";
import { makeSection } from "./section.js";
import { number } from "./text.js";
import { MOVABLE } from "./thumbnail.js";

const GRID_NOTE =
  "Each square is a head, each line a layer. The stronger its colour, the more of what it shows is real; the rest could be" +
  " otherwise, and the model would do the same.";

const GRID_WHAT =
  "The number is 1 minus the null share, ‖A∥‖²/‖A‖² with A∥ the part of the map in LN([T,1]): how much of the squared attention weight" +
  " may be exchanged, each row keeping its sum, and nothing that the model computes would change, however it is written." +
  " A single weight may be held in place all the same: its own interval is what counts.";

const PLAIN_NOTE =
  "Each square is a head, each line a layer. The values were not given, so what of it is certain cannot be told.";

/** With more layers than this the squares are low, so that the grid fits on the first screen. */
const DEEP = 12;
/** With more heads than this in a layer no numbers stand in the squares, and with more than that the grid is wider than the page. */
const NARROW = { numbers: 14, page: 40 };

/** What heads can be ordered by: the text, and the number of a head if it is known before its map is computed. */
const ORDERS = /** @type {const} */ ([
  { value: "place", text: "layer and head", packed: null },
  { value: "simplex_null_share", text: "null share", packed: "simplex_null_share" },
  { value: "merged_null_share", text: "null share, copies added up", packed: "merged_null_share" },
  { value: "simplex_correlation", text: "correlation with what has an effect", packed: "simplex_correlation" },
  { value: "first", text: "weight on the first token", packed: null },
  { value: "evenness", text: "evenness", packed: null },
  { value: "strongest", text: "strongest weight", packed: null },
]);

/**
 * @typedef {{index: number, at: number, layer: number, head: number, button: HTMLElement, canvas: HTMLCanvasElement|null,
 *   made: Map<string, import("./thumbnail.js").Thumbnail>}} Square
 */

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {() => import("./colour.js").Theme} theme
 * @param {import("./engine.js").Engine} engine
 * @param {(place: {layer: number, head: number, row?: number}) => void} choose
 */
export function makeOverview(about, theme, engine, choose) {
  /** The thumbnail whose map is open. @type {Square|null} */
  let open = null;
  const opened = makeOpened(about, theme, engine, {
    row: (row) => open && choose({ layer: open.layer, head: open.head, row }),
    close: () => openAt(null),
  });
  const { layers } = about;
  const heads = Array.from(new Set(layers.flatMap((layer) => layer.heads))).sort((one, other) => one - other);
  const known = layers.some((layer) => layer.effective_simplex_span);
  const note = known ? GRID_NOTE : PLAIN_NOTE;
  const state = { map: "numbers", order: /** @type {typeof ORDERS[number]["value"]} */ ("place"), turn: 0 };
  const section = makeSection(
    `${about.name}_heads`,
    "All heads",
    "",
    () => ({ name: state.map === "numbers" ? "null-share" : `heads-${state.map}`, picture, table }),
    known ? GRID_WHAT : "",
  );

  /** @type {Map<string, Square>} */
  const squares = new Map();
  layers.forEach((layer, index) =>
    layer.heads.forEach((head, place) => {
      const share = layer.simplex_null_share[place];
      const button = html(
        "button",
        {
          type: "button",
          class: "square",
          tabindex: "-1",
          "aria-label": `Layer ${layer.layer}, head ${head}${known ? `, null share ${number(share, 2)}` : ""}`,
          title: `Layer ${layer.layer}, head ${head}\nnull share ${number(share)}\nwith equal tokens added up ${number(layer.merged_null_share[place])}\ncorrelation of raw attention and what is left of it ${number(layer.simplex_correlation[place])}`,
          onclick: () => {
            const one = squares.get(`${layer.layer} ${head}`) ?? null;
            if (state.map !== "numbers") openAt(open === one ? null : one);
            choose({ layer: layer.layer, head });
          },
        },
        html("span", {}),
      );
      squares.set(`${layer.layer} ${head}`, {
        index,
        at: place,
        layer: layer.layer,
        head,
        button,
        canvas: null,
        made: new Map(),
      });
    }),
  );

  const maps = choice(
    "Show",
    [
      { value: "numbers", text: known ? "how much is real" : "no map" },
      ...about.maps.map((one) => ({ value: one.name, text: `maps: ${one.title.toLowerCase()}` })),
      ...(known ? [{ value: MOVABLE, text: "maps: how far weights can move" }] : []),
    ],
    (value) => {
      state.map = value;
      arrange();
    },
  );
  maps.list.dataset.choice = "thumbnails";
  const orders = choice(
    "Order",
    ORDERS.filter((one) => known || !one.packed).map(({ value, text }) => ({ value, text })),
    (value) => {
      state.order = /** @type {typeof state.order} */ (value);
      arrange();
    },
  );
  orders.list.dataset.choice = "heads-order";
  const holder = html("div", { class: layers.length > 3 * DEEP ? "scroll tall" : "scroll", tabindex: "-1" });
  holder.addEventListener("keydown", (event) => void (event.key === "Escape" && open && openAt(null)));
  const legend = html("p", { class: "legend" });
  const told = html("span", { class: "hint", role: "status" });
  const squaresNote = html("p", { class: "note" }, note);
  section.body.append(html("div", { class: "tools" }, maps.element, orders.element, told), holder, legend, squaresNote);

  /** Open the map of a thumbnail where it stands, or none. @param {Square|null} one */
  function openAt(one) {
    const before = open;
    const root = /** @type {Document|ShadowRoot} */ (section.element.getRootNode());
    const focused = opened.element.contains(root.activeElement ?? null) ? root.activeElement : null;
    open?.button.removeAttribute("aria-expanded");
    open = one;
    (opened.element.closest("tr") ?? opened.element).remove();
    if (!open) return before?.button.focus({ preventScroll: true });
    open.button.setAttribute("aria-expanded", "true");
    const line = open.button.closest("tr");
    if (line) line.after(html("tr", { class: "open" }, html("td", { colspan: heads.length + 1 }, opened.element)));
    else open.button.after(opened.element);
    // Moving it to another place took the focus from it.
    /** @type {HTMLElement|null} */ (focused)?.focus({ preventScroll: true });
    void opened.show(open, state.map);
  }

  /** The number that a head is ordered by. @param {Square} one */
  function valueOf(one) {
    const packed = ORDERS.find(({ value }) => value === state.order)?.packed;
    if (packed) return layers[one.index][packed][one.at];
    const made = one.made.values().next().value;
    return made && state.order !== "place" ? made[/** @type {"first"} */ (state.order)] : null;
  }

  /** The squares in their order; layers stay lines as long as they are ordered by place. */
  function arrange() {
    const turn = ++state.turn;
    const small = state.map === "numbers";
    section.element.classList.toggle("wide", !small);
    squaresNote.hidden = !small;
    const label = (/** @type {string} */ text) => html("span", { class: "at" }, text);
    const crowd = heads.length > NARROW.page ? " narrow many" : heads.length > NARROW.numbers ? " narrow" : "";
    if (state.order === "place") {
      const corner = html("th", { scope: "col" }, "layer");
      const names = heads.map((head) => html("th", { scope: "col" }, String(head)));
      const rows = layers.map((layer) =>
        html(
          "tr",
          {},
          html("th", { scope: "row" }, String(layer.layer)),
          ...heads.map((head) => html("td", {}, squares.get(`${layer.layer} ${head}`)?.button ?? null)),
        ),
      );
      for (const one of squares.values()) one.button.querySelector(".at")?.remove();
      holder.replaceChildren(
        html(
          "table",
          { class: `grid${small && layers.length > DEEP ? " deep" : ""}${small ? "" : " thumbnails"}${crowd}` },
          html("caption", { class: "hidden" }, "Heads by layer"),
          html("thead", {}, html("tr", {}, corner, ...names)),
          html("tbody", {}, ...rows),
        ),
      );
    } else {
      const order = Array.from(squares.values()).sort(
        (one, other) => (valueOf(other) ?? -Infinity) - (valueOf(one) ?? -Infinity),
      );
      for (const one of order) {
        one.button.querySelector(".at")?.remove();
        one.button.append(label(`${one.layer}:${one.head} · ${number(valueOf(one), 2)}`));
      }
      holder.replaceChildren(
        html("div", { class: `grid ordered${small ? "" : " thumbnails"}` }, ...order.map(({ button }) => button)),
      );
    }
    draw();
    openAt(small ? null : open);
    // Orders by what no file holds, and thumbnails, take the maps of all heads.
    const packed = ORDERS.find(({ value }) => value === state.order)?.packed;
    if (!small || (state.order !== "place" && !packed)) void makeAll(turn);
    else told.textContent = "";
  }

  /** One head after the other, so that whoever wants another head meanwhile does not wait. @param {number} turn */
  async function makeAll(turn) {
    const name = state.map === "numbers" ? "raw" : state.map;
    const missing = Array.from(squares.values()).filter((one) => !one.made.has(name));
    for (const [done, one] of missing.entries()) {
      told.textContent = `${done} of ${missing.length} …`;
      const made = await engine.thumbnail(one.index, one.at, name);
      one.made.set(name, made);
      if (turn !== state.turn) return;
      if (state.map !== "numbers") drawOne(one);
    }
    told.textContent = "";
    draw();
    const packed = ORDERS.find(({ value }) => value === state.order)?.packed;
    if (missing.length && state.order !== "place" && !packed) arrange();
  }

  /** @param {Square} one */
  function drawOne(one) {
    const small = state.map === "numbers";
    const share = layers[one.index].simplex_null_share[one.at];
    const colour = known ? realColour(theme(), share) : [128, 140, 155];
    const text = /** @type {HTMLElement} */ (one.button.firstElementChild);
    const made = small ? undefined : one.made.get(state.map);
    text.hidden = !small && (made === undefined || made.cells !== null);
    if (!small) text.textContent = "–";
    else text.textContent = known && share !== null ? number(1 - share, 2).replace(/^0/, "") : known ? "–" : "";
    one.canvas?.remove();
    one.canvas = null;
    one.button.style.backgroundColor = small ? css(colour) : theme().paper;
    one.button.style.color = small ? inkOn(colour) : theme().faint;
    if (!made?.cells) return;
    one.canvas = paint(made.cells, made.rows, made.columns, made.scale.limit, colourTable(theme(), made.scale));
    one.canvas.setAttribute("aria-label", `${state.map} map of layer ${one.layer}, head ${one.head}`);
    text.after(one.canvas);
  }

  function draw() {
    for (const one of squares.values()) drawOne(one);
    opened.draw();
    const ramp = html("span", { class: "ramp", "aria-hidden": "true" });
    const stops = [1, 0.8, 0.6, 0.4, 0.2, 0].map((share) => css(realColour(theme(), share)));
    ramp.style.backgroundImage = `linear-gradient(to right, ${stops.join(",")})`;
    const scale =
      state.map !== "numbers"
        ? [
            html(
              "span",
              {},
              state.map === MOVABLE ? MOVES : "orange above zero, blue below; each head on its own scale",
            ),
            html(
              "span",
              {},
              state.map === "canonical" &&
                Array.from(squares.values()).some(({ made }) => made.get("canonical")?.cells === null)
                ? MISSING[about.live ? "live" : "page"]
                : "",
            ),
          ]
        : known
          ? [html("span", {}, "0: nothing is real"), ramp, html("span", {}, "1: all is")]
          : [];
    legend.replaceChildren(
      ...scale,
      html(
        "span",
        { class: "hint" },
        `columns are heads · ${state.map === "numbers" ? "click, or" : "click to open one;"} ← → for heads and ↑ ↓ for layers`,
      ),
    );
  }

  function table() {
    const measured = /** @type {const} */ (["first", "evenness", "strongest"]);
    /** @type {(string|number|null)[][]} */
    const lines = [["layer", "head", "simplex_null_share", "merged_null_share", "simplex_correlation", ...measured]];
    for (const { index, at, layer, head, made } of squares.values()) {
      const one = layers[index];
      const own = made.values().next().value;
      lines.push([
        layer,
        head,
        one.simplex_null_share[at],
        one.merged_null_share[at],
        one.simplex_correlation[at],
        ...measured.map((name) => own?.[name] ?? null),
      ]);
    }
    return lines;
  }

  function picture() {
    const small = state.map === "numbers";
    const size = small ? 40 : 84;
    const colours = theme();
    const parts = heads.map((head, at) =>
      svg(
        "text",
        { x: 60 + (at + 0.5) * size, y: 12, "font-size": 12, fill: colours.faint, "text-anchor": "middle" },
        String(head),
      ),
    );
    layers.forEach((layer, row) => {
      const name = { x: 50, y: 24 + (row + 0.5) * size, "font-size": 12, fill: colours.faint, "text-anchor": "end" };
      parts.push(svg("text", name, String(layer.layer)));
    });
    for (const one of squares.values()) {
      const at = { x: 60 + heads.indexOf(one.head) * size, y: 20 + one.index * size };
      const share = layers[one.index].simplex_null_share[one.at];
      const box = { ...at, width: size - 2, height: size - 2 };
      if (one.canvas) {
        const href = one.canvas.toDataURL("image/png");
        parts.push(
          svg("image", { ...box, href, preserveAspectRatio: "none", "image-rendering": "pixelated" }),
          svg("rect", { ...box, fill: "none", stroke: colours.line }),
        );
        continue;
      }
      const colour = realColour(colours, share);
      const text = { x: at.x + size / 2 - 1, y: at.y + size / 2 + 3, "font-size": 11, "text-anchor": "middle" };
      parts.push(svg("rect", { ...box, rx: 4, fill: small ? css(colour) : colours.paper, stroke: colours.line }));
      parts.push(
        svg(
          "text",
          { ...text, fill: small ? inkOn(colour) : colours.faint },
          small && share !== null ? number(1 - share, 2) : "–",
        ),
      );
    }
    const width = Math.max(80 + heads.length * size, 420);
    const title = `${small ? "How much is real," : `Maps (${state.map}),`} by layer (lines) and head (columns): ${about.title}`;
    return framed(colours, title, note, width, 30 + layers.length * size, ...parts);
  }

  arrange();
  return {
    element: section.element,
    draw,
    close: opened.close,
    /** @param {{layer: number, head: number}} place */
    mark(place) {
      for (const { layer, head, button } of squares.values()) {
        const chosen = layer === place.layer && head === place.head;
        button.setAttribute("aria-pressed", String(chosen));
        // One stop for the tab key; arrows do the rest.
        button.tabIndex = chosen ? 0 : -1;
        // What is open goes on to the head that is looked at.
        if (chosen && open && open.button !== button) openAt(squares.get(`${layer} ${head}`) ?? null);
        // Once it is on the page: a page's first head is chosen before that.
        if (chosen) requestAnimationFrame(() => bringIntoView(holder, button));
      }
    },
  };
}

const MISSING = {
  page: "–: not computed when this page was made; identiscope report --canonical all has it for every head",
  live: "–: not computed yet; tick “Canonical maps of all heads” and compute",
};
const MOVES =
  "how far each weight goes to the farthest attention found with the same output: its interval is at least so wide (24 lines of each head)";

/** Where not all heads can be seen at once, the one chosen is; the page itself stays where it is. @param {HTMLElement} holder @param {HTMLElement} button */
function bringIntoView(holder, button) {
  const [outer, inner] = [holder.getBoundingClientRect(), button.getBoundingClientRect()];
  if (holder.scrollHeight > holder.clientHeight && (inner.top < outer.top || inner.bottom > outer.bottom))
    holder.scrollTop += inner.top - outer.top - outer.height / 2;
  if (holder.scrollWidth > holder.clientWidth && (inner.left < outer.left || inner.right > outer.right))
    holder.scrollLeft += inner.left - outer.left - outer.width / 2;
}
