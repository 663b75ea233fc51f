"""More identifiable, equally accurate? Regular attention, small d_k and added heads, on the same texts and seeds."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import xarray as xr

from identiscope.corpus.splits import nearest_start, together
from identiscope.errors import InputError
from identiscope.papers.bhardwaj2021.classifier import (
    Classifier,
    ClassifierConfig,
    IdentifiableClassifier,
    learn_words,
)
from identiscope.papers.bhardwaj2021.ranks import LengthRanks, ranks_by_length
from identiscope.papers.bhardwaj2021.training import TrainingRecipe, answers, texts_of, train_classifier
from identiscope.progress import Progress, part_of
from identiscope.results import make_result
from identiscope.stats.accuracy_comparison import accuracy_comparison, mean_interval

Labelled = Sequence[tuple[str, str]]

#: What is compared; the first is what the others are compared with. small d_k: see `variants_with`.
REGULAR = "regular"
RANKS = (
    "null_dimension", "simplex_null_dimension", "realisable_dimension", "layer_simplex_null_dimension", "identifiable",
    "uncertain",
)  # fmt: skip


def variants_with(key_width: int) -> dict[str, dict[str, Any]]:
    """Name → what differs from regular attention (d_k = d_v = d/h, heads side by side)."""
    return {
        REGULAR: {},
        "small d_k": {"key_width": key_width},
        "added heads": {"combine": "add"},
        "added, small d_k": {"combine": "add", "key_width": key_width},
    }


def compare_attention(
    texts: Labelled,
    test: Labelled | None = None,
    *,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    shape: Mapping[str, Any] | None = None,
    recipe: TrainingRecipe | None = None,
    margin: float = 0.02,
    per_length: int = 5,
    keep: Callable[[str, int, Classifier], None] | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Train each variant with each seed, and put accuracy beside null-space dimensions at each length.

    texts: (text, label) pairs to train on; a tenth of them, by seed, chooses the epoch. test: pairs to test on; a tenth
    of `texts`, the same for every seed, if not given. variants: by default regular, small d_k (2) and added heads.
    shape: fields of `ClassifierConfig` that all variants share. keep: called with every classifier trained.

    `accuracy` [variant, seed] with `accuracy_mean`, `_low`, `_high` over seeds; `difference` to the first variant with
    its interval over seeds and texts, and `answer` at this `margin` (see `accuracy_comparison`). `null_dimension`,
    `simplex_null_dimension`, `realisable_dimension`, `layer_simplex_null_dimension` and `identifiable` are [variant,
    seed, length], measured on up to `per_length` texts of each length. `more_identifiable` and `claim` say what
    follows, see `judge`.
    """
    variants = dict(list(variants_with(2).items())[:3]) if variants is None else variants
    recipe = TrainingRecipe() if recipe is None else recipe
    labels = sorted({label for _, label in texts})
    if len(labels) < 2 or len(variants) < 1 or len(set(seeds)) != len(seeds) or not len(seeds) or per_length < 1:
        raise InputError(
            f"{len(labels)} labels, variants {list(variants)}, seeds {list(seeds)} and {per_length} texts a length were"
            " given; expected at least two labels, a variant, different seeds and one text."
        )
    if test is None:
        tested, kept = _tenth(texts, seed=0)
        texts, test = [texts[place] for place in kept], [texts[place] for place in tested]
    measured = _of_each_length([text for text, _ in (*test, *texts)], per_length, ClassifierConfig(2, 2, **shape or {}))
    correct = np.zeros((len(variants), len(seeds), len(test)), dtype=bool)
    chosen = np.zeros((len(variants), len(seeds)), dtype=int)
    validated = np.zeros((len(variants), len(seeds)))
    ranks: list[list[LengthRanks]] = [[] for _ in variants]
    parameters, configs, cut = [], [], 0
    runs = len(variants) * len(seeds)
    for number, seed in enumerate(seeds):
        held_out, kept = _tenth(texts, seed=seed)
        train, validation = ([texts[place] for place in places] for places in (kept, held_out))
        tokenizer = learn_words(text for text, _ in train)
        for row, (name, options) in enumerate(variants.items()):
            config = ClassifierConfig(tokenizer.size, len(labels), **{**(shape or {}), **options})
            parts = [texts_of(tokenizer, labels, part, longest=config.longest) for part in (train, validation, test)]
            cut = max(cut, sum(part.cut for part in parts))
            part = part_of(progress, number * len(variants) + row, runs, f"{name}, seed {seed}, ")
            trained = train_classifier(config, parts[0], parts[1], recipe=recipe, seed=seed, progress=part)
            correct[row, number] = answers(trained.module, parts[2])
            chosen[row, number], validated[row, number] = trained.best_epoch, max(trained.validation)
            classifier = Classifier(trained.module, tokenizer, tuple(labels))
            ranks[row].append(ranks_by_length(classifier.model, measured))
            if keep is not None:
                keep(name, seed, classifier)
            if number == 0:
                parameters.append(_attention_parameters(trained.module))
                configs.append(asdict(config))
    arrays: dict[str, Any] = {
        "correct": (("variant", "seed", "text"), correct),
        "accuracy": (("variant", "seed"), correct.mean(2)),
        "validation_accuracy": (("variant", "seed"), validated),
        "best_epoch": (("variant", "seed"), chosen),
        "attention_parameters": (("variant",), parameters),
        "texts_measured": (("length",), ranks[0][0].texts),
    }
    for name in RANKS:
        arrays[name] = (
            ("variant", "seed", "length"),
            np.array([[getattr(one, name) for one in row] for row in ranks]),
        )
    arrays |= _accuracies(correct, margin)
    result = make_result(
        "identifiable_comparison",
        arrays,
        coordinates={"variant": list(variants), "seed": list(seeds), "length": ranks[0][0].length},
        provenance={
            "labels": labels, "texts": len(texts), "test_texts": len(test), "margin": margin, "tokens_cut": cut,
            "majority": max(Counter(label for _, label in test).values()) / len(test),
            "recipe": asdict(recipe), "configs": dict(zip(variants, configs, strict=True)),
        },
    )  # fmt: skip
    return judge(result)


def judge(result: xr.Dataset) -> xr.Dataset:
    """Add `more_identifiable` and `claim` [variant]: does "more identifiable, equally accurate" hold of each?

    More identifiable, against the first variant: its mean null space (`simplex_null_dimension`), or the mean room for
    maps it can itself produce (`realisable_dimension`), is smaller at *every* length where the first's is not zero.
    The claim holds if so and the answer is `equally accurate` or `more accurate`; it does not hold if the variant is
    not more identifiable or is less accurate; else it is undecided. It speaks of each head alone, as the paper does:
    what heads may trade between them (`layer_simplex_null_dimension`) does not enter.
    """
    gains, claims = ["–"], ["–"]
    for name in result["variant"].values[1:]:
        smaller = [label for label, values in (("null space", "simplex_null_dimension"), ("realisable maps",
                 "realisable_dimension")) if _smaller(result[values], str(name))]  # fmt: skip
        gains.append(" and ".join(smaller) or "no")
        answer = str(result["answer"].sel(variant=name).item())
        if not smaller or answer == "less accurate":
            claims.append("does not hold")
        else:
            claims.append("undecided" if answer == "undecided" else "holds")
    return result.assign(
        more_identifiable=(("variant",), np.array(gains, dtype=object)),
        claim=(("variant",), np.array(claims, dtype=object)),
    )


def _smaller(values: xr.DataArray, name: str) -> bool:
    means = values.mean("seed")
    first, other = means.isel(variant=0).values, means.sel(variant=name).values
    somewhere = first > 0
    return bool(somewhere.any() and (other[somewhere] < first[somewhere]).all())


def _accuracies(correct: np.ndarray, margin: float) -> dict[str, Any]:
    means = [mean_interval(row.mean(1)) for row in correct]
    compared = [accuracy_comparison(row, correct[0], margin=margin) for row in correct]
    nothing = ["–", *(one.answer for one in compared[1:])]
    return {
        "accuracy_mean": (("variant",), [one.mean for one in means]),
        "accuracy_low": (("variant",), [one.low for one in means]),
        "accuracy_high": (("variant",), [one.high for one in means]),
        "difference": (("variant",), [one.difference for one in compared]),
        "difference_low": (("variant",), [one.low for one in compared]),
        "difference_high": (("variant",), [one.high for one in compared]),
        "answer": (("variant",), np.array(nothing, dtype=object)),
    }


def _tenth(texts: Labelled, *, seed: int) -> tuple[list[int], list[int]]:
    """Places of a random tenth of the texts, and of the rest, both in order; equal texts are on one side."""
    count = len(texts)
    if count < 10:
        raise InputError(f"{count} texts were given; at least ten are needed to set a tenth aside.")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    order, starts = together(order, [text for text, _ in texts])
    if len(starts) < 2:
        raise InputError(f"all {count} texts given are the same; none can be set aside that is not trained on.")
    size = nearest_start(starts[1:], round(count / 10))
    return sorted(order[:size].tolist()), sorted(order[size:].tolist())


def _of_each_length(texts: Sequence[str], per_length: int, config: ClassifierConfig) -> list[str]:
    """Up to so many texts of each length in words, the first ones; none that would be cut."""
    counter = learn_words([])
    counts: dict[int, int] = {}
    chosen = []
    for text in dict.fromkeys(texts):
        length = len(counter(text)["input_ids"])
        if length <= config.longest and counts.get(length, 0) < per_length:
            counts[length] = counts.get(length, 0) + 1
            chosen.append(text)
    return chosen


def _attention_parameters(module: IdentifiableClassifier) -> int:
    return sum(weight.numel() for name, weight in module.named_parameters() if ".self_attn." in name)
