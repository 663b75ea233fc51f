"""Linear probes fitted directly: least squares for the L2 loss, L-BFGS in whitened inputs for the cosine."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.rank.least_squares import cosine_fit, gram, least_squares
from identiscope.methods.tokens.neighbours import Metric
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.probes import Probe, ProbeSet, check_kind
from identiscope.methods.tokens.sentences import Split
from identiscope.methods.tokens.training import validation_rate
from identiscope.progress import Progress, tell

#: Rows read at a time.
PART = 8192


def fit_linear_directly(
    pairs: Pairs,
    splits: Sequence[Split],
    *,
    loss: Metric = "l2",
    ridge: float = 0.0,
    progress: Progress | None = None,
) -> ProbeSet:
    """The linear probe (no bias) of every layer and split at the minimum of its training loss.

    The same loss as `fit_probes` minimises by Adam, without its early stopping. For "l2" this is the closed form:
    Gram matrices are summed once per layer, over the parts of the data that the splits have in common, so that
    all splits cost one pass. ridge, for "l2": see `least_squares`.
    """
    check_kind("linear", loss)
    if ridge and loss != "l2":
        raise InputError("ridge is for the L2 loss; the cosine loss does not see the size of the map.")
    if not splits:
        raise InputError("no split was given; expected at least one.")
    layers = len(pairs.states)
    weights: list[list[Tensor]] = []
    passes = torch.ones(layers, len(splits), dtype=torch.long)
    validation = torch.zeros(layers, len(splits), dtype=torch.float64)
    cells = _common_parts(pairs, splits)
    for layer in range(layers):
        weights.append([])
        for fold, (product, cross) in enumerate(_grams(pairs, layer, cells, len(splits))):
            if loss == "l2":
                weight = least_squares(product, cross, ridge=ridge)
            else:
                fit = cosine_fit(partial(pairs.batches, layer, pairs.train_rows(splits[fold]), PART), product=product)
                weight, passes[layer, fold] = fit.weight, fit.evaluations
            weights[-1].append(weight.to(pairs.states[layer].dtype))
            probe = Probe("linear", loss, {"weight": weights[-1][-1]})
            validation[layer, fold] = validation_rate(probe, pairs, layer, fold, splits[fold])
            done = layer * len(splits) + fold + 1
            tell(progress, f"layer {layer}", done, layers * len(splits))
    stacked = torch.stack([torch.stack(row) for row in weights])
    return ProbeSet("linear", loss, {"weight": stacked}, passes, torch.full_like(validation, torch.nan), validation)


def _common_parts(pairs: Pairs, splits: Sequence[Split]) -> list[tuple[Tensor, list[int]]]:
    """Rows that the same splits train on, with the numbers of those splits."""
    trains = torch.zeros(pairs.sentences.count, len(splits), dtype=torch.bool)
    for fold, split in enumerate(splits):
        trains[split.train, fold] = True
    patterns, which = torch.unique(trains, dim=0, return_inverse=True)
    return [
        (pairs.sentences.rows_with_target((which == number).nonzero().flatten(), pairs.offset), folds)
        for number, pattern in enumerate(patterns)
        if (folds := pattern.nonzero().flatten().tolist())
    ]


def _grams(pairs: Pairs, layer: int, cells: list[tuple[Tensor, list[int]]], folds: int) -> list[tuple[Tensor, Tensor]]:
    width, target_width = pairs.states[layer].shape[1], pairs.target(layer).shape[1]
    products = torch.zeros(folds, width, width, dtype=torch.float64)
    crosses = torch.zeros(folds, width, target_width, dtype=torch.float64)
    for rows, members in cells:
        for hidden, target in pairs.batches(layer, rows, PART):
            product, cross = gram(hidden, target)
            for fold in members:
                products[fold] += product
                crosses[fold] += cross
    return list(zip(products, crosses, strict=True))
