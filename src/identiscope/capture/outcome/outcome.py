"""What is explained: one number that a model gives for a text, that can be read from any run of the model.

How the outcome reads the last hidden states is not looked up by family: it is what the derivative of the outcome says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from identiscope.capture.forward import Forward
from identiscope.errors import InputError, MathError

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace


@dataclass(frozen=True, eq=False)
class Seen:
    """What some runs returned, and where in them the tokens of the text are now.

    kept [text, position] says which tokens of the text stand at each position, −1 for none: all in their places, if
    nothing was deleted (None).
    """

    forward: Forward
    kept: Tensor | None = None

    def place(self, token: int, count: int) -> Tensor | int:
        """Where a token of the text is in each run; where it was deleted, the last one before it."""
        if self.kept is None:
            return token
        before = (self.kept >= 0) & (self.kept <= token)
        return torch.where(before, torch.arange(self.kept.shape[1], device=self.kept.device), -1).max(1).values


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """One number of a model for a text.

    name: in words, for whoever reads a result. of: from runs to a number for each, differentiable. distribution: from
    runs to the probabilities of all words or classes where it is read [text, choice]; None where there are no choices.
    """

    name: str
    unit: str
    of: Callable[[Seen], Tensor]
    trace: "Trace"
    distribution: Callable[[Seen], Tensor] | None = None

    @cached_property
    def value(self) -> float:
        """What it is for the text as it was traced."""
        return self._read_off[0]

    @property
    def stream(self) -> str:
        """The stream whose last states it is read from."""
        return self._read_off[1]

    @property
    def read(self) -> Tensor:
        """How much it reads of the last state of each token: the size of its derivative there; they sum to one."""
        size = self.direction.double().norm(dim=-1)
        total = size.sum()
        share: Tensor = size / total if float(total) > 0 else size
        return share

    @property
    def direction(self) -> Tensor:
        """Its derivative by the last hidden state, [token, model], as transformers reports that: after a final norm."""
        slope = self._read_off[2]
        if not bool(torch.isfinite(slope).all()):
            raise MathError(
                f"the derivative of the outcome ({self.name}) by the last hidden states is infinite or no number, so"
                " that it cannot be told how it reads them."
            )
        return slope

    @cached_property
    def _read_off(self) -> tuple[float, str, Tensor]:
        trace = self.trace
        assert trace.model is not None and trace.batch is not None
        with torch.enable_grad():
            # Some weight wants a derivative, or else an input that does brings one about.
            made = _states_with_graph(trace)
            value = self.of(Seen(made))[0]
            last = {name: states[-1] for name, states in made.hidden_states.items() if states}
            wanted = list(last.values())
            gradients = (
                torch.autograd.grad(value, wanted, allow_unused=True, retain_graph=len(wanted) > 1)
                if value.requires_grad
                else [None] * len(last)
            )
            depends = {name: slope for name, slope in zip(last, gradients, strict=True) if slope is not None}
            depends = {name: slope for name, slope in depends.items() if float(slope.norm()) != 0}
            # A stream that another one is made of, as a decoder's is of its encoder, is read through that.
            beneath = {
                name for name in depends for other in depends if name != other and _leads(last[name], last[other])
            }
        number = float(value.detach())
        if number != number:
            raise MathError(f"the outcome ({self.name}) is not a number for this text.")
        if number in (float("inf"), -float("inf")):
            raise MathError(f"the outcome ({self.name}) is infinite for this text.")
        if not depends:
            raise InputError(
                f"the outcome ({self.name}) does not depend on the last hidden states of {trace.model.name}, so that"
                " it cannot be traced to its tokens."
            )
        stream = max(depends.keys() - beneath, key=lambda name: float(depends[name].nan_to_num().norm()))
        gradient = depends[stream]
        return number, stream, gradient[0].detach().to(trace.model.home(gradient.device))

    def __repr__(self) -> str:
        return f"Outcome({self.name} = {self.value:.4g})"


def _leads(one: Tensor, other: Tensor) -> bool:
    """Whether one tensor is what another was made of."""
    return torch.autograd.grad(other.sum(), one, allow_unused=True, retain_graph=True)[0] is not None


def _states_with_graph(trace: "Trace") -> Forward:
    """A pass whose last states are known to what follows them."""
    run = trace.runner()
    embeddings = {
        name: trace.streams[name].embeddings[None].detach().clone().requires_grad_() for name in trace.replay.entries
    }
    return run.with_last_states(embeddings)
