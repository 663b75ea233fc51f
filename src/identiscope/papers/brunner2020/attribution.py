"""Figures 3, 4, 18 to 37 and 40 to 43: Hidden Token Attribution."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from identiscope.asking.ask import ask
from identiscope.capture import Model, Trace, trace
from identiscope.corpus.readers import Text
from identiscope.methods.mixtures.attribution.summaries import self_contribution
from identiscope.papers.brunner2020.attribution_claims import (
    class_token_claims,
    near_claims,
    self_claims,
    tag_claims,
)
from identiscope.papers.brunner2020.attribution_figures import (
    contributions_by_distance,
    contributions_by_offset,
    contributions_by_tag,
    contributions_of_word,
    contributions_to_token,
    self_contributions,
)
from identiscope.papers.brunner2020.setup import is_bert_base
from identiscope.papers.brunner2020.tokens.tags import token_tags
from identiscope.views.plots.figures import Figure, Missing, Panel

#: The words that the paper follows, in its example pair; in another text the longest stand in for them.
WORDS = ("he", "said", "fit", "long", "strategy")
#: Where the paper speaks of them, for corpora other than its first.
OTHERS = {"CoLA": "D.2.1, Fig. {}: “very similar to MRPC”", "MNLI": "D.2.2, Fig. {}: “very similar”"}


def attribution_figures(
    model: Model, texts: list[Text], name: str, probes: int, *, others: str | None, shown: str
) -> Iterator[Figure | Missing]:
    """3, 4, 18 and 19–25, or for another corpus the two figures `others`."""
    attributions = [_attribution(trace(model, text.given, truncate=True), probes) for text in texts]
    contributions = [np.asarray(one["contribution"].values, np.float64) for one in attributions]
    data = f"{shown}, {len(texts)} texts, {probes} probes"
    own, near = self_contributions(attributions), contributions_by_distance(attributions)
    by_offset = contributions_by_offset(attributions, own=False)
    numbers = others.split(", ") if others else ["3a, 3b", "4a, 4b"]
    sources = [OTHERS[name].format(number) for number in numbers] if others else ["§5.2, Fig. 3", "§5.3, Fig. 4"]
    # Numbers are those of one model on one corpus.
    comparable = is_bert_base(model) and shown == name if others is None else None
    yield Figure(
        numbers[0], f"Contribution of a token to itself, {shown}", data,
        (Panel("self", own), Panel("not-largest", own, "attribution.plot_not_largest")),
        tuple(self_claims(contributions, comparable, sources[0])),
    )  # fmt: skip
    yield Figure(
        numbers[1], f"Contribution of neighbours, {shown}", data,
        (Panel("distance", near), Panel("offset", by_offset)), tuple(near_claims(contributions, sources[1])),
    )  # fmt: skip
    if others is not None:
        return
    yield _to_class_token(attributions, data)
    yield _words(model, texts[0], probes)


def tag_figures(model: Model, texts: list[Text], probes: int) -> Iterator[Figure | Missing]:
    """26–37: self contribution by part of speech, of a corpus with tags."""
    tagged = [text for text in texts if text.words]
    if not tagged:
        yield Missing("26–37", "texts with tags (CoNLL-U)")
        return
    attributions, tags = [], []
    for text in tagged:
        traced = trace(model, text.given, truncate=True)
        tags.append(token_tags(traced, text.tagged_words()))
        attributions.append(_attribution(traced, probes))
    result = contributions_by_tag(attributions, tags)
    own = [self_contribution([np.asarray(one["contribution"].values, np.float64)]).values for one in attributions]
    layers = [int(layer) for layer in result.layer.values]
    panels = tuple(Panel(f"layer-{layer}", result, None, {"layer": layer}) for layer in layers)
    yield Figure(
        "26–37", "Self contribution by part of speech", f"{len(tagged)} texts, {probes} probes", panels,
        tuple(tag_claims(own, tags)),
    )  # fmt: skip


def _attribution(traced: Trace, probes: int) -> xr.Dataset:
    result = ask("hidden_token_attribution", traced, mode="estimate", probes=probes)
    if not result.attrs["complete"]:
        # The method keeps what it has when it is interrupted; a figure of a part would not say so.
        raise KeyboardInterrupt
    return result


def _to_class_token(attributions: list[xr.Dataset], data: str) -> Figure | Missing:
    first = str(attributions[0]["output_token"].values[0])
    separator = str(attributions[0]["output_token"].values[-1])
    if not bool(attributions[0]["output_special"].values[0]):
        return Missing("18", "a model with a [CLS] token")
    around = contributions_to_token(attributions, first, own=False)
    centred = contributions_to_token(attributions, first, separator, own=False)
    # Of pairs: the first separator stands between two sentences, and not at the end; and of what has a context.
    pairs = [
        (np.asarray(one["contribution"].values, np.float64), middle)
        for one in attributions
        for middle in [list(map(str, one["input_token"].values)).index(separator)]
        if 1 < middle < one.sizes["input"] - 2 and float(one["contribution"][-1, 1:, 0].sum()) > 0
    ]
    claims = tuple(class_token_claims([one for one, _ in pairs], [middle for _, middle in pairs])) if pairs else ()
    return Figure("18", f"Contribution to {first}, centred on it and on {separator}", data,
                  (Panel("itself", around), Panel("separator", centred)), claims)  # fmt: skip


def _words(model: Model, text: Text, probes: int) -> Figure:
    result = _attribution(trace(model, text.given, truncate=True), probes)
    tokens = [str(token) for token in result["output_token"].values]
    wanted = [word for word in WORDS if word in tokens]
    if len(wanted) < len(WORDS):
        wanted = sorted(dict.fromkeys(tokens[1:-1]), key=len, reverse=True)[: len(WORDS)]
    places = [0, *(tokens.index(word) for word in wanted), len(tokens) - 1]
    panels = tuple(Panel(f"word-{place}", contributions_of_word(result, place)) for place in dict.fromkeys(places))
    return Figure("19–25", "What single words are made of, layer by layer", "the first text", panels)
