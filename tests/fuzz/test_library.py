"""A thousand random calls, the same ones every time: each is answered, or refused in words.

The makers of the cases are in soak/, which goes on for longer. Calls, files and command lines have a file each, since a
file of tests is the work of one process.
"""

from pathlib import Path

import pytest

from fuzz.answers import none_failed
from soak import fuzz_library

pytestmark = pytest.mark.long


# Some of the arguments are tensors that torch warns of wherever they are made.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_library(tmp_path: Path) -> None:
    none_failed(fuzz_library.library(1000, tmp_path), 1000)
