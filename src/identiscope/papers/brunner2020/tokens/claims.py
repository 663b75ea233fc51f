"""What Brunner et al. (2020) say of token identifiability by layer, judged by the numbers alone.

Results are those of `studies` with `keep_resamples`: intervals are over sentences. What was published is quoted
with the paper's numbers of layers, which it counts from 1: its layer l is block l − 1.
"""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from identiscope.papers.judged_rates import CONSIDERABLE, FOUND, STEP, Rates, number_claim, of_rates, points
from identiscope.papers.judging import Answer, Estimate, above, all_of, between
from identiscope.views.plots.figures import Claim, percent

#: The share that guessing reaches, as the paper states it.
GUESS = {"MRPC": 0.017, "CoLA": 0.09, "MNLI": 0.026}
#: Two gaps are the same within this.
SAME_GAP = 0.05


def rate_claims(rates: xr.Dataset, name: str, comparable: bool) -> Iterator[Claim]:
    """Fig. 2a, 38 and 39. name: of the corpus in the paper."""
    source = "§4.2, Fig. 2a" if name == "MRPC" else f"D.1 ({name}): “in line with those for MRPC”"
    guess = np.asarray(float(rates["random_guess"][0]))
    yield number_claim(
        f"guessing reaches ({name})", "D.1", GUESS[name], Estimate(guess, guess, guess), comparable
    )  # fmt: skip
    cosine = of_rates(lambda rate: rate.sel(probe="linear cosine"), rates)
    # Of what is no better than guessing, differences say nothing.
    found = above(Estimate(cosine.value[:1], cosine.low[:1], cosine.high[:1]), float(guess) + CONSIDERABLE)
    if name == "MRPC":
        last = Estimate(cosine.value[-1], cosine.low[-1], cosine.high[-1])
        yield number_claim("a linear cosine probe recovers tokens of the last layer", source, 0.93, last, comparable)
    yield Claim(
        statement="the rate of the linear cosine probe decreases with depth",
        source=source,
        published="decreases with depth (93 % in the last layer)" if name == "MRPC" else "as in MRPC (no number)",
        rule=f"the last layer is below the first by its interval, no layer is above the one before by more than"
        f" {100 * STEP:g} point, and the first is above guessing by more than {100 * CONSIDERABLE:g} points",
        here=percent(cosine.value),
        holds=all_of([_falls(rates, "linear cosine"), found]),
    )
    yield Claim(
        statement="tokens remain mostly identifiable across layers",
        source=source,
        published="tokens remain mostly identifiable across layers",
        rule="at every layer more than half of the tokens, by the interval",
        here=percent(cosine.value),
        holds=above(cosine, 0.5),
    )
    gap = of_rates(lambda rate: (rate.sel(probe="linear cosine") - rate.sel(probe="linear l2")).mean("layer"), rates)
    yield Claim(
        statement="cosine recovers identity better than L2",
        source=source,
        published="cosine distance is more effective to recover identity than L2 distance (no number)",
        rule="linear probes, mean over layers: cosine above L2, by the interval of the difference, and above guessing"
        f" in the first layer by more than {100 * CONSIDERABLE:g} points",
        here=points(gap),
        holds=all_of([above(gap), found]),
    )
    if "naive cosine" in rates["probe"].values:
        yield _naive_claim(rates, source)


def _falls(rates: xr.Dataset, probe: str) -> Answer:
    whole = of_rates(lambda rate: _first(rate.sel(probe=probe)) - _last(rate.sel(probe=probe)), rates)
    steps = of_rates(lambda rate: rate.sel(probe=probe).diff("layer"), rates)
    return all_of([above(whole), not bool((steps.low > STEP).any())])


def _naive_claim(rates: xr.Dataset, source: str) -> Claim:
    third = max(0, round(rates.sizes["layer"] / 3) - 1)

    def later(rate: Rates) -> list[Rates]:
        parts = []
        for metric in ("cosine", "l2"):
            one = rate.sel(probe=f"naive {metric}")
            parts.append((one.isel(layer=third) - _last(one)) - (_first(one) - one.isel(layer=third)))
        return parts

    difference = of_rates(later, rates)
    there = of_rates(
        lambda rate: [rate.sel(probe=f"naive {metric}").isel(layer=third) for metric in ("cosine", "l2")], rates
    )
    values = {metric: rates["rate"].sel(probe=f"naive {metric}").values for metric in ("cosine", "l2")}
    return Claim(
        statement=f"naive rates stay high up to layer {third}, then fall",
        source=source,
        published="close to their input embeddings up to layer 4 of 12, counted from 1, followed by a linear decrease",
        rule=f"by both distances, the rate falls more from layer {third} (from 0: a third of the depth) to the last"
        " than before it, by the interval of the difference, and is above a half there",
        here="; ".join(f"{metric} {percent(rate)}" for metric, rate in values.items()),
        holds=all_of([above(difference), above(there, 0.5)]),
    )


def gap_claims(rates: xr.Dataset) -> Iterator[Claim]:
    """Fig. 7: how much more probes of either kind recover of the sentences they were fitted to."""
    known = [str(probe) for probe in rates["probe"].values if str(probe) in ("linear l2", "mlp l2")]
    train = rates["train_rate"]

    def gaps(rate: Rates) -> list[Rates]:
        return [(train.sel(probe=probe) - rate.sel(probe=probe)).mean("layer") for probe in known]

    differences = of_rates(gaps, rates)
    holds: Answer = None
    if len(known) == 2:
        apart = of_rates(lambda rate: gaps(rate)[1] - gaps(rate)[0], rates)
        holds = all_of([above(differences, SAME_GAP), between(apart, -SAME_GAP, SAME_GAP)])
    said = " · ".join(
        f"{probe} {100 * value:.1f} points" for probe, value in zip(known, differences.value, strict=True)
    )
    yield Claim(
        statement="with L2, the linear probe and the MLP overfit to the same degree",
        source="B.2, Fig. 7",
        published="“both models are overfitting to the same degree” (no number)",
        rule=f"train minus test rate, mean over layers: both above {100 * SAME_GAP:g} points by their intervals, and"
        " apart by at most as much, the interval of the difference too",
        here=said if len(known) == 2 else f"{said}; without MLPs there is nothing to compare (a full run has them)",
        holds=holds,
    )


def fraction_claims(result: xr.Dataset, comparable: bool) -> Iterator[Claim]:
    """Appendix B.2: parts of the training data, 50, 80, 90 and 100 %."""
    source = "B.2"

    def rates(rate: Rates) -> Rates:
        return rate.isel(probe=0, layer=0)

    whole = of_rates(lambda rate: rates(rate).isel(fraction=-1), result)
    yield number_claim("the MLP with L2 recovers at the last layer but one", source, 0.82, whole, comparable)
    shares = result["fraction"].values

    def slopes(rate: Rates) -> list[Rates]:
        one = rates(rate)
        early = (one.isel(fraction=1) - one.isel(fraction=0)) / (shares[1] - shares[0])
        late = (one.isel(fraction=-1) - one.isel(fraction=1)) / (shares[-1] - shares[1])
        return [early, early - late]

    yield Claim(
        statement="the MLP would not profit much from more data",
        source=source,
        published="74 · 80 · 81 · 82 % with 50 · 80 · 90 · 100 % of the training data",
        rule="the rate grows from 50 to 80 % of the data, and by less per text from there on, to more than"
        f" {100 * FOUND:g} %, by the intervals: growth in proportion to the data does not count",
        here=percent(result["rate"].isel(probe=0, layer=0).values),
        holds=all_of([above(of_rates(slopes, result)), above(whole, FOUND)]),
    )


def _first(rate: Rates) -> Rates:
    return rate.isel(layer=0)


def _last(rate: Rates) -> Rates:
    return rate.isel(layer=-1)
