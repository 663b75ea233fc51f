/** Each view as a picture (PNG, SVG, PDF) and its numbers as a table (CSV, or on the page). */

import { html, svg } from "./dom.js";
import { pdfOf } from "./pdf.js";
import { tableOf } from "./table.js";

/** Seconds after which a browser that has not drawn a picture is taken not to. */
const LONGEST_DRAWING = 20;

/**
 * @typedef {string|number|boolean|null} Cell
 * @typedef {object} Exportable
 * @property {string} name  of the file
 * @property {() => SVGElement|Promise<SVGElement>} picture
 * @property {() => Cell[][]|Promise<Cell[][]>} table  with a row of headings
 */

/** @param {Cell[][]} rows */
export function toCsv(rows) {
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

/** @param {Cell} value */
function field(value) {
  if (typeof value === "boolean") return String(value);
  if (value === null || typeof value === "number") return value === null || Number.isNaN(value) ? "" : String(value);
  // A spreadsheet would take such text for a formula.
  const harmless = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/** @param {SVGElement} picture */
export function toSvgText(picture) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(picture)}`;
}

/** How pictures are saved: as on the screen, or in the width of a paper's column with a serif font. */
export const figures = { paper: false };

/** Millimetres of a column, and of two. */
const COLUMN = [84, 174];

/** How wide a picture is in a paper: a column, unless it says more. @param {SVGElement} picture */
const columnOf = (picture) => COLUMN[Number(picture.dataset.columns ?? 1) - 1];

/** How wide a picture is drawn: in a paper's column letters have to stay large. @param {number} usual */
export const pictureWidth = (usual) => (figures.paper ? Math.min(usual, 440) : usual);

/** @param {SVGElement} picture */
function styled(picture) {
  if (!figures.paper) return picture;
  const [width, height] = sizeOfPicture(picture);
  const column = columnOf(picture);
  picture.setAttribute("width", `${column}mm`);
  picture.setAttribute("height", `${((column * height) / width).toFixed(2)}mm`);
  picture.setAttribute("font-family", "STIX Two Text, Times New Roman, Times, serif");
  // Pictures in it have the same letters.
  picture.querySelectorAll("svg[font-family]").forEach((one) => one.removeAttribute("font-family"));
  return picture;
}

/** @param {SVGElement} picture */
function sizeOfPicture(picture) {
  const [, , width, height] = (picture.getAttribute("viewBox") ?? "0 0 1 1").split(" ").map(Number);
  return [width, height];
}

/** A picture as PDF: a page of its size, whose lines are lines and whose letters are letters. @param {SVGElement} picture */
function toPdf(picture) {
  const [width, height] = sizeOfPicture(picture);
  const points = figures.paper ? (columnOf(picture) * 72) / 25.4 : width * 0.75;
  return pdfOf(picture, width, height, points, figures.paper, loadedImage);
}

/** @param {SVGElement} picture @returns {Promise<Blob>} */
export async function toPng(picture) {
  // Not toBlob: in Chromium it waits for the page to be idle, for up to seven seconds.
  return pngOf((await drawn(picture, 2)).toDataURL("image/png"));
}

/** @param {SVGElement} picture @param {number} finer */
async function drawn(picture, finer) {
  const url = URL.createObjectURL(new Blob([toSvgText(picture)], { type: "image/svg+xml" }));
  try {
    const image = await loadedImage(url);
    const [width, height] = sizeOfPicture(picture);
    const scale = Math.min(finer, 8000 / Math.max(width, height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(
      image,
      0,
      0,
      canvas.width,
      canvas.height,
    );
    return canvas;
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** @param {string} url @returns {Promise<HTMLImageElement>} */
function loadedImage(url) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("the browser could not draw the picture"));
    setTimeout(
      () => reject(new Error(`the browser has not drawn the picture in ${LONGEST_DRAWING} seconds`)),
      1000 * LONGEST_DRAWING,
    );
    image.src = url;
  });
}

/** A canvas's data URL as a file; of a canvas too large for the browser it is empty. @param {string} url */
function pngOf(url) {
  const begin = "data:image/png;base64,";
  if (!url.startsWith(begin)) throw new Error("the picture is larger than this browser can make");
  const bytes = atob(url.slice(begin.length));
  const values = new Uint8Array(bytes.length);
  for (let place = 0; place < bytes.length; place++) values[place] = bytes.charCodeAt(place);
  return new Blob([values], { type: "image/png" });
}

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = /** @type {HTMLAnchorElement} */ (html("a", { href: URL.createObjectURL(blob), download: name }));
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Small buttons, and what is said where saving fails. @param {() => Exportable} view */
export function saveButtons(view) {
  const failure = html("p", { class: "note", role: "alert" });
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
          failure.remove();
          try {
            const one = view();
            save(await make(one), `${one.name}.${kind}`);
          } catch (error) {
            failure.textContent = `This view could not be saved as ${kind.toUpperCase()}: ${/** @type {Error} */ (error).message}. Try again, or save it in another form.`;
            (group.closest("figcaption, .top") ?? group).append(failure);
            throw error;
          }
        },
      },
      kind.toUpperCase(),
    );
  /** @type {HTMLElement|null} */
  let open = null;
  const table = html(
    "button",
    {
      type: "button",
      class: "small",
      "data-table": "",
      "aria-expanded": "false",
      "aria-label": "The numbers of this view as a table",
      onclick: async () => {
        const before = open;
        open = before ? null : tableOf(await view().table());
        before?.remove();
        if (open) (group.closest("figure, section") ?? group).append(open);
        table.setAttribute("aria-expanded", String(open !== null));
      },
    },
    "Table",
  );
  const group = html(
    "div",
    { class: "saving", role: "group", "aria-label": "Save this view" },
    button("png", async (one) => toPng(styled(await one.picture()))),
    button("svg", async (one) => new Blob([toSvgText(styled(await one.picture()))], { type: "image/svg+xml" })),
    button("pdf", async (one) => toPdf(styled(await one.picture()))),
    button("csv", async (one) => new Blob([toCsv(await one.table())], { type: "text/csv" })),
    table,
  );
  return group;
}

/**
 * A picture with a title above and an explanation below.
 * @param {import("./colour.js").Theme} theme @param {string} title @param {string} note
 * @param {number} width @param {number} height @param {...SVGElement} content
 */
export function framed(theme, title, note, width, height, ...content) {
  const lines = wrapped(note, Math.max(20, Math.floor(width / 6.7)));
  const titles = wrapped(title, Math.max(12, Math.floor((width - 24) / 8.8)));
  const top = 20 * Math.max(titles.length - 1, 0);
  const whole = height + top + 44 + 16 * lines.length + 8;
  const font = "system-ui, sans-serif";
  return svg(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width,
      height: whole,
      viewBox: `0 0 ${width} ${whole}`,
      "font-family": font,
    },
    svg("rect", { width, height: whole, fill: theme.paper }),
    ...titles.map((line, at) =>
      svg("text", { x: 12, y: 24 + 20 * at, "font-size": 15, "font-weight": 600, fill: theme.ink }, line),
    ),
    svg("g", { transform: `translate(0 ${36 + top})` }, ...content),
    ...lines.map((line, at) =>
      svg("text", { x: 12, y: height + top + 56 + 16 * at, "font-size": 12, fill: theme.faint }, line),
    ),
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
