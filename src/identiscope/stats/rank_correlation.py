"""Which measure predicts an effect best: rank correlations, and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from identiscope.errors import InputError


@dataclass(frozen=True, eq=False)
class RankCorrelation:
    """For each measure: Spearman's correlation with the effect, the mean over groups, with bounds at a confidence.

    `difference`, `difference_low` and `difference_high` [measure] are those of each correlation minus that of the
    measure called `against`: a measure predicts better than that one where the lower bound is above zero.
    `agreement` [measure] is the share of pairs within a set (of equal size) of which the one that the measure puts
    farther also has the larger effect; a tie counts half, so that a measure which tells nothing has 0.5.
    """

    correlation: np.ndarray
    low: np.ndarray
    high: np.ndarray
    difference: np.ndarray
    difference_low: np.ndarray
    difference_high: np.ndarray
    agreement: np.ndarray
    agreement_low: np.ndarray
    agreement_high: np.ndarray


def rank_correlation(
    measures: Sequence[np.ndarray],
    effects: Sequence[np.ndarray],
    *,
    against: int = 0,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> RankCorrelation:
    """Compare measures of size with an effect, over groups (texts) of sets of samples.

    `measures`: for each group [set, sample, measure]; `effects`: for each group [set, sample]. The correlation is taken
    within each group, since groups have scales of their own, and averaged. Bounds are a percentile bootstrap that
    draws groups, or sets where there is only one group; from fewer than some eight groups they are too narrow.

    >>> grid = np.arange(12.0).reshape(4, 3)
    >>> found = rank_correlation([np.stack([grid, -grid], -1)], [grid**2], resamples=20)
    >>> found.correlation
    array([ 1., -1.])
    """
    if not len(measures) or len(measures) != len(effects):
        raise InputError(
            f"{len(measures)} groups of measures and {len(effects)} of effects were given; expected as many"
        )
    for measured, effect in zip(measures, effects, strict=True):
        if measured.ndim != 3 or measured.shape[:2] != effect.shape or not effect.size:
            raise InputError(
                f"measures of shape {measured.shape} and effects of shape {effect.shape} were given, expected [set,"
                " sample, measure] and [set, sample]"
            )
    if not 0 < confidence < 1 or resamples < 1:
        raise InputError(f"confidence {confidence} and {resamples} resamples were given; expected 0…1 and at least 1.")
    groups = list(zip(measures, effects, strict=True))
    once = [_statistics(one, effect, np.ones((1, len(effect)))) for one, effect in groups]
    correlation, agreement = np.mean([np.stack(one)[:, 0] for one in once], axis=0)
    generator = np.random.default_rng(seed)
    if len(groups) > 1:
        # What differs between groups holds what chance did within each: drawing within them again would count it
        # twice, and sets drawn twice tie with themselves, which lowers every correlation.
        chosen = generator.integers(len(groups), size=(resamples, len(groups)))
        correlations, agreements = (np.stack([one[part][0] for one in once])[chosen].mean(1) for part in (0, 1))
    else:
        (measured, effect), count = groups[0], len(effects[0])
        # How often each set is drawn says the same as the sets drawn, and lets all resamples be ranked at once.
        counts = generator.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
        correlations, agreements = _statistics(measured, effect, counts)
    tail = (1 - confidence) / 2
    low, high = _bounds(correlations, tail)
    difference_low, difference_high = _bounds(correlations - correlations[:, against : against + 1], tail)
    agreement_low, agreement_high = _bounds(agreements, tail)
    return RankCorrelation(
        correlation, low, high, correlation - correlation[against], difference_low, difference_high,
        agreement, agreement_low, agreement_high,
    )  # fmt: skip


def pearson(first: np.ndarray, second: np.ndarray, *, floor: float = 0.0) -> float:
    """Pearson's correlation of two samples; not a number where one of them does not vary.

    floor: a variance that is at most this share of the mean square is rounding.
    """
    one, other = np.asarray(first, np.float64).ravel(), np.asarray(second, np.float64).ravel()
    if one.size != other.size:
        raise InputError(f"samples of {one.size} and {other.size} numbers were given; expected as many.")
    if one.size < 2 or _constant(one, floor) or _constant(other, floor):
        return float("nan")
    return float(_weighted(one[None], other[None], np.ones((1, one.size)))[0])


def spearman(first: np.ndarray, second: np.ndarray, *, floor: float = 0.0) -> float:
    """Spearman's correlation of two samples: Pearson's of their ranks, of which ties share the mean.

    >>> spearman(np.array([1.0, 2.0, 2.0]), np.array([0.0, 5.0, 5.0]))
    1.0
    """
    one, other = np.asarray(first, np.float64).ravel(), np.asarray(second, np.float64).ravel()
    if np.isnan(pearson(one, other, floor=floor)):
        return float("nan")
    once = np.ones((1, one.size))
    return pearson(_mean_ranks(one, once)[0], _mean_ranks(other, once)[0])


def _constant(values: np.ndarray, floor: float) -> bool:
    return bool(values.var() <= floor * np.mean(values**2))


def _bounds(values: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles over the resamples in which a measure varied; not a number where it never did."""
    bounds = np.full((2, values.shape[1]), np.nan)
    for place, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        if known.size:
            bounds[:, place] = np.quantile(known, [tail, 1 - tail])
    return bounds[0], bounds[1]


def _statistics(measures: np.ndarray, effects: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Correlation and agreement [resample, measure] of a group whose sets were drawn `counts` [resample, set] times."""
    weights = np.repeat(counts, effects.shape[1], axis=1)
    goal = _mean_ranks(effects.ravel(), weights)
    columns = measures.reshape(-1, measures.shape[2]).T
    correlations = np.stack([_weighted(_mean_ranks(column, weights), goal, weights) for column in columns], axis=1)
    return correlations, counts @ _agreements(measures, effects) / counts.sum(1, keepdims=True)


def _mean_ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Ranks [resample, sample] of values of which each was drawn so often; ties share their mean rank."""
    distinct, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(distinct)))
    together = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks: np.ndarray = (np.cumsum(together, axis=1) - together + (together + 1) / 2)[:, place]
    return ranks


def _weighted(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson correlation [resample] of weighted samples [resample, sample]; NaN where one is constant."""
    total = weights.sum(1, keepdims=True)
    first = first - (weights * first).sum(1, keepdims=True) / total
    second = second - (weights * second).sum(1, keepdims=True) / total
    sizes = np.sqrt((weights * first**2).sum(1) * (weights * second**2).sum(1))
    return np.where(sizes > 0, (weights * first * second).sum(1) / np.where(sizes > 0, sizes, 1.0), np.nan)


def _agreements(measures: np.ndarray, effects: np.ndarray) -> np.ndarray:
    """For each set [set, measure], the share of its pairs that measure and effect order alike; ties count half."""
    first, second = np.triu_indices(effects.shape[1], 1)
    if not len(first):
        return np.full((len(effects), measures.shape[2]), np.nan)
    effect = np.sign(effects[:, first] - effects[:, second])[..., None]
    measured = np.sign(measures[:, first] - measures[:, second])
    share: np.ndarray = ((1 + effect * measured) / 2).mean(1)
    return share
