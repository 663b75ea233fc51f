/** Which function draws which kind of section, and which sections of a page stand beside each other. */

import { drawAttention } from "./attention_view.js";
import { drawCurves } from "./curves.js";
import { html } from "./dom.js";
import { drawFreedom } from "./freedom.js";
import { drawHeads } from "./head_grid.js";
import { drawMatrices } from "./matrices.js";
import { drawPlain } from "./plain.js";
import { drawStrips } from "./strips.js";

/**
 * @template T
 * @typedef {object} Drawn  a section with what it may ask for
 * @property {string} name
 * @property {string} title
 * @property {string} says
 * @property {T} data
 * @property {(name: string) => Promise<Uint8Array>} chunk  its own chunks, by the names that its data have
 */

/**
 * @typedef {Object<string, number>} Where  a place inside a section: what an address says after the section's name
 *
 * @typedef {object} View  what all sections share
 * @property {() => import("./colour.js").Theme} theme
 * @property {string} title  of the page
 * @property {boolean} live
 * @property {(() => Worker)|null} worker
 * @property {(name: string) => Where} linked  where in this section the address leads, if it does
 * @property {(name: string, where: Where) => void} moved  a section shows another place now
 * @property {HTMLElement|null} verdict  to be put before the heads, by whom it finds first
 * @property {boolean} plays  whether the first row may move by itself, once
 * @property {{first: number, compute: number, change: number, threaded: boolean}} timing
 *
 * @typedef {object} Part  one section, or several side by side, as drawn
 * @property {HTMLElement} element
 * @property {() => void} [draw]  anew, in other colours or another width
 * @property {() => void} [close]
 * @property {Promise<void>} [ready]
 * @property {(where: Where) => void|Promise<void>} [go]  to a place, as near as there is
 * @property {(place: {layer: number, head: number}) => void} [follow]  the head that other sections show
 * @property {import("./attention_view.js").Heads} [heads]
 * @property {(event: KeyboardEvent) => void} [press]  a key, for sections that arrows move through
 */

/**
 * @template T
 * @typedef {object} Kind
 * @property {(sections: Drawn<T>[], view: View) => Part} draw
 * @property {(data: T) => unknown} [shape]  sections for which this is the same stand side by side; without it none do
 */

/** @type {{[K in keyof import("./data.js").Shapes]: Kind<import("./data.js").Shapes[K]>}} */
const SECTIONS = {
  attention: { draw: drawAttention },
  map: { draw: drawMatrices, shape: matrixShape },
  structure: { draw: drawMatrices, shape: matrixShape },
  mixture: { draw: drawStrips, shape: stripShape },
  token: { draw: drawStrips, shape: stripShape },
  score: { draw: drawStrips, shape: stripShape },
  head: { draw: drawHeads, shape: ({ layers, heads }) => [layers, heads] },
  curve: { draw: drawCurves, shape: ({ layers }) => layers },
  freedom: { draw: drawFreedom, shape: () => null },
  plain: { draw: drawPlain },
};

/** @param {import("./data.js").MapData} data */
function matrixShape({ rows, columns, layers }) {
  return [rows, columns, layers.map(({ layer, heads }) => [layer, heads])];
}

/** Strips may have other rows: it is words and columns that are compared. @param {import("./data.js").StripData} data */
function stripShape({ axes, columns, words }) {
  return [axes.slice(1), columns, words];
}

/**
 * Sections in their order, those of one kind and shape together where the first of them is.
 * @param {import("./data.js").SectionHeader[]} sections
 */
export function grouped(sections) {
  /** @type {Map<string, import("./data.js").SectionHeader[]>} */
  const groups = new Map();
  for (const section of sections) {
    const shape = /** @type {Kind<any>|undefined} */ (SECTIONS[section.kind])?.shape;
    const key = shape ? `${section.kind} ${JSON.stringify(shape(section.data))}` : section.name;
    const group = groups.get(key);
    if (group) group.push(section);
    else groups.set(key, [section]);
  }
  return Array.from(groups.values());
}

/**
 * @param {import("./data.js").SectionHeader[]} group  of one kind
 * @param {import("./data.js").PageData} data
 * @param {View} view
 * @returns {Part}
 */
export function drawGroup(group, data, view) {
  const { kind } = group[0];
  const sections = group.map((section) => ({
    ...section,
    chunk: (/** @type {string} */ name) => data.chunk(`${section.name}.${name}`),
  }));
  try {
    // A page of another version may have what is not known here; and what one section lacks is no reason to lose the others.
    if (!Object.hasOwn(SECTIONS, kind)) throw new Error(`this viewer knows no section of kind ${kind}`);
    return /** @type {Kind<any>} */ (SECTIONS[kind]).draw(sections, view);
  } catch (error) {
    const names = group.map(({ title }) => title).join(", ");
    return {
      element: html(
        "section",
        { id: group[0].name },
        html("p", { role: "alert" }, `${names} could not be drawn: ${/** @type {Error} */ (error).message}`),
      ),
    };
  }
}
