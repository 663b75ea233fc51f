"""What audits found, as one labelled result: method × description, with a verdict for each method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import xarray as xr

from identiscope.judge.audits.changes import Change
from identiscope.results import make_result

#: What an audit may say of a method.
SURVIVES, CHANGES, STAYS, UNDECIDED, NOT_APPLICABLE = "survives", "changes", "stays", "undecided", "not applicable"
_NUMBERS = tuple(part.name for part in fields(Change))


@dataclass(eq=False)
class Findings:
    """What was found of some methods under some descriptions; of several texts the worst counts.

    said: the verdict on each method; merged: the same with equal tokens added up; failed: why it could not be asked, or
    is not applicable.
    """

    methods: Sequence[str]
    descriptions: Sequence[str]
    changes: dict[tuple[str, str], list[Change]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    passes: dict[str, float] = field(default_factory=dict)

    def add(self, method: str, description: str, change: Change, passes: float = 0.0) -> None:
        """One more text."""
        self.changes.setdefault((method, description), []).append(change)
        self.passes[method] = self.passes.get(method, 0.0) + passes

    def judge(self) -> None:
        """Say `survives` or `changes` of every method that was asked, where nothing is said yet."""
        for method in self.methods:
            found = [one for (name, _), each in self.changes.items() if name == method for one in each]
            if found and method not in self.said:
                self.said[method] = SURVIVES if all(one.survives for one in found) else CHANGES
            self.said.setdefault(method, UNDECIDED)
            if self.said[method] in (SURVIVES, CHANGES):
                self.merged.setdefault(method, SURVIVES if all(one.merged_survives for one in found) else CHANGES)
            self.merged.setdefault(method, self.said[method])

    def result(
        self, name: str, axis: str, provenance: Mapping[str, Any], more: Mapping[str, tuple[Sequence[str], Any]]
    ) -> xr.Dataset:
        """As a result, with axes method and the given one. more: further arrays."""
        self.judge()
        shape = (len(self.methods), len(self.descriptions))
        arrays: dict[str, tuple[Sequence[str], Any]] = {}
        for number in _NUMBERS:
            values = np.full(shape, np.nan)
            for place, method in enumerate(self.methods):
                for at, description in enumerate(self.descriptions):
                    found = [getattr(one, number) for one in self.changes.get((method, description), [])]
                    if found:
                        values[place, at] = min(found) if _is_better(number) else max(found)
            arrays[number] = (("method", axis), values)
        words = {"verdict": self.said, "merged_verdict": self.merged, "failed": self.failed}
        for label, said in words.items():
            arrays[label] = (("method",), np.array([said.get(method, "") for method in self.methods], dtype=object))
        arrays["passes"] = (("method",), np.array([self.passes.get(method, 0.0) for method in self.methods]))
        return make_result(
            name,
            {**arrays, **more},
            coordinates={"method": list(self.methods), axis: list(self.descriptions)},
            provenance={"kind": "audit", "verdict": in_words(self.said), **provenance},
        )


def in_words(said: Mapping[str, str]) -> str:
    """What verdicts on methods come to, in a sentence."""
    judged = [method for method, word in said.items() if word in (SURVIVES, CHANGES, STAYS)]
    survive = [method for method in judged if said[method] == SURVIVES]
    if not judged:
        return "Nothing is decided."
    return f"{len(survive)} of {len(judged)} methods survive{': ' * bool(survive)}{', '.join(survive)}."


def _is_better(number: str) -> bool:
    """Whether more of it is better, so that the worst is the least."""
    return number.endswith("survives") or number == "rank_correlation"
