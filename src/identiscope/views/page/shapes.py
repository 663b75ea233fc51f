"""The shapes of a page's data, declared once: `typedefs.py` writes them into `static/data.js` as JSDoc types.

mypy holds what Python writes to them, tsc what JavaScript reads; a test compares both declarations, and every page that
the tests open is walked along them.
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

#: A layer's name: its number, or a word such as `input`.
Label = int | str


class Described(TypedDict):
    """An array in a chunk."""

    kind: Literal["zigzag", "float32", "uint32", "bits"]
    offset: int
    shape: list[int]


class Factors(TypedDict):
    """Two thin matrices, whole numbers times a step."""

    left: Annotated[Described | None, "null where it follows from raw attention and the right one"]
    right: Described
    left_step: list[float]
    right_step: list[float]


class PackedMap(TypedDict):
    """Maps of a layer's heads: factors, and rows stored cell by cell."""

    factors: Factors | None
    levels: Annotated[int, "of a root scale of cells"]
    steps: Annotated[Described | None, "by query, where cells are multiples of them instead"]
    rows: Annotated[Described | None, "head·2²⁰ + query of each; null where all are, with steps key by key"]
    cells: Described | None


class Position(TypedDict):
    """A bias of logits by head: of key − query + queries − 1, or of the key."""

    by: Literal["distance", "key"]
    values: Described


class PackedRaw(PackedMap):
    """Raw attention: the factors are of its logits."""

    softcap: float | None
    position: Position | None
    sinks: list[float] | None


class Mask(TypedDict):
    """The keys that a query may look at."""

    start: NotRequired[Described]
    stop: NotRequired[Described]
    matrix: NotRequired[Described]


class Output(TypedDict):
    """T of each head in the coordinates of the right factor."""

    matrix: Described
    step: list[float]
    row_error: list[float]


class Canonical(TypedDict):
    """Canonical maps of some heads."""

    heads: list[int]
    levels: int
    cells: Described


class PackedLayer(TypedDict):
    """One layer's attention."""

    layer: int
    heads: list[int]
    queries: int
    keys: int
    chunk: str
    mask: Mask | None
    raw: PackedRaw
    effective_simplex_span: PackedMap | None
    effective: Annotated[PackedMap | None, "as Brunner et al. have it, where it was given"]
    null_rows: Annotated[Described | None, "by head and query: whether null attention is more than rounding there"]
    output: NotRequired[Output]
    canonical: Canonical | None
    simplex_null_share: list[float | None]
    merged_null_share: Annotated[list[float | None], "the same with equal tokens added up"]
    simplex_correlation: list[float | None]
    error: dict[str, float]


class Tokens(TypedDict):
    """The text; keys where they are of another text."""

    queries: list[str]
    keys: list[str] | None


class Interval(TypedDict):
    """What one weight may be, and what it may be together with those of the key's copies, itself among them."""

    layer: int
    head: int
    query: int
    key: int
    weight: float
    lower: float
    upper: float
    copies: int
    merged_weight: float
    merged_lower: float
    merged_upper: float


class Place(TypedDict):
    """A row of a head."""

    layer: int
    head: int
    row: int


class NamedMap(TypedDict):
    """A map that every head has, or may have, and what it says."""

    name: str
    title: str
    note: str


class AttentionData(TypedDict):
    """All heads of a text, with what of them is real."""

    tokens: Tokens
    maps: list[NamedMap]
    layers: list[PackedLayer]
    intervals: list[Interval]
    start: Annotated[Place | None, "what to show first"]


class MapLayer(TypedDict):
    """Matrices of one layer; layer and heads are null where there is no such axis."""

    layer: Label | None
    heads: list[int] | None
    chunk: str
    cells: Annotated[Described, "[head, row, column]; -32768 where there is no number"]


class MapData(TypedDict):
    """A matrix for every head: (code/levels)² with the code's sign, times peak."""

    variable: str
    axes: Annotated[list[str], "of rows and of columns"]
    rows: list[str]
    columns: list[str]
    layers: list[MapLayer]
    levels: int
    peak: float
    error: Annotated[float, "no cell is off by more"]


class StripVariable(TypedDict):
    """Numbers [row, column], or [word, row, column] where there are words."""

    name: str
    values: Described
    error: Described | None


class StripData(TypedDict):
    """Rows of numbers over the text, once or for each word."""

    axes: Annotated[list[str], "of rows, of columns, and of words if there are any"]
    rows: list[Label]
    columns: list[str]
    words: list[str] | None
    chunk: str
    variables: list[StripVariable]
    note: str


class HeadColumn(TypedDict):
    """A number for every layer and head."""

    name: str
    meaning: str
    values: list[list[float | None]]
    deviation: list[list[float | None]] | None


class HeadData(TypedDict):
    """Numbers by layer and head."""

    layers: list[Label]
    heads: list[int]
    columns: list[HeadColumn]


class CurveData(TypedDict):
    """Shares by layer, a line for each name."""

    layers: list[Label]
    names: list[str]
    rate: list[list[float | None]]
    low: list[list[float | None]]
    high: list[list[float | None]]
    guess: float | None


class Together(TypedDict):
    """Copies of a key, how many: what they weigh together, and the interval of that."""

    copies: int
    weight: float
    lower: float
    upper: float


class FreedomCell(TypedDict):
    """A weight and the interval that it may lie in; with its copies, where there are any."""

    name: str
    weight: float | None
    lower: float
    upper: float
    together: Together | None


class FreedomData(TypedDict):
    """Weights and what they may be."""

    cells: list[FreedomCell]


class Table(TypedDict):
    """Plain values."""

    name: str
    columns: list[str]
    rows: list[list[str | float | bool | None]]


class PlainData(TypedDict):
    """A picture, if there is one, and tables."""

    image: str | None
    tables: list[Table]


#: kind → the shape of its data: all that a page can show. `sections.py` and `static/sections.js` say how.
SHAPES: dict[str, Any] = {
    "attention": AttentionData,
    "map": MapData,
    "structure": MapData,
    "mixture": StripData,
    "token": StripData,
    "score": StripData,
    "head": HeadData,
    "curve": CurveData,
    "freedom": FreedomData,
    "plain": PlainData,
}

#: As SHAPES has them, for type checkers.
SectionData = AttentionData | MapData | StripData | HeadData | CurveData | FreedomData | PlainData
SectionKind = Literal[
    "attention", "map", "structure", "mixture", "token", "score", "head", "curve", "freedom", "plain"
]  # fmt: skip


class SectionHeader(TypedDict):
    """A part of the page."""

    name: Annotated[str, "of this section alone: its element's id, the beginning of its chunks' names"]
    kind: SectionKind
    title: str
    says: Annotated[str, "one sentence"]
    chunks: Annotated[list[str], "named as `data` does; on the page their names are `name.chunk`"]
    data: SectionData


class Header(TypedDict):
    """What a page is made of."""

    format: str
    version: str
    title: str
    subtitle: str
    verdict: list[str]
    notes: list[str]
    live: NotRequired[Annotated[bool, "whether more can be computed for what is looked at, as on a server's page"]]
    sections: list[SectionHeader]
