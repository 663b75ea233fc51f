"""The fields of a whole trace, made when asked for: those of every layer, hidden states, and what they come from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from identiscope.errors import CaptureError, InputError
from identiscope.linalg.agreement import explained_by, relative_errors
from identiscope.methods.attention_runs import AttentionRuns
from identiscope.methods.fields import LayerFields, layer_fields
from identiscope.methods.outcome_runs import Gradients, OutcomeRuns, Values
from identiscope.methods.sides import Side

if TYPE_CHECKING:
    from identiscope.capture import Stream, Trace
    from identiscope.linalg.jacobian.blocks import Blocks
    from identiscope.linalg.parts import StreamParts

#: Fields that are properties of the class below.
_OWN = (
    "embeddings", "replay", "blocks", "parts", "outcome", "answer", "gradient", "relevance_gradient", "baseline",
    "without", "sides", "head_tangents", "attention_runs",
)  # fmt: skip


class OfLayers(Sequence[Any]):
    """A field of every layer, made one layer at a time and not kept: a long text is never held whole."""

    def __init__(self, layers: Sequence[LayerFields], name: str) -> None:
        self._layers, self._name = layers, name

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return OfLayers(self._layers[place], self._name)
        return getattr(self._layers[place], self._name)

    def __iter__(self) -> Iterator[Any]:
        return (getattr(layer, self._name) for layer in self._layers)


@dataclass(frozen=True, eq=False, repr=False)
class TraceFields:
    """The fields of a whole trace, of one of its streams: a sequence of tokens whose attention is to itself.

    summed: the embeddings are the sums of token, segment and position embeddings, before the norm that some models have
    there. fast: look for the model's blocks. given_outcome: what is to be explained, or runs of it to share.
    """

    trace: "Trace"
    stream: "Stream"
    keep_bias: bool = True
    summed: bool = False
    fast: bool = False
    given_outcome: Any = None
    baseline_name: str | None = None

    @cached_property
    def layers(self) -> list[LayerFields]:
        """The fields of every layer in which the stream attends to itself."""
        name = self.stream.name
        own = [site for site in self.trace.sites if site.query_stream == site.key_stream == name]
        if not own:
            raise CaptureError(f"no attention of {name} to itself was captured in this trace.")
        made = [layer_fields(site, self.trace.streams) for site in own]
        return [replace(one, keep_bias=self.keep_bias, runs=self.runs) for one in made]

    def field(self, name: str) -> Any:
        """A field by its name."""
        if name == "hidden_states":
            if not self.stream.hidden_states:
                raise CaptureError(f"no hidden states were captured for {self.stream.name}.")
            return self.stream.hidden_states
        if name == "special_tokens":
            return torch.tensor(self.stream.special, dtype=torch.bool)
        if name in _OWN:
            return getattr(self, name)
        return OfLayers(self.layers, name)

    @cached_property
    def sources(self) -> list["Stream"]:
        """The streams whose embeddings its hidden states come from: its own, after that of the encoder it reads."""
        both = self.stream.name == "decoder" and "encoder" in self.trace.streams
        return [self.trace.streams["encoder"], self.stream] if both else [self.stream]

    @cached_property
    def _given(self) -> list[Tensor]:
        sums = [part.embedding_sum if self.summed else None for part in self.sources]
        given = [part.embeddings if sum_ is None else sum_ for part, sum_ in zip(self.sources, sums, strict=True)]
        widths = {part.shape[1] for part in given}
        if len(widths) > 1:
            raise InputError(f"encoder and decoder have embeddings of widths {sorted(widths)}; one width is needed.")
        return [part.detach() for part in given]

    @property
    def embeddings(self) -> Tensor:
        """What the hidden states come from, [input, model]."""
        return torch.cat(self._given)

    @cached_property
    def replay(self) -> Callable[[Tensor], Sequence[Tensor]]:
        """From such embeddings to the states of the stream: the input, and what each block wrote."""
        whole, name = self.trace.replay, self.stream.name
        sources, lengths = [part.name for part in self.sources], [len(part) for part in self._given]

        def states(embeddings: Tensor) -> Sequence[Tensor]:
            pieces = dict(zip(sources, embeddings.split(lengths), strict=True))
            return whole(pieces, summed=self.summed)[name]

        if self.blocks is None:
            self._check_unchanged(states)
        return states

    def _check_unchanged(self, replay: Callable[[Tensor], Sequence[Tensor]]) -> None:
        """A replay runs the model as it is now, which may not be that of the trace. (Blocks are verified anyway.)"""
        with torch.no_grad():
            now = replay(self.embeddings)
        then = self.stream.hidden_states
        for place, error in enumerate(relative_errors(list(zip(now, then, strict=True)))):
            if not explained_by(error, then[place].dtype):
                where = f"after layer {place - 1}" if place else "at its input"
                raise CaptureError(
                    f"the model was changed since this trace was made: it computes other hidden states {where}. Trace"
                    " the text again."
                )

    @cached_property
    def runs(self) -> OutcomeRuns:
        """What asks the outcome again; nothing is run before it is asked."""
        if isinstance(self.given_outcome, OutcomeRuns):
            return self.given_outcome
        return OutcomeRuns(self.trace, self.sources, self.given_outcome, summed=self.summed)

    @property
    def outcome(self) -> Any:
        """What is explained, which the stream must be read for."""
        outcome = self.runs.outcome
        if outcome.stream != self.stream.name:
            raise InputError(
                f"the outcome ({outcome.name}) is read from {outcome.stream}, not from {self.stream.name}."
            )
        return outcome

    @property
    def answer(self) -> Values:
        """From embeddings to the outcome."""
        return self.runs.values

    @property
    def gradient(self) -> Gradients:
        """From embeddings to the outcome and its derivative."""
        return self.runs.gradients

    @property
    def relevance_gradient(self) -> Gradients:
        """The same by the rules of relevance propagation."""
        return self.runs.relevance

    @property
    def head_tangents(self) -> Callable[[Tensor], Sequence[Tensor]]:
        """From tangents of the embeddings to those of what each head of the stream's own attention returns."""
        sites = [layer.site.index for layer in self.layers]

        def tangents(directions: Tensor) -> Sequence[Tensor]:
            by_site = self.runs.head_tangents(directions)
            return [by_site[index] for index in sites]

        return tangents

    @property
    def without(self) -> Values:
        """From which inputs are kept to the outcome."""
        return self.runs.without

    @cached_property
    def attention_runs(self) -> AttentionRuns:
        """The stream's own attention, put back into the running model."""
        name, outcome = f"attention of {self.stream.name}", self.outcome
        kept: AttentionRuns = self.runs.kept.setdefault(name, AttentionRuns(self.runs, self.layers, outcome))
        return kept

    @cached_property
    def _baseline(self) -> tuple[Tensor, str]:
        return self.runs.baseline(self.baseline_name)

    @property
    def baseline(self) -> Tensor:
        """Embeddings of tokens that say nothing, [input, model]."""
        return self._baseline[0]

    @property
    def baseline_in_words(self) -> str:
        """What stands for a token."""
        return self._baseline[1]

    @property
    def parts(self) -> "StreamParts":
        """What each layer adds to the stream."""
        return self.trace.parts(self.stream.name)

    @cached_property
    def sides(self) -> list[Side]:
        """The stream's layers, after those of the encoder that it reads, if it reads one."""
        return [self._side(source) for source in self.sources]

    def _side(self, source: "Stream") -> Side:
        own = self if source is self.stream else replace(self, stream=source)
        cross = [
            layer_fields(site, self.trace.streams)
            for site in self.trace.sites
            if site.query_stream == source.name and site.key_stream != source.name
        ]
        return Side(own.layers, self.trace.parts(source.name), cross)

    @property
    def blocks(self) -> "Blocks | None":
        """The replay as blocks of known structure, where they are looked for and recognised."""
        return self._recognised[0]

    @property
    def why_replay(self) -> str:
        """Why there are no blocks; empty where there are."""
        return self._recognised[1]

    @cached_property
    def _recognised(self) -> "tuple[Blocks | None, str]":
        if not self.fast:
            return None, "not asked for"
        if len(self.sources) > 1:
            return None, "several streams"
        recognised = self.trace.blocks(self.stream.name, summed=self.summed)
        return recognised.blocks, recognised.reason


def runs_of(trace: "Trace", given: Any) -> OutcomeRuns:
    """What asks an outcome again; given: the outcome, or runs to share.

    Its inputs are those of the stream that it is read from: of an encoder–decoder a similarity is the encoder's alone.
    """
    if isinstance(given, OutcomeRuns):
        return given
    runs = OutcomeRuns(trace, (), given)
    runs.sources = TraceFields(trace, trace.streams[runs.outcome.stream]).sources
    return runs


def chosen_stream(trace: "Trace", name: str | None) -> "Stream":
    """The stream of that name; the decoder's by default if there is one, or else the first."""
    names = list(trace.streams)
    chosen = ("decoder" if "decoder" in names else names[0]) if name is None else name
    if chosen not in names:
        raise InputError(f"stream {chosen!r} was asked for; this model has {', '.join(names)}.")
    return trace.streams[chosen]
