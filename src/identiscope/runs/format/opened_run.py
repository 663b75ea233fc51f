"""A Run opened from its directory: its tables as pandas or xarray, its summary, its plots."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from identiscope.careful_reading import DamagedRun, parse_json, understanding
from identiscope.errors import InputError
from identiscope.files import printable
from identiscope.results import make_result
from identiscope.runs.format.legacy import lacks_digests, manifest_tables, table_name
from identiscope.runs.format.manifest import read_manifest
from identiscope.runs.format.seal import FACTS, SEAL, SUMMARY, Seal, read_seal, read_summary_file
from identiscope.runs.format.shard_shape import STATISTICS, SUBSPACES, table_fields
from identiscope.runs.format.shards import DamagedShard, known_shards, read_record, read_shard_table
from identiscope.runs.format.statistics import Statistics
from identiscope.runs.format.subspaces import Subspace, read_subspaces
from identiscope.runs.format.summary import read_facts, read_statistics
from identiscope.runs.format.tables import Table, manifest_shape
from identiscope.runs.format.verification import Verification, is_complete, verify_run

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

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The table of each method: its axes after `text`, and its columns with what they say."""
        return manifest_tables(self.manifest)

    @property
    def complete(self) -> bool:
        """Whether all shards and the summary are there, and all but the tables inside the shards is as it was
        written; `verify` reads those, too."""
        return is_complete(self.directory, self.manifest)

    @property
    def summary(self) -> dict[str, Any]:
        """The main facts: texts, tokens, how many were cut or left out and why, and the mean of every column."""
        data = self._summary_file(FACTS)
        with understanding(printable(self.directory / FACTS)):
            return read_facts(parse_json(data), self.manifest)

    @cached_property
    def statistics(self) -> dict[str, Statistics]:
        """Merged statistics of each method: count, mean, variance, least, most and histogram of every column."""
        return read_statistics(self._summary_file(STATISTICS), self.manifest, self.methods)

    def subspaces(self) -> dict[int, Subspace]:
        """Sums of projectors by layer, if the Run was asked for them, as arrays."""
        if self.manifest["options"]["subspace_length"] is None:
            raise InputError(
                f"{printable(self.directory)} has no sums of projectors; ask for them with subspace_length."
            )
        seal = self._need_seal()
        if (SUBSPACES not in seal.files) if seal else not os.path.lexists(self.directory / SUBSPACES):
            return {}
        return read_subspaces(self._summary_file(SUBSPACES), self.manifest)

    def iterate(self, table: str | None = None, columns: Sequence[str] | None = None) -> "Iterator[pd.DataFrame]":
        """A table shard by shard, so that memory stays that of one; `texts` is a table, too."""
        name = self._table(table)
        chosen = None if columns is None else self._known(columns, list(table_fields(name, self.manifest)))
        for record in self._records():
            if f"{name}.parquet" in record["files"]:
                yield self._rows(record, name, chosen)

    def to_pandas(self, table: str | None = None, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """A whole table: `texts`, or that of a method, by default the first."""
        import pandas as pd

        parts = list(self.iterate(table, columns))
        if not parts:
            raise InputError(f"{printable(self.directory)} has no rows of {self._table(table)} yet.")
        return pd.concat(parts, ignore_index=True)

    def query(self, condition: str, table: str | None = None) -> "pd.DataFrame":
        """The rows of a table for which a condition holds, in the words of `pandas.DataFrame.query`.

        Columns of the texts may be used too: tokens, cut, label, part_1, part_2.
        """
        import pandas as pd

        name = self._table(table)
        matching = []
        for record in self._records():
            if f"{name}.parquet" not in record["files"]:
                continue
            rows = self._rows(record, name)
            if name != "texts":
                rows = rows.merge(self._rows(record, "texts"), on="text", how="left")
            try:
                matching.append(rows.query(condition))
            except Exception as error:  # pandas raises many kinds
                raise InputError(
                    f"the condition {condition!r} cannot be used: {error}. The columns are {', '.join(rows.columns)}."
                ) from error
        if not matching:
            raise InputError(f"{printable(self.directory)} has no rows of {name} yet.")
        return pd.concat(matching, ignore_index=True)

    def to_xarray(self, method: str | None = None) -> xr.Dataset:
        """The table of a method as labelled arrays [text, layer] or [text, layer, head], in memory."""
        name = self._method(method)
        if self.tables[name].of_inputs:
            raise InputError(f"{name} has a row for each token; take it with to_pandas({name!r}), or ask words().")
        table, rows = self.tables[name], self.to_pandas(name)
        axes = ("text", *table.axes)
        # In the order of the rows, which is that of the manifest.
        labels: dict[str, Any] = {"text": rows["text"].unique()}
        labels |= dict(zip(table.axes, map(np.asarray, manifest_shape(self.manifest).of(table.axes)), strict=True))
        shape = tuple(len(labels[axis]) for axis in axes)
        lengths = self.to_pandas("texts", ["text", "tokens"]).set_index("text")["tokens"]
        arrays = {column: (axes, rows[column].to_numpy().reshape(shape)) for column in table.names}
        coordinates = dict(labels) | {"tokens": ("text", lengths.loc[labels["text"]].to_numpy())}
        return make_result(f"run_{name}", arrays, coordinates=coordinates, provenance=self._provenance())

    def means(self, method: str | None = None) -> xr.Dataset:
        """Mean, standard deviation, least, most, count and histogram of every column over the texts."""
        name = self._method(method)
        statistics, table = self.statistics[name], self.tables[name]
        over = () if table.of_inputs else table.axes
        labels = dict(zip(over, manifest_shape(self.manifest).of(over), strict=True))
        axes = ("column", *over)
        return make_result(
            f"run_{name}_means",
            {
                "mean": (axes, statistics.mean),
                "deviation": (axes, np.sqrt(statistics.variance)),
                "least": (axes, statistics.least),
                "most": (axes, statistics.most),
                "count": (axes, statistics.count),
                "histogram": ((*axes, "bin"), statistics.histogram),
                "edge": (("column", "edges"), np.stack([column.edges for column in table.columns])),
            },
            coordinates={"column": list(statistics.columns), **{axis: list(values) for axis, values in labels.items()}},
            provenance=self._provenance(),
        )

    def words(
        self,
        by: Literal["outcome", "label"] | None = "outcome",
        *,
        methods: Sequence[str] | None = None,
        least: int = 3,
    ) -> "pd.DataFrame":
        """Which words an outcome rests on over the corpus, of a Run of explanations: for each group and method, the
        words by their mean share of a text's scores, with its standard error over the `count` texts that have it.

        >>> run.words("label", methods=["gradient_input"]).groupby("label").head(5)

        by: group texts by what was explained of them, by their label, or not at all. Special tokens are left out, the
        pieces of a word added up. least: in so many texts at least.
        """
        from identiscope.runs.format.words import words_table

        return words_table(self, self._explained(), by, methods, least)

    def agreement(self) -> xr.Dataset:
        """How far methods agree over the corpus, of a Run of explanations: the mean over texts of Spearman's
        correlation of the sizes of scores, with its standard error and the number of texts, [method, other]."""
        from identiscope.runs.format.words import agreement_over

        arrays, names = agreement_over(self, self._explained())
        coordinates = {"method": names, "other": names}
        return make_result("run_agreement", arrays, coordinates=coordinates, provenance=self._provenance())

    def _explained(self) -> str:
        table_name = next((name for name, table in self.tables.items() if table.of_inputs), None)
        if table_name is None:
            raise InputError(f"{printable(self.directory)} has no explanations; ask for the method explain.")
        return table_name

    def plot(self, column: str = "correlation", ax: "Axes | None" = None, *, kind: str = "mean") -> "Axes":
        """Draw a column. kind: "mean" over the texts by layer and head; "length", against the length of the text;
        "histogram"."""
        from identiscope.views.plots.plotting import plot

        method = next((name for name, table in self.tables.items() if column in table.names), None)
        if method is None:
            known = [name for table in self.tables.values() for name in table.names]
            raise InputError(f"there is no column {column!r}; there are {', '.join(known)}.")
        if kind == "length":
            return plot(self.to_xarray(method), ax, column=column)
        if kind not in ("mean", "histogram"):
            raise InputError(f"kind {kind!r} was asked for; there are mean, length and histogram.")
        return plot(self.means(method), ax, column=column, kind=kind)

    def verify(self) -> Verification:
        """Compare every byte with its hash. What is wrong is raised, all of it; what could not be checked is returned,
        in the notes."""
        verification = verify_run(self.directory)
        if verification.problems:
            raise DamagedRun("\n".join([f"{printable(self.directory)} is not as it must be:", *verification.problems]))
        return verification

    def _table(self, name: str | None) -> str:
        chosen = self.methods[0] if name is None else table_name(name, self.methods)
        if chosen not in (*self.methods, "texts"):
            raise InputError(f"there is no table {chosen!r}; there are {', '.join((*self.methods, 'texts'))}.")
        return chosen

    def _method(self, name: str | None) -> str:
        chosen = self._table(name)
        if chosen == "texts":
            raise InputError("texts are a table of words; take it with to_pandas('texts').")
        return chosen

    def _known(self, columns: Sequence[str], have: Sequence[str]) -> list[str]:
        missing = sorted(set(columns) - set(have))
        if missing:
            raise InputError(f"there are no columns {', '.join(missing)}; there are {', '.join(have)}.")
        return list(columns)

    def _provenance(self) -> dict[str, Any]:
        return {"model": self.manifest["names"]["model"], "corpus": self.manifest["names"]["corpus"],
                "run": self.manifest["run"], "texts": self.manifest["corpus"]["texts"]}  # fmt: skip

    def _records(self) -> Iterator[dict[str, Any]]:
        """The records of the shards that are there; all of them, once the Run had come to its end."""
        seal, numbers = self._seal(), known_shards(self.directory, self.manifest)
        ended = seal is not None or any(os.path.lexists(self.directory / name) for name in SUMMARY)
        if ended and len(numbers) < self.manifest["shards"]:
            raise DamagedShard(
                f"{self.manifest['shards'] - len(numbers)} of the {self.manifest['shards']} shards of"
                f" {printable(self.directory)} are missing; the command that began the Run computes them again."
            )
        for number in numbers:
            yield read_record(self.directory, self.manifest, number, seal.shards if seal else None)

    def _rows(self, record: Mapping[str, Any], table: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        shard = read_shard_table(self.directory, self.manifest, record, table)
        rows: pd.DataFrame = (shard if columns is None else shard.select(columns)).to_pandas()
        return rows

    def _seal(self) -> Seal | None:
        return None if lacks_digests(self.manifest) else read_seal(self.directory, self.manifest)

    def _need_seal(self) -> Seal | None:
        """The seal; None for an old Run, which has none; anything else is not complete."""
        seal = self._seal()
        if seal is None and not (lacks_digests(self.manifest) and os.path.lexists(self.directory / FACTS)):
            last = FACTS if lacks_digests(self.manifest) else SEAL
            raise InputError(
                f"the Run in {printable(self.directory)} is not complete ({last} is not there); the command that began"
                " it goes on with it."
            )
        return seal

    def _summary_file(self, name: str) -> bytes:
        return read_summary_file(self.directory, self.manifest, self._need_seal(), name)

    def __repr__(self) -> str:
        names = self.manifest["names"]
        state = "complete" if self.complete else "not complete"
        texts = self.manifest["corpus"]["texts"]
        return f"Run({names['model']!r} on {names['corpus']!r}, {texts} texts, {', '.join(self.methods)}, {state})"


def open_run(directory: str | Path) -> Run:
    """Open the Run in a directory; its manifest is checked now, its shards when they are read.

    >>> identiscope.open_run("my-run").to_pandas().groupby(["layer", "head"]).correlation.mean()
    """
    path = Path(directory)
    return Run(path, read_manifest(path))
