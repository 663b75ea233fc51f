"""How judgements stand in a Run: one row a text, a column for each measure and each method, controls among these."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from identiscope.judge.case import CEILING, CHANCE
from identiscope.judge.registry import Measure, Test
from identiscope.runs.format.statistics import Column

#: What the columns of passes begin with: of a method, and of a test.
PASSES, TEST_PASSES = "passes", "test_passes"
_MOST_PASSES = 1e5


@dataclass(frozen=True)
class Cell:
    """One column: a measure of a test, of one method or control."""

    test: Test
    measure: Measure
    method: str

    @property
    def name(self) -> str:
        """The name of the column."""
        return f"{self.test.name}_{self.measure.name}__{self.method}"


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
    costs = tuple(Column(f"{PASSES}__{name}", f"passes of {name}", 0, _MOST_PASSES) for name in names)
    costs += tuple(
        Column(f"{TEST_PASSES}__{test.name}", f"passes of the test {test.name}", 0, _MOST_PASSES) for test in tests
    )
    return judged + costs
