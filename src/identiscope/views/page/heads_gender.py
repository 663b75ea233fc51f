"""Attention by gender on the page of heads: which heads differ, and what that difference could be."""

from html import escape

import numpy as np
import xarray as xr

from identiscope.views.tables.gender_heads import DIRECTIONS, biased_heads, how_many


def of_grid(study: xr.Dataset, name: str) -> xr.Dataset:
    """What the grid shows of a study, under names of its own."""
    kept = {}
    for way in DIRECTIONS:
        for one in (way, f"{way}_error", f"simplex_{way}", f"simplex_{way}_error"):
            if one in study:
                kept[one] = f"{name}_{one}"
        for end in ("_lower", "_upper"):
            if f"interval_{way}{end}" in study:
                kept[f"interval_{way}{end}"] = f"interval_{name}_{way}{end}"
    return study[list(kept)].rename(kept)


def gender_section(study: xr.Dataset, name: str, most: int = 12) -> str:
    """The heads that surely differ, the largest differences first, and the control; data-layer and data-head choose a
    card."""
    parts = [
        f"<h2>By gender: {escape(name)}</h2><p class='quiet'>Weight in one text less that in the other"
        f" ({escape(study.attrs['contrast'])}), mean over templates with its paired interval (95 % for all heads and"
        " both ways together; occupations are drawn anew, each with all of its templates); the same in the maps that no"
        " rewriting changes; and between what it could lie while all"
        f" outputs stay what they are (by {study.attrs['with_intervals']} of the templates). A word of several tokens:"
        " weights to it are added up, those from it averaged.</p>"
    ]
    for way, words in DIRECTIONS.items():
        if way in study:
            parts.append(f"<h3>{words[0].upper()}{words[1:]}</h3>{_table(study, way, most)}")
    states = ", ".join(
        f"{value:+.3g} ({low:+.2g} to {high:+.2g})"
        for value, low, high in zip(*(study[f"states{end}"].values for end in ("", "_low", "_high")), strict=True)
    )
    parts.append(f"<p>The same difference of the cosine of both words' hidden states, by layer: {states}.</p>")
    return "".join(parts)


def _table(study: xr.Dataset, way: str, most: int) -> str:
    found = biased_heads(study, way)
    sure, values = found["sure"], study[way].values
    said = f"<p>{int(sure.sum())} of {sure.size} heads differ ({how_many(study, way)})"
    if found["known"]:
        said += f"; of {int((sure & found['fixed']).sum())} of these the outputs determine the sign"
    order = [place for place in np.argsort(-np.abs(np.nan_to_num(values)).ravel()) if sure.ravel()[place]][:most]
    if not order:
        return f"{said}.</p>"
    shown = f" The {most} with the largest differences:" if int(sure.sum()) > len(order) else ""
    rows = []
    for place in order:
        at = np.unravel_index(int(place), values.shape)
        cells = [_span(study, one, at) for one in (way, f"simplex_{way}")]
        if found["known"]:
            low, high = (study[f"interval_{way}_{end}"].values[at] for end in ("lower", "upper"))
            cells.append(f"{low:+.3f} to {high:+.3f}")
        numbers = "".join(f"<td class='number'>{cell}</td>" for cell in cells)
        rows.append(
            f"<tr data-layer='{at[0]}' data-head='{at[1]}'><td>{study['layer'].values[at[0]]}."
            f"{study['head'].values[at[1]]}</td>{numbers}</tr>"
        )
    could = "<th>could be</th>" if found["known"] else ""
    return (
        f"{said}.{shown}</p><div class='wide'><table class='rows'><thead><tr><th>head</th><th>difference</th>"
        f"<th>in the map that no rewriting changes</th>{could}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _span(study: xr.Dataset, name: str, at: tuple[np.intp, ...]) -> str:
    value, low, high = (study[f"{name}{end}"].values[at] for end in ("", "_low", "_high"))
    return f"{value:+.3f} <span class='quiet'>({low:+.3f} to {high:+.3f})</span>"
