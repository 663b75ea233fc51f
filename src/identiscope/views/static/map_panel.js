/** A map on a canvas: labels on both axes, a crosshair, zoom and pan; several panels may share one window on it. */

import { colourTable, paint } from "./colour.js";
import { html } from "./dom.js";
import { ROW_LETTERS, mapPicture } from "./map_picture.js";
import { framed } from "./saving.js";
import { shown } from "./text.js";

/**
 * The part of the map that is seen, in cells; shared by panels that move together.
 * @typedef {{left: number, top: number, zoom: number}} Window
 *
 * @typedef {object} MapContent
 * @property {Float32Array|null} cells
 * @property {number} rows
 * @property {number} columns
 * @property {import("./colour.js").Scale} scale
 * @property {boolean} signed  whether there may be negative cells
 * @property {(row: number) => string} rowLabel
 * @property {(column: number) => string} columnLabel
 * @property {number|null} chosen  a row
 * @property {string} missing  what to say where there are no cells
 *
 * @typedef {object} PanelOptions
 * @property {string} title
 * @property {Window} window
 * @property {() => import("./colour.js").Theme} theme
 * @property {(cell: {row: number, column: number}|null, event: PointerEvent|null) => void} onhover
 * @property {(row: number, column: number) => void} onpick
 * @property {() => void} onmove  the window has changed
 * @property {number} [cellHeight]  fixed height of a row, instead of a square map
 */

const MARGIN = { left: 66, bottom: 66, top: 6, right: 6 };
/** Letters of a column's name: the rows of a strip are few, so that there is room below them. */
const COLUMN_LETTERS = { strip: 20, map: 9 };

/** @param {PanelOptions} options */
export function makeMapPanel(options) {
  const canvas = /** @type {HTMLCanvasElement} */ (
    html("canvas", { class: "map", tabindex: "0", role: "img", "aria-label": options.title })
  );
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const message = html("p", { class: "missing", hidden: true });
  const element = html("div", { class: "map-holder" }, canvas, message);
  /** @type {MapContent|null} */
  let content = null;
  /** @type {HTMLCanvasElement|null} */
  let painted = null;
  /** @type {{row: number, column: number}|null} */
  let hovered = null;
  const area = { width: 0, height: 0 };
  const margin = { left: MARGIN.left, bottom: MARGIN.bottom };
  const rowName = (/** @type {number} */ row) =>
    content ? shown(content.rowLabel(row), options.cellHeight ? ROW_LETTERS.strip : ROW_LETTERS.map) : "";
  const columnName = (/** @type {number} */ column) =>
    content ? shown(content.columnLabel(column), options.cellHeight ? COLUMN_LETTERS.strip : COLUMN_LETTERS.map) : "";

  const cellSize = () =>
    content
      ? {
          x: (area.width / content.columns) * options.window.zoom,
          y: options.cellHeight ? area.height / content.rows : (area.height / content.rows) * options.window.zoom,
        }
      : { x: 1, y: 1 };

  /** As wide as the widest name of a row, as long as most is left for the cells. @param {number} width */
  function roomForNames(width) {
    context.font = "600 11px system-ui, sans-serif";
    const widths = Array.from({ length: content?.rows ?? 0 }, (_, row) => context.measureText(rowName(row)).width);
    return Math.min(Math.max(MARGIN.left, Math.ceil(Math.max(...widths)) + 10), 0.42 * width);
  }

  /** As high as the longest name of a column. */
  function roomBelow() {
    context.font = "600 11px system-ui, sans-serif";
    const each = Array.from({ length: content?.columns ?? 0 }, (_, at) => context.measureText(columnName(at)).width);
    return Math.max(MARGIN.bottom, Math.ceil(Math.max(0, ...each)) + 10);
  }

  function measure() {
    if (!content) return;
    const width = Math.max(120, element.clientWidth);
    margin.bottom = options.cellHeight ? roomBelow() : MARGIN.bottom;
    margin.left = options.cellHeight ? roomForNames(width) : MARGIN.left;
    area.width = width - margin.left - MARGIN.right;
    const square = area.width * Math.min(1.25, Math.max(0.25, content.rows / content.columns));
    area.height = options.cellHeight ? options.cellHeight * content.rows : square;
    const height = area.height + MARGIN.top + margin.bottom;
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  function draw() {
    if (!content || !content.cells || !painted) return;
    const theme = options.theme();
    const { left, top } = options.window;
    const size = cellSize();
    const width = area.width + margin.left + MARGIN.right;
    context.clearRect(0, 0, width, area.height + MARGIN.top + margin.bottom);
    context.save();
    context.beginPath();
    context.rect(margin.left, MARGIN.top, area.width, area.height);
    context.clip();
    context.imageSmoothingEnabled = size.x < 1;
    const offset = options.cellHeight ? 0 : top;
    context.drawImage(
      painted,
      margin.left - left * size.x,
      MARGIN.top - offset * size.y,
      content.columns * size.x,
      content.rows * size.y,
    );
    const band = (/** @type {number|null} */ row, /** @type {string} */ colour) => {
      if (row === null) return;
      // Two lines beside the row, so that its cells can still be seen.
      context.strokeStyle = colour;
      context.lineWidth = 1;
      for (const y of [(row - offset) * size.y - 1, (row + 1 - offset) * size.y + 1]) {
        context.beginPath();
        context.moveTo(margin.left, MARGIN.top + y);
        context.lineTo(margin.left + area.width, MARGIN.top + y);
        context.stroke();
      }
    };
    band(content.chosen, theme.mark);
    if (hovered) {
      context.strokeStyle = theme.ink;
      context.lineWidth = 1;
      const x = margin.left + (hovered.column - left) * size.x;
      const y = MARGIN.top + (hovered.row - offset) * size.y;
      context.globalAlpha = 0.55;
      context.strokeRect(x, MARGIN.top - 2, Math.max(size.x, 2), area.height + 4);
      context.strokeRect(margin.left - 2, y, area.width + 4, Math.max(size.y, 2));
    }
    context.restore();
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.strokeRect(margin.left - 0.5, MARGIN.top - 0.5, area.width + 1, area.height + 1);
    labels(theme, size, offset);
  }

  /** @param {import("./colour.js").Theme} theme @param {{x: number, y: number}} size @param {number} offset */
  function labels(theme, size, offset) {
    if (!content) return;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const every = { row: Math.ceil(13 / size.y), column: Math.ceil(13 / size.x) };
    /** @param {number} place @param {number} step @param {number|null|undefined} active */
    const style = (place, step, active) => {
      if (active === place) {
        context.fillStyle = theme.ink;
        context.font = "600 11px system-ui, sans-serif";
        return true;
      }
      context.fillStyle = theme.faint;
      context.font = "11px system-ui, sans-serif";
      // Room for the label that is pointed at.
      return place % step === 0 && (active === null || active === undefined || Math.abs(active - place) >= step);
    };
    const pointedRow = hovered ? hovered.row : content.chosen;
    context.textAlign = "right";
    for (let row = Math.max(0, Math.floor(offset)); row < content.rows; row++) {
      const y = MARGIN.top + (row + 0.5 - offset) * size.y;
      if (y > MARGIN.top + area.height) break;
      if (y < MARGIN.top || !style(row, every.row, pointedRow)) continue;
      context.fillText(rowName(row), margin.left - 6, y, margin.left - 8);
    }
    for (let column = Math.max(0, Math.floor(options.window.left)); column < content.columns; column++) {
      const x = margin.left + (column + 0.5 - options.window.left) * size.x;
      if (x > margin.left + area.width) break;
      if (x < margin.left || !style(column, every.column, hovered?.column)) continue;
      context.save();
      context.translate(x, MARGIN.top + area.height + 6);
      context.rotate(-Math.PI / 2);
      context.fillText(columnName(column), 0, 0, margin.bottom - 8);
      context.restore();
    }
  }

  /** @param {{clientX: number, clientY: number}} event */
  function cellAt(event) {
    if (!content) return null;
    const box = canvas.getBoundingClientRect();
    const size = cellSize();
    const offset = options.cellHeight ? 0 : options.window.top;
    const column = Math.floor((event.clientX - box.left - margin.left) / size.x + options.window.left);
    const row = Math.floor((event.clientY - box.top - MARGIN.top) / size.y + offset);
    const inside = row >= 0 && row < content.rows && column >= 0 && column < content.columns;
    const seen = event.clientX - box.left >= margin.left && event.clientY - box.top <= MARGIN.top + area.height;
    return inside && seen ? { row, column } : null;
  }

  /** @param {number} zoom @param {{x: number, y: number}} at  share of the area that stays in place */
  function zoomTo(zoom, at) {
    if (!content) return;
    const most = Math.max(1, content.columns / 4);
    const next = Math.min(Math.max(zoom, 1), most);
    const seen = (/** @type {number} */ cells, /** @type {number} */ by) => cells / by;
    const view = options.window;
    view.left += at.x * (seen(content.columns, view.zoom) - seen(content.columns, next));
    view.top += at.y * (seen(content.rows, view.zoom) - seen(content.rows, next));
    view.zoom = next;
    keepInside();
    options.onmove();
  }

  function keepInside() {
    if (!content) return;
    const view = options.window;
    view.left = Math.min(Math.max(view.left, 0), content.columns * (1 - 1 / view.zoom));
    view.top = Math.min(Math.max(view.top, 0), content.rows * (1 - 1 / view.zoom));
    canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
    canvas.style.cursor = view.zoom > 1 ? "grab" : "crosshair";
  }

  /** @type {Map<number, {x: number, y: number}>} */
  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before) {
      const other = Array.from(pointers.entries()).find(([id]) => id !== event.pointerId)?.[1];
      const [dx, dy] = [event.clientX - before.x, event.clientY - before.y];
      moved += Math.abs(dx) + Math.abs(dy);
      if (other) {
        const distance = (/** @type {{x: number, y: number}} */ one) => Math.hypot(one.x - other.x, one.y - other.y);
        const box = canvas.getBoundingClientRect();
        zoomTo(
          (options.window.zoom * distance({ x: event.clientX, y: event.clientY })) / Math.max(distance(before), 1),
          {
            x: (other.x - box.left - margin.left) / area.width,
            y: (other.y - box.top - MARGIN.top) / area.height,
          },
        );
      } else if (options.window.zoom > 1) {
        const size = cellSize();
        options.window.left -= dx / size.x;
        options.window.top -= dy / size.y;
        keepInside();
        options.onmove();
      }
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    }
    options.onhover(cellAt(event), event);
  });
  const leave = (/** @type {PointerEvent} */ event) => void pointers.delete(event.pointerId);
  canvas.addEventListener("pointerup", (event) => {
    leave(event);
    const cell = cellAt(event);
    if (cell && moved < 6) options.onpick(cell.row, cell.column);
  });
  canvas.addEventListener("pointercancel", leave);
  canvas.addEventListener("pointerleave", () => options.onhover(null, null));
  canvas.addEventListener(
    "wheel",
    (event) => {
      // Without a key the page scrolls, as it does everywhere else.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      zoomTo(options.window.zoom * Math.exp(-event.deltaY / 200), {
        x: (event.clientX - box.left - margin.left) / area.width,
        y: (event.clientY - box.top - MARGIN.top) / area.height,
      });
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") zoomTo(options.window.zoom * 1.5, { x: 0.5, y: 0.5 });
    else if (event.key === "-") zoomTo(options.window.zoom / 1.5, { x: 0.5, y: 0.5 });
    else if (event.key === "0") zoomTo(1, { x: 0, y: 0 });
    else return;
    event.preventDefault();
  });
  const watcher = new ResizeObserver(() => {
    measure();
    draw();
  });
  watcher.observe(element);

  return {
    element,
    canvas,
    close: () => watcher.disconnect(),
    zoom: (/** @type {number} */ by) => zoomTo(options.window.zoom * by, { x: 0.5, y: 0.5 }),
    draw,
    /** Where a cell is on the screen, for tests. @param {number} row @param {number} column */
    pointOf(row, column) {
      const box = canvas.getBoundingClientRect();
      const size = cellSize();
      return {
        x: box.left + margin.left + (column + 0.5 - options.window.left) * size.x,
        y: box.top + MARGIN.top + (row + 0.5 - (options.cellHeight ? 0 : options.window.top)) * size.y,
      };
    },
    /** @param {{row: number, column: number}|null} cell */
    hover(cell) {
      hovered = cell;
      draw();
    },
    /** @param {MapContent} next */
    show(next) {
      content = next;
      canvas.hidden = next.cells === null;
      message.hidden = next.cells !== null;
      message.textContent = next.missing;
      painted = next.cells
        ? paint(next.cells, next.rows, next.columns, next.scale.limit, colourTable(options.theme(), next.scale))
        : null;
      measure();
      keepInside();
      draw();
    },
    /** The whole map as a picture. @param {string} note */
    picture(note) {
      const theme = options.theme();
      if (!content || !painted) return framed(theme, options.title, content ? content.missing : "", 480, 20);
      return mapPicture(theme, options.title, note, content, painted, options.cellHeight);
    },
  };
}
