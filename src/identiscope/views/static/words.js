/** Which tokens are pieces of one word, and which are copies of another: told from how tokenizers write them. */

import { shown } from "./text.js";

/** Such as [CLS], <s>, <|endoftext|>. */
const SPECIAL = /^(\[[A-Z]+\d*\]|<[^<>\s]+>)$/;
const LEADING = /^[Ġ▁ ]/;
const CONTINUED = /^##/;
const READABLE = /[\p{L}\p{N}]/u;

/** @param {string} token */
export function isSpecial(token) {
  return SPECIAL.test(token);
}

/** A token as a part of running text, without the marks that say where words begin. @param {string} token @param {number} [longest] */
export function asText(token, longest = 24) {
  const bare = token.length > 2 ? token.replace(CONTINUED, "") : token;
  return shown(bare.length > 1 ? bare.replace(LEADING, "") : bare, longest);
}

/**
 * Tokens by word, in order: pieces of one word together, each special token and each mark by itself.
 * @param {string[]} tokens @returns {number[][]}
 */
export function wordsOf(tokens) {
  const byMark = tokens.some((token) => CONTINUED.test(token) && token.length > 2);
  const bySpace = !byMark && tokens.some((token) => LEADING.test(token) && token.length > 1);
  /** @type {number[][]} */
  const words = [];
  tokens.forEach((token, place) => {
    const before = tokens[place - 1];
    const joined =
      place > 0 &&
      !isSpecial(token) &&
      !isSpecial(before) &&
      READABLE.test(token) &&
      READABLE.test(before) &&
      (byMark ? CONTINUED.test(token) && token.length > 2 : bySpace && !LEADING.test(token));
    if (joined) words[words.length - 1].push(place);
    else words.push([place]);
  });
  return words;
}

/** Whether a space stands before a token in running text. @param {string[]} tokens @param {number} place */
export function spaceBefore(tokens, place) {
  const token = tokens[place];
  if (place === 0) return false;
  if (CONTINUED.test(token) && token.length > 2) return false;
  if (LEADING.test(token) || isSpecial(token) || isSpecial(tokens[place - 1])) return true;
  // Where spaces are part of the tokens, none is where none is told; elsewhere all words are apart, marks are not.
  const told = tokens.some((one) => LEADING.test(one) && one.length > 1);
  return !told && !/^[.,;:!?)\]}%’”]+$/.test(token);
}

/**
 * The places of all that have the same name, for each.
 * @param {string[]} names @returns {number[][]}
 */
export function copiesOf(names) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  names.forEach((name, place) => {
    const group = groups.get(name);
    if (group) group.push(place);
    else groups.set(name, [place]);
  });
  return names.map((name) => /** @type {number[]} */ (groups.get(name)));
}
