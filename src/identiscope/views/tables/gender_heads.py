"""How differences by gender are read, on the page and in the claim alike."""

from typing import Any

import numpy as np
import xarray as xr

#: Which way is looked → in words.
DIRECTIONS = {"to_occupation": "from pronoun to occupation", "to_pronoun": "from occupation to pronoun"}


def how_many(study: xr.Dataset, direction: str) -> str:
    """What the numbers of one way are of, in words."""
    counts = (int(study[f"{direction}_{of}"].max()) for of in ("templates", "occupations"))
    return "{} templates of {} occupations".format(*counts)


def biased_heads(study: xr.Dataset, direction: str) -> dict[str, Any]:
    """Of one way [layer, head]: `sure`, the paired interval is off zero; `real`, that of the map that no
    rewriting changes is, with the same sign; `fixed`, what it could be with the same outputs has one sign (on the
    templates that have bounds; `known`: whether any has)."""
    off = [
        (study[f"{name}_low"].values > 0).astype(int) - (study[f"{name}_high"].values < 0).astype(int)
        for name in (direction, f"simplex_{direction}")
    ]
    known = f"interval_{direction}_lower" in study
    fixed = np.zeros_like(off[0], bool)
    if known:
        low, high = (study[f"interval_{direction}_{end}"].values for end in ("lower", "upper"))
        fixed = (low > 0) | (high < 0)
    return {"sure": off[0] != 0, "real": off[0] == off[1], "fixed": fixed, "known": known}
