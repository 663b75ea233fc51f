"""Token identifiability rates as estimates: statistics of them with intervals over sentences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from identiscope.papers.judging import FEWEST_TEXTS, Estimate, between, estimated
from identiscope.views.plots.figures import Claim

#: How near a number of the same model on the same data must be.
NUMBER = 0.02
#: What is called considerable, remarkable or a quick drop.
CONSIDERABLE = 0.05
#: Tokens are found if more than this share of them is: of what is not, differences are those of luck.
FOUND = 0.5
#: A step between layers, or between left and right, that is more than nothing.
STEP = 0.01

Rates = xr.DataArray
ELSEWHERE = "of another model or other data than the paper's, and so not judged"


def of_rates(statistic: Callable[..., Rates | list[Rates]], *results: xr.Dataset) -> Estimate:
    """A statistic of rates [probe, layer, …], with its interval from those of resampled sentences."""

    def numbers(name: str, leading: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
        made = statistic(*(one[name] for one in results))
        parts = made if isinstance(made, list) else [made]
        stacked = np.stack([part.transpose(*leading, ...).values for part in parts], -1)
        return stacked if isinstance(made, list) else stacked[..., 0]

    enough = min(int(one["sentences"].min()) for one in results) >= FEWEST_TEXTS
    return estimated(numbers("rate", ()), numbers("resampled_rate", ("resample",)) if enough else [])


def above_inputs(result: xr.Dataset) -> xr.Dataset:
    """Rates of neighbours less what the token's own input gives away of them, for `of_rates`."""
    return xr.Dataset(
        {
            "rate": result["rate"] - result["input_rate"],
            "resampled_rate": result["resampled_rate"] - result["resampled_input_rate"],
            "sentences": result["sentences"],
        }
    )


def share(estimate: Estimate) -> str:
    """A rate with its interval."""
    return estimate.said(lambda value: f"{100 * value:.1f} %")


def points(estimate: Estimate) -> str:
    """A difference of rates with its interval."""
    return estimate.said(lambda value: f"{100 * value:+.1f} points")


def number_claim(statement: str, source: str, published: float, estimate: Estimate, comparable: bool) -> Claim:
    """A share that was published, beside the one estimate: judged only of the same model and data."""
    answer = between(estimate, published - NUMBER, published + NUMBER)
    return Claim(
        statement=statement,
        source=source,
        published=f"{100 * published:.1f} %",
        rule=f"the interval over sentences lies within {100 * NUMBER:g} points of the published number",
        here=share(estimate) if comparable else f"{share(estimate)}; {ELSEWHERE}",
        holds=answer if comparable else None,
    )
