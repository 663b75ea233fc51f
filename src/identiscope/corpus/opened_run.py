"""A Run opened from its directory: its tables as pandas or xarray, its summary, its plots."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from identiscope.corpus.manifest import read_manifest
from identiscope.corpus.run_methods import RUN_METHODS
from identiscope.corpus.run_summary import FACTS, STATISTICS, SUBSPACES, manifest_shape, read_statistics
from identiscope.corpus.shard_files import read_arrays, read_table
from identiscope.corpus.shards import finished_shards, read_record, read_shard_file, shard_path
from identiscope.corpus.statistics import Statistics
from identiscope.errors import InputError
from identiscope.methods.shared_subspace import SharedSubspace
from identiscope.methods.shared_subspace import from_arrays as subspace_from_arrays
from identiscope.results import make_result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The results of a corpus, on disk. Shards are read when asked for, and checked as they are read.

    >>> run = identiscope.open_run("my-run")
    >>> run.query("correlation < 0.5 and layer == 3")
    """

    directory: Path
    manifest: Mapping[str, Any]

    @property
    def methods(self) -> tuple[str, ...]:
        """What was computed."""
        return tuple(self.manifest["options"]["methods"])

    @property
    def complete(self) -> bool:
        """Whether all shards and the summary are there."""
        return (self.directory / FACTS).is_file()

    @property
    def summary(self) -> dict[str, Any]:
        """The main facts: texts, tokens, how many were cut or left out and why, and the mean of every column."""
        self._need_complete()
        facts: dict[str, Any] = json.loads((self.directory / FACTS).read_bytes())
        return facts

    @cached_property
    def statistics(self) -> dict[str, Statistics]:
        """Merged statistics of each method: count, mean, variance, least, most and histogram of every column."""
        self._need_complete()
        return read_statistics((self.directory / STATISTICS).read_bytes())

    def subspaces(self) -> dict[int, SharedSubspace]:
        """Sums of projectors by layer, if the Run was asked for them."""
        path = self.directory / SUBSPACES
        if not path.is_file():
            raise InputError(f"{self.directory} has no sums of projectors; ask for them with subspace_length.")
        arrays, described = read_arrays(path.read_bytes())
        return {
            layer: subspace_from_arrays(
                {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{layer}.")}
            )
            for layer in described["layers"]
        }

    def iterate(self, table: str | None = None, columns: Sequence[str] | None = None) -> "Iterator[pd.DataFrame]":
        """A table shard by shard, so that memory stays that of one; `texts` is a table, too."""
        name = self._table(table)
        for number in sorted(finished_shards(self.directory, self.manifest, verify=False)):
            path = shard_path(self.directory, number)
            record = read_record(path, self.manifest["run"])
            if f"{name}.parquet" in record["files"]:
                found = read_table(read_shard_file(path, record, f"{name}.parquet"))
                if columns is not None:
                    found = found.select(self._known(columns, found.column_names))
                yield found.to_pandas()

    def to_pandas(self, table: str | None = None, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """A whole table: `texts`, or that of a method, by default the first."""
        import pandas as pd

        parts = list(self.iterate(table, columns))
        if not parts:
            raise InputError(f"{self.directory} has no rows of {self._table(table)} yet.")
        return pd.concat(parts, ignore_index=True)

    def query(self, condition: str, table: str | None = None) -> "pd.DataFrame":
        """The rows of a table for which a condition holds, in the words of `pandas.DataFrame.query`.

        Columns of the texts may be used too: tokens, cut, label, part_1, part_2.
        """
        import pandas as pd

        name = self._table(table)
        texts = self.iterate("texts")
        found = []
        for rows in self.iterate(name) if name != "texts" else texts:
            whole = rows
            if name != "texts":
                own = next(part for part in texts if rows["text"].iloc[0] <= part["text"].iloc[-1])
                whole = rows.merge(own, on="text", how="left")
            try:
                found.append(whole.query(condition))
            except Exception as error:  # pandas raises many kinds
                raise InputError(
                    f"the condition {condition!r} cannot be used: {error}. The columns are {', '.join(whole.columns)}."
                ) from error
        return pd.concat(found, ignore_index=True)

    def to_xarray(self, method: str | None = None) -> xr.Dataset:
        """The table of a method as labelled arrays [text, layer] or [text, layer, head], in memory."""
        name = self._table(method)
        if name == "texts":
            raise InputError("texts are a table of words; take it with to_pandas('texts').")
        axes = ("text", *RUN_METHODS[name].axes)
        rows = self.to_pandas(name)
        labels = {axis: np.unique(rows[axis].to_numpy()) for axis in axes}
        shape = tuple(len(labels[axis]) for axis in axes)
        lengths = self.to_pandas("texts", ["text", "tokens"]).set_index("text")["tokens"]
        arrays = {
            column.name: (axes, rows[column.name].to_numpy().reshape(shape)) for column in RUN_METHODS[name].columns
        }
        coordinates = dict(labels) | {"tokens": ("text", lengths.loc[labels["text"]].to_numpy())}
        return make_result(f"run_{name}", arrays, coordinates=coordinates, provenance=self._provenance())

    def means(self, method: str | None = None) -> xr.Dataset:
        """Mean, standard deviation, least, most, count and histogram of every column over the texts."""
        name = self._table(method)
        found, spec = self.statistics[name], RUN_METHODS[name]
        labels = dict(zip(spec.axes, manifest_shape(self.manifest).of(spec.axes), strict=True))
        axes = ("column", *spec.axes)
        return make_result(
            f"run_{name}_means",
            {
                "mean": (axes, found.mean),
                "deviation": (axes, np.sqrt(found.variance)),
                "least": (axes, found.least),
                "most": (axes, found.most),
                "count": (axes, found.count),
                "histogram": ((*axes, "bin"), found.histogram),
                "edge": (("column", "edges"), np.stack([column.edges for column in spec.columns])),
            },
            coordinates={"column": list(found.columns), **{axis: list(values) for axis, values in labels.items()}},
            provenance=self._provenance(),
        )

    def plot(self, column: str = "correlation", ax: "Axes | None" = None, *, kind: str = "mean") -> "Axes":
        """Draw a column. kind: "mean" over the texts by layer and head; "length", against the length of the text;
        "histogram"."""
        from identiscope import plot

        method = next((name for name in self.methods if column in _columns(name)), None)
        if method is None:
            known = [name for one in self.methods for name in _columns(one)]
            raise InputError(f"there is no column {column!r}; there are {', '.join(known)}.")
        if kind == "length":
            return plot(self.to_xarray(method), ax, column=column)
        if kind not in ("mean", "histogram"):
            raise InputError(f"kind {kind!r} was asked for; there are mean, length and histogram.")
        return plot(self.means(method), ax, column=column, kind=kind)

    def verify(self) -> None:
        """Read every byte of every shard and compare it with its hash."""
        finished_shards(self.directory, self.manifest)

    def _table(self, name: str | None) -> str:
        chosen = self.methods[0] if name is None else name
        if chosen not in (*self.methods, "texts"):
            raise InputError(f"there is no table {chosen!r}; there are {', '.join((*self.methods, 'texts'))}.")
        return chosen

    def _known(self, columns: Sequence[str], have: Sequence[str]) -> list[str]:
        missing = sorted(set(columns) - set(have))
        if missing:
            raise InputError(f"there are no columns {', '.join(missing)}; there are {', '.join(have)}.")
        return list(columns)

    def _provenance(self) -> dict[str, Any]:
        return {"model": self.manifest["names"]["model"], "corpus": self.manifest["names"]["corpus"],
                "run": self.manifest["run"], "texts": self.manifest["corpus"]["texts"]}  # fmt: skip

    def _need_complete(self) -> None:
        if not self.complete:
            raise InputError(f"the Run in {self.directory} is not complete; the command that began it goes on with it.")

    def __repr__(self) -> str:
        names = self.manifest["names"]
        state = "complete" if self.complete else "not complete"
        texts = self.manifest["corpus"]["texts"]
        return f"Run({names['model']!r} on {names['corpus']!r}, {texts} texts, {', '.join(self.methods)}, {state})"


def _columns(method: str) -> list[str]:
    return [column.name for column in RUN_METHODS[method].columns]


def open_run(directory: str | Path) -> Run:
    """Open the Run in a directory; its manifest is checked now, its shards when they are read.

    >>> identiscope.open_run("my-run").to_pandas().groupby(["layer", "head"]).correlation.mean()
    """
    path = Path(directory)
    return Run(path, read_manifest(path))
