"""What Hidden Token Attribution returns."""

from dataclasses import dataclass, replace

import torch
from scipy.stats import t as student
from torch import Tensor

from identiscope.methods.attribution_estimate import Estimate


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions c[layer, input, output], which sum to one over the inputs, and the norms they come from.

    The errors are standard errors, zero where every direction was followed. `complete` is false if the work
    was interrupted: inputs that were not reached are NaN, and `resume=` takes the work up again. `followed`
    counts the directions followed for each input token.
    """

    layers: tuple[int, ...]
    contribution: Tensor
    norm: Tensor
    contribution_error: Tensor
    norm_error: Tensor
    norm_name: str
    mode: str
    followed: Tensor
    width: int
    complete: bool
    composed: bool
    seed: int
    estimate: Estimate | None = None

    @property
    def probes(self) -> int:
        """Directions followed for every input token."""
        return int(self.followed.min())

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Confidence interval of the contributions, by Student's t on the spread of the probes."""
        freedom = self.estimate.freedom if self.estimate is not None else 1
        factor = float(student.ppf(0.5 + level / 2, max(freedom, 1)))
        reach = factor * self.contribution_error
        return (self.contribution - reach).clamp(min=0), (self.contribution + reach).clamp(max=1)


def with_norms(
    start: Attribution, norms: Tensor, estimate: Estimate | None, followed: Tensor, complete: bool
) -> Attribution:
    """Norms [layer, output, input] as a result, whose arrays are [layer, input, output]."""
    contribution = norms / norms.sum(-1, keepdim=True)
    zeros = torch.zeros_like(norms)
    norm_error = zeros if estimate is None else estimate.norm_error
    error = zeros if estimate is None else estimate.contribution_error(contribution)
    turned = [part.transpose(1, 2).contiguous() for part in (contribution, norms, error, norm_error)]
    return replace(
        start,
        contribution=turned[0],
        norm=turned[1],
        contribution_error=turned[2],
        norm_error=turned[3],
        estimate=estimate,
        followed=followed,
        complete=complete,
    )


def mean_relative_error(attribution: Attribution) -> float:
    """The standard error of a contribution, relative to it, on average over those that are not zero."""
    some = attribution.contribution > 0
    return float((attribution.contribution_error[some] / attribution.contribution[some]).mean())
