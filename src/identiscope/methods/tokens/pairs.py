"""Pairs of hidden state and target that probes learn from, read a batch at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.tokens.neighbours import Lookup, Metric, equal_vectors, make_lookup
from identiscope.methods.tokens.sentences import Sentences, Split


@dataclass(frozen=True, eq=False)
class Pairs:
    """Hidden states by layer, and their targets: by layer, or one array for all.

    states, targets: arrays [all tokens, channel], which may be memory-mapped. offset: the target of a token is that
    of the token so many places further on in its sentence; tokens without one are left out.
    """

    states: Sequence[Tensor]
    targets: Sequence[Tensor]
    sentences: Sentences
    offset: int = 0
    _equal: dict[int, Tensor] = field(default_factory=dict)
    _lookups: dict[tuple[int, int, Metric], list[tuple[Tensor, Lookup]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.states or len(self.targets) not in (1, len(self.states)):
            raise InputError(
                f"{len(self.states)} layers and {len(self.targets)} targets were given; expected at least one layer,"
                " and one target for all or one for each."
            )
        for array in (*self.states, *self.targets):
            if array.dim() != 2 or array.shape[0] != self.sentences.tokens:
                raise InputError(
                    f"an array of shape {tuple(array.shape)} was given for {self.sentences.tokens} tokens; expected"
                    " [token, channel]."
                )

    def target(self, layer: int) -> Tensor:
        """The targets of a layer."""
        return self.targets[layer if len(self.targets) > 1 else 0]

    def train_rows(self, split: Split) -> Tensor:
        """The rows of the training sentences that have a target."""
        return self.sentences.rows_with_target(split.train, self.offset)

    def batches(self, layer: int, rows: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Hidden states and targets of these rows, a batch at a time."""
        for batch in rows.split(size):
            yield (
                self.states[layer].index_select(0, batch),
                self.target(layer).index_select(0, batch + self.offset),
            )

    def lookups(self, layer: int, chosen: Tensor, metric: Metric) -> Iterator[tuple[Tensor, Lookup]]:
        """Rows and lookups of the chosen sentences among this layer's targets, a part at a time."""
        target = self.target(layer)
        own = layer if len(self.targets) > 1 else 0
        if own not in self._equal:
            self._equal[own] = equal_vectors(target, self.sentences)
        for part in self.sentences.parts(chosen):
            lookup = make_lookup(
                target, self.sentences, part, metric=metric, offset=self.offset, equal=self._equal[own]
            )
            yield self.sentences.rows(part), lookup

    def kept_lookups(self, layer: int, fold: int, chosen: Tensor, metric: Metric) -> list[tuple[Tensor, Lookup]]:
        """The same, made once for a fold and kept: they hold row numbers, not vectors."""
        key = (layer if len(self.targets) > 1 else 0, fold, metric)
        if key not in self._lookups:
            self._lookups[key] = list(self.lookups(layer, chosen, metric))
        return self._lookups[key]
