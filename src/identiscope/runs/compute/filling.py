"""How the columns of a method are filled: from attention calls or hidden states of a batch, or from traces of texts.

All columns are filled in float64; layers are blocks, from 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor

from identiscope.capture.streams import Place
from identiscope.capture.trace import Trace
from identiscope.capture.watch.calls import Call
from identiscope.linalg.rank.full_rank import HeadProducts
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.format.statistics import Column
from identiscope.runs.format.tables import Table

Filled = Mapping[str, Tensor]


class FillsFromCall(Protocol):
    """What fills columns from one attention call of a batch, as the model makes it."""

    def __call__(
        self, call: Call, place: Place, tokens: BatchTokens, layer: HeadProducts, heads: Sequence[int] | None = None
    ) -> Filled:
        """Columns [text, head]. layer: products of its output projection, the same for all batches."""


class FillsFromStates(Protocol):
    """What fills columns from the hidden states of a batch."""

    def __call__(self, states: Sequence[Sequence[Tensor]]) -> Filled:
        """Columns [text, layer]. states[text]: the input embeddings [token, channel], then what each layer wrote."""


class FillsFromTrace(Protocol):
    """What fills columns from one trace of a text; several such methods see the same trace."""

    def __call__(
        self, trace: Trace, layers: Sequence[int], heads: Sequence[int], *, probes: int, seed: int,
        settings: Mapping[str, Any],
    ) -> Filled:  # fmt: skip
        """Columns [layer], or [layer, head], of these. probes, seed: options of the Run, for who estimates.

        settings: options of the method itself.
        """


class FillsFromInputs(Protocol):
    """What fills a row for each token of a text, from a trace of it."""

    def __call__(self, trace: Trace, *, seed: int, settings: Mapping[str, Any]) -> Mapping[str, NDArray[Any]]:
        """Columns [token], and what is said in words."""


@dataclass(frozen=True)
class FromCall:
    """A method that is filled from every attention call of a batch."""

    fill: FillsFromCall


@dataclass(frozen=True)
class FromStates:
    """A method that is filled from the hidden states of a batch."""

    fill: FillsFromStates


@dataclass(frozen=True)
class FromTrace:
    """A method that is filled from a trace of each text by itself; these take by far the longest."""

    fill: FillsFromTrace


@dataclass(frozen=True)
class FromInputs:
    """A method that has a row for each token, filled from a trace of each text by itself."""

    fill: FillsFromInputs


@dataclass(frozen=True)
class RunMethod:
    """One method: the axes of its table after `text`, its columns, and what fills them.

    can_be_set: whether its own options can be given.
    """

    axes: tuple[str, ...]
    columns: tuple[Column, ...]
    filled: FromCall | FromStates | FromTrace | FromInputs
    can_be_set: bool = False

    @property
    def table(self) -> Table:
        """What the manifest says of it."""
        return Table(self.axes, self.columns)


PER_HEAD = ("layer", "head")
PER_LAYER = ("layer",)
