"""Attributions of several threads are those of each alone."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

import families
import identiscope
from identiscope.errors import MathError
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution
from identiscope.progress import Listener
from identiscope.reports.live import live
from identiscope.views.server.questions import Question


def attributed(model: torch.nn.Module, ids: list[int], fast: bool) -> Any:
    trace = identiscope.trace(model, ids)
    return identiscope.hidden_token_attribution(trace, mode="estimate", probes=4, fast=fast).contribution.values


@pytest.mark.parametrize("fast", [True, False], ids=["blocks", "replay"])
@pytest.mark.parametrize("shared", [True, False], ids=["one model", "three models"])
def test_side_by_side(shared: bool, fast: bool) -> None:
    models = [families.ALL["BERT"].model()] * 3 if shared else [families.ALL["BERT"].model() for _ in range(3)]
    texts = [families.TEXT[start:] for start in range(3)]
    expected = [attributed(models[0], ids, fast) for ids in texts]
    together = threading.Barrier(3)

    def work(number: int) -> list[Any]:
        together.wait(60)
        return [attributed(models[number], ids, fast) for _ in range(2) for ids in texts]

    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(work, range(3)):
            for one, two in zip(found, expected * 2, strict=True):
                assert one.tobytes() == two.tobytes()


def test_a_derivative_that_is_no_number_is_no_result() -> None:
    def root(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x.abs().sqrt()

    with pytest.raises(MathError, match=r"layer 0, token 1, with respect to input token 0 is infinite or no number"):
        hidden_token_attribution(root, torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    # What the model itself says is no number is passed on.
    found = hidden_token_attribution(lambda x: (x, x / 0 * 0), torch.ones(2, 2))
    assert found.norm.isnan().all()


def test_a_server_says_that_it_waits_and_can_be_cancelled_meanwhile(tmp_path: Any) -> None:
    import tiny_text_model

    model = identiscope.load(tiny_text_model.save_tiny(tmp_path, "MPNetModel"))
    compute = live([model])
    question = Question(0, tiny_text_model.words(8), methods=("attribution",), directions=2)
    expected = compute(question, lambda *news: None)
    arrived, go_on, pages = threading.Event(), threading.Event(), []

    def hold(module: Any, args: Any, output: Any) -> None:
        if threading.current_thread() is first and torch._C._functorch.peek_interpreter_stack() is not None:
            arrived.set()
            assert go_on.wait(60)

    class Stop(BaseException):
        pass

    class Stopping(Listener):
        def doing(self, words: str) -> None:
            if words == "waiting for another attribution":
                raise Stop

    first = threading.Thread(target=lambda: pages.append(compute(question, lambda *news: None)))
    handle = model.module.get_submodule("encoder.layer.0").register_forward_hook(hold)
    first.start()
    try:
        assert arrived.wait(60)
        with pytest.raises(Stop):
            compute(question, Stopping())
    finally:
        go_on.set()
        first.join(60)
        handle.remove()
    assert pages == [expected]
