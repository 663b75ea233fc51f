"""On which side of a threshold a statistic lies, whatever the attention was."""

from dataclasses import dataclass

import numpy as np
import xarray as xr


@dataclass(frozen=True)
class Side:
    """`above` or `below` if all attention with the same output says so, `either` if some says one and some the other;
    `undefined` where there is no such number."""

    name: str
    statistic: float
    lower: float
    upper: float

    def sentence(self, threshold: float) -> str:
        """In words."""
        range_ = f"it is {self.statistic:.3f}, and may be anything from {self.lower:.3f} to {self.upper:.3f}"
        if self.name == "undefined":
            return "The statistic is not defined here: what it is divided by can be zero."
        if self.name == "either":
            return f"Attention with the same output lies on both sides of {threshold:g}: {range_}."
        return f"It is {self.name} {threshold:g} whatever the attention was: {range_}."


def side_of(statistic: float, lower: float, upper: float, threshold: float) -> Side:
    """The side on which an interval lies; on neither if the threshold is within it, its ends included.

    >>> side_of(0.3, 0.2, 0.4, 0.5).name, side_of(0.3, 0.2, 0.6, 0.5).name
    ('below', 'either')
    """
    name = "either"
    if lower != lower or upper != upper:
        name = "undefined"
    elif lower > threshold:
        name = "above"
    elif upper < threshold:
        name = "below"
    return Side(name, statistic, lower, upper)


def mean_interval(result: xr.Dataset) -> tuple[float, float, float]:
    """The mean over layers and heads of what `statistic_interval` gave, which their intervals' means bound exactly.

    Rows can be exchanged one by one, so that the bounds of a mean are the means of the bounds. NaN where all are.
    """
    values = [result[name].values for name in ("statistic", "lower", "upper")]
    known = ~np.isnan(values[0])
    if not known.any():
        return float("nan"), float("nan"), float("nan")
    now, lower, upper = (float(part[known].mean()) for part in values)
    return now, lower, upper
