"""Hidden Token Attribution in a terminal."""

from typing import Any

import numpy as np
import xarray as xr

from identiscope.token_text import shown_token
from identiscope.views.tables.terminal import console, print_table

# Contributors shown for each token.
MOST = 3


def print_attribution(result: xr.Dataset) -> None:
    """What was done, how much of a token is itself by layer, and what each token is made of in the last."""
    out = console()
    attrs, values = result.attrs, result["contribution"].values
    if attrs["mode"] == "exact":
        how = f"exact, all {attrs['width']} directions of every token"
    else:
        how = f"estimated from {attrs['probes']} of {attrs['width']} directions, mean relative standard error"
        how += f" {attrs['mean_relative_error']:.1%}"
    path = "known blocks" if attrs["path"] == "blocks" else f"the replay ({attrs['why_replay']})"
    inputs, outputs = result["input_token"].values, result["output_token"].values
    out.print(f"{attrs['model']}, {len(outputs)} tokens: {how}; {attrs['norm']} norm, through {path}", markup=False)
    if not attrs["complete"]:
        out.print("Interrupted: what was done is kept, and can be resumed.", markup=False)
    if bool(np.isnan(values).any()):
        out.print("Not all contributions are known.", markup=False)
        return
    own = len(inputs) - len(outputs) + np.arange(len(outputs))
    selves = values[:, own, np.arange(len(outputs))]
    rows: list[tuple[Any, ...]] = []
    for number, layer in enumerate(result["layer"].values):
        lower, median, upper = (float(quantile) for quantile in np.quantile(selves[number], [0.25, 0.5, 0.75]))
        beaten = float((values[number].max(0) > selves[number]).mean())
        rows.append((int(layer), _percent(lower), _percent(median), _percent(upper), _percent(beaten)))
    columns = dict.fromkeys(("layer", "lower quartile", "median", "upper quartile", "not its own largest"), "right")
    print_table("\nHow much of a hidden token is its own input", columns, rows, out)
    last, errors = values[-1], result["contribution_error"].values[-1]
    rows = []
    for place, token in enumerate(outputs):
        order = [int(i) for i in np.argsort(-last[:, place], kind="stable") if i != own[place]][:MOST]
        most = "  ".join(f"{shown_token(str(inputs[i]))} {_percent(float(last[i, place]))}" for i in order)
        itself = f"{_percent(float(last[own[place], place]))} ± {100 * float(errors[own[place], place]):.1f}"
        rows.append((place, shown_token(str(token)), itself, most))
    columns = {"place": "right", "token": "left", "itself": "right", "largest others": "left"}
    print_table(f"\nWhat each token is made of at layer {int(result['layer'].values[-1])}", columns, rows, out)


def print_comparison(result: xr.Dataset) -> None:
    """How far contributions and attention, averaged over heads, agree at each layer."""
    names = [(kind, str(name)) for kind in ("pearson", "spearman") for name in result["map"].values]
    rows = [
        (int(layer), *(f"{float(result[kind].sel(map=name, layer=layer)):.2f}" for kind, name in names))
        for layer in result["layer"].values
    ]
    columns = dict.fromkeys(("layer", *(f"{kind}, {name}" for kind, name in names)), "right")
    print_table("\nCorrelation of contributions with attention averaged over heads", columns, rows, console())


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
