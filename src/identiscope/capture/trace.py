"""What one forward pass showed: tokens, hidden states, and every attention call, immutable and verified."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor, nn

from identiscope.capture.batch import Batch
from identiscope.capture.models import Model
from identiscope.capture.replay import Replay, make_replay
from identiscope.capture.site import Site, SiteCheck
from identiscope.capture.words import as_html, precision_in_words, shape_in_words
from identiscope.errors import CaptureError, InputError

if TYPE_CHECKING:
    from identiscope.capture.blocks import RecognisedBlocks
    from identiscope.capture.outcome.outcome import Outcome
    from identiscope.capture.runner import Runner
    from identiscope.linalg.parts import StreamParts


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """One sequence of positions: its tokens and its hidden states.

    `embeddings` [n, d] is what the first layer reads. `embedding_sum` is the sum of token, segment and
    position embeddings before the norm that some models (BERT) put in between; elsewhere the same.
    `hidden_states` holds `embeddings` and the output of every layer; as in transformers, the last one is
    after the final norm in models that have one.
    """

    name: str
    tokens: tuple[str, ...]
    ids: tuple[int, ...] | None
    offsets: tuple[tuple[int, int], ...] | None
    special: tuple[bool, ...]
    hidden_states: tuple[Tensor, ...]
    embedding_sum: Tensor | None
    cut: int = 0

    @property
    def embeddings(self) -> Tensor:
        """What the first layer reads, [n, d]."""
        if not self.hidden_states:
            raise CaptureError(f"no hidden states were captured for {self.name}.")
        return self.hidden_states[0]

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        parts = [f"{len(self)} positions" if self.ids is None else f"{len(self)} tokens, {sum(self.special)} special"]
        if self.cut:
            parts.append(f"{self.cut} cut")
        if self.hidden_states:
            state = self.hidden_states[-1]
            parts.append(f"{len(self.hidden_states)} hidden states of width {state.shape[-1]}")
            parts.append(precision_in_words(state.dtype))
        return f"Stream({self.name!r}, {', '.join(parts)})"

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.tokens)


@dataclass(frozen=True, repr=False)
class Verification:
    """How the capture compares with what the model returned: per site, and in the number of sites."""

    sites: tuple[SiteCheck, ...]
    recorded: int
    expected: int

    @property
    def verified(self) -> bool:
        """Whether there was something to check, and every check passed."""
        return self.recorded == self.expected > 0 and bool(self.sites) and all(site.verified for site in self.sites)

    @property
    def precision(self) -> str:
        """The coarsest precision that any site was computed in, as its error tells."""
        order = ("none", "bfloat16", "float16", "float32", "float64")
        return min((site.precision for site in self.sites), key=order.index, default="none")

    @property
    def error(self) -> float:
        """The largest relative error of any site."""
        return max((site.error for site in self.sites), default=float("nan"))

    def __repr__(self) -> str:
        if self.error != self.error:
            return "Verification(not verified: there is nothing to compare with)"
        good = sum(site.verified for site in self.sites)
        seen = f"{self.recorded} of {self.expected} attention calls seen"
        said = f"{'verified' if self.verified else 'NOT verified'}: {good} of {len(self.sites)} sites"
        return f"Verification({said}, largest error {self.error:.0e}, {precision_in_words(self.precision)}; {seen})"

    def _repr_html_(self) -> str:
        head = ("layer", "kind", "heads", "queries × keys", "mask", "check", "compared with")
        rows = [
            (
                site.layer,
                site.kind,
                site.heads,
                shape_in_words((site.queries, site.keys)),
                site.mask,
                site.in_words,
                site.compared_with,
            )
            for site in self.sites
        ]
        return as_html(repr(self), table=[head, *rows])


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """What one forward pass on one text showed.

    >>> trace = identiscope.trace(model, "The cat sat.")
    >>> trace.tokens, trace.site(layer=2).attention(head=5)
    """

    model: Model | None
    streams: Mapping[str, Stream]
    sites: tuple[Site, ...]
    logits: Tensor | None
    recorded: int
    expected: int
    batch: Batch | None = None
    norms: Mapping[str, nn.Module] = field(default_factory=dict)
    _parts: "dict[str, StreamParts]" = field(default_factory=dict, init=False)

    @property
    def main(self) -> Stream:
        """The stream the text was given to."""
        return next(iter(self.streams.values()))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the text."""
        return self.main.tokens

    @property
    def embeddings(self) -> Tensor:
        """What the first layer reads, [n, d]."""
        return self.main.embeddings

    @property
    def hidden_states(self) -> tuple[Tensor, ...]:
        """The input embeddings and the output of every layer."""
        return self.main.hidden_states

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention in this trace, in order of appearance."""
        return tuple(dict.fromkeys(site.kind for site in self.sites))

    def site(self, layer: int, attention: str | None = None, stream: str | None = None) -> Site:
        """The attention call of a layer, counted from 0; attention or stream say which, if the model has several."""
        sites = [
            site
            for site in self.sites
            if site.layer == layer and attention in (None, site.kind) and stream in (None, site.query_stream)
        ]
        if len(sites) == 1:
            return sites[0]
        have = sorted({(site.kind, site.query_stream, site.layer) for site in self.sites})
        if not sites:
            raise InputError(
                f"no captured layer {layer} of {attention or 'any'} attention; captured (attention, stream, layer):"
                f" {have}."
            )
        raise InputError(f"layer {layer} has several attentions; say which (attention or stream): {have}.")

    def verify(self) -> Verification:
        """Rebuild every captured site's output in full and compare it with what the model returned."""
        return Verification(tuple(site.verify() for site in self.sites), self.recorded, self.expected)

    @cached_property
    def replay(self) -> Replay:
        """The model as a function from input embeddings to the hidden states of all layers, on this text."""
        if self.model is None or self.batch is None:
            raise CaptureError("a trace made from arrays has no model to replay.")
        states = {name: stream.hidden_states for name, stream in self.streams.items() if stream.hidden_states}
        if not states:
            raise CaptureError(f"{self.model.name} shows no hidden states to replay.")
        return make_replay(self.model, self.batch, states, self.norms)

    def blocks(self, stream: str | None = None, *, summed: bool = False) -> "RecognisedBlocks":
        """The layers of a stream as blocks of known structure, verified against the replay, or why there are none.

        summed: for inputs that are the sum of embeddings before the embedding norm.
        """
        from identiscope.capture.blocks import find_blocks

        return find_blocks(self, None if stream is None else self._stream(stream).name, summed=summed)

    def parts(self, stream: str | None = None) -> "StreamParts":
        """What each layer of a stream adds to it, part by part, found in the running model and verified there."""
        from identiscope.capture.anatomy import parts_or_error

        name = self.main.name if stream is None else stream
        if name not in self._parts:
            self._parts[name] = parts_or_error(self, self._stream(name))
        return self._parts[name]

    def _stream(self, name: str) -> Stream:
        if name not in self.streams:
            raise InputError(f"stream={name!r} was given; this trace has {', '.join(self.streams)}.")
        return self.streams[name]

    def with_attention(self, maps: Mapping[int, Tensor]) -> "Trace":
        """The same pass as it would look with other maps [head, query, key] at some sites, by their number.

        Nothing is run: what heads returned stays, so these have to be maps that give the same.
        """
        sites = tuple(replace(site, given=maps.get(site.index, site.given)) for site in self.sites)
        other = replace(self, sites=sites)
        other._parts.update(self._parts)
        return other

    def outcome(self, outcome: str | int | Callable[..., Tensor] | None = None) -> "Outcome":
        """A number that the model gives for this text, in words (a word, a class, `A-B`, `similarity:TEXT`), or by a
        function of what a run returns; without, the usual one of such a model.

        >>> trace.outcome("Paris").value
        """
        from identiscope.capture.outcome.finding import find_outcome

        return find_outcome(self, outcome)

    def runner(self) -> "Runner":
        """The model on this text as a function of embeddings and attention, that counts its passes."""
        from identiscope.capture.runner import Runner

        return Runner(self)

    def __repr__(self) -> str:
        name = "arrays" if self.model is None else self.model.name
        heads = sum(len(site.heads) for site in self.sites)
        return f"Trace({name!r}, {len(self.main)} tokens, {len(self.sites)} attention sites, {heads} heads)"

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.tokens)
