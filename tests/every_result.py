"""One small result of every kind that the library can make, by the name of its method."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

import identiscope
from contract import asked
from identiscope.asking.ask import bound
from identiscope.asking.maps import mean_attention_maps
from identiscope.corpus.hidden_state_cache import capture_hidden_states
from identiscope.corpus.readers import Corpus, Text, Word
from identiscope.methods.registry import METHODS, in_runs
from identiscope.papers.bhardwaj2021.comparison import compare_attention
from identiscope.papers.bhardwaj2021.training import TrainingRecipe
from identiscope.papers.brunner2020 import attribution_figures as figures
from identiscope.papers.brunner2020.probe_files import load_probes, save_probes, score_new_text
from identiscope.papers.brunner2020.tokens import studies as tokens
from identiscope.papers.brunner2020.tokens.losses import (
    identifiability_against_contribution,
    look_up_layers,
    lost_tokens,
)
from identiscope.papers.brunner2020.tokens.setup import LINEAR, NAIVE, Setup
from identiscope.papers.heads.gender import Template, gender_study
from identiscope.papers.structure_draft.reversal import reversal_damage, reversal_structure
from identiscope.papers.structure_draft.reversal_model import ReversalConfig, train_reversal
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.heads.options import HeadOptions
from identiscope.runs.heads.survey import survey_heads
from identiscope.views.plots.plotting import drawings
from tiny_text_model import save_tiny, words

SOURCE = Path(identiscope.__file__).parent
SETUP = Setup(folds=2, resamples=20)


def every_result(directory: Path) -> Iterator[xr.Dataset]:
    """In small: a tiny model of random weights, eight texts, two layers of everything."""
    model = identiscope.load(save_tiny(directory / "model"))
    texts = [words(length, seed=number) for number, length in enumerate((16, 9, 14, 16, 22, 7, 12, 18))]
    traces = [identiscope.trace(model, text) for text in texts]
    trace = traces[0]
    for one in METHODS.values():
        yield asked(one, trace)
    yield identiscope.attention_maps(trace, 0, 1)
    yield identiscope.explain(trace, "similarity:w1 w2", methods=["rollout", "saliency"])
    yield identiscope.attribution_tree(asked(METHODS["attention_attribution"], trace), threshold=0.01)
    yield (other := identiscope.attention_alternative(trace, 0, 1, rows=[12, 15]))
    yield identiscope.prove(model, texts[0], 0, 1, other)
    yield identiscope.equivalence_under_texts(trace, traces[3], 0, 1, other)
    yield identiscope.attention_between_types(model, texts)
    yield identiscope.correlation_by_length(model, texts)
    yield identiscope.compare(trace, ["attention", "effective"])
    yield from _audits(model, texts[0], trace)
    yield from _structures(model, texts, traces)
    yield from _attributions(traces)
    yield identiscope.token_identifiability(trace)
    yield from _tokens(model, directory)
    yield from _run(model, directory)
    yield from _heads(model, directory)
    yield identiscope.freedom_ladder(trace, "similarity:w1 w2", layers=[1], top=3, most_rows=2)
    reversing = train_reversal(ReversalConfig(length=5, vocabulary=5, width=16), steps=20)
    yield reversal_structure(reversing, samples=4)
    yield reversal_damage(reversing, samples=4, texts=2, shares=(0.5, 1.0))
    labelled = [(words(5, seed=number), str(number % 2)) for number in range(24)]
    yield compare_attention(labelled, seeds=(0, 1), recipe=TrainingRecipe(epochs=1), per_length=1)


def _audits(model: identiscope.Model, text: str, trace: identiscope.Trace) -> Iterator[xr.Dataset]:
    asked_of = (["rollout", "saliency"], "similarity:w1 w2")
    yield identiscope.null_audit(trace, *asked_of)
    yield identiscope.gauge_audit(model, [text], *asked_of, how=["value_bias", "head_order"])
    yield identiscope.randomisation(model, text, *asked_of, draws=2)


def _structures(model: identiscope.Model, texts: list[str], traces: list[identiscope.Trace]) -> Iterator[xr.Dataset]:
    yield identiscope.extract_structure(traces, layout="aligned")
    subspaces = identiscope.shared_subspaces(model, texts, length=9, when_longer="first_keys")
    yield subspaces.summary()
    yield identiscope.structural_maps(traces[5], 0, 1, subspaces)
    yield identiscope.perturbation_effects(model, texts[:3], 0, 1, sets=3, resamples=20)


def _attributions(traces: list[identiscope.Trace]) -> Iterator[xr.Dataset]:
    found = [identiscope.hidden_token_attribution(trace, mode="estimate", probes=4) for trace in traces]
    yield found[0]
    yield figures.self_contributions(found)
    yield figures.contributions_by_distance(found)
    yield figures.contributions_by_offset(found)
    first = str(found[0]["output_token"].values[0])
    yield figures.contributions_to_token([found[0]], first)
    yield figures.contributions_of_word(found[0], 2)
    yield figures.contributions_by_tag(found, [["NN", *["DT"] * (one.sizes["output"] - 1)] for one in found])
    yield figures.comparison_with_attention(found[0], mean_attention_maps(traces[0], [0, 1]))


def _tokens(model: identiscope.Model, directory: Path) -> Iterator[xr.Dataset]:
    texts = [
        Text((words(6 + number % 5, seed=number),), str(number % 2), (Word(0, 0, 3, "DT"),)) for number in range(16)
    ]
    cache = capture_hidden_states(model, texts, directory / "states")
    rates, fitted = tokens.same_layer(cache, setup=SETUP, probes=(*NAIVE, *LINEAR))
    yield rates
    yield tokens.across_layers(cache, fitted, setup=SETUP)
    yield tokens.previous_layer(cache, setup=SETUP)
    yield tokens.compare_checkpoints({"before": cache, "after": cache}, setup=SETUP)
    yield tokens.neighbours(cache, setup=SETUP, offsets=(-1, 1))
    yield tokens.data_fractions(cache, 0, setup=SETUP, probe=("linear", "l2"))
    found = look_up_layers(cache, None, setup=SETUP)
    yield lost_tokens(cache, found)
    own = torch.rand(cache.layers, int(cache.lengths.sum()), generator=torch.Generator().manual_seed(0))
    yield identifiability_against_contribution(cache, found, own, bins=3)
    probes, about = load_probes(save_probes(fitted, rates, directory / "probes.safetensors"))
    yield score_new_text(cache, probes, about, resamples=20)


def _run(model: identiscope.Model, directory: Path) -> Iterator[xr.Dataset]:
    path = directory / "texts.txt"
    path.write_text("\n".join(words(length, seed=length) for length in (12, 5, 9)), encoding="utf-8")
    of_outcomes = [name for name in in_runs() if "outcome" in bound(METHODS[name], {}).choices]
    settings = tuple(f"{name}.outcome=similarity:w1 w2" for name in of_outcomes)
    options = replace(RunOptions(), methods=in_runs(), settings=settings)
    run_corpus(model, path, directory / "run", options=options)
    run = identiscope.open_run(directory / "run")
    for method in run.methods:
        yield run.to_xarray(method)
        yield run.means(method)
    explained = RunOptions(
        methods=("explain",), settings=("explain.methods=rollout,saliency", "explain.outcome=similarity:w1 w2")
    )
    yield run_corpus(model, path, directory / "explained", options=explained).agreement()


def _heads(model: identiscope.Model, directory: Path) -> Iterator[xr.Dataset]:
    options = HeadOptions(without=("zero",), texts=2, intervals=1, rows=2, pairs=1, shorten=True)
    corpus = Corpus(str(directory / "texts.txt"))
    survey = survey_heads(model, corpus, directory / "heads", options=options, against=model)
    assert survey.pairs is not None and survey.against is not None
    yield survey.heads
    yield survey.against
    assert survey.map_differences is not None and survey.distance_differences is not None
    yield survey.map_differences
    yield survey.distance_differences
    assert survey.shortened is not None
    yield survey.shortened
    yield survey.pairs
    template = Template("one", "w1 w2 said he ran", "w1 w2 said she ran", "w2", "he less she")
    yield gender_study(model, [template, template], intervals=1)


def method_names() -> set[str]:
    """Every registered method, and whatever has a plot of its own or is named where results are made."""
    found = {*METHODS, *(name for name in drawings() if "*" not in name)}
    found |= {f"run_{name}{end}" for name in in_runs() for end in ("", "_means")}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if node.func.id in ("make_result", "_result", "_offsets") and isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found


# Results that no function makes, with whatever a result may hold.


def unusual_results() -> dict[str, xr.Dataset]:
    """NaN, infinities, axes of text and of booleans, no axis, empty axes, five axes, and nothing at all."""
    numbers = np.array([1.5, np.nan, np.inf, -np.inf, 1e-9, -1234567.25])

    def made(arrays: dict[str, Any], coordinates: dict[str, Any] | None = None, **attributes: object) -> xr.Dataset:
        return xr.Dataset(arrays, coordinates, {"method": "unusual", "version": "0", **attributes})

    return {
        "numbers that are none": made({"value": ("place", numbers)}),
        "axes of text": made({"value": (("row", "word"), np.eye(2))}, {"row": ["<b>", "a"], "word": ["x", "−"]}),
        "axes of booleans": made(
            {"value": ("flag", [1, 2]), "holds": ("flag", [True, False])}, {"flag": [True, False]}
        ),
        "no axis": made({"ratio": 0.25, "same": True, "word": "yes", "count": 3, "nothing": np.nan}),
        "an empty axis": made({"value": ("place", np.zeros(0)), "other": (("place", "row"), np.zeros((0, 3)))}),
        "five axes": made({"value": (tuple("abcde"), np.arange(2.0**5).reshape([2] * 5))}),
        "five axes, many": made({"value": (tuple("abcde"), np.zeros([5] * 5))}),
        "text": made({"word": ("place", np.array(["a", "</script><script>alert(1)</script>"], dtype=object))}),
        "nothing but attributes": made({}, None, model="m", verdict="So it is.", rule="by this"),
        "no attributes": xr.Dataset({"value": ("place", [1.0])}),
        "more than one label an axis": made(
            {"value": ("place", [1.0, 2.0])}, {"token": ("place", ["the", "the"]), "place": [7, 9]}
        ),
    }
