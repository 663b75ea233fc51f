/** A shaded text as a picture. */

import { svg } from "./dom.js";
import { framed, pictureWidth } from "./saving.js";

/**
 * The text as a picture, line by line.
 * @param {import("./colour.js").Theme} theme @param {string} title @param {string} note
 * @param {HTMLElement[]} elements @param {{text: string}[]} units
 */
export function textPicture(theme, title, note, elements, units) {
  const [width, line] = [pictureWidth(680), 26];
  const context = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  context.font = "14px system-ui, sans-serif";
  /** @type {SVGElement[]} */
  const parts = [];
  let [x, y] = [12, 4];
  units.forEach((unit, at) => {
    const wide = context.measureText(unit.text).width + 6;
    if (x + wide > width - 12) [x, y] = [12, y + line];
    const background = elements[at].style.background;
    const colours = background.match(/rgba?\([^)]*\)/g) ?? [];
    if (colours.length) parts.push(svg("rect", { x, y, width: wide, height: 21, rx: 3, fill: colours[0] }));
    if (new Set(colours).size > 1)
      for (let from = x + 4; from < x + wide; from += 8)
        parts.push(
          svg("rect", {
            x: from,
            y,
            width: Math.min(4, x + wide - from),
            height: 21,
            fill: colours[colours.length - 1],
          }),
        );
    if (elements[at].classList.contains("unsought"))
      parts.push(
        svg("line", {
          x1: x + 3,
          x2: x + wide - 3,
          y1: y + 19,
          y2: y + 19,
          stroke: theme.faint,
          "stroke-dasharray": "1.5 2",
        }),
      );
    const ink = elements[at].classList.contains("unseen") ? theme.faint : theme.ink;
    const weight = elements[at].classList.contains("reads") ? 700 : 400;
    parts.push(svg("text", { x: x + 3, y: y + 15.5, "font-size": 14, fill: ink, "font-weight": weight }, unit.text));
    x += wide + (elements[at].previousSibling instanceof Text ? 4 : 1);
  });
  return framed(theme, title, note, width, y + line + 4, ...parts);
}
