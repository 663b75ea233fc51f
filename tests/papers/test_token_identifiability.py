"""The token experiments end to end on a small corpus: shapes, facts that must hold, files, and bad input."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib.figure import Figure
from safetensors import SafetensorError
from safetensors.torch import save_file

import identiscope
from identiscope.capture.digests import model_hash
from identiscope.corpus.hidden_state_cache import HiddenStates, capture_hidden_states
from identiscope.corpus.readers import Text, Word
from identiscope.errors import InputError
from identiscope.methods.tokens.probes import Recipe
from identiscope.methods.tokens.sentences import Sentences
from identiscope.papers.brunner2020 import fine_tune as fine_tune_module
from identiscope.papers.brunner2020.fine_tune import fine_tune
from identiscope.papers.brunner2020.probe_files import load_probes, save_probes, score_new_text
from identiscope.papers.brunner2020.tokens import studies as experiments
from identiscope.papers.brunner2020.tokens.losses import (
    identifiability_against_contribution,
    look_up_layers,
    lost_tokens,
)
from identiscope.papers.brunner2020.tokens.setup import NAIVE, Setup
from identiscope.results import load_result, save_result
from identiscope.views.plots import tokens as token_plots

SUBJECTS = ("The cat", "A nurse", "My old neighbour", "The green parrot")
VERBS = ("saw the dog", "bought the bread and the milk", "sang", "lost the keys to the house")
ENDS = ("yesterday.", "in the garden, quietly.", "before the rain.")


def texts() -> list[Text]:
    made = []
    for number, (subject, verb, end) in enumerate(itertools.product(SUBJECTS, VERBS, ENDS)):
        first = len(subject.split()[0])
        made.append(Text((f"{subject} {verb} {end}",), str(number % 2), (Word(0, 0, first, "DT"),)))
    return made


SETUP = Setup(
    folds=2, resamples=50, recipe=Recipe(learning_rates=(1e-3,), patience=2, maximum_epochs=4, hidden_width=8)
)


LAYERS = [0, 5]


@pytest.fixture(scope="module")
def cache(minilm: identiscope.Model, tmp_path_factory: pytest.TempPathFactory) -> HiddenStates:
    return capture_hidden_states(minilm, texts(), tmp_path_factory.mktemp("cache") / "states")


Fitted = tuple[xr.Dataset, dict[str, Any]]


@pytest.fixture(scope="module")
def fitted(cache: HiddenStates) -> Fitted:
    return experiments.same_layer(cache, setup=SETUP, layers=LAYERS)


def test_mlps_are_trained_on_the_folds_asked_for(cache: HiddenStates) -> None:
    for wanted in (1, 2):
        setup = replace(SETUP, mlp_folds=wanted)
        result, found = experiments.same_layer(cache, setup=setup, probes=(("mlp", "l2"), *NAIVE), layers=LAYERS)
        trained = np.isfinite(result.fold_rate.sel(probe="mlp l2").values)
        assert trained[:, :wanted].all() and not trained[:, wanted:].any()
        assert (result.epochs.sel(probe="mlp l2").values > 0)[:, :wanted].all()
        assert np.isfinite(result.fold_rate.sel(probe="naive l2").values).all()
        tested = setup.splits(cache)[:wanted]
        tokens = sum(int(cache.lengths[split.test].sum()) for split in tested)
        assert (result.tokens.sel(probe="mlp l2") == tokens).all()
        across = experiments.across_layers(cache, found, setup=setup, layers=LAYERS)
        same = [float(across.rate.sel(trained_on=layer, layer=layer).item()) for layer in LAYERS]
        assert same == result.rate.sel(probe="mlp l2").values.tolist()
        looked_up = look_up_layers(cache, found["mlp l2"], setup=setup, layers=LAYERS)
        assert [len(one.rows) for one in looked_up] == [tokens] * len(LAYERS)
    with pytest.raises(InputError, match="mlp_folds 0"):
        replace(SETUP, mlp_folds=0)


def test_equal_texts_stand_on_one_side_of_every_fold(minilm: identiscope.Model, tmp_path: Path) -> None:
    given = [*texts()[:12], *texts()[6:18], *texts()[:6]]
    cache = capture_hidden_states(minilm, given, tmp_path)
    for split in Setup().splits(cache):
        train, validation, test = ({given[place].parts for place in part.tolist()} for part in vars(split).values())
        assert not (train & validation or train & test or validation & test)


def test_same_layer_has_all_probes_and_says_how_it_was_made(fitted: Fitted) -> None:
    result, _ = fitted
    assert list(result.probe.values) == [
        "naive cosine",
        "naive l2",
        "linear cosine",
        "linear l2",
        "mlp cosine",
        "mlp l2",
    ]
    assert result.rate.dims == ("probe", "layer") and result.sizes == {"probe": 6, "layer": 2, "fold": 2}
    assert bool((result.low <= result.rate).all()) and bool((result.rate <= result.high).all())
    assert result.attrs["setup"]["inputs"] == "normed" and result.attrs["setup"]["recipe"]["patience"] == 2
    assert "93 %" in result.attrs["published"]
    assert float(result.rate.sel(probe="naive cosine", layer=0)) > 0.9
    assert float(result.rate.sel(probe="linear cosine", layer=0)) > 0.9
    assert float(result.random_guess[0]) == pytest.approx(48 / result.attrs["tokens_in_corpus"])
    # 15 % of 48 sentences in two folds; the pooled rate is that of the tokens, not the mean of the folds.
    folds, tokens = result.fold_rate.sel(probe="naive l2", layer=5).values, result.tokens.sel(probe="naive l2", layer=5)
    assert min(folds) - 1e-12 <= float(result.rate.sel(probe="naive l2", layer=5)) <= max(folds) + 1e-12
    assert 0 < int(tokens) < result.attrs["tokens_in_corpus"]


def test_two_runs_give_the_same_numbers(cache: HiddenStates, fitted: Fitted) -> None:
    again, _ = experiments.same_layer(cache, setup=SETUP, layers=LAYERS)
    xr.testing.assert_identical(again, fitted[0])


def test_results_can_be_saved(fitted: Fitted, tmp_path: Path) -> None:
    path = save_result(fitted[0], tmp_path / "same.safetensors")
    np.testing.assert_array_equal(load_result(path).rate.values, fitted[0].rate.values)


def test_across_layers_agrees_on_the_diagonal(cache: HiddenStates, fitted: Fitted) -> None:
    result, probes = fitted
    across = experiments.across_layers(cache, probes, setup=SETUP, layers=LAYERS)
    for name in across.probe.values:
        for layer in across.layer.values:
            own = across.rate.sel(probe=name, trained_on=layer, layer=layer)
            assert float(own) == float(result.rate.sel(probe=name, layer=layer))
    with pytest.raises(InputError, match="naive"):
        experiments.across_layers(cache, {"naive cosine": None}, setup=SETUP)


def test_previous_layer_is_easier_than_the_input(cache: HiddenStates, fitted: Fitted) -> None:
    back = experiments.previous_layer(cache, setup=SETUP, probes=NAIVE)
    first = back.rate.sel(probe="naive cosine", layer=0)
    assert float(first) == float(fitted[0].rate.sel(probe="naive cosine", layer=0))
    assert float(back.rate.sel(probe="naive cosine", layer=5)) >= float(
        fitted[0].rate.sel(probe="naive cosine", layer=5)
    )


def test_a_checkpoint_compared_with_itself_is_the_same(cache: HiddenStates) -> None:
    both = experiments.compare_checkpoints({"before": cache, "after": cache}, setup=SETUP)
    assert both.rate.dims[0] == "checkpoint" and list(both.checkpoint.values) == ["before", "after"]
    xr.testing.assert_equal(both.rate.sel(checkpoint="before", drop=True), both.rate.sel(checkpoint="after", drop=True))
    with pytest.raises(InputError, match="two or more"):
        experiments.compare_checkpoints({"one": cache}, setup=SETUP)


def test_neighbours_leave_out_the_edges(cache: HiddenStates) -> None:
    found = experiments.neighbours(cache, setup=SETUP, probes=[("linear", "l2")], offsets=(-1, 2))
    sentences = Sentences(cache.lengths)
    tested = sum(int((sentences.lengths[split.test] - 1).sum()) for split in SETUP.splits(cache))
    assert int(found.tokens.sel(offset=-1)[0, 0]) == tested
    assert int(found.tokens.sel(offset=2)[0, 0]) == tested - sum(len(split.test) for split in SETUP.splits(cache))


def test_fractions_test_on_the_same_sentences(cache: HiddenStates) -> None:
    found = experiments.data_fractions(cache, 5, setup=SETUP, probe=("linear", "l2"), fractions=(0.3, 1.0))
    assert found.sizes["fraction"] == 2 and len(set(found.tokens.values.ravel())) == 1
    assert float(found.rate.sel(fraction=1.0).item()) >= float(found.rate.sel(fraction=0.3).item()) - 0.05


def test_inputs_before_and_after_the_norm_differ(cache: HiddenStates, fitted: Fitted) -> None:
    setup = Setup(folds=2, resamples=50, inputs="sum")
    other, _ = experiments.same_layer(cache, setup=setup, probes=[("naive", "l2")], layers=LAYERS)
    assert other.attrs["setup"]["inputs"] == "sum"
    assert not np.array_equal(other.rate.values[0], fitted[0].rate.sel(probe="naive l2").values)


def test_losses_add_up(cache: HiddenStates, fitted: Fitted) -> None:
    result, probes = fitted
    found = look_up_layers(cache, probes["linear l2"], setup=SETUP, layers=LAYERS)
    lost = lost_tokens(cache, found, layers=LAYERS)
    tested = int(result.tokens.sel(probe="linear l2", layer=5))
    assert int(lost.position_tokens.sum()) == int(lost.frequency_tokens.sum()) == tested
    assert list(lost.tag.values) == ["DT"]
    for layer in lost.layer.values:
        right = float(result.rate.sel(probe="linear l2", layer=layer)) * tested
        assert int(lost.position_identified.sel(layer=layer).sum()) == round(right)
        assert int(lost.taken_for.sel(layer=layer).sum()) == tested - round(right)


def test_against_contribution(cache: HiddenStates, fitted: Fitted) -> None:
    found = look_up_layers(cache, None, setup=SETUP, metric="l2")
    tokens = int(cache.lengths.sum())
    contribution = torch.rand(6, tokens, generator=torch.Generator().manual_seed(0))
    result = identifiability_against_contribution(cache, found, contribution, bins=4)
    assert result.rate.dims == ("layer", "bin") and 0 <= float(result.auc[-1]) <= 1
    ax = Figure().subplots()
    assert token_plots.plot_against_contribution(result, ax) is ax and len(ax.lines) == 6
    legend = ax.get_legend()
    assert legend is not None and any("AUC" in text.get_text() for text in legend.get_texts())
    with pytest.raises(InputError, match="6 layers"):
        identifiability_against_contribution(cache, found, contribution[:2])


def test_probes_are_saved_and_score_new_text(
    minilm: identiscope.Model, cache: HiddenStates, fitted: Fitted, tmp_path: Path
) -> None:
    result, probes = fitted
    path = save_probes(probes, result, tmp_path / "probes.safetensors")
    loaded, about = load_probes(path)
    assert list(loaded) == sorted(name for name, one in probes.items() if one is not None)
    assert torch.equal(loaded["mlp l2"].weights["weight_in"], probes["mlp l2"].weights["weight_in"])
    other = capture_hidden_states(minilm, [Text(("The parrot sang to the cat.",))], tmp_path / "new")
    scored = score_new_text(other, loaded, about)
    assert float(scored.rate.sel(probe="linear cosine", layer=0)) > 0.5
    assert scored.attrs["fitted_on"] == cache.manifest["text"]
    with pytest.raises(InputError, match="another model"):
        score_new_text(other, loaded, about | {"model": "0"})
    with pytest.raises(InputError, match="nothing to save"):
        save_probes({"naive l2": None}, result, path)


def test_files_that_are_no_probes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        load_probes(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="damaged"):
        load_probes(tmp_path / "bad")
    save_file({"x": torch.ones(1)}, str(tmp_path / "other"))
    with pytest.raises(InputError, match="not a file of probes"):
        load_probes(tmp_path / "other")


def test_setup_refuses_what_it_does_not_know() -> None:
    with pytest.raises(InputError, match="solver"):
        Setup(solver="magic")  # type: ignore[arg-type]


def test_layers_are_checked(cache: HiddenStates) -> None:
    with pytest.raises(InputError, match="0 to 5"):
        experiments.same_layer(cache, setup=SETUP, layers=[6])


def test_fine_tuning_makes_a_second_checkpoint(minilm: identiscope.Model, tmp_path: Path) -> None:
    before = model_hash(minilm)
    chosen = texts()[:16]
    options: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-4, "batch_size": 8, "held_out": 0.25}
    done = fine_tune(minilm, chosen, tmp_path / "one", **options)
    again = fine_tune(minilm, chosen, tmp_path / "two", **options)
    assert model_hash(minilm) == before
    assert done.labels == ("0", "1") and done.held_out == 4 and done.losses == again.losses
    tuned = identiscope.load(tmp_path / "one")
    assert model_hash(tuned) == model_hash(identiscope.load(tmp_path / "two"))
    states = [identiscope.trace(model, "The cat sang.").hidden_states[-1] for model in (minilm, tuned)]
    assert not torch.allclose(states[0], states[1])
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "one").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "head.safetensors"} <= modes.keys()
    # What the umask gives, also where a library thinks otherwise.
    assert len(set(modes.values())) == 1


def test_a_checkpoint_that_cannot_be_saved_leaves_nothing(
    minilm: identiscope.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, directory: Path) -> None:
        (directory / "config.json").write_text("{")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(fine_tune_module, "_train", lambda *_: [0.0])
    monkeypatch.setattr(type(minilm.module), "save_pretrained", full)
    with pytest.raises(InputError, match="the disk is full"):
        fine_tune(minilm, texts()[:8], tmp_path / "one", held_out=0.25)
    assert list((tmp_path / "one").iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setattr(fine_tune_module, "_train", lambda *_: [0.0])
    assert fine_tune(minilm, texts()[:8], tmp_path / "one", held_out=0.25).labels == ("0", "1")


def test_equal_texts_are_held_out_together(
    minilm: identiscope.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = texts()[:8] * 3
    trained: list[int] = []

    def seen(model: object, head: object, given: object, train: list[int], *rest: object) -> list[float]:
        trained.extend(train)
        return [0.0]

    monkeypatch.setattr(fine_tune_module, "_train", seen)
    done = fine_tune(minilm, chosen, tmp_path / "one", held_out=0.25)
    assert done.held_out == 6 and len(trained) == 18
    assert len({chosen[place].parts for place in trained}) == 6


def test_fine_tuning_refuses(minilm: identiscope.Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two kinds"):
        fine_tune(minilm, [Text(("a",), "x")], tmp_path / "new")
    with pytest.raises(InputError, match="two kinds"):
        fine_tune(minilm, [Text(("a",), "x"), Text(("b",))], tmp_path / "new")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(InputError, match="not empty"):
        fine_tune(minilm, texts()[:4], tmp_path / "full")
    with pytest.raises(InputError, match="first or last"):
        fine_tune(minilm, texts()[:4], tmp_path / "new", token="middle")
