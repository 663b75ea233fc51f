"""Figures 2, 7 to 17, 38 and 39: token identifiability."""

from collections.abc import Iterator
from pathlib import Path

import xarray as xr

from identiscope.capture import Model, load
from identiscope.corpus.hidden_state_cache import HiddenStates, capture_hidden_states
from identiscope.corpus.readers import Text
from identiscope.papers.brunner2020.fine_tune import fine_tune
from identiscope.papers.brunner2020.layer_claims import (
    across_claims,
    checkpoint_claims,
    neighbour_claims,
    previous_claims,
)
from identiscope.papers.brunner2020.setup import Budget, is_bert_base
from identiscope.papers.brunner2020.tokens.claims import fraction_claims, gap_claims, rate_claims
from identiscope.papers.brunner2020.tokens.setup import LINEAR, MLP, NAIVE, Setup
from identiscope.papers.brunner2020.tokens.studies import (
    across_layers,
    compare_checkpoints,
    data_fractions,
    neighbours,
    previous_layer,
    same_layer,
)
from identiscope.views.plots.figures import Figure, Missing, Panel


def token_figures(
    model: Model, texts: list[Text], name: str, directory: Path, budget: Budget, *, alone: str | None, shown: str
) -> Iterator[Figure | Missing]:
    """2a with all that follows from it, or for another corpus the one figure that is `alone` of it."""
    cache = capture_hidden_states(model, texts, directory, truncate=True)
    setup = Setup(folds=budget.folds, mlp_folds=budget.mlp_folds, keep_resamples=True)
    probes = (*NAIVE, *LINEAR, *(MLP if budget.mlp else ()))
    rates, fitted = same_layer(cache, setup=setup, probes=probes)
    data = f"{shown}, {len(texts)} texts, {budget.folds} folds"
    # Numbers are those of one model on one corpus.
    comparable = is_bert_base(model) and shown == name
    title = "Identifiability of tokens by layer"
    yield Figure(alone or "2a", f"{title}, {shown}", data, (_panel("rates", rates),),
                 tuple(rate_claims(rates, name, comparable)))  # fmt: skip
    if alone is not None:
        return
    yield Figure("7", "Train and test rates", data, (_panel("rates", rates, train=True),), tuple(gap_claims(rates)))
    across = across_layers(cache, fitted, setup=setup)
    for number, probe in (("2b", "linear cosine"), ("8", "linear l2"), ("9", "mlp l2"), ("10", "mlp cosine")):
        if probe in across.probe.values:
            claims = tuple(across_claims(across, probe, comparable))
            panel = _panel("rates", across, probe=probe)
            yield Figure(number, f"The {probe} probe of one layer on all layers", data, (panel,), claims)
        else:
            yield Missing(number, "a full run (MLP probes)")
    result = previous_layer(cache, setup=setup)
    panels = (_panel("rates", result),)
    yield Figure("11", "From a layer to the one before", data, panels, tuple(previous_claims(result)))
    yield from _neighbours(cache, setup, budget, rates, data)
    yield from _fractions(cache, setup, budget, data, comparable)


def _panel(name: str, result: xr.Dataset, **options: object) -> Panel:
    """A panel whose data leave out what only the claims need."""
    return Panel(name, result.drop_vars(["resampled_rate", "sentences"]), None, options)


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
            load(str(tuned), device=model.device), texts, workspace / f"states-tuned-{name.lower()}", truncate=True
        ),
    }
    result = compare_checkpoints(caches, setup=Setup(folds=budget.folds, keep_resamples=True))
    title = f"Layer to previous layer, before and after fine-tuning on {shown}"
    data = f"{shown}, {len(texts)} texts, {budget.epochs} epochs"
    yield Figure(number, title, data, (_panel("rates", result),), tuple(checkpoint_claims(result, number)))


def _neighbours(
    cache: HiddenStates, setup: Setup, budget: Budget, rates: xr.Dataset, data: str
) -> Iterator[Figure | Missing]:
    probes = (*LINEAR, *(MLP if budget.mlp else ()))
    result = neighbours(cache, setup=setup, probes=probes, offsets=budget.offsets)
    names = [" ".join(probe) for probe in probes]
    panels = tuple(_panel(name.replace(" ", "-"), result, probe=name) for name in names)
    claims = tuple(neighbour_claims(result, rates))
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
    result = data_fractions(cache, max(0, cache.layers - 2), setup=setup)
    claims = tuple(fraction_claims(result, comparable))
    yield Figure("B.2", "Parts of the training data", data, (_panel("rates", result),), claims)
