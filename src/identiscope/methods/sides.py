"""One side of a model, encoder or decoder, as the decompositions read it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from identiscope.linalg.parts import StreamParts


@dataclass(frozen=True, eq=False)
class Side:
    """The layers of one stream: attention, value and projection of each (`layers`), what each adds to the stream
    (`parts`), and those of its attention to another stream (`cross`), if it has any."""

    layers: Sequence[Any]
    parts: StreamParts
    cross: Sequence[Any] = field(default_factory=list)
