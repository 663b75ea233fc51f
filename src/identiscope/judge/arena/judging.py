"""All tests on one case: numbers for every column, and why some are missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from identiscope.errors import IdentiscopeError
from identiscope.judge.arena.columns import TEST_PASSES, cell_column, passes_column
from identiscope.judge.case import CEILING, CHANCE, Case, Judgement
from identiscope.judge.registry import Test

NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Row:
    """What was found on one text: numbers by column, and why a test decided nothing, by its name."""

    numbers: dict[str, float]
    undecided: dict[str, str] = field(default_factory=dict)


def judged_row(case: Case, tests: Sequence[Test], passes: dict[str, float]) -> Row:
    """The numbers of one case under all tests. A test that cannot be made here says why, and the others are made."""
    numbers = {passes_column(name): passes.get(name, NAN) for name in case.names}
    undecided: dict[str, str] = {}
    for test in tests:
        try:
            judgement = test.load()(case)
        except IdentiscopeError as error:
            judgement = Judgement({}, undecided=str(error))
        if judgement.undecided:
            undecided[test.name] = judgement.undecided
        for measure in test.measures:
            values = judgement.values.get(measure.name)
            said = dict(zip(case.names, [NAN] * len(case.names) if values is None else values, strict=True))
            said[CHANCE] = judgement.chance.get(measure.name, NAN)
            said[CEILING] = judgement.ceiling.get(measure.name, NAN)
            for name, value in said.items():
                numbers[cell_column(test, measure.name, name)] = float(value)
        numbers[f"{TEST_PASSES}__{test.name}"] = float(judgement.passes)
    return Row(numbers, undecided)
