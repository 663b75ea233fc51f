"""Shapley values by a weighted regression."""

from math import comb

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.outcome_runs import Values
from identiscope.methods.scores.answer import Score
from identiscope.progress import Progress

#: Texts that are run at a time, and parts into which they are drawn for an error bar.
_AT_A_TIME, _PARTS = 64, 8


def kernel_shap(
    answer: Values,
    embeddings: Tensor,
    baseline: Tensor,
    *,
    budget: int = 300,
    seed: int = 0,
    progress: Progress | None = None,
) -> Score:
    """The additive function of tokens that fits F best on subsets, weighted so that its terms are Shapley values.

    Lundberg & Lee 2017, theorem 2: weights (n − 1) / (C(n, k)·k·(n − k)) for subsets of k of n tokens, and the sum is
    held at F(x) − F(baseline). Where the budget allows all 2ⁿ subsets, they are run, and the terms are Shapley values
    exactly. Otherwise subsets are drawn in proportion to the weights, each with its complement (Covert & Lee 2021); the
    standard error is a jackknife over eight parts of the draw.

    budget: at most so many passes. seed: of the subsets.

    >>> kernel_shap(lambda x: x.sum((1, 2)), torch.tensor([[2.0], [3.0]]), torch.zeros(2, 1)).score
    tensor([2.0000, 3.0000], dtype=torch.float64)
    """
    players = (embeddings != baseline).any(-1).nonzero().flatten().tolist()
    count = len(players)
    score, errors = torch.zeros(2, len(embeddings), dtype=torch.float64)
    if count == 0:
        return Score(score, whole=0.0)
    ends = answer(torch.stack([baseline, embeddings])).double().cpu()
    whole = float(ends[1] - ends[0])
    if count == 1:
        score[players[0]] = whole
        return Score(score, errors, whole=whole)
    everything = 2**count <= budget
    pairs = 2 ** (count - 1) - 1 if everything else (budget - 2) // 2 // _PARTS * _PARTS
    if not everything and pairs < max(count, _PARTS * 2):
        raise InputError(
            f"budget={budget} was given; {count} tokens need at least {2 * max(count + _PARTS, 2 * _PARTS) + 2} passes."
        )
    kept = _halves(count) if everything else _subsets(count, pairs, seed)
    worth = []
    for some in torch.cat([kept, ~kept]).split(_AT_A_TIME):
        there = torch.zeros(len(some), len(embeddings), dtype=torch.bool, device=embeddings.device)
        there[:, players] = some.to(embeddings.device)
        worth.append(answer(torch.where(there[..., None], embeddings, baseline)).double().cpu())
        if progress is not None:
            progress(sum(map(len, worth)), 2 * pairs)
    gains = torch.cat(worth) - ends[0]
    every = torch.cat([kept, ~kept]).double()
    if everything:
        score[players] = _fitted(every, gains, whole, _kernel(every))
        return Score(score, errors, whole=whole, said={"subsets": 2 * pairs, "sampled": False})
    score[players] = _fitted(every, gains, whole)
    part = torch.arange(pairs).remainder(_PARTS).repeat(2)
    left_out = torch.stack([_fitted(every[part != one], gains[part != one], whole) for one in range(_PARTS)])
    errors[players] = ((left_out - left_out.mean(0)).square().sum(0) * (_PARTS - 1) / _PARTS).sqrt()
    return Score(score, errors, whole=whole, said={"subsets": 2 * pairs, "sampled": True})


def _subsets(count: int, pairs: int, seed: int) -> Tensor:
    """Subsets [pair, token], their sizes drawn by the kernel, which is the same for a size and its complement's."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.arange(1, count)
    weights = torch.tensor([(count - 1) / (k * (count - k)) for k in sizes.tolist()], dtype=torch.float64)
    drawn = sizes[torch.multinomial(weights, pairs, replacement=True, generator=generator)]
    order = torch.rand(pairs, count, generator=generator, dtype=torch.float64).argsort(1).argsort(1)
    return order < drawn[:, None]


def _halves(count: int) -> Tensor:
    """One of every subset and its complement, [pair, token], but for the empty one: those without the last token."""
    numbers = torch.arange(1, 2 ** (count - 1))
    return (numbers[:, None] >> torch.arange(count)) % 2 == 1


def _kernel(kept: Tensor) -> Tensor:
    """The weight of each subset [subset, token]."""
    count = kept.shape[1]
    sizes = kept.sum(1).long().tolist()
    return kept.new_tensor([(count - 1) / (comb(count, size) * size * (count - size)) for size in sizes])


def _fitted(kept: Tensor, gains: Tensor, whole: float, weights: Tensor | None = None) -> Tensor:
    """Least squares with the sum of the coefficients held: those of the last token follow from the others'."""
    reduced = kept[:, :-1] - kept[:, -1:]
    target = gains - kept[:, -1] * whole
    if weights is not None:
        reduced, target = weights.sqrt()[:, None] * reduced, weights.sqrt() * target
    fit = torch.linalg.lstsq(reduced, target[:, None], driver="gelsd")
    if int(fit.rank) < reduced.shape[1]:
        raise InputError(
            f"{len(kept)} drawn subsets do not tell {kept.shape[1]} tokens apart: allow more passes (budget), or give"
            " another seed."
        )
    solution = fit.solution[:, 0]
    return torch.cat([solution, (whole - solution.sum())[None]])
