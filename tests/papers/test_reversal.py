"""The draft's figures on the model that reverses, against what NumPy makes of the same maps."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib.figure import Figure
from rich.console import Console

import identiscope
from identiscope.errors import InputError
from identiscope.papers.structure_draft.reversal import (
    reversal_damage,
    reversal_perturbations,
    reversal_structure,
    reversal_texts,
)
from identiscope.papers.structure_draft.reversal_model import (
    ReversalConfig,
    ReversalModel,
    reversal_inputs,
    reversal_samples,
    train_reversal,
)
from identiscope.views.plots.reversal import plot_reversal_damage, plot_reversal_structure, save_reversal_plots
from identiscope.views.tables.reversal import print_structure

SMALL = ReversalConfig(length=6, vocabulary=12, width=32)


@pytest.fixture(scope="module")
def model() -> ReversalModel:
    return train_reversal(SMALL, steps=600, batch_size=32, learning_rate=1e-2)


@pytest.fixture(scope="module")
def structure(model: ReversalModel) -> xr.Dataset:
    return reversal_structure(model, samples=40, thresholds=(0.0, 0.2, 0.4, 0.99), seed=1)


@pytest.fixture(scope="module")
def damage(model: ReversalModel) -> xr.Dataset:
    return reversal_damage(model, samples=40, texts=6, shares=(0.5, 1.0), seed=1)


def test_the_map_is_antidiagonal_and_w_is_what_the_draft_says(model: ReversalModel, structure: xr.Dataset) -> None:
    traces = identiscope.trace(model, reversal_inputs(model, reversal_samples(SMALL, 40, seed=1)))
    maps = [trace.site(0).attention(0).numpy() for trace in traces]
    mean = sum(maps) / 40
    np.testing.assert_allclose(structure.example, maps[0], atol=1e-12)
    np.testing.assert_allclose(structure["mean"], mean, atol=1e-12)
    for threshold in (0.0, 0.2, 0.4, 0.99):
        cut = np.where(mean >= threshold, mean, 0.0)
        rows = cut.sum(1, keepdims=True)
        expected = np.divide(cut, rows, out=np.zeros_like(cut), where=rows > 0)
        np.testing.assert_allclose(structure.weights.sel(threshold=threshold), expected, atol=1e-12)
    np.testing.assert_array_equal(structure.weights.sel(threshold=0.4), np.eye(6)[::-1])
    assert structure.attrs["pattern"] == "antidiagonal"
    assert structure.attrs["stable_from"] < 0.4 < structure.attrs["stable_to"]
    assert structure.empty_rows.values.tolist() == [0, 0, 0, 1] and float(structure.cells.sel(threshold=0.4)) == 1 / 6
    assert np.isnan(structure.antidiagonal_weight.values[-1]) and structure.antidiagonal_weight.values[2] == 1
    for offset in (-3, -1, 0, 2):
        cells = [mean[i, 5 - i + offset] for i in range(6) if 0 <= 5 - i + offset < 6]
        assert np.isclose(float(structure.offset_share.sel(offset=offset)), sum(cells) / 6)
    assert int(structure.offset_share.idxmax()) == 0


def test_an_untrained_model_has_no_such_structure() -> None:
    torch.manual_seed(0)
    found = reversal_structure(ReversalModel(SMALL).eval(), samples=20, seed=1)
    assert float(found.offset_share.sel(offset=0)) < 0.4
    assert found.attrs["pattern"] != "antidiagonal"


def test_noise_that_keeps_the_structure_does_nothing_and_noise_that_breaks_it_does(damage: xr.Dataset) -> None:
    right = damage.accuracy.to_pandas()
    assert (right.loc["keep"] >= 0.95).all()
    assert right.loc["break", 1.0] < 0.4 < right.loc["break", 0.5]
    sizes = damage["size"].to_pandas()
    np.testing.assert_allclose(sizes[1.0], 2 * sizes[0.5])
    assert sizes.loc["keep", 1.0] < sizes.loc["break", 1.0]
    distance = damage.structure_distance.to_pandas()
    # Off the structure W is 0 and only epsilon is left: ‖·‖_S hardly sees noise that keeps the structure.
    assert distance.loc["keep", 1.0] < 0.05 * distance.loc["break", 1.0]
    with pytest.raises(InputError, match="shares up to 1"):
        reversal_damage(train_reversal(SMALL, steps=1), shares=(1.5,))


def test_which_distance_predicts_the_change(model: ReversalModel) -> None:
    said: list[tuple[int, int]] = []
    result = reversal_perturbations(
        model, samples=40, texts=4, sets=5, seed=1, progress=lambda done, total: said.append((done, total))
    )
    assert "logits" in result.outcome.values and "hidden_states" in result.attrs["unchanged"]
    found = result.correlation.sel(outcome="logits").to_pandas()
    # The logits are a linear map of the head's output, so that its distance orders their changes.
    assert found["head_output"] > 0.99
    assert found["frobenius"] > found["structure"]  # what the draft would not have
    assert said[-1] == (4, 4)
    again = reversal_perturbations(model, samples=40, texts=4, sets=5, seed=1)
    xr.testing.assert_identical(again, result)


def test_texts_are_single_and_follow_the_seed(model: ReversalModel) -> None:
    one, two = reversal_texts(model, 2, seed=3), reversal_texts(model, 3, seed=3)
    assert [text["input_ids"].shape for text in one] == [(1, 6)] * 2
    assert torch.equal(one[0]["input_ids"], two[0]["input_ids"])
    with pytest.raises(InputError, match="0 samples"):
        reversal_structure(model, samples=0)


def test_plots(structure: xr.Dataset, damage: xr.Dataset, tmp_path: Path) -> None:
    for options in ({"values": "example"}, {"values": "mean"}, {"threshold": 0.4}):
        ax = Figure().add_subplot()
        assert plot_reversal_structure(structure, ax, **options) is ax
        assert ax.images and ax.get_title()
    ax = plot_reversal_damage(damage, Figure().add_subplot())
    assert len(ax.lines) == 4  # three kinds of noise, and where the first ends
    names = [path.name for path in save_reversal_plots({"structure": structure, "damage": damage}, tmp_path)]
    assert names == ["figure-1-map.png", "mean-map.png", "figure-2-thresholds.png", "noise.png"]
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)


def test_the_table_says_where_the_map_is_strongest(structure: xr.Dataset) -> None:
    for shift, words in (
        (0, "strongest on the antidiagonal"),
        (-1, "1 to the left of it"),
        (1, "1 to the right of it"),
    ):
        shifted = structure.offset_share.shift(offset=shift, fill_value=0.0)
        screen = Console(record=True, width=120, file=StringIO())
        print_structure(structure.assign(offset_share=shifted), screen)
        assert words in screen.export_text()
