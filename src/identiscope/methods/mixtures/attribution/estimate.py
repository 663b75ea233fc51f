"""Estimate Jacobian norms from probes, a round at a time.

For one cell (layer, output, input) the squared responses y_p = ‖J·v_p‖² to the columns of an orthogonal matrix,
scaled by √d, are a finite population with mean ‖J‖_F²; k of them are a sample without replacement. The same probes
serve every input token, so what the tokens have in common cancels in the contributions.

Where the exact norms A of an earlier Jacobian are known (the anchor), responses w_p to the same probes tell how
far this sample is off there, and mean(y)·Π(A/mean(w))^β carries that over: a ratio estimator with two ratios, of
the same cell and of all that the same input reaches, and two β for each layer, from the pooled covariances of the
relative responses. For the anchored layer itself β is (1, 0), and the estimate exact.

Rounds have the same probes whenever an estimate stopped: one that stopped within a round keeps the probes of it apart,
and takes them along when it goes on. So an estimate that was resumed is the one that was never interrupted.

How far off all this may be is found in `error.py`, from the responses of groups of probes.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

#: So many groups of probes are kept apart at most; beyond, neighbours are added up two by two.
MOST_GROUPS = 32


@dataclass(frozen=True, eq=False)
class Estimate:
    """What all rounds so far add up to.

    responses [layer, output, input] is Σ_p y_p, anchor and anchor_responses [ratio, output, input] are A and Σ_p w_p;
    covariance [layer, ratio] and anchor_covariance [ratio, ratio] are the pooled sums of whole rounds that give β.
    grouped [layer, output, input, group] and anchor_grouped [output, input, group] are the sums of y and w over each
    group of probes, of which there are sizes [group]. The last `open_probes` groups are the single probes of a round
    that is not whole yet.
    """

    width: int
    responses: Tensor
    anchor: Tensor | None
    anchor_responses: Tensor | None
    covariance: Tensor
    anchor_covariance: Tensor
    sizes: Tensor
    grouped: Tensor
    anchor_grouped: Tensor | None
    open_probes: int = 0

    @property
    def probes(self) -> int:
        """How many directions have been followed."""
        return int(self.sizes.sum())

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
    def anchor_off(self) -> Tensor:
        """log(A/mean(w)), [ratio, output, input]; 0 for a cell without an anchor, which has nothing to go by."""
        assert self.anchor is not None
        anchored = self.anchored
        return torch.where(anchored, self.anchor / torch.where(anchored, self.anchor_mean, 1.0), 1.0).log()

    @property
    def norms(self) -> Tensor:
        """The estimated norms, [layer, output, input]."""
        squares = self.mean
        if self.anchor is not None and self.probes < self.width:
            squares = squares * (self.slope @ self.anchor_off.flatten(1)).exp().view_as(squares)
        return squares.sqrt()

    @property
    def slope(self) -> Tensor:
        """β of each layer, [layer, ratio]."""
        covariance, there = self.covariance, self.anchor_covariance
        if self.open_probes and self.anchor_grouped is not None:
            last = slice(len(self.sizes) - self.open_probes, None)
            more = _covariances(self, self.grouped[..., last], self.anchor_grouped[..., last])
            covariance, there = covariance + more[0], there + more[1]
        # The two ratios may be one, as in a text of one token: the shortest solution shares what there is.
        slope: Tensor = covariance @ torch.linalg.pinv(there, hermitian=True)
        return slope


def empty_estimate(shape: tuple[int, int, int], width: int, anchor: Tensor | None, dtype: torch.dtype) -> Estimate:
    """No probes yet; shape is (layers, outputs, inputs), the anchor [output, input]; groups are kept in `dtype`."""
    known = None if anchor is None else ratios(anchor)
    none = torch.zeros(shape[0] + 2, 2, dtype=torch.float64)
    return Estimate(
        width=width,
        responses=torch.zeros(shape, dtype=torch.float64),
        anchor=known,
        anchor_responses=None if known is None else torch.zeros_like(known),
        covariance=none[2:],
        anchor_covariance=none[:2],
        sizes=torch.zeros(0, dtype=torch.long),
        grouped=torch.zeros(*shape, 0, dtype=dtype),
        anchor_grouped=None if anchor is None else torch.zeros(*anchor.shape, 0, dtype=dtype),
    )


def add_round(before: Estimate, responses: Tensor, anchor_responses: Tensor | None, *, whole: bool = True) -> Estimate:
    """Add probes of a round: responses [layer, output, input, probe], anchor_responses [output, input, probe].

    They belong to the round that was left open, if one was. whole: whether the round ends with them.
    """
    summed = replace(before, responses=before.responses + responses.sum(-1, dtype=torch.float64))
    if anchor_responses is not None and before.anchor_responses is not None:
        seen_there = ratios(anchor_responses).sum(-1, dtype=torch.float64)
        summed = replace(summed, anchor_responses=before.anchor_responses + seen_there)
    closed, responses, anchor_responses = _reopened(summed, responses, anchor_responses)
    after = _with_groups(closed, responses, anchor_responses, whole)
    if anchor_responses is None or not whole:
        return after
    more = _covariances(after, responses, anchor_responses)
    return replace(after, covariance=before.covariance + more[0], anchor_covariance=before.anchor_covariance + more[1])


def _reopened(
    estimate: Estimate, responses: Tensor, anchor_responses: Tensor | None
) -> tuple[Estimate, Tensor, Tensor | None]:
    """The groups without the probes of the open round, and these with the new ones."""
    if estimate.open_probes == 0:
        return estimate, responses, anchor_responses
    first = len(estimate.sizes) - estimate.open_probes
    there = estimate.anchor_grouped
    if there is not None and anchor_responses is not None:
        anchor_responses = torch.cat([there[..., first:], anchor_responses], -1)
        there = there[..., :first]
    responses = torch.cat([estimate.grouped[..., first:], responses], -1)
    sizes, grouped = estimate.sizes[:first], estimate.grouped[..., :first]
    return (
        replace(estimate, sizes=sizes, grouped=grouped, anchor_grouped=there, open_probes=0),
        responses,
        anchor_responses,
    )


def _covariances(estimate: Estimate, responses: Tensor, anchor_responses: Tensor) -> tuple[Tensor, Tensor]:
    """What a round adds to covariance and anchor_covariance, relative to the means of all probes so far."""
    there = ratios(anchor_responses)
    off = (_deviations(there, estimate.anchor_mean) * estimate.anchored[..., None]).flatten(1)
    pairs = zip(responses, estimate.mean, strict=True)
    return torch.stack([off @ _deviations(seen, mean).flatten() for seen, mean in pairs]), off @ off.T


def ratios(cells: Tensor) -> Tensor:
    """[output, input, …] as [ratio, output, input, …]: the cell itself, and the mean over what its input reaches."""
    return torch.stack([cells, cells.mean(0, keepdim=True).expand_as(cells)])


def _with_groups(before: Estimate, responses: Tensor, anchor_responses: Tensor | None, whole: bool) -> Estimate:
    """A whole round in groups as large as there are, neighbours added up while there are too many groups; the probes of
    one that is not whole yet one by one."""
    each = max(1, int(before.sizes.max())) if len(before.sizes) and whole else 1
    sizes = torch.cat(
        [before.sizes, torch.tensor([len(part) for part in torch.arange(responses.shape[-1]).split(each)])]
    )
    grouped = torch.cat([before.grouped, _summed(responses, each)], -1)
    there = before.anchor_grouped
    if there is not None and anchor_responses is not None:
        there = torch.cat([there, _summed(anchor_responses, each)], -1)
    while whole and len(sizes) > MOST_GROUPS:
        sizes, grouped = _summed(sizes, 2), _summed(grouped, 2)
        there = None if there is None else _summed(there, 2)
    open_probes = 0 if whole else responses.shape[-1]
    return replace(before, sizes=sizes, grouped=grouped, anchor_grouped=there, open_probes=open_probes)


def _summed(values: Tensor, size: int) -> Tensor:
    """The last axis in parts of `size`, each added up."""
    return values if size == 1 else torch.stack([part.sum(-1) for part in values.split(size, -1)], -1)


def _deviations(responses: Tensor, mean: Tensor) -> Tensor:
    """Deviation of each probe from the round's mean, relative to the mean of all; 0 where nothing responds."""
    responses = responses.double()
    scale = torch.where(mean > 0, mean, torch.ones_like(mean))[..., None]
    return (responses - responses.mean(-1, keepdim=True)) / scale
