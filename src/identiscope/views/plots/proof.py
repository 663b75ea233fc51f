"""Plots of alternatives and of what they change in the running model. Each takes a result and an `ax`."""

import math

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from identiscope.errors import InputError
from identiscope.token_text import drawn_token
from identiscope.views.plots.attention import name_bars, name_tokens, signed_map
from identiscope.views.plots.plotting import expect_one_of

# Wong's palette: told apart by colour-blind readers; hatched, so that colour is not needed.
RAW, ALTERNATIVE, RANDOM = "#56B4E9", "#D55E00", "#999999"
#: The maps of a proof: where their bars stand, colour and hatch.
PROVED = {"alternative": (-0.27, ALTERNATIVE, "////"), "raw": (0.0, RAW, ""), "random": (0.27, RANDOM, "....")}
PROVED_NAMES = {"alternative": "alternative", "raw": "raw map put back (rounding)", "random": "random map as far away"}
MEASURED = ("head_output", "hidden_states", "logits")
MAPS = {"difference": "alternative minus raw", "raw": "raw attention", "alternative": "alternative attention"}


def plot_attention_alternative(
    result: xr.Dataset, ax: Axes, *, values: str | None = None, row: int | None = None
) -> Axes:
    """A row beside its alternative as bars, or a map; raw and alternative have one scale, the difference its own.

    row: which query. values: `difference` (alternative minus raw), `raw` or `alternative`, as a map. Without either,
    the row that was asked for, or the difference where it was not just one.
    """
    if values is not None and row is not None:
        raise InputError(
            f"values={values!r} and row={row} were given; give values for a map, or row for one row of it."
        )
    asked = result.attrs["options"]["rows"] or []
    if row is None and values is None and len(asked) == 1:
        row = int(asked[0])
    if row is not None:
        return _row(result, ax, row)
    chosen = values or "difference"
    expect_one_of("values", chosen, MAPS)
    maps = {name: result[name].values for name in ("raw", "alternative")}
    if chosen == "difference":
        difference = maps["alternative"] - maps["raw"]
        signed_map(difference, [difference], ax, MAPS[chosen])
    else:
        signed_map(maps[chosen], list(maps.values()), ax, MAPS[chosen])
    name_tokens(ax, result)
    ax.set(xlabel="key", ylabel="query")
    _title(result, ax, MAPS[chosen], f"total variation up to {result['total_variation'].values.max():.2g}")
    return ax


def _row(result: xr.Dataset, ax: Axes, row: int) -> Axes:
    if not 0 <= row < result.sizes["query"]:
        raise InputError(f"row={row} was given; expected one of 0 to {result.sizes['query'] - 1}.")
    one = result.isel(query=row)
    places = np.arange(result.sizes["key"])
    ax.bar(places - 0.2, one["raw"].values, width=0.4, color=RAW, label="raw")
    ax.bar(places + 0.2, one["alternative"].values, width=0.4, color=ALTERNATIVE, hatch="////", edgecolor="white",
           linewidth=0, label="alternative")  # fmt: skip
    name_bars(ax, result["key_token"].values)
    ax.set(ylabel="attention", ylim=(0, None), xlim=(-0.6, len(places) - 0.4))
    what = f"from {drawn_token(one['query_token'].item())} (position {row})"
    _title(result, ax, what, f"total variation {one['total_variation'].item():.2g}")
    # Above the axes: inside, bars may be anywhere.
    ax.legend(frameon=False, fontsize="small", ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    return ax


def _title(result: xr.Dataset, ax: Axes, what: str, distance: str) -> None:
    asked, error = result.attrs["options"], float(result.attrs["output_error_relative"])
    place = f"layer {asked['layer']}, head {asked['head']}, {asked['how']}: {what}"
    change = f"{distance}, relative output error {error:.0e}"
    ax.set_title(f"{place}\n{change}", fontsize="medium", loc="left")


def plot_proof(result: xr.Dataset, ax: Axes) -> Axes:
    """How much the alternative changes, beside rounding and a random map as far away, on a logarithmic scale.

    Zero, which has no place on such a scale, is written out, as is what was not measured.
    """
    # The first version put no raw map back, and so could not say whether what moved was rounding.
    there = set(result["map"].values.tolist())
    measured = {name: [float(result[part].sel(map=name)) for part in MEASURED] for name in PROVED if name in there}
    seen = [value for row in measured.values() for value in row if value > 0 and math.isfinite(value)]
    # A decade below the least, so that it has a bar, too; what is all zero gets an axis to be written on.
    bottom = 10.0 ** (math.floor(math.log10(min(seen, default=1e-16))) - 1)
    top = 10.0 ** (math.ceil(math.log10(max(seen, default=1.0))) + 1)
    ax.set_yscale("log")
    for name in measured:
        shift, colour, hatch = PROVED[name]
        places = np.arange(len(MEASURED)) + shift
        heights = [value if value > 0 else bottom for value in measured[name]]
        ax.bar(
            places, heights, width=0.25, color=colour, hatch=hatch, edgecolor="white", linewidth=0,
            label=PROVED_NAMES[name],
        )  # fmt: skip
        for place, value, height in zip(places, measured[name], heights, strict=True):
            ax.annotate(
                _written(value), (place, height), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7
            )
    ax.set_xticks(range(len(MEASURED)), [name.replace("_", " ") for name in MEASURED])
    ax.set(ylabel="change, relative to the largest value", ylim=(bottom, top), xlim=(-0.6, len(MEASURED) - 0.4))
    distance = float(result["total_variation"].sel(map="alternative"))
    judged = f"; same within rounding: {'yes' if bool(result['same']) else 'no'}" if "same" in result else ""
    ax.set_title(
        f"{result.attrs['model']}, layer {result.attrs['layer']}, head {result.attrs['head']}\n"
        f"both maps up to {distance:.2g} away (total variation){judged}",
        fontsize="medium", loc="left", pad=24,
    )  # fmt: skip
    # Between the title and the axes, which has room for it.
    ax.legend(frameon=False, fontsize="small", ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    return ax


def _written(value: float) -> str:
    if math.isnan(value):
        return "not\nmeasured"
    return f"{value:.1e}" if value else "exactly 0"


#: Result → the function above that draws it.
DRAWS = {
    "prove": plot_proof,
}
