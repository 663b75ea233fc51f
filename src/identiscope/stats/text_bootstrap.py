"""How sure a rate is: resampling sentences, since the tokens of one sentence stand or fall together."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError


@dataclass(frozen=True)
class Interval:
    """Bounds of a rate at some confidence."""

    low: float
    high: float
    confidence: float


def sentence_interval(
    identified: Tensor, counted: Tensor, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Percentile bootstrap over sentences of Σ identified / Σ counted.

    identified, counted: [sentence]. Sentences of which nothing was counted are left out.

    >>> sentence_interval(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0]))
    Interval(low=0.5, high=0.5, confidence=0.95)
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence {confidence} was given; expected one between 0 and 1.")
    return interval_of(sentence_resamples(identified, counted, resamples=resamples, seed=seed), confidence)


def interval_of(rates: Tensor, confidence: float = 0.95) -> Interval:
    """Percentiles of resampled rates; NaN where these are."""
    tail = (1 - confidence) / 2
    low, high = torch.quantile(rates, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Interval(low, high, confidence)


def sentence_resamples(identified: Tensor, counted: Tensor, *, resamples: int = 1000, seed: int = 0) -> Tensor:
    """Σ identified / Σ counted of sentences drawn anew, [resample]; NaN where nothing was counted.

    The same seed draws the same sentences, so that rates over the same sentences can be subtracted one by one.
    """
    if identified.shape != counted.shape or identified.dim() != 1:
        raise InputError(
            f"{tuple(identified.shape)} identified and {tuple(counted.shape)} counted were given; expected one number"
            " of each for every sentence."
        )
    if resamples < 1:
        raise InputError(f"{resamples} resamples were asked for; expected at least 1.")
    kept = counted > 0
    pairs = torch.stack([identified[kept], counted[kept]], dim=1).double()
    if not len(pairs):
        return torch.full((resamples,), torch.nan, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    rates = []
    # A few resamples at a time: memory stays small for a corpus of a million sentences.
    for begin in range(0, resamples, 64):
        drawn = torch.randint(len(pairs), (min(64, resamples - begin), len(pairs)), generator=generator)
        sums = pairs[drawn].sum(1)
        rates.append(sums[:, 0] / sums[:, 1])
    return torch.cat(rates)
