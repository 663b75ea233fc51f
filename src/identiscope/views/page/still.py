"""A page without JavaScript: what a notebook that was exported to HTML shows in place of the viewer."""

from html import escape
from typing import Any

from identiscope.token_text import shown_token
from identiscope.views.page.data import Page

#: Rows of a table, and words of a text, that are written out.
_MOST_ROWS, _MOST_WORDS = 60, 600

_BOX = "border:1px solid #d9dee5;border-radius:10px;padding:12px 16px;margin:8px 0;font:14px system-ui,sans-serif"
_FAINT = "color:#56606e"
_LATER = "The viewer shows this where the notebook runs; identiscope.report writes it to a file of its own."


def still_html(page: Page, name: str) -> str:
    """Title, verdict, and of each section a picture or a table; name: by which the live viewer finds and hides it."""
    header = page.header
    parts = [f"<h3>{escape(header['title'])}</h3>", f'<p style="{_FAINT}">{escape(header["subtitle"])}</p>']
    parts += [f"<p>{escape(sentence)}</p>" for sentence in header["verdict"]]
    for section in header["sections"]:
        shown = _SHOWN.get(section["kind"], _later)(section["data"])
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


def _picture(heads: list[int], rows: list[list[Any]]) -> str:
    """A square for each head, as SVG."""
    size = 26
    squares = [
        f'<rect x="{34 + column * size}" y="{row * size}" width="{size - 2}" height="{size - 2}" rx="4"'
        f' fill="{_blue(value)}"/>'
        for row, (_, *values) in enumerate(rows)
        for column, value in enumerate(values)
    ]
    names = [
        f'<text x="26" y="{row * size + 17}" text-anchor="end" font-size="11" fill="#56606e">'
        f"{escape(str(line[0]))}</text>"
        for row, line in enumerate(rows)
    ]
    width, height = 36 + size * len(heads), size * len(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"'
        f' aria-label="heads by how much of them is real">{"".join([*squares, *names])}</svg>'
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


def _later(data: Any) -> str:
    return f'<p style="{_FAINT}">{_LATER}</p>'


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row)}</tr>" for row in rows[:_MOST_ROWS]
    )
    more = f'<p style="{_FAINT}">and {len(rows) - _MOST_ROWS} more rows</p>' if len(rows) > _MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


_SHOWN = {"attention": _attention, "head": _heads, "curve": _curve, "freedom": _freedom, "plain": _plain}
