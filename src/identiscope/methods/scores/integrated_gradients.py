"""Integrated gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.quadrature import gauss_legendre
from identiscope.methods.outcome_runs import Gradients, Values
from identiscope.methods.scores.answer import Score
from identiscope.progress import Progress

#: Pieces of the way at first, points in each, and pieces that are halved at a time.
_FIRST, _POINTS, _HALVED = 4, 3, 4
#: Passes that a piece takes: a gradient is three.
_COST = 3 * _POINTS


@dataclass(frozen=True, eq=False)
class _Piece:
    """A piece of the way from baseline to text: its ends, the outcome there, and its part of the integral [input]."""

    begin: float
    end: float
    gained: float
    score: Tensor

    @property
    def residual(self) -> float:
        """By how much its part of the integral misses what the outcome gains along it, which is known exactly."""
        return float(self.score.sum()) - self.gained


def integrated_gradients(
    gradient: Gradients,
    answer: Values,
    embeddings: Tensor,
    baseline: Tensor,
    *,
    tolerance: float = 0.01,
    budget: int = 1000,
    progress: Progress | None = None,
) -> Score:
    """s_i = (x_i − b_i) · ∫₀¹ ∂F(b + α·(x − b))/∂x_i dα, from a baseline b (Sundararajan et al. 2017, eq. 1).

    They add up to F(x) − F(b) but for the integral. What F gains along any piece of the way is known, so that the
    pieces that are off the most are halved until their residuals together are within the tolerance, or the budget is
    spent; the `residual` says how far off the sum is, `piecewise_residual` the sum of those of all pieces, none hiding
    another.

    tolerance: of the piecewise residual, as a share of |F(x) − F(b)|. budget: at most so many passes, a gradient being
    three.

    >>> square, values = lambda x: (x.square().sum((1, 2)), 2 * x), lambda x: x.square().sum((1, 2))
    >>> integrated_gradients(square, values, torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1)).score
    tensor([1.0000, 9.0000], dtype=torch.float64)
    """
    least = _FIRST * (_COST + 1) + 1
    if not tolerance > 0 or budget < least:
        raise InputError(
            f"tolerance={tolerance} and budget={budget} were given; expected a positive share, and at least {least}"
            " passes."
        )
    path = embeddings - baseline
    points, weights = gauss_legendre(_POINTS)
    known: dict[float, float] = {}

    def at(factors: list[float]) -> Tensor:
        steps = torch.tensor(factors, dtype=torch.float64).to(embeddings)
        return baseline + steps[:, None, None] * path

    def integrated(cuts: list[tuple[float, float]]) -> list[_Piece]:
        new = sorted({end for cut in cuts for end in cut} - known.keys())
        if new:
            known.update(zip(new, answer(at(new)).double().tolist(), strict=True))
        _, slopes = gradient(at([begin + (end - begin) * point for begin, end in cuts for point in points]))
        along = (path.double() * slopes.double()).sum(-1).view(len(cuts), _POINTS, -1)
        shares = torch.tensor(weights, dtype=torch.float64).to(along.device)
        means = torch.einsum("p,cpi->ci", shares, along)
        return [
            _Piece(begin, end, known[end] - known[begin], (end - begin) * mean)
            for (begin, end), mean in zip(cuts, means, strict=True)
        ]

    pieces = integrated([(place / _FIRST, (place + 1) / _FIRST) for place in range(_FIRST)])
    whole, spent = known[1.0] - known[0.0], least
    while True:
        off = sum(abs(piece.residual) for piece in pieces)
        if progress is not None:
            progress(min(spent, budget), budget)
        halved = min(_HALVED, len(pieces), (budget - spent) // (2 * _COST + 1))
        if off <= tolerance * abs(whole) or halved < 1:
            score = torch.stack([piece.score for piece in pieces]).sum(0)
            said = {"points": _POINTS * len(pieces), "piecewise_residual": off}
            return Score(score, whole=whole, said=said)
        pieces.sort(key=lambda piece: -abs(piece.residual))
        worst, rest = pieces[:halved], pieces[halved:]
        middles = [(piece.begin + piece.end) / 2 for piece in worst]
        cuts = [
            cut
            for piece, middle in zip(worst, middles, strict=True)
            for cut in ((piece.begin, middle), (middle, piece.end))
        ]
        pieces = rest + integrated(cuts)
        spent += halved * (2 * _COST + 1)
