/** Each view as a picture (PNG, SVG) and its numbers as a table (CSV). */

import { html, svg } from "./dom.js";

/**
 * @typedef {object} Exportable
 * @property {string} name  of the file
 * @property {() => SVGElement|Promise<SVGElement>} picture
 * @property {() => (string|number|null)[][]|Promise<(string|number|null)[][]>} table  with a row of headings
 */

/** @param {(string|number|null)[][]} rows */
export function toCsv(rows) {
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

/** @param {string|number|null} value */
function field(value) {
  if (value === null || typeof value === "number") return value === null || Number.isNaN(value) ? "" : String(value);
  // A spreadsheet would take such text for a formula.
  const harmless = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/** @param {SVGElement} picture */
export function toSvgText(picture) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(picture)}`;
}

/** @param {SVGElement} picture @returns {Promise<Blob>} */
export async function toPng(picture) {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([toSvgText(picture)], { type: "image/svg+xml" }));
  try {
    await new Promise((resolve, reject) => {
      image.onload = resolve;
      image.onerror = () => reject(new Error("the picture could not be drawn"));
      image.src = url;
    });
    const [width, height] = ["width", "height"].map((name) => Number(picture.getAttribute(name)));
    const scale = Math.min(2, 8000 / Math.max(width, height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png")
    );
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = /** @type {HTMLAnchorElement} */ (html("a", { href: URL.createObjectURL(blob), download: name }));
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Three small buttons. @param {() => Exportable} view */
export function saveButtons(view) {
  /** @param {string} kind @param {(one: Exportable) => Promise<Blob>} make */
  const button = (kind, make) =>
    html(
      "button",
      {
        type: "button",
        class: "small",
        "data-save": kind,
        "aria-label": `Save this view as ${kind.toUpperCase()}`,
        onclick: async () => {
          const one = view();
          save(await make(one), `${one.name}.${kind}`);
        },
      },
      kind.toUpperCase()
    );
  return html(
    "div",
    { class: "saving", role: "group", "aria-label": "Save this view" },
    button("png", async (one) => toPng(await one.picture())),
    button("svg", async (one) => new Blob([toSvgText(await one.picture())], { type: "image/svg+xml" })),
    button("csv", async (one) => new Blob([toCsv(await one.table())], { type: "text/csv" }))
  );
}

/**
 * A picture with a title above and an explanation below.
 * @param {import("./colour.js").Theme} theme @param {string} title @param {string} note
 * @param {number} width @param {number} height @param {...SVGElement} content
 */
export function framed(theme, title, note, width, height, ...content) {
  const lines = wrapped(note, Math.max(20, Math.floor(width / 6.4)));
  const whole = height + 44 + 16 * lines.length + 8;
  const font = "system-ui, sans-serif";
  return svg(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", width, height: whole, viewBox: `0 0 ${width} ${whole}`, "font-family": font },
    svg("rect", { width, height: whole, fill: theme.paper }),
    svg("text", { x: 12, y: 24, "font-size": 15, "font-weight": 600, fill: theme.ink }, title),
    svg("g", { transform: "translate(0 36)" }, ...content),
    ...lines.map((line, at) =>
      svg("text", { x: 12, y: height + 56 + 16 * at, "font-size": 12, fill: theme.faint }, line)
    )
  );
}

/** @param {string} text @param {number} longest */
function wrapped(text, longest) {
  /** @type {string[]} */
  const lines = [];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last !== undefined && last.length + word.length < longest) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}
