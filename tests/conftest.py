"""What all tests share: no network, one thread, and the built-in models loaded once."""

import gc
import importlib.util
import os

os.environ["HF_HUB_OFFLINE"] = "1"
# Small matrices: threads that wait for each other cost far more than they bring.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Some virtual machines name AMX among what their processor can do, and end whoever uses it, as half precision does.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
import torch
import transformers

import identiscope
import shared_work
from identiscope.capture import models
from identiscope.capture.builtin import locate
from identiscope.capture.half_precision import HALF, _computes, check_half_precision
from identiscope.errors import ModelError

try:
    check_half_precision(HALF, "a test")
except ModelError:
    # A processor without the instructions that it announces; it has those before them, once it is told.
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    _computes.cache_clear()

# How long an example takes is the machine's affair: others may be at work on it.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def _located(name: str) -> tuple[Path, str | None]:
    """Where a built-in model is; a test of one that is an extra, and not installed, is skipped, saying so."""
    try:
        return locate(name)
    except ModelError as error:
        pytest.skip(str(error))


models.locate = _located  # type: ignore[assignment, attr-defined]


shared_work.read_once()
shared_work.compile_once()


@pytest.fixture(scope="session")
def minilm() -> identiscope.Model:
    return identiscope.load("minilm")


@pytest.fixture(scope="session")
def smollm2() -> identiscope.Model:
    return identiscope.load("smollm2")


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """docs/generate.py, which writes the pages that are generated."""
    path = Path(__file__).parents[1] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes begin first, so that no process is left alone with one of them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    # What was imported stays: no need to look through all of it for what nobody refers to, again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 10, 20)


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """Nothing may leave a setting of the whole thread behind, for whoever comes next."""
    yield
    left = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert left
