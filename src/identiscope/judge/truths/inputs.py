"""The planted models there are, and their inputs as cases for the judge."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from identiscope.capture import Trace, trace
from identiscope.judge.truths import mechanisms, trained
from identiscope.judge.truths.tasks import Example, Task, proven_examples

#: The mechanisms that are compiled by hand, by name.
COMPILED: Mapping[str, Task] = {
    task.name: task
    for task in (
        mechanisms.copy(), mechanisms.reverse(), mechanisms.count(), mechanisms.look_up(), mechanisms.add(),
    )
}  # fmt: skip


#: Those that are trained, when their model is first asked for; weights are kept for the next time.
TRAINED: Mapping[str, Task] = {task.name: task for task in (trained.induction(), trained.majority(), trained.depth())}


@dataclass(frozen=True, eq=False)
class PlantedInput:
    """An input of a planted model: its trace, what is explained of it, what is true [token], and what is judged."""

    task: Task
    example: Example
    distracting: bool
    trace: Trace
    truth: NDArray[np.bool_]
    players: NDArray[np.bool_]

    @property
    def outcome(self) -> str:
        """The logit of the answer: where the answer is sure, its probability hardly moves."""
        return f"logit:{self.example.answer}"

    @property
    def version(self) -> str:
        """How the names of its measures begin."""
        return f"{'distracted_' * self.distracting}{'task_' * (not self.task.mechanism)}"


def planted_inputs(planted: Mapping[str, Task], count: int, seed: int = 0) -> Iterator[PlantedInput]:
    """So many inputs of each task whose truth is proven, in both versions: the same texts."""
    for task in planted.values():
        examples = proven_examples(task, count, seed)
        for distracting in (False, True):
            for example in examples:
                yield planted_input(task, example, distracting)


def planted_input(task: Task, example: Example, distracting: bool) -> PlantedInput:
    """One input, traced."""
    places = np.arange(len(example.words))
    truth = np.isin(places, example.truth)
    seen = trace(task.model(distracting), example.text)
    return PlantedInput(task, example, distracting, seen, truth, truth | np.isin(places, list(example.others)))
