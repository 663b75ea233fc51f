"""Estimate Jacobian norms from probes, a round at a time, with standard errors.

For one cell (layer, output, input) the squared responses y_p = ‖J·v_p‖² to the columns of an orthogonal matrix,
scaled by √d, are a finite population with mean ‖J‖_F²; k of them are a sample without replacement, whose mean
has variance (1 − k/d)·s²/k. The same probes serve every input token, so what the tokens have in common cancels
in the contributions.

Where the exact norm A of an earlier Jacobian is known (the anchor), responses w_p to the same probes tell how
far this sample is off there, and mean(y)·(A/mean(w))^β carries that over: a ratio estimator, with one β for
each layer, from the pooled covariance of the relative responses.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Estimate:
    """What all rounds so far add up to.

    responses [layer, output, input] is Σ_p y_p, anchor_responses [output, input] is Σ_p w_p; norm_spread and
    contribution_spread are sums of squared relative deviations within rounds, with `freedom` degrees of freedom;
    covariance and anchor_variance [layer] are the pooled sums that β is the quotient of.
    """

    width: int
    probes: int
    freedom: int
    responses: Tensor
    norm_spread: Tensor
    contribution_spread: Tensor
    anchor: Tensor | None
    anchor_responses: Tensor | None
    covariance: Tensor
    anchor_variance: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean response, [layer, output, input]."""
        return self.responses / self.probes

    @property
    def anchor_mean(self) -> Tensor:
        """Mean response of the anchor, [output, input]."""
        assert self.anchor_responses is not None
        return self.anchor_responses / self.probes

    @property
    def anchored(self) -> Tensor:
        """Which cells have an anchor that responds, [output, input]."""
        assert self.anchor is not None
        return (self.anchor > 0) & (self.anchor_mean > 0)

    @property
    def norms(self) -> Tensor:
        """The estimated norms, [layer, output, input]."""
        squares = self.mean
        if self.anchor is not None and self.anchor_responses is not None and self.probes < self.width:
            mean = self.anchor_mean
            # A cell without an anchor has nothing to be corrected by.
            ratio = torch.where(self.anchored, self.anchor / torch.where(self.anchored, mean, 1.0), 1.0)
            squares = squares * ratio ** self.slope[:, None, None]
        return squares.sqrt()

    @property
    def slope(self) -> Tensor:
        """β of each layer."""
        known = self.anchor_variance > 0
        return torch.where(known, self.covariance / torch.where(known, self.anchor_variance, 1.0), 0.0)

    @property
    def norm_error(self) -> Tensor:
        """Standard error of the norms."""
        return self.norms * self._relative(self.norm_spread)

    def contribution_error(self, contribution: Tensor) -> Tensor:
        """Standard error of contributions [layer, output, input]."""
        return contribution * self._relative(self.contribution_spread)

    def _relative(self, spread: Tensor) -> Tensor:
        if self.probes >= self.width:
            return torch.zeros_like(spread)
        if self.freedom == 0:
            return torch.full_like(spread, torch.nan)
        left = 1 - self.probes / self.width
        # The norm is the root of what was averaged: half its relative error.
        return 0.5 * (spread / self.freedom / self.probes * left).sqrt()


def empty_estimate(shape: tuple[int, int, int], width: int, anchor: Tensor | None) -> Estimate:
    """No probes yet; shape is (layers, outputs, inputs)."""
    zeros = torch.zeros(shape, dtype=torch.float64)
    start = None if anchor is None else torch.zeros(shape[1:], dtype=torch.float64)
    none = torch.zeros(shape[0], dtype=torch.float64)
    return Estimate(width, 0, 0, zeros, zeros, zeros, anchor, start, none, none)


def add_round(before: Estimate, responses: Tensor, anchor_responses: Tensor | None) -> Estimate:
    """Add a round of probes: responses [layer, output, input, probe], anchor_responses [output, input, probe]."""
    count = responses.shape[-1]
    after = replace(
        before,
        probes=before.probes + count,
        freedom=before.freedom + count - 1,
        responses=before.responses + responses.sum(-1, dtype=torch.float64),
    )
    off = None
    if anchor_responses is not None and before.anchor_responses is not None:
        after = replace(after, anchor_responses=before.anchor_responses + anchor_responses.sum(-1, dtype=torch.float64))
        off = _deviations(anchor_responses, after.anchor_mean) * after.anchored[..., None]
        covariance = torch.stack(
            [(_deviations(seen, mean) * off).sum() for seen, mean in zip(responses, after.mean, strict=True)]
        )
        after = replace(
            after,
            covariance=before.covariance + covariance,
            anchor_variance=before.anchor_variance + off.square().sum(),
        )
    norms = after.norms
    contribution = norms / norms.sum(-1, keepdim=True)
    norm_spread, contribution_spread = before.norm_spread.clone(), before.contribution_spread.clone()
    for layer, seen in enumerate(responses):
        deviation = _deviations(seen, after.mean[layer])
        if off is not None:
            deviation = deviation - after.slope[layer] * off
        norm_spread[layer] += deviation.square().sum(-1)
        # c = n/Σn: what all inputs of an output have in common drops out.
        common = torch.einsum("ji,jip->jp", contribution[layer].nan_to_num(), deviation)
        contribution_spread[layer] += (deviation - common[:, None]).square().sum(-1)
    return replace(after, norm_spread=norm_spread, contribution_spread=contribution_spread)


def _deviations(responses: Tensor, mean: Tensor) -> Tensor:
    """Deviation of each probe from the round's mean, relative to the mean of all; 0 where nothing responds."""
    responses = responses.double()
    scale = torch.where(mean > 0, mean, torch.ones_like(mean))[..., None]
    return (responses - responses.mean(-1, keepdim=True)) / scale
