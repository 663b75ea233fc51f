"""Estimate Jacobian norms from probes, a round at a time, with standard errors.

For one cell (layer, output, input) the squared responses y_p = ‖J·v_p‖² to the columns of an orthogonal matrix,
scaled by √d, are a finite population with mean ‖J‖_F²; k of them are a sample without replacement, whose mean
has variance (1 − k/d)·s²/k. The same probes serve every input token, so what the tokens have in common cancels
in the contributions.

Where the exact norms A of an earlier Jacobian are known (the anchor), responses w_p to the same probes tell how
far this sample is off there, and mean(y)·Π(A/mean(w))^β carries that over: a ratio estimator with two ratios, of
the same cell and of all that the same input reaches, and two β for each layer, from the pooled covariances of the
relative responses. For the anchored layer itself β is (1, 0), and the estimate exact.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Estimate:
    """What all rounds so far add up to.

    responses [layer, output, input] is Σ_p y_p, anchor and anchor_responses [ratio, output, input] are A and Σ_p w_p;
    norm_spread and contribution_spread are sums of squared relative deviations within rounds, with `freedom` degrees
    of freedom; covariance [layer, ratio] and anchor_covariance [ratio, ratio] are the pooled sums that give β.
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
    anchor_covariance: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean response, [layer, output, input]."""
        return self.responses / self.probes

    @property
    def anchor_mean(self) -> Tensor:
        """Mean response of the anchor, [ratio, output, input]."""
        assert self.anchor_responses is not None
        return self.anchor_responses / self.probes

    @property
    def anchored(self) -> Tensor:
        """Which cells have an anchor that responds, [output, input]."""
        assert self.anchor is not None
        return ((self.anchor > 0) & (self.anchor_mean > 0)).all(0)

    @property
    def norms(self) -> Tensor:
        """The estimated norms, [layer, output, input]."""
        squares = self.mean
        if self.anchor is not None and self.anchor_responses is not None and self.probes < self.width:
            mean = self.anchor_mean
            # A cell without an anchor has nothing to be corrected by.
            ratio = torch.where(self.anchored, self.anchor / torch.where(self.anchored, mean, 1.0), 1.0)
            squares = squares * (self.slope @ ratio.log().flatten(1)).exp().view_as(squares)
        return squares.sqrt()

    @property
    def slope(self) -> Tensor:
        """β of each layer, [layer, ratio]."""
        # The two ratios may be one, as in a text of one token: the shortest solution shares what there is.
        slope: Tensor = self.covariance @ torch.linalg.pinv(self.anchor_covariance, hermitian=True)
        return slope

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
    """No probes yet; shape is (layers, outputs, inputs), the anchor [output, input]."""
    zeros = torch.zeros(shape, dtype=torch.float64)
    known = None if anchor is None else _ratios(anchor)
    start = None if known is None else torch.zeros_like(known)
    none = torch.zeros(shape[0] + 2, 2, dtype=torch.float64)
    return Estimate(width, 0, 0, zeros, zeros, zeros, known, start, none[2:], none[:2])


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
        seen_there = _ratios(anchor_responses)
        after = replace(after, anchor_responses=before.anchor_responses + seen_there.sum(-1, dtype=torch.float64))
        off = _deviations(seen_there, after.anchor_mean) * after.anchored[..., None]
        flat = off.flatten(1)
        covariance = torch.stack(
            [flat @ _deviations(seen, mean).flatten() for seen, mean in zip(responses, after.mean, strict=True)]
        )
        after = replace(
            after,
            covariance=before.covariance + covariance,
            anchor_covariance=before.anchor_covariance + flat @ flat.T,
        )
    norms = after.norms
    contribution = norms / norms.sum(-1, keepdim=True)
    norm_spread, contribution_spread = before.norm_spread.clone(), before.contribution_spread.clone()
    for layer, seen in enumerate(responses):
        deviation = _deviations(seen, after.mean[layer])
        if off is not None:
            deviation = deviation - torch.einsum("r,rjip->jip", after.slope[layer], off)
        norm_spread[layer] += deviation.square().sum(-1)
        # c = n/Σn: what all inputs of an output have in common drops out.
        common = torch.einsum("ji,jip->jp", contribution[layer].nan_to_num(), deviation)
        contribution_spread[layer] += (deviation - common[:, None]).square().sum(-1)
    return replace(after, norm_spread=norm_spread, contribution_spread=contribution_spread)


def _ratios(cells: Tensor) -> Tensor:
    """[output, input, …] as [ratio, output, input, …]: the cell itself, and the mean over what its input reaches."""
    return torch.stack([cells, cells.mean(0, keepdim=True).expand_as(cells)])


def _deviations(responses: Tensor, mean: Tensor) -> Tensor:
    """Deviation of each probe from the round's mean, relative to the mean of all; 0 where nothing responds."""
    responses = responses.double()
    scale = torch.where(mean > 0, mean, torch.ones_like(mean))[..., None]
    return (responses - responses.mean(-1, keepdim=True)) / scale
