"""Attributions as labelled results, with all that is needed to take them up again, and back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.attribution_estimate import Estimate
from identiscope.methods.attribution_result import Attribution, mean_relative_error
from identiscope.results import make_result

METHOD = "hidden_token_attribution"
_CELLS = ("layer", "input", "output")
# What an estimate adds up, kept so that it can go on from a file: name → axes.
_SUMS = {
    "responses": ("layer", "output", "input"),
    "norm_spread": ("layer", "output", "input"),
    "contribution_spread": ("layer", "output", "input"),
    "covariance": ("layer", "ratio"),
    "anchor_covariance": ("ratio", "other_ratio"),
    "anchor": ("ratio", "output", "input"),
    "anchor_responses": ("ratio", "output", "input"),
}


def as_result(found: Attribution) -> xr.Dataset:
    """Contributions, norms and errors by layer, input and output."""
    arrays: dict[str, tuple[Sequence[str], Any]] = {
        "contribution": (_CELLS, found.contribution),
        "contribution_error": (_CELLS, found.contribution_error),
        "norm": (_CELLS, found.norm),
        "norm_error": (_CELLS, found.norm_error),
        "followed": (("input",), found.followed),
    }
    estimate = found.estimate
    if estimate is not None:
        for name, axes in _SUMS.items():
            value = getattr(estimate, name)
            if value is not None:
                arrays[f"sum_{name}"] = (axes, value)
    error = mean_relative_error(found) if found.probes > 0 else float("nan")
    return make_result(
        METHOD,
        arrays,
        coordinates={"layer": np.array(found.layers)},
        provenance={
            "mode": found.mode,
            "norm": found.norm_name,
            "width": found.width,
            "probes": found.probes,
            "freedom": 0 if estimate is None else estimate.freedom,
            "mean_relative_error": error,
            "complete": found.complete,
            "composed": found.composed,
            "seed": found.seed,
        },
    )


def with_tokens(
    result: xr.Dataset,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    special: Sequence[bool],
    provenance: Mapping[str, Any],
) -> xr.Dataset:
    """The names of the tokens, and whether an output is special, as coordinates."""
    labelled = result.assign_coords(
        input_token=("input", np.array(inputs, dtype=object)),
        output_token=("output", np.array(outputs, dtype=object)),
        output_special=("output", np.array(special, dtype=bool)),
    )
    return labelled.assign_attrs(provenance)


def resumed(result: xr.Dataset) -> Attribution:
    """The attribution that a result was made of, to go on with."""
    if result.attrs.get("method") != METHOD:
        raise InputError(f"only a result of {METHOD} can be resumed; given {result.attrs.get('method')!r}.")

    def tensor(name: str) -> Tensor:
        return torch.from_numpy(np.array(result[name].values))

    mode, estimate = str(result.attrs["mode"]), None
    if mode == "estimate":
        sums = {name: tensor(f"sum_{name}") if f"sum_{name}" in result else None for name in _SUMS}
        estimate = Estimate(
            width=int(result.attrs["width"]),
            probes=int(result.attrs["probes"]),
            freedom=int(result.attrs["freedom"]),
            **sums,  # type: ignore[arg-type]  # those that are never None are always there
        )
    return Attribution(
        layers=tuple(int(layer) for layer in result["layer"].values),
        contribution=tensor("contribution"),
        norm=tensor("norm"),
        contribution_error=tensor("contribution_error"),
        norm_error=tensor("norm_error"),
        norm_name=str(result.attrs["norm"]),
        mode=mode,
        followed=tensor("followed"),
        width=int(result.attrs["width"]),
        complete=bool(result.attrs["complete"]),
        composed=bool(result.attrs["composed"]),
        seed=int(result.attrs["seed"]),
        estimate=estimate,
    )
