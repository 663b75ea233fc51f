"""Maps of the same output whose logits keep a low rank: queries and keys moved together."""

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, lsmr
from torch import Tensor

from identiscope.errors import MathError
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.tolerance import NEWTON_ACCEPTED, NEWTON_FINISHED

_MOVES = 8
_CORRECTIONS = 12


def move_logits(basis: Tensor, rows: Tensor, rank: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries [query, rank], keys [key, rank], the new map and its residual ‖a'·basis − a·basis‖ per row.

    From the queries and keys of the map itself, a random direction is projected on the tangent space of the
    maps with this output, a step taken, and Gauss–Newton brings it back to the output; both solve their least
    squares with products only, by SciPy on the CPU.
    """
    device = basis.device
    basis, rows = on_cpu(basis), on_cpu(rows)
    queries, keys = rows.shape
    free = rank * (queries + keys - 1 - rank) - queries * basis.shape[1]
    if free <= 0:
        raise MathError(
            f"logits of rank {rank} for {queries} queries and {keys} keys have {-free} dimensions fewer than the "
            f"output fixes (a T of centred rank {basis.shape[1]}); no other map is expected to exist near this one"
        )
    total = rows.sum(1, keepdim=True)
    logits = (rows / total).log()
    logits = logits - logits.mean(1, keepdim=True)
    left, sizes, right = torch.linalg.svd(logits, full_matrices=False)
    if float(sizes[rank:].norm()) > 1e-3 * float(sizes.norm()):
        raise MathError(
            f"the logits of this map do not have rank {rank}: their singular value {rank + 1} is "
            f"{float(sizes[rank]):.3g} of {float(sizes[0]):.3g}; give the number of key channels of the model "
            "(a position bias added to the logits is not supported)"
        )
    root = sizes[:rank].sqrt()
    query, key = left[:, :rank] * root, right[:rank].mT * root
    goal = rows @ basis
    query, key, _ = _correct(basis, goal, total, query, key)
    generator = torch.Generator().manual_seed(seed)
    step = 0.5
    for _ in range(_MOVES):
        wanted = torch.randn(queries + keys, rank, generator=generator, dtype=torch.float64)
        operator = _jacobian(basis, total, query, key)
        flat = wanted.numpy().ravel()
        back = lsmr(operator, operator @ flat, atol=1e-10, btol=1e-10)[0]
        move = torch.from_numpy(flat - back).view_as(wanted)
        move = step * move * (torch.cat([query, key]).norm() / move.norm())
        tried = _correct(basis, goal, total, query + move[:queries], key + move[queries:])
        if tried[2] <= NEWTON_ACCEPTED:
            query, key = tried[0], tried[1]
        else:
            step /= 2
    attention = total * (query @ key.mT).softmax(1)
    residual = (attention @ basis - goal).norm(dim=1)
    return query.to(device), key.to(device), attention.to(device), residual.to(device)


def _correct(basis: Tensor, goal: Tensor, total: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
    """Gauss–Newton steps of least norm back to the output; the largest residual of a row, relative."""
    error = float("inf")
    for _ in range(_CORRECTIONS):
        residual = total * (query @ key.mT).softmax(1) @ basis - goal
        now = float((residual.norm(dim=1) / total[:, 0]).max())
        if now <= 10 * NEWTON_FINISHED or now > 4 * error or not np.isfinite(now):
            return query, key, now
        error = now
        operator = _jacobian(basis, total, query, key)
        step = lsmr(operator, -residual.numpy().ravel(), atol=1e-12, btol=1e-12, maxiter=4000)[0]
        change = torch.from_numpy(step).view(-1, query.shape[1])
        query, key = query + change[: len(query)], key + change[len(query) :]
    residual = total * (query @ key.mT).softmax(1) @ basis - goal
    return query, key, float((residual.norm(dim=1) / total[:, 0]).max())


def _jacobian(basis: Tensor, total: Tensor, query: Tensor, key: Tensor) -> LinearOperator:
    """Derivative of the output in queries and keys, as products with it and with its transpose."""
    queries, rank = query.shape
    weights = (query @ key.mT).softmax(1)

    def through_softmax(change: Tensor) -> Tensor:
        moved = weights * change
        return total * (moved - weights * moved.sum(1, keepdim=True))

    def forward(flat: np.ndarray) -> np.ndarray:
        change = torch.from_numpy(np.ascontiguousarray(flat, dtype=np.float64)).view(-1, rank)
        logits = change[:queries] @ key.mT + query @ change[queries:].mT
        out: np.ndarray = (through_softmax(logits) @ basis).numpy().ravel()
        return out

    def backward(flat: np.ndarray) -> np.ndarray:
        change = torch.from_numpy(np.ascontiguousarray(flat, dtype=np.float64)).view(queries, -1)
        logits = through_softmax(change @ basis.mT)
        out: np.ndarray = torch.cat([logits @ key, logits.mT @ query]).numpy().ravel()
        return out

    shape = (queries * basis.shape[1], (queries + len(key)) * rank)
    return LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=np.float64)
