"""Which section shows a result: its kind says so, and names of axes say the rest; no method is known here by its name.

A kind that a result does not fit (a part that was selected, no number in it, an infinity) is not guessed at: such a
result is shown plainly, as a picture and tables.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from identiscope.results import using
from identiscope.views.page.attention_section import maps_of_a_head
from identiscope.views.page.data import Section
from identiscope.views.page.matrices import WHERE, matrices
from identiscope.views.page.numbers import freedom, head_numbers, means_section, rates
from identiscope.views.page.plain import plain_data
from identiscope.views.page.shapes import SectionData, SectionKind
from identiscope.views.page.strips import is_drawable, strips

Made = tuple[SectionData, Mapping[str, bytes]]

#: Axes along a text.
TEXT = frozenset(("token", "input", "output", "query", "key"))


@dataclass(frozen=True)
class Kind:
    """What draws such a result, what is said where the result says nothing, and what makes its data if it fits."""

    drawn: SectionKind
    says: str
    make: Callable[[xr.Dataset], Made | None]
    title: str | None = None  # None: the name of the method


def section_of(result: xr.Dataset) -> Section:
    """The section that shows a result: by its kind, by its axes where it has none, plainly where neither fits.

    >>> page.with_section(section_of(identiscope.rollout(trace)))
    """
    attributes = result.attrs
    method = str(attributes.get("method", "result"))
    title = method.replace("_", " ").capitalize()
    several = method == "attention_maps"
    with using(result):
        # The maps of one head are seen together, though each alone is a map.
        for kind in (None if several else KINDS.get(str(attributes.get("kind"))), *WITHOUT_KIND):
            made = None if kind is None else kind.make(result)
            if kind is not None and made is not None:
                said = _said(result, str(attributes.get("says", kind.says)))
                return Section(kind.drawn, kind.title or title, said, *made, name=method)
        if _has(result, ("mean", "deviation"), "column", "layer", "head", finite=False) or _has(
            result, ("mean", "deviation"), "column", "layer", finite=False
        ):
            means = means_section(result, title, {}, method)
            if means is not None:
                return means
        return plain_section(result)


def plain_section(result: xr.Dataset) -> Section:
    """A result as its picture and its tables, whatever it is."""
    method = str(result.attrs.get("method", "result"))
    data, told = plain_data(result)
    said = " ".join(filter(None, [_said(result, str(result.attrs.get("says", ""))), told]))
    return Section("plain", method.replace("_", " ").capitalize(), said, data, name=method)


def _said(result: xr.Dataset, says: str) -> str:
    """What is said of a result, with the texts that it is from, and its side of a model that has two."""
    texts, stream = result.attrs.get("texts"), result.attrs.get("stream")
    more = [f"From {texts} texts."] if isinstance(texts, int) else []
    more += [f"Of the {stream}."] if stream in ("encoder", "decoder") else []
    ended = f"{says.rstrip('.')}." if says and more else says
    return " ".join(filter(None, [ended, *more]))


def _has(result: xr.Dataset, names: tuple[str, ...], *axes: str, finite: bool = True) -> bool:
    """Whether these variables are there whole, as a view needs them: a part that was selected goes into tables."""
    return all(
        name in result
        and set(result[name].dims) == set(axes)
        and result[name].size > 0
        and (not finite or is_drawable(result[name]))
        for name in names
    )


def _main(result: xr.Dataset, fits: Callable[[set[str]], bool]) -> str | None:
    """The variable that a result is about: named as its method or kind, or else the first that fits.

    Those after it (errors, other norms, what an estimate was made of) are in the result, not on the page.
    """
    fitting = _fitting(result, fits)
    wanted = [str(result.attrs.get(name)) for name in ("method", "kind")]
    return next((name for name in (*wanted, *fitting) if name in fitting), None)


def _fitting(result: xr.Dataset, fits: Callable[[set[str]], bool]) -> list[str]:
    return [
        str(name)
        for name, values in result.data_vars.items()
        if fits({str(axis) for axis in values.dims}) and is_drawable(values)
    ]


def _map(result: xr.Dataset) -> Made | None:
    name = _main(result, lambda axes: len(axes - set(WHERE)) == 2 and len(axes) <= 4)
    return None if name is None else matrices(result, name)


def _mixture(result: xr.Dataset) -> Made | None:
    name = _main(result, lambda axes: len(axes) == 3 and {"layer", "input"} < axes)
    if name is None:
        return None
    words = next(str(axis) for axis in result[name].dims if axis not in ("layer", "input"))
    return strips(result, [name], "input", words)


def _token(result: xr.Dataset) -> Made | None:
    names = _fitting(result, lambda axes: len(axes - {"layer"}) == 1 and axes - {"layer"} <= TEXT)
    columns = [next(str(axis) for axis in result[name].dims if axis != "layer") for name in names]
    # One text: variables of the axes that the first has.
    same = [name for name in names if result[name].dims == result[names[0]].dims and not name.endswith("_error")]
    return strips(result, same, columns[0]) if same else None


def _score(result: xr.Dataset) -> Made | None:
    name = _main(result, lambda axes: len(axes) <= 2 and "input" in axes)
    return None if name is None else strips(result, [name], "input")


def _head(result: xr.Dataset) -> Made | None:
    names = _fitting(result, lambda axes: axes == {"layer", "head"})
    return (head_numbers(result, names), {}) if names else None


def _freedom(result: xr.Dataset) -> Made | None:
    axes = result["lower"].dims if "lower" in result else ()
    bounds = ("lower", "upper")
    whole = (
        len(axes) == 1
        and _has(result, bounds, str(axes[0]))
        and not any(bool(result[one].isnull().any()) for one in bounds)
    )
    return (freedom(result, str(axes[0])), {}) if whole else None


#: kind of a result → the section that shows it.
KINDS: dict[str, Kind] = {
    "map": Kind("map", "A weight for every pair of tokens, head by head.", _map),
    "mixture": Kind(
        "mixture",
        "What the hidden embedding of one word is made of, layer by layer: the share of each input token in it.",
        _mixture,
    ),
    "token": Kind("token", "A number for every token, layer by layer.", _token),
    "score": Kind("score", "How much each input token matters for the outcome.", _score),
    "explanation": Kind(
        "score",
        "What the outcome rests on, by each method: the share of each input token, with its sign.",
        _score,
        "Explanation",
    ),
    "head": Kind("head", "Numbers of every head, by layer (rows) and head (columns).", _head),
    "freedom": Kind(
        "freedom", "Weights, and the interval that each may lie in without a change of the output.", _freedom
    ),
    "layer": Kind("map", "Maps of all heads that together give the output of their layer.", _map),
}


def _old_mixture(result: xr.Dataset) -> Made | None:
    whole = _has(result, ("contribution", "contribution_error"), "layer", "input", "output")
    return strips(result, ["contribution"], "input", "output") if whole else None


def _old_maps(result: xr.Dataset) -> Made | None:
    options: Any = result.attrs.get("options")
    of_a_head = isinstance(options, Mapping) and {"layer", "head"} <= set(options)
    all_maps = all(
        _has(result, (str(name),), "query", "key") and not bool(values.isnull().any())
        for name, values in result.items()
    )
    return maps_of_a_head(result) if of_a_head and "raw" in result and all_maps else None


def _old_structure(result: xr.Dataset) -> Made | None:
    return matrices(result, "structure") if _has(result, ("structure",), "layer", "head", "query", "key") else None


def _old_rates(result: xr.Dataset) -> Made | None:
    return (rates(result), {}) if _has(result, ("rate",), "probe", "layer", finite=False) else None


#: Results that were saved before they had a kind, told by their variables and axes.
WITHOUT_KIND = (
    Kind(
        "mixture",
        "What the hidden embedding of one word is made of, layer by layer: the share of each input token in it,"
        " ‖∂e_j/∂x_i‖ / Σ_k ‖∂e_j/∂x_k‖ (Hidden Token Attribution, eq. 11). Each row sums to 1.",
        _old_mixture,
        "Attribution over layers",
    ),
    Kind("attention", "The maps of one head.", _old_maps, "Attention"),
    Kind(
        "structure",
        "W, what the attention of many inputs has in common: their mean map, cut at a threshold and normalised by rows"
        " (structure-aware draft, eq. 7 and 8). It weighs the cells of the structure-aware norm (eq. 5).",
        _old_structure,
        "Structure W",
    ),
    Kind(
        "curve",
        "How often the nearest input embedding of the sentence to a hidden embedding (as it is, or after a learned map)"
        " is that of its own token (§4, Fig. 2a). Bands: bootstrap intervals over sentences.",
        _old_rates,
    ),
)
