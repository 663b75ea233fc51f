"""The tables of a Run: which axes and columns each has, as its manifest says, so that no method need be known."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from identiscope.json_shapes import NUMBER, TEXT, TRUTH, Each, check_shape
from identiscope.runs.format.statistics import Column

#: A row for each token of a text, which are not as many in every text.
INPUTS = ("input",)
#: The axes that a table may have after `text`; without any, it has one row for each text.
AXES = ((), ("layer",), ("layer", "head"), INPUTS)
#: What a table of tokens says in words, beside its columns.
WORDS = ("token", "special", "outcome", "failed")
#: A table's name is that of a file, and a column's is written in queries.
NAME = re.compile("[a-z][a-z0-9_]{0,63}")
#: Columns of the texts, which queries find beside those of a method.
_TEXTS = ("text", "tokens", "cut", "status", "label", "part_1", "part_2")
#: What is larger is no range that a histogram was meant to have.
_LARGEST = 1e15
_SHAPE = Each({"axes": [TEXT], "columns": [{"name": TEXT, "meaning": TEXT, "low": NUMBER, "high": NUMBER,
                                            "whole": TRUTH}]})  # fmt: skip


@dataclass(frozen=True)
class Table:
    """The table of a method: its axes after `text`, and its columns. first_layer: what its files call block 0."""

    axes: tuple[str, ...]
    columns: tuple[Column, ...]
    first_layer: int = 0

    @property
    def of_inputs(self) -> bool:
        """Whether it has a row for each token."""
        return self.axes == INPUTS

    @property
    def names(self) -> list[str]:
        """The names of the columns, in their order."""
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class Shape:
    """Which layers (blocks, from 0) and heads of a model a Run is about."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]

    def of(self, axes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The labels of those of a table's axes that are the same in every text.

        >>> Shape((0, 2), (1,)).of(("layer",))
        ((0, 2),)
        """
        labels = {"layer": self.layers, "head": self.heads}
        return tuple(labels[axis] for axis in axes if axis in labels)

    def cells(self, axes: Sequence[str]) -> int:
        """How many cells there are for each text, or for each token of a table of tokens."""
        return prod(len(labels) for labels in self.of(axes))


def manifest_shape(manifest: Mapping[str, Any]) -> Shape:
    """The layers and heads of a Run."""
    return Shape(tuple(manifest["model"]["layers"]), tuple(manifest["model"]["heads"]))


def described_tables(tables: Mapping[str, Table]) -> dict[str, Any]:
    """Tables as a manifest holds them."""
    return {
        name: {
            "axes": list(table.axes),
            "columns": [
                asdict(column) | {"low": float(column.low), "high": float(column.high)} for column in table.columns
            ],
        }
        for name, table in tables.items()
    }


def tables_from(described: Any) -> dict[str, Table]:
    """What `described_tables` gave; anything else is a ValueError."""
    check_shape(described, _SHAPE, "tables")
    tables = {}
    for name, one in described.items():
        table = Table(tuple(one["axes"]), tuple(Column(**column) for column in one["columns"]))
        if NAME.fullmatch(name) is None or name == "texts" or table.axes not in AXES:
            raise ValueError(f"{name[:40]!a} with axes {one['axes'][:3]!a} is no table of a method")
        taken = [*_TEXTS, *table.axes, *table.names, *(WORDS if table.of_inputs else ())]
        if not table.columns or len(set(taken)) != len(taken) or not all(map(NAME.fullmatch, table.names)):
            raise ValueError(f"the columns of {name} are none, or not named as columns are")
        if not all(-_LARGEST <= column.low < column.high <= _LARGEST for column in table.columns):
            raise ValueError(f"a column of {name} has no range")
        tables[name] = table
    return tables
