"""What a Run can compute: every method of the registry whose kind has columns, and what is brought beside these.

A method of which `batched/` has a file of its name is filled from whole batches; any other from a trace of each text.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from identiscope.methods.registry import METHODS, in_runs
from identiscope.runs.compute.columns import by_trace
from identiscope.runs.compute.explanations import checked_settings, explanations
from identiscope.runs.compute.filling import RunMethod
from identiscope.runs.format.tables import described_tables, tables_from


@dataclass(frozen=True)
class Brought:
    """What a Run can compute that is no method of the registry: its table as it is set, and a check of settings."""

    made: Callable[[Mapping[str, Any]], RunMethod]
    checked: Callable[[Mapping[str, Any]], dict[str, Any]]


#: What has a row for each token.
EXPLAIN = "explain"
#: By name. Who brings more does so when its module is imported, which workers do first (`Work.modules`).
BROUGHT: dict[str, Brought] = {EXPLAIN: Brought(explanations, checked_settings)}


class RunMethods(Mapping[str, RunMethod]):
    """Run methods by name; those that are registered for a while are among them for as long."""

    def __getitem__(self, name: str) -> RunMethod:
        return self.of(name, {})

    def of(self, name: str, settings: Mapping[str, Any]) -> RunMethod:
        """A method as it is set: what is explained by several has a column for each of them."""
        if name not in self:
            raise KeyError(name)
        if name in BROUGHT:
            return BROUGHT[name].made(settings)
        if METHODS[name].function is None and find_spec(f"{_BATCHED}.{name}") is not None:
            method: RunMethod = import_module(f"{_BATCHED}.{name}").METHOD
            return method
        return by_trace(METHODS[name])

    def __iter__(self) -> Iterator[str]:
        return iter((*in_runs(), *BROUGHT))

    def __contains__(self, name: object) -> bool:
        return name in BROUGHT or name in in_runs()

    def __len__(self) -> int:
        return len(in_runs()) + len(BROUGHT)


_BATCHED = "identiscope.runs.compute.batched"
RUN_METHODS = RunMethods()
#: What a Run computes if nothing is asked for.
DEFAULT = ("attention_identifiability",)


def run_tables(methods: Mapping[str, RunMethod]) -> dict[str, Any]:
    """The tables of some methods, as a manifest describes them, and as they can be read again."""
    described = described_tables({name: one.table for name, one in methods.items()})
    tables_from(described)
    return described
