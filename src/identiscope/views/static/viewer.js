/** The viewer: all sections of a page, inside one element. */

import { themeOf } from "./colour.js";
import { choice, html } from "./dom.js";
import { makeVerdict } from "./verdict.js";
import { figures } from "./saving.js";
import { drawGroup, grouped } from "./sections.js";

/**
 * @typedef {object} ViewerOptions
 * @property {(() => Worker)|null} [worker]  makes the worker; without one the page's own thread computes
 * @property {boolean} [links]  whether the place is written to and read from the address (`#section=attention&layer=3&head=7&row=12`)
 * @property {boolean} [alone]  whether the viewer has the whole page, so that arrows work wherever the focus is
 *
 * @typedef {object} Viewer  what tests and scripts may use; on a report it is `window.identiscope`
 * @property {Promise<void>} ready  everything has been drawn once
 * @property {() => import("./data.js").Place} place  this and the next four: of the first section that has heads
 * @property {(place: Partial<import("./data.js").Place>) => Promise<void>} choose
 * @property {(layer: number, head: number) => Promise<import("./data.js").Maps>} maps
 * @property {() => {weights: Float64Array, now: Float64Array, other: Float64Array|null, freedom: number}|null} row
 * @property {(name: string, row: number, column: number) => {x: number, y: number}} pointOf
 * @property {(section: string, where: import("./sections.js").Where) => Promise<void>} go  to a place in any section
 * @property {import("./data.js").Header} header
 * @property {{first: number, compute: number, change: number, threaded: boolean}} timing  milliseconds: to all views, and of the
 *   last change of head until its maps were there and until they were drawn
 * @property {() => void} close
 */

const PRINTS = ["beforeprint", "afterprint"];

/**
 * @param {HTMLElement} root
 * @param {import("./data.js").PageData} data
 * @param {ViewerOptions} [options]
 * @returns {Viewer}
 */
export function mount(root, data, options = {}) {
  const { header } = data;
  const began = performance.now();
  const preference = matchMedia("(prefers-color-scheme: dark)");
  /** @type {boolean|null} */
  let asked = null;
  // Paper is white.
  let printing = false;
  const isDark = () => !printing && (asked ?? preference.matches);
  root.classList.add("identiscope");
  const timing = { first: 0, compute: 0, change: 0, threaded: false };

  const toggle = html("button", {
    type: "button",
    class: "small",
    onclick: () => {
      asked = !isDark();
      paintAll();
    },
  });
  const styles = choice(
    "Save figures",
    [
      { value: "screen", text: "as on the screen" },
      { value: "paper", text: "for a paper" },
    ],
    (value) => {
      figures.paper = value === "paper";
      // Paper is white.
      if (figures.paper) asked = false;
      paintAll();
    },
  );
  styles.list.dataset.choice = "figures";
  const top = html(
    "header",
    {},
    html("p", { class: "brand" }, html("b", {}, "identi"), "scope"),
    html("div", {}, html("h1", {}, header.title), html("p", { class: "subtitle" }, header.subtitle)),
    styles.element,
    toggle,
  );
  const main = html("main", {});
  root.replaceChildren(top, main);

  const groups = grouped(header.sections);
  const first = groups.find(([{ kind }]) => kind === "attention")?.[0].name ?? null;
  /** Where the address leads; without a section's name to the first that has heads. */
  function linked() {
    const wanted = new URLSearchParams(options.links ? location.hash.slice(1) : "");
    /** @type {import("./sections.js").Where} */
    const where = {};
    for (const [key, value] of wanted) if (/^[a-z]+$/.test(key) && /^\d{1,6}$/.test(value)) where[key] = Number(value);
    const name = wanted.get("section");
    return { name: header.sections.some((section) => section.name === name) ? name : first, where };
  }
  const verdict = makeVerdict(header);
  // The verdict stands with the heads where these come first, and before everything else otherwise.
  const beside = groups[0]?.[0].kind === "attention";
  /** @type {import("./sections.js").View} */
  const view = {
    theme: () => themeOf(isDark()),
    title: header.title,
    live: !!header.live,
    worker: options.worker ?? null,
    verdict: beside ? verdict : null,
    plays: true,
    timing,
    linked(name) {
      const place = linked();
      return place.name === name ? place.where : {};
    },
    moved(name, where) {
      if (!options.links) return;
      // A server's pages have their names in the address, too.
      const old = new URLSearchParams(location.hash.slice(1));
      const pages = ["page", "beside"].flatMap((key) => (old.has(key) ? [[key, String(old.get(key))]] : []));
      const parts = [["section", name], ...Object.entries(where).map(([key, value]) => [key, String(value)])];
      const address = `#${new URLSearchParams([...pages, ...parts])}`;
      if (location.hash !== address) history.replaceState(null, "", address);
    },
  };
  const parts = groups.map((group) => ({ ...drawGroup(group, data, view), names: group.map(({ name }) => name) }));
  if (verdict && !verdict.parentElement) main.append(verdict);
  main.append(
    ...parts.map(({ element }) => element),
    html(
      "footer",
      {},
      ...header.notes.map((note) => html("p", {}, note)),
      html("p", {}, `Made by identiscope ${header.version}. This page asks nothing of any network.`),
    ),
  );
  const leading = parts.find(({ heads }) => heads);
  for (const { heads } of parts) heads?.watch((place) => parts.forEach(({ follow }) => follow?.(place)));
  // Those that were drawn before anybody watched.
  if (leading?.heads) for (const { follow } of parts) follow?.(leading.heads.place());

  function paintAll() {
    root.dataset.theme = isDark() ? "dark" : "light";
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    for (const part of parts) part.draw?.();
  }
  const repaint = () => void (asked === null && paintAll());
  preference.addEventListener("change", repaint);
  /** @param {Event} event */
  function onprint(event) {
    printing = event.type === "beforeprint";
    paintAll();
  }
  for (const one of PRINTS) addEventListener(one, onprint);

  /** @param {KeyboardEvent} event */
  function onkey(event) {
    // Arrows belong to the heads that have the focus, or else to the first.
    const focused = parts.find(({ element, press }) => press && element.contains(/** @type {Node} */ (event.target)));
    (focused ?? leading)?.press?.(event);
  }
  const listener = options.alone ? document : root;
  listener.addEventListener("keydown", /** @type {EventListener} */ (onkey));

  /** Go where the address leads. */
  async function follow() {
    const { name, where } = linked();
    const part = parts.find(({ names }) => name !== null && names.includes(name));
    await part?.go?.(where);
    // The first is seen anyway.
    if (name !== null && part !== parts[0]) main.querySelector(`#${CSS.escape(name)}`)?.scrollIntoView();
  }
  const changed = () => void follow();
  if (options.links) addEventListener("hashchange", changed);

  paintAll();
  const drawn = Promise.all(parts.map((part) => part.ready));
  // Whoever waits for `ready` is told.
  drawn.catch(() => {});
  const ready = (async () => {
    await leading?.ready;
    timing.first = performance.now() - began;
    await drawn;
    // The heads are there already.
    if (linked().name !== first) await follow();
  })();
  const none = () => {
    throw new Error("this page has no section with heads");
  };
  return {
    ready,
    header,
    timing,
    place: () => leading?.heads?.place() ?? { layer: 0, head: 0, row: 0 },
    choose: async (place) => leading?.heads?.choose(place),
    maps: (layer, head) => (leading?.heads ?? none()).maps(layer, head),
    row: () => leading?.heads?.row() ?? null,
    pointOf: (name, row, column) => (leading?.heads ?? none()).pointOf(name, row, column),
    async go(name, where) {
      await parts.find(({ names }) => names.includes(name))?.go?.(where);
    },
    close() {
      preference.removeEventListener("change", repaint);
      for (const one of PRINTS) removeEventListener(one, onprint);
      listener.removeEventListener("keydown", /** @type {EventListener} */ (onkey));
      removeEventListener("hashchange", changed);
      for (const part of parts) part.close?.();
    },
  };
}
