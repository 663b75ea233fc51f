"""Is one kind of model as accurate as another? Several seeds each, the same test texts, a margin stated before."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from identiscope.errors import InputError

Answer = Literal["equally accurate", "more accurate", "less accurate", "undecided"]


@dataclass(frozen=True)
class MeanInterval:
    """A mean over seeds with its confidence interval; the bounds are NaN for a single seed."""

    mean: float
    low: float
    high: float


def mean_interval(values: np.ndarray, *, confidence: float = 0.95) -> MeanInterval:
    """Student's interval of the mean of values [seed]: what another set of seeds would give.

    >>> mean_interval(np.array([0.80, 0.82, 0.84]))
    MeanInterval(mean=0.82, low=0.770..., high=0.869...)
    """
    given = _checked(values, 1, confidence)
    mean = float(given.mean())
    if len(given) < 2:
        return MeanInterval(mean, float("nan"), float("nan"))
    reach = float(stats.t.ppf((1 + confidence) / 2, len(given) - 1) * given.std(ddof=1) / np.sqrt(len(given)))
    return MeanInterval(mean, mean - reach, mean + reach)


@dataclass(frozen=True)
class AccuracyComparison:
    """Difference in accuracy with its interval, and what follows from it at this margin."""

    difference: float
    low: float
    high: float
    answer: Answer


def accuracy_comparison(
    correct: np.ndarray, reference: np.ndarray, *, margin: float = 0.02, confidence: float = 0.95
) -> AccuracyComparison:
    """Whether answers `correct` [seed, text] are as accurate as those of a `reference` on the same seeds and texts.

    The interval is of the mean difference over *other seeds and other test texts*: mean ± t·√(s²_seed/seeds +
    s²_text/texts), with the variances of the differences' means over each axis and Student's t at seeds − 1. What seed
    and text do together is counted on both axes, so the interval is rather too wide. The criterion: `equally accurate`
    if the whole interval lies within ± margin (equivalence, Schuirmann 1987); else `less accurate` or `more accurate`
    if it leaves out zero; else `undecided`, which is not a proof of equality.

    >>> same = np.ones((3, 50), dtype=bool)
    >>> accuracy_comparison(same, same).answer
    'equally accurate'
    """
    ours, theirs = (_checked(part, 2, confidence) for part in (correct, reference))
    if ours.shape != theirs.shape or not margin > 0:
        raise InputError(
            f"answers of shape {ours.shape} and {theirs.shape} with margin {margin} were given; expected one shape"
            " [seed, text] and a margin above 0."
        )
    seeds, texts = ours.shape
    differences = ours - theirs
    mean = float(differences.mean())
    if seeds < 2 or texts < 2:
        return AccuracyComparison(mean, float("nan"), float("nan"), "undecided")
    variance = differences.mean(1).var(ddof=1) / seeds + differences.mean(0).var(ddof=1) / texts
    reach = float(stats.t.ppf((1 + confidence) / 2, seeds - 1) * np.sqrt(variance))
    low, high = mean - reach, mean + reach
    answer: Answer = "undecided"
    if -margin < low and high < margin:
        answer = "equally accurate"
    elif high < 0:
        answer = "less accurate"
    elif low > 0:
        answer = "more accurate"
    return AccuracyComparison(mean, low, high, answer)


def _checked(values: np.ndarray, axes: int, confidence: float) -> np.ndarray:
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != axes or not given.size or not np.isfinite(given).all() or not 0 < confidence < 1:
        raise InputError(
            f"values of shape {given.shape} at confidence {confidence} were given; expected finite ones on {axes} axes"
            " and a confidence between 0 and 1."
        )
    return given
