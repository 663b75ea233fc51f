"""The ladder of freedom: what attention may be with the same head output, nearly the same, the same prediction."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr

from identiscope.asking.ask import ask_unchecked, described, outcome_facts
from identiscope.asking.provenance import trace_provenance
from identiscope.errors import InputError
from identiscope.methods.fields import chosen_sites, layer_fields, shared_attention
from identiscope.methods.freedom.polytopes import output_radii
from identiscope.methods.heads.epsilon_freedom import layer_widths
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.predictions.drawing_back import checked_tolerances
from identiscope.methods.registry import METHODS
from identiscope.methods.trace_fields import runs_of
from identiscope.progress import Progress, tell
from identiscope.results import make_result
from identiscope.token_text import shown_token

if TYPE_CHECKING:
    from identiscope.capture import Trace

Arrays = dict[str, tuple[tuple[str, ...], Any]]


def freedom_ladder(
    trace: "Trace",
    outcome: str | int | Callable[..., Any] | None = None,
    *,
    epsilon: float | Sequence[float] = (0.01, 0.05),
    tolerance: float | Sequence[float] = (0.01, 0.05),
    layers: Sequence[int] | None = None,
    top: int = 20,
    most_rows: int = 12,
    seed: int = 0,
    progress: Progress | None = None,
) -> xr.Dataset:
    """How free attention is, rung by rung: the same head output, nearly the same, and the same prediction.

    >>> ladder = identiscope.freedom_ladder(trace, "Paris")
    >>> ladder.attrs["sentence"], ladder["reach_within"].sel(criterion="0.05")

    By layer: `exact_width` is how far the strongest weight of a row may go with the same output of its head (mean over
    heads and rows of most − least), `merged_exact_width` the same of the strongest token with its copies,
    `between_heads` in how many more directions attention may move from head to head, `epsilon_width` and
    `merged_epsilon_width` [layer, epsilon] how far with an output that moves by a share ε of the attention block's
    (`merged_epsilon_kept` is the share of the strongest token's weight that all such rows keep, `epsilon_gap` by how
    much widths may be too small), and
    `reach_within` [layer, criterion] how far rows were moved in the running model with the prediction kept, a lower
    bound. `load` is the share of weight that the prediction rests on to first order; the weights of largest load are
    listed by `cell`.

    outcome: as for `explain`. epsilon, tolerance: one number or several. layers: only these. top: how many weights are
    listed and run. most_rows: rows of a head whose intervals are computed. seed: of the random maps. A model without a
    usual outcome, and none given, has no rung of prediction; `no_outcome` says why.
    """
    epsilons = [float(one) for one in ([epsilon] if isinstance(epsilon, (int, float)) else epsilon)]
    checked_tolerances(tolerance)
    for one in epsilons:
        output_radii(one, torch.ones(1))
    if not epsilons or 0 in epsilons:
        raise InputError(
            f"epsilon={epsilon!r} was given; expected shares above 0: what is exactly free is given anyway."
        )
    why = ""
    try:
        runs = runs_of(trace, outcome)
        facts = outcome_facts(runs)
    except InputError as error:
        if outcome is not None:
            raise
        runs, facts, why = OutcomeRuns(trace, ()), {}, str(error)
    stream = runs.outcome.stream if facts else trace.main.name
    kinds = {site.kind for site in trace.sites if site.query_stream == site.key_stream == stream}
    where: dict[str, Any] = {"layers": layers, "stream": stream, "attention": next(iter(kinds), None)}
    numbers = [site.layer for site in chosen_sites(trace, layers, where["attention"], stream)]
    with shared_attention():
        arrays = _of_heads(trace, where, epsilons, most_rows, progress)
        if facts:
            own = {"layers": layers, "outcome": runs, "stream": stream}
            tell(progress, "same prediction", 0, 2)
            arrays |= _of_prediction(trace, own | {"tolerance": tolerance, "seed": seed, "merged": True}, progress)
            tell(progress, "load", 1, 2)
            largest = max(checked_tolerances(tolerance))
            cells = ask_unchecked(METHODS["load_bearing"], trace, own | {"tolerance": largest, "top": top})
            arrays |= {str(name): (tuple(map(str, one.dims)), one.values) for name, one in cells.data_vars.items()}
    labels: dict[str, Any] = {"layer": numbers, "epsilon": epsilons}
    if facts:
        labels["criterion"] = list(arrays.pop("criterion")[1])
        for axis in ("query", "key"):
            tokens = trace.streams[stream].tokens
            labels[f"{axis}_token"] = ("cell", [tokens[int(place)] for place in arrays[axis][1]])
    origin = trace_provenance(
        trace, outcome=described(outcome), epsilon=epsilons, tolerance=checked_tolerances(tolerance), layers=layers,
        top=top, most_rows=most_rows, seed=seed,
    )  # fmt: skip
    origin |= {"kind": "ladder", **facts, "passes": runs.passes, "no_outcome": why}
    result = make_result("freedom_ladder", arrays, coordinates=labels, provenance=origin)
    result.attrs["sentence"] = ladder_sentence(result)
    result.attrs["says"] = result.attrs["sentence"]
    return result


#: What the numbers of `epsilon_freedom` are called here, where ε is an axis.
_OF_EPSILON = {
    "width": "epsilon_width",
    "merged_width": "merged_epsilon_width",
    "merged_kept": "merged_epsilon_kept",
    "gap": "epsilon_gap",
}


def _of_heads(
    trace: "Trace", where: dict[str, Any], epsilons: Sequence[float], most_rows: int, progress: Progress | None
) -> Arrays:
    sites = chosen_sites(trace, where["layers"], where["attention"], where["stream"])
    found = []
    for done, site in enumerate(sites):
        tell(progress, "nearly the same output", done, len(sites))
        own = layer_widths(layer_fields(site, trace.streams), epsilons, most_rows)
        found.append({name: values.cpu().numpy() for name, values in own.items()})
    arrays: Arrays = {}
    for name in ("exact_width", "merged_exact_width"):
        arrays[name] = ("layer",), np.array([one[name][0].mean() for one in found])
    for name, told in _OF_EPSILON.items():
        arrays[told] = ("layer", "epsilon"), np.stack([one[name].mean(1) for one in found])
    ranks = ask_unchecked(METHODS["layer_rank"], trace, where)
    arrays["between_heads"] = ("layer",), ranks["between_heads"].values
    return arrays


def _of_prediction(trace: "Trace", options: dict[str, Any], progress: Progress | None) -> Arrays:
    found = ask_unchecked(METHODS["prediction_freedom"], trace, options, progress)
    arrays = {str(name): (tuple(map(str, one.dims)), one.values) for name, one in found.data_vars.items()}
    return arrays | {"criterion": (("criterion",), found["criterion"].values)}


def ladder_sentence(result: xr.Dataset) -> str:
    """What a ladder says, plainly."""
    epsilon = float(result["epsilon"].values[0])
    exact, near = float(result["merged_exact_width"].mean()), float(result["merged_epsilon_width"].values[:, 0].mean())
    sentence = (
        f"With the same head outputs the strongest token of a row may go by {exact:.2f}, with outputs that move by"
        f" {epsilon:g} of the layer's by {near:.2f} (means)."
    )
    if "reach" not in result:
        return f"{sentence} What a prediction needs is not known: {result.attrs['no_outcome']}"
    tolerances = [str(one) for one in result["criterion"].values if str(one) != "same choice"]
    reach = result["merged_reach"].values
    largest = tolerances[-1]
    moved = f"one layer's attention was moved by {reach.mean():.2f} (layers: {reach.min():.2f} to {reach.max():.2f})"
    # What stays is what was measured: where there are choices, the probabilities of all of them, and not the outcome.
    choices, outcome = "same choice" in result["criterion"].values, f"the {result.attrs['outcome']}"
    kept = f"{outcome} staying within {largest}"
    if choices:
        kept = f"all probabilities staying within {largest} together where {outcome} is read"
    whole, count = "", result.sizes["layer"]
    if "all_merged_reach_within" in result and count > 1:
        together = float(result["all_merged_reach_within"].sel(criterion=largest))
        those = "all layers'" if result.attrs["options"]["layers"] is None else f"these {count} layers'"
        whole = f", {those} together by {together:.2f}"
    chosen = ""
    if choices:
        same = result["merged_reach_within"].sel(criterion="same choice").values
        chosen = f"; with the same answer one layer's by {same.mean():.2f}"
    load = float(result["load"].mean())
    heaviest = ""
    if result.sizes.get("cell") and float(result["merged_lower"][0]) > 0:
        cell = result.isel(cell=0)
        heaviest = (
            f"; most of all on {shown_token(str(cell['key_token'].values))!r} seen from"
            f" {shown_token(str(cell['query_token'].values))!r} in layer {int(cell['layer_of_cell'])}, head"
            f" {int(cell['head_of_cell'])}: {float(cell['merged_lower']):.2f} of {float(cell['merged_weight']):.2f}"
        )
    rests = f"To first order the prediction rests on {100 * load:.1f} % of the weight{heaviest}."
    if result.sizes.get("cell"):
        without = result["removed_moved"].values
        beyond = int((without > float(largest)).sum())
        rests += (
            f" Of {len(without)} weights that were taken away one at a time, {beyond} moved it by more than {largest}"
            " when run."
        )
    return f"{sentence} In the running model {moved}{whole}, {kept}{chosen}. {_beside_chance(result, largest)}{rests}"


def _beside_chance(result: xr.Dataset, tolerance: str) -> str:
    """What random maps do that are as far away: where these hold as well, what was found says nothing of the maps. And
    where it was found by drawing."""
    control = result["control_moved"].values
    control = control[np.isfinite(control)]
    if not len(control):
        return ""
    held = int((control <= float(tolerance)).sum())
    drawn = int((result["random"].sel(criterion=tolerance).values > 0).sum())
    own = f" (the farthest had been drawn at random in {drawn})" if drawn else ""
    return f"Random maps as far away keep it so in {held} of {len(control)} layers{own}. "
