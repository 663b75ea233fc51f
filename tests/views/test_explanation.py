"""Explanations in a terminal and as a figure, from numbers that are written here."""

from typing import Any

import matplotlib
import numpy as np
import pytest
import xarray as xr
from rich.console import Console

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import identiscope
from identiscope.results import make_result
from identiscope.views.tables.explanation import _print_text, print_explanation, share_errors, top_rows, top_table

NAMES = ["attention", "shapley", "direct_logit_attribution"]


def explanation(count: int = 3) -> xr.Dataset:
    """Three methods on three words and a special token: one without errors, one with, one that failed."""
    score = np.array([[0.7, 0.1, 0.2, 0.0], [9.0, -3.0, -0.002, 4.0], [np.nan] * 4])[:count]
    error = np.array([[np.nan] * 4, [1.6, 0.8, 0.0, 0.4], [np.nan] * 4])[:count]
    sizes = np.nansum(np.abs(score), 1, keepdims=True)
    axes, names = ("method", "input"), NAMES[:count]
    arrays: dict[str, Any] = {
        "share": (axes, score / np.where(sizes > 0, sizes, 1)),
        "score": (axes, score),
        "score_error": (axes, error),
        "passes": (("method",), np.array([0.0, 12, 0])[:count]),
        "cost": (("method",), np.array([0.5, 9.5, 0])[:count]),
        "promised_sum": (("method",), np.array([np.nan, 10.0, np.nan])[:count]),
        "residual": (("method",), np.array([np.nan, -0.25, np.nan])[:count]),
        "conversion": (("method",), np.array(["mean", "as it is", "none"], dtype=object)[:count]),
        "failed": (("method",), np.array(["", "", "no parts"], dtype=object)[:count]),
        "agreement": (("method", "other"), np.eye(count)),
    }
    tokens = ["[CLS]", "light", "##house", "here"]
    labels: dict[str, Any] = {"method": names, "other": names, "input_token": ("input", tokens)}
    labels |= {"input_special": ("input", [True, False, False, False])}
    provenance = {"kind": "explanation", "outcome": "logit", "outcome_value": 1.0, "outcome_unit": "logit"}
    return make_result("explain", arrays, coordinates=labels, provenance=provenance)


def test_shares_come_with_their_errors() -> None:
    result = explanation()
    np.testing.assert_allclose(share_errors(result)[1], np.array([1.6, 0.8, 0.0, 0.4]) / 16.002)
    first, second, third = top_rows(result, 2)
    assert [one["token"] for one in first["top"]] == ["##house", "light"]
    assert [one["share_error"] for one in first["top"]] == [None, None]
    assert [one["token"] for one in second["top"]] == ["here", "light"] and not third["top"]
    assert second["top"][0]["share_error"] == pytest.approx(0.4 / 16.002)


def test_the_table_has_full_names_errors_and_promises(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(explanation(), 3)
    said = capsys.readouterr().out
    assert "here 25±2, light -19±5, house 0±0" in said  # and no −0
    assert "10, off -0.25" in said and "not asked: direct_logit_attribution: no parts" in said
    assert "[CLS] lighthouse here" in said


def test_a_comma_is_not_taken_for_one_of_the_list() -> None:
    result = explanation().assign_coords(input_token=("input", ["[CLS]", ",", "##house", "here"]))
    columns, rows = top_table(result, 2)
    assert list(columns)[1] == "top 2, in % of all" and rows[0][1] == "house 20, “,” 10"


def test_a_figure_grows_with_methods_and_names_them_whole() -> None:
    few, many = explanation(2), xr.concat([explanation(2).isel(other=0, drop=True)] * 13, "method")
    many.attrs = few.attrs
    axes = [identiscope.plot(result) for result in (few, many)]
    figures: list[Any] = [ax.figure for ax in axes]
    sizes = [figure.get_size_inches() for figure in figures]
    assert list(sizes[0]) == [7, 4.5] and sizes[1][1] > 7
    for ax, figure in zip(axes, figures, strict=True):
        figure.canvas.draw()
        assert all(label.get_window_extent().x0 >= 0 for label in ax.get_yticklabels())
    assert [label.get_text() for label in axes[0].get_yticklabels()] == NAMES[:2]
    plt.close("all")


def test_agreement_names_methods_in_full_where_there_is_room(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(explanation(2), 1)
    said = capsys.readouterr().out.splitlines()
    table = said.index(next(line for line in said if line.startswith("Do they agree?")))
    assert said[table + 1].split() == NAMES[:2]
    assert said[table + 2].split() == ["attention", "1.000", "0.000"]


@pytest.mark.parametrize("colours", ["standard", "256", "truecolor"])
def test_signs_are_told_apart_however_many_colours_a_terminal_has(colours: str) -> None:
    """What is written of a word is not the same for a weak share and one of the other sign."""
    written = []
    for sign in (1, -1):
        for size in (0.2, 1.0):
            screen = Console(force_terminal=True, color_system=colours, width=200)  # type: ignore[arg-type]
            result = explanation(1)
            result["share"][:] = np.array([[0.0, sign * size, 1.0, 0.0]])
            with screen.capture() as told:
                _print_text(result, 0, "attention", 9, screen)
            written.append(told.get().partition("light")[0].rpartition("\x1b")[2])
    assert len(set(written)) == 4
