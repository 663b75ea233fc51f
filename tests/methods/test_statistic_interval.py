"""A statistic with its interval, against all corners of every row; and how tokens are named."""

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import identiscope
import reference
from identiscope.errors import InputError
from identiscope.judge.threshold import Rows, counted_rows, mean_errors, mean_interval, side_of
from identiscope.linalg.simplex.ratio import ratio_bounds
from identiscope.linalg.simplex.row_programs import RowPrograms
from identiscope.methods.heads.statistic_interval import statistic_interval
from identiscope.methods.maps.factored import rows_of
from identiscope.methods.selections import cells, positions

TOKENS = ("[CLS]", "the", "light", "##house", "keeper", ",", "the", "[SEP]")
SPECIAL = [True, False, False, False, False, False, False, True]


def build(kind: str = "all") -> tuple[tuple[Any, ...], np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    value, projection = generator.standard_normal((2, 8, 2)), generator.standard_normal((2, 2, 5))
    matrix = reference.allowed_matrix(kind, 8, 8)
    attention = reference.softmax_rows(generator, 2, matrix)
    given = (
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)), 8,
        torch.tensor(SPECIAL), TOKENS, TOKENS, torch.from_numpy(matrix),
    )  # fmt: skip
    return given, attention, value @ projection, matrix


def corners(attention: np.ndarray, transformed: np.ndarray, matrix: np.ndarray, query: int) -> np.ndarray:
    """All corners of a row, over all keys."""
    keys = np.flatnonzero(matrix[query])
    every = reference.vertices(attention[query, keys], transformed[keys])
    full = np.zeros((max(len(every), 1), 8))
    full[:, keys] = every if len(every) else attention[query, keys]
    return full


@pytest.mark.parametrize("kind", ["all", "causal"])
def test_bounds_are_those_of_all_corners(kind: str) -> None:
    given, attention, transformed, matrix = build(kind)
    weights = np.random.default_rng(1).standard_normal((8, 8))
    for on, cost in (
        ("special", np.tile(np.array(SPECIAL, dtype=float), (8, 1))),
        ("previous", np.eye(8, k=-1)),
        (torch.from_numpy(weights), weights),
    ):
        found = {name: part[1].numpy() for name, part in statistic_interval(*given, on=on).arrays().items()}
        for head in range(2):
            ends = []
            for query in range(8):
                sums = corners(attention[head], transformed[head], matrix, query) @ cost[query]
                ends.append((attention[head, query] @ cost[query], sums.min(), sums.max()))
                for name, end in zip(("statistic", "lower", "upper"), ends[-1], strict=True):
                    assert found[f"row_{name}"][head, query] == pytest.approx(end, abs=1e-9)
            for name, mean in zip(("statistic", "lower", "upper"), np.mean(ends, 0), strict=True):
                assert found[name][head] == pytest.approx(mean, abs=1e-9)
                assert found[f"{name}_error"][head] == 0


def test_difference_and_quotient() -> None:
    given, attention, transformed, matrix = build()
    found = statistic_interval(*given, on="keeper", minus="lighthouse", rows="4").arrays()
    every = corners(attention[1], transformed[1], matrix, 4)
    difference = every[:, 4] - every[:, [2, 3]].sum(1)
    assert float(found["lower"][1][1]) == pytest.approx(difference.min(), abs=1e-9)
    assert float(found["upper"][1][1]) == pytest.approx(difference.max(), abs=1e-9)
    assert found["rows"][1].tolist() == [1, 1]
    quotient = statistic_interval(*given, on="ordinary", over="all").arrays()
    share = statistic_interval(*given, on="ordinary").arrays()
    for name in ("statistic", "lower", "upper"):
        np.testing.assert_allclose(quotient[name][1], share[name][1], atol=1e-9)


def test_a_quotient_by_what_can_be_zero_is_none() -> None:
    given, *_ = build()
    found = statistic_interval(*given, on="keeper", over="keeper, lighthouse").arrays()
    assert bool(found["row_lower"][1].isnan().any())
    assert found["rows"][1].tolist() == (~found["row_statistic"][1].isnan()).sum(-1).tolist()


def test_some_rows_stand_for_all_with_an_error(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, identiscope.PASSAGE, layers=[1], heads=[3])
    whole = identiscope.statistic_interval(trace, on="special")
    misses = []
    for seed in range(40):
        some = identiscope.statistic_interval(trace, on="special", sample=12, seed=seed)
        assert some["rows"].item() == 12 and int((~np.isnan(some.row_lower)).sum()) == 12
        # Most lower bounds are zero here, and a dozen of them may all be.
        for name in ("statistic", "upper"):
            misses.append(((some[name] - whole[name]) / some[f"{name}_error"]).item())
    # Standardised, they have about the spread of Student's t with 11 degrees of freedom.
    assert 0.6 < np.std(misses) < 1.7 and abs(np.mean(misses)) < 0.5
    everything = identiscope.statistic_interval(trace, on="special", sample=1000)
    assert everything.statistic.item() == whole.statistic.item() and everything.statistic_error.item() == 0


def test_rows_are_counted() -> None:
    """Meant, looked at, defined: what a mean is of can be read beside it."""
    given, attention, transformed, matrix = build()
    found = {
        name: part[1]
        for name, part in statistic_interval(*given, on="keeper", over="keeper, lighthouse").arrays().items()
    }
    assert found["rows_meant"].tolist() == found["rows_looked_at"].tolist() == [8, 8]
    for head in range(2):
        least = [corners(attention[head], transformed[head], matrix, query)[:, 2:5].sum(1).min() for query in range(8)]
        defined = np.array(least) > 1e-9
        assert 0 < defined.sum() < 8
        assert found["rows"][head] == defined.sum()
        assert (~found["row_lower"][head].isnan().numpy() == defined).all()
    some = {name: part[1] for name, part in statistic_interval(*given, rows="1:7", sample=3).arrays().items()}
    assert [some[name].tolist() for name in ("rows_meant", "rows_looked_at", "rows")] == [[6, 6], [3, 3], [3, 3]]


def test_one_row_that_was_drawn_has_no_error_bar() -> None:
    given, *_ = build()
    found = statistic_interval(*given, on="keeper", over="keeper, lighthouse", sample=2, seed=3).arrays()
    alone = found["rows"][1] < 2
    assert bool(alone.any())
    for name in ("statistic", "lower", "upper"):
        assert (found[f"{name}_error"][1].isnan() == alone).all()


def test_a_denominator_that_no_program_tells_from_zero_can_be_zero() -> None:
    """A row whose weights are determined, and next to nothing on the keys that it is divided by."""
    basis = np.eye(3)
    for least, defined in ((1e-12, False), (1e-10, False), (1e-6, True)):
        programs = RowPrograms(basis, np.array([1 - 2 * least, least, least]))
        bounds = ratio_bounds(programs, np.array([1.0, 0, 0]), np.array([0.0, 1, 0]))
        assert (bounds is not None) == defined


def test_the_error_of_the_mean_over_heads_is_that_of_rows_drawn_together(minilm: identiscope.Model) -> None:
    """Heads that are looked at in the same rows are off together: their errors do not average out."""
    trace = identiscope.trace(minilm, identiscope.PASSAGE, layers=[1, 2], heads=[0, 3, 7])
    whole = mean_interval(identiscope.statistic_interval(trace, on="special"))
    misses = []
    for seed in range(40):
        some = identiscope.statistic_interval(trace, on="special", sample=12, seed=seed)
        means, errors = mean_interval(some), mean_errors(some)
        misses += [(means[end] - whole[end]) / errors[end] for end in (0, 2)]
    assert 0.6 < np.std(misses) < 1.7 and abs(np.mean(misses)) < 0.5
    assert mean_errors(identiscope.statistic_interval(trace, on="special", rows="2:6")) == (0.0, 0.0, 0.0)


def test_the_error_of_a_mean_of_partly_defined_rows() -> None:
    """Against the literal sum over heads and rows."""
    given, *_ = build()
    found = statistic_interval(*given, on="keeper", over="keeper, lighthouse, the", sample=6).arrays()
    axes = {name: (("layer", *of), part.numpy()[None]) for name, (of, part) in found.items()}
    rows = axes["row_upper"][1][0]
    assert (np.isnan(rows).sum(1) > 2).any() and (~np.isnan(rows)).sum(1).min() >= 2
    total = np.zeros(8)
    for head in rows:
        known = np.flatnonzero(~np.isnan(head))
        for query in known:
            total[query] += (head[query] - head[known].mean()) / len(known) / 2 * 6
    expected = np.sqrt((1 - 6 / 8) * (total**2).sum() / 5 / 6)
    assert mean_errors(xr.Dataset(axes))[2] == pytest.approx(expected, rel=1e-12)
    assert counted_rows(xr.Dataset(axes)) == Rows(16, 12, int((~np.isnan(rows)).sum()))
    # A head of which one row is known has an error that nobody knows.
    axes["row_upper"][1][0, 0, np.flatnonzero(~np.isnan(rows[0]))[1:]] = np.nan
    assert np.isnan(mean_errors(xr.Dataset(axes))[2])


def test_the_mean_over_heads_is_bounded_by_the_means(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, identiscope.PASSAGE)
    found = identiscope.statistic_interval(trace, on="first", layers=[0, 3], heads=[1, 2], rows="3:9")
    now, lower, upper = mean_interval(found)
    raw = np.mean([trace.site(layer).attention(head)[3:9, 0].mean() for layer in (0, 3) for head in (1, 2)])
    assert now == pytest.approx(raw, abs=1e-9) and lower <= now <= upper
    assert lower == pytest.approx(float(found.lower.mean())) and upper == pytest.approx(float(found.upper.mean()))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("first", [0]), ("last", [7]), ("special", [0, 7]), ("ordinary", [1, 2, 3, 4, 5, 6]), ("punctuation", [5]),
        ("3", [3]), ("-1", [7]), ("2:4", [2, 3]), (":2", [0, 1]), ("6:", [6, 7]), ("the", [1, 6]), ("The", [1, 6]),
        ("lighthouse", [2, 3]), ("light house keeper", [2, 3, 4]), ("[CLS]", [0]), ("word:the, 3", [1, 3, 6]),
        ("all", list(range(8))), ([4, 2, 4], [2, 4]), (3, [3]), (-1, [7]),
    ],
)  # fmt: skip
def test_tokens_are_named(selection: Any, expected: list[int]) -> None:
    assert positions(selection, TOKENS, SPECIAL) == expected


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ("light", "'light' was given, which is no word of this text"),  # the beginning of one
        ("house", "'house' was given, which is no word of this text"),
        ("9", "the span '9:10' was given; the text has positions 0 to 7"),
        ("3:3", "the span '3:3' was given"),
        ("2:20", "the span '2:20' was given"),
        ([], "positions \\[\\] were given"),
        ([8], "positions \\[8\\] were given; the text has 0 to 7"),
        (8, "position 8 was given; the text has 0 to 7"),
        (-9, "position -9 was given; the text has 0 to 7"),
        (True, "position True was given"),
    ],
)
def test_what_is_no_token_is_refused(selection: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        positions(selection, TOKENS, SPECIAL)


def test_cells_of_a_query() -> None:
    own = cells("self, next", 8, TOKENS, SPECIAL, same=True)
    assert own.tolist() == (np.eye(8) + np.eye(8, k=1)).tolist()
    assert cells("previous, 0", 8, TOKENS, SPECIAL, same=True)[0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    wrong: list[tuple[Any, str]] = [("self", "different texts"), (torch.zeros(3, 8), "expected \\[query=8, key=8\\]")]
    for chosen, words in wrong:
        with pytest.raises(InputError, match=words):
            cells(chosen, 8, TOKENS, SPECIAL, same=False)
    with pytest.raises(InputError, match="NaN or infinite"):
        cells(torch.full((8, 8), torch.nan), 8, TOKENS, SPECIAL, same=True)
    given, *_ = build()
    with pytest.raises(InputError, match="an error bar needs at least 2"):
        statistic_interval(*given, sample=1)


@pytest.mark.parametrize(
    ("ends", "side"),
    [((0.3, 0.2, 0.4), "below"), ((0.7, 0.6, 0.9), "above"), ((0.4, 0.3, 0.6), "either"), ((0.5, 0.5, 0.5), "either"),
     ((np.nan, np.nan, np.nan), "undefined")],
)  # fmt: skip
def test_the_side_of_a_threshold(ends: tuple[float, float, float], side: str) -> None:
    found = side_of(*ends, 0.5)
    assert found.name == side
    words = {
        "below": "below 0.5 whatever",
        "above": "above 0.5 whatever",
        "either": "both sides",
        "undefined": "not def",
    }
    assert words[side] in found.sentence(0.5)


@pytest.mark.parametrize(
    ("ends", "rows", "errors", "words"),
    [
        ((0.3, 0.2, 0.4), Rows(8, 8, 8), (0.0, 0.0, 0.0), "It is below 0.5 whatever the attention was"),
        ((0.3, 0.2, 0.4), Rows(8, 4, 4), (0.01, 0.01, 0.01), "which is below 0.5 by more than 2 standard errors"),
        ((0.3, 0.2, 0.4), Rows(8, 4, 4), (0.01, 0.01, 0.06), "which does not decide on which side of 0.5"),
        ((0.3, 0.2, 0.4), Rows(8, 4, 1), (np.nan, np.nan, np.nan), "which does not decide on which side of 0.5"),
        ((0.3, 0.2, 0.6), Rows(8, 4, 4), (0.01, 0.01, 0.01), "which does not decide on which side of 0.5"),
        ((0.7, 0.6, 0.9), Rows(8, 8, 3), (0.0, 0.0, 0.0), "In the 3 of 8 rows where it is defined, it is above 0.5"),
        ((0.7, 0.4, 0.9), Rows(8, 8, 3), (0.0, 0.0, 0.0), "In the 3 of 8 rows where it is defined, attention with the"),
    ],
)  # fmt: skip
def test_whatever_is_said_of_all_rows_only(
    ends: tuple[float, float, float], rows: Rows, errors: tuple[float, float, float], words: str
) -> None:
    said = side_of(*ends, 0.5, rows, errors).sentence(0.5)
    assert words in said
    assert ("whatever" in said) == (rows == Rows(8, 8, 8))
    assert ("no bound for the other rows" in said) == rows.drawn


def test_what_was_not_looked_at_is_said() -> None:
    assert Rows(8, 8, 8).sentence() == ""
    assert Rows(8, 4, 4).sentence() == "4 of 8 rows were drawn and looked at."
    assert Rows(8, 8, 3).sentence().startswith("In 5 of 8 rows it is not defined")
    assert "In 1 of 4 rows that were drawn it is not defined" in Rows(8, 4, 3).sentence()
