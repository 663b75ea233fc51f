"""Figures 3, 4, 18 to 37 and 40 to 43: Hidden Token Attribution."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from identiscope.capture import Model, trace
from identiscope.corpus.readers import Text
from identiscope.experiments.attribution import attribution, attribution_of_texts, token_tags
from identiscope.experiments.attribution_figures import (
    PUBLISHED_MEDIAN,
    PUBLISHED_NOT_LARGEST,
    contributions_by_distance,
    contributions_by_offset,
    contributions_by_tag,
    contributions_of_word,
    contributions_to_token,
    self_contributions,
)
from identiscope.views.figures import Claim, Figure, Missing, Panel, percent

#: The words that the paper follows, in its example pair; in another text the longest stand in for them.
WORDS = ("he", "said", "fit", "long", "strategy")
#: Penn tags that keep, and those that lose, their own input by the last layer (Fig. 37).
KEEP = ("NN", "NNS", "NNP", "VB", "VBD", "VBN", "VBP", "VBG", "VBZ", "JJ", "JJR", "JJS", "RB", "RBR", "RBS")
LOSE = ("DT", "IN", "PRP", "PRP$", "TO", "WDT", "WP", "WRB")


def attribution_figures(
    model: Model, texts: list[Text], name: str, probes: int, *, others: str | None, shown: str
) -> Iterator[Figure | Missing]:
    """3, 4, 18 and 19–25, or for another corpus the two figures `others`."""
    given = [text.given for text in texts]
    found = attribution_of_texts(model, given, mode="estimate", probes=probes, truncate=True)
    data = f"{shown}, {len(texts)} texts, {probes} probes"
    own = self_contributions(found)
    near, by_offset = contributions_by_distance(found), contributions_by_offset(found, own=False)
    numbers = others.split(", ") if others else ["3a, 3b", "4a, 4b"]
    yield Figure(
        numbers[0], f"Contribution of a token to itself, {shown}", data,
        (Panel("self", own), Panel("not-largest", own, "attribution_plots.plot_not_largest")),
        tuple(_self_claims(own, name == "MRPC")),
    )  # fmt: skip
    yield Figure(
        numbers[1], f"Contribution of neighbours, {shown}", data,
        (Panel("distance", near), Panel("offset", by_offset)), tuple(_near_claims(near, by_offset)),
    )  # fmt: skip
    if others is not None:
        return
    yield _to_class_token(found, by_offset, data)
    yield _words(model, texts[0], probes)


def tag_figures(model: Model, texts: list[Text], probes: int) -> Iterator[Figure | Missing]:
    """26–37: self contribution by part of speech, of a corpus with tags."""
    tagged = [text for text in texts if text.words]
    if not tagged:
        yield Missing("26–37", "texts with tags (CoNLL-U)")
        return
    found, tags = [], []
    for text in tagged:
        traced = trace(model, text.given, truncate=True)
        words = [[(word.start, word.end, word.tag) for word in text.words if word.part == part]
                 for part in range(len(text.parts))]  # fmt: skip
        tags.append(token_tags(traced, words))
        found.append(attribution(model, traced, mode="estimate", probes=probes))
    result = contributions_by_tag(found, tags)
    last = result["median"].isel(layer=-1)
    kept, lost = (
        float(last.sel(tag=[tag for tag in last.tag.values if tag in group]).mean()) for group in (KEEP, LOSE)
    )
    claim = Claim(
        "at the last layer nouns, verbs, adjectives and adverbs keep more of their input than function words", "yes",
        f"{percent([kept])} against {percent([lost])}", kept > lost,
    )  # fmt: skip
    layers = [int(layer) for layer in result.layer.values]
    panels = tuple(Panel(f"layer-{layer}", result, None, {"layer": layer}) for layer in layers)
    yield Figure(
        "26–37", "Self contribution by part of speech", f"{len(tagged)} texts, {probes} probes", panels, (claim,)
    )


def _self_claims(own: xr.Dataset, published: bool) -> Iterator[Claim]:
    median, other = own["median"].values, own["not_largest"].values
    places = [0, (len(median) - 1) // 2, len(median) - 1]
    if published:
        yield Claim(
            "median self contribution at the first, middle and last layer",
            percent([PUBLISHED_MEDIAN[layer] / 100 for layer in (1, 6, 12)]), percent(median[places]), None,
        )  # fmt: skip
        yield Claim(
            "tokens that are not their own largest contributor, there",
            percent([PUBLISHED_NOT_LARGEST[layer] / 100 for layer in (1, 6, 12)]), percent(other[places]), None,
        )  # fmt: skip
    yield Claim("self contribution falls with every layer", "yes", percent(median), bool((np.diff(median) < 0).all()))
    yield Claim("it is soon not the largest for many", "0 in layers 1 to 3, then rising",
                percent(other), bool(other[0] < 0.01 and other[-1] > other[0]))  # fmt: skip


def _near_claims(near: xr.Dataset, by_offset: xr.Dataset) -> Iterator[Claim]:
    relative = near["relative"].values
    some = np.isfinite(relative).all(0)
    layers = near.layer.values[relative[:, some].argmax(0)]
    yield Claim(
        "close neighbours matter most in early layers, distant ones later", "yes",
        f"layer of the largest share, nearest to farthest: {', '.join(str(layer) for layer in layers)}",
        bool(layers[0] <= layers[-1]),
    )  # fmt: skip
    for place, where in ((0, "first"), (-1, "last")):
        line = by_offset["mean"].isel(layer=place)
        offsets = by_offset.offset.values
        mean = [float(line.sel(offset=[step for step in (-far, far) if step in offsets]).mean()) for far in range(1, 6)]
        yield Claim(
            f"context is local at the {where} layer: the nearer, the more", "yes",
            f"offsets 1 to 5: {percent(mean)}", bool((np.diff(mean) < 0).all()),
        )  # fmt: skip


def _to_class_token(found: list[xr.Dataset], by_offset: xr.Dataset, data: str) -> Figure | Missing:
    first = str(found[0]["output_token"].values[0])
    separator = str(found[0]["output_token"].values[-1])
    if not bool(found[0]["output_special"].values[0]):
        return Missing("18", "a model with a [CLS] token")
    around = contributions_to_token(found, first, own=False)
    centred = contributions_to_token(found, first, separator, own=False)
    reach = [
        float((np.abs(values.offset.values) * line).sum() / line.sum())
        for values in (around, by_offset)
        for line in [np.nan_to_num(values["total"].isel(layer=-1).values)]
    ]
    claim = Claim(
        f"{first} takes its context from farther away than other tokens", "yes",
        f"mean distance at the last layer {reach[0]:.1f}, of all tokens {reach[1]:.1f}", reach[0] > reach[1],
    )  # fmt: skip
    return Figure("18", f"Contribution to {first}, centred on it and on {separator}", data,
                  (Panel("itself", around), Panel("separator", centred)), (claim,))  # fmt: skip


def _words(model: Model, text: Text, probes: int) -> Figure:
    result = attribution(model, text.given, mode="estimate", probes=probes, truncate=True)
    tokens = [str(token) for token in result["output_token"].values]
    wanted = [word for word in WORDS if word in tokens]
    if len(wanted) < len(WORDS):
        wanted = sorted(dict.fromkeys(tokens[1:-1]), key=len, reverse=True)[: len(WORDS)]
    places = [0, *(tokens.index(word) for word in wanted), len(tokens) - 1]
    panels = tuple(Panel(f"word-{place}", contributions_of_word(result, place)) for place in dict.fromkeys(places))
    return Figure("19–25", "What single words are made of, layer by layer", "the first text", panels)
