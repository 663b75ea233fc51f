"""Explanations in a terminal: the text coloured by each method, what each finds important, and how far they agree."""

from typing import Any

import numpy as np
import xarray as xr
from rich.console import Console
from rich.text import Text

from identiscope.token_text import begins_word, is_punctuation, shown_token
from identiscope.views.tables.terminal import WIDTH, console, print_table

#: Red speaks for the outcome, blue against it, as in plots: told apart by colour-blind readers too.
_FOR, _AGAINST = (178, 24, 43), (33, 102, 172)
#: Methods whose agreement is shown as a whole table; of more, each with those that it agrees with the most.
_MOST_COLUMNS = 10
AGREEMENT = "Spearman's correlation of the sizes of scores: 1 where two methods put the words in the same order"


def has_tables(result: xr.Dataset) -> bool:
    """Whether a result is a whole explanation: all that the tables below are made of, in numbers."""
    wanted = {"share": ("method", "input"), "score": ("method", "input"), "agreement": ("method", "other")}
    whole = all(name in result and result[name].dims == axes for name, axes in wanted.items())
    same = whole and result.sizes["method"] == result.sizes["other"]
    return same and not np.isinf(result["score"].values).any()


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
    errors = share_errors(result)
    rows = []
    for place, name in enumerate(result["method"].values.tolist()):
        one = result.isel(method=place)
        failed = str(one["failed"].values)
        promised, residual = float(one["promised_sum"]), float(one["residual"])
        top = [] if failed else ranked(result, place, most)
        rows.append(
            {
                "method": name,
                "top": [
                    {"input": at, "token": tokens[at], "share": share, "share_error": _known(errors[place, at])}
                    for at, share in top
                ],
                "passes": float(one["passes"]),
                "cost": float(one["cost"]),
                "promised_sum": _known(promised),
                "residual": _known(residual),
                "conversion": str(one["conversion"].values),
                "failed": failed or None,
            }
        )
    return rows


def share_errors(result: xr.Dataset) -> np.ndarray:
    """Standard errors in the units of shares, [method, input]; not a number where a method estimates nothing."""
    sizes = np.nansum(np.abs(result["score"].values), 1, keepdims=True)
    errors: np.ndarray = result["score_error"].values / np.where(sizes > 0, sizes, np.nan)
    return errors


def _known(number: float) -> float | None:
    return None if number != number else float(number)


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
            few = screen.color_system in ("standard", "windows")
            line.append(text, style=(_plain_style if few else _style)(float(share[place]) / largest))
    screen.print(line, soft_wrap=True)


def _bare(token: str) -> str:
    """A token without the marks of its vocabulary, unless it is nothing else."""
    return shown_token(token).removeprefix("##").lstrip("␣") or shown_token(token)


def _style(amount: float) -> str:
    """A background between white and the colour of the sign, and letters that can be read on it."""
    strength = min(abs(amount), 1.0)
    target = _FOR if amount >= 0 else _AGAINST
    red, green, blue = (round(255 + (part - 255) * strength) for part in target)
    # Whichever is told from the colour best; a terminal's own white may be grey.
    letters = "rgb(255,255,255)" if strength > 0.8 else "rgb(0,0,0)"
    return f"{letters} on rgb({red},{green},{blue})"


def _plain_style(amount: float) -> str:
    """The same where a terminal has 16 colours, and no pale ones: a background from half of the largest on, letters of
    the colour of the sign from a twentieth on."""
    strength, colour = abs(amount), "red" if amount >= 0 else "blue"
    return "" if strength < 0.05 else f"bright_white on {colour}" if strength > 0.5 else f"bold {colour}"


def _print_top(result: xr.Dataset, most: int, screen: Console) -> None:
    print_table("What matters most", *top_table(result, most), screen)
    screen.print(f"{told(result)}\n", style="dim", markup=False)


def told(result: xr.Dataset) -> str:
    """What the columns of the first table are, and what stood for tokens that were taken away."""
    said = (
        "±: a standard error; runs: of the model, a backward pass counting twice; cost: CPU time in plain passes;"
        " promised sum: what the scores are to add up to, and by how much they do not"
    )
    return said + (f"; baseline: {result.attrs['baseline']}" if "baseline" in result.attrs else "")


Rows = list[tuple[Any, ...]]


def top_table(result: xr.Dataset, most: int) -> tuple[dict[str, Any], Rows]:
    """What each method finds most important, what it took, and how it kept its promise: columns and rows."""
    top = f"top {most}, in % of all"
    columns = {"method": "left", top: "left", "runs": "right", "cost": "right", "promised sum": "right"}
    rows: Rows = []
    for row in top_rows(result, most):
        if row["failed"]:
            continue
        words = ", ".join(f"{_listed(one['token'])} {_percent(one)}" for one in row["top"])
        promise = "–" if row["residual"] is None else f"{row['promised_sum']:.3g}, off {row['residual']:+.2g}"
        rows.append((row["method"], words, f"{row['passes']:.0f}", f"{row['cost']:.1f}", promise))
    return columns, rows


def _listed(token: str) -> str:
    """A token in a list: a comma is not to be taken for one of the list's own."""
    return f"“{_bare(token)}”" if is_punctuation(token) else _bare(token)


def _percent(one: dict[str, Any]) -> str:
    error = "" if one["share_error"] is None else f"±{100 * one['share_error']:.0f}"
    return f"{100 * one['share']:z.0f}{error}"


def _print_agreement(result: xr.Dataset, screen: Console) -> None:
    columns, rows = agreement_table(result)
    if rows:
        print_table("Do they agree?", columns, rows, screen)
        screen.print(AGREEMENT, style="dim")


def agreement_table(result: xr.Dataset) -> tuple[dict[str, Any], Rows]:
    """Spearman's correlation of sizes: of all with all, or the nearest of each; none of one method."""
    known = [place for place, failed in enumerate(result["failed"].values) if not str(failed)]
    if len(known) < 2:
        return {}, []
    names = [str(result["method"].values[place]) for place in known]
    table = result["agreement"].values[np.ix_(known, known)]
    if len(known) <= _MOST_COLUMNS:
        whole = max(map(len, names)) + sum(len(name) + 2 for name in names) <= WIDTH
        columns = {"": "left"} | {name if whole else _short(name): "right" for name in names}
        return columns, [(name, *map(float, row)) for name, row in zip(names, table, strict=True)]
    rows: Rows = []
    for place, name in enumerate(names):
        others = [(float(table[place, other]), names[other]) for other in range(len(names)) if other != place]
        others = sorted((pair for pair in others if pair[0] == pair[0]), reverse=True)
        mean = float(np.mean([value for value, _ in others])) if others else float("nan")
        nearest = ", ".join(f"{other} {value:.2f}" for value, other in others[:3])
        rows.append((name, mean, nearest))
    return {"method": "left", "mean": "right", "nearest": "left"}, rows


def _short(name: str) -> str:
    """A name as a heading of a narrow column."""
    return name if len(name) <= 10 else "".join(part[:4] + "." for part in name.split("_"))
