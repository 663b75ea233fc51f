"""Explanations in a terminal: the text coloured by each method, what each finds important, and how far they agree."""

from typing import Any

import numpy as np
import xarray as xr
from rich.console import Console
from rich.text import Text

from identiscope.token_text import begins_word, shown_token
from identiscope.views.tables.terminal import console, print_table

#: Red speaks for the outcome, blue against it, as in plots and pages: told apart by colour-blind readers too.
_FOR, _AGAINST = (178, 24, 43), (33, 102, 172)
#: Methods whose agreement is shown as a whole table; of more, each with those that it agrees with the most.
_MOST_COLUMNS = 10


def ranked(result: xr.Dataset, method: int, most: int) -> list[tuple[int, float]]:
    """The inputs with the largest scores of a method, special tokens left out: position and share, largest first."""
    share = result["share"].values[method]
    special = result["input_special"].values.astype(bool)
    sizes = np.where(special | np.isnan(share), -1.0, np.abs(share))
    order = np.argsort(-sizes, kind="stable")[:most]
    return [(int(place), float(share[place])) for place in order if sizes[place] >= 0]


def top_rows(result: xr.Dataset, most: int) -> list[dict[str, Any]]:
    """For each method what it finds most important, what it cost, and what it promised."""
    tokens = result["input_token"].values.tolist()
    rows = []
    for place, name in enumerate(result["method"].values.tolist()):
        one = result.isel(method=place)
        failed = str(one["failed"].values)
        promised, residual = float(one["promised_sum"]), float(one["residual"])
        top = [] if failed else ranked(result, place, most)
        rows.append(
            {
                "method": name,
                "top": [{"input": at, "token": tokens[at], "share": share} for at, share in top],
                "passes": float(one["passes"]),
                "cost": float(one["cost"]),
                "promised_sum": None if promised != promised else promised,
                "residual": None if residual != residual else residual,
                "conversion": str(one["conversion"].values),
                "failed": failed or None,
            }
        )
    return rows


def print_explanation(result: xr.Dataset, most: int) -> None:
    """The text by each method, then the tables."""
    screen = console()
    value, unit = float(result.attrs["outcome_value"]), str(result.attrs["outcome_unit"])
    shown = f"{value:.3f}" + (f" (probability {np.exp(value):.3f})" if unit == "log-probability" else "")
    screen.print(f"explained: {result.attrs['outcome']} = {shown}\n", markup=False)
    width = max(len(name) for name in result["method"].values.tolist())
    failed = []
    for place, name in enumerate(result["method"].values.tolist()):
        if str(result["failed"].values[place]):
            failed.append(f"{name}: {result['failed'].values[place]}")
            continue
        _print_text(result, place, name, width, screen)
    screen.print(
        "red speaks for it, blue against it; special tokens are dim, and left out of the ranks below\n", style="dim"
    )
    _print_top(result, most, screen)
    _print_agreement(result, screen)
    for line in failed:
        screen.print(f"not asked: {line}", markup=False, style="dim")


def _print_text(result: xr.Dataset, method: int, name: str, width: int, screen: Console) -> None:
    tokens = result["input_token"].values.tolist()
    special = result["input_special"].values.astype(bool)
    share = result["share"].values[method]
    begins = begins_word(tokens, list(special))
    words = np.abs(np.where(special | np.isnan(share), 0.0, share))
    largest = float(words.max(initial=0.0)) or 1.0
    line = Text(f"{name:>{width}}  ")
    for place, token in enumerate(tokens):
        if place and begins[place]:
            line.append(" ")
        text = _bare(token)
        if special[place] or np.isnan(share[place]):
            line.append(text, style="dim")
        else:
            line.append(text, style=_style(float(share[place]) / largest))
    screen.print(line, soft_wrap=True)


def _bare(token: str) -> str:
    """A token without the marks of its vocabulary, unless it is nothing else."""
    return shown_token(token).removeprefix("##").lstrip("␣") or shown_token(token)


def _style(amount: float) -> str:
    """A background between white and the colour of the sign, and letters that can be read on it."""
    strength = min(abs(amount), 1.0)
    target = _FOR if amount >= 0 else _AGAINST
    red, green, blue = (round(255 + (part - 255) * strength) for part in target)
    letters = "white" if strength > 0.6 else "black"
    return f"{letters} on rgb({red},{green},{blue})"


def _print_top(result: xr.Dataset, most: int, screen: Console) -> None:
    columns = {
        "method": "left",
        f"top {most}, in % of all": "left",
        "runs": "right",
        "cost": "right",
        "sum, but for": "right",
    }
    rows = []
    for row in top_rows(result, most):
        if row["failed"]:
            continue
        top = ", ".join(f"{_bare(one['token'])} {100 * one['share']:.0f}" for one in row["top"])
        promise = "–" if row["residual"] is None else f"{row['promised_sum']:.3g} {row['residual']:+.1g}"
        rows.append((row["method"], top, f"{row['passes']:.0f}", f"{row['cost']:.1f}", promise))
    print_table("What matters most", columns, rows, screen)
    screen.print(
        "runs: of the model, a backward pass counting twice; cost: CPU time in plain passes; sum: what the scores"
        " promise to add up to, and by how much they do not\n",
        style="dim",
    )


def _print_agreement(result: xr.Dataset, screen: Console) -> None:
    """Spearman's correlation of sizes: a table of all, or the nearest of each."""
    known = [place for place, failed in enumerate(result["failed"].values) if not str(failed)]
    if len(known) < 2:
        return
    names = [str(result["method"].values[place]) for place in known]
    table = result["agreement"].values[np.ix_(known, known)]
    title = "Do they agree? Spearman's correlation of the sizes of scores"
    if len(known) <= _MOST_COLUMNS:
        columns = {"": "left"} | {_short(name): "right" for name in names}
        print_table(title, columns, [(name, *map(float, row)) for name, row in zip(names, table, strict=True)], screen)
        return
    rows = []
    for place, name in enumerate(names):
        others = [(float(table[place, other]), names[other]) for other in range(len(names)) if other != place]
        others = sorted((pair for pair in others if pair[0] == pair[0]), reverse=True)
        mean = float(np.mean([value for value, _ in others])) if others else float("nan")
        nearest = ", ".join(f"{other} {value:.2f}" for value, other in others[:3])
        rows.append((name, mean, nearest))
    print_table(title, {"method": "left", "mean": "right", "nearest": "left"}, rows, screen)


def _short(name: str) -> str:
    """A name as a heading of a narrow column."""
    return name if len(name) <= 10 else "".join(part[:4] + "." for part in name.split("_"))
