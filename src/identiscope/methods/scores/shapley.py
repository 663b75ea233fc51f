"""Shapley values of tokens."""

from math import comb

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.outcome_runs import Values
from identiscope.methods.scores.answer import Score
from identiscope.progress import Progress

#: Texts that are run at a time.
_AT_A_TIME = 64
#: For orders that are drawn.
_PASSES = 300


def shapley(
    answer: Values,
    embeddings: Tensor,
    baseline: Tensor,
    *,
    exact: int = 12,
    budget: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Score:
    """s_i = mean over all orders of F(those before i, and i) − F(those before i) (Shapley 1953; Lundberg & Lee 2017).

    Tokens that are not there are replaced by the baseline. Those that it leaves as they are take no part, and score
    zero. The scores add up to F(x) − F(baseline). Up to `exact` tokens, all 2ⁿ texts are run, if the budget allows it;
    otherwise orders are drawn, each with its reverse, and scores come with a standard error.

    exact: at most so many tokens are done exactly. budget: at most so many passes; without, 300 for drawn orders. seed:
    of these.

    >>> shapley(lambda x: x.sum((1, 2)), torch.tensor([[2.0], [3.0]]), torch.zeros(2, 1)).score
    tensor([2., 3.], dtype=torch.float64)
    """
    players = (embeddings != baseline).any(-1).nonzero().flatten().tolist()
    if not 1 <= exact <= 20:
        raise InputError(f"exact={exact} was given; expected 1 to 20 tokens: 2ⁿ texts are run.")
    score = torch.zeros(len(embeddings), dtype=torch.float64)
    if not players:
        return Score(score, whole=0.0)

    done, count = 0, len(players)
    everything = count <= exact and (budget is None or 2**count <= budget)
    passes = _PASSES if budget is None else budget
    total = 2**count if everything else passes

    def values(kept: Tensor) -> Tensor:
        """The outcome with only some players there, [text, player] → [text]."""
        answers = []
        for some in kept.split(_AT_A_TIME):
            there = torch.zeros(len(some), len(embeddings), dtype=torch.bool, device=embeddings.device)
            there[:, players] = some.to(embeddings.device)
            answers.append(answer(torch.where(there[..., None], embeddings, baseline)).double().cpu())
            if progress is not None:
                nonlocal done
                done += len(some)
                progress(min(done, total), total)
        return torch.cat(answers)

    if everything:
        kept = (torch.arange(2**count)[:, None] >> torch.arange(count)) % 2 == 1
        worth = values(kept)
        score[players] = _exactly(worth, count)
        return Score(score, whole=float(worth[-1] - worth[0]), said={"sampled": False})
    mean, error, whole, orders = _drawn(values, count, passes, seed)
    score[players] = mean
    errors = torch.zeros_like(score)
    errors[players] = error
    return Score(score, errors, whole=whole, said={"sampled": True, "orders": orders})


def _exactly(worth: Tensor, count: int) -> Tensor:
    """Shapley values from the worth of every set, numbered by its bits."""
    numbers = torch.arange(len(worth))
    sizes = sum((numbers >> player) % 2 for player in range(count))
    weights = torch.tensor([1 / (count * comb(count - 1, size)) for size in range(count)], dtype=torch.float64)
    shares = []
    for player in range(count):
        without = numbers[(numbers >> player) % 2 == 0]
        gained = worth[without + 2**player] - worth[without]
        shares.append((weights[sizes[without]] * gained).sum())  # type: ignore[index]
    return torch.stack(shares)


def _drawn(values: Values, count: int, budget: int, seed: int) -> tuple[Tensor, Tensor, float, int]:
    """Mean gain over drawn orders and their reverses, its standard error, what all gain together, and how many."""
    ends = values(torch.stack([torch.zeros(count, dtype=torch.bool), torch.ones(count, dtype=torch.bool)]))
    # An order and its reverse take count − 1 texts each, beside the two that all share.
    pairs = (budget - 2) // (2 * (count - 1))
    if pairs < 2:
        raise InputError(
            f"budget={budget} was given; {count} tokens need at least {4 * (count - 1) + 2} passes for two pairs of"
            " orders. Allow more, or give a shorter text."
        )
    generator = torch.Generator().manual_seed(seed)
    gains = []
    for _ in range(pairs):
        order = torch.randperm(count, generator=generator)
        both = []
        for one in (order, order.flip(0)):
            place = torch.empty_like(one)
            place[one] = torch.arange(count)
            kept = place[None] < torch.arange(1, count)[:, None]
            worth = torch.cat([ends[:1], values(kept), ends[1:]])
            gained = torch.empty(count, dtype=torch.float64)
            gained[one] = worth.diff()
            both.append(gained)
        gains.append((both[0] + both[1]) / 2)
    every = torch.stack(gains)
    return every.mean(0), every.std(0) / pairs**0.5, float(ends[1] - ends[0]), pairs
