"""Section V of the structure-aware draft on the model that reverses: its map, its structure, and what breaks it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.provenance import text_digest, texts_provenance
from identiscope.asking.structure.extracting import extract_structure, structure_cells
from identiscope.capture import load, substitute, trace
from identiscope.errors import InputError
from identiscope.methods.heads.structure_norm import structure_distance
from identiscope.methods.structure.extraction import structure_extraction
from identiscope.methods.structure.perturbation import KINDS, perturb, perturbation_target
from identiscope.papers.memory import check_memory
from identiscope.papers.structure_draft.perturbation import perturbation_effects
from identiscope.papers.structure_draft.reversal_model import ReversalModel, reversal_inputs, reversal_samples
from identiscope.progress import Progress
from identiscope.results import make_result

#: Thresholds l of Cut_l to show; the draft calls 0.4 a good approximation of the best.
THRESHOLDS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.9)
#: How far along its own way each noise is followed.
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
PUBLISHED = "antidiagonal map at length 20, 0.99 test accuracy, l = 0.4 a good approximation of the optimal threshold"


def reversal_texts(model: ReversalModel, count: int, *, seed: int) -> list[dict[str, Tensor]]:
    """Random sequences, each alone, as `trace` and `substitute` take them."""
    return [reversal_inputs(model, ids) for ids in reversal_samples(model.config, count, seed=seed)]


def reversal_structure(
    model: ReversalModel, *, samples: int = 100, thresholds: Sequence[float] = THRESHOLDS, seed: int = 0
) -> xr.Dataset:
    """Fig. 1 and Fig. 2 of the draft: one map, and W over thresholds from the mean of 100 samples' maps.

    >>> result = reversal_structure(model)
    >>> result.example, result.weights.sel(threshold=0.4), result.attrs["pattern"]

    The samples are random sequences, as the draft's are, so that none is more representative than another. `cells`,
    `empty_rows` and `antidiagonal_weight` [threshold] say how many cells W keeps, how many rows lose all, and how much
    of W lies on the antidiagonal; `offset_share` [offset] is the mean attention that much to the right of it.
    """
    if samples < 1 or not len(thresholds):
        raise InputError(f"{samples} samples and {len(thresholds)} thresholds were asked for; expected one at least.")
    # The maps in float64, at every threshold, and what a pass over all of them holds.
    length, tokens = model.config.length, model.config.vocabulary
    check_memory(
        8 * samples * length * (length * (2 + len(thresholds)) + tokens), f"maps of {samples} sequences of {length}"
    )
    traces: Any = trace(load(model), reversal_inputs(model, reversal_samples(model.config, samples, seed=seed)))
    traces = traces if isinstance(traces, list) else [traces]
    extracted = extract_structure(traces, layout="absolute").isel(layer=0, head=0)
    maps = [one.site(0).attention(0) for one in traces]
    weights = np.stack([structure_extraction(maps, threshold).numpy() for threshold in thresholds])
    mean = torch.stack(maps).mean(0).numpy()
    length = model.config.length
    # Offset o: the cell (i, n − 1 − i + o), o to the right of the antidiagonal.
    offsets = np.arange(-min(3, length - 1), min(3, length - 1) + 1)
    shares = [float(np.trace(mean[:, ::-1], offset=-offset)) / length for offset in offsets]
    return make_result(
        "reversal_structure",
        {
            "example": (("query", "key"), maps[0]),
            "mean": (("query", "key"), mean),
            "weights": (("threshold", "query", "key"), weights),
            "cells": (("threshold",), (weights > 0).mean((1, 2))),
            "empty_rows": (("threshold",), (weights.sum(2) == 0).mean(1)),
            "antidiagonal_weight": (("threshold",), [_on_antidiagonal(one) for one in weights]),
            "offset_share": (("offset",), shares),
        },
        coordinates={
            "threshold": list(thresholds), "offset": offsets,
            "query_token": ("query", list(traces[0].streams["decoder"].tokens)),
            "key_token": ("key", list(traces[0].streams["encoder"].tokens)),
        },
        provenance=texts_provenance(load(model), [text_digest(one) for one in traces], samples=samples, seed=seed,
                                    thresholds=thresholds) | {
            "samples": samples, "seed": seed, "length": length, "vocabulary": model.config.vocabulary,
            "pattern": str(extracted["pattern"].values), "recommended": float(extracted["recommended"]),
            "stable_from": float(extracted["stable_from"]), "stable_to": float(extracted["stable_to"]),
            "reason": str(extracted["reason"].values), "published": PUBLISHED,
        },
    )  # fmt: skip


def _on_antidiagonal(weights: np.ndarray) -> float:
    total = float(weights.sum())
    return float(np.trace(weights[:, ::-1])) / total if total > 0 else float("nan")


def reversal_perturbations(
    model: ReversalModel,
    *,
    samples: int = 100,
    texts: int = 20,
    sets: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
) -> xr.Dataset:
    """`perturbation_effects` on this model: the structure from some samples, the perturbations on others.

    Outcomes in which no perturbation changed anything are left out and named in `unchanged`: the hidden states, which
    here come before the attention, and the tokens written, where the noise is too small to change one.
    """
    structure = _structure(model, samples, seed)
    others = reversal_texts(model, texts, seed=seed + 1)
    result = perturbation_effects(model, others, 0, 0, structure=structure, sets=sets, seed=seed, progress=progress)
    moved = (result["effect"] != 0).any(("text", "set", "noise"))
    names = result["outcome"].values
    kept = [str(name) for name in names if bool(moved.sel(outcome=name))]
    return result.sel(outcome=kept).assign_attrs(unchanged=[str(name) for name in names if str(name) not in kept])


def reversal_damage(
    model: ReversalModel,
    *,
    samples: int = 100,
    texts: int = 20,
    shares: Sequence[float] = SHARES,
    epsilon: float = 0.01,
    seed: int = 0,
    progress: Progress | None = None,
) -> xr.Dataset:
    """How many tokens are still written right as each kind of noise grows, all the way it can go on the simplex.

    `accuracy`, `size` (Frobenius) and `structure_distance` (‖·‖_S with W + epsilon) are [noise, share], means over
    texts. Noise that keeps the structure can only go as far as the weight off it reaches: where it ends, say its size,
    and compare `break` at the same size with `reversal_perturbations`.
    """
    if texts < 1 or not len(shares) or not all(0 < share <= 1 for share in shares):
        raise InputError(f"{texts} texts and shares {list(shares)} were given; expected one text, and shares up to 1.")
    structure = _structure(model, samples, seed)
    rows = np.zeros((3, texts, len(KINDS), len(shares)))
    digests: list[str] = []
    for number, text in enumerate(reversal_texts(model, texts, seed=seed + 1)):
        traced: Any = trace(load(model), text)
        digests.append(text_digest(traced))
        raw, cells = traced.site(0).attention(0), structure_cells(structure, traced, 0, 0)
        weights = torch.from_numpy(structure["structure"].isel(layer=0, head=0).values) + epsilon
        goal = text["input_ids"][0].flip(0)
        generator = torch.Generator().manual_seed(seed + number)
        for place, kind in enumerate(KINDS):
            target = perturbation_target(raw, cells, kind, generator=generator)
            reach = float(torch.linalg.matrix_norm(target - raw))
            for step, share in enumerate(shares):
                made = perturb(raw, target, kind, share * reach)
                logits = substitute(model, text, {(0, 0): made.attention}).logits
                assert logits is not None
                rows[:, number, place, step] = (
                    float((logits.argmax(-1) == goal).double().mean()),
                    made.size,
                    float(structure_distance(made.attention, raw, weights).structure),
                )
        if progress is not None:
            progress(number + 1, texts)
    means = rows.mean(1)
    return make_result(
        "reversal_damage",
        {
            name: (("noise", "share"), values)
            for name, values in zip(("accuracy", "size", "structure_distance"), means, strict=True)
        },
        coordinates={"noise": list(KINDS), "share": list(shares)},
        provenance=texts_provenance(load(model), digests, samples=samples, shares=shares, epsilon=epsilon, seed=seed)
        | {"samples": samples, "epsilon": epsilon, "seed": seed},
    )


def _structure(model: ReversalModel, samples: int, seed: int) -> xr.Dataset:
    traces: Any = trace(load(model), reversal_inputs(model, reversal_samples(model.config, samples, seed=seed)))
    return extract_structure(traces if isinstance(traces, list) else [traces], layout="absolute")
