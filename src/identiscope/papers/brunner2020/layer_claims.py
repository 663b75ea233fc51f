"""What Brunner et al. (2020) say of tokens across layers, checkpoints and neighbours, judged by the numbers alone.

Results are those of `tokens.studies` with `keep_resamples`: intervals are over sentences. What was published is quoted
with the paper's numbers of layers, which it counts from 1: its layer l is block l − 1.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import xarray as xr
from scipy.stats import spearmanr

from identiscope.papers.judged_rates import (
    CONSIDERABLE,
    ELSEWHERE,
    FOUND,
    STEP,
    Rates,
    above_inputs,
    number_claim,
    of_rates,
    points,
    share,
)
from identiscope.papers.judging import Estimate, above, all_of, below, between
from identiscope.views.plots.figures import Claim, percent

#: "Much lower": below this share of the other.
MUCH_LOWER = 0.75


def across_claims(across: xr.Dataset, probe: str, comparable: bool) -> Iterator[Claim]:
    """Fig. 2b (the linear cosine probe) and Fig. 8 to 10."""
    if probe == "linear cosine":
        yield from _first_and_last_claims(across, comparable)

    def asymmetry(rate: Rates) -> Rates:
        one = rate.sel(probe=probe)
        forth = [one.isel(trained_on=early, layer=late) for early, late in _pairs(one)]
        back = [one.isel(trained_on=late, layer=early) for early, late in _pairs(one)]
        return sum(backward - forward for backward, forward in zip(back, forth, strict=True)) / len(forth)  # type: ignore[return-value]

    difference = of_rates(asymmetry, across)
    yield Claim(
        statement=f"the {probe} probe generalizes considerably worse to later layers than to earlier ones",
        source="B.3, Fig. 8 to 10" if probe != "linear cosine" else "§4.2, Fig. 2b, and B.3",
        published="generalizing to later layers works considerably worse than the other way around (no number)",
        rule="mean over all pairs of layers: the rate from the later to the earlier is above that from the earlier to"
        f" the later by more than {100 * CONSIDERABLE:g} points, by the interval",
        here=points(difference),
        holds=above(difference, CONSIDERABLE),
    )


def _pairs(rate: Rates) -> list[tuple[int, int]]:
    layers = rate.sizes["layer"]
    return [(early, late) for late in range(layers) for early in range(late)]


def _first_and_last_claims(across: xr.Dataset, comparable: bool) -> Iterator[Claim]:
    source = "§4.2, Fig. 2b"
    first = of_rates(lambda rate: rate.sel(probe="linear cosine").isel(trained_on=0), across)
    ends = Estimate(first.value[-2:], first.low[-2:], first.high[-2:])
    start = Estimate(first.value[:1], first.low[:1], first.high[:1])
    yield Claim(
        statement="the probe of the first layer recovers less than 70 % at the last two layers",
        source=source,
        published="below 70 % at layers 11 and 12, counted from 1",
        rule="both below 70 % by their intervals, and its own layer above",
        here=percent(ends.value) if comparable else f"{percent(ends.value)}; {ELSEWHERE}",
        holds=all_of([below(ends, 0.7), above(start, 0.7)]) if comparable else None,
    )
    drop = of_rates(
        lambda rate: (one := rate.sel(probe="linear cosine").isel(trained_on=0)).isel(layer=0) - one.isel(layer=-1),
        across,
    )
    yield Claim(
        statement="the probe of the first layer drops on subsequent layers",
        source=source,
        published="drops quickly",
        rule=f"more than {100 * CONSIDERABLE:g} points from its own layer to the last, by the interval",
        here=f"{percent(first.value)}: {points(drop)}",
        holds=above(drop, CONSIDERABLE),
    )
    own = of_rates(lambda rate: rate.sel(probe="linear cosine").isel(trained_on=-1, layer=-1), across)
    there = above(own, FOUND)
    yield number_claim("the probe of the last layer recovers there", source, 0.94, own, comparable)
    last = across["rate"].sel(probe="linear cosine").isel(trained_on=-1).values
    more = of_rates(
        lambda rate: (
            (one := rate.sel(probe="linear cosine").isel(trained_on=-1)).isel(layer=slice(None, -1)).mean("layer")
            - one.isel(layer=-1)
        ),
        across,
    )
    order = _rank_correlation(last)
    yield Claim(
        statement="the probe of the last layer does better on earlier layers",
        source=source,
        published="94 % for layer 12, the last, then almost monotonically increases when testing on earlier layers",
        rule="the mean over earlier layers is above its own layer by the interval, the rank correlation of rate and"
        f" layer is below −0.5, and in its own layer it finds more than {100 * FOUND:g} %, by the interval",
        here=f"{percent(last)}: {points(more)}; rank correlation {order:+.2f}",
        holds=all_of([above(more), order < -0.5, there]),
    )


def _rank_correlation(values: np.ndarray) -> float:
    """Spearman's correlation of values and their places; 0 where they do not vary."""
    return float(spearmanr(np.arange(len(values)), values).statistic) if np.ptp(values) > 0 else 0.0


def previous_claims(result: xr.Dataset) -> Iterator[Claim]:
    """Fig. 11: from a layer to the one before."""
    source = "B.4, Fig. 11"
    naive = of_rates(lambda rate: [rate.sel(probe=f"naive {metric}") for metric in ("cosine", "l2")], result)
    said = "; ".join(
        f"{metric} {percent(result['rate'].sel(probe=f'naive {metric}').values)}" for metric in ("cosine", "l2")
    )
    yield Claim(
        statement="even naive probes find the token in the layer before",
        source=source,
        published="even the naive baselines perform well across single layers (the axis begins at 92 %)",
        rule="by both distances more than 90 % at every layer, by the intervals",
        here=said,
        holds=above(naive, 0.9),
    )
    by_layer = of_rates(lambda rate: rate.sel(probe="naive cosine") - rate.sel(probe="naive l2"), result)
    angle = of_rates(lambda rate: (rate.sel(probe="naive cosine") - rate.sel(probe="naive l2")).mean("layer"), result)
    most = float((by_layer.value > 0).mean()) > 0.5
    there = above(of_rates(lambda rate: rate.sel(probe="naive cosine").mean("layer"), result), FOUND)
    yield Claim(
        statement="a layer changes the angle of embeddings less than their magnitude",
        source=source,
        published="the angle (naive cosine) is affected less than the magnitude (naive L2)",
        rule="naive probes: cosine above L2 in more than half of the layers, and in their mean by the interval of the"
        f" difference, and cosine finds more than {100 * FOUND:g} % in that mean, by its interval",
        here=f"{points(angle)}, above in {100 * float((by_layer.value > 0).mean()):.0f} % of the layers",
        holds=all_of([above(angle), most, there]),
    )
    half = result.sizes["layer"] // 2
    later = of_rates(
        lambda rate: (
            rate.isel(layer=slice(None, half)).mean(("probe", "layer"))
            - rate.isel(layer=slice(half, None)).mean(("probe", "layer"))
        ),
        result,
    )
    early = of_rates(lambda rate: rate.isel(layer=slice(None, half)).mean(("probe", "layer")), result)
    yield Claim(
        statement="tokens are more difficult to identify across later layers",
        source=source,
        published="on average more difficult to identify across later layers (no number)",
        rule="mean over probes: the first half of the layers is above the second, by the interval of the difference,"
        f" and above {100 * FOUND:g} %, by its interval",
        here=points(later),
        holds=all_of([above(later), above(early, FOUND)]),
    )


def checkpoint_claims(result: xr.Dataset, number: str) -> Iterator[Claim]:
    """Fig. 12 and 13: before and after fine-tuning. number: of the figure."""

    def drop(rate: Rates, metric: str) -> Rates:
        last = _last(rate.sel(probe=f"naive {metric}"))
        return last.sel(checkpoint="before") - last.sel(checkpoint="fine-tuned")

    drops = {metric: of_rates(lambda rate, metric=metric: drop(rate, metric), result) for metric in ("l2", "cosine")}
    less = of_rates(lambda rate: drop(rate, "l2") / 2 - drop(rate, "cosine"), result)
    yield Claim(
        statement="fine-tuning lowers the rate across the last layer for L2, much less for cosine",
        source=f"B.4, Fig. {number}",
        published="a remarkable decrease across the last layer for L2; cosine is affected much less (no number)",
        rule=f"L2 falls by more than {100 * CONSIDERABLE:g} points, and cosine by less than half as much, by their"
        " intervals",
        here="; ".join(f"{metric} falls by {points(one)}" for metric, one in drops.items()),
        holds=all_of([above(drops["l2"], CONSIDERABLE), above(less)]),
    )


def neighbour_claims(result: xr.Dataset, rates: xr.Dataset) -> Iterator[Claim]:
    """Fig. 14 to 17, by the linear cosine probe. rates: of the tokens themselves, from Fig. 2a."""
    source, probe = "B.5, Fig. 14 to 17", "linear cosine"
    guess = float(rates["random_guess"][0])
    steps = sorted({abs(int(offset)) for offset in result["offset"].values})

    def at(rate: Rates, step: int) -> Rates:
        return rate.sel(probe=probe, offset=[-step, step]).mean("offset")

    nearest = of_rates(lambda rate: at(rate, 1).mean("layer"), result)
    # A token's own input tells of its neighbours too: where they stand, and which words follow which.
    gained = above_inputs(result)
    more = of_rates(lambda rate: at(rate, 1).mean("layer"), gained)
    told = f"{points(more)} above what the token's own input gives away"
    informed = above(more, STEP)
    yield Claim(
        statement="hidden tokens hold information about their neighbours",
        source=source,
        published="tokens do contain information about neighbouring tokens",
        rule="the token next to it is recovered more than twice as often as by guessing, and more often than from the"
        f" token's own input, by more than {100 * STEP:g} point, by the intervals (mean over layers)",
        here=f"{share(nearest)}, by guessing {100 * guess:.1f} %; {told}",
        holds=all_of([above(nearest, 2 * guess), informed]),
    )
    itself = of_rates(lambda rate: rate.sel(probe=probe).mean("layer"), rates)
    less = of_rates(
        lambda rate, own: MUCH_LOWER * own.sel(probe=probe).mean("layer") - at(rate, 1).mean("layer"), result, rates
    )
    yield Claim(
        statement="neighbours are recovered to a much lower degree than the token itself",
        source=source,
        published="to a much lower degree than same-position tokens (no number)",
        rule=f"mean over layers: below {MUCH_LOWER:g} of the rate of the token itself, and above what the token's own"
        f" input gives away by more than {100 * STEP:g} point, by the intervals",
        here=f"next to it {share(nearest)}, itself {share(itself)}; {told}",
        holds=all_of([above(less), informed]),
    )
    if len(steps) > 1:
        falls = of_rates(
            lambda rate: [at(rate, near).mean("layer") - at(rate, far).mean("layer") for near, far in pairwise(steps)],
            gained,
        )
        values = of_rates(lambda rate: [at(rate, step).mean("layer") for step in steps], gained).value
        yield Claim(
            statement="the rate drops with the distance of the neighbour",
            source=source,
            published="drops with increasing k (1, 2, 3; no number)",
            rule="rates above what the token's own input gives away, mean over layers: each distance below the one"
            " before, by the interval of the difference, and the first above 0 likewise",
            here=f"distances {', '.join(map(str, steps))}: {percent(values)} above that",
            holds=all_of([above(falls), informed]),
        )
    deeper = of_rates(lambda rate: _first(at(rate, 1)) - _last(at(rate, 1)), result)
    yield Claim(
        statement="the rate of neighbours drops with depth",
        source=source,
        published="drops with increasing depth (no number)",
        rule="the token next to it: first layer above the last, by the interval of the difference, and above what the"
        " token's own input gives away",
        here=points(deeper),
        holds=all_of([above(deeper), informed]),
    )
    sides = of_rates(
        lambda rate: (one := rate.sel(probe=probe).mean("layer")).sel(offset=-1) - one.sel(offset=1), gained
    )
    either = above(sides, STEP) or below(sides, -STEP)
    yield Claim(
        statement="left and right neighbours behave differently",
        source=source,
        published="recovering left and right neighbours shows different behaviour (no number)",
        rule="rates above what the token's own input gives away: those of the token before and of that behind differ by"
        f" more than {100 * STEP:g} point, by the interval of the difference; not so if it lies within that, or if"
        " neither is above 0",
        here=f"before minus behind: {points(sides)}",
        holds=all_of([True if either else False if between(sides, -STEP, STEP) else None, informed]),
    )


def _first(rate: Rates) -> Rates:
    return rate.isel(layer=0)


def _last(rate: Rates) -> Rates:
    return rate.isel(layer=-1)
