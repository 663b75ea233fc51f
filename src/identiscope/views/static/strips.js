/** Rows of numbers over the text, once or for a chosen word: mixtures, numbers of tokens, scores; several side by side. */

import { floats, gunzip } from "./decode.js";
import { choice, html, svg } from "./dom.js";
import { makeMapPanel } from "./map_panel.js";
import { LEGEND, scaleBar } from "./map_picture.js";
import { scaleOf } from "./scale.js";
import { makeSection, scaleChoice, standing } from "./section.js";
import { number, shown } from "./text.js";

/**
 * @param {import("./sections.js").Drawn<import("./data.js").StripData>[]} sections  of the same columns and words
 * @param {import("./sections.js").View} view
 * @returns {import("./sections.js").Part}
 */
export function drawStrips(sections, view) {
  const { theme } = view;
  const { columns, words } = sections[0].data;
  const names = Array.from(new Set(sections.flatMap(({ data }) => data.variables.map(({ name }) => name))));
  // A mixture's variables are what its method calls them; of numbers of tokens one is chosen by its name.
  const several = sections.some(({ data }) => data.variables.length > 1);
  let word = words ? Math.min(1, words.length - 1) : 0;
  let variable = names[0];
  const moving = { left: 0, top: 0, zoom: 1 };

  const cards = sections.map((section) => {
    const { data } = section;
    const { axes, rows } = data;
    const size = rows.length * columns.length;
    /** @type {Map<string, {values: Float32Array, error: Float32Array|null}>} */
    const arrays = new Map();
    const chosen = () => (data.variables.some(({ name }) => name === variable) ? variable : data.variables[0].name);
    const label = (/** @type {number} */ row) =>
      rows[row] === "" ? section.title : typeof rows[row] === "number" ? `${axes[0]} ${rows[row]}` : rows[row];
    /** @param {"values"|"error"} part */
    const cells = (part) => arrays.get(chosen())?.[part]?.subarray(word * size, (word + 1) * size) ?? null;
    const card = makeSection(section.name, section.title, section.says, () => ({
      name: words ? `${section.name}-${word}` : section.name,
      picture: () => panel.picture(words ? `${section.says} Word: ${shown(words[word])} (${word}).` : section.says),
      table,
    }));
    const said = html("p", { class: "said", "aria-live": "polite" });
    const bar = html("div", { class: "bar" });
    const panel = makeMapPanel({
      title: `${section.title}: ${axes[0]} × ${axes[1]}`,
      window: moving,
      theme,
      cellHeight: 26,
      onmove: () => cards.forEach((other) => other.panel.draw()),
      onpick: () => {},
      onhover: (cell) => cards.forEach((other) => other.tell(cell)),
    });
    card.body.append(bar, panel.element, said);

    function table() {
      const [row, column, of] = axes;
      const [values, error] = [cells("values"), cells("error")];
      return [
        [
          row,
          column,
          `${column}_token`,
          ...(words ? [of, `${of}_token`] : []),
          chosen(),
          ...(error ? [`${chosen()}_error`] : []),
        ],
        ...rows.flatMap((name, at) =>
          columns.map((token, to) => [
            name,
            to,
            token,
            ...(words ? [word, words[word]] : []),
            values?.[at * columns.length + to] ?? null,
            ...(error ? [error[at * columns.length + to]] : []),
          ]),
        ),
      ];
    }

    /** The share of the word itself in what it became, row by row. */
    function own() {
      const values = cells("values");
      const at = word + columns.length - (words?.length ?? 0);
      if (!words || !values || columns[at] !== words[word]) return data.note;
      return `own share: ${rows.map((_, row) => `${label(row)}: ${number(values[row * columns.length + at], 2)}`).join(" · ")}${data.note && ` (${data.note})`}`;
    }
    return {
      ...card,
      panel,
      values: () => cells("values"),
      async read() {
        const buffer = await gunzip(await section.chunk(data.chunk));
        for (const { name, values, error } of data.variables)
          arrays.set(name, { values: floats(buffer, values), error: error ? floats(buffer, error) : null });
      },
      /** @param {{row: number, column: number}|null} cell */
      tell(cell) {
        // Another strip may have more rows.
        const inside = cell && cell.row < rows.length ? cell : null;
        panel.hover(inside);
        const [values, error] = [cells("values"), cells("error")];
        if (!inside || !values) return void (said.textContent = own());
        const at = inside.row * columns.length + inside.column;
        const amount = ` (${inside.column}) is ${number(values[at])}${error ? ` ± ${number(error[at])}` : ""}`;
        const whole = words ? [" of ", html("bdi", {}, shown(words[word], 32))] : [];
        said.replaceChildren(
          html(
            "span",
            {},
            `${label(inside.row)}: `,
            html("bdi", {}, shown(columns[inside.column], 32)),
            amount,
            ...whole,
          ),
        );
      },
      /** @param {import("./colour.js").Scale} scale @param {boolean} signed */
      draw(scale, signed) {
        panel.show({
          cells: cells("values"),
          rows: rows.length,
          columns: columns.length,
          scale,
          signed,
          chosen: null,
          missing: "",
          rowLabel: (row) => String(label(row)),
          columnLabel: (column) => columns[column],
        });
        bar.replaceChildren(
          svg(
            "svg",
            { width: LEGEND, height: 28, role: "img", "aria-label": "colour scale" },
            ...scaleBar(theme(), scale, signed),
          ),
        );
        said.textContent = own();
      },
    };
  });

  const moved = () =>
    view.moved(sections[0].name, {
      ...(words ? { word } : {}),
      ...(several ? { value: names.indexOf(variable) } : {}),
    });
  const choices = choice(
    "Word",
    (words ?? []).map((token, place) => ({ value: String(place), text: `${place} ${shown(token)}` })),
    (value) => {
      show(Number(value), variable);
      moved();
    },
  );
  choices.element.hidden = !words;
  const values = choice(
    "Number",
    names.map((name) => ({ value: name, text: name.replaceAll("_", " ") })),
    (value) => {
      show(word, value);
      moved();
    },
  );
  values.element.hidden = !several;
  const scales = scaleChoice(sections, () => draw());
  const tools = html("div", { class: "tools" }, choices.element, values.element, scales.element);

  /** @param {(Float32Array|null)[]} shown */
  const scaleFor = (shown) => {
    const scale = scaleOf(shown, columns.length);
    // Shares of one are held against equal shares; other numbers against the largest of them.
    return scale.most <= 1 ? scale : { ...scale, noise: scale.limit / 12 };
  };

  function draw() {
    const all = cards.map((one) => one.values());
    if (all.some((one) => !one)) return;
    const scale = scaleFor(all);
    const together = scales.together();
    cards.forEach((one, at) => {
      const seen = together ? all : [all[at]];
      one.draw(
        together ? scale : scaleFor(seen),
        seen.some((cells) => cells?.some((value) => value < 0)),
      );
    });
  }

  /** @param {number} wanted @param {string} name */
  function show(wanted, name) {
    word = wanted;
    variable = name;
    choices.list.value = String(word);
    values.list.value = variable;
    draw();
  }

  const ready = Promise.all(cards.map((one) => one.read())).then(() => {
    scales.suit(cards.map((one) => scaleOf([one.values()], columns.length).limit));
    show(word, variable);
  });
  return {
    element: standing(cards, tools),
    draw,
    ready,
    close: () => cards.forEach(({ panel }) => panel.close()),
    async go({ word: wanted = word, value = names.indexOf(variable) }) {
      await ready;
      show(words ? Math.min(wanted, words.length - 1) : 0, names[Math.min(value, names.length - 1)]);
    },
  };
}
