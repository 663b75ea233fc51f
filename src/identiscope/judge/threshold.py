"""On which side of a threshold a statistic lies, whatever the attention was; and what it takes to say so."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

#: An estimate is called on one side of a threshold from so many standard errors on.
ERRORS = 2.0

_ENDS = ("statistic", "lower", "upper")


@dataclass(frozen=True)
class Rows:
    """Rows of attention, of all layers and heads: how many were meant, how many of them were looked at, and in how many
    of these the statistic is defined."""

    meant: int
    looked_at: int
    defined: int

    @property
    def drawn(self) -> bool:
        """Whether some were not looked at."""
        return self.looked_at < self.meant

    @property
    def undefined(self) -> int:
        """How many have no such number."""
        return self.looked_at - self.defined

    def sentence(self) -> str:
        """What was not looked at, or is not defined, in words; nothing where there is nothing to say."""
        parts = []
        if self.drawn:
            parts.append(f"{self.looked_at} of {self.meant} rows were drawn and looked at.")
        if self.undefined:
            of = f"{self.undefined} of {self.looked_at} rows{' that were drawn' if self.drawn else ''}"
            parts.append(
                f"In {of} it is not defined, since what it is divided by can be zero: they are not in the mean."
            )
        return " ".join(parts)


@dataclass(frozen=True)
class Side:
    """`above` or `below` if all attention with the same output says so, `either` if some says one and some the other;
    `undefined` where there is no such number.

    rows: what this is known from; every row, and each defined, unless it says otherwise. errors: standard errors of
    statistic, lower and upper, where rows were drawn.
    """

    name: str
    statistic: float
    lower: float
    upper: float
    rows: Rows | None = None
    errors: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def sentence(self, threshold: float) -> str:
        """In words: of all rows only if all were looked at and are defined."""
        if self.name == "undefined":
            return "The statistic is not defined here: what it is divided by can be zero."
        if self.rows is not None and self.rows.drawn:
            return self._estimated(threshold)
        range_ = f"it is {self.statistic:.3f}, and may be anything from {self.lower:.3f} to {self.upper:.3f}"
        if self.rows is not None and self.rows.undefined:
            where = f"In the {self.rows.defined} of {self.rows.meant} rows where it is defined"
            if self.name == "either":
                return f"{where}, attention with the same output lies on both sides of {threshold:g}: {range_}."
            return (
                f"{where}, it is {self.name} {threshold:g} for all attention with the same output: {range_}. Of the"
                " other rows nothing can be said."
            )
        if self.name == "either":
            return f"Attention with the same output lies on both sides of {threshold:g}: {range_}."
        return f"It is {self.name} {threshold:g} whatever the attention was: {range_}."

    def _estimated(self, threshold: float) -> str:
        now, low, high = (f"{end:.3f} ± {error:.3f}" for end, error in zip(self._ends, self.errors, strict=True))
        range_ = f"it is about {now}, and may be anything from about {low} to {high} (standard errors)"
        ends = {"above": (self.lower - threshold, self.errors[1]), "below": (threshold - self.upper, self.errors[2])}
        far, error = ends.get(self.name, (0.0, 0.0))
        # Written so that an error that is not known decides nothing.
        if self.name in ends and far > ERRORS * error:
            decided = f"which is {self.name} {threshold:g} by more than {ERRORS:g} standard errors"
        else:
            decided = f"which does not decide on which side of {threshold:g} all of them are"
        return f"From the rows that were drawn, {range_}, {decided}: an estimate, and no bound for the other rows."

    @property
    def _ends(self) -> tuple[float, float, float]:
        return self.statistic, self.lower, self.upper


def side_of(
    statistic: float,
    lower: float,
    upper: float,
    threshold: float,
    rows: Rows | None = None,
    errors: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> Side:
    """The side on which an interval lies; on neither if the threshold is within it, its ends included.

    >>> side_of(0.3, 0.2, 0.4, 0.5).name, side_of(0.3, 0.2, 0.6, 0.5).name
    ('below', 'either')
    """
    name = "either"
    if lower != lower or upper != upper:
        name = "undefined"
    elif lower > threshold:
        name = "above"
    elif upper < threshold:
        name = "below"
    return Side(name, statistic, lower, upper, rows, errors)


def mean_interval(result: xr.Dataset) -> tuple[float, float, float]:
    """The mean over layers and heads of what `statistic_interval` gave, which their intervals' means bound exactly.

    Rows can be exchanged one by one, so that the bounds of a mean are the means of the bounds. Over heads in which the
    statistic is defined in some row: NaN where there are none; `counted_rows` says how much that is.
    """
    values = [result[name].values for name in _ENDS]
    known = ~np.isnan(values[0])
    if not known.any():
        return float("nan"), float("nan"), float("nan")
    now, lower, upper = (float(part[known].mean()) for part in values)
    return now, lower, upper


def counted_rows(result: xr.Dataset) -> Rows:
    """What the numbers of `statistic_interval` are known from, of all its layers and heads."""
    return Rows(*(int(result[name].sum()) for name in ("rows_meant", "rows_looked_at", "rows")))


def mean_errors(result: xr.Dataset) -> tuple[float, float, float]:
    """Standard errors of `mean_interval`; zero where all rows were looked at, NaN where only one of a head's is known.

    All heads are looked at in the same rows, so that their errors do not average out: a row's part in the mean is that
    of all its heads together.
    """
    meant, looked_at = (int(result[name].values.flat[0]) for name in ("rows_meant", "rows_looked_at"))
    if looked_at >= meant:
        return 0.0, 0.0, 0.0
    errors = []
    for name in _ENDS:
        rows = result[f"row_{name}"].transpose(..., "query").values
        rows = rows.reshape(-1, rows.shape[-1])
        rows = rows[~np.isnan(rows).all(1)]
        count = (~np.isnan(rows)).sum(1, keepdims=True)
        if not rows.size or count.min() < 2:
            errors.append(float("nan"))
            continue
        parts = np.nansum((rows - np.nanmean(rows, 1, keepdims=True)) / count, 0) / len(rows) * looked_at
        # The parts of rows that were not drawn are zero, and their mean is zero.
        spread = float((parts**2).sum()) / (looked_at - 1)
        errors.append(float(np.sqrt((1 - looked_at / meant) * spread / looked_at)))
    return errors[0], errors[1], errors[2]
