"""The hash of texts: which corpus a Run was begun with, and which texts a shard was made of."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Protocol


class Hashable(Protocol):
    """A text as far as its hash goes: its part, or the two of a pair, and its label."""

    @property
    def parts(self) -> Sequence[str]:
        """One, or two."""

    @property
    def label(self) -> str | None:
        """If it has one."""


def text_hash(texts: Iterable[Hashable], before: "hashlib._Hash | None" = None) -> "hashlib._Hash":
    """A hash of texts with their labels, and of those before them."""
    read = hashlib.sha256() if before is None else before
    for text in texts:
        read.update(text_json(text))
    return read


def text_json(text: Hashable) -> bytes:
    """A text as it is hashed."""
    return json.dumps([text.parts, text.label], ensure_ascii=False).encode("utf-8", "surrogatepass")
