"""The page of the arena: for each test, what every method scored, with controls and comparisons. Plain HTML."""

import csv
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from identiscope.files import write_file
from identiscope.views.page.reproduction import STYLE

_OWN = """
pre { white-space: pre-wrap; overflow-wrap: anywhere; } h1, h2 { line-height: 1.25; } summary { cursor: pointer; }
.rank { width: auto; } .rank td, .rank th { white-space: nowrap; padding: .2rem .6rem; }
.rank td { font-variant-numeric: tabular-nums; }
.rank tr.control td { color: var(--quiet); font-style: italic; } .trust { font-weight: 600; }
svg.interval { width: 9rem; height: 1.1rem; vertical-align: middle; }
svg .line { stroke: currentColor; stroke-width: 2; } svg .dot { fill: #0072b2; } svg .chance { stroke: #d55e00;
stroke-dasharray: 2 2; } details { margin: .5rem 0 1rem; } .measure { margin-top: 1.4rem; }
.rank.all th { font-weight: 400; vertical-align: bottom; white-space: normal; }
.all th b { display: block; } .all .first { font-weight: 700; }
.all th:first-child, .all td:first-child { position: sticky; left: 0; background: Canvas; }
@media (max-width: 40rem) { .rank { font-size: .75rem; } .rank td, .rank th { padding: .2rem; }
svg.interval { width: 3.8rem; } }
@media (prefers-color-scheme: dark) { .all th:first-child, .all td:first-child { background: #16181c; }
svg .dot { fill: #56b4e9; } svg .chance { stroke: #e69f00; } }
"""
CONTROLS = ("random", "chance", "ceiling")


def write_arena_page(said: Mapping[str, Any], directory: Path, command: str = "") -> Path:
    """`index.html` of what the judge said."""
    tests = "".join(_test(test, said["passes"]) for test in said["tests"])
    title = f"Which explanation survives? {said['model']}"
    texts = f"{counted(said['texts'], 'text')} of {said['corpus']}" if said["corpus"] else "planted models alone"
    why = "".join(f"<li>{escape(name)}: {escape(words)}</li>" for name, words in said["reasons"].items())
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}{_OWN}</style></head><body>
<h1>{escape(title)}</h1>
<p>{escape(texts)}; {counted(len(said["methods"]), "method")}, {counted(len(said["tests"]), "test")}. {_trust(said)}</p>
{f"<pre>{escape(command)}</pre>" if command else ""}
<p class="data">Numbers are means over texts; in brackets 95 % intervals, drawing texts anew. The dashed line is what a
scorer that knows nothing would have. Methods are compared in pairs on the same texts, p adjusted by Holm: among those
that share the first place it is undecided which is better.</p>
{_overview(said)}
{f"<h2>What could not be asked</h2><ul>{why}</ul>" if why else ""}
{tests}
</body></html>
"""
    return write_file(directory / "index.html", page.encode("utf-8"))


def _trust(said: Mapping[str, Any]) -> str:
    doubtful = [test["name"] for test in said["tests"] if test["measures"] and not test["trusted"]]
    if not doubtful:
        return f"<span class='trust holds'>{_landing('Every control lands', said['tests'])}</span>"
    return f"<span class='trust fails'>Not to be trusted: {escape(', '.join(doubtful))}.</span>"


def _landing(words: str, tests: Sequence[Mapping[str, Any]]) -> str:
    """That controls land, and of which measures there are too few texts to tell whether the random scorer does."""
    few = [f"{test['name']} {one['measure']}" for test in tests for one in test["controls"] if not one["told"]]
    return f"{words}; of too few texts to tell for {escape(', '.join(few))}." if few else f"{words}."


def counted(number: int, word: str) -> str:
    """A number of things.

    >>> counted(1, "text"), counted(3, "text")
    ('1 text', '3 texts')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def first_places(measure: Mapping[str, Any]) -> list[str]:
    """The methods that no other is shown to be better than; none if that is all of them."""
    heard = [row for row in measure["rows"] if row["mean"] is not None and row["method"] not in CONTROLS]
    best: list[str] = measure["best"]
    return best if len(best) < len(heard) else []


def _overview(said: Mapping[str, Any]) -> str:
    """Method × test: the measures that methods are compared by."""
    shown = [(test, one) for test in said["tests"] for one in test["measures"] if one["pairs"]]
    if not shown:
        return ""
    head = "".join(
        f"<th><b><a href='#{test['name']}'>{escape(test['name'])}</a>"
        f"{'' if test['trusted'] else ' (not to be trusted)'}</b>"
        f"{escape(one['name'].replace('_', ' '))} {'↓' if one['better'] == 'low' else '↑'}</th>"
        for test, one in shown
    )
    names = [row["method"] for row in shown[0][1]["rows"]]
    means = [{row["method"]: row["mean"] for row in one["rows"]} for _, one in shown]
    firsts = [first_places(one) for _, one in shown]
    body = ""
    for name in names:
        cells = "".join(
            f"<td{' class=first' if name in first else ''}>{'–' if mean[name] is None else f'{mean[name]:.2f}'}</td>"
            for mean, first in zip(means, firsts, strict=True)
        )
        body += f"<tr{' class=control' if name in CONTROLS else ''}><td>{escape(name)}</td>{cells}</tr>"
    return (
        "<h2>All at a glance</h2><p class='data'>Means; ↑ high is good, ↓ low is good. Bold: no other is shown to be"
        " better, and some are shown to be worse. –: nothing is decided.</p><div class='wide'><table class='rank all'>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _test(test: Mapping[str, Any], passes: Mapping[str, float | None]) -> str:
    head = f"<h2 id='{test['name']}'>{escape(test['name'])}: {escape(test['says'])}?</h2>"
    source = f"<p class='data'>{escape(test['paper'])}"
    count = round(test["passes"] or 0)
    source += f"; {count} {'pass' if count == 1 else 'passes'} a text</p>" if count else "</p>"
    if test["undecided"]:
        return f"{head}{source}<p class='open'>Undecided: {escape(test['undecided'])}.</p>"
    controls = "".join(
        f"<li class='{'holds' if one['lands'] else 'fails'}'>{escape(one['says'])}: "
        f"{'lands' if one['lands'] else 'does not land'}</li>"
        for one in test["controls"]
    )
    word = (
        f"<p class='trust holds'>{_landing('Its controls land', [test])}</p>"
        if test["trusted"]
        else "<p class='trust fails'>Its controls do not land: this table is not to be trusted.</p>"
    )
    same = "".join(
        f"<li>{escape(one['first'])} and {escape(one['second'])}: {_interval(one)}</li>" for one in test["same"]
    )
    same = (
        f"<p>How far the ranking of methods by one way of asking is that by another (Spearman):</p><ul>{same}</ul>"
        if same
        else ""
    )
    leading = [one for one in test["measures"] if one["pairs"]] or test["measures"]
    measures = "".join(_measure(measure, passes) for measure in leading)
    others = "".join(_measure(measure, passes) for measure in test["measures"] if measure not in leading)
    more = f"<details><summary>Other measures</summary>{others}</details>" if others else ""
    return (
        f"{head}{source}{word}<details><summary>Controls</summary><ul>{controls}</ul></details>{same}{measures}{more}"
    )


def _measure(measure: Mapping[str, Any], passes: Mapping[str, float | None]) -> str:
    known = [row for row in measure["rows"] if row["mean"] is not None]
    unknown = [row["method"] for row in measure["rows"] if row["mean"] is None and row["method"] not in CONTROLS]
    ends = [row[end] for row in known for end in ("low", "high") if row[end] is not None]
    low, high = min(ends), max(ends)
    chance = next((row["mean"] for row in known if row["method"] == "chance"), None)
    first = first_places(measure)
    rows = "".join(
        f"<tr{' class=control' if row['method'] in CONTROLS else ''}><td>{escape(row['method'])}"
        f"{' ●' if row['method'] in first else ''}</td><td>{_interval(row)}</td>"
        f"<td>{_strip(row, low, high, chance)}</td><td>{row['texts']}</td><td>{_passes(row, passes)}</td></tr>"
        for row in ordered(measure)
    )
    way = {"high": "high is good", "low": "low is good", "neither": "neither end is good"}[measure["better"]]
    best = f"<p class='data'>● shares the first place: {escape(', '.join(first))}.</p>" if first else ""
    silent = f"<p class='open'>Undecided: {escape(', '.join(unknown))}.</p>" if unknown else ""
    return (
        f"<h3 class='measure'>{escape(measure['name'])}</h3><p class='data'>{escape(measure['says'])}; {way};"
        f" {counted(measure['texts'], 'text')}.</p><div class='wide'><table class='rank'><thead><tr><th>method</th>"
        f"<th>mean</th><th></th><th>texts</th><th>passes</th></tr></thead><tbody>{rows}</tbody></table></div>{best}{silent}"
        f"{_pairs(measure['pairs'])}"
    )


def _passes(row: Mapping[str, Any], passes: Mapping[str, float | None]) -> str:
    """Beside the captured pass that all share; not known of others' methods, and not asked of controls."""
    count = passes.get(row["method"])
    return "" if count is None else f"{count:g}"


def ordered(measure: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rows with a number, the best first; controls among them."""
    known = [row for row in measure["rows"] if row["mean"] is not None]
    return sorted(known, key=lambda row: row["mean"] if measure["better"] == "low" else -row["mean"])


def _interval(one: Mapping[str, Any]) -> str:
    if one["low"] is None or one["low"] == one["high"]:
        return f"{one['mean']:.3f}"
    return f"{one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"


def _strip(row: Mapping[str, Any], low: float, high: float, chance: float | None) -> str:
    span = (high - low) or 1.0

    def at(value: float) -> str:
        return f"{4 + 92 * (value - low) / span:.1f}"

    line = ""
    if row["low"] is not None:
        line = f"<line class='line' x1='{at(row['low'])}' x2='{at(row['high'])}' y1='6' y2='6'/>"
    dashed = "" if chance is None else f"<line class='chance' x1='{at(chance)}' x2='{at(chance)}' y1='0' y2='12'/>"
    dot = f"<circle class='dot' cx='{at(row['mean'])}' cy='6' r='2.5'/>"
    return f"<svg class='interval' viewBox='0 0 100 12' aria-hidden='true'>{dashed}{line}{dot}</svg>"


def _pairs(pairs: Sequence[Mapping[str, Any]]) -> str:
    if not pairs:
        return ""
    rows = "".join(
        f"<tr><td>{escape(pair['first'])}</td><td>{escape(pair['second'])}</td><td>{_interval(pair)}</td>"
        f"<td>{_p(pair['p'])}</td><td class='{'holds' if pair['decided'] else 'open'}'>{_word(pair)}</td></tr>"
        for pair in pairs
        if pair["mean"] is not None
    )
    decided = sum(bool(pair["decided"]) for pair in pairs)
    return (
        f"<details><summary>{decided} of {len(pairs)} pairs are decided</summary><div class='wide'><table class='rank'>"
        "<thead><tr><th>first</th><th>second</th><th>difference, high is good for the first</th><th>p (Holm)</th><th>"
        f"</th></tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else "&lt; 0.001"


def _word(pair: Mapping[str, Any]) -> str:
    if not pair["decided"]:
        return "undecided"
    return f"{escape(pair['first'] if pair['mean'] > 0 else pair['second'])} is better"


def arena_csv(said: Mapping[str, Any]) -> str:
    """Every number of every test, a row for each method and measure."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["test", "measure", "method", "mean", "low", "high", "texts", "better", "trusted", "passes"])
    for test in said["tests"]:
        for measure in test["measures"]:
            for row in measure["rows"]:
                numbers = [row["mean"], row["low"], row["high"]]
                writer.writerow([
                    test["name"], measure["name"], row["method"], *("" if one is None else one for one in numbers),
                    row["texts"], measure["better"], test["trusted"], said["passes"].get(row["method"], ""),
                ])  # fmt: skip
    return sink.getvalue()
