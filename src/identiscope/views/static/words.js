/** Which tokens are pieces of one word, and which are copies of another: told from how tokenizers write them. */

import { cutIn, shown, wholeCharacters, withoutParts } from "./text.js";

/** Such as [CLS], <s>, <|endoftext|>; not <0xE2>, which is a part of a character. */
const SPECIAL = /^(\[[A-Z]+\d*\]|<(?!0x[89A-F][0-9A-F]>)[^<>\s]+>)$/;
const LEADING = /^[Ġ▁ ]/;
const CONTINUED = /^##/;
const READABLE = /[\p{L}\p{N}]/u;

/** @param {string} token */
export function isSpecial(token) {
  return SPECIAL.test(token);
}

/** @param {string} token */
function bareToken(token) {
  const bare = token.length > 2 ? token.replace(CONTINUED, "") : token;
  return bare.length > 1 ? bare.replace(LEADING, "") : bare;
}

/** Letters of a token that are shown in running text. */
const LETTERS = 24;

/** Tokens as one part of running text, without the marks that say where words begin. @param {...string} tokens */
export function asText(...tokens) {
  return shown(wholeCharacters(tokens.map(bareToken)), LETTERS * tokens.length);
}

/** Tokens by character: one alone, unless several are parts of the same. @param {string[]} tokens @returns {number[][]} */
function charactersOf(tokens) {
  /** @type {number[][]} */
  const groups = [];
  tokens.forEach((token, place) => {
    const last = groups[groups.length - 1];
    const before = last ? wholeCharacters(last.map((at) => tokens[at])) : "";
    if (cutIn(before).end && cutIn(token).start) last.push(place);
    else groups.push([place]);
  });
  return groups;
}

/**
 * Tokens by word, in order: pieces of one word together, each special token and each mark by itself.
 * @param {string[]} tokens @returns {number[][]}
 */
export function wordsOf(tokens) {
  const byMark = tokens.some((token) => CONTINUED.test(token) && token.length > 2);
  const bySpace = !byMark && tokens.some((token) => LEADING.test(token) && token.length > 1);
  const readable = (/** @type {string} */ text) => READABLE.test(withoutParts(text.replace(LEADING, "")));
  /** @type {number[][]} */
  const words = [];
  let before = "";
  for (const group of charactersOf(tokens)) {
    const token = wholeCharacters(group.map((place) => tokens[place]));
    const joined =
      words.length > 0 &&
      !isSpecial(token) &&
      !isSpecial(before) &&
      readable(token) &&
      readable(before) &&
      (byMark ? CONTINUED.test(token) && token.length > 2 : bySpace && !LEADING.test(token));
    if (joined) words[words.length - 1].push(...group);
    else words.push(group);
    before = token;
  }
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
