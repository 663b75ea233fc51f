"""How the objects of this package show themselves: a line of text, and the same as HTML in a notebook."""

from collections.abc import Iterable, Sequence
from html import escape

import torch

from identiscope.token_text import shown_token

TOKENS_SHOWN = 64


def precision_in_words(precision: torch.dtype | str) -> str:
    """`float32`; half precision is called what it is."""
    name = str(precision).removeprefix("torch.")
    return f"half precision ({name})" if name in ("float16", "bfloat16") else name


def heads_in_words(chosen: Sequence[int], count: int) -> str:
    """`12 heads`, or which of them."""
    if len(chosen) == count:
        return f"{count} head{'s' * (count != 1)}"
    return f"head{'s' * (len(chosen) != 1)} {', '.join(map(str, chosen))} of {count}"


def shape_in_words(shape: Iterable[int]) -> str:
    """`138 × 384`."""
    return " × ".join(map(str, shape))


def as_html(summary: str, tokens: Sequence[str] = (), table: Sequence[Sequence[object]] = ()) -> str:
    """A line in bold, then tokens, then a table whose first row is its heading."""
    parts = [f"<p><b>{escape(summary)}</b></p>"]
    if tokens:
        words = " ".join(f"<code>{escape(shown_token(token))}</code>" for token in tokens[:TOKENS_SHOWN])
        more = f" … {len(tokens)} in all" if len(tokens) > TOKENS_SHOWN else ""
        parts.append(f"<p>{words}{more}</p>")
    if table:
        head, *rows = ("".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row) for tag, row in _tagged(table))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return "".join(parts)


def _tagged(table: Sequence[Sequence[object]]) -> Iterable[tuple[str, Sequence[object]]]:
    return (("td" if number else "th", row) for number, row in enumerate(table))
