"""Probes g of token identifiability: what they compute, and how they start and learn."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import gelu, normalize

from identiscope.errors import InputError
from identiscope.methods.tokens.neighbours import METRICS, Metric

Kind = Literal["naive", "linear", "mlp"]
KINDS: tuple[Kind, ...] = ("naive", "linear", "mlp")
Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Recipe:
    """How probes are trained; the defaults are those of the paper, appendix B.1.

    Adam; Glorot uniform weights; training stops after `patience` epochs without a better rate on the
    validation sentences, and the weights of the best epoch are kept, the last of equally good ones. With several
    learning rates, each layer and fold keeps the one that is best on validation; `race` gives up a rate that lies
    further behind a finished one than it gained in its last `patience` epochs.
    """

    learning_rates: tuple[float, ...] = (1e-4,)
    first_decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8
    batch_size: int = 256
    patience: int = 20
    maximum_epochs: int = 1000
    hidden_width: int = 1000
    race: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.learning_rates or any(rate <= 0 for rate in self.learning_rates):
            raise InputError(f"learning rates {self.learning_rates} were given; expected at least one, all above 0.")
        for name in ("batch_size", "patience", "maximum_epochs", "hidden_width"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} was given; expected at least 1.")


#: The values the paper searched (appendix B.1).
SEARCHED_RATES = (3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)


@dataclass(frozen=True, eq=False)
class Probe:
    """One fitted map g from hidden states to the space of their targets.

    >>> Probe("naive", "cosine", {})(torch.ones(1, 2))
    tensor([[1., 1.]])
    """

    kind: Kind
    loss: Metric
    weights: Weights

    def __call__(self, hidden: Tensor) -> Tensor:
        """g(e) for each row of hidden [token, channel]."""
        if self.kind == "naive":
            return hidden
        return predict(self.kind, self.weights, hidden)

    @property
    def name(self) -> str:
        """Such as "linear cosine"."""
        return f"{self.kind} {self.loss}"


@dataclass(frozen=True, eq=False)
class ProbeSet:
    """Fitted probes of every layer and fold: weights [layer, fold, …], with how each came about.

    epochs: how many were run; for a direct fit, evaluations of the loss. rates: the chosen learning rate, NaN
    for a direct fit. validation: the best rate of identification on the validation sentences.
    """

    kind: Kind
    loss: Metric
    weights: dict[str, Tensor]
    epochs: Tensor
    rates: Tensor
    validation: Tensor

    def probe(self, layer: int, fold: int) -> Probe:
        """One of them."""
        return Probe(self.kind, self.loss, {name: weight[layer, fold] for name, weight in self.weights.items()})


def check_kind(kind: str, loss: str) -> None:
    """Refuse an unknown probe or loss."""
    if kind not in KINDS or loss not in METRICS:
        raise InputError(
            f"a {kind!r} probe with {loss!r} loss was asked for; expected a probe of {', '.join(KINDS)} and a loss of"
            f" {', '.join(METRICS)}."
        )


def predict(kind: Kind, weights: Weights, hidden: Tensor) -> Tensor:
    """g(e); works for one probe and, with a leading axis, for many: [probe, token, channel]."""
    if kind == "linear":
        return hidden @ weights["weight"]
    inner = hidden @ weights["weight_in"] + weights["bias_in"]
    return gelu(inner) @ weights["weight_out"] + weights["bias_out"]


def start_weights(kind: Kind, width: int, target_width: int, recipe: Recipe, seed: int) -> dict[str, Tensor]:
    """Glorot uniform weights and zero biases of one probe; the linear probe has no bias."""
    generator = torch.Generator().manual_seed(seed)

    def glorot(rows: int, columns: int) -> Tensor:
        bound = math.sqrt(6 / (rows + columns))
        return torch.rand(rows, columns, generator=generator).mul_(2 * bound).sub_(bound)

    if kind == "linear":
        return {"weight": glorot(width, target_width)}
    return {
        "weight_in": glorot(width, recipe.hidden_width),
        "bias_in": torch.zeros(1, recipe.hidden_width),
        "weight_out": glorot(recipe.hidden_width, target_width),
        "bias_out": torch.zeros(1, target_width),
    }


def gradients(kind: Kind, loss: Metric, weights: Weights, hidden: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Of the mean loss of a batch, for many probes at once: hidden and targets [probe, token, channel].

    Written out, since for such small maps the bookkeeping of automatic differentiation costs as much as the
    products themselves. targets: of unit length for the cosine loss. The L2 loss is the squared distance.
    """
    if kind == "linear":
        error = _output_gradient(loss, torch.bmm(hidden, weights["weight"]), targets)
        return {"weight": torch.bmm(hidden.transpose(1, 2), error)}
    inner = torch.baddbmm(weights["bias_in"], hidden, weights["weight_in"])
    active = gelu(inner)
    error = _output_gradient(loss, torch.baddbmm(weights["bias_out"], active, weights["weight_out"]), targets)
    back = torch.ops.aten.gelu_backward(torch.bmm(error, weights["weight_out"].transpose(1, 2)), inner)
    return {
        "weight_in": torch.bmm(hidden.transpose(1, 2), back),
        "bias_in": back.sum(1, keepdim=True),
        "weight_out": torch.bmm(active.transpose(1, 2), error),
        "bias_out": error.sum(1, keepdim=True),
    }


def _output_gradient(loss: Metric, predicted: Tensor, targets: Tensor) -> Tensor:
    """∂(mean loss)/∂predicted; `predicted` is overwritten."""
    count = predicted.shape[1]
    if loss == "l2":
        return predicted.sub_(targets).mul_(2 / count)
    length = predicted.norm(dim=2, keepdim=True).clamp_(min=torch.finfo(predicted.dtype).tiny)
    product = torch.einsum("pnc,pnc->pn", predicted, targets.expand_as(predicted))[:, :, None]
    # (cos·g/‖g‖ − y)/(‖g‖·n), with the small factors first: two passes over the large arrays instead of four.
    shrink = (length * count).reciprocal_()
    return predicted.mul_(product / length.square().mul_(length).mul_(count)).addcmul_(targets, shrink, value=-1)


def training_targets(loss: Metric, targets: Tensor) -> Tensor:
    """Targets as the loss wants them: of unit length for the cosine."""
    return normalize(targets, dim=-1) if loss == "cosine" else targets


@dataclass(frozen=True, eq=False)
class Moments:
    """Adam's running means of gradients and of their squares."""

    first: dict[str, Tensor]
    second: dict[str, Tensor]


def zero_moments(weights: Weights) -> Moments:
    """Before the first step."""
    return Moments(
        {name: torch.zeros_like(weight) for name, weight in weights.items()},
        {name: torch.zeros_like(weight) for name, weight in weights.items()},
    )


def adam_step(weights: Weights, slopes: Weights, moments: Moments, rates: Tensor, step: int, recipe: Recipe) -> None:
    """One step of Adam (Kingma & Ba 2015, algorithm 1) in place; rates [probe, 1, 1], step counted from 1."""
    first_left = 1 - recipe.first_decay**step
    second_left = math.sqrt(1 - recipe.second_decay**step)
    sizes = rates * (-second_left / first_left)
    for name, weight in weights.items():
        slope, first, second = slopes[name], moments.first[name], moments.second[name]
        first.lerp_(slope, 1 - recipe.first_decay)
        second.mul_(recipe.second_decay).addcmul_(slope, slope, value=1 - recipe.second_decay)
        # The bias corrections are taken out of the fraction: they are numbers, the rest are large arrays.
        move = torch.sqrt(second, out=slope).add_(recipe.epsilon * second_left)
        weight.addcmul_(torch.div(first, move, out=move), sizes)
