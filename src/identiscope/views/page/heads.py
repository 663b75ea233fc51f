"""The page of a survey of heads: a grid by any statistic, a map of heads, a card for each, and tables. One file."""

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from identiscope.files import write_file
from identiscope.views.page.head_cards import head_sentences
from identiscope.views.page.heads_against import against_section
from identiscope.views.page.heads_against_maps import distances_section, maps_section
from identiscope.views.page.heads_gender import gender_section, of_grid
from identiscope.views.page.heads_shortened import shortened_section
from identiscope.views.plots.figures import Claim

#: What the grid shows first.
FIRST = "raw_to_previous"
_HIDDEN = ("map_x", "map_y")
#: The fact that says what is often enough for a relation.
_TIMES = "times that a relation must be met"
_STYLE = """
:root { color-scheme: light dark; --line: #8886; --quiet: #767676; --chosen: #d9480f; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .3rem .6rem; vertical-align: top; }
.rows th, .rows td { border-bottom: 1px solid var(--line); } .rows td.number { text-align: right; }
.quiet { color: var(--quiet); font-size: .9em; } .wide { overflow-x: auto; }
.rows td.number { white-space: nowrap; } #grid th { white-space: nowrap; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 2rem; }
#grid { border-spacing: 2px; border-collapse: separate; } #grid th { font-weight: 400; color: var(--quiet); padding: 0
.4rem; text-align: right; } #grid thead th { text-align: center; }
#grid button { width: 3.1rem; height: 2.2rem; border: 2px solid transparent; border-radius: 4px; font: 12px system-ui;
cursor: pointer; padding: 0; } #grid button.chosen { border-color: var(--chosen); }
select { font: inherit; max-width: 100%; } #card { border: 1px solid var(--line); border-radius: 8px; padding: .2rem
1rem; min-height: 12rem; margin: 1rem 0; } circle { cursor: pointer; }
circle.chosen { stroke: var(--chosen); stroke-width: 3; }
.differences { display: block; height: auto; }
.differences text { font: 12px system-ui, sans-serif; fill: currentColor; }
h1 { overflow-wrap: anywhere; line-height: 1.25; } .two > section { min-width: 0; }
@media (max-width: 45rem) { h1 { font-size: 1.5rem; } .findings thead { display: none; }
.findings tr { display: block; border-bottom: 1px solid var(--line); padding: .4rem 0; }
.findings td { display: block; border: 0; padding: .1rem 0; } .findings td:first-child { font-weight: 600; }
.findings td[data-name]::before { content: attr(data-name) ": "; color: var(--quiet); } }
.pictures { display: flex; gap: 1.5rem; } .pictures figure { margin: 0; flex: none; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e8e8e8; } :root { --quiet: #a0a0a0; } }
"""
# Blue for what has no sign; blue, white, orange for what has one: told apart by people who see no red or green.
_SCRIPT = """
const data = JSON.parse(document.getElementById("numbers").textContent);
const grid = document.getElementById("grid"), choice = document.getElementById("statistic");
const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));
const said = (x) => x === null ? "–" : Math.abs(x) >= 0.0095 || x === 0 ? x.toFixed(2) : x.toExponential(0);
function colour(x, low, high) {
  if (x === null) return [null, ""];
  const white = [247, 247, 247], blue = [8, 69, 148], orange = [179, 66, 0];
  const signed = low < 0, most = Math.max(Math.abs(low), Math.abs(high)) || 1;
  const share = signed ? Math.abs(x) / most : (x - low) / ((high - low) || 1);
  const mixed = mix(white, signed && x < 0 ? orange : blue, Math.sqrt(Math.min(1, share)));
  return [`rgb(${mixed})`, share > 0.3 ? "#fff" : "#111"];
}
function draw() {
  const name = choice.value, one = data.statistics[name], all = one.values.flat().filter((x) => x !== null);
  const low = Math.min(0, ...all), high = Math.max(...all, low + 1e-12);
  document.getElementById("says").textContent = one.says;
  for (const button of grid.querySelectorAll("button")) {
    const [l, h] = [button.dataset.layer, button.dataset.head], x = one.values[l][h];
    const [back, front] = colour(x, low, high);
    button.style.background = back || "transparent"; button.style.color = front || "inherit";
    button.textContent = said(x);
    const error = one.error ? one.error[l][h] : null, bounds = one.bounds ? one.bounds[l][h] : null;
    const name = `layer ${data.layers[l]}, head ${data.heads[h]}: ${said(x)}`
      + (error === null ? "" : ` ± ${said(error)}`)
      + (bounds && bounds[0] !== null ? `; with the same output ${said(bounds[0])} to ${said(bounds[1])}` : "");
    button.title = name;
    button.setAttribute("aria-label", name);
  }
}
function show(l, h) {
  for (const old of document.querySelectorAll(".chosen")) old.classList.remove("chosen");
  for (const one of document.querySelectorAll(`[data-layer="${l}"][data-head="${h}"]`)) one.classList.add("chosen");
  const card = document.getElementById("card");
  card.replaceChildren(document.getElementById(`card-${l}-${h}`).content.cloneNode(true));
}
choice.addEventListener("change", draw);
document.body.addEventListener("click", (event) => {
  const at = event.target.closest("[data-layer]");
  if (at) show(at.dataset.layer, at.dataset.head);
});
draw(); show(0, 0);
"""


def write_heads_page(
    path: Path,
    heads: xr.Dataset,
    labels: Mapping[str, str],
    facts: Mapping[str, Any],
    relations: Sequence[Mapping[str, Any]] = (),
    prune: Mapping[str, Any] | None = None,
    pairs: xr.Dataset | None = None,
    claims: Sequence[Claim] = (),
    against: xr.Dataset | None = None,
    shortened: xr.Dataset | None = None,
    genders: Mapping[str, xr.Dataset] | None = None,
    maps: xr.Dataset | None = None,
    apart: xr.Dataset | None = None,
) -> Path:
    """One HTML file that needs no network. heads: numbers [layer, head], with `_error`s; labels: what each is; claims:
    published findings, judged; against: differences from another model;
    shortened: what the outcome loses in shorter texts; genders: attention by gender, by the name of its templates;
    maps, apart: of both models, how the maps of a text and the distances between heads differ."""
    genders = genders or {}
    for other in (against, *(of_grid(study, name) for name, study in genders.items())):
        heads = heads if other is None else heads.merge(other, combine_attrs="drop")
    names = statistics_of(heads)
    title = f"Heads of {facts['model']} on {facts['corpus']}"
    options = "".join(
        f"<option value='{name}'{' selected' if name == FIRST else ''}>{name.replace('_', ' ')}</option>"
        for name in names
    )
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1><div class="wide"><table class="rows">{_facts(facts)}</table></div>
<h2>Grid</h2>
<p><label>Statistic <select id="statistic">{options}</select></label> <span id="says" class="quiet"></span></p>
<p class="quiet">Means over texts. Point at a cell for its error and, where it has one, its interval: the least and the
most that it could be on the rows drawn while every output of the head stays the same. Choose a cell for its card.</p>
<div class="wide">{_grid(heads)}</div><div id="card" aria-live="polite"></div>
<noscript>The grid needs JavaScript; the same numbers are in heads.csv.</noscript>
<div class="two"><section><h2>Map of heads</h2>{_map(heads, facts)}</section>
<section><h2>Most important heads</h2>{_important(heads)}{_prune(prune)}{_pairs(pairs)}</section></div>
{against_section(against)}{maps_section(against, maps)}{distances_section(apart)}
{shortened_section(shortened)}{_claims(claims)}{_relations(relations, facts)}
{"".join(gender_section(study, name) for name, study in genders.items())}
{_cards(heads)}
<script type="application/json" id="numbers">{_data(heads, names, labels)}</script><script>{_SCRIPT}</script>
</body></html>
"""
    return write_file(path, page.encode("utf-8"))


def statistics_of(heads: xr.Dataset) -> list[str]:
    """The numbers of a survey, without errors, bounds and places."""
    names = [str(name) for name in heads.data_vars]
    return [
        name
        for name in names
        if not name.endswith(("_error", "_lower", "_upper"))
        and name not in _HIDDEN
        and not name.startswith("interval_")
    ]


def bounds_of(heads: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The least and the most that a statistic could be, [layer, head], where it has such."""
    of = "sink" if name == "sink_weight" else name.removeprefix("raw_to_")
    if f"interval_{of}_lower" not in heads:
        return None
    return heads[f"interval_{of}_lower"].values, heads[f"interval_{of}_upper"].values


def _plain(values: np.ndarray) -> Any:
    """As JSON has it: rounded, null for what is no number."""
    return [
        _plain(row) if isinstance(row, np.ndarray) else None if not math.isfinite(row) else float(f"{row:.4g}")
        for row in values
    ]


def _data(heads: xr.Dataset, names: Sequence[str], labels: Mapping[str, str]) -> str:
    statistics = {}
    for name in names:
        one: dict[str, Any] = {"says": labels.get(name, ""), "values": _plain(heads[name].values)}
        if f"{name}_error" in heads:
            one["error"] = _plain(heads[f"{name}_error"].values)
        bounds = bounds_of(heads, name)
        if bounds is not None:
            one["bounds"] = _plain(np.stack(bounds, -1))
        statistics[name] = one
    numbers = {
        "layers": heads["layer"].values.tolist(),
        "heads": heads["head"].values.tolist(),
        "statistics": statistics,
    }
    # No text of the corpus is in it, and still nothing may end the script.
    return json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")


def _facts(facts: Mapping[str, Any]) -> str:
    rows = []
    for name, value in facts.items():
        if isinstance(value, (list, tuple)):
            value = f"{len(value)}{': ' + '; '.join(map(str, value[:3])) if value else ''}"
        if isinstance(value, float):
            value = "–" if math.isnan(value) else f"{value:.2f}"
        rows.append(f"<tr><th scope='row'>{escape(name)}</th><td>{escape(str(value))}</td></tr>")
    return "".join(rows)


def _grid(heads: xr.Dataset) -> str:
    columns = "".join(f"<th scope='col'>{head}</th>" for head in heads["head"].values.tolist())
    rows = []
    for place, layer in enumerate(heads["layer"].values.tolist()):
        cells = "".join(
            f"<td style='padding:0'><button type='button' data-layer='{place}' data-head='{number}'></button></td>"
            for number in range(heads.sizes["head"])
        )
        rows.append(f"<tr><th scope='row'>layer {layer}</th>{cells}</tr>")
    return f"<table id='grid'><thead><tr><th>head</th>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _map(heads: xr.Dataset, facts: Mapping[str, Any]) -> str:
    if "map_x" not in heads or not np.isfinite(heads["map_x"].values).all():
        return "<p class='quiet'>Too few texts were traced for distances.</p>"
    x, y = (heads[name].values - (heads[name].values.min() + heads[name].values.max()) / 2 for name in _HIDDEN)
    size = 1.1 * max(float(np.abs(x).max()), float(np.abs(y).max())) or 1.0
    layers = heads.sizes["layer"]
    dots = []
    for place in np.ndindex(x.shape):
        left, top = 260 + 250 * x[place] / size, 260 - 250 * y[place] / size
        # From light to dark blue: early and late layers.
        shade = 75 - 55 * place[0] / max(layers - 1, 1)
        name = f"layer {heads['layer'].values[place[0]]}, head {heads['head'].values[place[1]]}"
        dots.append(
            f"<circle cx='{left:.1f}' cy='{top:.1f}' r='6' fill='hsl(215 70% {shade:.0f}%)' data-layer='{place[0]}'"
            f" data-head='{place[1]}'><title>{name}</title></circle>"
        )
    share = facts.get("share of distances on the map", float("nan"))
    return (
        f"<svg viewBox='0 0 520 520' role='img' aria-label='map of heads' style='max-width:36rem'>{''.join(dots)}</svg>"
        "<p class='quiet'>Heads that attend alike are near each other: Jensen–Shannon divergence of raw attention on"
        f" rows drawn, by multidimensional scaling; {share:.0%} of it is shown. Later layers are darker. It is of raw"
        " maps: there is no such divergence of maps with negative weights.</p>"
    )


def _important(heads: xr.Dataset, most: int = 12) -> str:
    if "zero_size" not in heads:
        return "<p class='quiet'>No outcome was asked for.</p>"
    kinds = [name.removesuffix("_size") for name in statistics_of(heads) if name.endswith("_size")]
    order = np.argsort(-heads["zero_size"].values.ravel())[:most]
    rows = []
    for place in order:
        layer, head = np.unravel_index(int(place), heads["zero_size"].shape)
        cells = "".join(
            f"<td class='number'>{heads[f'{kind}_size'].values[layer, head]:.2g}"
            f" <span class='quiet'>± {heads[f'{kind}_size_error'].values[layer, head]:.1g}</span></td>"
            for kind in kinds
        )
        gate = heads["gate_gradient"].values[layer, head]
        rows.append(
            f"<tr data-layer='{layer}' data-head='{head}'><td>{heads['layer'].values[layer]}."
            f"{heads['head'].values[head]}</td>{cells}<td class='number'>{gate:.2g}</td></tr>"
        )
    header = "".join(f"<th>{kind}</th>" for kind in kinds)
    return (
        "<p class='quiet'>Mean size of the change of the outcome when the head is left out, by what stands for it; null"
        " is a control that must be zero but for rounding.</p><div class='wide'><table class='rows'><thead><tr><th>head"
        f"</th>{header}<th>gate gradient</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _prune(prune: Mapping[str, Any] | None) -> str:
    if prune is None:
        return ""
    names = ", ".join(f"{layer}.{head}" for layer, head in prune["drop"])
    return (
        f"<h3>Dropping {prune['heads']} heads</h3><p>{escape(names)}: on {prune['texts']} texts held back the outcome"
        f" changes by {prune['change']:+.3g} ± {prune['change_error']:.2g}; with as many heads drawn at random by"
        f" {prune['random_change']:+.3g} (mean of {len(prune['random_changes'])} draws). Sizes, which cannot cancel:"
        f" {prune['size']:.3g} ± {prune['size_error']:.2g}, at random {prune['random_size']:.3g} ±"
        f" {prune['random_size_error']:.2g}.</p>"
    )


def _pairs(pairs: xr.Dataset | None, most: int = 10) -> str:
    """The pairs that lose most beyond what both lose alone: one stands in for the other."""
    if pairs is None:
        return ""
    both, alone, error = (pairs[name].values for name in ("both", "alone", "both_error"))
    beyond = np.triu(np.abs(both) - np.abs(alone[:, None] + alone[None]), 1)
    names = pairs["first"].values.tolist()
    rows = []
    for place in np.argsort(-beyond.ravel())[:most]:
        one, other = np.unravel_index(int(place), beyond.shape)
        rows.append(
            f"<tr><td>{names[one]} and {names[other]}</td><td class='number'>{alone[one]:+.2g}</td>"
            f"<td class='number'>{alone[other]:+.2g}</td><td class='number'>{both[one, other]:+.2g} ±"
            f" {error[one, other]:.1g}</td></tr>"
        )
    return (
        "<h3>Pairs that stand in for each other</h3><p class='quiet'>Changes of the outcome without one, the other, and"
        " both (± a standard error over texts); those where both together lose most beyond the sum.</p>"
        "<div class='wide'><table class='rows'><thead><tr><th>heads</th>"
        f"<th>first</th><th>second</th><th>both</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    rows = "".join(
        f"<tr><td>{escape(claim.statement)}<div class='quiet'>{escape(claim.source)}</div></td>"
        f"<td data-name='here'>{claim.verdict}</td><td data-name='published'>{escape(claim.published)}</td>"
        f"<td data-name='came out'>{escape(claim.here)}</td>"
        f"<td data-name='rule' class='quiet'>{escape(claim.rule)}</td></tr>"
        for claim in claims
    )
    return (
        "<h2>What was published</h2><div class='wide'><table class='rows findings'><thead><tr>"
        "<th>finding</th><th>here</th>"
        f"<th>published</th><th>came out</th><th>rule</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def met_too_seldom(facts: Mapping[str, Any]) -> str:
    """Why there is no relation, in words, where sentences were given."""
    sentences, cut = (
        facts.get(name, 0) for name in ("sentences with dependencies", "sentences that were cut and left out")
    )
    if not sentences and not cut:
        return ""
    left = f"; {cut} sentences were cut and left out" if cut else ""
    return f"no relation was met {facts[_TIMES]} times in every other of {sentences} sentences{left}"


def _relations(relations: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    if not relations:
        seldom = met_too_seldom(facts)
        return f"<h2>Syntactic heads</h2><p>{seldom[0].upper()}{seldom[1:]}.</p>" if seldom else ""
    rows = "".join(
        f"<tr><td>{escape(row['relation'])}</td><td>{row['direction']}</td><td>{row['layer']}.{row['head']}</td>"
        f"<td class='number'>{100 * row['accuracy']:.1f} ± {100 * row['error']:.1f} %</td>"
        f"<td class='number'>{100 * row['simplex_accuracy']:.1f} ± {100 * row['simplex_error']:.1f} %"
        f" ({row['simplex_layer']}.{row['simplex_head']})</td>"
        f"<td class='number'>{100 * row['offset_accuracy']:.1f} ± {100 * row['offset_error']:.1f} %"
        f" ({row['offset']:+d})</td><td class='number'>{row['words']}</td>"
        f"<td>{'yes' if row['is_better'] else ''}</td></tr>"
        for row in relations
    )
    return (
        "<h2>Syntactic heads</h2><p class='quiet'>For each relation the head, and the fixed offset, that found it most"
        " often in every other sentence; how often in the rest, and the same of the head that is best by the maps that"
        f" no rewriting changes. Better: by more than two standard errors. What was met"
        f" fewer than {facts[_TIMES]} times in the sentences that judge is left"
        " out.</p><div class='wide'>"
        "<table class='rows'><thead><tr><th>relation</th><th>direction</th><th>head</th><th>accuracy</th>"
        "<th>in maps that no rewriting changes</th>"
        f"<th>best offset</th><th>words</th><th>better</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cards(heads: xr.Dataset) -> str:
    cards = []
    for layer, head in np.ndindex(heads.sizes["layer"], heads.sizes["head"]):
        numbers = {str(name): float(values.values[layer, head]) for name, values in heads.data_vars.items()}
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in head_sentences(numbers))
        name = f"layer {heads['layer'].values[layer]}, head {heads['head'].values[head]}"
        cards.append(f"<template id='card-{layer}-{head}'><h3>{name}</h3>{said}</template>")
    return "".join(cards)
