"""A progress that keeps all it is told."""

from typing import Any

from identiscope.progress import Listener


class Heard(Listener):
    """steps: (words, done, total) of each; states: of a Run."""

    def __init__(self) -> None:
        self.words = ""
        self.steps: list[tuple[str, int, int]] = []
        self.states: list[Any] = []

    def __call__(self, done: int, total: int) -> None:
        assert 0 <= done <= total
        self.steps.append((self.words, done, total))

    def doing(self, words: str) -> None:
        self.words = words

    def running(self, state: Any) -> None:
        self.states.append(state)
