"""How judgements stand in a Run: one row a text, a column for each measure and each method, controls among these."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from identiscope.judge.case import CEILING, CHANCE
from identiscope.judge.registry import Measure, Test
from identiscope.runs.format.statistics import Column

#: What the columns of passes begin with: of a method, and of a test.
PASSES, TEST_PASSES = "passes", "test_passes"
_MOST_PASSES = 1e5
#: With the longest measure before it, what the name of a column may have; of what is longer so many digits of a digest.
_LONGEST, _DIGITS = 24, 6


@dataclass(frozen=True)
class Cell:
    """One column: a measure of a test, of one method or control."""

    test: Test
    measure: Measure
    method: str

    @property
    def name(self) -> str:
        """The name of the column."""
        return cell_column(self.test, self.measure.name, self.method)


def cell_column(test: Test, measure: str, method: str) -> str:
    """The name of the column of one measure of a test, of one method or control.

    >>> cell_column(TESTS["causal"], "shapley", "captum.Saliency")
    'causal_shapley__captum_saliency'
    """
    return f"{test.name}_{measure}__{word_of(method)}"


def passes_column(method: str) -> str:
    """The name of the column of what a method takes."""
    return f"{PASSES}__{word_of(method)}"


def word_of(method: str) -> str:
    """The name of a method as those of columns can have it, which are short, in small letters and written in queries.

    Of methods that are judged together no two become the same, as `Judged` sees to.
    """
    word = re.sub("[-.]", "_", method.lower())
    if len(word) <= _LONGEST:
        return word
    return f"{word[: _LONGEST - _DIGITS - 1]}_{hashlib.sha256(word.encode()).hexdigest()[:_DIGITS]}"


def cells(tests: Sequence[Test], names: Sequence[str]) -> Iterator[Cell]:
    """Every cell of these tests; names: of the methods, the random scorer among them."""
    for test in tests:
        for measure in test.measures:
            for method in (*names, CHANCE, CEILING):
                yield Cell(test, measure, method)


def columns(tests: Sequence[Test], names: Sequence[str]) -> tuple[Column, ...]:
    """The columns of a Run of judgements."""
    judged = tuple(
        Column(cell.name, f"{cell.measure.says}: {cell.method}", cell.measure.low, cell.measure.high)
        for cell in cells(tests, names)
    )
    costs = tuple(Column(passes_column(name), f"passes of {name}", 0, _MOST_PASSES) for name in names)
    costs += tuple(
        Column(f"{TEST_PASSES}__{test.name}", f"passes of the test {test.name}", 0, _MOST_PASSES) for test in tests
    )
    return judged + costs
