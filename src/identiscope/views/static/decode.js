/** Bytes back into arrays: what `views/page/packing.py` wrote. */

/** The 85 characters of a report's text form, in order: none that HTML gives a meaning to. */
export const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+-;=?@^_`{|}~.,:";

/**
 * Five characters are four bytes, most significant first; the length of the bytes comes first, up to a blank.
 * @param {string} text
 * @returns {Uint8Array}
 */
export function fromText(text) {
  const values = new Uint8Array(128);
  for (let place = 0; place < 85; place++) values[ALPHABET.charCodeAt(place)] = place;
  const begin = text.indexOf(" ") + 1;
  const length = Number(text.slice(0, begin - 1));
  const bytes = new Uint8Array(Math.ceil(length / 4) * 4);
  for (let from = begin, to = 0; to < length; from += 5, to += 4) {
    let word = 0;
    for (let digit = 0; digit < 5; digit++) word = word * 85 + values[text.charCodeAt(from + digit)];
    bytes[to] = word >>> 24;
    bytes[to + 1] = (word >>> 16) & 255;
    bytes[to + 2] = (word >>> 8) & 255;
    bytes[to + 3] = word & 255;
  }
  return bytes.subarray(0, length);
}

/**
 * @param {Uint8Array} bytes  a gzip stream
 * @returns {Promise<ArrayBuffer>}
 */
export async function gunzip(bytes) {
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** @param {number[]} shape */
export function sizeOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

/**
 * Whole numbers: all low bytes, then all high bytes, zigzag-coded.
 * @param {ArrayBuffer} buffer
 * @param {import("./data.js").Described} described
 * @returns {Int16Array}
 */
export function wholeNumbers(buffer, described) {
  const count = sizeOf(described.shape);
  const low = new Uint8Array(buffer, described.offset, count);
  const high = new Uint8Array(buffer, described.offset + count, count);
  const values = new Int16Array(count);
  for (let place = 0; place < count; place++) {
    const coded = low[place] | (high[place] << 8);
    values[place] = (coded >>> 1) ^ -(coded & 1);
  }
  return values;
}

/**
 * @param {ArrayBuffer} buffer
 * @param {import("./data.js").Described} described
 * @returns {Float32Array}
 */
export function floats(buffer, described) {
  return new Float32Array(buffer, described.offset, sizeOf(described.shape));
}

/**
 * @param {ArrayBuffer} buffer
 * @param {import("./data.js").Described} described
 * @returns {Uint32Array}
 */
export function positions(buffer, described) {
  return new Uint32Array(buffer, described.offset, sizeOf(described.shape));
}

/**
 * @param {ArrayBuffer} buffer
 * @param {import("./data.js").Described} described
 * @returns {Uint8Array}  0 or 1
 */
export function flags(buffer, described) {
  const count = sizeOf(described.shape);
  const bytes = new Uint8Array(buffer, described.offset, Math.ceil(count / 8));
  const values = new Uint8Array(count);
  for (let place = 0; place < count; place++) values[place] = (bytes[place >> 3] >> (7 - (place & 7))) & 1;
  return values;
}

/**
 * The cells of a head's map by its name; null where it was not computed.
 * @param {import("./data.js").Maps} maps @param {string} name @returns {Float32Array|null}
 */
export function cellsOf(maps, name) {
  const cells = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (maps))[name];
  return cells instanceof Float32Array ? cells : null;
}
