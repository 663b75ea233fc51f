"""Every plot is drawn from a real result, onto the axes given."""

from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
import pytest

import families

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import xarray as xr
from matplotlib.figure import Figure

import identiscope
from identiscope.capture.samples import PASSAGE
from identiscope.views.attention_plots import plot_separator_attention
from identiscope.views.plotting import PLOTS

TEXTS = ["One, two, three. " * 12, "A cat sat."]


@pytest.fixture(scope="module")
def results(minilm: identiscope.Model) -> dict[str, xr.Dataset]:
    trace = identiscope.trace(minilm, TEXTS[0])
    found = (
        identiscope.attention_identifiability(trace),
        identiscope.attention_maps(trace, 2, 3),
        identiscope.attention_intervals(trace, 2, 3, row=4),
        identiscope.attention_between_types(minilm, TEXTS),
        identiscope.correlation_by_length(minilm, TEXTS),
    )
    return {result.attrs["method"]: result for result in found}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("attention_identifiability", {}),
        ("attention_identifiability", {"values": "correlation"}),
        ("attention_maps", {"values": "raw"}),
        ("attention_maps", {"values": "canonical"}),
        ("attention_intervals", {}),
        ("attention_between_types", {"values": "raw"}),
        ("attention_between_types", {"values": "effective", "source": "other"}),
        ("correlation_by_length", {}),
    ],
)
def test_attention_plots(results: dict[str, xr.Dataset], method: str, options: Any) -> None:
    ax = Figure().add_subplot()
    drawn = identiscope.plot(results[method], ax, **options)
    assert drawn is ax
    assert ax.has_data()
    assert ax.get_ylabel()


def test_separator_plot(results: dict[str, xr.Dataset]) -> None:
    ax = plot_separator_attention(results["attention_between_types"], Figure().add_subplot())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["other → [SEP]", "[SEP] → [SEP]"]  # type: ignore[union-attr]


def test_without_axes_a_figure_is_made(results: dict[str, xr.Dataset]) -> None:
    drawn = identiscope.plot(results["attention_identifiability"])
    assert drawn.figure.axes[0] is drawn
    plt.close(drawn.figure)  # type: ignore[arg-type]


def test_null_attention_that_is_rounding_is_drawn_as_zero(minilm: identiscope.Model) -> None:
    for text, is_rounding in (("The cat sat on the mat.", True), (PASSAGE, False)):
        result = identiscope.attention_maps(identiscope.trace(minilm, text), 2, 3, ("null",))
        assert result["null"].values.any()
        (image,) = identiscope.plot(result, Figure().add_subplot(), values="null").get_images()
        colours = np.unique(image.to_rgba(image.get_array()).reshape(-1, 4), axis=0)
        neutral = image.cmap(0.5)[:3]
        assert (np.abs(colours[:, :3] - neutral).max() < 0.02) == is_rounding  # of 256 shades the next ones, at most


def test_tokens_with_dollars_are_not_formulas() -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), families.TEXT)
    result = identiscope.attention_maps(trace, 0, 0)
    named = result.assign_coords(key_token=("key", ["$x^2$"] * 12))
    figure = Figure()
    identiscope.plot(named, figure.add_subplot())
    figure.canvas.draw()
    assert figure.axes[0].get_xticklabels()[0].get_text() == r"\$x^2\$"


def test_no_plot_for_an_unknown_method() -> None:
    with pytest.raises(identiscope.InputError, match="no plot for 'None'"):
        identiscope.plot(xr.Dataset())
    assert all(target.count(".") == 1 for target in PLOTS.values())


def test_names_of_tokens_do_not_overlap(minilm: identiscope.Model) -> None:
    for text, named in (("The cat sat.", 6), (PASSAGE, 35)):
        maps = identiscope.attention_maps(identiscope.trace(minilm, text), 0, 0)
        ax = identiscope.plot(maps)
        ax.figure.canvas.draw()
        for labels, end in ((ax.get_xticklabels(), "x"), (ax.get_yticklabels(), "y")):
            assert len(labels) == named
            boxes = sorted(getattr(label.get_window_extent(), f"interval{end}").tolist() for label in labels)
            assert all(left[1] <= right[0] + 1 for left, right in pairwise(boxes))
        plt.close(ax.figure)
