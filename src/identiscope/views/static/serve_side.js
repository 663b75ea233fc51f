/** One side: a model, a text, how far its computation is, and what came of it. */

import { choice, html } from "./dom.js";
import { openPage, startComputing } from "./serve_client.js";
import { makePane } from "./serve_pane.js";
import { makeUpload } from "./serve_upload.js";
import { shown } from "./text.js";

const KINDS = [
  { value: "encoder-self", text: "encoder" },
  { value: "decoder-self", text: "decoder" },
  { value: "cross", text: "decoder on encoder" },
];

/**
 * @typedef {ReturnType<typeof makeSide>} Side
 */

/**
 * @param {string} name
 * @param {import("./serve_client.js").Site} site
 * @param {{busy: () => void, placed: (place: import("./data.js").Place) => void,
 *   beside: () => import("./data.js").Place|null, directions: () => number,
 *   outcome: () => string|null, made: (page: string) => void}} tell
 *   `beside`: where the other side is; `made`: another page is shown
 */
export function makeSide(name, site, tell) {
  const model = choice(
    "Model",
    site.models.map((one, at) => ({ value: String(at), text: one.where ? `${one.name} (${one.where})` : one.name })),
    () => adapt(),
  );
  const kind = choice("Attention", KINDS, () => {});
  const text = area(`Text ${name}`, 5);
  const target = area(`Text ${name} for the decoder`, 2);
  const targetLabel = html("label", {}, html("span", {}, "What the decoder has been given"), target);
  const bar = /** @type {HTMLProgressElement} */ (html("progress", { max: 1, "aria-label": `Progress of ${name}` }));
  const words = html("span", { role: "status" });
  const status = html("div", { class: "status", hidden: true }, bar, words);
  const trouble = html("p", { class: "trouble", role: "alert", hidden: true });
  const heading = html("h2", {}, "Text");
  const uploads = makeUpload(site.longest_text, (found, why) => {
    if (found !== null) text.value = found;
    trouble.textContent = why;
    trouble.hidden = !why;
  });
  const controls = html(
    "div",
    { class: "controls" },
    ...(site.models.length > 1
      ? [model.element]
      : [html("span", { class: "hint" }, `${site.models[0].name} (${site.models[0].where})`)]),
    kind.element,
    uploads.element,
  );
  const element = html(
    "div",
    { class: "side" },
    html("div", { class: "top" }, heading, controls),
    text,
    targetLabel,
    status,
    trouble,
  );
  const more = makeMore();
  const pane = makePane(`Result of ${name}`, (place) => {
    more.follow(place);
    tell.placed(place);
  });
  const result = html("div", { class: "result", hidden: true }, more.element, pane.element);
  /** @type {ReturnType<typeof startComputing>|null} */
  let running = null;
  /** @type {string|null} */
  let page = null;
  /** @type {import("./data.js").Header|null} */
  let header = null;
  let links = false;

  /** @param {string} label @param {number} rows */
  function area(label, rows) {
    const made = html("textarea", {
      rows,
      "aria-label": label,
      maxlength: site.longest_text,
      spellcheck: "false",
      dir: "auto",
    });
    return /** @type {HTMLTextAreaElement} */ (made);
  }

  function adapt() {
    const hasTarget = site.models[Number(model.list.value)].target;
    targetLabel.hidden = kind.element.hidden = !hasTarget;
  }
  adapt();

  /** Show a page that the server keeps. @param {string} name @param {import("./data.js").Place|null} place */
  async function open(name, place) {
    const data = await openPage(`/api/pages/${name}`);
    page = name;
    header = data.header;
    result.hidden = false;
    tell.made(name);
    const viewer = await pane.show(data, place ?? tell.beside(), links);
    more.follow(viewer.place());
    const cut = / (\d+) cut/.exec(header.subtitle);
    if (cut) {
      trouble.textContent = `The text was too long: its last ${cut[1]} tokens were cut, and are not shown.`;
      trouble.hidden = false;
    }
  }

  /** @param {string} path @param {object} question @param {import("./data.js").Place|null} place */
  async function compute(path, question, place) {
    running?.cancel();
    const began = performance.now();
    /** @type {import("./serve_client.js").News} */
    let news = { state: "waiting", before: 0, what: "", done: 0, total: 0 };
    trouble.hidden = true;
    status.hidden = false;
    const draw = () => {
      const seconds = Math.round((performance.now() - began) / 1000);
      // One step of one says nothing of how far it is.
      if (news.state === "running" && news.total > 1) bar.value = news.done / news.total;
      else bar.removeAttribute("value");
      words.textContent = said(news, seconds);
    };
    draw();
    const clock = setInterval(draw, 500);
    const mine = startComputing(path, question, (given) => {
      news = given;
      draw();
    });
    running = mine;
    tell.busy();
    try {
      const found = await mine.done;
      words.textContent = "drawing";
      await open(found, place);
      status.hidden = true;
    } catch (error) {
      status.hidden = true;
      if (running === mine) {
        trouble.textContent =
          /** @type {Error} */ (error).name === "AbortError" ? "Cancelled." : `${/** @type {Error} */ (error).message}`;
        trouble.hidden = false;
      }
    } finally {
      clearInterval(clock);
      if (running === mine) running = null;
      tell.busy();
    }
  }

  /** Buttons that compute more for the head and row that are looked at. */
  function makeMore() {
    const where = html("span", { class: "hint" });
    const canonical = html(
      "button",
      { type: "button", onclick: () => ask((place) => ({ canonical: [[place.layer, place.head]] })) },
      "Canonical map of this head",
    );
    const intervals = html("button", { type: "button", onclick: () => askRow() }, "Intervals of this row");
    const attribution = html(
      "button",
      { type: "button", onclick: () => ask(() => ({ methods: ["attribution"], directions: tell.directions() })) },
      "Attribution",
    );
    /** @param {(place: import("./data.js").Place) => object} question */
    const ask = (question) => {
      const place = pane.viewer()?.place();
      if (place && page) void compute(`/api/pages/${page}/more`, question(place), place);
    };
    /** Rows of this text whose intervals are known, all of them. @type {Set<string>} */
    const rows = new Set();
    async function askRow() {
      const place = pane.viewer()?.place();
      if (!place || !page) return;
      const before = page;
      await compute(`/api/pages/${page}/more`, { intervals: [[place.layer, place.head, place.row]] }, place);
      if (page !== before) rows.add(`${place.layer} ${place.head} ${place.row}`);
      made.follow(place);
    }
    const element = html(
      "div",
      { class: "more", role: "group", "aria-label": `More for ${name}` },
      where,
      canonical,
      intervals,
      attribution,
    );
    const made = {
      element,
      forget: () => rows.clear(),
      /** @param {import("./data.js").Place} place */
      follow(place) {
        const heads = attentionOf(header);
        if (!heads?.layers.length) return;
        const layer = heads.layers.find((one) => one.layer === place.layer);
        const token = heads.tokens.queries[place.row];
        where.textContent = `Layer ${place.layer}, head ${place.head}, row ${place.row}${token === undefined ? "" : ` “${shown(token, 16)}”`}. Compute:`;
        canonical.toggleAttribute("disabled", !!layer?.canonical?.heads.includes(place.head));
        intervals.toggleAttribute("disabled", rows.has(`${place.layer} ${place.head} ${place.row}`));
        attribution.toggleAttribute(
          "disabled",
          header?.sections.some((section) => section.name === "attribution"),
        );
      },
    };
    return made;
  }

  return {
    element,
    result,
    pane,
    text,
    target,
    model: model.list,
    kind: kind.list,
    heading,
    busy: () => running !== null,
    header: () => header,
    page: () => page,
    cancel: () => running?.cancel(),
    /** @param {boolean} wanted  whether the address follows this side's place */
    setLinks(wanted) {
      links = wanted;
    },
    adapt,
    open,
    /** @param {string} why */
    complain(why) {
      trouble.textContent = why;
      trouble.hidden = false;
    },
    /** Go where the other side is. @param {import("./data.js").Place} place */
    async join(place) {
      const viewer = pane.viewer();
      if (!viewer || samePlace(viewer.place(), place)) return;
      await viewer.choose(place);
      more.follow(viewer.place());
    },
    /** @param {string[]} methods @param {number} directions */
    compute(methods, directions) {
      const hasTarget = !targetLabel.hidden;
      more.forget();
      const question = {
        model: Number(model.list.value),
        text: text.value,
        methods,
        directions,
        outcome: tell.outcome(),
        ...(hasTarget ? { target: target.value, attention: kind.list.value } : {}),
      };
      return compute("/api/pages", question, null);
    },
  };
}

/** The heads of a page, if it has any. @param {import("./data.js").Header|null} header */
export function attentionOf(header) {
  const found = header?.sections.find(({ kind }) => kind === "attention");
  return found ? /** @type {import("./data.js").AttentionData} */ (found.data) : null;
}

/** @param {import("./data.js").Place} one @param {import("./data.js").Place} other */
function samePlace(one, other) {
  return one.layer === other.layer && one.head === other.head && one.row === other.row;
}

/** @param {import("./serve_client.js").News} news @param {number} seconds */
function said(news, seconds) {
  const time = seconds > 0 ? ` · ${seconds} s` : "";
  if (news.state === "waiting") return `waiting${news.before ? `, ${news.before} before this` : ""}${time}`;
  const part = news.total > 1 ? ` ${news.done} of ${news.total}` : "";
  return `${news.what || "starting"}${part}${time}`;
}
