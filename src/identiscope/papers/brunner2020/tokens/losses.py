"""Which tokens of a corpus are lost at each layer, what they are taken for, and whether mixing explains it."""

from collections.abc import Sequence
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from identiscope.corpus.hidden_state_cache import HiddenStates
from identiscope.errors import InputError
from identiscope.methods.tokens.confusions import (
    REASONS,
    against_contribution,
    confusions,
    frequency_groups,
    position_groups,
    rates_by_group,
    reasons,
)
from identiscope.methods.tokens.identification import Identified, look_up
from identiscope.methods.tokens.neighbours import Metric
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.probes import Probe, ProbeSet
from identiscope.methods.tokens.sentences import Sentences
from identiscope.papers.brunner2020.tokens.setup import Setup, chosen_layers, input_embeddings
from identiscope.results import make_result


def look_up_layers(
    cache: HiddenStates,
    probes: ProbeSet | None,
    *,
    setup: Setup | None = None,
    layers: Sequence[int] | None = None,
    metric: Metric = "cosine",
) -> list[Identified]:
    """What became of every tested token at each layer, over the test sentences of all folds the probes have.

    probes: as `same_layer` fitted them, with the same setup and layers; None for the naive probe with `metric`.
    """
    setup = setup or Setup()
    sentences = Sentences(cache.lengths)
    chosen = chosen_layers(cache, layers)
    pairs = Pairs([cache.layer(layer) for layer in chosen], [input_embeddings(cache, setup)], sentences)
    folds = setup.splits(cache)
    folds = folds if probes is None else folds[: probes.epochs.shape[1]]
    every = []
    for index, hidden in enumerate(pairs.states):
        parts = [
            look_up(
                Probe("naive", metric, {}) if probes is None else probes.probe(index, fold),
                hidden, pairs, index, split.test,
            )
            for fold, split in enumerate(folds)
        ]  # fmt: skip
        columns = ("rows", "nearest", "identified", "tied")
        every.append(Identified(*(torch.cat([getattr(part, name) for part in parts]) for name in columns)))
    return every


def lost_tokens(
    cache: HiddenStates, lookups: Sequence[Identified], *, layers: Sequence[int] | None = None, most: int = 40
) -> xr.Dataset:
    """Rates by type (the `most` common), frequency, part of speech and position; reasons and confusions.

    lookups: from `look_up_layers`, one for each layer. Axes `type`, `frequency`, `tag` and `position`: how many tokens
    were tested and how many identified at each layer. `reason`: what lost tokens were taken for, in kinds.
    `confusion`: the commonest pairs at the last of the layers.
    """
    chosen = chosen_layers(cache, layers)
    types, special = cache.tokens, cache.special
    kinds: dict[str, Sequence[str | None]] = {
        "type": types,
        "frequency": frequency_groups(types),
        "tag": cache.tags,
        "position": position_groups(Sentences(cache.lengths).position),
    }
    arrays: dict[str, tuple[Sequence[str], Any]] = {}
    coordinates: dict[str, Any] = {"layer": chosen, "reason": list(REASONS)}
    for kind, groups in kinds.items():
        rates = [{one.group: one for one in rates_by_group(layer, groups)} for layer in lookups]
        names = list(rates[0])[:most] if kind == "type" else sorted(rates[0], key=_leading_number)
        if not names:
            continue
        coordinates[kind] = names
        arrays[f"{kind}_tokens"] = ((kind,), [rates[0][name].tokens for name in names])
        arrays[f"{kind}_identified"] = (
            ("layer", kind),
            [[layer[name].identified for name in names] for layer in rates],
        )
    counts = [reasons(layer, types, special) for layer in lookups]
    arrays["taken_for"] = (("layer", "reason"), [[count[reason] for reason in REASONS] for count in counts])
    pairs = confusions(lookups[-1], types)
    if pairs:
        coordinates["confusion"] = [f"{one} → {other}" for one, other, _ in pairs]
        arrays["confused"] = (("confusion",), [count for _, _, count in pairs])
    keys = ("model_name", "model", "text")
    return make_result(
        "token_losses", arrays, coordinates=coordinates, provenance={key: cache.manifest[key] for key in keys}
    )


def _leading_number(name: str) -> tuple[int, str]:
    digits = name.split("–")[0]
    return (int(digits) if digits.isdigit() else 0, name)


def identifiability_against_contribution(
    cache: HiddenStates,
    lookups: Sequence[Identified],
    contribution: Tensor,
    *,
    layers: Sequence[int] | None = None,
    bins: int = 10,
) -> xr.Dataset:
    """The open question of section 7: are the tokens that mix most the ones that are lost?

    contribution: self contribution [layer, token of the corpus] from Hidden Token Attribution, for the same layers.
    """
    chosen = chosen_layers(cache, layers)
    if contribution.shape != (len(chosen), int(cache.lengths.sum())):
        raise InputError(
            f"self contributions of shape {tuple(contribution.shape)} were given; expected"
            f" [{len(chosen)} layers, {int(cache.lengths.sum())} tokens], in the order of the hidden states."
        )
    every = [against_contribution(layer, own, bins=bins) for layer, own in zip(lookups, contribution, strict=True)]
    axes = ("layer", "bin")
    return make_result(
        "token_identifiability_against_contribution",
        {name: (axes, torch.stack([getattr(one, name) for one in every])) for name in ("low", "high", "rate", "tokens")}
        | {"auc": (("layer",), [one.auc for one in every])},
        coordinates={"layer": chosen},
        provenance={key: cache.manifest[key] for key in ("model_name", "model", "text")},
    )
