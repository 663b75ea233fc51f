"""A survey of heads as tables: files with a row for each head, relation and pair, and a summary for a terminal."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from identiscope.files import write_file
from identiscope.views.page.head_cards import head_sentences
from identiscope.views.page.heads import met_too_seldom
from identiscope.views.page.heads_against import moved_heads
from identiscope.views.plots.figures import Claim


def write_heads_csv(path: Path, heads: xr.Dataset) -> Path:
    """A row for each head: layer, head, every number with its error and bounds, and its card in words."""
    names = [str(name) for name in heads.data_vars]
    rows = []
    for layer, head in np.ndindex(heads.sizes["layer"], heads.sizes["head"]):
        numbers = {name: float(heads[name].values[layer, head]) for name in names}
        place = [int(heads["layer"].values[layer]), int(heads["head"].values[head])]
        cells = ["" if number != number else f"{number:.6g}" for number in numbers.values()]
        rows.append([*place, *cells, " ".join(head_sentences(numbers))])
    return _write(path, ["layer", "head", *names, "in words"], rows)


def write_relations_csv(path: Path, relations: Sequence[Mapping[str, Any]]) -> Path:
    """A row for each relation and direction."""
    return _write(path, list(relations[0]), [list(row.values()) for row in relations])


def write_pairs_csv(path: Path, pairs: xr.Dataset) -> Path:
    """A row for each pair of heads."""
    names = pairs["first"].values.tolist()
    alone, both, error = (pairs[name].values for name in ("alone", "both", "both_error"))
    rows = [
        [
            names[one],
            names[other],
            *(f"{x:.6g}" for x in (alone[one], alone[other], both[one, other], error[one, other])),
        ]
        for one, other in zip(*np.triu_indices(len(names), 1), strict=True)
    ]
    return _write(path, ["first", "second", "first_change", "second_change", "both_change", "both_error"], rows)


def write_distances_csv(path: Path, apart: xr.Dataset) -> Path:
    """A row for each pair of heads: their distance, and what that of their partners differs by."""
    names, columns = apart["first"].values.tolist(), [str(name) for name in apart.data_vars]
    rows = [
        [names[one], names[other], *(f"{number:.6g}" for number in numbers)]
        for one, other in zip(*np.triu_indices(len(names), 1), strict=True)
        for numbers in [[float(apart[name].values[one, other]) for name in columns]]
        if numbers[0] == numbers[0]
    ]
    return _write(path, ["first", "second", *columns], rows)


def write_shortened_csv(path: Path, shortened: xr.Dataset) -> Path:
    """A row for each ranking and share of tokens that is kept."""
    rows = [
        [
            ranking,
            share,
            *(
                f"{float(one[name]):.6g}"
                for name in ("moved", "moved_error", "same", "same_error", "right", "right_error", "speed")
            ),
        ]
        for ranking in shortened["ranking"].values.tolist()
        for share in shortened["share"].values.tolist()
        for one in [shortened.sel(ranking=ranking, share=share)]
    ]
    return _write(
        path, ["ranking", "kept", "moved", "moved_error", "same", "same_error", "right", "right_error", "speed"], rows
    )


def write_claims_csv(path: Path, claims: Sequence[Claim]) -> Path:
    """A row for each published finding."""
    header = ["finding", "source", "here", "published", "came out", "rule"]
    rows = [[one.statement, one.source, one.verdict, one.published, one.here, one.rule] for one in claims]
    return _write(path, header, rows)


def write_json(path: Path, facts: Mapping[str, Any]) -> Path:
    """As indented JSON; null for what is no number."""
    facts = {name: None if isinstance(value, float) and value != value else value for name, value in facts.items()}
    return write_file(path, (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode("utf-8"))


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return write_file(path, text.getvalue().encode("utf-8"))


def print_heads(
    heads: xr.Dataset, facts: Mapping[str, Any], relations: Sequence[Mapping[str, Any]],
    prune: Mapping[str, Any] | None, against: xr.Dataset | None = None,
    shortened: xr.Dataset | None = None,
) -> None:  # fmt: skip
    """The main findings, for a terminal."""
    count = heads.sizes["layer"] * heads.sizes["head"]
    print(f"{facts['model']} on {facts['corpus']}: {facts['texts']} texts, {facts['tokens']} tokens, {count} heads")
    for name, what in (
        ("peak_previous", "strongest on the previous token"),
        ("peak_next", "strongest on the next token"),
        ("raw_to_special", "most weight on special tokens"),
        ("is_sink", "most often a sink"),
        ("zero_size", "most important"),
    ):
        if name not in heads or not np.isfinite(heads[name].values).any():
            continue
        values = np.where(np.isfinite(heads[name].values), heads[name].values, -np.inf)
        layer, head = np.unravel_index(int(values.argmax()), values.shape)
        place = f"{int(heads['layer'].values[layer])}.{int(heads['head'].values[head])}"
        error = heads[f"{name}_error"].values[layer, head] if f"{name}_error" in heads else np.nan
        bar = "" if error != error else f" ± {error:.2g}"
        print(f"  {what}: {place} ({name.replace('_', ' ')} {values[layer, head]:.2f}{bar})")
    if failed := facts["outcomes that failed"]:
        print(f"  the outcome could not be had of {len(failed)} texts, which are left out: {failed[0]}")
    better = [row for row in relations if row["is_better"]]
    if relations:
        print(f"  syntax: in {len(better)} of {len(relations)} relations a head beats every fixed offset")
    elif met_too_seldom(facts):
        print(f"  syntax: {met_too_seldom(facts)}")
    if prune is not None:
        print(
            f"  dropping {prune['heads']} heads: {prune['change']:+.3g} ± {prune['change_error']:.2g} on texts held"
            f" back (at random {prune['random_change']:+.3g})"
        )
    if against is not None:
        changed, moved = int((against["changed_statistics"].values > 0).sum()), moved_heads(against)
        alike = float(np.nanmean(against["map_cosine"].values))
        print(f"  against {facts['against']}: {changed} of {count} heads changed; mean cosine of maps {alike:.3f}")
        print(f"    {moved} heads stand in another place" if moved else "    every head stands in its own place")
    if shortened is not None:
        half = shortened.sel(share=0.5)
        numbers = zip(*(half[name].values for name in ("ranking", "moved", "moved_error")), strict=True)
        said = ", ".join(f"{ranking} {moved:.3g} ± {error:.2g}" for ranking, moved, error in numbers)
        if np.isfinite(shortened["right_whole"].values):
            right = ", ".join(
                f"{one} {100 * float(half['right'].sel(ranking=one)):.0f} %" for one in half["ranking"].values
            )
            print(f"  right answers: {100 * float(shortened['right_whole']):.0f} %; of half of the tokens by {right}")
        print(f"  half of the tokens: the outcome moves by {said}; {float(half['speed']):.1f} times as fast")
