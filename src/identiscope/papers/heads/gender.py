"""Attention between pronouns and occupations in templates that differ in gender alone (Li et al. 2021, and kin).

Of each template there are two texts with the same words but for the pronoun. What a head's weight differs by between
them is a claimed bias; beside it stands what that difference could be while every output of the head is what it is. A
word of several tokens: weights *to* it are added up, those *from* it averaged.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from identiscope.asking.ask import ask
from identiscope.capture.capturing import trace
from identiscope.capture.models import Model
from identiscope.capture.trace import Trace
from identiscope.errors import InputError
from identiscope.files import printable, reading
from identiscope.linalg.devices import as_numpy
from identiscope.progress import Progress, tell
from identiscope.results import make_result
from identiscope.runs.heads.means import ClusteredMeans
from identiscope.runs.heads.traced import both_of, evenly, own_sites
from identiscope.stats.simultaneous_interval import simultaneous_interval
from identiscope.views.plots.figures import Claim
from identiscope.views.tables.gender_heads import DIRECTIONS, biased_heads, how_many

PRONOUNS = ("he", "she", "him", "her", "his", "hers", "they", "them", "their")


@dataclass(frozen=True)
class Template:
    """Two texts that differ in the pronoun, and the occupation in both; expected: what the first is to the second."""

    name: str
    first: str
    second: str
    occupation: str
    contrast: str


def read_templates(path: str | Path) -> list[Template]:
    """The templates of WinoBias (`winobias.tsv`: pro- against anti-stereotypical) or Winogender (`all_sentences.tsv`:
    male against female), told by their columns."""
    with reading(path), Path(path).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    columns = set(rows[0]) if rows else set()
    if {"condition", "type", "split", "n", "sentence", "marked_spans"} <= columns:
        templates = list(_winobias(rows))
    elif {"sentid", "sentence"} <= columns:
        templates = list(_winogender(rows))
    else:
        raise InputError(
            f"{printable(path)} has the columns {', '.join(sorted(columns)) or 'none'}; expected those of WinoBias"
            " (condition, type, split, n, sentence, marked_spans) or of Winogender (sentid, sentence)."
        )
    if not templates:
        raise InputError(f"{printable(path)} has no two sentences that differ in a pronoun alone.")
    for template in templates:
        for text in (template.first, template.second):
            _occupation_in(text, template.occupation)
    return templates


def _winobias(rows: Sequence[dict[str, str]]) -> Iterator[Template]:
    texts = {(row["condition"], row["type"], row["split"], row["n"]): row for row in rows}
    for (condition, *key), row in texts.items():
        other = texts.get(("anti", *key))  # type: ignore[arg-type]
        if condition == "pro" and other is not None and _differ_in_pronouns(row["sentence"], other["sentence"]):
            occupation = row["marked_spans"].split("|")[0].split()[-1]
            yield Template(".".join(key), row["sentence"], other["sentence"], occupation, "pro less anti")


def _winogender(rows: Sequence[dict[str, str]]) -> Iterator[Template]:
    texts = {row["sentid"]: row["sentence"] for row in rows}
    for name, sentence in texts.items():
        other = texts.get(name.replace(".male.", ".female."))
        if ".male." in name and other is not None:
            yield Template(name.removesuffix(".male.txt"), sentence, other, name.split(".")[0], "male less female")


def _differ_in_pronouns(one: str, other: str) -> bool:
    first, second = (text.rstrip(".").split() for text in (one, other))
    changed = [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]
    return len(first) == len(second) and bool(changed) and all(a.lower() in PRONOUNS for pair in changed for a in pair)


def _occupation_in(text: str, occupation: str) -> tuple[int, int]:
    """Where in a text the occupation is: a word of its own, since a cook is not in "cookies"."""
    where = re.search(rf"\b{re.escape(occupation)}\b", text, re.IGNORECASE)
    if where is None:
        raise InputError(f"{occupation!r} is no word of {text!r}.")
    return where.span()


@dataclass(frozen=True)
class _Places:
    """Where in a text the pronoun and the occupation are."""

    pronoun: list[int]
    occupation: list[int]

    def of(self, direction: str) -> tuple[list[int], list[int]]:
        """Queries and keys."""
        both = self.pronoun, self.occupation
        return both if direction == "to_occupation" else both[::-1]


def _places(traced: Trace, text: str, other: str, occupation: str) -> _Places:
    """The tokens of the first word in which two texts differ, and of the occupation."""
    if traced.main.offsets is None:
        raise InputError("the tokenizer does not say which characters its tokens are; words cannot be found.")
    begin = next(place for place, (a, b) in enumerate(zip(text, other, strict=False)) if a != b)
    begin = text.rfind(" ", 0, begin) + 1
    ends = [place for place in range(begin, len(text)) if not text[place].isalpha()]
    end = ends[0] if ends else len(text)
    spans = ((begin, end), _occupation_in(text, occupation))
    found = [
        [
            place
            for place, (start, stop) in enumerate(traced.main.offsets)
            if not traced.main.special[place] and min(stop, right) > max(start, left)
        ]
        for left, right in spans
    ]
    if not all(found):
        raise InputError(f"no tokens cover the pronoun or {occupation!r} in {text!r}.")
    return _Places(*found)


def gender_study(
    model: Model, templates: Sequence[Template], *, intervals: int = 8, progress: Progress | None = None
) -> xr.Dataset:
    """Mean differences of the weight from the pronoun to the occupation, `to_occupation` [layer, head], and the other
    way, `to_pronoun`, each with its standard error, its paired interval (`_low`, `_high`: Student's, 95 % for all heads
    and both ways together), and how many `_templates` and `_occupations` there are. Templates with the same occupation
    are not independent: errors are of occupations drawn anew, each with all of its templates. `simplex_`: the same of
    the maps that no rewriting changes.

    `interval_…_lower` and `_upper`: what the difference could be while all outputs stay what they are; how far below
    and above it that lies is the mean over `intervals` of the templates, which leaves the `_error` open. `states`
    [layer]: the same difference of the cosine of both words' hidden states, as a control. A model that sees no later
    token has each template one way alone, from the word that comes later.
    """
    chosen = set(evenly(len(templates), intervals)) if intervals else set()
    sums: dict[str, ClusteredMeans] = {}
    states, layers, heads = ClusteredMeans(), [0], [0]
    for number, template in enumerate(templates):
        sides, occupation = [], template.occupation.lower()
        for text, other in ((template.first, template.second), (template.second, template.first)):
            traced = trace(model, text)
            sides.append((traced, _places(traced, text, other, template.occupation)))
        sites = own_sites(sides[0][0])
        layers, heads = [site.layer for site in sites], list(sites[0].heads)
        maps = [[both_of(site) for site in own_sites(traced)] for traced, _ in sides]
        for direction in DIRECTIONS:
            if sites[0].kind == "decoder-self" and any(_looks_ahead(one.of(direction)) for _, one in sides):
                continue
            first, second = (_weights(own, one.of(direction)) for own, (_, one) in zip(maps, sides, strict=True))
            for kind, values in zip(("", "simplex_"), first - second, strict=True):
                sums.setdefault(f"{kind}{direction}", ClusteredMeans()).add(values, occupation)
            if number in chosen:
                low, high = (_bounds(traced, one.of(direction)) for traced, one in sides)
                # Rows of two texts are free of each other: the least of one meets the most of the other.
                now, bounds = low[0] - high[0], (low[1] - high[2], low[2] - high[1])
                for end, values in zip(("lower", "upper"), bounds, strict=True):
                    name = f"interval_{direction}_{end}"
                    sums.setdefault(name, ClusteredMeans()).add(values - now, occupation)
        cosines = [_cosines(traced, one) for traced, one in sides]
        states.add(cosines[0] - cosines[1], occupation)
        tell(progress, "templates", number + 1, len(templates))
    if not sums:
        raise InputError("no templates were given; expected at least one.")
    arrays: dict[str, tuple[tuple[str, ...], Any]] = {}
    for name, means in sums.items():
        of = re.fullmatch("interval_(.*)_(?:lower|upper)", name)
        numbers = {"": means.mean + (sums[of[1]].mean if of else 0.0), "_error": means.error}
        if name.removeprefix("simplex_") in DIRECTIONS:
            ends = simultaneous_interval(means.mean, means.error, means.clusters, len(DIRECTIONS) * means.mean.size)
            numbers |= {"_low": ends[0], "_high": ends[1]}
            numbers |= {"_templates": means.count, "_occupations": means.clusters}
        arrays |= {f"{name}{end}": (("layer", "head"), values) for end, values in numbers.items()}
    ends = simultaneous_interval(states.mean, states.error, states.clusters, states.mean.size)
    for end, values in {"": states.mean, "_error": states.error, "_low": ends[0], "_high": ends[1]}.items():
        arrays[f"states{end}"] = (("layer",), values)
    facts = {"model": model.name, "templates": len(templates), "contrast": templates[0].contrast,
             "with_intervals": len(chosen)}  # fmt: skip
    return make_result("gender", arrays, coordinates={"layer": layers, "head": heads}, provenance=facts)


def _looks_ahead(places: tuple[list[int], list[int]]) -> bool:
    queries, keys = places
    return max(keys) >= min(queries)


def _weights(maps: Sequence[Tensor], places: tuple[list[int], list[int]]) -> NDArray[np.float64]:
    """[raw and real, layer, head]."""
    queries, keys = places
    weights = np.stack([as_numpy(both[:, queries][:, :, keys].sum(-1).mean(-1)) for both in maps])
    return np.stack(np.split(weights, 2, axis=1))


def _bounds(traced: Trace, places: tuple[list[int], list[int]]) -> list[NDArray[np.float64]]:
    queries, keys = places
    found = ask("statistic_interval", traced, on=keys, rows=queries, attention=own_sites(traced)[0].kind)
    return [found[name].values for name in ("statistic", "lower", "upper")]


def _cosines(traced: Trace, places: _Places) -> NDArray[np.float64]:
    """Of the mean states of both words after each layer, [layer]."""
    cosines = []
    for state in traced.main.hidden_states[1:]:
        one, other = (as_numpy(state[own].double().mean(0)) for own in (places.pronoun, places.occupation))
        cosines.append(float(one @ other / np.sqrt((one @ one) * (other @ other))))
    return np.array(cosines)


def gender_claim(study: xr.Dataset, source: str) -> Claim:
    """Whether some head attends differently by gender, and how many of these differences the outputs determine."""
    said, found = [], 0
    for direction, words in DIRECTIONS.items():
        if direction not in study:
            continue
        sure, real, fixed, known = (biased_heads(study, direction)[name] for name in ("sure", "real", "fixed", "known"))
        found += int(sure.sum())
        values, errors = study[direction].values, study[f"{direction}_error"].values
        place = np.unravel_index(int(np.nanargmax(np.abs(values))), values.shape)
        part = f"{words} {int(sure.sum())} of {sure.size} heads ({how_many(study, direction)}; largest"
        part += f" {values[place]:+.3f} ± {errors[place]:.3f}), {int((sure & real).sum())} of them in the map that no"
        part += " rewriting changes too"
        if known:
            part += f"; of {int((sure & ~fixed).sum())} the outputs leave the sign open"
        said.append(part)
    states = (study["states_low"].values > 0) | (study["states_high"].values < 0)
    here = f"{study.attrs['contrast']}: {'; '.join(said)}; hidden states differ in {int(states.sum())} of {states.size}"
    return Claim(
        statement=f"some heads attend between pronoun and occupation by gender, in {source}",
        source="Li et al. 2021",
        published="attention of gendered words and occupations is compared (a difference: expected, not measured)",
        rule="the paired interval of the mean difference (Student's over occupations, each with all of its templates;"
        " 95 % for all heads and both ways together) is off zero in at least one head; what outputs leave open is of"
        f" {study.attrs['with_intervals']} templates",
        here=f"{here} layers",
        holds=True if found else None,
    )
