"""The token identifiability experiments of the paper: section 4, appendices B and D.1.

Published for BERT-base: see PUBLISHED, the numbers that the text states (its curves cannot be read off exactly).
The paper counts layers from 1, so its layer l is block l − 1; results count blocks from 0, like all others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import xarray as xr

from identiscope.corpus.hidden_state_cache import HiddenStates
from identiscope.corpus.splits import part_of_training
from identiscope.errors import InputError
from identiscope.methods.tokens.identification import random_guess, score
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.sentences import Sentences
from identiscope.papers.brunner2020.tokens.setup import (
    ALL_PROBES,
    LINEAR,
    NAIVE,
    Fitted,
    ProbeName,
    Setup,
    chosen_layers,
    fit_and_score,
    input_embeddings,
    probe_by_fold,
    provenance,
)
from identiscope.progress import Progress, part_of, tell
from identiscope.results import make_result

#: What the paper's text says of BERT-base uncased (12 layers, which it counts from 1).
PUBLISHED: dict[str, str] = {
    "same layer": "MRPC: linear cosine 93 % at layer 12; naive stays near its input up to layer 4, then falls linearly;"
    " cosine above L2 throughout",
    "across layers": "MRPC, linear cosine: trained on layer 1, below 70 % at layers 11 and 12; trained on layer 12,"
    " 94 % there and more at earlier layers",
    "fractions": "MRPC, MLP L2 at layer 11 with 50 / 80 / 90 / 100 % of the training data: .74 / .80 / .81 / .82",
    "random guess": "MRPC 1.7 %, CoLA 9 %, MNLI 2.6 %",
    "neighbours": "far lower than the token itself; falls with distance and with depth",
    "previous layer": "even naive probes do well at every layer (the axis of figure 11 begins at 92 %); fine-tuning"
    " lowers the last layer for L2, hardly for cosine",
}


def same_layer(
    cache: HiddenStates,
    *,
    setup: Setup | None = None,
    probes: Sequence[ProbeName] = ALL_PROBES,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> tuple[xr.Dataset, Fitted]:
    """Figures 2a, 7, 38, 39: probes trained and tested on the same layer. Returns the rates and the probes.

    layers: from 0; by default all.
    """
    setup = setup or Setup()
    chosen = chosen_layers(cache, layers)
    sentences = Sentences(cache.lengths)
    pairs = Pairs([cache.layer(layer) for layer in chosen], [input_embeddings(cache, setup)], sentences)
    fitted, arrays = fit_and_score(pairs, setup.splits(cache), probes, setup, progress)
    guess = random_guess(pairs.targets[0], sentences.lengths)
    result = make_result(
        "token_identifiability_same_layer",
        arrays | {"random_guess": (("layer",), [guess] * len(chosen))},
        coordinates={"probe": list(fitted), "layer": chosen, "fold": range(setup.folds)},
        provenance=_provenance(cache, setup, "same layer"),
    )
    return result, fitted


def across_layers(
    cache: HiddenStates,
    fitted: Fitted,
    *,
    setup: Setup | None = None,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Figures 2b, 8, 9, 10: the probes that `same_layer` fitted (with the same setup and layers), tested on all."""
    setup = setup or Setup()
    chosen = chosen_layers(cache, layers)
    sentences = Sentences(cache.lengths)
    pairs = Pairs([cache.layer(layer) for layer in chosen], [input_embeddings(cache, setup)], sentences)
    sets = [split.test for split in setup.splits(cache)]
    trained = {name: probes for name, probes in fitted.items() if probes is not None}
    if not trained:
        raise InputError("no fitted probes were given; the naive probe is not trained on any layer.")
    rates = torch.zeros(3, len(trained), len(chosen), len(chosen), dtype=torch.float64)
    resampled = torch.zeros(*rates.shape[1:], setup.resamples, dtype=torch.float64)
    sentence_counts = torch.zeros(*rates.shape[1:], dtype=torch.long)
    for number, (name, probes) in enumerate(trained.items()):
        for source in range(len(chosen)):
            for tested, hidden in enumerate(pairs.states):
                probe_of = probe_by_fold(probes, source)
                own = sets[: probes.epochs.shape[1]]
                scored = score(probe_of, hidden, pairs, tested, own, resamples=setup.resamples, seed=setup.seed)
                bounds = [scored.rate, scored.interval.low, scored.interval.high]
                rates[:, number, source, tested] = torch.tensor(bounds, dtype=torch.float64)
                resampled[number, source, tested] = scored.resampled
                sentence_counts[number, source, tested] = scored.sentences
            done = number * len(chosen) + source + 1
            tell(progress, f"{name} on every layer", done, len(trained) * len(chosen))
    axes = ("probe", "trained_on", "layer")
    arrays: dict[str, Any] = {name: (axes, part) for name, part in zip(("rate", "low", "high"), rates, strict=True)}
    if setup.keep_resamples:
        arrays |= {"resampled_rate": ((*axes, "resample"), resampled), "sentences": (axes, sentence_counts)}
    return make_result(
        "token_identifiability_across_layers",
        arrays,
        coordinates={"probe": list(trained), "trained_on": chosen, "layer": chosen},
        provenance=_provenance(cache, setup, "across layers"),
    )


def previous_layer(
    cache: HiddenStates,
    *,
    setup: Setup | None = None,
    probes: Sequence[ProbeName] = (*NAIVE, *LINEAR),
    progress: Progress | None = None,
) -> xr.Dataset:
    """Figure 11: from each layer back to the one before it; candidates are that layer's states of the sentence."""
    setup = setup or Setup()
    sentences = Sentences(cache.lengths)
    chosen = chosen_layers(cache, None)
    targets = [input_embeddings(cache, setup), *(cache.layer(layer) for layer in chosen[:-1])]
    pairs = Pairs(cache.states, targets, sentences)
    fitted, arrays = fit_and_score(pairs, setup.splits(cache), probes, setup, progress)
    return make_result(
        "token_identifiability_previous_layer",
        arrays,
        coordinates={"probe": list(fitted), "layer": chosen, "fold": range(setup.folds)},
        provenance=_provenance(cache, setup, "previous layer"),
    )


def compare_checkpoints(
    caches: Mapping[str, HiddenStates],
    *,
    setup: Setup | None = None,
    probes: Sequence[ProbeName] = NAIVE,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Figures 12 and 13: layer to previous layer for two or more checkpoints on one text, such as before and after
    fine-tuning. caches: a name and the hidden states of each.
    """
    texts = {cache.manifest["text"] for cache in caches.values()}
    if len(caches) < 2 or len(texts) > 1:
        raise InputError(
            f"{len(caches)} caches of {len(texts)} different texts were given; expected two or more, of the same text."
        )
    results = [
        previous_layer(cache, setup=setup, probes=probes, progress=part_of(progress, number, len(caches), f"{name}: "))
        for number, (name, cache) in enumerate(caches.items())
    ]
    joined = xr.concat(results, dim="checkpoint", join="exact", combine_attrs="override")
    joined = joined.assign_coords(checkpoint=("checkpoint", list(caches)))
    hashes = {name: cache.manifest["model"] for name, cache in caches.items()}
    return joined.assign_attrs(method="token_identifiability_checkpoints", model=hashes)


def neighbours(
    cache: HiddenStates,
    *,
    setup: Setup | None = None,
    probes: Sequence[ProbeName] = LINEAR,
    offsets: Sequence[int] = (-3, -2, -1, 1, 2, 3),
    progress: Progress | None = None,
) -> xr.Dataset:
    """Figures 14 to 17: recover the input of the token `offset` places further on. One probe for each offset.

    `input_rate` [probe, offset] is what the same probes recover from the token's own input embedding, into which no
    neighbour has come: by its position, and by which words follow which.
    """
    setup = setup or Setup()
    sentences, splits = Sentences(cache.lengths), setup.splits(cache)
    results = []
    for number, offset in enumerate(offsets):
        inputs = input_embeddings(cache, setup)
        pairs = Pairs([inputs, *cache.states], [inputs], sentences, offset)
        part = part_of(progress, number, len(offsets), f"offset {offset:+d}: ")
        fitted, of_all = fit_and_score(pairs, splits, probes, setup, part)
        arrays = {name: (axes, values[:, 1:]) for name, (axes, values) in of_all.items()}
        for name in ("rate", "resampled_rate"):
            if name in of_all:
                axes, values = of_all[name]
                arrays[name.replace("rate", "input_rate")] = ([axis for axis in axes if axis != "layer"], values[:, 0])
        results.append(
            make_result(
                "token_identifiability_neighbours",
                arrays,
                coordinates={"probe": list(fitted), "layer": chosen_layers(cache, None), "fold": range(setup.folds)},
                provenance=_provenance(cache, setup, "neighbours"),
            )
        )
    joined = xr.concat(results, dim="offset", join="exact", combine_attrs="override")
    return joined.assign_coords(offset=("offset", list(offsets)))


def data_fractions(
    cache: HiddenStates,
    layer: int,
    *,
    setup: Setup | None = None,
    probe: ProbeName = ("mlp", "l2"),
    fractions: Sequence[float] = (0.5, 0.8, 0.9, 1.0),
    progress: Progress | None = None,
) -> xr.Dataset:
    """Appendix B.2: the same test sentences with a part of the training sentences."""
    setup = setup or Setup()
    sentences = Sentences(cache.lengths)
    pairs = Pairs([cache.layer(layer)], [input_embeddings(cache, setup)], sentences)
    splits = setup.splits(cache)
    results = []
    for number, fraction in enumerate(fractions):
        less = [part_of_training(split, fraction, seed=setup.seed) for split in splits]
        part = part_of(progress, number, len(fractions), f"{fraction:.0%} of the data: ")
        fitted, arrays = fit_and_score(pairs, less, [probe], setup, part)
        results.append(
            make_result(
                "token_identifiability_fractions",
                arrays,
                coordinates={"probe": list(fitted), "layer": [layer], "fold": range(setup.folds)},
                provenance=_provenance(cache, setup, "fractions"),
            )
        )
    joined = xr.concat(results, dim="fraction", join="exact", combine_attrs="override")
    return joined.assign_coords(fraction=("fraction", list(fractions)))


def _provenance(cache: HiddenStates, setup: Setup, experiment: str) -> dict[str, Any]:
    return provenance(cache, setup, experiment) | {"published": PUBLISHED[experiment]}
