"""Confidence intervals of an estimated attribution."""

import numpy as np
import xarray as xr

from identiscope.errors import InputError
from identiscope.methods.mixtures.attribution.contributions import interval_factor
from identiscope.results import using

_CELLS = ("layer", "input", "output")


def attribution_intervals(result: xr.Dataset, level: float = 0.95) -> xr.Dataset:
    """Confidence intervals of an estimate: `contribution_low`, `contribution_high`, `norm_low` and `norm_high`.

    They are symmetric in the logarithm, by Student's t; exact values are their own interval.
    """
    if not 0 < level < 1:
        raise InputError(f"a level of {level} was given; expected a share between 0 and 1, such as 0.95.")
    bounds: dict[str, xr.DataArray] = {}
    with using(result, "hidden_token_attribution"):
        for name in ("contribution", "norm"):
            values, error = result[name], result[f"{name}_error"]
            factor = xr.DataArray(interval_factor(level, result[f"{name}_freedom"].values), dims="layer")
            reach = np.exp(factor * (error / values.where(values > 0)).fillna(0.0))
            low, high = values / reach, (values * reach).clip(max=1.0 if name == "contribution" else None)
            bounds |= {f"{name}_low": low.transpose(*_CELLS), f"{name}_high": high.transpose(*_CELLS)}
    return result[[]].assign(bounds).assign_attrs(result.attrs | {"method": "attribution_intervals", "level": level})
