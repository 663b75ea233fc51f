"""Published findings about heads, judged of a survey: holds, does not hold, or undecided, each by a rule that is said.

Numbers of texts are resampled (95 %); those of heads are compared with what a shuffle of heads or layers gives.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from identiscope.papers.judging import Answer, above, bootstrap
from identiscope.runs.format.opened_run import Run
from identiscope.runs.heads.survey import HeadSurvey
from identiscope.stats.rank_correlation import spearman
from identiscope.views.plots.figures import Claim

#: Of how many standard errors the largest of some hundred numbers is sure (95 %, all of them together).
LARGEST = 3.7
#: Random queries and keys differ between layers too, as what they read does: by less than this many bits,
BROADER = 0.5
#: and in how far heads of one layer are apart, by less than to this share of the distance to those of others.
ALIKE = 0.95
#: How often heads or layers are shuffled.
SHUFFLES = 500
_NOT_ASKED = "not asked for in this survey"


def head_claims(survey: HeadSurvey, run: Run, *, causal: bool) -> list[Claim]:
    """All findings, in the order of their papers. run: of the survey's statistics; causal: whether it is a decoder."""
    tables = {name: run.to_xarray(name) for name in run.methods}
    texts = xr.merge([table.drop_vars("tokens") for table in tables.values()], combine_attrs="drop")
    return [*_clark(survey, texts), *_kovaleva(texts), *_voita(survey, texts), *_michel(survey), *_gu(texts, causal)]


def _claim(statement: str, source: str, published: str, rule: str, here: str, holds: Answer) -> Claim:
    return Claim(statement=statement, source=source, published=published, rule=rule, here=here, holds=holds)


def _over(texts: xr.Dataset, statistic: Callable[[dict[str, NDArray[np.float64]]], float], *names: str) -> Any:
    """A statistic of means over texts [layer, head] of some columns, with its bounds."""
    arrays = {name: texts[name].transpose("text", "layer", "head").values for name in names}

    def of(places: NDArray[np.int64]) -> float:
        with np.errstate(invalid="ignore"):
            return float(statistic({name: _mean(values[places]) for name, values in arrays.items()}))

    return bootstrap(texts.sizes["text"], of)


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    known = np.isfinite(values)
    count = known.sum(0)
    return np.where(count > 0, np.where(known, values, 0).sum(0) / np.maximum(count, 1), np.nan)


def _threshold(
    texts: xr.Dataset, statement: str, source: str, published: str, rule: str, least: float,
    statistic: Callable[[dict[str, NDArray[np.float64]]], float], *names: str,
) -> Claim:  # fmt: skip
    """A claim that a statistic is above a number."""
    estimate = _over(texts, statistic, *names)
    if not np.isfinite(estimate.value):
        return _claim(statement, source, published, rule, "no such tokens here", None)
    return _claim(statement, source, published, rule, estimate.said("{:.2f}".format), above(estimate, least))


def _largest_of(name: str) -> Callable[[dict[str, NDArray[np.float64]]], float]:
    return lambda means: _largest(means[name])


def _clark(survey: HeadSurvey, texts: xr.Dataset) -> Iterator[Claim]:
    clark = "Clark et al. 2019"
    for name in ("previous", "next"):
        yield _threshold(
            texts, f"some heads attend mostly to the {name} token", f"{clark}, §3.1",
            "some heads of BERT specialise in it, most of them in early layers",
            "the largest mean weight of a head on it is above 0.5", 0.5,
            _largest_of(f"raw_to_{name}"), f"raw_to_{name}",
        )  # fmt: skip
    yield _threshold(
        texts, "in some layers most attention goes to [SEP]", f"{clark}, §3.2", "over half in layers 6 to 10 of BERT",
        "the layer with most gives more than 0.5 to special tokens behind the first", 0.5,
        lambda means: _largest(means["raw_to_sep"].mean(1)), "raw_to_sep",
    )  # fmt: skip
    yield _threshold(
        texts, "heads of the lowest layer attend broadly", f"{clark}, §3.3",
        "some heads attend over the whole sentence (in lower layers: expected, not measured)",
        f"mean entropy of the first layer less that of the others is above {BROADER:g} bits: random weights give some"
        " too", BROADER,
        lambda means: means["entropy"][0].mean() - means["entropy"][1:].mean(), "entropy",
    )  # fmt: skip
    yield _threshold(
        texts, "[CLS] attends broadly in the last layer", f"{clark}, §3.3",
        "expected, not measured: its entropy rises there",
        f"entropy of its row in the last layer less that of the others is above {BROADER:g} bits", BROADER,
        lambda means: means["entropy_first"][-1].mean() - means["entropy_first"][:-1].mean(), "entropy_first",
    )  # fmt: skip
    better = [row for row in survey.relations if row["is_better"]]
    names = ", ".join(
        f"{row['relation']} {row['accuracy']:.0%} (offset {row['offset_accuracy']:.0%})" for row in better[:4]
    )
    yield _claim(
        "some heads find a dependency better than any fixed offset", f"{clark}, §4.2",
        "direct objects, determiners and objects of prepositions in more than 75 % of cases",
        "in at least 3 relations by more than two standard errors, on sentences that had no say in the choice",
        f"{len(better)} of {len(survey.relations)}{f': {names}' if names else ''}" if survey.relations else _NOT_ASKED,
        (True if len(better) >= 3 else False if not better else None) if survey.relations else None,
    )  # fmt: skip
    yield _same_layer(survey)


def _largest(values: NDArray[np.float64]) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else float("nan")


def _same_layer(survey: HeadSurvey) -> Claim:
    distances, layers = survey.distances, np.repeat(np.arange(survey.heads.sizes["layer"]), survey.heads.sizes["head"])

    def apart(labels: NDArray[np.int64]) -> float:
        same = labels[:, None] == labels
        np.fill_diagonal(same, False)
        other = labels[:, None] != labels
        return float(distances[other].mean() - distances[same].mean())

    generator = np.random.default_rng(0)
    shuffled = [apart(generator.permutation(layers)) for _ in range(SHUFFLES)]
    here, least = apart(layers), float(np.quantile(shuffled, 0.975))
    other = float(distances[layers[:, None] != layers].mean())
    share = 1 - here / other if other > 0 else float("nan")
    wrong = here < float(np.quantile(shuffled, 0.025)) or share >= ALIKE
    return _claim(
        "heads of one layer attend alike", "Clark et al. 2019, §6", "often alike in what they do",
        f"the mean distance to heads of the same layer is below {ALIKE:g} of that to heads of others, and the"
        " difference above 97.5 % of what shuffled layers give; it does not hold if the first fails, or the"
        " difference is below 2.5 % of these",
        f"{here:+.3f} bits, {share:.2f} of the distance to others; shuffled up to {least:+.3f}",
        False if wrong else True if here > least and share < ALIKE else None,
    )  # fmt: skip


def _kovaleva(texts: xr.Dataset) -> Iterator[Claim]:
    named = ("vertical", "diagonal", "vertical_diagonal", "block")
    yield _threshold(
        texts, "a few patterns are repeated across heads", "Kovaleva et al. 2019, §4.1",
        "a limited set of patterns is repeated across heads",
        "the share of maps that are vertical, diagonal, both or block is above one third", 1 / 3,
        lambda means: sum(means[name].mean() for name in named), *named,
    )  # fmt: skip
    yield _threshold(
        texts, "vertical maps are the most common of the simple ones", "Kovaleva et al. 2019, §4.1",
        "30 % of 400 maps that were annotated are vertical",
        "the share of vertical and both, less that of diagonal and block, is above 0", 0.0,
        lambda means: (means["vertical"] + means["vertical_diagonal"] - means["diagonal"] - means["block"]).mean(),
        *named,
    )  # fmt: skip


def _voita(survey: HeadSurvey, texts: xr.Dataset) -> Iterator[Claim]:
    peaks = ("peak_two_before", "peak_previous", "peak_next", "peak_two_after")
    yield _threshold(
        texts, "there are positional heads", "Voita et al. 2019, §5.1", "one of three roles that were found",
        "the largest share of rows with their maximum at one offset other than 0 is above 0.9", 0.9,
        lambda means: max(_largest(means[name]) for name in peaks), *peaks,
    )  # fmt: skip
    heads = survey.heads
    values, errors = heads["to_rarest"].values, heads["to_rarest_error"].values
    place = int(np.nanargmax(values)) if np.isfinite(values).any() else 0
    value, error = float(values.ravel()[place]), float(errors.ravel()[place])
    chance = survey.facts["rarest token by chance"]
    # A head that looks at what stands apart finds most of the rarest, where several are.
    enough = max(0.5, (1 + chance) / 2)
    yield _claim(
        "a head points at the rarest token", "Voita et al. 2019, §5.3",
        "expected, not measured: in most sentences, for a head of the first layer",
        f"the largest share of rows with their maximum there, less {LARGEST} standard errors, is above 0.5, and nearer"
        " to 1 than to what a head that looks anywhere has",
        f"{value:.2f} ± {error:.2f}; a head that looks anywhere {chance:.2f}",
        True if value - LARGEST * error > enough else False if value + LARGEST * error <= enough else None,
    )  # fmt: skip
    yield _together(
        heads, "confident heads are the important ones", "Voita et al. 2019, §4",
        "important and confident heads have roles",
        "confidence", "zero_size",
    )  # fmt: skip


def _together(
    heads: xr.Dataset, statement: str, source: str, published: str, one: str, other: str, more: str = ""
) -> Claim:
    """A claim that two numbers of heads rise together: beyond what heads shuffled within their layers give, since what
    layers differ in may make both rise without any head having a role."""
    rule = f"Spearman's correlation of {one} and {other} over heads is above 97.5 % of what heads shuffled within their"
    rule += " layers give; it does not hold if it is below 2.5 % of these" + more
    if one not in heads or other not in heads:
        return _claim(statement, source, published, rule, _NOT_ASKED, None)
    x, y = heads[one].transpose("layer", "head").values, heads[other].transpose("layer", "head").values
    known = np.isfinite(x) & np.isfinite(y)
    generator = np.random.default_rng(0)
    here = spearman(x[known], y[known])
    shuffled = [
        spearman(x[known], np.concatenate([generator.permutation(row[own]) for row, own in zip(y, known, strict=True)]))
        for _ in range(SHUFFLES)
    ]
    least = float(np.quantile(shuffled, 0.975))
    answer: Answer = True if here > least else False if here < float(np.quantile(shuffled, 0.025)) else None
    return _claim(statement, source, published, rule, f"{here:+.2f}; shuffled up to {least:+.2f}", answer)


def _michel(survey: HeadSurvey) -> Iterator[Claim]:
    prune = survey.prune
    rule = "on texts held back, the mean size of the change is below that of as many heads drawn at random, on the same"
    rule += " text, by more than two standard errors; it does not hold if it is above by as much"
    answer: Answer = None
    here = _NOT_ASKED
    if prune is not None:
        saved, margin = prune["saved"], 2 * prune["saved_error"]
        here = f"{prune['heads']} heads: {prune['size']:.3g} ± {prune['size_error']:.2g}, at random"
        here += f" {prune['random_size']:.3g}: less by {saved:.3g} ± {prune['saved_error']:.2g}, {prune['texts']} texts"
        answer = True if saved > margin else False if saved < -margin else None
    yield _claim(
        "many heads can be dropped at little cost", "Michel et al. 2019, §4.2",
        "a large share of heads can be removed without a significant loss", rule, here, answer,
    )  # fmt: skip
    yield _together(
        survey.heads, "the gradient of a gate says which heads matter", "Michel et al. 2019, §4.1",
        "used to order heads, in place of leaving each out", "gate_gradient", "zero_size",
        " (of the method, and so also of random weights)",
    )  # fmt: skip


def _gu(texts: xr.Dataset, causal: bool) -> Iterator[Claim]:
    claim = _threshold(
        texts, "many heads have their sink on the first token", "Gu et al. 2024, §3.1",
        "in language models of every size that was tried, whatever the text",
        "more than 10 % of heads give the first token more than 0.3 of their weight", 0.1,
        lambda means: (means["first_weight"] > 0.3).mean(), "first_weight",
    )  # fmt: skip
    if not causal:
        claim = _claim(
            claim.statement, claim.source, claim.published, claim.rule,
            f"{claim.here}; said of language models, and so not judged", None,
        )  # fmt: skip
    yield claim
