/** The server's page: texts go in, viewers come out, one or two side by side. */

import { html } from "./dom.js";
import { getJson, openPage } from "./serve_client.js";
import { askedBefore, keptDraft, makeHistory, remember } from "./serve_history.js";
import { comparison } from "./serve_comparison.js";
import { makePane } from "./serve_pane.js";
import { makeSide } from "./serve_side.js";

/** @param {HTMLElement} root @param {import("./serve_client.js").Site} site */
function openServer(root, site) {
  const preference = matchMedia("(prefers-color-scheme: dark)");
  /** @type {boolean|null} */
  let asked = null;
  const isDark = () => asked ?? preference.matches;
  const toggle = html("button", {
    type: "button",
    class: "small",
    onclick: () => {
      asked = !isDark();
      paint();
    },
  });

  let comparing = false;
  /** Whether both sides show the same head. */
  const together = () => comparing && follow.checked;
  const follow = /** @type {HTMLInputElement} */ (html("input", { type: "checkbox", checked: true }));
  const directions = /** @type {HTMLInputElement} */ (
    html("input", {
      type: "number",
      min: site.directions[0],
      max: site.directions[1],
      value: 8,
      "aria-label": "Directions of the estimate",
    })
  );
  const outcome = /** @type {HTMLInputElement} */ (
    html("input", {
      type: "text",
      maxlength: site.longest_text,
      placeholder: "the most likely word or class",
      dir: "auto",
    })
  );
  const wantedOutcome = () => outcome.value.trim() || null;
  /** @type {import("./serve_side.js").Side[]} */
  const sides = ["A", "B"].map((name, at) =>
    makeSide(name, site, {
      busy: () => refresh(),
      placed: (place) => void (together() && sides[1 - at].join(place)),
      beside: () => (together() ? (sides[1 - at].pane.viewer()?.place() ?? null) : null),
      directions: wantedDirections,
      outcome: wantedOutcome,
      made: (page) => void (at === 0 ? made(page) : setAddress("beside", page)),
    }),
  );
  /** The first side shows another page: the address and the history have it. @param {string} page */
  function made(page) {
    setAddress("page", page);
    draft.forget();
    if (!sides[0].text.value.trim()) return;
    const target = sides[0].target.value ? { target: sides[0].target.value, attention: sides[0].kind.value } : {};
    const explained = wantedOutcome() ? { outcome: wantedOutcome() } : {};
    const when = new Date().toLocaleString();
    remember({ page, model: Number(sides[0].model.value), text: sides[0].text.value, ...target, ...explained, when });
    past.draw();
  }
  /** @param {"page"|"beside"} side @param {string|null} page */
  function setAddress(side, page) {
    const address = new URLSearchParams(location.hash.slice(1));
    if (page) address.set(side, page);
    else address.delete(side);
    history.replaceState(null, "", `#${address}`);
  }
  const past = makeHistory(
    site.models.map(({ name }) => name),
    (one) => void again(one),
  );
  /** What was asked before: as it was, if the server still has it. @param {import("./serve_history.js").Asking} one */
  async function again(one, side = sides[0]) {
    side.model.value = String(Math.min(one.model, site.models.length - 1));
    side.text.value = one.text;
    side.target.value = one.target ?? "";
    if (one.attention) side.kind.value = one.attention;
    if (side === sides[0]) outcome.value = one.outcome ?? "";
    side.adapt();
    try {
      await side.open(one.page, null);
    } catch {
      side.complain("The server no longer has this page: press Compute to make it again.");
    }
  }
  /** After a reload: the pages that the address names, with their texts, and what was typed since. */
  async function reopen() {
    const address = new URLSearchParams(location.hash.slice(1));
    const typed = draft.kept();
    const beside = address.get("beside");
    await reopenSide(address.get("page"), sides[0]);
    if (typed !== null) sides[0].text.value = typed;
    if (!beside) return;
    setComparing(true);
    await reopenSide(beside, sides[1]);
    refresh();
  }
  /** @param {string|null} page @param {import("./serve_side.js").Side} side */
  async function reopenSide(page, side) {
    if (!page || !/^[\w-]{1,64}$/.test(page)) return;
    try {
      const asked = await getJson(`/api/pages/${page}/question`);
      await again({ page, ...asked }, side);
    } catch {
      const known = askedBefore().find((one) => one.page === page);
      if (known) side.text.value = known.text;
      side.complain("The server no longer has the page of this address: press Compute to make it again.");
    }
  }
  sides[0].setLinks(true);
  const draft = keptDraft(sides[0].text, () => new URLSearchParams(location.hash.slice(1)).get("page") ?? "");
  sides[0].text.value = sides[1].text.value = site.sample;
  if (site.models.length > 1) sides[1].model.value = "1";
  sides[1].adapt();

  const boxes = site.methods.map(({ name, text, note, on, group }) => {
    const box = /** @type {HTMLInputElement} */ (html("input", { type: "checkbox", name, checked: on }));
    const extra = name === "attribution" ? html("span", { class: "directions" }, directions, "directions") : null;
    const label = html("label", {}, box, html("b", {}, text), html("span", { class: "hint" }, note));
    return { name, box, group, element: html("div", { class: group ? "method other" : "method" }, label, extra) };
  });
  /** @param {string} group */
  const inGroup = (group) => boxes.filter((one) => one.group === group).map(({ element }) => element);
  const groups = [...new Set(boxes.map(({ group }) => group))].filter(Boolean);
  const others = html(
    "details",
    { class: "others" },
    html("summary", {}, "Other methods"),
    html(
      "label",
      { class: "outcome" },
      html("b", {}, "What is explained"),
      outcome,
      html(
        "span",
        { class: "hint" },
        "by methods that explain something: a word, a class, a difference A-B, or similarity: and a second text",
      ),
    ),
    ...groups.map((group) => html("fieldset", {}, html("legend", {}, group), ...inGroup(group))),
  );
  const compute = html("button", { type: "button", class: "main", onclick: () => start() }, "Compute");
  const cancel = html(
    "button",
    { type: "button", hidden: true, onclick: () => shownSides().forEach((side) => side.cancel()) },
    "Cancel",
  );
  const compare = html("button", {
    type: "button",
    onclick: () => {
      if (comparing) setAddress("beside", null);
      setComparing(!comparing);
    },
  });
  const togetherChoice = html(
    "label",
    { class: "choice", hidden: true },
    follow,
    html("span", {}, "same head in both"),
  );
  const sidesHolder = html("div", { class: "sides" }, sides[0].element);
  const summary = html("div", {
    class: "scroll",
    hidden: true,
    tabindex: "0",
    role: "group",
    "aria-label": "Both compared",
  });
  const results = html("div", { class: "results" }, sides[0].result);
  const form = html(
    "section",
    { class: "ask", "aria-label": "Ask" },
    sidesHolder,
    html("fieldset", {}, html("legend", {}, "Compute maps of all heads, and"), ...inGroup("")),
    others,
    html(
      "div",
      { class: "actions" },
      compute,
      cancel,
      compare,
      togetherChoice,
      html("span", { class: "hint" }, "Ctrl + Enter computes"),
    ),
    past.element,
  );
  const live = html("div", { class: "live" }, form, summary, results);
  const corpus = html("div", { class: "corpus", hidden: true });
  const tabs = site.run ? makeTabs(live, corpus) : null;
  root.replaceChildren(
    html(
      "header",
      {},
      html("p", { class: "brand" }, html("b", {}, "identi"), "scope"),
      html(
        "div",
        {},
        html("h1", {}, "Which part of what it shows is real?"),
        html("p", { class: "subtitle" }, site.models.map((one) => one.name).join(" · ")),
      ),
      tabs,
      toggle,
    ),
    html("main", {}, live, corpus),
  );
  /** @type {ReturnType<typeof makePane>|null} */
  let runPane = null;

  function wantedDirections() {
    const [least, most] = site.directions;
    return Math.min(Math.max(Math.trunc(Number(directions.value)) || 8, least), most);
  }
  const shownSides = () => (comparing ? sides : [sides[0]]);
  function start() {
    const methods = boxes.filter(({ box }) => box.checked).map(({ name }) => name);
    for (const side of shownSides()) void side.compute(methods, wantedDirections());
  }
  /** @param {boolean} wanted */
  function setComparing(wanted) {
    comparing = wanted;
    if (wanted) {
      sidesHolder.append(sides[1].element);
      results.append(sides[1].result);
    } else {
      sides[1].cancel();
      sides[1].element.remove();
      sides[1].result.remove();
    }
    for (const holder of [sidesHolder, results]) holder.classList.toggle("both", wanted);
    for (const side of sides) side.pane.setHalf(wanted);
    sides[0].heading.textContent = wanted ? "Text A" : "Text";
    sides[1].heading.textContent = "Text B";
    refresh();
  }
  function refresh() {
    const busy = shownSides().some((side) => side.busy());
    cancel.hidden = !busy;
    compute.textContent = busy ? "Compute anew" : "Compute";
    compare.textContent = comparing ? "One only" : "Compare with another";
    togetherChoice.hidden = !comparing;
    const headers = sides.map((side) => side.header());
    summary.hidden = !comparing || headers.some((header) => header === null);
    if (!summary.hidden) summary.replaceChildren(comparison(headers));
  }
  /** @param {HTMLElement} first @param {HTMLElement} second */
  function makeTabs(first, second) {
    const buttons = [first, second].map((part, at) =>
      html(
        "button",
        { type: "button", "aria-pressed": String(at === 0), onclick: () => showTab(at) },
        at ? "Corpus run" : "A text",
      ),
    );
    /** @param {number} chosen */
    function showTab(chosen) {
      [first, second].forEach((part, at) => void (part.hidden = at !== chosen));
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(at === chosen)));
      if (chosen === 1 && !runPane) {
        runPane = makePane("Corpus run", () => {});
        runPane.setDark(isDark());
        second.append(runPane.element);
        const pane = runPane;
        openPage("/api/run")
          .then((data) => pane.show(data, null, false))
          .catch((error) => second.append(html("p", { class: "trouble", role: "alert" }, String(error.message))));
      }
    }
    return html("div", { class: "tabs", role: "group", "aria-label": "What to look at" }, ...buttons);
  }
  function paint() {
    root.dataset.theme = isDark() ? "dark" : "light";
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    for (const pane of [...sides.map((side) => side.pane), runPane]) pane?.setDark(isDark());
  }
  preference.addEventListener("change", () => paint());
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
  });
  setComparing(false);
  paint();
  return { sides, setComparing, reopened: reopen() };
}

const root = /** @type {HTMLElement} */ (document.getElementById("serve"));
getJson("/api/site")
  .then((site) => {
    const page = /** @type {any} */ (window);
    page.identiscope = openServer(root, site);
  })
  .catch((error) =>
    root.replaceChildren(
      html("p", { class: "trouble", role: "alert" }, `The server could not be asked: ${error.message}`),
    ),
  );
