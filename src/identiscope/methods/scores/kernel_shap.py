"""Shapley values by a weighted regression."""

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
    """The additive function of tokens that fits F best on drawn subsets, weighted so that its terms are Shapley values.

    Lundberg & Lee 2017, theorem 2: weights (n − 1) / (C(n, k)·k·(n − k)) for subsets of k of n tokens; subsets are
    drawn in proportion to these, each with its complement (Covert & Lee 2021), and the sum is held at F(x) −
    F(baseline). The standard error is a jackknife over eight parts of the draw.

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
    pairs = (budget - 2) // 2 // _PARTS * _PARTS
    if pairs < max(count, _PARTS * 2):
        raise InputError(
            f"budget={budget} was given; {count} tokens need at least {2 * max(count + _PARTS, 2 * _PARTS) + 2} passes."
        )
    kept = _subsets(count, pairs, seed)
    worth = []
    for some in torch.cat([kept, ~kept]).split(_AT_A_TIME):
        there = torch.zeros(len(some), len(embeddings), dtype=torch.bool, device=embeddings.device)
        there[:, players] = some.to(embeddings.device)
        worth.append(answer(torch.where(there[..., None], embeddings, baseline)).double().cpu())
        if progress is not None:
            progress(sum(map(len, worth)), 2 * pairs)
    gains = torch.cat(worth) - ends[0]
    every = torch.cat([kept, ~kept]).double()
    score[players] = _fitted(every, gains, whole)
    part = torch.arange(pairs).remainder(_PARTS).repeat(2)
    left_out = torch.stack([_fitted(every[part != one], gains[part != one], whole) for one in range(_PARTS)])
    errors[players] = ((left_out - left_out.mean(0)).square().sum(0) * (_PARTS - 1) / _PARTS).sqrt()
    return Score(score, errors, whole=whole, said={"subsets": 2 * pairs})


def _subsets(count: int, pairs: int, seed: int) -> Tensor:
    """Subsets [pair, token], their sizes drawn by the kernel, which is the same for a size and its complement's."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.arange(1, count)
    weights = torch.tensor([(count - 1) / (k * (count - k)) for k in sizes.tolist()], dtype=torch.float64)
    drawn = sizes[torch.multinomial(weights, pairs, replacement=True, generator=generator)]
    order = torch.rand(pairs, count, generator=generator, dtype=torch.float64).argsort(1).argsort(1)
    return order < drawn[:, None]


def _fitted(kept: Tensor, gains: Tensor, whole: float) -> Tensor:
    """Least squares with the sum of the coefficients held: those of the last token follow from the others'."""
    reduced = kept[:, :-1] - kept[:, -1:]
    target = gains - kept[:, -1] * whole
    solution = torch.linalg.lstsq(reduced, target[:, None], driver="gelsd").solution[:, 0]
    return torch.cat([solution, (whole - solution.sum())[None]])
