"""Forward-mode derivatives of several threads at once are those of each alone, or an error, and never other numbers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from identiscope.errors import MathError
from identiscope.linalg.jacobian.forward_mode import push_each, push_forward, told_of_waiting

POINT = torch.linspace(-1, 2, 12, dtype=torch.float64).view(3, 4)
TANGENTS = torch.linspace(0, 1, 60, dtype=torch.float64).view(5, 3, 4)


def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x, x.sin(), (x @ x.T).exp()


def by_hand(tangent: Tensor) -> list[Tensor]:
    product = (POINT @ POINT.T).exp()
    return [tangent, POINT.cos() * tangent, product * (tangent @ POINT.T + POINT @ tangent.T)]


def test_derivatives() -> None:
    for found, expected in zip(push_forward(function, POINT, TANGENTS[1]), by_hand(TANGENTS[1]), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)
    pushed = push_each(function, POINT, TANGENTS, [2, 0])
    for number, tangent in enumerate(TANGENTS):
        torch.testing.assert_close(pushed[0][number], by_hand(tangent)[2], rtol=1e-13, atol=0)
        assert torch.equal(pushed[1][number], tangent)


@contextmanager
def inside(push: Any = push_forward) -> Iterator[list[Any]]:
    """Another thread is inside a derivative during the block; what came of it is in the list afterwards."""
    arrived, go_on, ends = threading.Event(), threading.Event(), []

    def slow(x: Tensor) -> tuple[Tensor, ...]:
        once = function(x)
        arrived.set()
        assert go_on.wait(60)
        return once

    def run() -> None:
        try:
            ends.append(push(slow, POINT, TANGENTS[1]))
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert arrived.wait(60)
        yield ends
    finally:
        go_on.set()
        thread.join(60)


def test_a_second_thread_waits_and_is_told_so() -> None:
    told: list[str] = []
    later: list[Any] = []
    with inside() as ends:

        def wait_and_push() -> None:
            with told_of_waiting(lambda: told.append("waiting")):
                later.append(push_forward(function, POINT, TANGENTS[2]))

        second = threading.Thread(target=wait_and_push)
        second.start()
        while len(told) < 2:
            pass
        assert ends == later == []
    second.join(60)
    for number, found in ((1, ends[0]), (2, later[0])):
        for one, expected in zip(found, by_hand(TANGENTS[number]), strict=True):
            torch.testing.assert_close(one, expected, rtol=1e-13, atol=0)


def test_waiting_ends_by_what_tells_of_it() -> None:
    class Stop(BaseException):
        pass

    def stop() -> None:
        raise Stop

    with inside() as ends, pytest.raises(Stop), told_of_waiting(stop):
        push_forward(function, POINT, TANGENTS[2])
    assert torch.equal(ends[0][0], TANGENTS[1])
    # Nobody waits any more.
    assert torch.equal(push_forward(function, POINT, TANGENTS[0])[0], TANGENTS[0])


def test_a_thread_that_died_in_its_turn_is_passed_over() -> None:
    from identiscope.linalg.jacobian import forward_mode

    thread = threading.Thread(target=lambda: forward_mode._QUEUE.append(forward_mode._Ticket()))
    thread.start()
    thread.join()
    assert len(push_forward(function, POINT, TANGENTS[0])) == 3
    assert not forward_mode._QUEUE


def test_a_derivative_inside_a_derivative() -> None:
    def outer(x: Tensor) -> tuple[Tensor]:
        return (push_forward(lambda y: (y**3,), x, torch.ones_like(x))[0],)

    found = push_forward(outer, POINT, torch.ones_like(POINT))[0]
    torch.testing.assert_close(found, 6 * POINT, rtol=1e-13, atol=0)


def test_derivatives_that_somebody_else_took_away_are_an_error() -> None:
    """Without going through here, another thread leaves the level that this one is in: zeros, if nobody looks."""
    with inside() as ends:
        level, forward_ad._current_level = forward_ad._current_level, 0
        torch._C._exit_dual_level(level=0)
        torch._C._enter_dual_level()
        forward_ad._current_level = level
    assert isinstance(ends[0], MathError)
    assert "at the same time" in str(ends[0])


def test_what_torch_refuses_is_said() -> None:
    class Closed(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

    with pytest.raises(MathError, match="no forward-mode derivatives could be taken"):
        push_forward(lambda x: (Closed.apply(x),), POINT, TANGENTS[0])


def test_an_interrupt_between_two_counts_leaves_torch_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = forward_ad.exit_dual_level

    def interrupted(**_: Any) -> None:
        monkeypatch.setattr(forward_ad, "exit_dual_level", leave)
        raise KeyboardInterrupt

    monkeypatch.setattr(forward_ad, "exit_dual_level", interrupted)
    with pytest.raises(KeyboardInterrupt):
        push_forward(function, POINT, TANGENTS[0])
    torch.testing.assert_close(push_forward(function, POINT, TANGENTS[1])[1], by_hand(TANGENTS[1])[1])
