/** The text itself, as one word reads it: shaded by how much each word is looked at, striped where that may be otherwise. */

import { css, wordColour } from "./colour.js";
import { html } from "./dom.js";
import { makeSection } from "./section.js";
import { makeSlider } from "./slider.js";
import { number } from "./text.js";
import { textPicture } from "./text_picture.js";
import { asText, copiesOf, isSpecial, spaceBefore, wordsOf } from "./words.js";

const READING_NOTE =
  "The stronger its colour, the more a word is looked at. Plain words are certain; striped ones could be otherwise, and the model would" +
  " do the same: move the slider.";

const READING_WHAT =
  "A head moves to each word a mixture a·T of what it reads from all words; a are the weights shown here. Other weights a′ ≥ 0" +
  " with the same sum and a′·T = a·T leave everything that the model computes as it is. For each word the least and the most" +
  " that it may have in such an a′ is its interval: min and max of a′ over {a′ ≥ 0, a′·[T,1] = a·[T,1]}. A word that stands" +
  " several times counts once, with its weights added up. Certain is what has an interval narrower than 0.05. Intervals that came with the page are of the model's own T; the" +
  " others this browser finds by linear programs, from T as rounded in the page.";

/** A word is certain if no more than this of its weight may be otherwise. */
const CERTAIN = 0.05;
/** Stripes are seen if the shares of the strongest colour differ by so much. */
const SEEN = 0.3;
/** Words named in the sentence, and the least that such a word has. */
const NAMED = { most: 4, least: 0.02 };

/**
 * @typedef {{keys: number[], together: number[], text: string}} Unit  a token or a word; with all its copies
 */

/**
 * @param {import("./attention_view.js").Attended} about @param {() => import("./colour.js").Theme} theme
 * @param {import("./watched_row.js").WatchedRow} row @param {(row: number) => void} chooseRow
 */
export function makeReading(about, theme, row, chooseRow) {
  const tokens = about.tokens;
  const keys = tokens.keys ?? tokens.queries;
  /** @type {Unit[]} */
  let units = [];
  /** @type {HTMLElement[]} */
  let elements = [];
  const section = makeSection(
    `${about.name}_text`,
    "The text",
    READING_NOTE,
    () => ({ name: `text-${file()}`, picture, table }),
    READING_WHAT,
  );
  const file = () => {
    const place = row.place();
    return place ? `layer-${place.layer.layer}-head-${place.head}-query-${place.row}` : "";
  };
  const holder = html("div", {
    class: `reading${keys.length > 220 ? " long" : keys.length <= 80 ? " short" : ""}`,
    role: "group",
    "aria-label": "The text: each word with how much it is looked at",
  });
  const said = html("p", { class: "answer", "aria-live": "polite" });
  const slider = makeSlider(`${about.name}_text_slider`, row);
  const legend = html("p", { class: "legend" });
  section.body.append(slider.element, said, holder, legend);

  /** Pieces of words together or apart. @param {boolean} words */
  function setWords(words) {
    const groups = words ? wordsOf(keys) : keys.map((_, place) => [place]);
    const names = groups.map((group) => group.map((place) => keys[place]).join(" "));
    const copies = copiesOf(names);
    units = groups.map((group, at) => ({
      keys: group,
      together: copies[at].flatMap((one) => groups[one]),
      text: asText(...group.map((place) => keys[place])),
    }));
    elements = units.map((unit, at) => {
      const one = html(
        "span",
        {
          class: isSpecial(keys[unit.keys[0]]) ? "word special" : "word",
          role: "button",
          tabindex: "-1",
          "data-unit": at,
        },
        html("bdi", {}, unit.text),
      );
      return one;
    });
    holder.replaceChildren(
      ...elements.flatMap((one, at) => (spaceBefore(keys, units[at].keys[0]) ? [" ", one] : [html("wbr"), one])),
    );
    const sets = new Map(units.map((unit) => [unit.together.join(" "), unit.together]));
    row.want(Array.from(sets.values()));
    draw();
  }

  const at = (/** @type {Event} */ event) => {
    const one = /** @type {HTMLElement} */ (event.target).closest(".word");
    return one ? Number(/** @type {HTMLElement} */ (one).dataset.unit) : -1;
  };
  const pick = (/** @type {number} */ chosen) => {
    if (chosen >= 0 && tokens.keys === null) chooseRow(units[chosen].keys[0]);
  };
  holder.addEventListener("click", (event) => pick(at(event)));
  holder.addEventListener("pointerover", (event) => sayOf(at(event)));
  holder.addEventListener("pointerleave", () => sayOf(-1));
  holder.addEventListener("focusin", (event) => sayOf(at(event)));
  holder.addEventListener("focusout", () => sayOf(-1));
  holder.addEventListener("keydown", (event) => {
    const from = at(event);
    const step = /** @type {Object<string, number>} */ ({
      ArrowLeft: -1,
      ArrowRight: 1,
      Home: -from,
      End: units.length,
    })[event.key];
    if (from < 0 || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") pick(from);
    else if (step !== undefined) elements[Math.min(Math.max(from + step, 0), units.length - 1)].focus();
    else return;
    // Here arrows go from word to word; elsewhere they go from head to head.
    event.preventDefault();
    event.stopPropagation();
  });

  const sum = (/** @type {Float64Array} */ weights, /** @type {number[]} */ places) =>
    places.reduce((total, key) => total + (weights[key] || 0), 0);

  /** The weight of a unit now and what is known of it: bounds of it and its copies, in its share of them. @param {Unit} unit @param {Float64Array} now @param {Float64Array} weights */
  function stateOf(unit, now, weights) {
    const answer = row.answer();
    const together = sum(weights, unit.together);
    const known =
      answer && answer.freedom <= 0 ? { lower: together, upper: together, exact: true } : row.bounds(unit.together);
    const own = sum(weights, unit.keys);
    const share = together > 1e-9 ? own / together : unit.keys.length / unit.together.length;
    return { now: sum(now, unit.keys), own, together, known, share };
  }

  function draw() {
    const place = row.place();
    if (!place) return;
    const colours = theme();
    const now = row.now();
    const answer = row.answer();
    const weights = answer ? answer.weights : now;
    const states = units.map((unit) => stateOf(unit, now, weights));
    const top = Math.max(
      0.02,
      ...states.map((one) => Math.max(one.now, one.own, one.known ? one.known.upper * one.share : 0)),
    );
    const shade = (/** @type {number} */ weight) => css(wordColour(colours, Math.sqrt(Math.max(weight, 0) / top)));
    const readers = new Set(tokens.keys === null ? [place.row] : []);
    states.forEach((one, index) => {
      const element = elements[index];
      const unit = units[index];
      const unseen = !!answer && unit.keys.every((key) => !answer.allowed[key]);
      element.classList.toggle("unseen", unseen);
      // No word is certain only because nobody has looked.
      element.classList.toggle("unsought", !unseen && !one.known);
      const reads = unit.keys.some((key) => readers.has(key));
      element.classList.toggle("reads", reads);
      element.tabIndex = reads || (!readers.size && index === 0) ? 0 : -1;
      element.style.background = unseen ? "none" : striped(one, top, shade);
      element.setAttribute("aria-label", unseen ? `${unit.text}: not seen from here` : inWords(unit, one));
    });
    legend.replaceChildren(
      sample(shade(top), null, "looked at most"),
      sample(shade(top / 8), null, "less"),
      sample(shade(top / 2), shade(0), "could be otherwise"),
      ...(elements.some((one) => one.classList.contains("unsought"))
        ? [html("span", { class: "key" }, html("span", { class: "word unsought" }, "word"), "not looked into")]
        : []),
      ...(readers.size
        ? [
            html(
              "span",
              { class: "key" },
              html("span", { class: "word reads" }, "word"),
              "is the one that looks; click another",
            ),
          ]
        : []),
      html("span", { class: "hint" }, row.seeking() ? "finding how far each could go …" : ""),
    );
    const reader = tokens.queries[place.row] ?? "";
    section.heading.replaceChildren(
      "What ",
      html("bdi", {}, `“${asText(reader)}”`),
      ` looks at in layer ${place.layer.layer}, head ${place.head}`,
    );
    if (!pointed) said.replaceChildren(...sentence(states));
  }

  let pointed = false;
  /** @param {number} index */
  function sayOf(index) {
    const place = row.place();
    pointed = index >= 0 && !!place;
    if (!place) return;
    const answer = row.answer();
    const weights = answer ? answer.weights : row.now();
    if (!pointed) return void said.replaceChildren(...sentence(units.map((unit) => stateOf(unit, row.now(), weights))));
    const unit = units[index];
    const unseen = !!answer && unit.keys.every((key) => !answer.allowed[key]);
    said.replaceChildren(
      unseen
        ? `“${unit.text}” comes later and cannot be seen from here.`
        : `${inWords(unit, stateOf(unit, row.now(), weights))}.`,
    );
  }

  /** How often a unit stands where it can be seen. @param {Unit} unit */
  function seenCopies(unit) {
    const answer = row.answer();
    const seen = unit.together.filter((key) => !answer || answer.allowed[key]);
    return Math.max(1, Math.round(seen.length / unit.keys.length));
  }

  /** @param {Unit} unit @param {ReturnType<typeof stateOf>} one */
  function inWords(unit, { now, together, known }) {
    const copies = seenCopies(unit);
    const several = copies > 1 ? `, ${number(together, 2)} with its ${copies} copies` : "";
    const range = !known
      ? "; how much it could have was not looked into"
      : known.upper - known.lower < CERTAIN
        ? "; certain"
        : `; could be anything from ${number(known.lower, 2)} to ${number(known.upper, 2)}${copies > 1 ? " together" : ""}`;
    return `“${unit.text}” has ${number(now, 2)}${several}${range}`;
  }

  /** What is certain and what is not, of the words most looked at. @param {ReturnType<typeof stateOf>[]} states @returns {(Node|string)[]} */
  function sentence(states) {
    const answer = row.answer();
    if (row.waiting() || !answer)
      return [row.waiting() ? "…" : "What of this is certain cannot be told without the head's values."];
    /** @type {Map<string, {text: string, copies: number, together: number, known: {lower: number, upper: number}|null}>} */
    const words = new Map();
    states.forEach(({ together, known }, index) => {
      const unit = units[index];
      const copies = seenCopies(unit);
      words.set(unit.together.join(" "), { text: unit.text, copies, together, known });
    });
    const main = Array.from(words.values())
      .filter(({ together }) => together >= NAMED.least)
      .sort((one, other) => other.together - one.together)
      .slice(0, NAMED.most);
    const fixed = main.filter(({ known }) => known && known.upper - known.lower < CERTAIN);
    const loose = main.filter(({ known }) => known && known.upper - known.lower >= CERTAIN);
    const named = (/** @type {typeof main[number]} */ one) =>
      `“${one.text}”${one.copies > 1 ? ` (${one.copies} times)` : ""} ${number(one.together, 2)}`;
    const list = (/** @type {string[]} */ parts) =>
      parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}` : (parts[0] ?? "");
    const parts = [];
    if (fixed.length) parts.push(html("b", {}, "Certain: "), `${list(fixed.map(named))}. `);
    if (loose.length)
      parts.push(
        html("b", {}, "Could be otherwise: "),
        `${list(loose.map((one) => `${named(one)} (${number(one.known?.lower, 2)} to ${number(one.known?.upper, 2)})`))}.`,
      );
    if (!parts.length && main.length)
      return [row.seeking() ? "…" : "How much the words most looked at could have was not looked into."];
    return parts.length ? parts : ["This word looks at all words a little, and at none much."];
  }

  /** @param {ReturnType<typeof stateOf>} one @param {number} top @param {(weight: number) => string} shade */
  function striped({ now, known, share }, top, shade) {
    const base = shade(now);
    if (!known || known.upper - known.lower < CERTAIN) return base;
    const [lower, upper] = [known.lower * share, known.upper * share];
    const strength = (/** @type {number} */ weight) => Math.sqrt(Math.max(weight, 0) / top);
    // A copy that has little of what all copies have is striped like them, so that one sees it.
    const down = now - lower > upper - now && strength(now) >= SEEN;
    const other = down
      ? Math.min(strength(lower), Math.max(0, strength(now) - SEEN))
      : Math.max(strength(upper), Math.min(1, strength(now) + SEEN));
    return stripes(base, shade(other * other * top));
  }

  /** @param {string} colour @param {string|null} other @param {string} words */
  function sample(colour, other, words) {
    const swatch = html("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = other ? stripes(colour, other) : colour;
    return html("span", { class: "key" }, swatch, words);
  }

  function table() {
    /** @type {(string|number|null)[][]} */
    const lines = [["word", "keys", "weight", "shown", "copies", "weight_with_copies", "lower", "upper", "exact"]];
    const answer = row.answer();
    const now = row.now();
    for (const unit of units) {
      const one = stateOf(unit, now, answer ? answer.weights : now);
      lines.push([
        unit.text,
        unit.keys.join(" "),
        one.own,
        one.now,
        unit.together.length / unit.keys.length,
        one.together,
        one.known?.lower ?? null,
        one.known?.upper ?? null,
        one.known ? String(one.known.exact) : null,
      ]);
    }
    return lines;
  }

  function picture() {
    return textPicture(
      theme(),
      section.heading.textContent ?? "",
      `${READING_NOTE} ${elements.some((one) => one.classList.contains("unsought")) ? "Dotted ones were not looked into. " : ""}${slider.inWords()}`,
      elements,
      units,
    );
  }

  /** Of a long text the part with the word that looks; the page itself stays where it is. */
  function bringReader() {
    const reader = elements.find((one) => one.classList.contains("reads"));
    if (!reader || holder.scrollHeight <= holder.clientHeight) return;
    const [outer, inner] = [holder.getBoundingClientRect(), reader.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom)
      holder.scrollTop += inner.top - outer.top - outer.height / 2;
  }

  row.watch((what) => {
    if (what === "bounds") return later();
    draw();
    if (what === "row") bringReader();
  });
  let drawing = false;
  /** Not for every word that was found. */
  function later() {
    if (drawing) return;
    drawing = true;
    setTimeout(() => {
      drawing = false;
      draw();
    }, 120);
  }
  section.element.classList.add("narrative");
  return { element: section.element, draw, setWords };
}

/** @param {string} one @param {string} other */
function stripes(one, other) {
  return `repeating-linear-gradient(135deg, ${one} 0 5px, ${other} 5px 9px)`;
}
