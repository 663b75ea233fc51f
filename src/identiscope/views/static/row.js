/** One row: its weights as bars, what they may be as whiskers, and a slider to other attention with the same output. */

import { outputDifference } from "./alternative.js";
import { cellsOf } from "./decode.js";
import { choice, html, svg } from "./dom.js";
import { framed } from "./saving.js";
import { makeSection } from "./section.js";
import { number, shown } from "./text.js";

const ROW_NOTE =
  "Bars are the weights of one query. The slider moves them to other weights that are attention too (≥ 0, same sum) and give" +
  " the same output a·T (eq. 5 and 7): what moves here, nobody can see in what the model does.";

const SHOWN = 24;

/**
 * @param {import("./attention_view.js").Attended} about
 * @param {() => import("./colour.js").Theme} theme
 * @param {import("./engine.js").Engine} engine
 * @param {(row: number) => void} chooseRow
 */
export function makeRow(about, theme, engine, chooseRow) {
  const tokens = about.tokens;
  const [queries, keys] = [tokens.queries, tokens.keys ?? tokens.queries];
  /** @type {{maps: import("./data.js").Maps, layer: import("./data.js").PackedLayer, index: number, head: number, row: number}|null} */
  let current = null;
  /** @type {import("./worker.js").RowAnswer|null} */
  let answer = null;
  let waiting = false;
  const state = { order: "weight", all: false, step: 0 };
  /** @type {{kind: "away"|"least"|"most", key: number}} */
  const wish = { kind: "away", key: 0 };

  const section = makeSection(`${about.name}_row`, "One row", ROW_NOTE, () => ({
    name: `row-layer-${current?.layer.layer}-head-${current?.head}-query-${current?.row}`,
    picture: () => {
      const { parts, height } = bars(680, theme());
      return framed(theme(), `${section.heading.textContent}`, `${ROW_NOTE} ${inWords()}`, 680, height, ...parts);
    },
    table,
  }));
  const rows = choice(
    "Query",
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
      wish.kind = /** @type {"away"} */ (value);
      aims.element.hidden = value === "away";
      ask();
    },
  );
  const aims = choice(
    "Token",
    keys.map((token, place) => ({ value: String(place), text: `${place} ${shown(token)}` })),
    (value) => {
      wish.key = Number(value);
      ask();
    },
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
  const slider = /** @type {HTMLInputElement} */ (
    html("input", {
      type: "range",
      min: 0,
      max: 100,
      value: 0,
      id: `${about.name}_slider`,
      "aria-label": "From the model's attention to the alternative",
      oninput: () => {
        state.step = Number(slider.value) / 100;
        draw();
      },
    })
  );
  const said = html("output", { class: "said", for: `${about.name}_slider` });
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
  const end = html("span", {}, "the alternative");
  const moving = html(
    "div",
    { class: "moving" },
    html("div", { class: "ends" }, html("span", {}, "the model's attention"), end),
    slider,
    said,
  );
  section.body.append(
    html("div", { class: "tools" }, rows.element, goals.element, aims.element, orders.element),
    moving,
    legend,
    holder,
    more,
  );

  /** What is said of the alternative, as one line of text. */
  function inWords() {
    const parts = Array.from(
      said.childNodes,
      (part) => Array.from(part.childNodes, (one) => one.textContent).join(" ") || part.textContent,
    );
    return parts.join("; ");
  }

  /** The weights where the slider stands. */
  function weightsNow() {
    if (!current) return new Float64Array();
    const { maps, row } = current;
    if (!answer) return Float64Array.from(maps.raw.subarray(row * maps.keys, (row + 1) * maps.keys));
    const { weights, other } = answer;
    return weights.map((weight, key) => weight + state.step * (other[key] - weight));
  }

  async function ask() {
    if (!current) return;
    const asked = current;
    answer = null;
    if (current.layer.effective_simplex_span) {
      waiting = true;
      draw();
      const place = current.layer.heads.indexOf(current.head);
      const found = await engine.row(current.index, place, current.row, { ...wish });
      if (current !== asked) return;
      answer = found;
    }
    waiting = false;
    draw();
  }

  function table() {
    const named = about.maps.map((one) => one.name);
    const bounds = ["lower", "upper", "copies", "merged_lower", "merged_upper"];
    /** @type {(string|number|null)[][]} */
    const lines = [["query", "key", "query_token", "key_token", ...named, "shown", "alternative", ...bounds]];
    if (!current) return lines;
    const { maps, row } = current;
    const now = weightsNow();
    for (let key = 0; key < maps.keys; key++) {
      const at = row * maps.keys + key;
      const bound = boundOf(key);
      lines.push([
        row,
        key,
        queries[row] ?? "",
        keys[key] ?? "",
        ...named.map((name) => cellsOf(maps, name)?.[at] ?? null),
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

  /** @param {number} key */
  function boundOf(key) {
    return about.intervals.find(
      (one) =>
        current &&
        one.layer === current.layer.layer &&
        one.head === current.head &&
        one.query === current.row &&
        one.key === key,
    );
  }

  /** @param {number} width @param {import("./colour.js").Theme} colours */
  function bars(width, colours) {
    if (!current) return { parts: [], height: 0 };
    const { maps, row } = current;
    const now = weightsNow();
    const base = row * maps.keys;
    const raw = maps.raw.subarray(base, base + maps.keys);
    const strength = Array.from(raw, (weight, key) => Math.max(weight, answer ? answer.other[key] : 0));
    let chosen = Array.from(strength.keys()).sort((one, other) => strength[other] - strength[one]);
    if (!state.all) chosen = chosen.slice(0, SHOWN);
    // Weights whose bounds are known are always among those shown.
    for (const one of about.intervals)
      if (
        one.layer === current.layer.layer &&
        one.head === current.head &&
        one.query === row &&
        !chosen.includes(one.key)
      )
        chosen.push(one.key);
    // By the weights that the bars have, where the slider stands.
    chosen.sort((one, other) => (state.order === "position" ? one - other : now[other] - now[one] || one - other));
    let [low, high] = [0, 0.02];
    for (const key of chosen) {
      const bound = boundOf(key);
      const projected = maps.effective_simplex_span ? maps.effective_simplex_span[base + key] : 0;
      high = Math.max(high, strength[key], projected, bound ? Math.max(bound.upper, bound.merged_upper) : 0);
      low = Math.min(low, projected);
    }
    const [line, left, right] = [24, 118, 58];
    const scale = (width - left - right) / (high - low);
    const x = (/** @type {number} */ value) => left + (value - low) * scale;
    /** @type {SVGElement[]} */
    const parts = [];
    chosen.forEach((key, at) => {
      const y = 6 + at * line;
      const middle = y + line / 2 - 2;
      const weight = Math.max(now[key], 0);
      const bound = boundOf(key);
      const group = svg("g", { "data-key": key });
      group.append(
        svg(
          "text",
          { x: left - 10, y: middle + 4, "font-size": 12, fill: colours.ink, "text-anchor": "end" },
          shown(keys[key] ?? "", 11),
          svg("tspan", { fill: colours.faint, "font-size": 10, dx: 4 }, String(key)),
        ),
        svg("rect", {
          x: x(0),
          y: y + 3,
          width: Math.max(weight * scale, 0.5),
          height: line - 10,
          rx: 2,
          fill: colours.series[0],
        }),
        svg("rect", {
          x: x(0),
          y: y + 3,
          width: Math.max(raw[key] * scale, 0.5),
          height: line - 10,
          rx: 2,
          fill: "none",
          stroke: colours.ink,
          "stroke-width": 1,
          "stroke-opacity": 0.55,
        }),
        svg(
          "text",
          { x: width - 6, y: middle + 4, "font-size": 11.5, fill: colours.ink, "text-anchor": "end" },
          number(weight),
        ),
      );
      if (bound) {
        const tick = (/** @type {number} */ value) =>
          svg("line", { x1: x(value), x2: x(value), y1: middle - 6, y2: middle + 6 });
        if (bound.copies > 1) {
          // A little lower, so that the weight's own whisker does not hide it.
          const below = middle + 8;
          const end = (/** @type {number} */ value) =>
            svg("line", { x1: x(value), x2: x(value), y1: below - 3, y2: below + 3 });
          group.append(
            svg(
              "g",
              { stroke: colours.series[2], "stroke-width": 2, class: "together" },
              svg("line", { x1: x(bound.merged_lower), x2: x(bound.merged_upper), y1: below, y2: below }),
              end(bound.merged_lower),
              end(bound.merged_upper),
              svg(
                "title",
                {},
                `all ${bound.copies} copies: ${number(bound.merged_lower)} … ${number(bound.merged_upper)}`,
              ),
            ),
          );
        }
        group.append(
          svg(
            "g",
            { stroke: colours.mark, "stroke-width": 2, class: "whisker" },
            svg("line", { x1: x(bound.lower), x2: x(bound.upper), y1: middle, y2: middle }),
            tick(bound.lower),
            tick(bound.upper),
          ),
        );
      }
      if (maps.effective_simplex_span) {
        const at = x(maps.effective_simplex_span[base + key]);
        group.append(svg("path", { d: `M${at} ${middle - 4}l4 4-4 4-4-4z`, fill: colours.series[1] }));
      }
      if (maps.canonical)
        group.append(
          svg("circle", {
            cx: x(maps.canonical[base + key]),
            cy: middle,
            r: 3.2,
            fill: "none",
            stroke: colours.series[2],
            "stroke-width": 1.6,
          }),
        );
      parts.push(group);
    });
    const height = 12 + chosen.length * line;
    parts.unshift(svg("line", { x1: x(0), x2: x(0), y1: 4, y2: height - 4, stroke: colours.faint, "stroke-width": 1 }));
    return { parts, height };
  }

  function draw() {
    if (!current) return;
    const colours = theme();
    const width = Math.max(300, Math.min(holder.clientWidth || 680, 900));
    const { parts, height } = bars(width, colours);
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
    const { maps } = current;
    more.hidden = maps.keys <= SHOWN;
    more.textContent = state.all ? `Show the ${SHOWN} largest` : `Show all ${maps.keys} weights`;
    const known = about.intervals.filter(
      (one) => current && one.layer === current.layer.layer && one.head === current.head && one.query === current.row,
    );
    const sign = (/** @type {string} */ mark, /** @type {string} */ colour, /** @type {string} */ text) => {
      const dot = html("span", { class: "dot", "aria-hidden": "true" }, mark);
      dot.style.color = colour;
      return html("span", {}, dot, text);
    };
    legend.replaceChildren(
      sign("■", colours.series[0], "weight where the slider stands"),
      sign("□", colours.ink, "the model's weight"),
      ...(maps.effective_simplex_span ? [sign("◆", colours.series[1], "simplex span")] : []),
      ...(maps.canonical ? [sign("○", colours.series[2], "canonical")] : []),
      ...(known.some((one) => one.copies > 1)
        ? [sign("├┤", colours.series[2], "all that the token and its copies may be together")]
        : []),
      known.length
        ? sign("├┤", colours.mark, "all that the weight may be")
        : html(
            "span",
            { class: "hint" },
            `intervals: not computed for this row (${about.live ? "the button above does so" : "identiscope report --intervals"})`,
          ),
    );
    tell();
  }

  function tell() {
    if (!current) return;
    slider.disabled = !answer || answer.freedom <= 0;
    if (waiting) return void (said.textContent = "looking for another row with the same output …");
    if (!answer) return void (said.textContent = "Without the head's values there is no output to compare.");
    if (answer.freedom <= 0)
      return void (said.textContent = `This row is identifiable: it sees ${answer.allowed.reduce((sum, one) => sum + one, 0)} keys, no other weights give its output.`);
    const now = weightsNow();
    const { change, whole } = outputDifference(answer.weights, now, answer.output);
    const distance =
      now.reduce((sum, weight, key) => sum + Math.abs(weight - /** @type {any} */ (answer).weights[key]), 0) / 2;
    const share = whole > 0 ? change / whole : change;
    // What the rounding of T in this page may hide: at most so much for each unit of weight that moved.
    const hidden = whole > 0 ? (2 * distance * answer.output.rowError) / whole : 0;
    const farthest =
      answer.other.reduce((sum, weight, key) => sum + Math.abs(weight - /** @type {any} */ (answer).weights[key]), 0) /
      2;
    end.textContent = `the alternative: ${(100 * farthest).toFixed(0)} % of the weight elsewhere`;
    const random = outputDifference(answer.weights, elsewhere(answer, distance), answer.output);
    const percent = (/** @type {number} */ value) => `${(100 * value).toFixed(value < 0.0995 ? 2 : 0)} %`;
    const fact = (/** @type {string} */ name, /** @type {string} */ value, /** @type {string} */ key) =>
      html("span", { class: "fact" }, html("span", {}, name), html("b", { "data-fact": key }, value));
    said.replaceChildren(
      fact("weight moved", percent(distance), "moved"),
      fact("output changes by", percent(share), "difference"),
      fact("as much moved at random", percent(random.whole > 0 ? random.change / random.whole : 0), "random"),
      html(
        "span",
        { class: "hint" },
        `of ‖a·T‖, from this page's T, whose rounding could hide at most ${percent(hidden)}; ${answer.freedom} free dimensions`,
      ),
    );
  }

  /** The same weight moved without care: towards the row read backwards. @param {import("./worker.js").RowAnswer} found @param {number} distance */
  function elsewhere({ weights, allowed }, distance) {
    const places = Array.from(weights.keys()).filter((key) => allowed[key]);
    const aim = weights.slice();
    places.forEach((key, at) => void (aim[key] = weights[places[places.length - 1 - at]]));
    const reach = aim.reduce((sum, weight, key) => sum + Math.abs(weight - weights[key]), 0) / 2;
    const step = reach > 0 ? Math.min(1, distance / reach) : 0;
    return weights.map((weight, key) => weight + step * (aim[key] - weight));
  }

  const watcher = new ResizeObserver(() => draw());
  watcher.observe(holder);
  return {
    element: section.element,
    draw,
    close: () => watcher.disconnect(),
    answer: () => answer,
    weightsNow,
    /** @param {import("./data.js").Maps} maps @param {import("./data.js").PackedLayer} layer @param {number} index @param {number} head @param {number} row */
    show(maps, layer, index, head, row) {
      current = { maps, layer, index, head, row };
      state.step = 0;
      slider.value = "0";
      rows.list.value = String(row);
      section.heading.replaceChildren("Row ", String(row), ": ", html("bdi", {}, shown(queries[row] ?? "", 32)));
      if (wish.key >= maps.keys) wish.key = 0;
      aims.list.value = String(wish.key);
      return ask();
    },
  };
}
