"""What a reproduction of a paper consists of: figures with their data, and claims with what came out here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import xarray as xr


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper: what was published, what came out here, and whether it holds.

    holds: None where that cannot be decided, such as for a number of another model.
    """

    statement: str
    published: str
    here: str
    holds: bool | None


@dataclass(frozen=True, eq=False)
class Panel:
    """One picture: a result, and how it is drawn.

    function: of `views`, as in `plotting.PLOTS`; by default that of the result's method.
    """

    name: str
    result: xr.Dataset
    function: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure of the paper: its number, a title, pictures, claims, and the data that it is of here."""

    number: str
    title: str
    data: str
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Missing:
    """A figure that was not made, and what it needs."""

    number: str
    needs: str


def percent(values: Sequence[float] | Any) -> str:
    """Shares as percentages: "30.6 · 14.4 · 10.7 %".

    >>> percent([0.306, 0.144])
    '30.6 · 14.4 %'
    """
    return " · ".join(f"{100 * float(value):.1f}" for value in values) + " %"


def number_claim(statement: str, published: float, here: float, comparable: bool, points: float = 1.0) -> Claim:
    """A share that was published, beside the one found; it holds within so many points, if it is the same model.

    >>> number_claim("rate", 0.93, 0.859, False).holds is None
    True
    """
    holds = abs(published - here) <= points / 100 if comparable else None
    return Claim(statement, f"{100 * published:.1f} %", f"{100 * here:.1f} %", holds)
