"""What Hidden Token Attribution returns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.earlier import Earlier
from identiscope.methods.mixtures.attribution.error import log_errors
from identiscope.methods.mixtures.attribution.estimate import Estimate

_CELLS = ("layer", "input", "output")
# What an estimate adds up, kept so that it can go on from a file: name → axes.
_SUMS = {
    "responses": ("layer", "output", "input"),
    "covariance": ("layer", "ratio"),
    "anchor_covariance": ("ratio", "other_ratio"),
    "anchor": ("ratio", "output", "input"),
    "anchor_responses": ("ratio", "output", "input"),
    "sizes": ("group",),
    "grouped": ("layer", "output", "input", "group"),
    "anchor_grouped": ("output", "input", "group"),
}


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions c[layer, input, output], which sum to one over the inputs, and the norms they come from.

    The errors are standard errors, zero where every direction was followed, with as many degrees of freedom [layer].
    `complete` is false if the work was interrupted: inputs that were not reached are NaN, and `resume=` takes the
    work up again. `followed` counts the directions followed for each input token, and `first` [layer, input, output]
    holds the squared response to the first of them, by which what is resumed is known again. layers: blocks, from 0.
    """

    layers: tuple[int, ...]
    contribution: Tensor
    norm: Tensor
    contribution_error: Tensor
    norm_error: Tensor
    contribution_freedom: Tensor
    norm_freedom: Tensor
    norm_name: str
    mode: str
    followed: Tensor
    width: int
    complete: bool
    composed: bool
    seed: int
    first: Tensor
    estimate: Estimate | None = None

    @property
    def probes(self) -> int:
        """Directions followed for every input token."""
        return int(self.followed.min())

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes: contributions, norms and errors, and all that is needed to go on."""
        named: dict[str, tuple[tuple[str, ...], Tensor]] = {
            "contribution": (_CELLS, self.contribution),
            "contribution_error": (_CELLS, self.contribution_error),
            "contribution_freedom": (("layer",), self.contribution_freedom),
            "norm": (_CELLS, self.norm),
            "norm_error": (_CELLS, self.norm_error),
            "norm_freedom": (("layer",), self.norm_freedom),
            "followed": (("input",), self.followed),
            "first_response": (_CELLS, self.first),
        }
        sums = {} if self.estimate is None else {name: getattr(self.estimate, name) for name in _SUMS}
        return named | {f"sum_{name}": (_SUMS[name], sum_) for name, sum_ in sums.items() if sum_ is not None}

    def labels(self) -> dict[str, Sequence[int]]:
        """The blocks."""
        return {"layer": self.layers}

    @property
    def facts(self) -> dict[str, Any]:
        """How it was made, and whether it was made to its end."""
        return {
            "mode": self.mode,
            "norm": self.norm_name,
            "width": self.width,
            "probes": self.probes,
            "mean_relative_error": mean_relative_error(self) if self.probes > 0 else float("nan"),
            "complete": self.complete,
            "composed": self.composed,
            "seed": self.seed,
            "open_probes": 0 if self.estimate is None else self.estimate.open_probes,
        }

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Confidence interval of the contributions."""
        low, high = _around(self.contribution, self.contribution_error, self.contribution_freedom, level)
        return low, high.clamp(max=1)

    def norm_interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Confidence interval of the norms."""
        return _around(self.norm, self.norm_error, self.norm_freedom, level)


def interval_factor(level: float, freedom: np.ndarray) -> np.ndarray:
    """How many standard errors of its logarithm an estimate's interval reaches, by Student's t.

    >>> interval_factor(0.95, np.array([4.0, 1e9])).round(2)
    array([2.78, 1.96])
    """
    factor: np.ndarray = student.ppf(0.5 + level / 2, freedom)
    return factor


def _around(values: Tensor, errors: Tensor, freedom: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """values·e^(± t·relative error), [layer, input, output]."""
    factor = torch.from_numpy(interval_factor(level, freedom.numpy()))[:, None, None]
    reach = (factor * torch.where(errors > 0, errors / values, 0.0)).exp()
    return values / reach, values * reach


def with_norms(
    start: Attribution, norms: Tensor, estimate: Estimate | None, followed: Tensor, first: Tensor, complete: bool
) -> Attribution:
    """Norms [layer, output, input], and `first` likewise, as a result, whose arrays are [layer, input, output]."""
    contribution = norms / norms.sum(-1, keepdim=True)
    zeros = torch.zeros_like(norms)
    parts, freedoms = [contribution, norms, zeros, zeros, first], [torch.ones(len(norms), dtype=torch.float64)] * 2
    if estimate is not None:
        errors = log_errors(estimate, contribution)
        parts[2:4] = contribution * errors.contribution, norms * errors.norm
        freedoms = [errors.contribution_freedom, errors.norm_freedom]
    turned = [part.transpose(1, 2).contiguous() for part in parts]
    return replace(
        start,
        contribution=turned[0],
        norm=turned[1],
        contribution_error=turned[2],
        norm_error=turned[3],
        contribution_freedom=freedoms[0],
        norm_freedom=freedoms[1],
        estimate=estimate,
        followed=followed,
        first=turned[4],
        complete=complete,
    )


def mean_relative_error(attribution: Attribution) -> float:
    """The standard error of a contribution, relative to it, on average over those that are not zero."""
    some = attribution.contribution > 0
    return float((attribution.contribution_error[some] / attribution.contribution[some]).mean())


def attribution_of(earlier: Earlier) -> Attribution:
    """The attribution that an earlier result was made of, to go on with."""
    if "first_response" not in earlier.arrays:
        raise InputError(
            "the result to resume is of another version of identiscope, which did not say of what it is. Begin anew."
        )
    mode, estimate = str(earlier.fact("mode")), None
    if mode == "estimate":
        sums = {name: earlier.tensor(f"sum_{name}") if f"sum_{name}" in earlier.arrays else None for name in _SUMS}
        # Older results do not say it: their rounds ended where they did.
        open_probes = int(earlier.facts.get("open_probes", 0))
        width = int(earlier.fact("width"))
        estimate = Estimate(width=width, **sums, open_probes=open_probes)  # type: ignore[arg-type]  # None where it may be
    names = ("contribution", "norm", "contribution_error", "norm_error", "contribution_freedom", "norm_freedom")
    return Attribution(
        layers=tuple(int(layer) for layer in earlier.labels["layer"]),
        **{name: earlier.tensor(name) for name in names},
        norm_name=str(earlier.fact("norm")),
        mode=mode,
        followed=earlier.tensor("followed"),
        width=int(earlier.fact("width")),
        complete=bool(earlier.fact("complete")),
        composed=bool(earlier.fact("composed")),
        seed=int(earlier.fact("seed")),
        first=earlier.tensor("first_response"),
        estimate=estimate,
    )
