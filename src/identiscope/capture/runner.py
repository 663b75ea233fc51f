"""A traced model as a function that is asked again and again: from other embeddings, or with other attention.

`Replay` runs the model once from embeddings of one text, for derivatives of any mode. A runner serves the methods that
ask many times: several embeddings at once, logits too, attention by a rule; and it counts what it did.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from identiscope.capture.experts import PlainExperts
from identiscope.capture.forward import Forward, forward, try_forward
from identiscope.capture.norms import EmbeddingNorms
from identiscope.capture.outcome import Outcome, Seen
from identiscope.capture.perturbing import baseline_of, shortened
from identiscope.capture.relevance import relevance_rules
from identiscope.capture.twin import twin
from identiscope.capture.watch.calls import Call, Rule
from identiscope.capture.watch.watching import watching
from identiscope.errors import CaptureError
from identiscope.linalg.jacobian.forward_mode import push_together

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace

#: Positions that run at a time: several texts at once are faster than one after the other, until memory is far away.
POSITIONS = 4096


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
        """How many texts of this length run at once."""
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

    @staticmethod
    def rule(maps: Callable[[int, Tensor], Tensor]) -> Rule:
        """Attention whose maps are changed: from the number of a call and its maps to those that are used."""
        return Rule(maps)

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

    def without(self, outcome: Outcome, kept: Mapping[str, Tensor]) -> Tensor:
        """The outcome of texts of which only some tokens are left: kept [text, token] by stream."""
        arguments, places = shortened(self.trace, kept, self.model.device)
        self.passes += len(next(iter(kept.values())))
        with torch.no_grad():
            made = forward(self._twin, arguments)
        return outcome.of(Seen(made, places.get(outcome.stream))).to(next(iter(kept.values())).device)

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


def _shaped(x: Tensor, like: Tensor) -> Tensor:
    """[text, token, model] as the module reads it: XLNet has tokens first."""
    x = x.to(like.device, like.dtype)
    return x if x.shape == like.shape else x.transpose(0, 1).reshape(like.shape)
