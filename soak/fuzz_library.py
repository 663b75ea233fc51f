"""Random calls of the library: whatever it is given, it answers, or says in its own words why not."""

import inspect
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

import identiscope
from identiscope.validation import REFUSED, Expected, expected, resolved
from soak.good_calls import calls, nothing, things
from soak.outcome import Outcome

NAN = float("nan")


class Odd:
    """A value of a class that nobody knows."""

    def __repr__(self) -> str:
        raise RuntimeError("this cannot even be written")


def values(things: dict[str, Any]) -> list[Callable[[], Any]]:
    """Makers of values, most of them wrong wherever they are put."""
    plain: list[Any] = [
        None, True, False, 0, 1, -1, 2, 3, 7, 64, 10**30, 10**5000, 0.0, 0.5, -2.5, 1e300, NAN, float("inf"), 1j,
        "", "x", "5", "w1 w2", "a\0b", "\ud800", "é" * 400, "auto", "all", "none", "attention", "cross", "decoder",
        b"", b"x", [], [0], [1, 0], [0, 0], [-1], [99], [[0]], [0.5], ["a"], ["w1 w2", "w3"], [None], [[], []],
        (), (0,), (0, 1), ((0, 1),), ((0, 0, 0),), ("w1", "w2"), {}, {"a": 1}, {"input_ids": [1]}, {(0, 0): None},
        {(0, 0): "x"}, {(0, 9): nothing}, {(-1, 0): nothing}, set(), {0, 1}, frozenset({0}), range(0), range(2),
        Path("nowhere"), Path("."), Path("junk"), Path("sub/deep/er"), "n" * 300, "junk", "folder", object(), Odd(),
        nothing, print, ValueError("no"), slice(0, 2), Ellipsis, NotImplemented, "minilmm", "owner/name",
        torch.float16, torch.float64, torch.device("cpu"), np.int64(1), np.float32(0.5), np.bool_(True), np.str_("x"),
    ]  # fmt: skip
    tensors: list[Callable[[], Any]] = [
        lambda: torch.zeros(0), lambda: torch.zeros(3), lambda: torch.zeros(2, 2), lambda: torch.full((8, 8), NAN),
        lambda: torch.ones(8, 8) / 8, lambda: torch.zeros(8, 8, dtype=torch.bool), lambda: torch.tensor(5),
        lambda: torch.zeros(3, dtype=torch.complex64), lambda: torch.arange(8), lambda: torch.full((8, 32), 1e30),
        lambda: torch.randn(8, 32), lambda: torch.zeros(0, 32), lambda: torch.zeros(1, 1, 1, 1, 1),
        lambda: torch.eye(3),
        lambda: torch.tensor([[0.5, 0.5], [NAN, 1.0]]), lambda: torch.zeros(2, 3, dtype=torch.float16),
        lambda: torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.long), torch.ones(1), (3,)),
        lambda: torch.zeros(3, device="meta"),
        lambda: np.zeros((0, 3)), lambda: np.array([[1, 2], [3, 4]]), lambda: np.array(["a", "b"]),
        lambda: np.array([object(), None]), lambda: np.full((2, 2), NAN), lambda: np.zeros((2, 2), dtype="M8[s]"),
        lambda: np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]), lambda: np.eye(4, dtype=np.float16),
        lambda: xr.Dataset(), lambda: xr.Dataset({"x": ("a", [1.0, 2.0])}, attrs={"method": "nobody"}),
        lambda: xr.DataArray([1, 2]), lambda: (n for n in range(3)), lambda: iter([]), lambda: nn.Linear(3, 3),
        lambda: nn.MultiheadAttention(8, 2), lambda: nn.Module, lambda: nn.Module(),
    ]  # fmt: skip
    known = [lambda thing=thing: thing for thing in things.values()]
    return [*(lambda value=value: value for value in plain), *tensors, *known]


def mutated(
    chance: random.Random, function: Callable[..., Any], good: dict[str, Any], pool: list[Callable[[], Any]]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments that worked, with some put wrong: another value, one left out, one too many, by position or by name."""
    arguments = dict(good)
    signature = inspect.signature(function).parameters
    rules = {name: expected(resolved(one.annotation, function)) for name, one in signature.items()}
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        name = chance.choice(list(arguments) or ["nothing"])
        kind = chance.random()
        if kind < 0.85:
            arguments[name] = _value(chance, pool, rules.get(name))
        elif kind < 0.92:
            arguments.pop(name, None)
        else:
            new = chance.choice(["layr", "options", "values", *signature])
            arguments[new] = _value(chance, pool, rules.get(new))
    if chance.random() < 0.05:
        return list(arguments.values()), {}
    return [], arguments


def _value(chance: random.Random, pool: list[Callable[[], Any]], rule: Expected | None) -> Any:
    """Any value; half of the time one whose type is right, so that what is behind the first check is met too."""
    value = chance.choice(pool)()
    if rule is not None and chance.random() < 0.5:
        for _ in range(30):
            if rule.take(value) is not REFUSED:
                break
            value = chance.choice(pool)()
    # What is called back may raise what it likes; these raise nothing.
    return nothing if callable(value) and rule is not None and "function" in rule.words else value


def library(count: int, folder: Path, seed: int = 0) -> Outcome:
    """So many random calls."""
    import matplotlib

    matplotlib.use("agg")
    failures: list[str] = []
    answered = 0
    for name, function, args, arguments in _cases(count, folder, seed):
        try:
            with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                warnings.simplefilter("error")
                function(*args, **arguments)
            answered += 1
        except identiscope.IdentiscopeError:
            pass
        except Exception as error:
            failures.append(f"{name}({_written(args, arguments)}) raised {type(error).__name__}: {str(error)[:160]}")
    return Outcome(
        "random calls of the library answer, or raise an IdentiscopeError", count, tuple(failures),
        f"{answered} of {count} calls were answered, the others refused",
    )  # fmt: skip


def _cases(count: int, folder: Path, seed: int) -> Iterator[tuple[str, Callable[..., Any], list[Any], dict[str, Any]]]:
    import matplotlib.pyplot as pyplot

    chance = random.Random(seed)
    torch.manual_seed(seed)
    given = things(folder)
    pool, known = values(given), calls(given)
    place = folder / "here"
    place.mkdir()
    # Whatever a random call writes stays here: no value names a place outside.
    with chdir(place):
        (place / "junk").write_bytes(bytes(chance.randrange(256) for _ in range(300)))
        (place / "folder").mkdir()
        for _ in range(count):
            name, function, good = chance.choice(known)
            yield name, function, *mutated(chance, function, good, pool)
            pyplot.close("all")


def _written(args: list[Any], arguments: dict[str, Any]) -> str:
    def short(value: Any) -> str:
        try:
            return (
                repr(value)[:60] if not isinstance(value, (torch.Tensor, np.ndarray, xr.Dataset)) else str(type(value))
            )
        except Exception:
            return type(value).__name__

    return ", ".join([*map(short, args), *(f"{name}={short(value)}" for name, value in arguments.items())])
