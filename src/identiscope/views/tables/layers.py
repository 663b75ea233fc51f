"""What can be said of the alternatives of whole layers in words: in which there are some, and why there are none."""

from collections.abc import Sequence

import numpy as np
import xarray as xr


def layer_sentences(result: xr.Dataset) -> list[str]:
    """A sentence for the layers whose heads can stand in for each other, and one for those of which none can."""
    if not {"between_heads", "projection_condition"} <= set(map(str, result.data_vars)):
        return []
    layers = np.atleast_1d(result["layer"].values)
    counts, conditions = (np.atleast_1d(result[name].values) for name in ("between_heads", "projection_condition"))
    said = []
    for layer, count, condition in zip(layers, counts, conditions, strict=True):
        if count:
            said.append(
                f"layer {layer}: attention can move between its heads in {count} directions (condition of W_O"
                f" {_size(condition)})."
            )
    for singular in (False, True):
        none = [place for place, count in enumerate(counts) if not count and np.isinf(conditions[place]) == singular]
        if none:
            which = f"none in {_named([int(layers[place]) for place in none])}: no attention can move between heads"
            why = "" if singular else ", as they are together no wider than the model and W_O is not singular"
            sizes = [float(conditions[place]) for place in none]
            ends = list(dict.fromkeys((_size(min(sizes)), _size(max(sizes)))))
            on = " on this text" if singular else ""
            said.append(f"{which}{on}{why} (condition of W_O {' to '.join(ends)}).")
    return said


def is_none(result: xr.Dataset) -> bool:
    """Whether there is nothing but the raw maps."""
    return "between_heads" in result and not bool(np.any(result["between_heads"].values))


def _named(layers: Sequence[int]) -> str:
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {', '.join(map(str, layers))}"


def _size(condition: float) -> str:
    if np.isinf(condition):
        return "infinite"
    return f"{condition:,.0f}" if condition >= 100 else f"{condition:.3g}"
