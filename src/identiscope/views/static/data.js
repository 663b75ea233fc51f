/**
 * What a page is made of. Everything the viewer shows comes from one such object, wherever it was read from: a report
 * embeds it, a server sends it, a notebook passes it. `views/packing.py` and `views/report_data.py` write it.
 *
 * @typedef {{kind: "zigzag"|"float32"|"uint32"|"bits", offset: number, shape: number[]}} Described  an array in a chunk
 * @typedef {{left: Described, right: Described, left_step: number[], right_step: number[]}} Factors
 * @typedef {{factors: Factors|null, levels: number, rows: Described|null, cells: Described|null}} PackedMap
 * @typedef {PackedMap & {softcap: number|null, sinks: number[]|null}} PackedRaw
 * @typedef {object} Layer
 * @property {number} layer
 * @property {number[]} heads
 * @property {number} queries
 * @property {number} keys
 * @property {string} chunk
 * @property {{start?: Described, stop?: Described, matrix?: Described}|null} mask
 * @property {PackedRaw} raw
 * @property {PackedMap|null} effective
 * @property {Described|null} null_rows  by head and query: whether null attention is more than rounding there
 * @property {{matrix: Described, row_error: number[]}} [output]
 * @property {{heads: number[], levels: number, cells: Described}|null} canonical
 * @property {(number|null)[]} null_share
 * @property {(number|null)[]} correlation
 * @property {Object<string, number>} error
 *
 * @typedef {{layer: number, head: number, query: number, key: number, weight: number, lower: number, upper: number}} Interval
 * @typedef {{layers: number[], inputs: string[], outputs: string[], chunk: string, contribution: Described,
 *   error: Described|null, mode: string, norm: string}} Attribution
 * @typedef {{layers: number[], probes: string[], rate: (number|null)[][], low: (number|null)[][], high: (number|null)[][],
 *   guess: number|null, title: string, note?: string}} TokenRates
 * @typedef {{rows: string[], columns: string[], places: number[][]|null, chunk: string, levels: number, cells: Described,
 *   note: string}} Structure
 * @typedef {{queries: string[], keys: string[]|null}} Tokens
 * @typedef {{name: string, meaning: string, mean: (number|null)[][], deviation: (number|null)[][]}} GridColumn
 * @typedef {{title: string, layers: number[], heads: number[], columns: GridColumn[]}} Grid
 * @typedef {{name: string, columns: string[], rows: (string|number|null)[][]}} Table
 * @typedef {object} Header
 * @property {string} format
 * @property {string} version
 * @property {string} title
 * @property {string} subtitle
 * @property {string[]} verdict
 * @property {string[]} notes
 * @property {boolean} [live]  whether more can be computed for what is looked at, as on a server's page
 * @property {Place|null} start  what to show first
 * @property {Tokens|null} tokens
 * @property {Layer[]} layers
 * @property {Interval[]} intervals
 * @property {Attribution|null} attribution
 * @property {TokenRates|null} token_rates
 * @property {Structure|null} structure
 * @property {Grid[]} grids  of a corpus
 * @property {TokenRates[]} curves  of a corpus
 * @property {{image: string, caption: string}[]} figures
 * @property {Table[]} tables
 *
 * @typedef {object} PageData  a header, and its chunks (gzip) when asked for by name
 * @property {Header} header
 * @property {(name: string) => Promise<Uint8Array>} chunk
 *
 * @typedef {{raw: Float32Array, effective: Float32Array|null, null: Float32Array|null, canonical: Float32Array|null,
 *   queries: number, keys: number, limit: number}} Maps  with the largest magnitude in the first three
 * @typedef {{layer: number, head: number, row: number}} Place
 */
export {};
