"""`plot(result, ax=…)`: a result is drawn by its kind, or by the function that is made for its name."""

import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import matplotlib
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from identiscope.errors import InputError
from identiscope.files import replacing
from identiscope.methods.registry import METHODS
from identiscope.results import using
from identiscope.validation import checked


@cache
def drawings() -> Mapping[str, Callable[..., Axes]]:
    """Which function draws what is not the result of a registered method: each module says so of its own (`DRAWS`).

    A name may hold `*`, as those of the tables of a Run do, which are called by what was run.
    """
    drawn: dict[str, Callable[..., Axes]] = {}
    for module in iter_modules([str(Path(__file__).parent)]):
        drawn |= getattr(import_module(f"identiscope.views.plots.{module.name}"), "DRAWS", {})
    return drawn


def drawing(result: xr.Dataset) -> Callable[..., Axes] | None:
    """The function that draws a result, if there is one: that of its kind, or of what it is called."""
    from identiscope.views.plots.kinds import DRAWN

    name, kind = str(result.attrs.get("method")), result.attrs.get("kind")
    known = METHODS.get(name)
    if known is not None and kind is not None:
        return DRAWN[known.kind]
    for pattern, function in drawings().items():
        if fnmatchcase(name, pattern):
            return function
    # A result of an older version says no kind; one of a method that is not registered here says nothing else.
    return DRAWN.get(str(kind) if known is None else known.kind)


#: What figures of a paper have: a column's width, its letters, and text that stays text in PDF and SVG.
PAPER: dict[Any, Any] = {
    "figure.figsize": (3.3, 2.5),
    "font.family": "serif",
    "font.serif": ["STIXGeneral", "DejaVu Serif"],
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}


def plot(result: xr.Dataset, ax: Axes | None = None, *, style: str | None = None, **options: Any) -> Axes:
    """Draw a result; its kind says how, or its name where it is not the result of a registered method.

    >>> identiscope.plot(identiscope.attention_identifiability(trace))
    >>> identiscope.plot(identiscope.attention_between_types(model, texts), figure="separator")

    Without an `ax` a new figure is made. style: `paper` for one in the width of a column, with small serif letters that
    stay text in PDF and SVG. options are those of the drawing function, such as `values="raw"`.
    """
    if not isinstance(result, xr.Dataset):
        raise InputError(f"a {type(result).__name__} was given; expected a result, such as attention_maps gives.")
    method, function = str(result.attrs.get("method")), drawing(result)
    if function is None:
        known = ", ".join([*METHODS, *sorted(drawings())])
        raise InputError(f"there is no plot for {method!r}; there are plots for {known}.")
    _check_options(method, function, options)
    function = checked(function)
    if style is not None:
        expect_one_of("style", style, ("paper",))
    if ax is not None:
        with using(result), matplotlib.rc_context(PAPER if style else {}):
            return function(result, ax, **options)
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(PAPER if style else {}):
        figure, ax = plt.subplots(figsize=None if style else _size(result), layout="constrained")
    if style:
        _keep_text(figure)
    try:
        with using(result), matplotlib.rc_context(PAPER if style else {}):
            drawn = function(result, ax, **options)
            if style:
                _break_labels(figure)
                _thin_names(figure)
            return drawn
    except InputError:
        plt.close(figure)  # or a notebook would show it, empty
        raise


def _break_labels(figure: Figure) -> None:
    """Names of axes that are longer than the figure go on in another line."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        for label, along in ((ax.title, 0), (ax.xaxis.label, 0), (ax.yaxis.label, 1)):
            box, room = label.get_window_extent(), figure.bbox.bounds[2 + along]
            long = (box.height if along else box.width) / (0.9 * room)
            if label.get_text() and long > 1:
                line = math.ceil(len(label.get_text()) / math.ceil(long)) + 4
                label.set_text(textwrap.fill(label.get_text(), line, break_long_words=False))


def _thin_names(figure: Figure) -> None:
    """Of the names along an axis only as many as stand beside each other, the first of them always."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        for axis, along in ((ax.xaxis, 0), (ax.yaxis, 1)):
            labels = [label for label in axis.get_ticklabels() if label.get_visible() and label.get_text()]
            if len(labels) < 3:
                continue
            boxes = [label.get_window_extent() for label in labels]
            middles = sorted((box.x0 + box.x1 if along == 0 else box.y0 + box.y1) / 2 for box in boxes)
            apart = (middles[-1] - middles[0]) / (len(labels) - 1)
            widest = max(box.width if along == 0 else box.height for box in boxes)
            every = math.ceil(widest / apart) if apart > 0 else 1
            for place, label in enumerate(labels):
                label.set_visible(place % every == 0)


def _keep_text(figure: Figure) -> None:
    """Let the figure be saved with its letters, and as text: both are read when it is saved, not when it is drawn."""
    save = figure.savefig

    def savefig(*given: Any, **options: Any) -> None:
        kept = ("pdf.fonttype", "svg.fonttype", "font.serif", "mathtext.fontset")
        fonts: dict[Any, Any] = {name: PAPER[name] for name in kept}
        with matplotlib.rc_context(fonts):
            save(*given, **options)

    figure.savefig = savefig  # type: ignore[method-assign]


def _size(result: xr.Dataset) -> tuple[float, float]:
    """Of a new figure, in inches: where every method has a row, with room for its name, and for many words."""
    if "method" not in result.dims:
        return 7, 4.5
    columns = result.sizes.get("input", 0) or 3 * max(
        result.sizes.get(axis, 0) for axis in ("rewriting", "alternative")
    )
    return min(max(7.0, 3 + 0.3 * columns), 16), max(4.5, 1.6 + 0.22 * result.sizes["method"])


def save_figure(figure: Figure, path: Path, **options: Any) -> Path:
    """Write a figure in the format that the name ends in, and close it."""
    import matplotlib.pyplot as plt

    try:
        with replacing(path) as aside:
            figure.savefig(aside, format=path.suffix.removeprefix("."), dpi=150, **options)
    finally:
        plt.close(figure)
    return path


def expect_one_of(name: str, given: object, among: Iterable[Any]) -> None:
    """Refuse the value of an option that is none of those there are."""
    known = [str(one) for one in among]
    if str(given) not in known:
        raise InputError(f"{name}={given!r} was given; expected one of {', '.join(known)}.")


def _check_options(method: str, function: Callable[..., Axes], options: dict[str, Any]) -> None:
    """Refuse options that the drawing function does not take, and say which ones it does."""
    parameters = list(inspect.signature(function).parameters.values())[2:]
    known = [parameter.name for parameter in parameters]
    needed = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    unknown, missing = sorted(set(options) - set(known)), sorted(set(needed) - set(options))
    if unknown or missing:
        wrong = f"{', '.join(unknown)} was given" if unknown else f"{', '.join(missing)} was not given"
        expected = f"expected {', '.join(known)}" if known else "expected no options"
        raise InputError(f"{wrong} to the plot of {method}; {expected}.")
