/** A slider from the model's attention to another with the same output, and what is so where it stands. */

import { html } from "./dom.js";

/** Milliseconds of the first movement, there, a rest, and back. */
const THERE = 1500;
const REST = 1100;

/**
 * @param {string} id @param {import("./watched_row.js").WatchedRow} row
 */
export function makeSlider(id, row) {
  const slider = /** @type {HTMLInputElement} */ (
    html("input", {
      type: "range",
      min: 0,
      max: 100,
      value: 0,
      id,
      "aria-label": "From the model's attention to another with the same output",
      oninput: () => row.slide(Number(slider.value) / 100),
    })
  );
  const said = html("output", { class: "said", for: id });
  const end = html("span", {}, "another with the same output");
  const element = html(
    "div",
    { class: "moving" },
    html("div", { class: "ends" }, html("span", {}, "the model's attention"), end),
    slider,
    said,
  );

  function draw() {
    const answer = row.answer();
    slider.value = String(Math.round(100 * row.step()));
    slider.disabled = !answer || answer.freedom <= 0;
    if (row.waiting()) return void (said.textContent = "looking for other attention with the same output …");
    if (!answer) return void (said.textContent = "Without the head's values nobody can tell what could be otherwise.");
    const facts = row.facts();
    if (!facts) {
      const seen = answer.allowed.reduce((sum, one) => sum + one, 0);
      end.textContent = "no other has this output";
      return void (said.textContent = `All of it is certain: ${seen === 1 ? "one word is" : `${seen} words are`} seen here, and no other weights on them give this output.`);
    }
    end.textContent = `another with the same output: ${percent(facts.farthest, 0)} of the weight elsewhere`;
    const fact = (/** @type {string} */ name, /** @type {string} */ value, /** @type {string} */ key) =>
      html("span", { class: "fact" }, html("span", {}, name), html("b", { "data-fact": key }, value));
    said.replaceChildren(
      fact("weight moved", percent(facts.moved), "moved"),
      fact("output changes by", percent(facts.change), "difference"),
      fact("if moved at random, by", percent(facts.random), "random"),
      html(
        "span",
        { class: "hint rounding" },
        `of ‖a·T‖; the rounding of T in this page could hide at most ${percent(facts.hidden)}; ${answer.freedom} free dimensions`,
      ),
    );
  }

  /** What is said, as one line of text. */
  function inWords() {
    return Array.from(
      said.childNodes,
      (part) => Array.from(part.childNodes, (one) => one.textContent).join(" ") || part.textContent,
    ).join("; ");
  }
  row.watch((what) => void (what !== "bounds" && draw()));
  return { element, draw, inWords };
}

/** @param {number} value @param {number} [digits] */
function percent(value, digits) {
  return `${(100 * value).toFixed(digits ?? (value < 0.0995 ? 2 : 0))} %`;
}

/**
 * Once, to be seen: to the other end and back. Whoever does anything meanwhile ends it where it is.
 * @param {import("./watched_row.js").WatchedRow} row @param {HTMLElement} within
 * @returns {() => void}  ends it
 */
export function playOnce(row, within) {
  const place = row.place();
  let stopped = false;
  let began = 0;
  const stop = () => {
    stopped = true;
    for (const one of ["pointerdown", "keydown", "input"]) within.removeEventListener(one, stop, true);
  };
  for (const one of ["pointerdown", "keydown", "input"]) within.addEventListener(one, stop, true);
  const move = (/** @type {number} */ time) => {
    if (stopped || row.place() !== place) return stop();
    began ||= time;
    const since = time - began;
    const share = since < THERE + REST ? Math.min(since / THERE, 1) : Math.max(0, 1 - (since - THERE - REST) / THERE);
    // Slow at both ends.
    row.slide((1 - Math.cos(Math.PI * share)) / 2);
    if (since > 2 * THERE + REST) return stop();
    requestAnimationFrame(move);
  };
  requestAnimationFrame(move);
  return stop;
}
