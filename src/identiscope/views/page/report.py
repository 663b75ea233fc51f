"""One HTML file that holds everything: no network, no other file, and a policy that forbids both."""

import base64
import hashlib
import json
from html import escape
from pathlib import Path

import numpy as np

from identiscope.files import write_file
from identiscope.views.page.bundle import report_script, static
from identiscope.views.page.data import Page

#: The characters of the text form of bytes, in order; `static/decode.js` has the same.
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+-;=?@^_`{|}~.,:"


def page_html(page: Page) -> str:
    """The page as one HTML text.

    Scripts and styles are allowed by their hashes only, so that no token, however written, can become one; and
    nothing may be fetched from anywhere.
    """
    script, style = report_script(), static("viewer.css") + "body{margin:0}"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src blob: data:",
            "worker-src blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    chunks = "\n".join(
        f'<script type="text/plain" id="chunk-{escape(name)}">{to_text(data)}</script>'
        for name, data in page.chunks.items()
    )
    parts = {
        "policy": policy,
        "title": escape(f"{page.header['title']} · identiscope"),
        "style": style,
        "header": header_json(page),
        "chunks": chunks,
        "script": script,
    }
    # Not str.format, which would look for braces in scripts; and piece by piece, so that no part is looked into.
    text, pieces = static("page.html"), []
    for name, part in parts.items():
        before, _, text = text.partition("{" + name + "}")
        pieces += [before, part]
    return "".join([*pieces, text])


def write_report(page: Page, path: str | Path) -> Path:
    """Write the page to one HTML file."""
    return write_file(path, page_html(page).encode("utf-8"))


def header_json(page: Page) -> str:
    """The header as JSON that HTML leaves alone: no `<` in it, and no lone surrogate that UTF-8 cannot write."""
    text = json.dumps(page.header, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return safe.encode("utf-8", "replace").decode("utf-8")


def to_text(data: bytes) -> str:
    """Bytes as characters: their number, a blank, then five characters for every four.

    >>> to_text(bytes(4))
    '4 00000'
    """
    padded = np.frombuffer(data + bytes(-len(data) % 4), dtype=">u4").astype(np.uint32)
    letters = np.frombuffer(ALPHABET.encode("ascii"), dtype=np.uint8)
    digits = np.empty((len(padded), 5), dtype=np.uint8)
    for place in range(4, -1, -1):
        padded, rest = np.divmod(padded, np.uint32(85))
        digits[:, place] = letters[rest]
    return f"{len(data)} {digits.tobytes().decode('ascii')}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
