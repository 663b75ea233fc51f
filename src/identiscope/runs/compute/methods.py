"""What a Run can compute: every method of the registry whose kind has columns.

A method of which `batched/` has a file of its name is filled from whole batches; any other from a trace of each text.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from identiscope.methods.registry import METHODS, in_runs
from identiscope.runs.compute.columns import by_trace
from identiscope.runs.compute.filling import RunMethod
from identiscope.runs.format.tables import described_tables, tables_from


class RunMethods(Mapping[str, RunMethod]):
    """Run methods by name; those that are registered for a while are among them for as long."""

    def __getitem__(self, name: str) -> RunMethod:
        if name not in self:
            raise KeyError(name)
        if METHODS[name].function is None and find_spec(f"{_BATCHED}.{name}") is not None:
            found: RunMethod = import_module(f"{_BATCHED}.{name}").METHOD
            return found
        return by_trace(METHODS[name])

    def __iter__(self) -> Iterator[str]:
        return iter(in_runs())

    def __contains__(self, name: object) -> bool:
        return name in in_runs()

    def __len__(self) -> int:
        return len(in_runs())


_BATCHED = "identiscope.runs.compute.batched"
RUN_METHODS = RunMethods()
#: What a Run computes if nothing is asked for.
DEFAULT = ("attention_identifiability",)


def run_tables(methods: Sequence[str]) -> dict[str, Any]:
    """The tables of some methods, as a manifest describes them, and as they can be read again."""
    described = described_tables({name: RUN_METHODS[name].table for name in methods})
    tables_from(described)
    return described
