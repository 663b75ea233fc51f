/** What of a map is shown: tokens or whole words, copies apart or added up, in the order of the text or of their weight. */

import { wholeCharacters } from "./text.js";
import { copiesOf, wordsOf } from "./words.js";

/**
 * @typedef {{words: boolean, copies: boolean, order: "text"|"weight"}} LensChoice
 *
 * @typedef {object} Lens
 * @property {boolean} plain  every token by itself, as in the text
 * @property {number[][]} rows  the queries of each row, which is their mean
 * @property {number[][]} columns  the keys of each column, which is their sum
 * @property {string[]} rowNames
 * @property {string[]} columnNames
 * @property {(cells: Float32Array|null) => Float32Array|null} through
 * @property {(query: number) => number} rowOf  where a query is
 */

/**
 * @param {{queries: string[], keys: string[]|null}} tokens @param {LensChoice} wanted
 * @param {Float32Array} raw  of the head: what the order goes by
 * @returns {Lens}
 */
export function lensOf({ queries, keys }, wanted, raw) {
  const width = (keys ?? queries).length;
  const each = (/** @type {string[]} */ names) => names.map((_, place) => [place]);
  const rows = wanted.words ? wordsOf(queries) : each(queries);
  let columns = wanted.words ? wordsOf(keys ?? queries) : each(keys ?? queries);
  const named = (/** @type {string[]} */ names, /** @type {number[][]} */ groups) =>
    groups.map((group) =>
      wholeCharacters(group.map((place, at) => (at ? names[place].replace(/^##/, "") : names[place]))),
    );
  let columnNames = named(keys ?? queries, columns);
  if (wanted.copies) {
    const copies = copiesOf(columnNames);
    const firsts = columns.map((_, at) => at).filter((at) => copies[at][0] === at);
    const merged = firsts.map((at) => copies[at].flatMap((one) => columns[one]));
    columnNames = firsts.map((at) =>
      copies[at].length > 1 ? `${columnNames[at]} ×${copies[at].length}` : columnNames[at],
    );
    columns = merged;
  }
  if (wanted.order === "weight") {
    const totals = new Float64Array(width);
    for (let cell = 0; cell < raw.length; cell++) totals[cell % width] += raw[cell];
    const of = columns.map((group) => group.reduce((sum, key) => sum + totals[key], 0));
    const order = columns.map((_, at) => at).sort((one, other) => of[other] - of[one] || one - other);
    columns = order.map((at) => columns[at]);
    columnNames = order.map((at) => columnNames[at]);
  }
  const plain = !wanted.words && !wanted.copies && wanted.order === "text";
  return {
    plain,
    rows,
    columns,
    rowNames: named(queries, rows),
    columnNames,
    rowOf: (query) => rows.findIndex((group) => group.includes(query)),
    through(cells) {
      if (!cells || plain) return cells;
      const made = new Float32Array(rows.length * columns.length);
      rows.forEach((group, row) => {
        columns.forEach((parts, column) => {
          let sum = 0;
          for (const query of group) for (const key of parts) sum += cells[query * width + key];
          made[row * columns.length + column] = sum / group.length;
        });
      });
      return made;
    },
  };
}
