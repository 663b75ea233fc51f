"""A traced model as a function that is asked again and again: from other embeddings, or with other attention.

`Replay` runs the model once from embeddings of one text, for derivatives of any mode. A runner serves the methods that
ask many times: several embeddings at once, logits too, attention by a rule; and it counts what it did.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from identiscope.capture.experts import PlainExperts
from identiscope.capture.forward import Forward, forward, try_forward
from identiscope.capture.head_runs import HeadRuns
from identiscope.capture.layer_states import Change, LayerStates
from identiscope.capture.norms import EmbeddingNorms
from identiscope.capture.outcome.outcome import Outcome, Seen
from identiscope.capture.perturbing import baseline_of, filler_of, ids_argument, shortened, with_ids
from identiscope.capture.relevance import relevance_rules
from identiscope.capture.streams import MAIN
from identiscope.capture.twin import twin
from identiscope.capture.watch.calls import Call, Rule
from identiscope.capture.watch.kernel import repeat_heads
from identiscope.capture.watch.trying import first_tensor
from identiscope.capture.watch.watching import watching
from identiscope.errors import CaptureError
from identiscope.linalg.devices import wide
from identiscope.linalg.jacobian.forward_mode import push_together

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace

#: Positions that run at a time: several texts at once are faster than one after the other, until memory is far away.
POSITIONS = 4096


@dataclass(frozen=True, eq=False)
class AttentionSlopes:
    """∂outcome/∂A of the attention calls of one text, made when asked for: what is kept is no n×n map.

    by_call: what was found at each call: the derivative G by what its kernel returned, [1, head, query, channel], and
    the values [1, kv_head, key, channel], of which ∂outcome/∂A = G·Vᵀ; or that by the maps themselves, and None.
    """

    by_call: Mapping[int, tuple[Tensor, Tensor | None]]
    home: torch.device

    def of(self, index: int) -> Tensor:
        """Of one call, by its number: [head, query, key] in float64."""
        slope, value = self.by_call[index]
        if value is not None:
            slope = wide(slope) @ repeat_heads(wide(value), slope.shape[1]).mT
        return slope[0].to(self.home)


class Runner:
    """The model of a trace on its text, from embeddings to what it returns.

    >>> run = Runner(trace)
    >>> run({"tokens": torch.stack([x, 2 * x])}).logits      # of two texts

    passes: how many texts went through the model, backward passes counting twice. One thread at a time may use it.
    """

    def __init__(self, trace: "Trace") -> None:
        if trace.model is None or trace.batch is None:
            raise CaptureError("a trace made from arrays has no model to run.")
        replay = trace.replay
        self.trace, self.model, self.arguments = trace, trace.model, trace.batch.arguments
        self.lengths = {stream: shape[0] for stream, shape in replay.shapes.items()}
        self.passes = 0.0
        self._twin = twin(trace.model)
        self._entries = {
            (self._twin.copies[module], number): stream
            for stream, entries in replay.entries.items()
            for module, number in entries
        }
        self._norms = {stream: self._twin.copies[norm] for stream, norm in replay.norms.items()}
        self._inputs: Mapping[str, Tensor] = {}
        self._counts: dict[nn.Module, int] = {}
        for module in {module for module, _ in self._entries}:
            module.register_forward_pre_hook(self._enter, with_kwargs=True)

    @property
    def at_a_time(self) -> int:
        """How many texts of this length run at once; of a model that finds the end of a text by its padding token and
        has none, as classifiers of causal models do, one."""
        logits, padding = self.trace.logits, getattr(self.model.config, "pad_token_id", None)
        causal = any(site.kind == "decoder-self" for site in self.trace.sites)
        if logits is not None and logits.dim() == 1 and causal and padding is None:
            return 1
        return max(1, POSITIONS // max(1, sum(self.lengths.values())))

    def __call__(self, embeddings: Mapping[str, Tensor], *, rule: Rule | None = None, summed: bool = False) -> Forward:
        """What the model returns for input embeddings [text, token, model] of some or all streams.

        rule: how attention is computed. summed: the embeddings are sums before the norm that some models have there.
        """
        given = {name: x.to(self.model.device) for name, x in embeddings.items()}
        if summed:
            given = {name: self._norms[name](x) if name in self._norms else x for name, x in given.items()}
        size = len(next(iter(given.values())))
        arguments = {name: value.repeat(size, *[1] * (value.dim() - 1)) for name, value in self.arguments.items()}
        self._inputs, self._counts = given, {}
        self.passes += size
        ruled: Any = nullcontext() if rule is None else watching(self._twin.module, rule=rule)
        try:
            with PlainExperts(), ruled:
                return try_forward(self._twin, arguments)
        finally:
            self._inputs, self._counts = {}, {}

    def with_last_states(self, embeddings: Mapping[str, Tensor]) -> Forward:
        """The same, its last states being those that logits are made of: XLNet reports a copy beside them."""
        returned: list[Any] = []
        body = getattr(self._twin.inner, "base_model", self._twin.inner)
        handle = body.register_forward_hook(lambda module, args, output: returned.append(first_tensor(output)))
        try:
            made = self(embeddings)
        finally:
            handle.remove()
        states = made.hidden_states.get(MAIN)
        last = returned[-1] if returned else None
        if not states or last is None or last is states[-1] or not torch.equal(last, states[-1]):
            return made
        return Forward(made.logits, {**made.hidden_states, MAIN: (*states[:-1], last)})

    def outcomes(
        self,
        outcome: Outcome,
        embeddings: Mapping[str, Tensor],
        *,
        rule: Rule | None = None,
        summed: bool = False,
    ) -> Tensor:
        """The outcome of each of several texts, in float64, where the embeddings are."""
        home = next(iter(embeddings.values())).device
        return outcome.of(Seen(self(embeddings, rule=rule, summed=summed))).to(home)

    def with_states(self, outcome: Outcome, embeddings: Mapping[str, Tensor], change: Change) -> Tensor:
        """The outcome of each of several texts where what every layer returns goes through a function."""
        with LayerStates(self._twin.module, [site.name for site in self.trace.sites], change):
            return self.outcomes(outcome, embeddings)

    def answers(
        self, outcome: Outcome, embeddings: Mapping[str, Tensor], *, rule: Rule | None = None, summed: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The outcome of each of several texts, and the probabilities of all choices where it is read, if any."""
        home = next(iter(embeddings.values())).device
        return _answers(outcome, Seen(self(embeddings, rule=rule, summed=summed)), home)

    @staticmethod
    def rule(maps: Callable[[int, Tensor], Tensor]) -> Rule:
        """Attention whose maps are changed: from the number of a call and its maps to those that are used."""
        return Rule(maps)

    def slopes(
        self, outcome: Outcome, embeddings: Mapping[str, Tensor], by: Tensor, *, summed: bool = False
    ) -> tuple[Tensor, Tensor, AttentionSlopes]:
        """The outcome of a text, [1], and its derivatives by `by`, which the embeddings are of, and by every attention
        map: one pass forward, by the model's own kernels, and one back."""
        met: dict[int, tuple[Tensor, Tensor | None]] = {}

        def maps(index: int, own: Tensor) -> Tensor:
            met[index] = (torch.zeros_like(own, requires_grad=True), None)
            return own + met[index][0]

        def returned(call: Call) -> Tensor:
            met[call.index] = (torch.zeros_like(call.context, requires_grad=True), call.value.detach())
            return call.context + met[call.index][0]

        value = self.outcomes(outcome, embeddings, rule=Rule(maps, returned=returned), summed=summed)
        order = sorted(met)
        wanted = [by, *(met[index][0] for index in order)]
        gradient, *slopes = torch.autograd.grad(value.sum(), wanted, allow_unused=True)
        by_call = {
            index: (torch.zeros_like(met[index][0]) if slope is None else slope, met[index][1])
            for index, slope in zip(order, slopes, strict=True)
        }
        return value.detach(), gradient, AttentionSlopes(by_call, by.device)

    def relevance(
        self, outcome: Outcome, embeddings: Mapping[str, Tensor], by: Tensor, *, summed: bool = False
    ) -> tuple[Tensor, Tensor]:
        """What the outcome's derivative says of what it is read from, [text], and the derivative by `by` under the
        rules of relevance propagation."""
        with relevance_rules(self._twin.module) as rule:
            made = self(embeddings, rule=rule, summed=summed)
        value = outcome.of(Seen(made))
        last = made.hidden_states[outcome.stream][-1]
        tops = [last] if made.logits is None else [made.logits, last]
        *at_tops, gradient = torch.autograd.grad(value.sum(), [*tops, by], allow_unused=True)
        # Logits, if the outcome is of these; else the states that it is read from.
        slope, top = next((one, top) for one, top in zip(at_tops, tops, strict=True) if one is not None)
        total = (slope * top).double().flatten(1).sum(1).detach()
        return total.to(by.device), gradient

    def head_tangents(
        self, embeddings: Mapping[str, Tensor], directions: Mapping[str, Tensor], *, summed: bool = False
    ) -> dict[int, Tensor]:
        """The tangents of what each head returns, by call, when embeddings move along directions."""
        kept: dict[int, Tensor] = {}

        def keep(call: Call) -> Tensor:
            context = Rule().of(call)
            kept[call.index] = context
            return context

        def contexts(*given: Tensor) -> tuple[Tensor, ...]:
            kept.clear()
            self(dict(zip(embeddings, given, strict=True)), rule=Rule(context=keep), summed=summed)
            return tuple(kept[index] for index in sorted(kept))

        names = list(embeddings)
        pushed = push_together(contexts, [embeddings[name] for name in names], [directions[name] for name in names])
        return dict(enumerate(pushed))

    @cached_property
    def head_runs(self) -> HeadRuns:
        """What runs the model on from one of its layers."""
        return HeadRuns(self.trace)

    def with_contexts(self, outcome: Outcome, index: int, contexts: Tensor) -> Tensor:
        """The outcome where the heads of a call return other contexts, [variant, head, query, channel] → [variant]."""
        return outcome.of(self._run_on(index, contexts)).to(contexts.device)

    def answers_with_contexts(self, outcome: Outcome, index: int, contexts: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same, and the probabilities of all choices where it is read, if any."""
        return _answers(outcome, self._run_on(index, contexts), contexts.device)

    def _run_on(self, index: int, contexts: Tensor) -> Seen:
        before = self.head_runs.passes
        made = self.head_runs.with_contexts(index, contexts)
        self.passes += self.head_runs.passes - before
        return Seen(made)

    def gated(self, outcome: Outcome, gates: Mapping[int, Tensor]) -> Tensor:
        """The outcome where what heads return is scaled, by call [variant, head] → [variant]."""
        before = self.head_runs.passes
        made = self.head_runs.gated(gates)
        self.passes += self.head_runs.passes - before
        return outcome.of(Seen(made)).to(next(iter(gates.values())).device)

    def without(self, outcome: Outcome, kept: Mapping[str, Tensor]) -> Tensor:
        """The outcome of texts of which only some tokens are left: kept [text, token] by stream."""
        return self.answers_without(outcome, kept)[0]

    def answers_without(self, outcome: Outcome, kept: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """The same, and the probabilities of all choices [text, choice] where it is read, if any."""
        arguments, places = shortened(self.trace, kept, self.model.device)
        home = next(iter(kept.values()))
        self.passes += len(home)
        with torch.no_grad():
            seen = Seen(forward(self._twin, arguments), places.get(outcome.stream))
            choices = None if outcome.distribution is None else outcome.distribution(seen).to(home.device)
            return outcome.of(seen).to(home.device), choices

    def replaced(self, outcome: Outcome, ids: Mapping[str, Tensor]) -> Tensor:
        """The outcome of texts with other tokens in the same places: ids [text, token] by stream."""
        arguments = with_ids(self.trace, ids, self.model.device)
        self.passes += len(next(iter(ids.values())))
        with torch.no_grad():
            made = forward(self._twin, arguments)
        return outcome.of(Seen(made)).to(next(iter(ids.values())).device)

    def filler(self, stream: str, name: str | None = None) -> tuple[int | None, str | None]:
        """The id of a token that stands for nothing, and what it is called; none where the model has none."""
        return filler_of(self.trace, stream, name)

    def ids_argument(self, stream: str) -> str:
        """The argument of the model that holds the ids of a stream."""
        return ids_argument(self.trace, stream)

    def baseline(self, stream: str, name: str | None, outcome: Outcome, *, summed: bool = False) -> tuple[Tensor, str]:
        """Embeddings [token, model] of a stream whose tokens say nothing, and what stands for them."""
        return baseline_of(self, self.trace, stream, name, outcome, summed)

    def first_states(self, ids: Mapping[str, Tensor], stream: str, *, summed: bool = False) -> Tensor:
        """What the first layer would read of other tokens of a stream, [token, model]."""
        self.passes += 1
        with torch.no_grad(), EmbeddingNorms(self._twin.module) as norms:
            states = forward(self._twin, {**self.arguments, **ids}).hidden_states[stream]
            normed = norms.of(states) if summed else None
        return (states[0] if normed is None else normed[1])[0].detach().to(self.model.home(states[0].device))

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        number = self._counts[module] = self._counts.get(module, -1) + 1
        stream = self._entries.get((module, number))
        x = None if stream is None else self._inputs.get(stream)
        if x is None:
            return None
        if args:
            return (_shaped(x, args[0]), *args[1:]), kwargs
        return args, kwargs | {"hidden_states": _shaped(x, kwargs["hidden_states"])}


def _answers(outcome: Outcome, seen: Seen, home: torch.device) -> tuple[Tensor, Tensor | None]:
    choices = None if outcome.distribution is None else outcome.distribution(seen).to(home)
    return outcome.of(seen).to(home), choices


def _shaped(x: Tensor, like: Tensor) -> Tensor:
    """[text, token, model] as the module reads it: XLNet has tokens first, and GPT asks for texts apart in memory."""
    x = x.to(like.device, like.dtype)
    return (x if x.shape == like.shape else x.transpose(0, 1).reshape(like.shape)).contiguous()
