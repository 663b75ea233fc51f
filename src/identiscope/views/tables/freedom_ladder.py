"""The ladder of freedom in a terminal: a sentence, a row for each layer, and the weights that bear a load."""

from typing import Any

import numpy as np
import xarray as xr

from identiscope.token_text import shown_token
from identiscope.views.tables.terminal import console, print_table

Rows = list[tuple[Any, ...]]
TOLD = (
    "exact: how far the strongest weight of a row may go (mean of most − least), the head's output being the same;"
    " merged: the same of its token, copies of a token counting as one, as they do from here on; ε: the same, with an"
    " output that moves by a share ε of the layer's;{between} same prediction: mean total variation of rows moved in"
    " the running model, a lower bound; control: what random maps as far away move the outcome by; load: the share of"
    " weight that the prediction rests on to first order."
)
BETWEEN = "between heads"
TOLD_OF_BETWEEN = f" {BETWEEN}: directions in which attention may move further, the layer's output being the same;"


SAME = "same prediction: "


def ladder_table(result: xr.Dataset) -> tuple[dict[str, str], Rows]:
    """Columns and rows: one for each layer, and one for all at once."""
    columns = {"layer": "right", "exact": "right", "merged": "right", BETWEEN: "right"}
    names = ("exact_width", "merged_exact_width", "between_heads")
    parts: list[np.ndarray] = [result[name].values for name in names]
    for place, epsilon in enumerate(result["epsilon"].values):
        columns[f"ε {float(epsilon):g}"] = "right"
        parts.append(result["merged_epsilon_width"].values[:, place])
    together: list[Any] = ["all", *[float("nan")] * len(parts)]
    if "reach" in result:
        for place, criterion in enumerate(result["criterion"].values):
            columns[f"{SAME}{criterion}"] = "right"
            parts.append(result["merged_reach_within"].values[:, place])
            whole = "all_merged_reach_within"
            together.append(float(result[whole].values[place]) if whole in result else float("nan"))
        for name, heading in (("outcome_moved", "moved"), ("control_moved", "control"), ("load", "load")):
            columns[heading] = "right"
            parts.append(result[name].values)
        main = max(place for place, one in enumerate(result["criterion"].values) if str(one) != "same choice")
        known = "all_moved_within" in result
        moved = (
            [float(result["all_moved_within"].values[main]), float(result["all_control_moved"])]
            if known
            else [np.nan] * 2
        )
        together += [*moved, float(result["load"].mean())]
    rows: Rows = []
    for place, layer in enumerate(result["layer"].values):
        rows.append((str(layer), *(_cell(part[place]) for part in parts)))
    if "all_reach_within" in result:
        rows.append(tuple(together))
    return columns, rows


def _cell(value: Any) -> Any:
    return int(value) if np.issubdtype(type(value), np.integer) else float(value)


def load_table(result: xr.Dataset, most: int) -> tuple[dict[str, str], Rows]:
    """The weights of largest load."""
    columns = {
        "layer": "right", "head": "right", "from": "left", "to": "left", "weight": "right", "least": "right",
        "most": "right", "moved at least": "right", "at most": "right", "without": "right",
        "held": "right",
    }  # fmt: skip
    rows: Rows = []
    for place in range(min(most, result.sizes.get("cell", 0))):
        cell = result.isel(cell=place)
        copies = int(cell["copies"])
        tokens = [f"{shown_token(str(cell[f'{end}_token'].values))} ({int(cell[end])})" for end in ("query", "key")]
        tokens[1] += f" ×{copies}" if copies > 1 else ""
        names = (
            "merged_weight",
            "merged_lower",
            "merged_upper",
            "lower_moved",
            "upper_moved",
            "removed_moved",
            "held_lower",
        )
        rows.append(
            (
                str(int(cell["layer_of_cell"])),
                str(int(cell["head_of_cell"])),
                *tokens,
                *(float(cell[one]) for one in names),
            )
        )
    return columns, rows


def print_ladder(result: xr.Dataset, most: int) -> None:
    """The sentence, then the tables."""
    screen = console()
    screen.print(f"{result.attrs['sentence']}\n", markup=False, soft_wrap=True)
    columns, rows = ladder_table(result)
    if not result["between_heads"].values.any():
        # Of a rung on which nothing is, nothing is said.
        place = list(columns).index(BETWEEN)
        del columns[BETWEEN]
        rows = [(*row[:place], *row[place + 1 :]) for row in rows]
    # What is said once need not be said of each column.
    first = next((name for name in columns if name.startswith(SAME)), "")
    short = {name if name == first else name.removeprefix(SAME): side for name, side in columns.items()}
    print_table("How far can attention move?", short, rows, screen)
    screen.print(TOLD.format(between=TOLD_OF_BETWEEN if BETWEEN in columns else "") + "\n", style="dim")
    columns, rows = load_table(result, most)
    if rows:
        print_table("What the prediction rests on", columns, rows, screen)
        screen.print(
            "least, most: what the token may weigh in its row, to first order, the outcome within"
            f" {max(result.attrs['options']['tolerance']):g}; the least is its load. moved: by how much the outcome"
            " moved when run with that; without: when run with none of the weight, the rest of the row being what moves"
            " it least; held: the least weight with which it was seen to stay. Ranked by load, then by how much it"
            " moves to first order with the others scaled up.",
            style="dim",
        )
