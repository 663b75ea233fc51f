"""How far estimated norms and contributions may be off: standard errors of their logarithms, and degrees of freedom.

A sample of k out of d probes without replacement has a mean of variance (1 − k/d)·s²/k, and a norm is its root: half
the relative error. Four things would make an interval of ± t·s too narrow when probes are few, and each is met:

- The logarithm is not straight: deviations are those of a jackknife, what the logarithm loses when a probe is left out.
- β was fitted to the same probes. Its fit takes degrees of freedom from the residuals, and its own error adds to that
  of the estimate as far as the anchor was off. Cells share their probes, so how much is told by the scores of whole
  probes, Σ_cells x·residual, as in a regression with clustered errors; these are corrected for their leverage.
- Squares are not normal: s² varies more than χ² does, by the kurtosis, so Student's t has fewer degrees of freedom.
- Contributions share their sum: what all inputs of an output have in common drops out.

Intervals are symmetric in the logarithm. How often they cover is in docs/methods/hidden_token_attribution.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.methods.mixtures.attribution.estimate import Estimate, ratios

# Where one probe has nearly all of the response, leaving it out leaves nearly nothing: at least this share.
LEAST_REST = 1e-3


@dataclass(frozen=True, eq=False)
class LogErrors:
    """Standard errors of log norm and log contribution, [layer, output, input], and degrees of freedom [layer]."""

    norm: Tensor
    contribution: Tensor
    norm_freedom: Tensor
    contribution_freedom: Tensor


@dataclass(frozen=True, eq=False)
class _Anchor:
    """What the anchor's responses say of every layer: deviations x [ratio, output, input, group], straight and as the
    jackknife has them, each times √size; `by_group` Σ_cells x·xᵀ [group, ratio, ratio], and the inverse of its sum;
    off [ratio, output, input], how far the sample is off there."""

    deviations: Tensor
    jackknife: Tensor
    by_group: Tensor
    inverse: Tensor
    off: Tensor

    @property
    def rank(self) -> float:
        """How many slopes were fitted: two, or one where the two ratios are the same."""
        return float((self.inverse * self.by_group.sum(0)).sum())

    def score_variance(self, residuals: Tensor) -> float:
        """τ of Cov(β) = τ·(Σ x·xᵀ)⁻¹, from residuals [output, input, group] of the fit."""
        scores = (self.deviations * residuals).sum((1, 2))
        leverage = self.inverse @ self.by_group
        left = self.rank - float((leverage * leverage.mT).sum())
        seen = float((scores * (self.inverse @ scores)).sum())
        return seen / left if left > 0 else 0.0


def log_errors(estimate: Estimate, contribution: Tensor) -> LogErrors:
    """Errors of the estimate's norms, and of the contributions [layer, output, input] that they give."""
    layers, groups = len(estimate.responses), len(estimate.sizes)
    norm, share = torch.zeros_like(contribution), torch.zeros_like(contribution)
    freedom = torch.full((2, layers), max(groups - 1, 1), dtype=torch.float64)
    if estimate.probes >= estimate.width:
        return LogErrors(norm, share, *freedom)
    if groups < 2:
        return LogErrors(norm.fill_(torch.nan), share.fill_(torch.nan), *freedom)
    anchor, slopes = _anchor(estimate), estimate.slope
    known = (1 - estimate.probes / estimate.width) / estimate.probes
    for layer in range(layers):
        straight, bent = _deviations(estimate.grouped[layer], estimate.sizes)
        weight = contribution[layer].nan_to_num()
        spent, extra, shared_extra = 0.0, torch.zeros(()), torch.zeros(())
        if anchor is not None:
            slope = slopes[layer][:, None, None, None]
            residuals = straight - (slope * anchor.deviations).sum(0)
            bent = bent - (slope * anchor.jackknife).sum(0)
            variance = anchor.score_variance(residuals)
            # Of the anchored layer itself nothing is left.
            spent = anchor.rank * variance / max(float(residuals.square().sum()), torch.finfo(torch.float64).tiny)
            extra = variance * _square(anchor.off, anchor.inverse)
            shared_extra = variance * _square(anchor.off - (weight * anchor.off).sum(-1, keepdim=True), anchor.inverse)
        alone = bent - (weight[..., None] * bent).sum(1, keepdim=True)
        # σ² = (RSS + what the fit took)/(groups − 1): as if the fit had left (groups − 1)/(1 + spent).
        left = (groups - 1) / (1 + spent)
        norm[layer] = 0.5 * (bent.square().sum(-1) / left * known + extra).sqrt()
        share[layer] = 0.5 * (alone.square().sum(-1) / (groups - 1) * known + shared_extra).sqrt()
        freedom[0, layer] = _freedom(bent, left)
        freedom[1, layer] = _freedom(alone, groups - 1)
    reached = contribution > 0
    return LogErrors(norm * reached, share * reached, *freedom)


def _anchor(estimate: Estimate) -> _Anchor | None:
    if estimate.anchor_grouped is None:
        return None
    straight, bent = _deviations(ratios(estimate.anchor_grouped), estimate.sizes)
    anchored = estimate.anchored[..., None]
    straight, bent = straight * anchored, bent * anchored
    by_probe = straight.flatten(1, 2).permute(2, 0, 1)
    by_group = by_probe @ by_probe.mT
    return _Anchor(straight, bent, by_group, torch.linalg.pinv(by_group.sum(0), hermitian=True), estimate.anchor_off)


def _deviations(grouped: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Relative deviation of each group's mean from that of all, and what the logarithm loses without the group.

    Both times √size, so that every group counts as its probes do; 0 where nothing responds.
    """
    grouped, sizes = grouped.double(), sizes.double()
    mean = grouped.sum(-1, keepdim=True) / sizes.sum()
    some = mean > 0
    straight = torch.where(some, grouped / sizes / torch.where(some, mean, 1.0) - 1, 0.0)
    odds = sizes / (sizes.sum() - sizes)
    bent = -torch.log((1 - odds * straight).clamp(min=LEAST_REST)) / odds
    bent = bent - (bent * sizes).sum(-1, keepdim=True) / sizes.sum()
    return straight * sizes.sqrt(), bent * sizes.sqrt()


def _square(off: Tensor, inverse: Tensor) -> Tensor:
    """xᵀ·M⁻¹·x of each cell, for x [ratio, output, input]."""
    flat = off.flatten(1)
    return (flat * (inverse @ flat)).sum(0).view(off.shape[1:])


def _freedom(residuals: Tensor, freedom: float) -> float:
    """Degrees of freedom of Student's t: of χ² with the same variance as s² has, by the mean excess kurtosis."""
    count = residuals.shape[-1]
    squares = residuals.square()
    some = squares.sum(-1) > 0
    if count < 4 or not bool(some.any()):
        return freedom
    peaked = squares[some].square().mean(-1) / squares[some].mean(-1).square() - 3
    # The unbiased form for a normal sample; the plain ratio is far too low for a few.
    excess = float((((count + 1) * peaked + 6) * (count - 1) / ((count - 2) * (count - 3))).mean())
    return 2 / (2 / freedom + max(excess, 0.0) / count)
