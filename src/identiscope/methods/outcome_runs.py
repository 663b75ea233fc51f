"""The outcome of a trace asked again: of other embeddings, with other attention, without some tokens; and derivatives.

Methods are given these as plain functions on tensors. All that runs the model goes through one runner, which counts.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from identiscope.errors import InputError, MathError

if TYPE_CHECKING:
    from identiscope.capture import Stream, Trace

#: What stands for a token that says nothing: names of special tokens, tried in this order, and two vectors.
BASELINES = ("mask", "unknown", "padding", "mean", "zero")

Values = Callable[[Tensor], Tensor]
Gradients = Callable[[Tensor], tuple[Tensor, Tensor]]


class OutcomeRuns:
    """Runs of one outcome on one text. Inputs are the tokens of `sources`, one stream after the other.

    summed: embeddings are given before the norm that some models have behind them.
    """

    def __init__(self, trace: "Trace", sources: Sequence["Stream"], given: Any = None, *, summed: bool = False) -> None:
        self.trace, self.sources, self.given, self.summed = trace, list(sources), given, summed

    @cached_property
    def outcome(self) -> Any:
        """What is explained."""
        return self.trace.outcome(self.given)

    @cached_property
    def runner(self) -> Any:
        """What runs the model, and counts."""
        return self.trace.runner()

    @property
    def passes(self) -> float:
        """How many passes were made so far; a backward pass counts as two."""
        return float(self.runner.passes) if "runner" in vars(self) else 0.0

    def _split(self, embeddings: Tensor) -> dict[str, Tensor]:
        pieces = embeddings.split([len(part) for part in self.sources], 1)
        return {part.name: piece for part, piece in zip(self.sources, pieces, strict=True)}

    def _outcomes(self, embeddings: Tensor, rule: Any = None) -> Tensor:
        numbers: Tensor = self.runner.outcomes(self.outcome, self._split(embeddings), rule=rule, summed=self.summed)
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
            return self._own_gradient
        pairs = [self._gradient(part) for part in embeddings.split(self.runner.at_a_time)]
        return torch.cat([value for value, _ in pairs]), torch.cat([gradient for _, gradient in pairs])

    @cached_property
    def _own_gradient(self) -> tuple[Tensor, Tensor]:
        """Of the text as it is, which several methods ask for."""
        return self._gradient(self.embeddings)

    def _gradient(self, embeddings: Tensor, rule: Any = None) -> tuple[Tensor, Tensor]:
        x = embeddings.detach().clone().requires_grad_()
        with torch.enable_grad():
            value = self._outcomes(x, rule)
            (gradient,) = torch.autograd.grad(value.sum(), [x])
        self.runner.passes += 2 * len(x)
        return value.detach(), _finite(gradient, "the inputs")

    @cached_property
    def attention_gradients(self) -> dict[int, Tensor]:
        """∂outcome/∂A of every attention call, by its number: [head, query, key], all from one backward pass."""
        added: dict[int, Tensor] = {}

        def keep(index: int, maps: Tensor) -> Tensor:
            added[index] = torch.zeros_like(maps, requires_grad=True)
            return maps + added[index]

        with torch.enable_grad():
            value = self._outcomes(self.embeddings, self.runner.rule(keep))
            order = sorted(added)
            gradients = torch.autograd.grad(value.sum(), [added[index] for index in order], allow_unused=True)
        self.runner.passes += 2
        zero = {index: added[index].detach() for index in order}
        return {
            index: zero[index][0] if one is None else _finite(one[0], "attention")
            for index, one in zip(order, gradients, strict=True)
        }

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

    def head_tangents(self, directions: Tensor) -> dict[int, Tensor]:
        """What happens to what heads return, [text, head, query, channel] by call, when embeddings move along
        directions [text, input, model]: derivatives forwards, all heads at once."""
        tangents: list[dict[int, Tensor]] = []
        for part in directions.split(self.runner.at_a_time):
            x = self.embeddings.expand(len(part), -1, -1)
            tangents.append(self.runner.head_tangents(self._split(x), self._split(part), summed=self.summed))
            self.runner.passes += 2 * len(part)
        return {index: torch.cat([one[index] for one in tangents]) for index in tangents[0]}

    def relevance(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """What is to be shared out, and the derivative by the rules of layer-wise relevance propagation.

        [text], what the outcome's own derivative says of the logits (or of what it is read from), and
        [text, input, model].
        """
        x = embeddings.detach().clone().requires_grad_()
        with torch.enable_grad():
            total, gradient = self.runner.relevance(self.outcome, self._split(x), x, summed=self.summed)
        self.runner.passes += 2 * len(x)
        return total, _finite(gradient, "the inputs")

    def without(self, kept: Tensor) -> Tensor:
        """The outcome of the text without the inputs that are not kept, [text, input] → [text]: they are deleted."""
        names = [part.name for part in self.sources]
        sizes = [len(part) for part in self.sources]
        return torch.cat(
            [
                self.runner.without(self.outcome, dict(zip(names, part.split(sizes, 1), strict=True)))
                for part in kept.split(self.runner.at_a_time)
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

        Special tokens, and the token at which a masked word is read, stay as they are.
        """
        if name is not None and name not in BASELINES:
            raise InputError(f"baseline={name!r} was given; there are {', '.join(BASELINES)}.")
        baselines = [self.runner.baseline(part.name, name, self.outcome, summed=self.summed) for part in self.sources]
        return torch.cat([rows for rows, _ in baselines]), " and ".join(dict.fromkeys(said for _, said in baselines))


def _finite(gradient: Tensor, by: str) -> Tensor:
    if not bool(torch.isfinite(gradient).all()):
        raise MathError(
            f"the derivative of the outcome by {by} is infinite or no number: it does not exist there, or is too large"
            f" for {gradient.dtype}. Give the model in float32 or float64."
        )
    return gradient
