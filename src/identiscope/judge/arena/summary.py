"""From a table of judgements to what it says: means with intervals, controls, comparisons, and what is undecided."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from identiscope.judge.arena.columns import TEST_PASSES, cell_column, passes_column
from identiscope.judge.case import CEILING, CHANCE, RANDOM, Numbers
from identiscope.judge.registry import Measure, Test
from identiscope.stats.paired_bootstrap import bootstrap_means, compared_pairs, holm
from identiscope.stats.rank_correlation import spearman
from identiscope.stats.sign_flips import sign_flip_p

#: p, over all measures of a test, of the random scorer's distance from chance: a table rarely calls itself wrong.
_CONTROL = 0.01
#: What is stored is float32.
_ROUNDING = 1e-4

#: Numbers by column, [text].
Table = Mapping[str, Numbers]


def summarised(
    table: Table, tests: Sequence[Test], names: Sequence[str], reasons: Mapping[str, str], *, seed: int = 0
) -> dict[str, Any]:
    """What a table says of every test; names: the methods, the random scorer among them. As JSON holds it."""
    return {
        "tests": [_test(table, test, names, reasons, seed) for test in tests],
        "passes": {name: _mean(table.get(passes_column(name))) for name in names},
        "reasons": dict(reasons),
    }


def _test(table: Table, test: Test, names: Sequence[str], reasons: Mapping[str, str], seed: int) -> dict[str, Any]:
    measures = [
        said for measure in test.measures for said in [_measure(table, test, measure, names, seed)] if said is not None
    ]
    controls = _landed([control for said in measures for control in said.pop("controls")])
    return {
        "name": test.name,
        "kind": test.kind,
        "of": test.of,
        "paper": test.paper,
        "says": test.says,
        "trusted": bool(measures) and all(control["lands"] for control in controls),
        "controls": controls,
        "undecided": "" if measures else reasons.get(test.name, "nothing was decided on any text"),
        "measures": measures,
        "same": [one for group in test.same for one in _agreement(table, test, group, names, seed)],
        "passes": _mean(table.get(f"{TEST_PASSES}__{test.name}")),
    }


def _measure(table: Table, test: Test, measure: Measure, names: Sequence[str], seed: int) -> dict[str, Any] | None:
    """One measure of all methods; None where no text decided anything."""
    rows = (*names, CHANCE, CEILING)
    values = np.stack([table[cell_column(test, measure.name, name)] for name in rows], 1)
    if not np.isfinite(values[:, : len(names)]).any():
        return None
    means = bootstrap_means(values, seed=seed)
    sign = -1.0 if measure.better == "low" else 1.0
    methods = [place for place, name in enumerate(names) if name != RANDOM]
    said: dict[str, Any] = {
        "name": measure.name,
        "says": measure.says,
        "better": measure.better,
        "texts": int(np.isfinite(values[:, : len(names)]).any(1).sum()),
        "rows": [
            {"method": name, **_interval(means.mean[place], means.low[place], means.high[place]),
             "texts": int(means.texts[place])}
            for place, name in enumerate(rows)
        ],
        "controls": _controls(test, measure, values, names, sign, seed),
        "pairs": [],
        "best": [],
    }  # fmt: skip
    if measure.paired and len(methods) > 1:
        # What differs by rounding alone is the same.
        rounded = np.round(values[:, methods] / _ROUNDING) * _ROUNDING
        pairs = compared_pairs(sign * rounded, seed=seed)
        said["pairs"] = [
            {
                "first": names[methods[pair.first]], "second": names[methods[pair.second]],
                **_interval(pair.difference, pair.low, pair.high), "p": _number(pair.adjusted), "decided": pair.decided,
            }
            for pair in pairs
        ]  # fmt: skip
        worse = {(pair.first if pair.difference < 0 else pair.second) for pair in pairs if pair.decided}
        said["best"] = [names[place] for at, place in enumerate(methods) if at not in worse and means.texts[place]]
    return said


def _controls(
    test: Test, measure: Measure, values: Numbers, names: Sequence[str], sign: float, seed: int
) -> list[dict[str, Any]]:
    """Whether the ceiling is above all; and how far the random scorer lies from chance, which `_landed` judges."""
    chance, ceiling = values[:, -2], values[:, -1]
    controls: list[dict[str, Any]] = []
    if RANDOM in names and np.isfinite(chance).any():
        away = _of(RANDOM, values, names) - chance
        away = away[np.isfinite(away)]
        means = bootstrap_means(away[:, None], seed=seed)
        interval = f"{means.mean[0]:+.3f} [{means.low[0]:+.3f}, {means.high[0]:+.3f}]"
        p = 1.0 if abs(means.mean[0]) <= _ROUNDING else sign_flip_p(away, seed=seed)
        words = f"{test.name} {measure.name}: the random scorer lies {interval} from chance"
        controls.append({"measure": measure.name, "control": RANDOM, "p": p, "texts": len(away), "says": words})
    if np.isfinite(ceiling).any():
        above = sign * (ceiling[:, None] - values[:, : len(names)])
        least = float(np.nanmin(above)) if np.isfinite(above).any() else float("nan")
        scale = _ROUNDING * max(1.0, float(np.nanmax(np.abs(ceiling))))
        # An audit has no chance of its own: the random scorer, which draws anew, is what changes most.
        below = chance if np.isfinite(chance).any() else _of(RANDOM, values, names)
        lands, words = least >= -scale, f"{test.name} {measure.name}: the ceiling is {np.nanmean(ceiling):.3f}"
        if np.isfinite(below).any():
            beats = float(np.nanmean(sign * (ceiling - below)))
            lands = lands and beats > 0
            words += f", {beats:.3f} better than {'chance' if below is chance else 'the random scorer'}"
        words += f"; no method is more than {max(0.0, -least):.3f} beyond it"
        controls.append(
            {"measure": measure.name, "control": CEILING, "lands": bool(lands), "told": True, "says": words}
        )
    return controls


def _landed(controls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The random scorer of all measures of a test at once, by Holm: does it land, and are there texts enough to tell?

    A table has many such controls. So it calls itself wrong by chance in 1 % of cases, and not each of them.
    """
    drawn = [control for control in controls if control["control"] == RANDOM]
    for control, p in zip(drawn, holm([control["p"] for control in drawn]), strict=True):
        texts = control.pop("texts")
        control["p"] = p
        control["lands"] = p > _CONTROL
        control["told"] = len(drawn) * 2.0 ** (1 - texts) <= _CONTROL
        control["says"] += "" if control["told"] else ", of too few texts to tell"
    return controls


def _of(name: str, values: Numbers, names: Sequence[str]) -> Numbers:
    """The column of one method."""
    return values[:, list(names).index(name)] if name in names else np.full(len(values), np.nan)


def _agreement(
    table: Table, test: Test, group: Sequence[str], names: Sequence[str], seed: int, resamples: int = 500
) -> list[dict[str, Any]]:
    """How far the ranking of methods by one way is that by another: Spearman's of means, texts drawn anew."""
    methods = [name for name in names if name != RANDOM]
    stacks = {way: np.stack([table[cell_column(test, way, name)] for name in methods], 1) for way in group}
    known = np.asarray(np.isfinite(np.stack(list(stacks.values()))).all(0))
    usable = known.any(0)
    texts = known[:, usable].all(1) if usable.any() else np.zeros(len(known), bool)
    if usable.sum() < 3 or texts.sum() < 2:
        return []
    generator = np.random.default_rng(seed)
    said = []
    for place, first in enumerate(group):
        for second in group[place + 1 :]:
            one, other = (stacks[way][texts][:, usable] for way in (first, second))
            drawn = [
                spearman(one[rows].mean(0), other[rows].mean(0))
                for rows in generator.integers(len(one), size=(resamples, len(one)))
            ]
            low, high = np.nanquantile(drawn, [0.025, 0.975])
            whole = spearman(one.mean(0), other.mean(0))
            said.append({"first": first, "second": second, **_interval(whole, low, high)})
    return said


def _mean(values: Numbers | None) -> float | None:
    if values is None or not np.isfinite(values).any():
        return None
    return float(np.nanmean(values))


def _interval(mean: float, low: float, high: float) -> dict[str, float | None]:
    return {"mean": _number(mean), "low": _number(low), "high": _number(high)}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
