"""Figures 2, 7 to 17, 38 and 39: token identifiability."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr

from identiscope.capture import Model, load
from identiscope.corpus.hidden_state_cache import HiddenStates, capture_hidden_states
from identiscope.corpus.readers import Text
from identiscope.experiments.brunner2020_setup import Budget, is_bert_base
from identiscope.experiments.fine_tune import fine_tune
from identiscope.experiments.token_identifiability import (
    across_layers,
    compare_checkpoints,
    data_fractions,
    neighbours,
    previous_layer,
    same_layer,
)
from identiscope.experiments.token_setup import LINEAR, MLP, NAIVE, Setup
from identiscope.views.figures import Claim, Figure, Missing, Panel, number_claim, percent

#: The share that guessing reaches, as the paper states it.
GUESS = {"MRPC": 0.017, "CoLA": 0.09, "MNLI": 0.026}


def token_figures(
    model: Model, texts: list[Text], name: str, directory: Path, budget: Budget, *, alone: str | None, shown: str
) -> Iterator[Figure | Missing]:
    """2a with all that follows from it, or for another corpus the one figure that is `alone` of it."""
    cache = capture_hidden_states(model, texts, directory, truncate=True)
    setup = Setup(folds=budget.folds, mlp_folds=budget.mlp_folds)
    probes = (*NAIVE, *LINEAR, *(MLP if budget.mlp else ()))
    rates, fitted = same_layer(cache, setup=setup, probes=probes)
    data = f"{shown}, {len(texts)} texts, {budget.folds} folds"
    title = "Identifiability of tokens by layer"
    yield Figure(alone or "2a", f"{title}, {shown}", data, (Panel("rates", rates),),
                 tuple(_rate_claims(rates, name, is_bert_base(model))))  # fmt: skip
    if alone is not None:
        return
    yield Figure("7", "Train and test rates", data, (Panel("rates", rates, None, {"train": True}),),
                 tuple(_gap_claims(rates)))  # fmt: skip
    across = across_layers(cache, fitted, setup=setup)
    for number, probe in (("2b", "linear cosine"), ("8", "linear l2"), ("9", "mlp l2"), ("10", "mlp cosine")):
        if probe in across.probe.values:
            claims = tuple(_across_claims(across)) if number == "2b" else ()
            panel = Panel("rates", across, None, {"probe": probe})
            yield Figure(number, f"The {probe} probe of one layer on all layers", data, (panel,), claims)
        else:
            yield Missing(number, "a full run (MLP probes)")
    yield from _hidden_to_hidden(cache, setup, data)
    yield from _neighbours(cache, setup, budget, rates, data)
    yield from _fractions(cache, setup, budget, data, is_bert_base(model))


def checkpoint_figure(
    model: Model, texts: list[Text], name: str, number: str, workspace: Path, budget: Budget, *, shown: str
) -> Iterator[Figure | Missing]:
    """12 and 13: layer to previous layer before and after fine-tuning on the labels."""
    if any(text.label is None for text in texts) or len({text.label for text in texts}) < 2:
        yield Missing(number, f"{shown} with labels")
        return
    tuned = workspace / f"tuned-{name.lower()}"
    if not (tuned / "config.json").is_file():
        fine_tune(model, texts, tuned, epochs=budget.epochs)
    caches = {
        "before": capture_hidden_states(model, texts, workspace / f"states-{name.lower()}", truncate=True),
        "fine-tuned": capture_hidden_states(
            load(str(tuned)), texts, workspace / f"states-tuned-{name.lower()}", truncate=True
        ),
    }
    found = compare_checkpoints(caches, setup=Setup(folds=budget.folds))
    last = found.rate.isel(layer=-1)
    moved = last.sel(checkpoint="fine-tuned") - last.sel(checkpoint="before")
    change = {str(probe): float(moved.sel(probe=probe)) for probe in found.probe.values}
    claim = Claim(
        "fine-tuning lowers the last layer for L2, hardly for cosine", "yes",
        " · ".join(f"{probe} {100 * value:+.1f} points" for probe, value in change.items()),
        change["naive l2"] < change["naive cosine"] and change["naive l2"] < 0,
    )  # fmt: skip
    title = f"Layer to previous layer, before and after fine-tuning on {shown}"
    data = f"{shown}, {len(texts)} texts, {budget.epochs} epochs"
    yield Figure(number, title, data, (Panel("rates", found),), (claim,))


def _rate_claims(rates: xr.Dataset, name: str, comparable: bool) -> Iterator[Claim]:
    yield number_claim(f"guessing reaches ({name})", GUESS[name], float(rates.random_guess[0]), comparable)
    cosine, squared = (rates.rate.sel(probe=f"linear {metric}").values for metric in ("cosine", "l2"))
    if name == "MRPC":
        yield number_claim("linear cosine probe, last layer", 0.93, cosine[-1], comparable)
    yield Claim(
        "rates of the linear cosine probe fall with depth",
        "yes",
        percent(cosine),
        bool((np.diff(cosine) <= 0.005).all()),
    )
    yield Claim(
        "cosine is above L2 throughout", "yes", f"cosine {percent(cosine)}; L2 {percent(squared)}",
        bool((cosine >= squared).all()),
    )  # fmt: skip


def _gap_claims(rates: xr.Dataset) -> Iterator[Claim]:
    gaps = {str(probe): float((rates.train_rate - rates.rate).sel(probe=probe).mean())
            for probe in rates.probe.values if not str(probe).startswith("naive")}  # fmt: skip
    said = " · ".join(f"{probe} {100 * gap:.1f} points" for probe, gap in gaps.items())
    wide = gaps["mlp cosine"] > gaps["linear cosine"] if "mlp cosine" in gaps else None
    yield Claim("MLPs overfit, linear probes hardly do", "yes", f"train − test: {said}", wide)


def _across_claims(across: xr.Dataset) -> Iterator[Claim]:
    rate = across.rate.sel(probe="linear cosine")
    first, last = rate.isel(trained_on=0).values, rate.isel(trained_on=-1).values
    yield Claim("the probe of layer 1 loses the last layer", "below 70 %", percent([first[-1]]), bool(first[-1] < 0.7))
    yield Claim(
        "the probe of the last layer does better on earlier ones", "94 % there, more before",
        percent(last), bool((last[:-1] >= last[-1] - 0.005).all()),
    )  # fmt: skip


def _hidden_to_hidden(cache: HiddenStates, setup: Setup, data: str) -> Iterator[Figure]:
    found = previous_layer(cache, setup=setup)
    naive = found.rate.sel(probe="naive cosine").values
    claim = Claim(
        "even the naive probe finds the previous layer",
        "above 92 % at every layer",
        percent(naive),
        bool((naive > 0.92).all()),
    )
    yield Figure("11", "From a layer to the one before", data, (Panel("rates", found),), (claim,))


def _neighbours(
    cache: HiddenStates, setup: Setup, budget: Budget, rates: xr.Dataset, data: str
) -> Iterator[Figure | Missing]:
    probes = (*LINEAR, *(MLP if budget.mlp else ()))
    found = neighbours(cache, setup=setup, probes=probes, offsets=budget.offsets)
    one = found.rate.sel(probe="linear cosine")
    nearest, farthest = (
        float(one.sel(offset=[-step, step]).mean()) for step in (1, max(abs(step) for step in budget.offsets))
    )
    itself = float(rates.rate.sel(probe="linear cosine").mean())
    claims = (
        Claim("neighbours are recovered far less than the token itself", "yes",
              f"next to it {percent([nearest])}, itself {percent([itself])}", nearest < 0.7 * itself),
        Claim("and less, the farther away", "yes", f"{percent([nearest])}, then {percent([farthest])}",
              farthest < nearest),
    )  # fmt: skip
    names = [" ".join(probe) for probe in probes]
    panels = tuple(Panel(name.replace(" ", "-"), found, None, {"probe": name}) for name in names)
    yield Figure("14–17" if budget.mlp else "14, 15", "Neighbouring tokens recovered", data, panels, claims)
    if not budget.mlp:
        yield Missing("16, 17", "a full run (MLP probes)")


def _fractions(
    cache: HiddenStates, setup: Setup, budget: Budget, data: str, comparable: bool
) -> Iterator[Figure | Missing]:
    """Appendix B.2: whether more data would help the MLP."""
    if not budget.mlp:
        yield Missing("B.2", "a full run (MLP probes)")
        return
    layer = max(1, cache.layers - 1)
    found = data_fractions(cache, layer, setup=setup)
    rates = found.rate.isel(probe=0, layer=0).values
    claims = (
        number_claim("MLP L2 with all of the training data, last layer but one", 0.82, rates[-1], comparable),
        Claim("more data help less and less: 50, 80, 90, 100 % of them", "74 · 80 · 81 · 82 %", percent(rates),
              bool(rates[-1] >= rates[0] and rates[-1] - rates[1] < rates[1] - rates[0])),
    )  # fmt: skip
    yield Figure("B.2", "Parts of the training data", data, (Panel("rates", found),), claims)
