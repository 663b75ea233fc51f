"""Is a rewritten model the same function? It is run, in its own precision and with every step of it in float64."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from identiscope.capture.batch import Batch
from identiscope.capture.forward import forward, try_forward
from identiscope.capture.inputs import encode
from identiscope.capture.limits import position_limit
from identiscope.capture.models import Model
from identiscope.capture.samples import PASSAGE, sample_input
from identiscope.capture.twin import twin
from identiscope.errors import ModelError
from identiscope.linalg.tolerance import REWRITTEN_IN_FLOAT32, REWRITTEN_IN_FLOAT64

#: The largest max|Δ logits| ÷ max|logits| that rounding explains, by the precision of the pass.
LIMITS = {torch.float64: REWRITTEN_IN_FLOAT64, torch.float32: REWRITTEN_IN_FLOAT32}


class InFloat64(TorchFunctionMode):
    """Norms and softmaxes that a family takes in float32, whatever its weights are, are taken in float64 here."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            func = Tensor.double
        args = tuple(map(_wide, args))
        return func(*args, **{name: _wide(value) for name, value in (kwargs or {}).items()})


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def sample_batches(model: Model, texts: Sequence[Any] | None) -> list[Batch]:
    """What the models are compared on: the given texts, or a sentence and a passage, or something random."""
    if texts is None:
        texts = [sample_input(model)[0]]
        # Positions that a short text does not reach are looked at, too.
        if model.tokenizer is not None and (position_limit(model) or 512) >= 256:
            texts.append(PASSAGE)
    return [encode(model, [text], targets=[None], truncate=True) for text in texts]


def outputs(model: Model, batches: Sequence[Batch], *, in_float64: bool = False) -> list[Tensor]:
    """What the model returns for each text: its logits, or its last states if it has none; on the CPU in float64."""
    running, returned = twin(model), []
    for batch in batches:
        arguments = {
            name: value.to(model.dtype) if value.is_floating_point() else value
            for name, value in batch.arguments.items()
        }
        with torch.no_grad():
            if in_float64:
                with InFloat64():
                    made = forward(running, arguments)
            else:
                made = try_forward(running, arguments)
        last = made.logits if made.logits is not None else list(made.hidden_states.values())[-1][-1]
        returned.append(last.detach().cpu().double())
    return returned


def largest_change(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """max|Δ| ÷ max|before|, the largest over texts; infinite where something is no number.

    >>> largest_change([torch.tensor([2.0, -4.0])], [torch.tensor([2.0, -3.0])])
    0.25
    """
    largest = 0.0
    for one, other in zip(before, after, strict=True):
        change = float((one - other).abs().max() / one.abs().max())
        largest = max(largest, change if change == change else float("inf"))
    return largest


def check(name: str, how: Sequence[str], change: float, precision: torch.dtype) -> None:
    """Refuse a rewriting that changed what the model computes by more than rounding explains."""
    limit = LIMITS[precision]
    if not change <= limit:
        kind = str(precision).removeprefix("torch.")
        raise ModelError(
            f"{name} rewritten by {', '.join(how)} computes something else: what it returns moved by {change:.1e} of"
            f" its largest, where rounding in {kind} explains {limit:.0e}. It is not given out: this variant of the"
            " family may have parts that are not known here."
        )
