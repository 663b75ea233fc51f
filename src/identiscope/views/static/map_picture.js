/** A whole map as a picture of its own, and the legend of its colours. */

import { css, signedColour, valueAt } from "./colour.js";
import { svg } from "./dom.js";
import { figures, framed } from "./saving.js";
import { number, shown } from "./text.js";

/** Letters of a row's name: of a token of a map; and of a strip, whose rows are few and have names such as those of methods. */
export const ROW_LETTERS = { map: 9, strip: 32 };

/**
 * @param {import("./colour.js").Theme} theme @param {string} title @param {string} note
 * @param {import("./map_panel.js").MapContent} content @param {HTMLCanvasElement} painted @param {number} [cellHeight]
 */
export function mapPicture(theme, title, note, content, painted, cellHeight) {
  const { rows, columns } = content;
  // In a paper's column letters have to stay as large as they are; elsewhere every cell is to be seen.
  const cell = figures.paper ? Math.min(14, LEGEND / columns) : Math.max(2, Math.min(14, 1400 / columns));
  const height = cellHeight ?? cell;
  const [width, tall] = [columns * cell, rows * height];
  const rowNames = Array.from({ length: rows }, (_, row) =>
    shown(content.rowLabel(row), cellHeight ? ROW_LETTERS.strip : 14),
  );
  // A letter is some 6.5 wide.
  const left = cellHeight ? Math.max(96, 6.5 * Math.max(...rowNames.map((name) => name.length)) + 12) : 96;
  const bottom = 96;
  const every = { row: Math.ceil(12 / height), column: Math.ceil(12 / cell) };
  const text = { "font-size": 11, fill: theme.faint };
  const names = [];
  for (let row = 0; row < rows; row += every.row)
    names.push(svg("text", { ...text, x: left - 6, y: (row + 0.5) * height + 4, "text-anchor": "end" }, rowNames[row]));
  for (let column = 0; column < columns; column += every.column) {
    const x = left + (column + 0.5) * cell + 4;
    names.push(
      svg(
        "text",
        { ...text, x, y: tall + 8, transform: `rotate(-90 ${x} ${tall + 8})`, "text-anchor": "end" },
        shown(content.columnLabel(column), 14),
      ),
    );
  }
  const image = svg("image", {
    href: painted.toDataURL("image/png"),
    x: left,
    width,
    height: tall,
    preserveAspectRatio: "none",
    "image-rendering": "pixelated",
  });
  const bar = svg(
    "g",
    { transform: `translate(${left} ${tall + bottom + 4})` },
    ...scaleBar(theme, content.scale, content.signed),
  );
  return framed(
    theme,
    title,
    note,
    Math.max(left + width, left + LEGEND) + 16,
    tall + bottom + 44,
    image,
    ...names,
    bar,
  );
}

/** How wide a legend is. */
export const LEGEND = 340;

/** A value of the legend, however small it is. @param {number} value @param {number} digits */
function stepName(value, digits) {
  const size = Math.abs(value);
  if (!(size > 0) || size >= 0.5 * 10 ** -digits) return number(value, digits);
  return (value < 0 ? "−" : "") + (size < 1e-4 ? "0.0001" : String(Number(size.toPrecision(1))));
}

/** A legend of the colours. @param {import("./colour.js").Theme} theme @param {import("./colour.js").Scale} scale @param {boolean} [signed] */
export function scaleBar(theme, scale, signed = true) {
  const parts = [];
  const root = (/** @type {number} */ share) => (signed ? 2 * share - 1 : share);
  for (let at = 0; at < 120; at++)
    parts.push(
      svg("rect", {
        x: (at * LEGEND) / 120,
        width: LEGEND / 120 + 0.6,
        height: 10,
        fill: css(signedColour(theme, scale, valueAt(scale, root((at + 0.5) / 120)))),
      }),
    );
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const value = valueAt(scale, root(share));
    // A few cells are beyond the last colour.
    const beyond = scale.most > 1.01 * scale.limit && Math.abs(root(share)) === 1 ? (value < 0 ? "≤ " : "≥ ") : "";
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    parts.push(
      svg(
        "text",
        { x: LEGEND * share, y: 24, "font-size": 11, fill: theme.faint, "text-anchor": anchor },
        beyond + stepName(value, scale.limit < 0.2 ? 3 : 2),
      ),
    );
  }
  return parts;
}
