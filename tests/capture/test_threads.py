"""What a capture, a replay or an attribution does is seen by nobody else: neither another thread nor another task."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import families
import identiscope
from identiscope.capture.blocks import find_blocks
from identiscope.capture.inputs import encode
from identiscope.capture.twin import original, twin

OTHER = [11, 3, 70, 25, 41, 60, 18, 9, 33, 52, 7, 14]


class Encoder(nn.Module):
    """A plain PyTorch encoder that reads token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(families.VOCABULARY, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, dtype=torch.float64)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        return self.layers(self.table(input_ids).double())


def plain_encoder() -> nn.Module:
    torch.manual_seed(0)
    return Encoder().eval()


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: families.ALL[name].model for name in ("BERT", "GPT-2", "Llama", "Bloom", "GPT-Neo", "XLNet")},
    "nn.TransformerEncoder": plain_encoder,
}


def last_norm(model: nn.Module) -> nn.Module:
    """A place late in a pass."""
    return [part for part in model.modules() if "Norm" in type(part).__name__][-1]


@contextmanager
def paused(place: nn.Module, work: Callable[[], Any]) -> Iterator[None]:
    """Inside the block, `work` has come to this module in another thread, and waits there."""
    arrived, go_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            arrived.set()

    thread = threading.Thread(target=run)

    def wait(module: nn.Module, args: Any, output: Any) -> None:
        if threading.current_thread() is thread:
            arrived.set()
            assert go_on.wait(60)

    handle = place.register_forward_hook(wait)
    thread.start()
    try:
        assert arrived.wait(60)
        yield
    finally:
        go_on.set()
        thread.join(60)
        handle.remove()
    assert failures == []


def numbers(model: nn.Module) -> list[torch.Tensor]:
    """All that a plain call of the user's returns."""
    with torch.no_grad():
        if isinstance(model, Encoder):
            return [model(torch.tensor([OTHER]))]
        outputs = model(torch.tensor([OTHER]), output_hidden_states=True, return_dict=True)
    return [outputs[0], *outputs.hidden_states]


def process_state() -> dict[str, Any]:
    """What torch has one of for all threads."""
    from torch._dynamo import eval_frame

    return {
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "stance": eval_frame._stance.stance,
    }


def arguments_of(model: nn.Module) -> Any:
    ids = torch.tensor([families.TEXT])
    return {"input_ids": ids} if isinstance(model, Encoder) else families.TEXT


def replay(model: nn.Module) -> Callable[[], Any]:
    traced = identiscope.trace(model, arguments_of(model))
    made = traced.replay
    return lambda: made(2 * traced.embeddings)


def attribution(model: nn.Module, fast: bool = False) -> Callable[[], Any]:
    traced = identiscope.trace(model, arguments_of(model))
    options = {"mode": "estimate", "probes": 2, "fast": fast}
    return lambda: identiscope.hidden_token_attribution(traced, **options)


WORK: dict[str, Callable[[nn.Module], Callable[[], Any]]] = {
    "trace": lambda model: lambda: identiscope.trace(model, arguments_of(model)),
    "stream": lambda model: lambda: identiscope.stream(model, arguments_of(model), lambda site: None),
    "substitute": lambda model: (
        lambda: identiscope.substitute(model, arguments_of(model), {(0, 0): lambda attention: attention.flip(-1)})
    ),
    "replay": replay,
    "attribution": attribution,
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("name", MODELS)
def test_a_plain_call_in_another_thread_returns_its_own_numbers(name: str, work: str) -> None:
    """The user's own call of the same module, bit for bit, in the middle of whatever identiscope does with it."""
    model = MODELS[name]()
    expected, state = numbers(model), process_state()
    with paused(last_norm(model), WORK[work](model)):
        found, meanwhile = numbers(model), process_state()
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    assert meanwhile == process_state() == state


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("name", ["BERT", "Bloom", "nn.TransformerEncoder"])
def test_a_model_in_training_stays_in_training_for_everyone(name: str, work: str) -> None:
    model = MODELS[name]().train()
    modules = list(model.modules())
    before = [(sorted(vars(part)), len(part._forward_hooks), len(part._forward_pre_hooks)) for part in modules]
    with paused(last_norm(model), WORK[work](model)):
        assert all(part.training for part in modules)
        # One more hook: the one that holds the other thread.
        extra = last_norm(model)
        meanwhile = [
            (sorted(vars(part)), len(part._forward_hooks) - (part is extra), len(part._forward_pre_hooks))
            for part in modules
        ]
    assert meanwhile == before


def test_a_block_that_watches_by_hand_is_not_met_by_another_thread() -> None:
    """Families that are seen at their softmax keep a list of what runs; a call elsewhere is not put on it."""
    model = families.ALL["GPT-Neo"].model()
    expected = identiscope.trace(model, families.TEXT)
    inside = model.transformer.h[0].attn.attention.v_proj
    with (
        torch.no_grad(),
        identiscope.watching(model) as watcher,
        paused(inside, lambda: model(torch.tensor([OTHER]))),
    ):
        assert watcher.frames == []
        model(torch.tensor([families.TEXT]))
    assert len(watcher.calls) == 2
    for call, site in zip(watcher.calls, expected.sites, strict=True):
        assert torch.equal(call.context[0], site.context)


def test_tasks_of_one_thread_watch_their_own_calls() -> None:
    """Two blocks that begin and end in turn, and a plain call between: each sees what its own task ran."""
    model = families.ALL["BERT"].model()

    async def watch(ids: list[int]) -> list[torch.Tensor]:
        with identiscope.watching(model) as watcher:
            await asyncio.sleep(0)
            model(torch.tensor([ids]))
            await asyncio.sleep(0)
            model(torch.tensor([ids]))
        return [call.output for call in watcher.calls if call.output is not None]

    async def both() -> list[list[torch.Tensor]]:
        plain = asyncio.create_task(asyncio.to_thread(numbers, model))
        found = await asyncio.gather(watch(families.TEXT), watch(OTHER))
        await plain
        return list(found)

    def run() -> list[list[torch.Tensor]]:
        with torch.no_grad():
            return asyncio.run(both())

    # In a thread of its own, since a browser's loop may be running in this one.
    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(run).result()
    for ids, outputs in zip((families.TEXT, OTHER), watched, strict=True):
        expected = [site.output for site in identiscope.trace(model, ids).sites]
        assert len(outputs) == 4
        assert all(torch.equal(one[0], two) for one, two in zip(outputs, expected * 2, strict=True) if two is not None)


def test_a_watcher_around_a_trace_sees_it_and_changes_it() -> None:
    """What is traced is a twin, and the user's block around it is for that twin too."""
    model = families.ALL["BERT"].model()
    plain = identiscope.trace(model, families.TEXT)
    replay = plain.replay
    with identiscope.watching(model) as outer:
        identiscope.trace(model, families.TEXT)
    assert [call.name for call in outer.calls] == [site.name for site in plain.sites]
    with torch.no_grad(), identiscope.watching(model, changes={(0, 1): lambda attention: attention.flip(-1)}):
        changed = replay(plain.embeddings)
    expected = identiscope.substitute(model, families.TEXT, {(0, 1): lambda attention: attention.flip(-1)})
    assert not torch.allclose(changed[-1], plain.hidden_states[-1])
    torch.testing.assert_close(changed[-1], expected.hidden_states[-1], rtol=0, atol=1e-12)


# --- twins


def test_a_twin_shares_weights_and_nothing_else() -> None:
    model = identiscope.load(families.ALL["ALBERT"].model().train())
    made = twin(model)
    for (name, part), (other, copy) in zip(model.module.named_modules(), made.module.named_modules(), strict=True):
        assert name == other and part is not copy and original(copy) is part and original(part) is part
        assert part.training and not copy.training
        assert all(copy._parameters[key] is value for key, value in part._parameters.items())
        assert all(copy._buffers[key] is value for key, value in part._buffers.items())
        assert copy._forward_hooks is not part._forward_hooks


class Bound(nn.Module):
    """Holds its parts in every way that a module can: by name, in a list, in a mapping, as a bound method."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.listed = [self.inner, 5]
        self.mapped = {"inner": self.inner}
        self.method = self.twice
        self.log: list[int] = []
        # As accelerate does it.
        self.forward = __import__("functools").partial(Bound.forward, self)  # type: ignore[method-assign]

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(1)
        return 2 * self.inner(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.method(x) + self.listed[0](x) + self.mapped["inner"](x)  # type: ignore[operator]


def test_a_twin_runs_its_own_parts_however_they_are_held() -> None:
    bound = Bound()
    model = identiscope.load(bound)
    made, x = twin(model), torch.ones(3)
    expected = model.module(x)
    met: list[nn.Module] = []
    made.copies[bound.inner].register_forward_hook(lambda module, args, output: met.append(module))
    bound.inner.register_forward_hook(lambda module, args, output: met.append(module))
    assert torch.equal(made.module(x), expected)
    assert met == [made.copies[bound.inner]] * 3
    # What is no part of the module is shared, as it was.
    assert made.module.log is model.module.log


def test_an_adapter_that_merges_itself_in_evaluation_is_left_alone() -> None:
    """Some families write into their weights when their mode is changed; the twin's weights are the user's."""

    class Merging(nn.Linear):
        def train(self, mode: bool = True) -> "Merging":
            if not mode:
                self.weight.data += 1
            return super().train(mode)

    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 1)
    model.layers[0].linear1 = Merging(32, 48)
    before = model.layers[0].linear1.weight.clone()
    identiscope.trace(model, torch.randn(5, 32))
    assert torch.equal(model.layers[0].linear1.weight, before)


def test_torchscript_in_training_cannot_be_run_in_evaluation() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with pytest.warns(DeprecationWarning, match="script"):
                self.scripted = torch.jit.script(nn.Dropout(0.5))

    model = identiscope.load(Holder())
    with pytest.raises(identiscope.ModelError, match="TorchScript in training mode"):
        twin(model)
    model.module.eval()
    assert twin(model).module.scripted is model.module.scripted


def test_parts_that_are_compiled_are_captured_uncompiled() -> None:
    model = families.ALL["BERT"].model()
    expected = identiscope.trace(model, families.TEXT)
    model.encoder.layer[0] = torch.compile(model.encoder.layer[0], backend="eager")
    model.encoder.layer[1].compile(backend="eager")
    found = identiscope.trace(model, families.TEXT)
    assert found.verify().verified and len(found.sites) == 2
    assert torch.equal(found.hidden_states[-1], expected.hidden_states[-1])
    assert find_blocks(found).blocks is not None


# --- tokenizers


def test_a_tokenizer_is_called_by_one_thread_at_a_time() -> None:
    """Truncation is a setting of a fast tokenizer: a text that is cut would cut another thread's."""
    model = families.ALL["BERT"].model()
    inside, most = [0], [0]

    class Slow:
        def __call__(self, text: str, **options: Any) -> dict[str, Any]:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.005)
            inside[0] -= 1
            return {"input_ids": families.TEXT, "special_tokens_mask": [0] * len(families.TEXT)}

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return [str(number) for number in ids]

    loaded = identiscope.load(model, Slow())
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda _: encode(loaded, ["some text"], targets=[None]), range(8)))
    assert len(batches) == 8 and most == [1]
