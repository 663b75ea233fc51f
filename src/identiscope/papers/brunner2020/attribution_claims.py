"""What Brunner et al. (2020) say of Hidden Token Attribution, judged by the numbers alone.

contributions: an array [layer, input, output] for each text. Intervals are over texts; a statistic is taken within each
text first wherever texts of different lengths would otherwise make it rise or fall by themselves. What was published
is quoted with the paper's numbers of layers, which it counts from 1: its layer l is block l − 1.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from identiscope.errors import InputError
from identiscope.methods.mixtures.attribution.summaries import GROUPS, by_distance, self_contribution
from identiscope.papers.brunner2020.attribution_figures import PUBLISHED_MEDIAN, PUBLISHED_NOT_LARGEST
from identiscope.papers.judged_rates import ELSEWHERE, NUMBER
from identiscope.papers.judging import (
    Array,
    Estimate,
    above,
    all_of,
    below,
    between,
    bootstrap,
    drawn,
    estimate_of,
)
from identiscope.views.plots.figures import Claim, percent

#: "Always": all but this share of the tokens.
ALWAYS = 0.01
#: Around [SEP]: so many tokens to either side.
AROUND = 3
#: "Most of its context from the tokens around [SEP]": so many times what other tokens contribute each.
MOST = 1.5
#: Penn tags that keep, and those that lose, their own input by the last layer (Fig. 37).
KEEP = ("NN", "NNS", "NNP", "VB", "VBD", "VBN", "VBP", "VBG", "VBZ", "JJ", "JJR", "JJS", "RB", "RBR", "RBS")
LOSE = ("DT", "IN", "PRP", "PRP$", "TO", "WDT", "WP", "WRB", "SYM")

Places = NDArray[np.int64]
Contributions = Sequence[Array]


def attribution_claims(results: xr.Dataset | Sequence[xr.Dataset]) -> list[Claim]:
    """What the paper finds of all tokens (Fig. 3 and 4), judged of attributions: undecided of fewer than six texts."""
    given = [results] if isinstance(results, xr.Dataset) else list(results)
    if not given or any("contribution" not in result for result in given):
        raise InputError("no attributions were given; expected results of hidden_token_attribution, one a text.")
    contributions = [np.asarray(result["contribution"].values, np.float64) for result in given]
    return [*self_claims(contributions, None), *near_claims(contributions)]


def self_claims(contributions: Contributions, comparable: bool | None, source: str = "§5.2, Fig. 3") -> Iterator[Claim]:
    """Fig. 3, 40 and 42: what a token contributes to itself, and how often another contributes more.

    comparable: whether model and data are those of the published numbers; None where none were published.
    """
    own = [self_contribution([one]).values for one in contributions]
    beaten = [_beaten(one) for one in contributions]

    def median_and_share(places: Places) -> list[Array]:
        values, others = (np.concatenate([part[place] for place in places], 1) for part in (own, beaten))
        return [np.median(values, axis=1), others.mean(1)]

    both = drawn(len(own), median_and_share)
    medians, shares = both[:, 0], both[:, 1]
    median, other = estimate_of(medians), estimate_of(shares)
    if comparable is not None:
        yield from _published_numbers(median, other, comparable, source)
    equal = float(np.mean([1 / one.shape[1] for one in contributions]))
    first = Estimate(median.value[0], median.low[0], median.high[0])
    yield Claim(
        statement="after the first layer a token is less than a third itself, yet far more than an equal mixture",
        source=source,
        published="the median contribution of the input token is less than a third after the first layer (30.6 %)",
        rule="the median at the first layer lies between twice the share of an equal mixture (mean of 1/n) and a third,"
        " its interval too",
        here=f"{first.said(_share)}; an equal mixture: {_share(equal)}",
        holds=between(first, 2 * equal, 1 / 3),
    )
    yield Claim(
        statement="its contribution decreases monotonically with depth",
        source=source,
        published="decreases monotonically with depth (30.6, 14.4 and 10.7 % at layers 1, 6 and 12, counted from 1)",
        rule="the median falls from every layer to the next, by the interval of the difference",
        here=percent(median.value),
        holds=above(estimate_of(-np.diff(medians))),
    )
    yield Claim(
        statement="a token is generally its own largest contributor",
        source=source,
        published="the corresponding input token generally has the largest contribution (all but 30 % in the last two"
        " layers)",
        rule="at every layer another token contributes as much or more for less than half of the tokens, by the"
        " interval",
        here=f"another is larger for {percent(other.value)}",
        holds=below(other, 0.5),
    )
    quarter = max(1, round(len(median.value) / 4))
    early = Estimate(other.value[:quarter], other.low[:quarter], other.high[:quarter])
    steps = estimate_of(np.diff(shares[:, quarter - 1 :]))
    rise = estimate_of(shares[:, -1] - shares[:, quarter - 1])
    yield Claim(
        statement=f"in the first {quarter} layers it always is, then ever fewer are",
        source=source,
        published="always in the first three layers of 12; then the others increase monotonically, to 18 % in the sixth"
        " and 30 % in the last two",
        rule=f"another is larger for at most {_share(ALWAYS)} of the tokens at each of the first {quarter} layers (a"
        " quarter of them), for more at the last by the interval of the difference, and at no layer between for fewer"
        " than before by that interval",
        here=percent(other.value),
        holds=all_of([below(early, ALWAYS), above(rise), not bool((steps.high < 0).any())]),
    )


def _beaten(contribution: Array) -> NDArray[np.bool_]:
    """Whether another input contributes as much or more, [layer, output]: in an equal mixture nothing is largest."""
    _, inputs, outputs = contribution.shape
    places = np.arange(outputs)
    others = contribution.copy()
    others[:, places + inputs - outputs, places] = -np.inf
    result: NDArray[np.bool_] = others.max(1) >= contribution[:, places + inputs - outputs, places]
    return result


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _published_numbers(median: Estimate, other: Estimate, comparable: bool, source: str) -> Iterator[Claim]:
    layers = len(median.value)
    places = [0, (layers - 1) // 2, layers - 1]
    for estimate, published, what in (
        (median, PUBLISHED_MEDIAN, "median self contribution at the first, middle and last layer"),
        (other, PUBLISHED_NOT_LARGEST, "tokens that are not their own largest contributor, there"),
    ):
        numbers = np.array([published[layer] / 100 for layer in (0, 5, 11)])
        apart = Estimate(*(part[places] - numbers for part in (estimate.value, estimate.low, estimate.high)))
        here = percent(estimate.value[places])
        yield Claim(
            statement=what,
            source=source,
            published=percent(numbers),
            rule=f"each interval over texts lies within {100 * NUMBER:g} points of the published number",
            here=here if comparable else f"{here}; {ELSEWHERE}",
            holds=between(apart, -NUMBER, NUMBER) if comparable else None,
        )


def near_claims(contributions: Contributions, source: str = "§5.3, Fig. 4") -> Iterator[Claim]:
    """Fig. 4, 41 and 43: where the context of a token comes from, by distance and layer."""
    means = np.stack([by_distance([one]).mean for one in contributions])
    layers = means.shape[1]
    third = max(1, layers // 3)

    def relative(places: Places) -> Array:
        pooled = _mean(means[places])
        shares: Array = pooled / pooled.sum(0)
        return shares

    def early(places: Places) -> list[float]:
        shares = relative(places)
        ahead = shares[:third].mean(0) - shares[-third:].mean(0)
        return [ahead[0], -ahead[-1]]

    estimate = bootstrap(len(means), early)
    shown = relative(np.arange(len(means)))
    for at, (statement, published) in enumerate(
        (
            ("the closest neighbours contribute more in the first layers",
             "the 1st contribute significantly more in the first layers than in later layers (no number)"),
            (f"the most distant neighbours ({GROUPS[-1][0]}th onwards) contribute most in deeper layers",
             "the 11th onwards contribute the most in deeper layers (no number)"),
        )
    ):  # fmt: skip
        one = Estimate(estimate.value[at], estimate.low[at], estimate.high[at])
        wider = "first" if at == 0 else "last"
        yield Claim(
            statement=statement,
            source=source,
            published=published,
            rule=f"their contribution, normalised over the layers as in C.2: the mean over the {wider} third of the"
            f" layers is above that over the {'last' if at == 0 else 'first'} third, by the interval of the difference",
            here=f"{percent(shown[:, (0, -1)[at]])} of it by layer; difference {one.said(_points)}",
            holds=above(one),
        )

    pooled = _mean(means)
    groups = np.flatnonzero(np.isfinite(pooled[0]))

    def closest(places: Places) -> Array:
        three = _mean(means[places])[sorted({0, (layers - 1) // 2, layers - 1})][:, groups]
        ahead: Array = three[:, :1] - three[:, 1:]
        return ahead

    yield Claim(
        statement="the closest neighbours contribute the most, regardless of depth",
        source=source,
        published="the closest neighbours consistently contribute the most, at the first, middle and last layer",
        rule="at each of the three, the mean contribution of a neighbour at distance 1 is above that of one at 2, 3,"
        " 4–5, 6–10 and 11+ (means within each text first), by the interval of the difference",
        here="; ".join(
            f"{name} layer {percent(pooled[layer])}"
            for name, layer in (("first", 0), ("middle", (layers - 1) // 2), ("last", layers - 1))
        ),
        holds=above(bootstrap(len(means), closest)),
    )


def _points(value: float) -> str:
    return f"{100 * value:+.1f} points"


def _mean(values: Array) -> Array:
    """Mean over texts [text, …]; NaN where no text has a value."""
    known = np.isfinite(values)
    total, count = np.where(known, values, 0.0).sum(0), known.sum(0)
    result: Array = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return result


def class_token_claims(contributions: Contributions, separators: Sequence[int]) -> Iterator[Claim]:
    """Fig. 18: where the first token of a pair takes its context from. separators: the place of its first [SEP]."""
    last = [one[-1, :, 0] for one in contributions]
    # Against the mean contribution of a context token of the text, so that its length does not matter.
    shares = [one / one[1:].mean() for one in last]
    around = np.array([_around(one, middle) for one, middle in zip(shares, separators, strict=True)])
    estimate = bootstrap(len(shares), lambda places: around[places, 0].mean() / around[places, 1].mean())
    yield Claim(
        statement="the first token ([CLS]) takes most of its context from around the first [SEP]",
        source="C.3, Fig. 18b",
        published="aggregating most of its context from the tokens around [SEP], the junction of both sentences",
        rule=f"last layer: the {AROUND} tokens to either side of [SEP] contribute each more than {MOST:g} times as much"
        " as the other tokens do, by the interval of the ratio. (That it reaches farther than other tokens would hold"
        " of any model: it stands at the edge.)",
        here=f"{estimate.said()} times as much",
        holds=above(estimate, MOST),
    )
    aligned = _aligned(shares, separators)
    middle = aligned.shape[1] // 2
    known = np.flatnonzero(np.isfinite(aligned).mean(0) >= 0.5)
    others = known[np.abs(known - middle) > 1]

    def ahead(places: Places) -> Array:
        means = _mean(aligned[places])
        result: Array = means[[middle - 1, middle + 1], None] - means[others]
        return result

    estimate = bootstrap(len(shares), ahead)
    yield Claim(
        statement="the two tokens with the highest contribution to it are those directly before and after [SEP]",
        source="C.3, Fig. 18b",
        published="the two tokens with the highest contribution are the tokens directly before and after [SEP]",
        rule="last layer, means over texts: both are above every other offset from [SEP] that half of the texts have,"
        " by the intervals of the differences",
        here=f"the lesser of the two is {estimate.value.min():+.2f} of a mean contribution above the best of the others"
        if len(others)
        else "no other token stands at the same place in half of the texts",
        holds=above(estimate),
    )
    sides = np.array([(one[1:at].mean(), one[at + 1 : -1].mean()) for one, at in zip(shares, separators, strict=True)])
    more = bootstrap(len(shares), lambda places: (sides[places, 1] - sides[places, 0]).mean())
    yield Claim(
        statement="the second sentence contributes more to it than the first",
        source="C.3, Fig. 18b",
        published="it seems that the second sentence contributes more to [CLS] than the first one (no number)",
        rule="last layer, mean contribution of a token: the second sentence above the first, by the interval of the"
        " difference",
        here=f"{more.said('{:+.2f}'.format)} of a mean contribution",
        holds=above(more),
    )


def _around(shares: Array, middle: int) -> tuple[float, float]:
    """Mean of the tokens next to the separator, and of the other tokens of the context."""
    distance = np.abs(np.arange(len(shares)) - middle)
    near = (distance > 0) & (distance <= AROUND)
    near[0] = False
    rest = distance > AROUND
    rest[0] = False
    return float(shares[near].mean()), float(shares[rest].mean()) if rest.any() else float("nan")


def _aligned(shares: Sequence[Array], separators: Sequence[int]) -> Array:
    """[text, offset from the separator], NaN where a text has no such token; the separator is in the middle column."""
    reach = max(max(at, len(one) - 1 - at) for one, at in zip(shares, separators, strict=True))
    rows = np.full((len(shares), 2 * reach + 1), np.nan)
    for row, one, at in zip(rows, shares, separators, strict=True):
        row[reach - at : reach - at + len(one)] = one
        row[reach - at] = np.nan  # the token itself
    return rows


def tag_claims(own: Sequence[Array], tags: Sequence[Sequence[str | None]]) -> Iterator[Claim]:
    """Fig. 26–37. own: self contributions [layer, token] of each text; tags: of each of its tokens."""
    last = [values[-1] for values in own]
    kept, lost = ([np.array([tag in group for tag in text], bool) for text in tags] for group in (KEEP, LOSE))

    def means(places: Places) -> list[float]:
        chosen = [
            np.concatenate([last[place][masks[place]] for place in places]) if len(places) else np.zeros(0)
            for masks in (kept, lost)
        ]
        return [float(values.mean()) if len(values) else float("nan") for values in chosen]

    difference = bootstrap(len(last), lambda places: (both := means(places))[0] - both[1])
    more, less = means(np.arange(len(last)))
    yield Claim(
        statement="at the last layer nouns, verbs, adjectives and adverbs keep more of their input than other words",
        source="C.5, Fig. 37",
        published="they receive more contribution from their input than determiners, prepositions, pronouns, “to” words"
        " and symbols (no number)",
        rule="mean over such tokens: the former above the latter, by the interval of the difference over texts",
        here=f"{_share(more)} against {_share(less)}: {difference.said(_points)}",
        holds=above(difference),
    )
