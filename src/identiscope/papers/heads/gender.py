"""Attention from pronouns to occupations in templates that differ in gender alone (Li et al. 2021, and kin).

Of each template there are two texts with the same words but for the pronoun. What a head's weight differs by between
them is a claimed bias; beside it stands what that difference could be while every output of the head is what it is. A
word of several tokens: weights *to* it are added up, those *from* it averaged.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from identiscope.asking.ask import ask
from identiscope.capture.capturing import trace
from identiscope.capture.models import Model
from identiscope.capture.trace import Trace
from identiscope.errors import InputError
from identiscope.files import printable
from identiscope.linalg.devices import as_numpy
from identiscope.progress import Progress, tell
from identiscope.results import make_result
from identiscope.runs.heads.means import Means
from identiscope.runs.heads.traced import evenly, own_sites
from identiscope.stats.simultaneous_interval import simultaneous_interval
from identiscope.views.plots.figures import Claim

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
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    columns = set(rows[0]) if rows else set()
    if {"condition", "type", "split", "n", "sentence", "marked_spans"} <= columns:
        return list(_winobias(rows))
    if {"sentid", "sentence"} <= columns:
        return list(_winogender(rows))
    raise InputError(
        f"{printable(path)} has the columns {', '.join(sorted(columns)) or 'none'}; expected those of WinoBias"
        " (condition, type, split, n, sentence, marked_spans) or of Winogender (sentid, sentence)."
    )


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


@dataclass(frozen=True)
class _Places:
    """Where in a text the pronoun and the occupation are."""

    pronoun: list[int]
    occupation: list[int]


def _places(traced: Trace, text: str, other: str, occupation: str) -> _Places:
    """The tokens of the first word in which two texts differ, and of the occupation."""
    if traced.main.offsets is None:
        raise InputError("the tokenizer does not say which characters its tokens are; words cannot be found.")
    begin = next(place for place, (a, b) in enumerate(zip(text, other, strict=False)) if a != b)
    begin = text.rfind(" ", 0, begin) + 1
    ends = [place for place in range(begin, len(text)) if not text[place].isalpha()]
    end = ends[0] if ends else len(text)
    where = text.lower().find(occupation.lower())
    if where < 0:
        raise InputError(f"{occupation!r} is no word of {text!r}.")
    spans = ((begin, end), (where, where + len(occupation)))
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
    """Mean difference of the weight from the pronoun to the occupation [layer, head], with its standard error over
    templates; `lower` and `upper`: the mean of what it could be, of `intervals` templates, and `drawn`, the difference
    itself on these; `states` [layer]: the same difference of the cosine of both words' hidden states, as a control.

    Templates in which the occupation comes after the pronoun are left out for models that see no later token.
    """
    chosen = set(evenly(len(templates), intervals)) if intervals else set()
    difference, states, ends = Means(), Means(), [Means() for _ in range(3)]
    causal, layers, heads, skipped = False, [0], [0], 0
    for number, template in enumerate(templates):
        sides = []
        for text, other in ((template.first, template.second), (template.second, template.first)):
            traced = trace(model, text)
            sides.append((traced, _places(traced, text, other, template.occupation)))
        sites = own_sites(sides[0][0])
        layers, heads = [site.layer for site in sites], list(sites[0].heads)
        causal = sites[0].kind == "decoder-self"
        if causal and any(max(one.occupation) >= min(one.pronoun) for _, one in sides):
            skipped += 1
            continue
        weights = [_weights(traced, one) for traced, one in sides]
        difference.add(weights[0] - weights[1])
        cosines = [_cosines(traced, one) for traced, one in sides]
        states.add(cosines[0] - cosines[1])
        if number in chosen:
            first, second = (_bounds(traced, one) for traced, one in sides)
            # Rows of two texts are free of each other: the least of one meets the most of the other.
            for one, values in zip(
                ends, (first[0] - second[0], first[1] - second[2], first[2] - second[1]), strict=True
            ):
                one.add(values)
        tell(progress, "templates", number + 1, len(templates))
    if not difference.count.size or not float(np.max(difference.count)):
        raise InputError("no template has its occupation before its pronoun, which this model would need.")
    axes = ("layer", "head")
    arrays: dict[str, tuple[tuple[str, ...], Any]] = {
        "difference": (axes, difference.mean),
        "error": (axes, difference.error),
    }
    if chosen and ends[0].count.shape:
        arrays |= {name: (axes, one.mean) for name, one in zip(("drawn", "lower", "upper"), ends, strict=True)}
    arrays |= {"states": (("layer",), states.mean), "states_error": (("layer",), states.error)}
    facts = {"model": model.name, "templates": len(templates) - skipped, "skipped": skipped,
             "contrast": templates[0].contrast, "with_intervals": int(np.max(ends[0].count))}  # fmt: skip
    return make_result("gender", arrays, coordinates={"layer": layers, "head": heads}, provenance=facts)


def _weights(traced: Trace, places: _Places) -> NDArray[np.float64]:
    """[layer, head]."""
    return np.stack(
        [
            as_numpy(site.attentions()[:, places.pronoun][:, :, places.occupation].sum(-1).mean(-1))
            for site in own_sites(traced)
        ]
    )


def _bounds(traced: Trace, places: _Places) -> list[NDArray[np.float64]]:
    kind = own_sites(traced)[0].kind
    found = ask("statistic_interval", traced, on=places.occupation, rows=places.pronoun, attention=kind)
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
    sure, free, count = biased_heads(study)
    values, errors = study["difference"].values, study["error"].values
    place = np.unravel_index(int(np.nanargmax(np.abs(values))), values.shape)
    layers = study.sizes["layer"]
    ends = simultaneous_interval(
        study["states"].values, study["states_error"].values, np.full(layers, study.attrs["templates"]), layers
    )
    states = (ends[0] > 0) | (ends[1] < 0)
    known = int(study.attrs["with_intervals"])
    said = f"{sure} of {count} heads ({study.attrs['contrast']}, {study.attrs['templates']} templates; largest"
    said += f" {values[place]:+.3f} ± {errors[place]:.3f})"
    said += f"; of {free} of these the sign is left open by what the outputs determine ({known} templates)" * bool(
        known
    )
    said += f"; hidden states differ in {int(states.sum())} of {len(states)} layers"
    return Claim(
        statement=f"some heads attend from pronoun to occupation by gender, in {source}",
        source="Li et al. 2021",
        published="attention of gendered words and occupations is compared (a difference: expected, not measured)",
        rule="the paired interval of the mean difference over templates (Student's, 95 % for all heads together) is off"
        " zero in at least one head",
        here=said,
        holds=True if sure else None,
    )


def biased_heads(study: xr.Dataset) -> tuple[int, int, int]:
    """How many heads have an interval over templates off zero (95 % for all of them together); of those with bounds, in
    how many these leave the sign of the mean difference open; and how many heads there are."""
    difference = study["difference"].values
    ends = simultaneous_interval(
        difference, study["error"].values, np.full(difference.shape, study.attrs["templates"]), difference.size
    )
    sure = (ends[0] > 0) | (ends[1] < 0)
    free = np.zeros_like(sure)
    if "lower" in study:
        free = (study["lower"].values <= 0) & (study["upper"].values >= 0)
    return int(sure.sum()), int((sure & free).sum()), int(sure.size)
