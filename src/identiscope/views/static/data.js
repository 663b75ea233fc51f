/**
 * What a page is made of. Everything the viewer shows comes from one such object, wherever it was read from: a report
 * embeds it, a server sends it, a notebook passes it.
 */
// Written by views/page/typedefs.py from views/page/shapes.py, from here on
/**
 * @typedef {object} Tokens  the text; keys where they are of another text
 * @property {string[]} queries
 * @property {string[]|null} keys
 *
 * @typedef {object} NamedMap  a map that every head has, or may have, and what it says
 * @property {string} name
 * @property {string} title
 * @property {string} note
 *
 * @typedef {object} Described  an array in a chunk
 * @property {"zigzag"|"float32"|"uint32"|"bits"} kind
 * @property {number} offset
 * @property {number[]} shape
 *
 * @typedef {object} Mask  the keys that a query may look at
 * @property {Described} [start]
 * @property {Described} [stop]
 * @property {Described} [matrix]
 *
 * @typedef {object} Factors  two thin matrices, whole numbers times a step
 * @property {Described|null} left  null where it follows from raw attention and the right one
 * @property {Described} right
 * @property {number[]} left_step
 * @property {number[]} right_step
 *
 * @typedef {object} Position  a bias of logits by head: of key − query + queries − 1, or of the key
 * @property {"distance"|"key"} by
 * @property {Described} values
 *
 * @typedef {object} PackedRaw  raw attention: the factors are of its logits
 * @property {Factors|null} factors
 * @property {number} levels  of a root scale of cells
 * @property {Described|null} steps  by query, where cells are multiples of them instead
 * @property {Described|null} rows  head·2²⁰ + query of each; null where all are, with steps key by key
 * @property {Described|null} cells
 * @property {number|null} softcap
 * @property {Position|null} position
 * @property {number[]|null} sinks
 *
 * @typedef {object} PackedMap  maps of a layer's heads: factors, and rows stored cell by cell
 * @property {Factors|null} factors
 * @property {number} levels  of a root scale of cells
 * @property {Described|null} steps  by query, where cells are multiples of them instead
 * @property {Described|null} rows  head·2²⁰ + query of each; null where all are, with steps key by key
 * @property {Described|null} cells
 *
 * @typedef {object} Output  T of each head in the coordinates of the right factor
 * @property {Described} matrix
 * @property {number[]} step
 * @property {number[]} row_error
 *
 * @typedef {object} Canonical  canonical maps of some heads
 * @property {number[]} heads
 * @property {number} levels
 * @property {Described} cells
 *
 * @typedef {object} PackedLayer  one layer's attention
 * @property {number} layer
 * @property {number[]} heads
 * @property {number} queries
 * @property {number} keys
 * @property {string} chunk
 * @property {Mask|null} mask
 * @property {PackedRaw} raw
 * @property {PackedMap|null} effective_simplex_span
 * @property {PackedMap|null} effective  as Brunner et al. have it, where it was given
 * @property {Described|null} null_rows  by head and query: whether null attention is more than rounding there
 * @property {Output} [output]
 * @property {Canonical|null} canonical
 * @property {(number|null)[]} simplex_null_share
 * @property {(number|null)[]} merged_null_share  the same with equal tokens added up
 * @property {(number|null)[]} simplex_correlation
 * @property {Object<string, number>} error
 *
 * @typedef {object} Interval  what one weight may be, and what it may be together with those of the key's copies, itself among them
 * @property {number} layer
 * @property {number} head
 * @property {number} query
 * @property {number} key
 * @property {number} weight
 * @property {number} lower
 * @property {number} upper
 * @property {number} copies
 * @property {number} merged_weight
 * @property {number} merged_lower
 * @property {number} merged_upper
 *
 * @typedef {object} Place  a row of a head
 * @property {number} layer
 * @property {number} head
 * @property {number} row
 *
 * @typedef {object} AttentionData  all heads of a text, with what of them is real
 * @property {Tokens} tokens
 * @property {NamedMap[]} maps
 * @property {PackedLayer[]} layers
 * @property {Interval[]} intervals
 * @property {Place|null} start  what to show first
 *
 * @typedef {object} MapLayer  matrices of one layer; layer and heads are null where there is no such axis
 * @property {number|string|null} layer
 * @property {number[]|null} heads
 * @property {string} chunk
 * @property {Described} cells  [head, row, column]; -32768 where there is no number
 *
 * @typedef {object} MapData  a matrix for every head: (code/levels)² with the code's sign, times peak
 * @property {string} variable
 * @property {string[]} axes  of rows and of columns
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {MapLayer[]} layers
 * @property {number} levels
 * @property {number} peak
 * @property {number} error  no cell is off by more
 *
 * @typedef {object} StripVariable  numbers [row, column], or [word, row, column] where there are words
 * @property {string} name
 * @property {Described} values
 * @property {Described|null} error
 *
 * @typedef {object} StripData  rows of numbers over the text, once or for each word
 * @property {string[]} axes  of rows, of columns, and of words if there are any
 * @property {(number|string)[]} rows
 * @property {string[]} columns
 * @property {string[]|null} words
 * @property {string} chunk
 * @property {StripVariable[]} variables
 * @property {string} note
 *
 * @typedef {object} HeadColumn  a number for every layer and head
 * @property {string} name
 * @property {string} meaning
 * @property {((number|null)[])[]} values
 * @property {((number|null)[])[]|null} deviation
 *
 * @typedef {object} HeadData  numbers by layer and head
 * @property {(number|string)[]} layers
 * @property {number[]} heads
 * @property {HeadColumn[]} columns
 *
 * @typedef {object} CurveData  shares by layer, a line for each name
 * @property {(number|string)[]} layers
 * @property {string[]} names
 * @property {((number|null)[])[]} rate
 * @property {((number|null)[])[]} low
 * @property {((number|null)[])[]} high
 * @property {number|null} guess
 *
 * @typedef {object} Together  copies of a key, how many: what they weigh together, and the interval of that
 * @property {number} copies
 * @property {number} weight
 * @property {number} lower
 * @property {number} upper
 *
 * @typedef {object} FreedomCell  a weight and the interval that it may lie in; with its copies, where there are any
 * @property {string} name
 * @property {number|null} weight
 * @property {number} lower
 * @property {number} upper
 * @property {Together|null} together
 *
 * @typedef {object} FreedomData  weights and what they may be
 * @property {FreedomCell[]} cells
 *
 * @typedef {object} Table  plain values
 * @property {string} name
 * @property {string[]} columns
 * @property {((string|number|boolean|null)[])[]} rows
 *
 * @typedef {object} PlainData  a picture, if there is one, and tables
 * @property {string|null} image
 * @property {Table[]} tables
 *
 * @typedef {object} SectionHeader  a part of the page
 * @property {string} name  of this section alone: its element's id, the beginning of its chunks' names
 * @property {"attention"|"map"|"structure"|"mixture"|"token"|"score"|"head"|"curve"|"freedom"|"plain"} kind
 * @property {string} title
 * @property {string} says  one sentence
 * @property {string[]} chunks  named as `data` does; on the page their names are `name.chunk`
 * @property {AttentionData|MapData|StripData|HeadData|CurveData|FreedomData|PlainData} data
 *
 * @typedef {object} Header  what a page is made of
 * @property {string} format
 * @property {string} version
 * @property {string} title
 * @property {string} subtitle
 * @property {string[]} verdict
 * @property {string[]} notes
 * @property {boolean} [live]  whether more can be computed for what is looked at, as on a server's page
 * @property {SectionHeader[]} sections
 *
 * @typedef {{attention: AttentionData, map: MapData, structure: MapData, mixture: StripData, token: StripData, score: StripData, head: HeadData, curve: CurveData, freedom: FreedomData, plain: PlainData}} Shapes  by kind of section
 */
// to here.

/**
 * @typedef {object} PageData  a header, and its chunks (gzip) when asked for by name
 * @property {Header} header
 * @property {(name: string) => Promise<Uint8Array>} chunk
 *
 * @typedef {{raw: Float32Array, effective_simplex_span: Float32Array|null, simplex_null: Float32Array|null,
 *   canonical: Float32Array|null, effective: Float32Array|null, queries: number, keys: number,
 *   scale: import("./colour.js").Scale}} Maps  with one colour scale for all but the canonical one
 */
export {};
