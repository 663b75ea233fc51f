"""Results of registered methods are drawn by their kind, from their axes alone."""

from typing import Any

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

matplotlib.use("Agg")
import identiscope
from contract import CASES, MANY, Case, applies, ask
from identiscope.errors import InputError
from identiscope.methods.kinds import KINDS
from identiscope.methods.registry import METHODS
from identiscope.results import make_result
from identiscope.views.plots.attention import POSITIVE, SIGNED
from identiscope.views.plots.kinds import DRAWN

TOKENS = ["[CLS]", "$5", "sat", "."]


def drawn(result: xr.Dataset, **options: Any) -> Any:
    figure = Figure(layout="constrained")
    ax = identiscope.plot(result, figure.add_subplot(), **options)
    figure.canvas.draw()
    # Of an identifiable row there is no direction to draw, and that is written.
    assert (ax.has_data() or ax.texts) and ax.get_ylabel()
    return ax


def made(kind: str, *, signed: bool = False) -> xr.Dataset:
    """A result of a kind, as a method that is registered nowhere would give it."""
    sizes = {"layer": 2, "head": 3, "query": 4, "key": 4, "output": 4, "input": 4, "cell": 4}
    axes = KINDS[kind].axes
    cells = np.random.default_rng(0).random([sizes[axis] for axis in axes]) - 0.5 * signed
    arrays: dict[str, Any] = {"toy": (axes, cells)}
    labels: dict[str, Any] = {f"{axis}_token": (axis, TOKENS) for axis in ("query", "key", "output", "input")
                              if axis in axes}  # fmt: skip
    if kind == "freedom":
        arrays = {name: (axes, np.full(4, number)) for name, number in (("weight", 0.3), ("lower", 0.1), ("upper", 1))}
        arrays |= {"query": (axes, [1] * 4), "key": (axes, range(4))}
        labels = {"query_token": ("cell", ["$5"] * 4), "key_token": ("cell", TOKENS)}
    numbers = {axis: range(sizes[axis]) for axis in ("layer", "head") if axis in axes}
    return make_result("toy", arrays, coordinates=labels | numbers, provenance={"kind": kind})


def test_every_kind_is_drawn() -> None:
    assert set(DRAWN) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_method_that_nobody_knows_is_drawn_by_its_kind(kind: str) -> None:
    drawn(made(kind))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("case", ["one token", "causal, grouped queries", "cross attention"])
def test_every_method_is_drawn(name: str, case: str) -> None:
    one = METHODS[name]
    if not applies(one, CASES[case]):
        pytest.skip("what is of a whole trace is of a stream's attention to itself")
    drawn(ask(one, CASES[case]))


@pytest.mark.parametrize("kind", ["map", "mixture", "token", "head", "layer"])
def test_signed_numbers_have_a_scale_around_zero(kind: str) -> None:
    for signed, colours in ((True, SIGNED), (False, POSITIVE)):
        (image,) = drawn(made(kind, signed=signed)).get_images()
        assert image.get_cmap().name == colours
        assert (image.norm.vmin == -image.norm.vmax) == signed


def test_a_map_is_that_of_the_head_that_was_asked_for() -> None:
    result = made("map")
    ax = drawn(result, layer=1, head=2)
    np.testing.assert_array_equal(ax.get_images()[0].get_array(), result["toy"].sel(layer=1, head=2))
    assert ax.get_title("left") == "layer 1, head 2" and ax.get_xlabel() == "key"
    # What has been chosen before need not be said.
    np.testing.assert_array_equal(drawn(result.sel(layer=1, head=2)).get_images()[0].get_array(), result["toy"][1, 2])


def test_a_mixture_of_one_layer_or_of_one_token() -> None:
    result = made("mixture")
    np.testing.assert_array_equal(drawn(result).get_images()[0].get_array(), result["toy"].sel(layer=1))
    ax = drawn(result, token=1)
    np.testing.assert_array_equal(ax.get_images()[0].get_array(), result["toy"].sel(output=1))
    # The last layer is on top, and a token is not a formula.
    assert ax.get_ylim()[0] < ax.get_ylim()[1] and r"\$5" in ax.get_title("left")
    # Whichever way round a method gives it.
    turned = result.transpose("layer", "input", "output")
    np.testing.assert_array_equal(drawn(turned).get_images()[0].get_array(), result["toy"].sel(layer=1))


def test_a_token_over_the_layers() -> None:
    result = made("token")
    (line,) = drawn(result, token=2).get_lines()
    np.testing.assert_array_equal(line.get_ydata(), result["toy"][:, 2])


def test_scores_below_zero_have_another_colour() -> None:
    bars = drawn(made("score", signed=True)).patches
    assert len({bar.get_facecolor() for bar in bars}) == 2


def test_numbers_of_a_head_by_layer_by_head_and_by_row() -> None:
    case = Case("BERT", tuple(MANY))
    assert drawn(ask(METHODS["layer_rank"], case)).get_lines()
    rows = drawn(ask(METHODS["row_rank"], case))
    assert rows.figure.axes[1].get_ylabel() == "rank, mean over query"


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("map", {"layer": 7}, "layer=7 was given; expected one of 0, 1"),
        ("map", {"head": 9}, "head=9 was given; expected one of 0, 1, 2"),
        ("map", {"values": "none"}, "values='none' was given; expected one of toy"),
        ("map", {"colour": "red"}, "colour was given to the plot of toy; expected layer, head, values"),
        ("mixture", {"token": 9}, "token=9 was given; expected one of 0 to 3"),
        ("mixture", {"token": 1, "layer": 1}, "layer=1 and token=1 were given"),
        ("token", {"token": -1}, "token=-1 was given; expected one of 0 to 3"),
        ("freedom", {"row": 1}, "row was given; this result is drawn whole"),
        ("score", {"values": "x"}, "expected one of toy"),
    ],
)
def test_choices_that_are_not_there(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        identiscope.plot(made(kind), Figure().add_subplot(), **options)


def test_what_cannot_be_drawn_is_said() -> None:
    bare = make_result("toy", {"toy": (("place",), [1.0])}, provenance={"kind": "map"})
    with pytest.raises(InputError, match="no array that can be drawn as its kind is"):
        identiscope.plot(bare, Figure().add_subplot())


def test_an_estimated_score_has_error_bars() -> None:
    result = made("score")
    assert not drawn(result).containers[1:]
    result["toy_error"] = ("input", np.array([0.1, 0.0, 0.2, 0.3]))
    _, errors = drawn(result).containers
    ends = np.array(errors.lines[2][0].get_segments())[:, :, 1]
    np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, result["toy_error"].values)
