"""Self-attention attribution."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.quadrature import gauss_legendre

Path = Callable[..., tuple[Tensor, Tensor | None]]


@dataclass(frozen=True, eq=False)
class AttentionAttribution:
    """[head, query, key]; whole: what the outcome gains from no attention in the layer to all of it; found: what the
    attributions of all heads add up to."""

    attribution: Tensor
    whole: Tensor
    found: Tensor

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        return {
            "attention_attribution": (("head", "query", "key"), self.attribution),
            "head_importance": (("head",), self.attribution.flatten(1).max(1).values),
            "outcome_change": ((), self.whole),
            "completeness_residual": ((), self.found - self.whole),
        }


def attention_attribution(attention: Tensor, attention_path: Path, *, points: int = 6) -> AttentionAttribution:
    """A ⊙ ∫₀¹ ∂F(α·A)/∂A dα, layer by layer (Hao et al. 2021, eq. 5): what the outcome F owes to each weight.

    All heads of a layer grow together from no attention to what it is, everything behind them being computed anew;
    their attributions add up to F(A) − F(0), but for the integral, by `completeness_residual`. `head_importance` is the
    largest of a head, as the paper has it for one text (eq. 7).

    points: at which α, by Gauss and Legendre; the paper's sum of 20 steps from the left needs many more for the same
    residual.

    >>> path = lambda factors, slopes=True: (torch.tensor(factors) ** 2, 2 * torch.tensor(factors)[:, None, None, None])
    >>> attention_attribution(torch.ones(1, 1, 1), path, points=2).attribution
    tensor([[[1.]]], dtype=torch.float64)
    """
    if points < 1:
        raise InputError(f"points={points} was given; expected at least 1.")
    at, weights = gauss_legendre(points)
    ends, _ = attention_path([0.0, 1.0], slopes=False)
    _, slopes = attention_path(at)
    assert slopes is not None
    mean = torch.einsum("p,phqk->hqk", torch.tensor(weights, dtype=torch.float64).to(slopes.device), slopes.double())
    attribution = attention.double() * mean
    return AttentionAttribution(attribution, ends[1].double() - ends[0].double(), attribution.sum())
