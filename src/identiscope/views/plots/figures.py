"""What a reproduction of a paper consists of: figures with their data, and claims with what came out here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

#: What a claim says it was published with where the paper only argues for it.
EXPECTED = "expected, not measured"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence of a paper, and whether it holds here.

    statement: the claim. source: where the paper makes it: section, figure and, where that helps, its words. published:
    the numbers or words that were published, or that it was expected and not measured. rule: what is asked of the
    numbers for it to hold. here: what came out. holds: None where that cannot be decided, such as for a number of
    another model, or where the interval covers the threshold. untrained: whether it holds, too, of a model of the same
    shape that learnt nothing; None where that was not tried, or cannot be decided.
    """

    statement: str
    source: str
    published: str
    rule: str
    here: str
    holds: bool | None
    untrained: bool | None = None

    @property
    def verdict(self) -> str:
        """What came of it, in words."""
        if self.holds is None:
            return "undecided"
        if not self.holds:
            return "does not hold"
        return f"holds, and {OF_UNTRAINED}" if self.untrained else "holds"


#: What holds by the shape of a model alone.
OF_UNTRAINED = "holds of an untrained model of the same shape too: it says nothing of training"


@dataclass(frozen=True, eq=False)
class Panel:
    """One picture: a result, and how it is drawn.

    function: of `views.plots`, as in `attribution.plot_not_largest`; by default what `plot` takes for the result.
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
