"""A thousand random command lines, the same ones every time: each is answered, or refused in words."""

from pathlib import Path

import pytest

from fuzz.answers import none_failed
from soak import fuzz_commands

pytestmark = pytest.mark.long


def test_commands(tmp_path: Path) -> None:
    try:
        none_failed(fuzz_commands.commands(1000, tmp_path), 1000)
    finally:
        (tmp_path / "closed").chmod(0o700)
