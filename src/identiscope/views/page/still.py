"""A page without JavaScript: what a notebook that was exported to HTML shows in place of the viewer."""

import math
import zlib
from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from identiscope.token_text import shown_token
from identiscope.views.page.data import Page
from identiscope.views.page.matrices import NO_NUMBER
from identiscope.views.page.packing import Array, from_levels
from identiscope.views.page.shapes import Described

#: Rows and columns of a table, and words of a text, that are written out.
_MOST_ROWS, _MOST_COLUMNS, _MOST_WORDS = 60, 40, 600

_BOX = "border:1px solid #d9dee5;border-radius:10px;padding:12px 16px;margin:8px 0;font:14px system-ui,sans-serif"
_FAINT = "color:#56606e"
_WHOLE = "The viewer shows all of it where the notebook runs; identiscope.report writes it to a file of its own."


def still_html(page: Page, name: str) -> str:
    """Title, verdict, and of each section a picture or a table; name: by which the live viewer finds and hides it."""
    header = page.header
    parts = [f"<h3>{escape(header['title'])}</h3>", f'<p style="{_FAINT}">{escape(header["subtitle"])}</p>']
    parts += [f"<p>{escape(sentence)}</p>" for sentence in header["verdict"]]
    for section in header["sections"]:
        data: Any = section["data"]
        if section["kind"] in _PACKED:
            chunk = data["chunk"] if "chunk" in data else data["layers"][0]["chunk"]
            shown = _PACKED[section["kind"]](data, zlib.decompress(page.chunks[f"{section['name']}.{chunk}"], 31))
        else:
            shown = _SHOWN[section["kind"]](data)
        parts.append(f"<h4>{escape(section['title'])}</h4><p>{escape(section['says'])}</p>{shown}")
    return f'<div data-identiscope-still="{escape(name)}" style="{_BOX}">{"".join(parts)}</div>'


def _attention(data: Any) -> str:
    tokens = [escape(shown_token(token)) for token in data["tokens"]["queries"][:_MOST_WORDS]]
    layers = data["layers"]
    heads = sorted({head for layer in layers for head in layer["heads"]})
    rows = []
    for layer in layers:
        shares = dict(zip(layer["heads"], layer["simplex_null_share"], strict=True))
        rows.append([layer["layer"], *(None if shares.get(head) is None else 1 - shares[head] for head in heads)])
    told = "Each number is a head: how much of its attention is real (1 minus the null share)."
    return f'<p>{" ".join(tokens)}</p>{_picture(heads, rows)}<p style="{_FAINT}">{told}</p>' + _table(
        ["layer", *map(str, heads)], rows
    )


def _picture(columns: list[Any], rows: list[list[Any]], says: str = "heads by how much of them is real") -> str:
    """A square for each number of each row behind its name, as SVG."""
    size = 26
    left = 34 + 7 * max((len(str(name)) - 3 for name, *_ in rows), default=0)
    squares = [
        f'<rect x="{left + column * size}" y="{row * size}" width="{size - 2}" height="{size - 2}" rx="4"'
        f' fill="{_blue(value)}"/>'
        for row, (_, *values) in enumerate(rows)
        for column, value in enumerate(values)
    ]
    names = [
        f'<text x="{left - 8}" y="{row * size + 17}" text-anchor="end" font-size="11" fill="#56606e">'
        f"{escape(str(line[0]))}</text>"
        for row, line in enumerate(rows)
    ]
    width, height = left + 2 + size * len(columns), size * len(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"'
        f' aria-label="{escape(says)}">{"".join([*squares, *names])}</svg>'
    )


def _blue(value: float | None) -> str:
    if value is None:
        return "#e3e3e3"
    start, end = (0xEE, 0xF0, 0xF3), (0x14, 0x50, 0x8F)
    share = min(max(value, 0.0), 1.0)
    return "#" + "".join(f"{round(low + share * (high - low)):02x}" for low, high in zip(start, end, strict=True))


def _heads(data: Any) -> str:
    parts = []
    for column in data["columns"]:
        rows = [[layer, *values] for layer, values in zip(data["layers"], column["values"], strict=True)]
        parts.append(f"<p>{escape(column['meaning'])}</p>" + _table(["layer", *map(str, data["heads"])], rows))
    return "".join(parts)


def _curve(data: Any) -> str:
    rows = [[name, *values] for name, values in zip(data["names"], data["rate"], strict=True)]
    return _table(["", *map(str, data["layers"])], rows)


def _freedom(data: Any) -> str:
    rows = [[cell["name"], cell["weight"], cell["lower"], cell["upper"]] for cell in data["cells"]]
    return _table(["weight of", "weight", "lower", "upper"], rows)


def _plain(data: Any) -> str:
    image = data["image"]
    picture = f'<img alt="" style="max-width:100%" src="{escape(image)}">' if image else ""
    return picture + "".join(_table(one["columns"], one["rows"]) for one in data["tables"])


def _strips(data: Any, chunk: bytes) -> str:
    """Rows over the text: of the first word, where each word has some."""
    parts = []
    for variable in data["variables"]:
        # Scores of one outcome have no axis for it.
        values = _unpacked(variable["values"], chunk).reshape(-1, len(data["rows"]), len(data["columns"]))[0]
        whose = "" if data["words"] is None else f" of {shown_token(data['words'][0])}"
        told = f"{variable['name'].replace('_', ' ')}{whose}, by {data['axes'][0].replace('_', ' ')}"
        parts.append(f"<p>{escape(told)}</p>" + _grid(values, data["rows"], data["columns"]))
    return "".join(parts) + f'<p style="{_FAINT}">{_WHOLE}</p>'


def _matrix(data: Any, chunk: bytes) -> str:
    """The matrix of the first layer and head."""
    first = data["layers"][0]
    codes = _unpacked(first["cells"], chunk)
    codes = codes.reshape(-1, *codes.shape[-2:])[0]
    values = np.where(codes == NO_NUMBER, np.nan, from_levels(codes, data["levels"]) * data["peak"])
    where = [] if first["layer"] is None else [f"layer {first['layer']}"]
    where += [f"head {first['heads'][0]}"] if first["heads"] else []
    told = ", ".join([data["variable"].replace("_", " "), *where])
    grid = _grid(values, data["rows"], data["columns"])
    return f'<p>{escape(told)}</p>{grid}<p style="{_FAINT}">{_WHOLE}</p>'


def _unpacked(described: Described, chunk: bytes) -> Array:
    """An array of a chunk, as `packing.Chunk` wrote it."""
    shape, start = described["shape"], described["offset"]
    count = math.prod(shape)
    if described["kind"] == "float32":
        return np.frombuffer(chunk, "<f4", count, start).reshape(shape).astype(np.float64)
    low, high = np.frombuffer(chunk, np.uint8, 2 * count, start).reshape(2, count).astype(np.int32)
    coded = low | high << 8
    numbers: Array = (coded >> 1 ^ -(coded & 1)).reshape(shape)
    return numbers


def _grid(values: Array, rows: list[Any], columns: list[Any]) -> str:
    """Numbers as a picture and as a table, as far as both can be read."""
    cells = values[:_MOST_ROWS, :_MOST_COLUMNS].tolist()
    top = max((abs(one) for row in cells for one in row if one == one), default=0.0) or 1.0
    named = [shown_token(name) for name in columns[:_MOST_COLUMNS]]
    lines = [[shown_token(name), *row] for name, row in zip(rows, cells, strict=False)]
    shades = [[name, *(None if one != one else abs(one) / top for one in row)] for name, *row in lines]
    picture = _picture(named, shades, "strength of each number")
    more = len(columns) - len(named)
    told = f'<p style="{_FAINT}">and {more} more columns</p>' if more > 0 else ""
    return (
        picture
        + _table(["", *named], [[name, *(None if one != one else one for one in row)] for name, *row in lines])
        + told
    )


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row)}</tr>" for row in rows[:_MOST_ROWS]
    )
    more = f'<p style="{_FAINT}">and {len(rows) - _MOST_ROWS} more rows</p>' if len(rows) > _MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


_SHOWN: dict[str, Callable[[Any], str]] = {
    "attention": _attention,
    "head": _heads,
    "curve": _curve,
    "freedom": _freedom,
    "plain": _plain,
}
_PACKED: dict[str, Callable[[Any, bytes], str]] = {
    **dict.fromkeys(("mixture", "token", "score"), _strips),
    **dict.fromkeys(("map", "structure"), _matrix),
}
