"""Plots, progress and words of a Run: what is drawn is what the arrays hold."""

import json
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from identiscope.errors import InputError
from identiscope.runs.compute.costs import RunCosts
from identiscope.runs.compute.run import RunProgress
from identiscope.views.plots.run import plot_run_means, plot_run_table
from identiscope.views.progress import run_progress, spoken_time
from identiscope.views.tables.run import print_run

matplotlib.use("Agg")
ATTRIBUTES = {"model": "minilm", "corpus": "folder/pairs.tsv", "texts": 3}


def means(heads: bool, low: float = 0.0) -> xr.Dataset:
    axes = ("column", "layer", "head")[: 3 if heads else 2]
    shape = (1, 2, 3)[: len(axes)]
    values = np.linspace(low, 1, int(np.prod(shape))).reshape(shape)
    histogram = np.zeros((*shape, 4), int)
    histogram[..., 1] = 3
    return xr.Dataset(
        {
            "mean": (axes, values),
            "deviation": (axes, values / 10),
            "least": (axes, values - 0.04),
            "most": (axes, np.minimum(values + 0.5, 1.0)),
            "histogram": ((*axes, "bin"), histogram),
            "edge": (("column", "edges"), np.linspace(0, 1, 5)[None]),
        },
        coords={"column": ["share"], "layer": [0, 1]} | ({"head": [0, 1, 2]} if heads else {}),
        attrs=ATTRIBUTES,
    )


def axes() -> tuple[Figure, Any]:
    return plt.subplots()


def test_heads_are_cells_and_signed_values_have_white_at_zero() -> None:
    for low, name in ((0.0, "viridis"), (-0.5, "RdBu_r")):
        _, ax = axes()
        plot_run_means(means(True, low), ax, column="share")
        (image,) = ax.get_images()
        np.testing.assert_allclose(image.get_array(), means(True, low)["mean"][0])
        assert image.get_cmap().name == name
        assert name == "viridis" or image.get_clim() == (-1, 1)
        assert "pairs.tsv" in ax.get_title() and "folder" not in ax.get_title()
    plt.close("all")


def test_layers_are_a_line_with_its_spread() -> None:
    _, ax = axes()
    plot_run_means(means(False), ax, column="share")
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), [0, 1])
    plt.close("all")


def test_a_band_goes_no_further_than_any_text() -> None:
    _, ax = axes()
    plot_run_means(means(False, 0.5), ax, column="share")
    (band,) = ax.collections
    first, last = ([y for x, y in band.get_paths()[0].vertices if x == layer] for layer in (0, 1))
    assert (min(first), max(first)) == pytest.approx((0.46, 0.55))  # the deviation alone: 0.45 to 0.55
    assert (min(last), max(last)) == pytest.approx((0.96, 1.0))  # 0.9 to 1.1
    plt.close("all")


@pytest.mark.parametrize("heads", [True, False])
def test_histograms_are_shares(heads: bool) -> None:
    _, ax = axes()
    plot_run_means(means(heads), ax, column="share", kind="histogram")
    assert ax.get_xlim() == (0.25, 0.5) and len(ax.patches) == 2
    np.testing.assert_allclose(ax.patches[0].get_data().values, [0, 1, 0, 0])
    plt.close("all")


def test_a_table_against_length() -> None:
    values = np.arange(12.0).reshape(3, 2, 2)
    table = xr.Dataset(
        {"share": (("text", "layer", "head"), values)},
        coords={"layer": [0, 1], "tokens": ("text", [5, 9, 7])},
        attrs=ATTRIBUTES,
    )
    _, ax = axes()
    plot_run_table(table, ax, column="share")
    assert ax.get_lines()[1].get_xdata().tolist() == [5, 9, 7]
    assert ax.get_lines()[1].get_ydata().tolist() == [2.5, 6.5, 10.5]
    for call in (lambda: plot_run_table(table, ax, column="x"), lambda: plot_run_means(means(True), ax, column="x")):
        with pytest.raises(InputError, match="there are share"):
            call()
    plt.close("all")


def test_progress_as_json_and_quiet_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    progress = RunProgress(before=10, texts=5, total=20, tokens=100, seconds=2.0)
    with run_progress("minilm", as_json=True) as moved:
        moved.running(progress)
    assert json.loads(capsys.readouterr().out) == {
        "event": "progress", "texts": 15, "total": 20, "tokens": 100, "tokens_per_second": 50.0, "seconds_left": 2.0,
        "costs": None,
    }  # fmt: skip
    with run_progress("minilm") as moved:
        moved.running(progress)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    assert (spoken_time(75), spoken_time(7260)) == ("1:15", "2 h 01 min")


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with run_progress("minilm") as moved:
        moved.running(RunProgress(before=0, texts=5, total=20, tokens=100, seconds=2.0))
        moved.running(RunProgress(before=0, texts=20, total=20, tokens=400, seconds=8.0))
    shown = capsys.readouterr().err
    assert "tokens/s" in shown and "left" in shown


COSTS = RunCosts(4, {"forward pass": 0.04, "attention": 1.5, "attribution": 13.0}, 9000.0)


def test_costs_are_told_once_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "a batch of 4 texts takes: forward pass < 0.1 s, attention 1.5 s, attribution 13 s; about 2 h 30 min in all"
    before = RunProgress(before=0, texts=0, total=20, tokens=0, seconds=0.0, costs=COSTS)
    after = RunProgress(before=0, texts=5, total=20, tokens=100, seconds=2.0, costs=COSTS)
    with run_progress("minilm") as moved:
        moved.running(before)
        moved.running(after)
    assert capsys.readouterr().err == told + "\n"
    with run_progress("minilm", as_json=True) as moved:
        moved.running(before)
    line = json.loads(capsys.readouterr().out)
    assert line["seconds_left"] == line["costs"]["total_seconds"] == 9000.0
    assert line["costs"]["batch_seconds"] == {"forward pass": 0.04, "attention": 1.5, "attribution": 13.0}
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with run_progress("minilm") as moved:
        moved.running(before)
        moved.running(after)
    shown = capsys.readouterr().err
    assert told in shown and "0:06 left, mostly attribution" in shown


def test_the_summary_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    summary = {
        "texts": 5, "tokens": 90, "cut_texts": 1, "cut_tokens": 18, "statuses": {"ok": 4, "empty": 1},
        "means": {"tokens": {"norm": 1.5, "tied_l2": None}},
    }  # fmt: skip
    print_run(summary, "my-run")
    shown = capsys.readouterr().out
    assert "my-run: 4 of 5 texts, 90 tokens; 1 texts cut by 18 tokens; 1 without statistics (empty)" in shown
    assert "1.500" in shown and "–" in shown
    print_run(summary, "my-run", as_json=True)
    assert json.loads(capsys.readouterr().out)["event"] == "done"
