"""What a head matters for: the gradient of its gate, and the outcome without it, in several senses of without."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span

#: What a head returns in place of what it did → in words.
INSTEAD = {
    "zero": "nothing",
    "mean": "the mean of what it returns",
    "uniform": "what even attention over the keys it may see would give",
    "null": "the same by another map: a control that must change nothing",
}


@dataclass(frozen=True, eq=False)
class HeadImportance:
    """gate_gradient [head], and the change of the outcome by what stands for a head, [head] each."""

    gate_gradient: Tensor
    changes: dict[str, Tensor]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        changes = {f"{name}_change": (("head",), values) for name, values in self.changes.items()}
        return {"gate_gradient": (("head",), self.gate_gradient), **changes}


def head_importance(
    attention: Tensor,
    attention_gradient: Tensor,
    value: Tensor,
    projection: Tensor,
    context: Tensor,
    with_contexts: Callable[[Tensor], Tensor],
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
    *,
    by: str = "zero,mean,uniform,null",
) -> HeadImportance:
    """∂y/∂ξ of a gate ξ = 1 that scales a head (Michel et al. 2019, eq. 2), and y(changed) − y for each head alone.

    What is scaled is A·V, so the gate's gradient is Σ A ⊙ ∂y/∂A; papers take its absolute value over texts.
    `zero_change`: the head returns nothing; `mean_change`: at every token what it returns on average in this text;
    `uniform_change`: what even attention gives (Kovaleva et al. 2019); `null_change`: the same output by the map of
    effective_simplex_span, which must change nothing but rounding. The model is run on from the head's layer.

    by: which of these, with commas; the others are NaN.

    >>> eye, gradient = torch.eye(2)[None], torch.ones(1, 2, 2)
    >>> found = head_importance(eye, gradient, eye, eye, eye, lambda contexts: contexts.sum((1, 2, 3)), by="zero")
    >>> float(found.gate_gradient), float(found.changes["zero"])
    (2.0, -2.0)
    """
    wanted = [name.strip() for name in by.split(",")]
    heads = len(attention)
    own = value.double().repeat_interleave(heads // len(value), 0)
    nothing = torch.full((heads,), torch.nan, dtype=torch.float64, device=attention.device)
    instead = {
        name: replaced(name, attention, own, projection, context, allowed, precision, row_sum)
        for name in INSTEAD
        if name in wanted
    }
    values = with_contexts(one_by_one(context, instead))
    before, changes = values[0], values[1:].reshape(len(instead), heads).double()
    differences = {name: changes[number] - before for number, name in enumerate(instead)}
    gate = (attention * attention_gradient).sum((1, 2)).double()
    return HeadImportance(gate, {name: differences.get(name, nothing) for name in INSTEAD})


def one_by_one(context: Tensor, instead: dict[str, Tensor]) -> Tensor:
    """The context as it is, and then with one head changed in each: [1 + replacement·head, head, query, channel]."""
    heads = len(context)
    changed = context.repeat(1 + len(instead) * heads, 1, 1, 1)
    for number, new in enumerate(instead.values()):
        places = torch.arange(heads, device=context.device)
        changed[1 + number * heads + places, places] = new.to(changed)
    return changed


def replaced(
    name: str,
    attention: Tensor,
    value: Tensor,
    projection: Tensor,
    context: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
) -> Tensor:
    """What stands for what each head returns, [head, query, channel], under a name of `INSTEAD`; value [head, …]."""
    if name == "zero":
        return torch.zeros_like(context)
    if name == "mean":
        return context.double().mean(1, keepdim=True).expand_as(context)
    described = describe_allowed(allowed, attention.shape[1], attention.shape[2], attention.device)
    if name == "uniform":
        sums = attention.double().sum(-1, keepdim=True)
        return described.whole.double() / described.count()[:, None] @ value * sums
    exact = attention.double() @ value
    return effective_simplex_span(value, projection, exact, described, precision, row_sum).dense() @ value
