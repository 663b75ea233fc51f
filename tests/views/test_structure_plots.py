"""Structure plots and tables are drawn from real results."""

from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
import xarray as xr

matplotlib.use("Agg")
from matplotlib.figure import Figure
from rich.console import Console

import families
import identiscope
from identiscope.asking.structure.subspaces import structural_maps
from identiscope.errors import InputError
from identiscope.papers.structure_draft.corpus_structure import corpus_structure, shared_subspaces
from identiscope.papers.structure_draft.perturbation import perturbation_effects
from identiscope.views.plots.plotting import plot
from identiscope.views.plots.structure import plot_effect_by_distance
from identiscope.views.tables import structure as tables


@pytest.fixture(scope="module")
def results() -> dict[str, xr.Dataset]:
    model = identiscope.load(families.ALL["GPT-2"].model())
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(3, families.VOCABULARY, (12,), generator=generator).tolist() for _ in range(10)]
    structure = corpus_structure(model, texts)
    subspaces = shared_subspaces(model, texts)
    return {
        "structure": structure,
        "subspaces": subspaces.summary(),
        "maps": structural_maps(identiscope.trace(model, texts[0]), 1, 2, subspaces, cut=0.5),
        "effects": perturbation_effects(model, texts[:3], 1, 2, structure=structure, sets=3, resamples=20),
    }


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("structure", {}),
        ("structure", {"values": "mean", "layer": 1, "head": 2}),
        ("structure", {"values": "structure"}),
        ("structure", {"values": "structure", "layer": 1, "head": 2, "threshold": 0.2}),
        ("structure", {"values": "sweep", "layer": 0, "head": 3}),
        ("structure", {"values": "silhouettes"}),
        ("subspaces", {}),
        ("subspaces", {"length": 12}),
        ("maps", {"values": "effective_structural"}),
        ("effects", {}),
        ("effects", {"values": "agreement", "outcome": "logits"}),
    ],
)
def test_plots(results: dict[str, xr.Dataset], name: str, options: dict[str, Any]) -> None:
    ax = Figure().add_subplot()
    assert plot(results[name], ax, **options) is ax
    assert ax.has_data() and ax.get_ylabel()
    ax.figure.canvas.draw()


def test_w_at_a_threshold_is_cut_and_normalised(results: dict[str, xr.Dataset]) -> None:
    ax = Figure().add_subplot()
    plot(results["structure"], ax, values="structure", layer=1, head=2, threshold=0.2)
    shown: Any = ax.images[0].get_array()
    mean = results["structure"]["mean"].sel(layer=1, head=2).values
    expected = np.where(mean >= 0.2, mean, 0)
    total = expected.sum(1, keepdims=True)
    assert np.allclose(shown, expected / np.where(total > 0, total, 1))


def test_points_are_coloured_by_what_the_noise_did(results: dict[str, xr.Dataset]) -> None:
    ax = plot_effect_by_distance(results["effects"], Figure().add_subplot())
    legend = ax.get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["keep", "break", "any"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("structure", {"values": "other"}, "there are patterns"),
        ("structure", {"values": "mean", "layer": 9}, "is not in this result"),
        ("subspaces", {"length": 5}, "length 5"),
        ("effects", {"outcome": "other"}, "there are correlation"),
    ],
)
def test_what_is_not_there_is_refused(
    results: dict[str, xr.Dataset], name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plot(results[name], Figure().add_subplot(), **options)
    plain = results["structure"].drop_dims("candidate")
    with pytest.raises(InputError, match="no silhouettes"):
        plot(plain, Figure().add_subplot(), values="silhouettes")


def test_tables_have_a_row_a_head(results: dict[str, xr.Dataset]) -> None:
    out = StringIO()
    console = Console(file=out, width=140)
    tables.print_structure(results["structure"], console)
    tables.print_subspaces(results["subspaces"], console)
    tables.print_effects(results["effects"], console)
    shown = out.getvalue()
    assert "representatives: " in shown and "by chance" in shown and "Breaking the structure changes" in shown
    assert str(results["structure"]["pattern"].values[1, 2]) in shown
    rows = [line for line in shown.splitlines() if line.rstrip().endswith("%") and line.lstrip()[:1].isdigit()]
    assert len(rows) >= 8


def test_plots_are_saved(results: dict[str, xr.Dataset], tmp_path: Path) -> None:
    paths = tables.save_structure_plots(results["structure"], tmp_path, heads=[(1, 2)])
    paths += tables.save_subspace_plots(results["subspaces"], tmp_path)
    paths += tables.save_effect_plots(results["effects"], tmp_path)
    assert len({*paths}) == len(paths) == 10
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
