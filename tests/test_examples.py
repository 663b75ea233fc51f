"""The examples run, and say what they are meant to say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {
    "which_part_is_real": "Same within rounding: yes.",
    "your_own_model": "[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3,",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert SAYS[path.stem] in capsys.readouterr().out
