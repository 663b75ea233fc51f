"""Two models on the page of heads, in pictures: how maps of a text differ cell by cell, and distances between heads."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from identiscope.token_text import shown_token

#: So many heads have pictures, of so many tokens at most; so many of the largest differences are said in words.
_HEADS, _TOKENS, _SAID = 4, 32, 3
#: Blue is more in the other model, orange less; told apart by people who see no red or green.
_WHITE, _MORE, _LESS = (247, 247, 247), (8, 69, 148), (179, 66, 0)
#: Steps of colour from none to the most, and letters of a token.
_STEPS, _LETTERS = 12, 14
_KINDS = {"map": "attention weights", "simplex_map": "map that no rewriting changes"}


def maps_section(against: xr.Dataset | None, maps: xr.Dataset | None) -> str:
    """The heads whose maps are farthest apart on one text: raw, and the map that no rewriting changes."""
    if against is None or maps is None:
        return ""
    changes = np.abs(maps["map"].values).sum(-1).mean(-1) / 2
    order = [int(place) for place in np.argsort(-np.nan_to_num(changes, nan=-1).ravel(), kind="stable")]
    chosen = [np.unravel_index(place, changes.shape) for place in order[:_HEADS] if changes.ravel()[place] > 0]
    tokens = [shown_token(token) for token in maps["query_token"].values.tolist()]
    cut = f", the first {_TOKENS} of them" if len(tokens) > _TOKENS else ""
    says = (
        f"<h3>Where the maps differ</h3><p class='quiet'>One text of {len(tokens)} tokens{cut}: the map of the other"
        " model's head less that of this one; a row is what a token gives. Blue: more in the other model, orange: less;"
        " all pictures have one scale. Heads of which most weight stands elsewhere on this text come first; the others"
        " are in against-maps.safetensors.</p>"
    )
    if not chosen:
        return f"{says}<p>No map differs on this text.</p>"
    parts = {name: maps[name].values[..., :_TOKENS, :_TOKENS] for name in _KINDS}
    most = max(float(np.abs(values[at]).max()) for at in chosen for values in parts.values())
    figures = []
    for at in chosen:
        name = f"{against['layer'].values[at[0]]}.{against['head'].values[at[1]]}"
        partner = f"{against['matched_layer'].values[at]:.0f}.{against['matched_head'].values[at]:.0f}"
        pictures = "".join(
            f"<figure>{_tokens_picture(values[at], tokens[:_TOKENS], most, f'head {name}, {_KINDS[kind]}')}"
            f"<figcaption class='quiet'>{_KINDS[kind]}</figcaption></figure>"
            for kind, values in parts.items()
        )
        figures.append(
            f"<h4>Head {name}, there {partner}: {changes[at]:.2f} of the weight stands elsewhere</h4>"
            f"<p>{_in_words(maps['map'].values[at], tokens)}</p><div class='wide pictures'>{pictures}</div>"
        )
    return f"{says}{_scale(most)}{''.join(figures)}"


def _in_words(differences: NDArray[np.float32], tokens: Sequence[str]) -> str:
    """The largest differences of one map."""
    said = []
    for place in np.argsort(-np.abs(differences).ravel(), kind="stable")[:_SAID]:
        query, key = map(int, np.unravel_index(int(place), differences.shape))
        words = f"{tokens[query]} (token {query}) gives {tokens[key]} (token {key}) {differences[query, key]:+.2f}"
        said.append(escape(words))
    return f"Most: {'; '.join(said)}."


def distances_section(apart: xr.Dataset | None, most: int = 10) -> str:
    """All pairs of heads as a picture, and those whose distance changed most."""
    if apart is None:
        return ""
    names, values = apart["first"].values.tolist(), apart["difference"].values
    pairs = int(np.isfinite(np.triu(values, 1)[np.triu_indices(len(names), 1)]).sum())
    changed = int(np.nansum(np.triu(apart["changed"].values, 1)))
    upper = np.where(np.triu(apart["changed"].values == 1, 1), np.abs(values), 0.0)
    rows = "".join(
        f"<tr><td>{names[one]} and {names[other]}</td>"
        f"<td class='number'>{apart['distance'].values[one, other]:.3f}</td>"
        f"<td class='number'>{values[one, other]:+.3f} <span class='quiet'>("
        f"{apart['difference_lower'].values[one, other]:+.3f} to {apart['difference_upper'].values[one, other]:+.3f})"
        "</span></td></tr>"
        for place in np.argsort(-upper.ravel(), kind="stable")[:most]
        for one, other in [np.unravel_index(int(place), upper.shape)]
        if upper[one, other] > 0
    )
    table = (
        "<table class='rows'><thead><tr><th>heads</th><th>distance here</th><th>there less here</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
    largest = float(np.nanmax(np.abs(values), initial=0.0)) if pairs else 0.0
    picture = f"{_heads_picture(values, names, largest)}{_scale(largest)}" if largest > 0 else ""
    return (
        f"<h3>How far heads are from each other</h3><p>{changed} of {pairs} pairs of heads are at another distance in"
        " the other model.</p><p class='quiet'>Jensen–Shannon divergence of the partners of two heads less that of the"
        " two, in bits, on the same rows: the mean over the texts that were traced, with a paired interval (95 % for"
        " all pairs together). Blue: farther apart in the other model, orange: nearer. All pairs are in"
        f" against-distances.csv.</p><div class='two'><div class='wide'>{picture}</div>"
        f"<div class='wide'>{table if rows else ''}</div></div>"
    )


def _tokens_picture(values: NDArray[np.float32], tokens: Sequence[str], most: float, says: str) -> str:
    """A map with its tokens at both sides."""
    size, left = 15, 8 * _LETTERS
    short = [token if len(token) <= _LETTERS else token[: _LETTERS - 1] + "…" for token in tokens]
    words = [
        f"<text x='{left - 5}' y='{left + size * place + 11}' text-anchor='end'>{escape(token)}</text>"
        f"<text transform='translate({left + size * place + 11} {left - 5}) rotate(-90)'>{escape(token)}</text>"
        for place, token in enumerate(short)
    ]
    return _picture(values, most, size, left, says, words)


def _heads_picture(values: NDArray[np.float64], names: Sequence[str], most: float) -> str:
    """All heads with each other, and the number of the layer where one begins."""
    layers = [name.split(".")[0] for name in names]
    size, left = max(2, min(9, 560 // len(names))), 60
    words = []
    for place, layer in enumerate(layers):
        if place and layers[place - 1] == layer:
            continue
        middle = left + size * (place + layers.count(layer) / 2)
        # With many layers not all of them have room for a name.
        if size * layers.count(layer) >= 12 or int(layer) % 5 == 0:
            words.append(f"<text x='{left - 5}' y='{middle + 4:.0f}' text-anchor='end'>layer {escape(layer)}</text>")
            words.append(f"<text x='{middle:.0f}' y='{left - 6}' text-anchor='middle'>{escape(layer)}</text>")
    return _picture(values, most, size, left, "difference of the distances between heads", words)


def _picture(
    values: NDArray[np.floating[Any]], most: float, size: int, left: int, says: str, words: Sequence[str]
) -> str:
    """Cells on white, those of a colour in one path; where there is no number it stays grey."""
    steps = np.rint(np.nan_to_num(values / most) * _STEPS).astype(int)
    paths = [
        _path(np.argwhere(steps == step), size, left, _colour(step / _STEPS)) for step in np.unique(steps[steps != 0])
    ]
    paths.append(_path(np.argwhere(np.isnan(values)), size, left, "#d4d4d4"))
    wide = size * len(values)
    total = left + wide + 2
    return (
        f"<svg class='differences' viewBox='0 0 {total} {total}' width='{total}' role='img'"
        f" aria-label='{escape(says)}'><rect x='{left}' y='{left}' width='{wide}' height='{wide}'"
        f" fill='{_colour(0)}' stroke='#8886'/><g shape-rendering='crispEdges'>{''.join(paths)}</g>"
        f"{''.join(words)}</svg>"
    )


def _path(cells: NDArray[np.int64], size: int, left: int, colour: str) -> str:
    if not len(cells):
        return ""
    squares = "".join(f"M{left + size * key} {left + size * query}h{size}v{size}h-{size}z" for query, key in cells)
    return f"<path fill='{colour}' d='{squares}'/>"


def _colour(share: float) -> str:
    """From −1 (orange) over white to 1 (blue)."""
    end = _MORE if share > 0 else _LESS
    mixed = [round(a + (b - a) * min(1.0, abs(share))) for a, b in zip(_WHITE, end, strict=True)]
    return f"rgb({','.join(map(str, mixed))})"


def _scale(most: float) -> str:
    """What the colours are."""
    wide = 200 // (2 * _STEPS + 1)
    steps = range(-_STEPS, _STEPS + 1)
    middle, end = 30 + wide * (_STEPS + 0.5), 30 + wide * len(steps)
    cells = "".join(
        f"<rect x='{30 + wide * place}' y='2' width='{wide}' height='12' fill='{_colour(step / _STEPS)}'/>"
        for place, step in enumerate(steps)
    )
    return (
        "<svg class='differences' viewBox='0 0 260 34' width='260' role='img' aria-label='scale of colours'>"
        f"<g shape-rendering='crispEdges'>{cells}</g>"
        f"<text x='30' y='29' text-anchor='middle'>−{most:.2g}</text>"
        f"<text x='{middle}' y='29' text-anchor='middle'>0</text>"
        f"<text x='{end}' y='29' text-anchor='middle'>+{most:.2g}</text></svg>"
    )
