/** A matrix for every head: maps that methods give, structures; several side by side for the same head, moved together. */

import { gunzip, wholeNumbers } from "./decode.js";
import { choice, html, svg } from "./dom.js";
import { makeMapPanel } from "./map_panel.js";
import { LEGEND, scaleBar } from "./map_picture.js";
import { scaleOf } from "./scale.js";
import { makeSection, scaleChoice, standing } from "./section.js";
import { number, shown, small } from "./text.js";

/** What stands for a cell without a number. */
const NO_NUMBER = -32768;

/**
 * @param {import("./sections.js").Drawn<import("./data.js").MapData>[]} sections  of the same rows, columns and heads
 * @param {import("./sections.js").View} view
 * @returns {import("./sections.js").Part}
 */
export function drawMatrices(sections, view) {
  const { theme } = view;
  const { rows, columns, layers } = sections[0].data;
  const places = layers.flatMap(({ layer, heads }, index) =>
    (heads ?? [null]).map((head, at) => ({ layer, head, index, at })),
  );
  const where = () => {
    const { layer, head } = places[place];
    return [layer === null ? null : `layer ${layer}`, head === null ? null : `head ${head}`]
      .filter((part) => part !== null)
      .join(", ");
  };
  let place = 0;
  const moving = { left: 0, top: 0, zoom: 1 };

  const cards = sections.map((section) => {
    const { data } = section;
    /** @type {Map<number, Promise<Float32Array>>} */
    const opened = new Map();
    /** @param {number} index  of a layer, which is unpacked when it is first looked at */
    const open = (index) => {
      let opening = opened.get(index);
      if (!opening) {
        const { chunk, cells } = data.layers[index];
        opening = section
          .chunk(chunk)
          .then(gunzip)
          .then((buffer) =>
            Float32Array.from(wholeNumbers(buffer, cells), (code) =>
              code === NO_NUMBER ? NaN : (code * Math.abs(code) * data.peak) / data.levels ** 2,
            ),
          );
        opened.set(index, opening);
      }
      return opening;
    };
    const [rowAxis, columnAxis] = data.axes;
    const card = makeSection(section.name, section.title, section.says, () => ({
      name: `${section.name}${where() && `-${where().replace(/[^a-z0-9]+/g, "-")}`}`,
      picture: () => panel.picture(`${section.says} ${where()}`),
      table: () => [
        [rowAxis, columnAxis, `${rowAxis}_label`, `${columnAxis}_label`, data.variable],
        ...rows.flatMap((row, at) =>
          columns.map((column, to) => [at, to, row, column, one.now?.[at * columns.length + to] ?? null]),
        ),
      ],
    }));
    const said = html("p", { class: "said", "aria-live": "polite" });
    const bar = html("div", { class: "bar" });
    const panel = makeMapPanel({
      title: section.title,
      window: moving,
      theme,
      onmove: () => cards.forEach((other) => other.panel.draw()),
      onpick: () => {},
      onhover: (cell) => cards.forEach((other) => other.tell(cell)),
    });
    card.body.append(bar, html("div", { class: "middle" }, panel.element), said);
    const one = {
      ...card,
      panel,
      bar,
      /** @type {Float32Array|null} */
      now: null,
      async read() {
        const { index, at } = places[place];
        const size = rows.length * columns.length;
        const mine = place;
        const all = await open(index);
        if (mine === place) one.now = all.subarray(at * size, (at + 1) * size);
      },
      /** @param {{row: number, column: number}|null} cell */
      tell(cell) {
        panel.hover(cell);
        if (!cell || !one.now) return void (said.textContent = `rounded by at most ${small(data.error)}`);
        const [from, to] = [rows[cell.row], columns[cell.column]].map((name) => html("bdi", {}, shown(name, 32)));
        said.replaceChildren(
          html("span", {}, from, " → ", to, `: ${number(one.now[cell.row * columns.length + cell.column])}`),
        );
      },
    };
    return one;
  });

  const heads = choice(
    "Head",
    places.map(({ layer, head }, at) => ({
      value: String(at),
      text: [layer === null ? "" : `layer ${layer}`, head === null ? "" : `head ${head}`].filter(Boolean).join(", "),
    })),
    (value) => {
      void show(Number(value));
      view.moved(sections[0].name, { matrix: place });
    },
  );
  heads.element.hidden = places.length < 2;
  const scales = scaleChoice(sections, () => draw());
  scales.suit(sections.map(({ data }) => data.peak));
  const tools = html("div", { class: "tools" }, heads.element, scales.element);

  function draw() {
    const together = scales.together();
    const all = scaleOf(
      cards.map(({ now }) => now),
      columns.length,
    );
    for (const { panel, bar, now } of cards) {
      if (!now) continue;
      const scale = together ? all : scaleOf([now], columns.length);
      const signed = (together ? cards : [{ now }]).some((one) => one.now?.some((value) => value < 0));
      panel.show({
        cells: now,
        rows: rows.length,
        columns: columns.length,
        scale,
        signed,
        chosen: null,
        missing: "",
        rowLabel: (row) => rows[row],
        columnLabel: (column) => columns[column],
      });
      bar.replaceChildren(
        svg(
          "svg",
          { width: LEGEND, height: 28, role: "img", "aria-label": "colour scale" },
          ...scaleBar(theme(), scale, signed),
        ),
      );
    }
  }

  /** @param {number} wanted */
  async function show(wanted) {
    place = wanted;
    heads.list.value = String(wanted);
    await Promise.all(cards.map((one) => one.read()));
    if (place === wanted) draw();
  }

  cards.forEach((one) => one.tell(null));
  return {
    element: standing(cards, tools),
    draw,
    ready: show(0),
    close: () => cards.forEach(({ panel }) => panel.close()),
    go: ({ matrix = 0 }) => show(Math.min(matrix, places.length - 1)),
    follow(chosen) {
      const at = places.findIndex(({ layer, head }) => layer === chosen.layer && head === chosen.head);
      if (at >= 0 && at !== place) void show(at);
    },
  };
}
