"""The outcome of a trace asked again: of other embeddings, with other attention, without some tokens; and derivatives.

Methods are given these as plain functions on tensors. All that runs the model goes through one runner, which counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from identiscope.errors import InputError, MathError
from identiscope.linalg.agreement import explained_by

if TYPE_CHECKING:
    from identiscope.capture import Stream, Trace

#: What stands for a token that says nothing: names of special tokens, tried in this order, and two vectors.
BASELINES = ("mask", "unknown", "padding", "mean", "zero")

#: Passes that derivatives of a text as it is take: one forward, and one back, which counts as two.
SLOPE_PASSES = 3.0

Values = Callable[[Tensor], Tensor]
Gradients = Callable[[Tensor], tuple[Tensor, Tensor]]


class OutcomeRuns:
    """Runs of one outcome on one text. Inputs are the tokens of `sources`, one stream after the other.

    summed: embeddings are given before the norm that some models have behind them. asked_slopes: whether the
    derivatives of the text as it is were asked for, which are made once; set back by who counts.
    """

    def __init__(self, trace: "Trace", sources: Sequence["Stream"], given: Any = None, *, summed: bool = False) -> None:
        self.trace, self.sources, self.given, self.summed = trace, list(sources), given, summed
        self._run_on: dict[int, float] = {}
        self._baselines: dict[str | None, tuple[Tensor, str]] = {}
        #: What a method made of these runs, by name, for others that are given the same runs.
        self.kept: dict[str, Any] = {}
        self.asked_slopes = False

    @cached_property
    def outcome(self) -> Any:
        """What is explained; given in words or as a function, or found already."""
        return self.given if is_dataclass(self.given) else self.trace.outcome(self.given)

    def given_for(self, trace: "Trace") -> Any:
        """The same outcome for another model's trace of the text: this word or class, whatever is most likely there.

        What a similarity is to is read again by that model.
        """
        if isinstance(self.given, str) and self.given.startswith(("similarity:", "similarity-ids:")):
            return self.given
        return replace(self.outcome, trace=trace)

    @cached_property
    def runner(self) -> Any:
        """What runs the model, and counts."""
        return self.trace.runner()

    @property
    def passes(self) -> float:
        """How many passes were made so far; a backward pass counts as two."""
        return float(self.runner.passes) if "runner" in vars(self) else 0.0

    def split(self, embeddings: Tensor) -> dict[str, Tensor]:
        """Embeddings [text, input, model] by stream."""
        pieces = embeddings.split([len(part) for part in self.sources], 1)
        return {part.name: piece for part, piece in zip(self.sources, pieces, strict=True)}

    def _outcomes(self, embeddings: Tensor, rule: Any = None) -> Tensor:
        return self._finite_outcome(
            self.runner.outcomes(self.outcome, self.split(embeddings), rule=rule, summed=self.summed)
        )

    def _finite_outcome(self, numbers: Tensor) -> Tensor:
        if not bool(torch.isfinite(numbers).all()):
            raise MathError(
                f"the outcome ({self.outcome.name}) is infinite or no number for a changed input; give the model in"
                " float32 or float64."
            )
        return numbers

    def values(self, embeddings: Tensor) -> Tensor:
        """The outcome of each of several inputs, [text, input, model] → [text]."""
        with torch.no_grad():
            return torch.cat([self._outcomes(part) for part in embeddings.split(self.runner.at_a_time)])

    def gradients(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """The outcome of each of several inputs, and its derivative by each: [text], [text, input, model]."""
        if embeddings.shape == self.embeddings.shape and torch.equal(embeddings, self.embeddings):
            value, gradient, _ = self._lent()
            return value, _finite(gradient, "the inputs")
        pairs = [self._gradient(part) for part in embeddings.split(self.runner.at_a_time)]
        return torch.cat([value for value, _ in pairs]), torch.cat([gradient for _, gradient in pairs])

    @cached_property
    def _slopes(self) -> tuple[Tensor, Tensor, Any]:
        """The outcome of the text as it is, its derivative by the embeddings, and those by attention.

        Several methods ask for the one or the other. They are always found together, in one pass forward and one back,
        so that no number depends on what else was asked.
        """
        x = self.embeddings.detach().clone().requires_grad_()
        with torch.enable_grad():
            value, gradient, by_attention = self.runner.slopes(self.outcome, self.split(x), x, summed=self.summed)
        self.runner.passes += 2
        return self._finite_outcome(value), gradient, by_attention

    def _lent(self) -> tuple[Tensor, Tensor, Any]:
        """These derivatives, and a note that they were asked for."""
        self.asked_slopes = True
        return self._slopes

    @property
    def has_slopes(self) -> bool:
        """Whether they were made already."""
        return "_slopes" in vars(self)

    def attention_gradient(self, index: int) -> Tensor:
        """∂outcome/∂A of one attention call, by its number: [head, query, key]."""
        by_attention = self._lent()[2]
        _finite(by_attention.by_call[index][0], "attention")
        slope: Tensor = by_attention.of(index)
        return slope

    def _gradient(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        x = embeddings.detach().clone().requires_grad_()
        with torch.enable_grad():
            value = self._outcomes(x)
            (gradient,) = torch.autograd.grad(value.sum(), [x])
        self.runner.passes += 2 * len(x)
        return value.detach(), _finite(gradient, "the inputs")

    def attention_path(
        self, index: int, factors: Sequence[float], *, slopes: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """The outcome with the maps of one call times each of some factors, and its derivative by these maps.

        [factor], [factor, head, query, key]. slopes: whether the derivative is wanted.
        """
        values: list[Tensor] = []
        gradients: list[Tensor] = []
        scales = torch.tensor(list(factors), dtype=torch.float64)
        for part in scales.split(self.runner.at_a_time):
            added: list[Tensor] = []

            def scaled(number: int, maps: Tensor, part: Tensor = part, added: list[Tensor] = added) -> Tensor:
                if number != index:
                    return maps
                own = maps.detach() * part.to(maps.device)[:, None, None, None]
                added.append(own.requires_grad_())
                return own

            embeddings = self.embeddings.expand(len(part), -1, -1)
            with torch.set_grad_enabled(slopes):
                value = self._outcomes(embeddings, self.runner.rule(scaled))
                wanted = slopes and value.requires_grad
                derivatives = torch.autograd.grad(value.sum(), added, allow_unused=True) if wanted else [None]
            values.append(value.detach())
            if slopes:
                self.runner.passes += 2 * len(part)
                one = derivatives[0]
                gradients.append(torch.zeros_like(added[0]) if one is None else _finite(one, "attention"))
        return torch.cat(values), torch.cat(gradients).detach() if slopes else None

    def with_contexts(self, index: int, contexts: Tensor) -> Tensor:
        """The outcome where the heads of one call return other contexts, [variant, head, query, channel] → [variant].

        What is below that layer is not run again. The context as it was must give the outcome as it was.
        """
        unchanged = self._unchanged(index)
        parts = contexts.split(self.runner.at_a_time)
        values: Tensor = torch.cat([self.runner.with_contexts(self.outcome, index, part).double() for part in parts])
        if not bool(torch.isfinite(values).all()):
            raise MathError(f"the outcome ({self.outcome.name}) is infinite or no number with other outputs of heads.")
        moved: Tensor = values - (unchanged - float(self.outcome.value))
        return moved

    def _unchanged(self, index: int) -> float:
        """The outcome of the text run on from a call with nothing changed, checked once for each call."""
        if index not in self._run_on:
            context = self.runner.head_runs.sites[index].context[None]
            value = float(self.runner.with_contexts(self.outcome, index, context)[0])
            precision = context.dtype
            if not explained_by(abs(value - self.outcome.value) / max(1.0, abs(self.outcome.value)), precision):
                raise MathError(
                    f"the model run on from attention call {index} gives {value:.6g} for the outcome"
                    f" ({self.outcome.name}), and {self.outcome.value:.6g} from the start: it cannot be run on."
                )
            self._run_on[index] = value
        return self._run_on[index]

    def gated(self, gates: Mapping[int, Tensor]) -> Tensor:
        """The outcome where what heads return is scaled, by call [variant, head] → [variant]."""
        sizes = [gate.split(self.runner.at_a_time) for gate in gates.values()]
        parts = [dict(zip(gates, part, strict=True)) for part in zip(*sizes, strict=True)]
        values: Tensor = torch.cat([self.runner.gated(self.outcome, part).double() for part in parts])
        return values

    def head_tangents(self, directions: Tensor) -> dict[int, Tensor]:
        """What happens to what heads return, [text, head, query, channel] by call, when embeddings move along
        directions [text, input, model]: derivatives forwards, all heads at once."""
        tangents: list[dict[int, Tensor]] = []
        for part in directions.split(self.runner.at_a_time):
            x = self.embeddings.expand(len(part), -1, -1)
            tangents.append(self.runner.head_tangents(self.split(x), self.split(part), summed=self.summed))
            self.runner.passes += 2 * len(part)
        return {index: torch.cat([one[index] for one in tangents]) for index in tangents[0]}

    def relevance(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """What is to be shared out, and the derivative by the rules of layer-wise relevance propagation.

        [text], what the outcome's own derivative says of the logits (or of what it is read from), and
        [text, input, model].
        """
        x = embeddings.detach().clone().requires_grad_()
        with torch.enable_grad():
            total, gradient = self.runner.relevance(self.outcome, self.split(x), x, summed=self.summed)
        self.runner.passes += 2 * len(x)
        return total, _finite(gradient, "the inputs")

    def without(self, kept: Tensor) -> Tensor:
        """The outcome of the text without the inputs that are not kept, [text, input] → [text]: they are deleted."""
        return self.answers_without(kept)[0]

    def answers_without(self, kept: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same, and the probabilities of all choices [text, choice], if there are any."""
        names = [part.name for part in self.sources]
        sizes = [len(part) for part in self.sources]
        parts = [
            self.runner.answers_without(self.outcome, dict(zip(names, part.split(sizes, 1), strict=True)))
            for part in kept.split(self.runner.at_a_time)
        ]
        choices = [part for _, part in parts if part is not None]
        return torch.cat([value for value, _ in parts]), torch.cat(choices) if choices else None

    def replaced(self, ids: Tensor) -> Tensor:
        """The outcome of the text with other tokens in the same places, [text, input] → [text]."""
        names = [part.name for part in self.sources]
        sizes = [len(part) for part in self.sources]
        return torch.cat(
            [
                self.runner.replaced(self.outcome, dict(zip(names, part.split(sizes, 1), strict=True)))
                for part in ids.split(self.runner.at_a_time)
            ]
        )

    @cached_property
    def embeddings(self) -> Tensor:
        """What the first layers read, [1, input, model]."""
        given = [
            part.embedding_sum if self.summed and part.embedding_sum is not None else part.embeddings
            for part in self.sources
        ]
        return torch.cat([part.detach() for part in given])[None]

    def baseline(self, name: str | None) -> tuple[Tensor, str]:
        """Embeddings [input, model] of a text that says nothing, and what was put in place of its tokens.

        Special tokens, and the token at which a masked word is read, stay as they are. Made once for all that ask, and
        counted with none of them.
        """
        if name is not None and name not in BASELINES:
            raise InputError(f"baseline={name!r} was given; there are {', '.join(BASELINES)}.")
        if name not in self._baselines:
            passes, run = self.passes, self.runner
            made = [run.baseline(part.name, name, self.outcome, summed=self.summed) for part in self.sources]
            run.passes = passes
            words = " and ".join(dict.fromkeys(said for _, said in made))
            self._baselines[name] = torch.cat([rows for rows, _ in made]), words
        return self._baselines[name]


def _finite(gradient: Tensor, by: str) -> Tensor:
    if not bool(torch.isfinite(gradient).all()):
        raise MathError(
            f"the derivative of the outcome by {by} is infinite or no number: it does not exist there, or is too large"
            f" for {gradient.dtype}. Give the model in float32 or float64."
        )
    return gradient
