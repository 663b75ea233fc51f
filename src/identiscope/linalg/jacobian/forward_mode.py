"""Forward-mode derivatives from any thread.

PyTorch has one level of forward differentiation for all threads: who leaves it takes the tangents of everyone else
along. So there is one thread at a time, in the order they came, and what comes out is checked to be whole.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar

import torch
from torch import Tensor
from torch._functorch import eager_transforms
from torch.autograd import forward_ad

from identiscope.errors import MathError

Function = Callable[[Tensor], Sequence[Tensor]]

_WAITING: ContextVar[Callable[[], None] | None] = ContextVar("identiscope_waiting", default=None)
#: How often, in seconds, a thread that waits looks up.
_PATIENCE = 0.1


class _Ticket:
    """A thread's place in the queue."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.called = threading.Event()


# The first has its turn.
_QUEUE: deque[_Ticket] = deque()


@contextmanager
def told_of_waiting(tell: Callable[[], None]) -> Iterator[None]:
    """Inside the block, `tell` is called ten times a second while another thread's derivatives are waited for.

    What it raises ends the wait.

    >>> with told_of_waiting(lambda: print("waiting for another attribution")):
    ...     hidden_token_attribution(replay, embeddings)
    """
    token = _WAITING.set(tell)
    try:
        yield
    finally:
        _WAITING.reset(token)


def push_forward(function: Function, point: Tensor, tangent: Tensor) -> tuple[Tensor, ...]:
    """The derivatives of all outputs of a function at `point`, along one tangent.

    >>> push_forward(lambda x: (x, x**2), torch.tensor([3.0]), torch.tensor([1.0]))
    (tensor([1.]), tensor([6.]))
    """
    return _pushed(_along(function, point), tangent)


def push_together(
    function: Callable[..., Sequence[Tensor]], points: Sequence[Tensor], tangents: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The derivatives of all outputs of a function of several tensors, each moving along its own tangent."""
    sizes = [point.numel() for point in points]

    def joined(flat: Tensor) -> Sequence[Tensor]:
        pieces = zip(flat.split(sizes), points, strict=True)
        return function(*(piece.reshape(point.shape) for piece, point in pieces))

    with torch.no_grad():
        flat, along = (torch.cat([one.flatten() for one in some]) for some in (points, tangents))
        return push_forward(joined, flat, along)


def push_each(function: Function, point: Tensor, tangents: Tensor, outputs: Sequence[int]) -> tuple[Tensor, ...]:
    """The derivatives of some outputs, by number, along each of `tangents` [tangent, ...]; without a gradient."""

    def along(tangent: Tensor) -> tuple[Tensor, ...]:
        pushed = _along(function, point)(tangent)
        return (*(pushed[number] for number in outputs), pushed[-1])

    # Some models draw random numbers they do not use; the same for all tangents is then as good as any.
    with torch.no_grad():
        return _pushed(torch.func.vmap(along, randomness="same"), tangents)


def _along(function: Function, point: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """From a tangent to the derivatives of all outputs, and behind them that of the input, which is the tangent."""

    def along(tangent: Tensor) -> tuple[Tensor, ...]:
        pushed: tuple[Tensor, ...] = torch.func.jvp(lambda x: (*function(x), x), (point,), (tangent,))[1]
        return pushed

    return along


def _pushed(push: Callable[[Tensor], tuple[Tensor, ...]], tangents: Tensor) -> tuple[Tensor, ...]:
    with _turn():
        try:
            *derivatives, given = push(tangents)
        except (RuntimeError, NotImplementedError) as error:
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            raise MathError(f"no forward-mode derivatives could be taken: torch said: {said[:300]}") from error
    if not torch.equal(given, tangents):
        raise MathError(
            "another part of this program used forward-mode derivatives (torch.func.jvp, torch.autograd.forward_ad) at"
            " the same time; PyTorch has one level of them for all threads, and what was computed here is lost. Do one"
            " after the other."
        )
    return tuple(derivatives)


@contextmanager
def _turn() -> Iterator[None]:
    """One thread at a time, in the order they came. Waiting can be interrupted; a thread that died has no turn."""
    mine = _Ticket()
    if any(ticket.thread is mine.thread for ticket in tuple(_QUEUE)):
        yield  # a derivative inside a derivative
        return
    try:
        _QUEUE.append(mine)
        while (first := _QUEUE[0]) is not mine:
            if not first.thread.is_alive():
                _leave(first)
            elif not mine.called.wait(_PATIENCE) and (tell := _WAITING.get()) is not None:
                tell()
        with _levels_as_before():
            yield
    finally:
        _leave(mine)


def _leave(ticket: _Ticket) -> None:
    with suppress(ValueError):
        _QUEUE.remove(ticket)
    with suppress(IndexError):
        _QUEUE[0].called.set()


@contextmanager
def _levels_as_before() -> Iterator[None]:
    """An interrupt may come while torch counts its levels, which then would be off for good."""
    nesting, level = eager_transforms.JVP_NESTING, forward_ad._current_level
    try:
        yield
    finally:
        eager_transforms.JVP_NESTING = nesting
        while forward_ad._current_level > level:
            forward_ad.exit_dual_level()
