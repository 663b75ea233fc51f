/** One row: its weights as bars, what they may be as whiskers, and a slider to other attention with the same output. */

import { drawBars } from "./bars.js";
import { cellsOf } from "./decode.js";
import { choice, html, svg } from "./dom.js";
import { framed, pictureWidth } from "./saving.js";
import { makeSection } from "./section.js";
import { makeSlider } from "./slider.js";
import { shown } from "./text.js";
import { copiesOf } from "./words.js";

const ROW_NOTE =
  "Each bar is the weight that this word gives to another. Move the slider: the weights change, and what the model computes" +
  " from them does not.";

const ROW_WHAT =
  "The slider goes from the row a to another row a′ that is attention too (a′ ≥ 0, the same sum) and gives the same output:" +
  " a′·T = a·T (eq. 5 and 7), T being what the head reads from each word. Every point between both does the same. a′ is found in" +
  " this browser: of all such rows the one nearest to a point far away from a.";

const SHOWN = 24;

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {() => import("./colour.js").Theme} theme
 * @param {import("./watched_row.js").WatchedRow} row
 * @param {(row: number) => void} chooseRow
 */
export function makeRow(about, theme, row, chooseRow) {
  const tokens = about.tokens;
  const [queries, keys] = [tokens.queries, tokens.keys ?? tokens.queries];
  const state = { order: "weight", all: false };
  /** @type {import("./lens.js").Lens|null} */
  let lens = null;

  const section = makeSection(
    `${about.name}_row`,
    "One row",
    ROW_NOTE,
    () => {
      const place = row.place();
      return {
        name: `row-layer-${place?.layer.layer}-head-${place?.head}-query-${place?.row}`,
        picture: () => {
          const width = pictureWidth(680);
          const { parts, height } = drawBars(bars(), width, theme());
          return framed(
            theme(),
            `${section.heading.textContent}`,
            `${ROW_NOTE} ${slider.inWords()}`,
            width,
            height,
            ...parts,
          );
        },
        table,
      };
    },
    ROW_WHAT,
  );
  const rows = choice(
    "Word",
    queries.map((token, place) => ({ value: String(place), text: `${place} ${shown(token)}` })),
    (value) => chooseRow(Number(value)),
  );
  const goals = choice(
    "Move",
    [
      { value: "away", text: "as far away as found" },
      { value: "least", text: "to least on one token" },
      { value: "most", text: "to most on one token" },
    ],
    (value) => {
      aims.element.hidden = value === "away";
      void row.ask({ kind: /** @type {"away"} */ (value) });
    },
  );
  const aims = choice(
    "Token",
    keys.map((token, place) => ({ value: String(place), text: `${place} ${shown(token)}` })),
    (value) => void row.ask({ key: Number(value) }),
  );
  aims.element.hidden = true;
  const orders = choice(
    "Order",
    [
      { value: "weight", text: "by weight" },
      { value: "position", text: "as in the text" },
    ],
    (value) => {
      state.order = value;
      draw();
    },
  );
  const slider = makeSlider(`${about.name}_slider`, row);
  const more = html("button", {
    type: "button",
    class: "small",
    onclick: () => {
      state.all = !state.all;
      draw();
    },
  });
  const holder = html("div", { class: "bars" });
  const legend = html("p", { class: "legend" });
  section.body.append(
    html("div", { class: "tools" }, rows.element, goals.element, aims.element, orders.element),
    slider.element,
    legend,
    holder,
    more,
  );

  /** All that could be bars: tokens, or what the lens makes of them. @returns {import("./bars.js").Bar[]} */
  function allBars() {
    const place = row.place();
    if (!place || !lens) return [];
    const { maps, row: query } = place;
    const now = row.now();
    const answer = row.answer();
    const copies = copiesOf(keys);
    const sum = (/** @type {ArrayLike<number>|null} */ values, /** @type {number[]} */ group, base = 0) =>
      group.reduce((total, key) => total + (values ? values[base + key] : 0), 0);
    return lens.columns.map((group, at) => {
      const base = query * maps.keys;
      const same = group.length === 1 ? copies[group[0]] : group;
      return {
        name: /** @type {import("./lens.js").Lens} */ (lens).columnNames[at],
        place: group[0],
        now: sum(now, group),
        raw: sum(maps.raw, group, base),
        other: answer ? sum(answer.other, group) : 0,
        span: maps.effective_simplex_span ? sum(maps.effective_simplex_span, group, base) : null,
        canonical: maps.canonical ? sum(maps.canonical, group, base) : null,
        bounds: row.bounds(group),
        together: same.length > group.length ? row.bounds(same) : null,
        copies: same.length,
      };
    });
  }

  /** Those shown, in their order. */
  function bars() {
    const every = allBars();
    const strength = (/** @type {import("./bars.js").Bar} */ one) => Math.max(one.raw, one.other);
    const largest = Array.from(every).sort((one, other) => strength(other) - strength(one));
    const chosen = new Set(state.all ? largest : largest.slice(0, SHOWN));
    // Weights whose exact bounds are known are always among those shown.
    for (const one of every) if (one.bounds?.exact) chosen.add(one);
    // By the weights that the bars have, where the slider stands.
    return Array.from(chosen).sort((one, other) =>
      state.order === "position" ? one.place - other.place : other.now - one.now || one.place - other.place,
    );
  }

  function table() {
    const named = about.maps.map((one) => one.name);
    const bounds = ["lower", "upper", "copies", "merged_lower", "merged_upper"];
    /** @type {(string|number|null)[][]} */
    const lines = [["query", "key", "query_token", "key_token", ...named, "shown", "alternative", ...bounds]];
    const place = row.place();
    if (!place) return lines;
    const { maps, row: query } = place;
    const now = row.now();
    const answer = row.answer();
    for (let key = 0; key < maps.keys; key++) {
      const bound = intervalOf(key);
      lines.push([
        query,
        key,
        queries[query] ?? "",
        keys[key] ?? "",
        ...named.map((name) => cellsOf(maps, name)?.[query * maps.keys + key] ?? null),
        now[key],
        answer ? answer.other[key] : null,
        bound ? bound.lower : null,
        bound ? bound.upper : null,
        bound ? bound.copies : null,
        bound ? bound.merged_lower : null,
        bound ? bound.merged_upper : null,
      ]);
    }
    return lines;
  }

  /** The exact interval that came with the page, if one did. @param {number} key */
  function intervalOf(key) {
    const place = row.place();
    return about.intervals.find(
      (one) =>
        place &&
        one.layer === place.layer.layer &&
        one.head === place.head &&
        one.query === place.row &&
        one.key === key,
    );
  }

  function draw() {
    const place = row.place();
    if (!place) return;
    const colours = theme();
    const width = Math.max(300, Math.min(holder.clientWidth || 680, 900));
    const chosen = bars();
    const { parts, height } = drawBars(chosen, width, colours);
    holder.replaceChildren(
      svg(
        "svg",
        {
          width,
          height,
          role: "img",
          "aria-label": "weights of the row as bars",
          "font-family": "system-ui, sans-serif",
        },
        ...parts,
      ),
    );
    const { maps } = place;
    const count = lens ? lens.columns.length : maps.keys;
    more.hidden = count <= SHOWN;
    more.textContent = state.all ? `Show the ${SHOWN} largest` : `Show all ${count} weights`;
    const sign = (/** @type {string} */ mark, /** @type {string} */ colour, /** @type {string} */ text) => {
      const dot = html("span", { class: "dot", "aria-hidden": "true" }, mark);
      dot.style.color = colour;
      return html("span", {}, dot, text);
    };
    const known = chosen.filter(({ bounds }) => bounds);
    legend.replaceChildren(
      sign("■", colours.series[0], "weight where the slider stands"),
      sign("□", colours.ink, "the model's weight"),
      ...(maps.effective_simplex_span ? [sign("◆", colours.series[1], "what of it has an effect (simplex span)")] : []),
      ...(maps.canonical ? [sign("○", colours.series[2], "canonical")] : []),
      ...(chosen.some(({ together }) => together)
        ? [sign("├┤", colours.series[2], "all that the token and its copies may be together")]
        : []),
      ...(known.length ? [sign("├┤", colours.mark, "all that the weight may be")] : []),
      ...(known.some(({ bounds }) => bounds && !bounds.exact)
        ? [html("span", { class: "hint" }, "dashed: found by this browser, from T as rounded in the page")]
        : []),
      ...(known.some(({ bounds }) => bounds?.exact)
        ? []
        : [
            html(
              "span",
              { class: "hint" },
              `exact intervals: not computed for this row (${about.live ? "the button above does so" : "identiscope report --intervals"})`,
            ),
          ]),
    );
  }

  // Whiskers come while others are still looked for, and not one by one.
  let drawing = 0;
  row.watch((what) => {
    const place = row.place();
    if (what === "row" && place) {
      rows.list.value = String(place.row);
      aims.list.value = String(row.wish().key);
      const name = html("bdi", {}, shown(queries[place.row] ?? "", 32));
      section.heading.replaceChildren("Row ", String(place.row), ": ", name);
    }
    if (what !== "bounds" || !row.seeking()) draw();
    else if (!drawing) drawing = setTimeout(() => ((drawing = 0), draw()), 500);
  });
  const watcher = new ResizeObserver(() => draw());
  watcher.observe(holder);
  return {
    element: section.element,
    draw,
    close: () => watcher.disconnect(),
    /** @param {import("./lens.js").Lens} chosen  what the bars are of */
    look(chosen) {
      lens = chosen;
      draw();
    },
  };
}
