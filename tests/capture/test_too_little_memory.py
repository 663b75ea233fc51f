"""Too little memory, and dtypes that a processor only seems to have: said before work is lost."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

import every_family
import identiscope
from identiscope.capture import half_precision
from identiscope.capture.room import kept_numbers
from identiscope.capture.watch.kernel import Bias
from identiscope.cli import explained
from identiscope.errors import InputError, ModelError
from identiscope.linalg import free_memory as memory
from tiny_text_model import save_tiny, words


def only(monkeypatch: pytest.MonkeyPatch, free: int | None) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device="cpu": free)
    # What tests ask for is small, and would be given unasked.
    monkeypatch.setattr(memory, "SMALL", 0)


def test_what_is_small_is_given_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device="cpu": 0)
    memory.check_free(2**24 - 1, "cpu", "a map", "")
    with pytest.raises(InputError, match="a map needs about 16 MiB"):
        memory.check_free(2**24, "cpu", "a map", "")


def test_what_is_free_is_less_than_all() -> None:
    free = memory.free_memory("cpu")
    if free is None:
        pytest.skip("this system does not say how much memory is free")
    assert 0 < free < 2**50
    assert memory.free_memory("meta") is None


def test_a_container_s_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 500\n")
    monkeypatch.setattr(memory, "Path", lambda name: tmp_path if name == "/sys/fs/cgroup" else Path(name))
    assert memory.free_memory("cpu") == 2500
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._left_of_group() is None


def test_the_limit_of_a_process_counts() -> None:
    resource = pytest.importorskip("resource", reason="this system limits no process")
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not say what a process has")
    program = (
        "import resource; limit = 2**40; resource.setrlimit(resource.RLIMIT_AS, (limit, limit));"
        "from identiscope.linalg import free_memory as memory; print(memory._left_of_process())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert 0 < int(done.stdout) < 2**40, done.stderr
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        assert memory._left_of_process() is None


def test_an_error_of_the_command_line_says_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, 3 * 2**30)
    said, code = explained(MemoryError("Unable to allocate 7.0 GiB for an array"))
    assert code == 2 and "of which 3.0 GiB are free on the CPU" in said and "Unable to allocate 7.0 GiB" in said


def test_weights_that_do_not_fit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_tiny(tmp_path / "model")
    only(monkeypatch, 1000)
    read: list[Any] = []
    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", lambda *args, **kwargs: read.append(args))
    with pytest.raises(ModelError, match=r"loading .* weights in float32\) needs about .* MiB .* on cpu, where 0 MiB"):
        identiscope.load(folder)
    with pytest.raises(ModelError, match=r"Give dtype='float16' \(0 MiB\), a smaller model"):
        identiscope.load(folder)
    with pytest.raises(ModelError, match=r"weights in float16\).*Give a smaller model"):
        identiscope.load(folder, dtype="float16")
    assert not read


def test_memory_that_runs_out_while_a_model_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> Any:
        raise MemoryError("Unable to allocate 108. MiB for an array")

    folder = save_tiny(tmp_path / "model")
    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", refuse)
    with pytest.raises(
        ModelError, match=r"needs more memory than there is on cpu.*allocate 108\..*Give dtype='float16'"
    ):
        identiscope.load(folder)


def test_a_trace_that_does_not_fit_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = identiscope.load(save_tiny(tmp_path / "model"))
    config: Any = model.config
    found = identiscope.trace(model, words(30))
    kept = [
        tensor.numel()
        for site in found.sites
        for tensor in (site.query, site.key, site.value, site.context)
        if tensor is not None
    ]
    # What is counted is what is kept, and hidden states beside it.
    count = len(found.main)
    assert kept_numbers(config) * count == sum(kept) + config.num_hidden_layers * config.hidden_size * count
    only(monkeypatch, kept_numbers(config) * count * 4 - 1)
    ran: list[int] = []
    model.module.register_forward_pre_hook(lambda *given: ran.append(1))
    with pytest.raises(InputError, match=r"a trace of .* on 32 tokens needs about .*batch_size.*stream"):
        identiscope.trace(model, words(30))
    assert not ran
    identiscope.trace(model, words(29))
    assert kept_numbers(None) == 0 and kept_numbers(SimpleNamespace(hidden_size=4)) == 0


def test_layers_of_different_sizes_are_counted_each_for_itself() -> None:
    model = every_family.build("gemma4_text")
    found = identiscope.trace(model, list(range(5, 14)))
    kept = [
        tensor.numel()
        for site in found.sites
        for tensor in (site.query, site.key, site.value, site.context)
        if tensor is not None
    ]
    assert kept_numbers(model.config) * 9 == sum(kept) + sum(state.numel() for state in found.hidden_states[1:])


def test_maps_that_do_not_fit_are_not_formed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = identiscope.trace(save_tiny(tmp_path / "model"), words(30))
    only(monkeypatch, 32 * 32 * 8 * 3)
    identiscope.attention_maps(found, 0, 0, ("raw", "effective"))
    with pytest.raises(InputError, match=r"3 maps of 32 × 32 tokens needs about .* fewer maps .* factored_attention"):
        identiscope.attention_maps(found, 0, 0, ("raw", "effective", "null"))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
)
def test_memory_that_runs_out_in_a_pass(error: Exception, tmp_path: Path) -> None:
    model = identiscope.load(save_tiny(tmp_path / "model"))

    def refuse(*given: Any) -> None:
        raise error

    model.module.register_forward_pre_hook(refuse)
    with pytest.raises(InputError, match=r"needs more memory than there is on cpu.*batch_size.*half precision"):
        identiscope.trace(model, words(8))
    assert explained(InputError("x")) == ("x", 2)


def test_a_gpu_that_is_too_small_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**33))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**20)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2**19)
    assert memory.free_memory("cuda:1") == 2**30 + 2**19
    with pytest.raises(InputError, match=r"it needs about 2\.0 GiB .* on cuda:1, where 1\.0 GiB are free\. Less"):
        memory.check_free(2**31, "cuda:1", "it", "Less.")


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> None:
    half_precision._computes.cache_clear()
    monkeypatch.setattr(half_precision, "_announces_tiles", lambda: True)


@pytest.mark.usefixtures("announced")
def test_a_processor_that_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_precision, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)  # {name}")
    folder = save_tiny(tmp_path / "model")
    said = r"computes in bfloat16 on the CPU, and this processor does not.*float32.*ONEDNN_MAX_CPU_ISA"
    for refused in (
        lambda: identiscope.load(folder, dtype="bfloat16"),
        lambda: identiscope.trace(identiscope.load(folder).module.to(torch.bfloat16), [5, 6, 7]),
    ):
        with pytest.raises(ModelError, match=said):
            refused()
    plain = identiscope.load(folder).module
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ModelError, match=said):
        identiscope.trace(plain, [5, 6, 7])
    assert identiscope.trace(plain, [5, 6, 7]).verify().verified
    half_precision._computes.cache_clear()


@pytest.mark.usefixtures("announced")
def test_what_the_trial_may_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_precision, "_TRIAL", "raise RuntimeError('not implemented for {name}')")
    half_precision.check_half_precision([torch.bfloat16, torch.float32], "it")
    half_precision._computes.cache_clear()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    half_precision.check_half_precision([torch.float16], "it")
    half_precision._computes.cache_clear()


def test_the_trial_is_a_program() -> None:
    trial = half_precision._TRIAL.format(name="float32")
    assert subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode == 0


def test_a_long_causal_text_is_traced_without_a_cell_for_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=9
    )
    model = transformers.LlamaModel(config).eval()
    cells, largest = Bias.cells, []

    def counted(bias: Bias, queries: torch.Tensor, keys: int) -> torch.Tensor | None:
        largest.append(len(queries) * keys)
        return cells(bias, queries, keys)

    monkeypatch.setattr(Bias, "cells", counted)
    (site,) = identiscope.trace(model, [1, 2, 3, 4] * 250).sites
    assert site.kind == "decoder-self" and max(largest) <= 16 * 1000
