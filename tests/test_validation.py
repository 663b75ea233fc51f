"""Public functions say what they were given and expected; what is right passes as it is."""

import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import xarray as xr

import contract
import identiscope
from identiscope.errors import ArgumentError, InputError
from identiscope.validation import REFUSED, checked, expected


@pytest.mark.parametrize(
    ("hint", "good", "bad", "words"),
    [
        (int, [3, -1, np.int64(3)], [True, 3.0, "3", None, torch.tensor(3), 2**63, 10**5000], "a whole number"),
        (float, [3, 0.5, np.float32(0.5), float("nan")], [True, "3", 1j, 10**400], "a number"),
        (bool, [True, False, np.bool_(True)], [0, 1, "yes", None], "True or False"),
        (str, ["", "x"], [b"x", 3, Path("x")], "a string"),
        (str | Path, ["x", Path("x")], [b"x", None], "a string or a path"),
        (int | None, [None, 3], ["3", False], "a whole number or None"),
        (Literal["a", "b"], ["a"], ["c", ["a"], np.zeros(2), None], "'a' or 'b'"),
        (Sequence[int], [[], [1, 2], (1,), range(3), np.arange(3)], ["12", {1}, [1.0], [True], [[1]], torch.ones(2)],
         "a list of whole numbers"),
        (tuple[int, ...], [(1,), [1, 2]], [1, ("a",)], "a list of whole numbers"),
        (Sequence[tuple[int, int]], [[(0, 1)], [[0, 1]], []], [[0], [(0, 1, 2)], [(0, "a")]],
         "a list of tuples of 2 whole numbers"),
        (Iterable[int], [[1], {1, 2}, iter([1])], [3, "a", ["a"]], "a list of whole numbers"),
        (Mapping[str, int], [{}, {"a": 1}], [[], {1: 1}, {"a": "b"}], "a mapping from a string to a whole number"),
        (Callable[[int], None], [print, int], [3, None], "a function"),
        (torch.Tensor, [torch.ones(2)], [np.ones(2), [1.0]], "a torch.Tensor"),
        (xr.Dataset, [xr.Dataset()], [xr.DataArray(1), None], "an xarray.Dataset"),
        (identiscope.Site, [], [3], "a Site"),
    ],
)  # fmt: skip
def test_what_hints_ask_for(hint: Any, good: list[Any], bad: list[Any], words: str) -> None:
    rule = expected(hint)
    assert rule is not None and rule.words == words
    for value in good:
        assert rule.take(value) is not REFUSED, value
    for value in bad:
        assert rule.take(value) is REFUSED, value


@pytest.mark.parametrize("hint", [Any, object, int | Any, "Nobody"])
def test_hints_that_say_nothing(hint: Any) -> None:
    assert expected(hint) is None


def test_numpy_becomes_python_where_numbers_and_lists_were_expected() -> None:
    def given(one: int, several: Sequence[int], same: Sequence[int], array: np.ndarray) -> tuple[Any, ...]:
        return one, several, same, array

    same, array = [1, 2], np.arange(3)
    taking: Any = checked(given)
    one, several, kept, untouched = taking(np.int64(3), np.arange(2), same, array)
    assert type(one) is int and several == [0, 1] and type(several[0]) is int
    assert kept is same and untouched is array


def test_a_generator_is_looked_at_as_it_is_read() -> None:
    def summed(numbers: Iterable[int]) -> int:
        return sum(numbers)

    total: Any = checked(summed)
    assert total(n for n in range(4)) == 6
    with pytest.raises(ArgumentError, match="number 1 of several='a' was given; expected a whole number"):
        total(n for n in (1, "a"))


# What is called wrongly here on purpose is no news to mypy.
library: Any = identiscope
TRACE = identiscope.from_arrays(torch.eye(3), torch.ones(3, 2))
SITE: Any = TRACE.sites[0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: SITE.attention("5"), "head='5' was given; expected a whole number."),
        (lambda: SITE.attention(), "Site.attention() needs `head`; it takes: head, rows."),
        (lambda: SITE.attention(0, None, 1), "Site.attention() takes 2 arguments by position, and 3 were given."),
        (lambda: SITE.attention(0, head=1), "Site.attention() was given `head` twice, by position and by name."),
        (lambda: library.trace("minilm", "a", layer=[3]),
         "trace() takes no argument `layer`; did you mean `layers`?"),
        (lambda: library.trace("minilm", "a", x=3),
         "trace() takes no argument `x`; it takes: model, text, target, layers, heads, truncate, batch_size."),
        (lambda: library.trace(),
         "trace() needs `model` and `text`; it takes: model, text, target, layers, heads, truncate, batch_size."),
        (lambda: library.RunOptions(layers="all"),
         "layers='all' was given; expected a list of whole numbers or None."),
        (
            lambda: library.attention_maps(SITE, 0, 0),
            "trace: a Site was given; expected a Trace, as identiscope.trace(model, text) gives.",
        ),
        (lambda: library.plot(np.ones((2, 3))),
         "result: a numpy.ndarray of shape (2, 3) was given; expected an xarray.Dataset."),
        (lambda: library.trace("minilm", "a", truncate="no"), "truncate='no' was given; expected True or False."),
        (
            lambda: library.attention_maps(SITE, 10**5000, 0),
            "trace: a Site was given; expected a Trace, as identiscope.trace(model, text) gives.",
        ),
        (
            lambda: library.hidden_token_attribution("no-such-model", SITE),
            "trace='no-such-model' was given; expected a Trace, as identiscope.trace(model, text) gives.",
        ),
        (lambda: SITE.place(10**5000),
         "head: a whole number of 16610 bits, more than 64, was given; expected a whole number."),
        (lambda: library.ask("effective", TRACE, value_bias="no"),
         "value_bias='no' was given; expected True or False."),
        (lambda: library.ask("effective", TRACE, layers=[True]),
         "layers=[True] was given; expected a list of whole numbers or None."),
        (lambda: library.ask("effective", TRACE, layers=0),
         "layers=0 was given; expected a list of whole numbers or None."),
        (lambda: library.compare(TRACE, ["attention", "effective"], heads="01"),
         "heads='01' was given; expected a list of whole numbers or None."),
        (lambda: library.compare(TRACE, ["attention", "effective"], value_bias=1),
         "value_bias=1 was given; expected True or False."),
        (lambda: library.RunOptions(seed=-1), "seed=-1 was given; expected a whole number, at least 0."),
        (lambda: library.attention_alternative(TRACE, 0, 0, seed=-1),
         "seed=-1 was given; expected a whole number, at least 0."),
        (lambda: library.report(TRACE, path="x", cannonical="all"),
         "report_page() takes no argument `cannonical`; did you mean `canonical`?"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], Any], said: str) -> None:
    """An InputError, and a TypeError as Python's own would be."""
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == said
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: library.effective(TRACE, heads=[]), "heads=[] was given; expected at least one, or None for all."),
        (lambda: library.ask("effective", TRACE, layers=[]),
         "layers=[] was given; expected at least one, or None for all."),
        (lambda: library.attention_maps(TRACE, 0, 0, maps=[]),
         "maps=[] was given; there are raw, effective_simplex_span, canonical, effective, null, "),
        (lambda: library.attention_maps(TRACE, 0, 0, maps=["nobody"]),
         "maps=['nobody'] was given; there are raw, effective_simplex_span, canonical, effective, null, "),
        (lambda: library.attention_maps(TRACE, 0, 0, maps=["gradient_attention"]),
         "a trace made from arrays has no model, and so no outcome."),
        (lambda: library.rollout(TRACE, stream=""), "stream '' was asked for; this model has tokens."),
        (lambda: TRACE.parts(stream="nobody"), "stream='nobody' was given; this trace has tokens."),
        (lambda: TRACE.blocks(stream="nobody"), "stream='nobody' was given; this trace has tokens."),
        (lambda: library.RunOptions().settings_of("nobody"), "there is no method 'nobody'; there are attention, "),
        (lambda: library.attention_maps(TRACE, 0, 0).identiscope.table(largest=0),
         "largest=0 was given; expected at least 1, or None for all rows."),
        (lambda: library.IdentifiableSelfAttention(8, 2).head_values(torch.ones(2, 2)),
         "inputs of shape [2, 2] in float32 were given; expected one text [n, 8] in floating point."),
    ],
)  # fmt: skip
def test_values_that_are_of_the_right_type_and_still_none(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(said)


def test_maps_of_a_unit_of_their_own_do_not_stand_beside_attention() -> None:
    maps = identiscope.attention_maps(TRACE, 0, 0)
    assert list(maps.data_vars) == ["raw", "effective_simplex_span", "canonical", "effective", "null"]
    asked = identiscope.attention_maps(TRACE, 0, 0, ["weighted_norm"])
    np.testing.assert_array_equal(
        asked["weighted_norm"], identiscope.weighted_norm(TRACE)["weighted_norm"].isel(layer=0, head=0)
    )


def test_what_is_checked_looks_as_it_was_written() -> None:
    from identiscope.capture.capturing import trace

    assert inspect.signature(identiscope.trace) == inspect.signature(trace)
    assert identiscope.trace.__doc__ == trace.__doc__ and identiscope.trace.__name__ == "trace"
    assert inspect.signature(identiscope.Site.attention).parameters.keys() == {"self", "head", "rows"}
    for name in identiscope.__all__:
        public = getattr(identiscope, name)
        assert pickle.loads(pickle.dumps(public)) is public or (isinstance(public, str) and name == "PASSAGE")


def test_every_public_function_and_method_is_checked() -> None:
    for name in identiscope.__all__:
        public = getattr(identiscope, name)
        if inspect.isclass(public) and not issubclass(public, Exception):
            methods = [one for key, one in vars(public).items() if inspect.isfunction(one) and not key.startswith("_")]
            assert all(hasattr(one, "__wrapped__") for one in methods if one.__name__ != "forward"), name
        elif callable(public) and not inspect.isclass(public):
            assert hasattr(public, "__wrapped__"), name


def test_results_are_checked_too_however_they_were_come_by() -> None:
    """In a process of its own: nobody has asked for the class before."""
    code = """
import numpy, xarray, identiscope, torch
trace = identiscope.from_arrays(torch.eye(3), torch.ones(3, 2))
result = identiscope.attention_maps(trace, 0, 0)
for call in (lambda: result.identiscope.save(3), lambda: trace.site("0"), lambda: result.identiscope.plot(ax=5)):
    try:
        call()
    except identiscope.InputError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "path=3 was given; expected a string or a path.",
        "layer='0' was given; expected a whole number.",
        "ax=5 was given; expected a matplotlib.Axes or None.",
    ]


def test_what_no_terminal_can_show_is_shown_as_its_escape() -> None:
    with pytest.raises(InputError) as raised:
        library.RunOptions(**{"\ud800": 1})
    assert r"\ud800" in str(raised.value) and str(raised.value).encode("utf-8")


def test_kind_is_called_attention_now() -> None:
    trace = contract.trace(contract.CASES["cross attention"])
    with pytest.warns(FutureWarning, match="`kind` is called `attention` now; `kind` will be gone in 0.2"):
        old = identiscope.attention_maps(trace, 1, 2, ("raw",), kind="cross")  # type: ignore[call-arg]
    contract.assert_same(old, identiscope.attention_maps(trace, 1, 2, ("raw",), attention="cross"))
    # Both at once is one too many.
    with pytest.raises(identiscope.InputError, match="kind"):
        identiscope.attention_maps(trace, 1, 2, kind="cross", attention="cross")  # type: ignore[call-arg]


def test_outcome_was_the_name_of_what_a_substitution_returns() -> None:
    with pytest.warns(FutureWarning, match=r"identiscope\.Outcome is called Rerun now, and will be gone in 0\.2"):
        old = identiscope.Outcome
    assert old is identiscope.Rerun and "Outcome" not in dir(identiscope)
    rerun = identiscope.substitute(contract.model("BERT"), contract.FEW, {(0, 1): lambda attention: attention})
    assert isinstance(rerun, old)
