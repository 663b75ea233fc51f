/** A picture of the page as drawing operators of a PDF: lines stay lines and letters letters. */

import { runsOf } from "./pdf_fonts.js";

/** A circle's quarter as a curve. */
const ROUND = 0.5523;
/** Pixels of a letter's height, for letters that no font of a PDF has. */
const SHAPE = 160;

/**
 * @typedef {{width: number, height: number, data: Uint8Array, mask: boolean}} Bitmap  rgb of each pixel, or a bit
 * @typedef {{operators: string, bitmaps: Bitmap[], opacities: string[]}} Drawing  opacities: of filling and of lines
 */

/** @param {number} value */
const short = (value) => String(Math.round(value * 1000) / 1000);
const joined = (/** @type {number[]} */ ...values) => values.map(short).join(" ");

/** @param {string} colour  as the browser computes it; null where nothing is drawn @returns {string|null} */
function channelsOf(colour) {
  const found = /^rgba?\(([^)]*)\)/
    .exec(colour)?.[1]
    .split(/[\s,/]+/)
    .map(Number);
  if (!found || found[3] === 0) return null;
  return joined(...found.slice(0, 3).map((one) => one / 255));
}

/** What an element's outline is. @param {Element} element @returns {string|null} */
function outline(element) {
  const number = (/** @type {string} */ name) => Number(element.getAttribute(name) ?? 0);
  const points = () =>
    (element.getAttribute("points") ?? "")
      .trim()
      .split(/[\s,]+/)
      .map(Number);
  switch (element.tagName) {
    case "rect": {
      const [x, y, width, height] = ["x", "y", "width", "height"].map(number);
      const r = Math.min(number("rx"), width / 2, height / 2);
      if (!(r > 0)) return `${joined(x, y, width, height)} re`;
      return rounded(x, y, width, height, r);
    }
    case "circle": {
      const [x, y, r] = ["cx", "cy", "r"].map(number);
      return rounded(x - r, y - r, 2 * r, 2 * r, r);
    }
    case "line":
      return `${joined(number("x1"), number("y1"))} m ${joined(number("x2"), number("y2"))} l`;
    case "polyline":
    case "polygon": {
      const given = points();
      const steps = [];
      for (let at = 0; at + 1 < given.length; at += 2)
        steps.push(`${joined(given[at], given[at + 1])} ${at ? "l" : "m"}`);
      return steps.join(" ") + (element.tagName === "polygon" ? " h" : "");
    }
    case "path":
      return pathOf(element.getAttribute("d") ?? "");
    default:
      return null;
  }
}

/** @param {number} x @param {number} y @param {number} width @param {number} height @param {number} r */
function rounded(x, y, width, height, r) {
  const [right, bottom, k] = [x + width, y + height, r * (1 - ROUND)];
  return [
    `${joined(x + r, y)} m ${joined(right - r, y)} l ${joined(right - k, y, right, y + k, right, y + r)} c`,
    `${joined(right, bottom - r)} l ${joined(right, bottom - k, right - k, bottom, right - r, bottom)} c`,
    `${joined(x + r, bottom)} l ${joined(x + k, bottom, x, bottom - k, x, bottom - r)} c`,
    `${joined(x, y + r)} l ${joined(x, y + k, x + k, y, x + r, y)} c h`,
  ].join(" ");
}

/** A path of moves, lines and curves. @param {string} given */
function pathOf(given) {
  const steps = [];
  let [x, y] = [0, 0];
  for (const [, letter, rest] of given.matchAll(/([a-zA-Z])([^a-zA-Z]*)/g)) {
    const numbers = Array.from(rest.matchAll(/-?[\d.]+(?:e-?\d+)?/g), ([one]) => Number(one));
    const name = letter.toLowerCase();
    const size = /** @type {Object<string, number>} */ ({ m: 2, l: 2, c: 6, z: 0 })[name];
    if (size === undefined) throw new Error(`a path with ${letter} is not known`);
    if (name === "z") steps.push("h");
    for (let at = 0; size && at + size <= numbers.length; at += size) {
      const part = numbers.slice(at, at + size);
      const now = letter === name ? part.map((one, place) => one + (place % 2 ? y : x)) : part;
      [x, y] = now.slice(-2);
      steps.push(`${joined(...now)} ${name}`);
    }
  }
  return steps.join(" ");
}

/**
 * @param {SVGSVGElement} root  a picture that is on the page, so that it can be measured
 * @param {boolean} serif @param {(href: string) => Promise<HTMLImageElement>} loaded
 * @returns {Promise<Drawing>}
 */
export async function drawingOf(root, serif, loaded) {
  /** @type {string[]} */
  const operators = [];
  /** @type {Bitmap[]} */
  const bitmaps = [];
  /** @type {string[]} */
  const opacities = [];
  /** @type {Map<string, number>} */
  const shapes = new Map();
  const back = /** @type {DOMMatrix} */ (root.getScreenCTM()).inverse();
  /** @param {SVGGraphicsElement} element */
  const placeOf = (element) => {
    const { a, b, c, d, e, f } = back.multiply(/** @type {DOMMatrix} */ (element.getScreenCTM()));
    return [a, b, c, d, e, f];
  };
  /** @param {number} fill @param {number} stroke */
  const opacity = (fill, stroke) => {
    const name = `/ca ${short(fill)} /CA ${short(stroke)}`;
    if (!opacities.includes(name)) opacities.push(name);
    return `/O${opacities.indexOf(name)} gs`;
  };

  /** @param {SVGGraphicsElement} element @param {string} path */
  function shape(element, path) {
    const style = getComputedStyle(element);
    const fill = element.tagName === "line" ? null : channelsOf(style.fill);
    const stroke = parseFloat(style.strokeWidth) > 0 ? channelsOf(style.stroke) : null;
    if (!fill && !stroke) return;
    const dashes = style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[\s,]+/).map(parseFloat);
    operators.push(
      `q ${joined(...placeOf(element))} cm ${opacity(Number(style.fillOpacity), Number(style.strokeOpacity))}`,
      fill ? `${fill} rg` : "",
      stroke ? `${stroke} RG ${short(parseFloat(style.strokeWidth))} w [${joined(...dashes)}] 0 d` : "",
      `${path} ${fill && stroke ? "B" : fill ? "f" : "S"} Q`,
    );
  }

  /** @param {SVGImageElement} element */
  async function image(element) {
    const source = await loaded(element.href.baseVal);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [source.naturalWidth, source.naturalHeight];
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.drawImage(source, 0, 0);
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
    const data = new Uint8Array((pixels.length / 4) * 3);
    for (let from = 0, to = 0; from < pixels.length; from += 4, to += 3) data.set(pixels.subarray(from, from + 3), to);
    bitmaps.push({ width: canvas.width, height: canvas.height, data, mask: false });
    const [x, y, width, height] = [element.x, element.y, element.width, element.height].map((one) => one.baseVal.value);
    operators.push(
      `q ${joined(...placeOf(element))} cm ${joined(width, 0, 0, -height, x, y + height)} cm /I${bitmaps.length - 1} Do Q`,
    );
  }

  /** A letter that no font has, as its shape: which bitmap. @param {string} letters @param {CSSStyleDeclaration} style @param {number} wide  of size 1 */
  function shapeOf(letters, style, wide) {
    const name = `${style.fontWeight} ${letters}`;
    const known = shapes.get(name);
    if (known !== undefined) return known;
    const canvas = document.createElement("canvas");
    // Half a letter of room above and below what a line has.
    [canvas.width, canvas.height] = [Math.max(8, Math.ceil(wide * SHAPE)), 2 * SHAPE];
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.font = `${style.fontWeight} ${SHAPE}px ${style.fontFamily}`;
    context.fillText(letters, 0, 1.4 * SHAPE);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    const line = Math.ceil(canvas.width / 8);
    const bits = new Uint8Array(line * canvas.height).fill(255);
    for (let at = 0; at < data.length / 4; at++) {
      const [x, y] = [at % canvas.width, Math.floor(at / canvas.width)];
      if (data[4 * at + 3] > 127) bits[y * line + (x >> 3)] &= ~(128 >> (x & 7));
    }
    bitmaps.push({ width: canvas.width, height: canvas.height, data: bits, mask: true });
    shapes.set(name, bitmaps.length - 1);
    return bitmaps.length - 1;
  }

  /** @param {SVGTextElement} element */
  function text(element) {
    const [a, b, c, d, e, f] = placeOf(element);
    const count = element.getNumberOfChars();
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    let begun = 0;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const style = getComputedStyle(/** @type {Element} */ (node.parentElement));
      const size = parseFloat(style.fontSize);
      const fill = channelsOf(style.fill);
      const given = node.nodeValue ?? "";
      for (const run of runsOf(given, serif, Number(style.fontWeight) >= 600)) {
        const from = begun + run.from;
        if (!fill || from + run.text.length > count) continue;
        const wide = element.getSubStringLength(from, run.text.length);
        if (!(wide > 0)) continue;
        const { x, y } = element.getStartPositionOfChar(from);
        const [left, base] = [a * x + c * y + e, b * x + d * y + f];
        operators.push(`q ${fill} rg ${opacity(Number(style.fillOpacity), 1)}`);
        if (run.font) {
          // As wide as on the page, whatever font that has.
          const stretched = wide / (run.width * size);
          const codes = run.codes.map((code) => code.toString(16).padStart(2, "0")).join("");
          const at = joined(a * stretched, b * stretched, -c, -d, left, base);
          operators.push(`BT /${run.font} ${short(size)} Tf ${at} Tm <${codes}> Tj ET Q`);
        } else {
          const made = shapeOf(run.text, style, wide / size);
          const { width, height } = bitmaps[made];
          const [across, down] = [(size * width) / SHAPE, (size * height) / SHAPE];
          // From the lower left corner, six tenths of a letter below the line.
          const below = 0.6 * size;
          const at = joined(a * across, b * across, -c * down, -d * down, left + c * below, base + d * below);
          operators.push(`${at} cm /I${made} Do Q`);
        }
      }
      begun += given.length;
    }
  }

  for (const element of root.querySelectorAll("*")) {
    if (element instanceof SVGImageElement) await image(element);
    else if (element instanceof SVGTextElement) text(element);
    else if (element instanceof SVGGraphicsElement) {
      const path = outline(element);
      if (path) shape(element, path);
    }
  }
  return { operators: operators.filter(Boolean).join("\n"), bitmaps, opacities };
}
