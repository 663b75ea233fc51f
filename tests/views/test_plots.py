"""Every plot is drawn from a real result, onto the axes given."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch

import families

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import xarray as xr
from matplotlib.figure import Figure

import identiscope
from identiscope.capture.samples import PASSAGE
from identiscope.methods.registry import METHODS
from identiscope.results import make_result
from identiscope.views.plots.kinds import DRAWN
from identiscope.views.plots.plotting import drawing, drawings

TEXTS = ["One, two, three. " * 12, "A cat sat."]

# What is drawn is of many classes, which matplotlib tells apart by type and a test by what it asks for.
plot: Any = identiscope.plot


@pytest.fixture(scope="module")
def results(minilm: identiscope.Model) -> dict[str, xr.Dataset]:
    trace = identiscope.trace(minilm, TEXTS[0])
    found = (
        identiscope.attention_identifiability(trace),
        identiscope.attention_maps(trace, 2, 3),
        identiscope.attention_intervals(trace, 2, 3, row=4),
        identiscope.attention_between_types(minilm, TEXTS),
        identiscope.correlation_by_length(minilm, TEXTS),
        other := identiscope.attention_alternative(trace, 2, 3, how="avoid", token=0),
        identiscope.prove(minilm, TEXTS[0], 2, 3, other),
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
        ("attention_between_types", {"figure": "separator"}),
        ("correlation_by_length", {}),
        ("attention_alternative", {}),
        ("attention_alternative", {"values": "alternative"}),
        ("attention_alternative", {"row": 4}),
        ("prove", {}),
    ],
)
def test_attention_plots(results: dict[str, xr.Dataset], method: str, options: Any) -> None:
    ax = Figure().add_subplot()
    drawn = plot(results[method], ax, **options)
    assert drawn is ax
    assert ax.has_data()
    assert ax.get_ylabel()


@pytest.mark.parametrize("values", ["raw", "effective"])
def test_separator_plot(results: dict[str, xr.Dataset], values: str) -> None:
    types = results["attention_between_types"]
    # Effective is what Fig. 5 is of, so it need not be said.
    options = {} if values == "effective" else {"values": values}
    ax = plot(types, Figure().add_subplot(), figure="separator", **options)
    for line, source in zip(ax.get_lines(), ("other", "[SEP]"), strict=False):
        expected = types[values].sel({"from": source, "to": "[SEP]"}).mean("head")
        np.testing.assert_allclose(line.get_ydata(), expected)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["other → [SEP]", "[SEP] → [SEP]"]


def test_of_several_maps_the_one_that_every_way_of_writing_the_model_has_leads(results: dict[str, xr.Dataset]) -> None:
    maps = results["attention_maps"]
    ax = plot(maps, Figure().add_subplot())
    assert ax.get_title() == "effective_simplex_span"
    np.testing.assert_array_equal(ax.images[0].get_array(), maps["effective_simplex_span"])
    # As in the figures of the paper, where there is no other.
    alone = plot(maps[["raw", "effective"]].assign_attrs(maps.attrs), Figure().add_subplot())
    np.testing.assert_array_equal(alone.images[0].get_array(), maps["effective"])


def test_bounds_of_copies_together_are_drawn() -> None:
    numbers = {
        "weight": [0.4, 0.2], "lower": [0.1, 0.2], "upper": [0.6, 0.2], "copies": [3, 1],
        "merged_weight": [0.7, 0.2], "merged_lower": [0.65, 0.2], "merged_upper": [0.75, 0.2], "query": [4, 4],
    }  # fmt: skip
    tokens = {"query_token": ("cell", ["a", "a"]), "key_token": ("cell", ["b", "c"])}
    result = make_result(
        "attention_intervals", {name: (("cell",), np.array(part)) for name, part in numbers.items()},
        coordinates=tokens, provenance={"kind": "freedom"},
    )  # fmt: skip
    ax = plot(result, Figure().add_subplot())
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == "with its copies, together"
    (whisker,) = ax.containers[-1].lines[2][0].get_segments()
    np.testing.assert_allclose(whisker[:, 1], [0.65, 0.75])


def test_the_mean_in_bins_of_length_is_drawn() -> None:
    lengths = np.array([10, 12, 30, 110, 5])
    correlation = np.stack([np.full((2, 3), value) for value in (1.0, 0.8, 0.6, 0.2, np.nan)])
    correlation[3, 0] = 0.4
    result = make_result(
        "correlation_by_length",
        {"correlation": (("text", "layer", "head"), correlation), "length": (("text",), lengths)},
    )
    ax = plot(result, Figure().add_subplot())
    (line,) = ax.get_lines()
    # Five bins 21 wide; the text of 5 tokens is too short to vary and counts nowhere.
    np.testing.assert_allclose(line.get_xydata(), [[11, 0.9], [30, 0.6], [110, 0.3]])


def test_texts_that_are_all_too_short_have_no_mean() -> None:
    nothing = {"correlation": (("text", "layer", "head"), np.full((2, 1, 1), np.nan)), "length": (("text",), [2, 2])}
    ax = plot(make_result("correlation_by_length", nothing), Figure().add_subplot())
    assert len(ax.get_lines()[0].get_xydata()) == 0


def test_legends_lie_over_nothing(results: dict[str, xr.Dataset]) -> None:
    for method, options in (("attention_intervals", {}), ("attention_alternative", {"row": 4}), ("prove", {})):
        ax = plot(results[method], **options)
        ax.figure.canvas.draw()
        legend = ax.get_legend().get_window_extent()
        assert legend.y0 >= ax.get_window_extent().y1
        title = ax._left_title.get_window_extent()
        assert not legend.overlaps(title)
        plt.close(ax.figure)


def test_an_alternative_beside_the_raw_map(results: dict[str, xr.Dataset], minilm: identiscope.Model) -> None:
    whole = results["attention_alternative"]
    (image,) = plot(whole, Figure().add_subplot()).get_images()
    np.testing.assert_array_equal(image.get_array(), whole["alternative"] - whole["raw"])
    assert image.norm.vmin == -image.norm.vmax
    trace = identiscope.trace(minilm, TEXTS[0])
    one = identiscope.attention_alternative(trace, 2, 3, how="avoid", token=0, rows=[4])
    ax = plot(one, Figure().add_subplot())
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(2, -1)
    np.testing.assert_allclose(heights, [one["raw"][4], one["alternative"][4]])
    assert "position 4" in ax.get_title("left")


def test_a_proof_says_zero_and_what_is_missing() -> None:
    proof = make_result(
        "prove",
        {"head_output": (("map",), [1e-15, 2e-15, 0.25]), "hidden_states": (("map",), [0.0, 0.0, 1e-3]),
         "logits": (("map",), [np.nan] * 3), "total_variation": (("map",), [0.5, 0.0, 0.5]), "same": ((), True)},
        coordinates={"map": ["alternative", "raw", "random"]}, provenance={"model": "m", "layer": 2, "head": 3},
    )  # fmt: skip
    ax = plot(proof, Figure().add_subplot())
    assert ax.get_yscale() == "log"
    said = [text.get_text() for text in ax.texts]
    assert said[:6] == ["1.0e-15", "exactly 0", "not\nmeasured", "2.0e-15", "exactly 0", "not\nmeasured"]
    assert said[6:] == ["2.5e-01", "1.0e-03", "not\nmeasured"] and "rounding: yes" in ax.get_title("left")
    low, high = ax.get_ylim()
    assert all(low <= text.xy[1] < high for text in ax.texts)
    # Nothing changed at all: nothing to scale the axis by.
    same = proof.assign({name: 0 * proof[name] for name in ("head_output", "hidden_states")})
    assert plot(same, Figure().add_subplot()).texts[0].get_text() == "exactly 0"
    # The first version put no raw map back, and judged nothing.
    old = proof.sel(map=["alternative", "random"]).drop_vars("same")
    ax = plot(old, Figure().add_subplot())
    assert len(ax.texts) == 6 and ax.get_title("left").endswith("(total variation)")


def test_losses_are_drawn_by_what_there_is() -> None:
    """Without tags by type; and small groups, where there are no others."""
    types = {"type_tokens": (("type",), [4, 2]), "type_identified": (("layer", "type"), [[4, 2], [3, 0]])}
    losses = make_result("token_losses", types, coordinates={"layer": [0, 1], "type": ["cat", "dog"]})
    ax = plot(losses, Figure().add_subplot())
    assert [bar.get_width() for bar in ax.patches] == [1.0, 0.25] and "by type" in ax.get_title()
    assert len(plot(losses, Figure().add_subplot(), least=3).patches) == 1


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (
            "attention_identifiability",
            {"values": "nothing"},
            "values='nothing' was given; expected one of simplex_null_share",
        ),
        ("attention_identifiability", {"values": "rank"}, r"axes layer, head, query; .*isel\(query=-1\)"),
        ("attention_identifiability", {"colour": "red"}, "colour was given to the plot of .*; expected values"),
        ("attention_maps", {"values": "nothing"}, "expected one of raw, effective_simplex_span, canonical"),
        ("attention_between_types", {"values": "null"}, "expected one of raw, effective"),
        ("attention_between_types", {"source": "verb"}, "source='verb' was given; expected one of all"),
        ("attention_between_types", {"figure": "6"}, "expected one of types, separator"),
        ("attention_between_types", {"figure": "separator", "source": "all"}, "leave source out"),
        ("attention_between_types", {"figure": "separator", "values": "null"}, "expected one of raw, effective"),
        ("attention_alternative", {"values": "null"}, "expected one of difference, raw, alternative"),
        ("attention_alternative", {"row": 99}, "row=99 was given; expected one of 0 to"),
        ("attention_alternative", {"row": 1, "values": "raw"}, "give values for a map, or row"),
        ("prove", {"values": "logits"}, "expected no options"),
    ],
)
def test_options_that_are_not_there(results: dict[str, xr.Dataset], method: str, options: Any, words: str) -> None:
    before = plt.get_fignums()
    with pytest.raises(identiscope.InputError, match=words):
        plot(results[method], **options)
    assert plt.get_fignums() == before  # no empty figure is left


def test_what_each_row_has_can_be_drawn_for_one_row(results: dict[str, xr.Dataset]) -> None:
    last = results["attention_identifiability"].isel(query=-1)
    (image,) = plot(last, Figure().add_subplot(), values="rank").get_images()
    assert image.norm.vmax == last["rank"].max() > 1


def test_a_type_that_no_token_has_is_said(minilm: identiscope.Model) -> None:
    result = identiscope.attention_between_types(minilm, ["No stop here"])
    with pytest.raises(identiscope.InputError, match="no token of these texts"):
        plot(result, Figure().add_subplot(), source=". or ,")


def test_options_of_other_plots_that_are_not_there() -> None:
    by = {"mean": (("layer", "offset"), np.ones((1, 3))), "total": (("layer", "offset"), np.ones((1, 3)))}
    offsets = make_result("contributions_by_offset", by, coordinates={"layer": [1], "offset": [-1, 0, 1]})
    losses = make_result("token_losses", {"tag_tokens": (("tag",), [40])}, coordinates={"tag": ["NOUN"]})
    neighbours = make_result("token_identifiability_neighbours", {}, coordinates={"probe": ["linear cosine"]})
    reversal = make_result("reversal_structure", {}, coordinates={"threshold": [0.0, 0.1]})
    comparison = make_result("identifiable_comparison", {"identifiable": (("variant",), [1.0])})
    means = make_result("run_tokens_means", {}, coordinates={"column": ["norm"]})
    for result, options, words in (
        (offsets, {"values": "median"}, "expected one of mean, total"),
        (losses, {"by": "word"}, "expected one of tag"),
        (neighbours, {"probe": "mlp l2"}, "expected one of linear cosine"),
        (reversal, {"values": "sum"}, "expected one of example, mean"),
        (reversal, {"threshold": 0.3}, "threshold=0.3 was given; expected one of 0.0, 0.1"),
        (comparison, {"values": "loss"}, "expected one of difference, accuracy, identifiable"),
        (means, {"column": "norm", "kind": "median"}, "expected one of mean, histogram"),
        (means, {}, "column was not given to the plot of run_tokens_means; expected column, kind"),
    ):
        with pytest.raises(identiscope.InputError, match=words):
            plot(result, Figure().add_subplot(), **options)


def test_without_axes_a_figure_is_made(results: dict[str, xr.Dataset]) -> None:
    drawn = plot(results["attention_identifiability"])
    assert drawn.figure.axes[0] is drawn
    plt.close(drawn.figure)


def test_null_attention_that_is_rounding_is_drawn_as_zero(minilm: identiscope.Model) -> None:
    for text, is_rounding in (("The cat sat on the mat.", True), (PASSAGE, False)):
        result = identiscope.attention_maps(identiscope.trace(minilm, text), 2, 3, ("null",))
        assert result["null"].values.any()
        (image,) = plot(result, Figure().add_subplot(), values="null").get_images()
        colours = np.unique(image.to_rgba(image.get_array()).reshape(-1, 4), axis=0)
        neutral = image.cmap(0.5)[:3]
        assert (np.abs(colours[:, :3] - neutral).max() < 0.02) == is_rounding  # of 256 shades the next ones, at most


def test_names_of_many_tokens_do_not_overlap(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, PASSAGE)
    for result, options in (
        (identiscope.attention_intervals(trace, 2, 3, row=4), {}),
        (identiscope.attention_alternative(trace, 2, 3, rows=[4], starts=1), {"row": 4}),
    ):
        drawn = plot(result, Figure(figsize=(7, 4.5), layout="constrained").add_subplot(), **options)
        drawn.figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in drawn.get_xticklabels()]
        assert 40 < len(boxes) < len(trace.tokens)
        assert all(first.x1 <= second.x0 for first, second in pairwise(boxes))


def test_tokens_with_dollars_are_not_formulas() -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), families.TEXT)
    result = identiscope.attention_maps(trace, 0, 0)
    named = result.assign_coords(key_token=("key", ["$x^2$"] * 12))
    figure = Figure()
    plot(named, figure.add_subplot())
    figure.canvas.draw()
    assert figure.axes[0].get_xticklabels()[0].get_text() == r"\$x^2\$"


def test_no_plot_for_an_unknown_method() -> None:
    with pytest.raises(identiscope.InputError, match="no plot for 'None'"):
        plot(xr.Dataset())
    with pytest.raises(identiscope.InputError, match=r"result=\[1, 2\] was given; expected an xarray.Dataset"):
        plot([1, 2])


@pytest.mark.parametrize("name", METHODS)
def test_registered_methods_are_drawn_by_their_kind(name: str) -> None:
    kind = METHODS[name].kind
    assert drawing(xr.Dataset(attrs={"method": name, "kind": kind})) is DRAWN[kind]
    # A result of an older version says no kind; one of a paper may have a drawing of its own.
    old = xr.Dataset(attrs={"method": name})
    assert drawing(old) is drawings().get(name, DRAWN[kind])


def test_names_of_tokens_do_not_overlap(minilm: identiscope.Model) -> None:
    for text, named in (("The cat sat.", 6), (PASSAGE, 35)):
        maps = identiscope.attention_maps(identiscope.trace(minilm, text), 0, 0)
        ax = plot(maps)
        ax.figure.canvas.draw()
        for labels, end in ((ax.get_xticklabels(), "x"), (ax.get_yticklabels(), "y")):
            assert len(labels) == named
            boxes = sorted(getattr(label.get_window_extent(), f"interval{end}").tolist() for label in labels)
            assert all(left[1] <= right[0] + 1 for left, right in pairwise(boxes))
        plt.close(ax.figure)


def test_a_figure_for_a_paper_has_a_columns_width_and_text_that_stays_text(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trace = identiscope.from_arrays(torch.softmax(torch.randn(2, 3, 6, 6), -1), torch.randn(2, 3, 6, 4))
    result = identiscope.attention_identifiability(trace)
    before = dict(matplotlib.rcParams)
    figure = identiscope.plot(result, style="paper").figure
    assert isinstance(figure, Figure)
    assert tuple(figure.get_size_inches()) == (3.3, 2.5)
    figure.savefig(tmp_path / "paper.svg")
    assert "<text" in (tmp_path / "paper.svg").read_text(encoding="utf-8")
    assert dict(matplotlib.rcParams) == before
    with pytest.raises(identiscope.InputError, match="style='poster' was given; expected one of paper"):
        identiscope.plot(result, style="poster")
    plt.close("all")


def test_no_label_of_a_figure_for_a_paper_is_cut_off() -> None:
    attention = torch.softmax(torch.randn(1, 1, 12, 12, generator=torch.Generator().manual_seed(0)), -1)
    trace = identiscope.from_arrays(attention, torch.eye(12)[None, None, :, :3])
    figure = identiscope.plot(identiscope.attention_maps(trace, 0, 0), style="paper").figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    whole = figure.bbox
    for ax in figure.axes:
        for label in (ax.title, ax.xaxis.label, ax.yaxis.label):
            box = label.get_window_extent()
            assert box.x0 >= whole.x0 and box.x1 <= whole.x1 and box.y0 >= whole.y0 and box.y1 <= whole.y1
    plt.close(figure)


def test_names_in_a_figure_for_a_paper_stand_apart(tmp_path: Path) -> None:
    weights = torch.softmax(torch.randn(1, 1, 60, 60, dtype=torch.float64), -1)
    trace = identiscope.from_arrays(weights, weights, tokens=[f"word{place}" for place in range(60)])
    ax = identiscope.plot(identiscope.rollout(trace), style="paper")
    assert isinstance(ax.figure, Figure)
    ax.figure.savefig(tmp_path / "paper.pdf")
    # The letters are those of the style, and not what a figure is usually saved with.
    assert b"STIXGeneral" in (tmp_path / "paper.pdf").read_bytes()
    for axis, along in ((ax.xaxis, 0), (ax.yaxis, 1)):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_visible()]
        ends = sorted((box.bounds[along], box.bounds[along] + box.bounds[2 + along]) for box in boxes)
        assert len(ends) > 5 and all(one[1] <= other[0] + 1 for one, other in pairwise(ends))
    plt.close("all")
