"""What all tests share: no network, one thread, and the built-in models loaded once."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
# Small matrices: threads that wait for each other cost far more than they bring.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch
import transformers

import identiscope

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@pytest.fixture(scope="session")
def minilm() -> identiscope.Model:
    return identiscope.load("minilm")


@pytest.fixture(scope="session")
def smollm2() -> identiscope.Model:
    return identiscope.load("smollm2")
