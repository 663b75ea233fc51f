"""The columns that a kind of method has in a Run, filled from a trace of each text."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.ask import arrays_of, ask, bound
from identiscope.asking.scoring import main_array
from identiscope.capture.trace import Trace
from identiscope.linalg.tolerance import machine_epsilon
from identiscope.methods.registry import Method, method
from identiscope.runs.compute.filling import FromTrace, RunMethod
from identiscope.runs.format.statistics import Column

_MAP = (
    Column("to_special", "mean weight of a token on special tokens", -1, 2),
    Column("to_self", "mean weight of a token on itself", -1, 2),
    Column("to_previous", "mean weight of a token on the one before it", -1, 2),
    Column("largest", "mean over tokens of the largest weight", 0, 1),
    Column("negative", "share of weights below zero"),
    Column("entropy", "mean entropy of a row in bits; not a number where a row is no distribution", 0, 10),
)
_MIXTURE = (
    Column("from_self", "mean share of a hidden token that is from its own input", -1, 1),
    Column("from_special", "mean share that is from special tokens", -1, 1),
    Column("not_largest", "share of tokens of which another input is the largest part"),
)


def _main(result: xr.Dataset, name: str) -> xr.DataArray:
    """The array that a result is about."""
    axes_of = {str(own): values.dims for own, values in result.data_vars.items()}
    return result[main_array(str(result.attrs.get("method")), axes_of, method(name).axes)]


def _of_map(result: xr.Dataset, name: str) -> Mapping[str, np.ndarray]:
    """Columns [layer, head] of maps [layer, head, query, key]."""
    cells = _main(result, name).transpose("layer", "head", "query", "key").values
    special = result["key_special"].values.astype(bool)
    queries, keys = cells.shape[-2:]
    offset = np.arange(keys) - np.arange(queries)[:, None]
    # Of weights that are negative, or that do not sum to one, there is no entropy.
    off = np.abs(cells.sum(-1) - 1).max(-1)
    distributions = (cells.min((-2, -1)) >= 0) & (off <= keys * machine_epsilon(torch.float32))
    bits = -np.where(cells > 0, cells * np.log2(np.where(cells > 0, cells, 1.0)), 0.0).sum(-1).mean(-1)
    return {
        "to_special": cells[..., special].sum(-1).mean(-1),
        "to_self": _along(cells, offset == 0),
        "to_previous": _along(cells, offset == -1),
        "largest": cells.max(-1).mean(-1),
        "negative": (cells < 0).mean((-2, -1)),
        "entropy": np.where(distributions, bits, np.nan),
    }


def _along(cells: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The mean weight on one place of each row that has it."""
    rows = places.any(1)
    if not rows.any():
        return np.full(cells.shape[:2], np.nan)
    mean: np.ndarray = (cells * places).sum(-1)[..., rows].mean(-1)
    return mean


def _of_mixture(result: xr.Dataset, name: str) -> Mapping[str, np.ndarray]:
    """Columns [layer] of mixtures [layer, output, input]."""
    cells = _main(result, name)
    # What is of every head by itself, as their mean.
    shares = (cells.mean("head") if "head" in cells.dims else cells).transpose("layer", "output", "input").values
    special = result["input_special"].values.astype(bool)
    count = min(shares.shape[1:])
    own = shares[:, np.arange(count), np.arange(count)]
    return {
        "from_self": own.mean(-1),
        "from_special": shares[..., special].sum(-1).mean(-1),
        "not_largest": (shares[:, :count].max(-1) > own).mean(-1),
    }


def _as_they_are(result: xr.Dataset, name: str) -> Mapping[str, np.ndarray]:
    """Numbers of heads [layer, head] or layers [layer]; of those of tokens and query rows, the means over them."""
    axes = method(name).axes
    kept = [axis for axis in axes if axis in ("layer", "head")]
    over = tuple(range(len(kept), len(axes)))
    columns = {}
    for variable, values in result.data_vars.items():
        if set(values.dims) == set(axes) and values.dtype.kind in "biuf":
            cells = values.transpose(*kept, ...).values
            columns[str(variable)] = cells.mean(over) if over else cells
    return columns


#: Kind → what makes columns of its results.
SUMMED: Mapping[str, Callable[[xr.Dataset, str], Mapping[str, np.ndarray]]] = {
    "map": _of_map,
    "head": _as_they_are,
    "mixture": _of_mixture,
    "token": _as_they_are,
    "prediction": _as_they_are,
}


def by_trace(one: Method) -> RunMethod:
    """A method of one of these kinds, asked of each text by itself."""
    columns = {"map": _MAP, "mixture": _MIXTURE}.get(one.kind) or _own(one) or _named(one)
    fill = partial(_filled, one.name, SUMMED[one.kind], [column.name for column in columns])
    # What is of a layer as a whole has no heads.
    axes = tuple(axis for axis in one.family.run_axes if axis in one.axes)
    return RunMethod(axes, columns, FromTrace(fill), can_be_set=True)


def _filled(
    name: str,
    summed: Callable[[xr.Dataset, str], Mapping[str, np.ndarray]],
    columns: Sequence[str],
    trace: Trace,
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    probes: int,
    seed: int,
    settings: Mapping[str, Any],
) -> dict[str, Tensor]:
    one = method(name)
    options: dict[str, Any] = {"layers": list(layers)}
    options |= {"heads": list(heads)} if "heads" in bound(one, {}).choices else {}
    # A method that draws, or follows some directions only, does so as the Run was told.
    options |= {key: value for key, value in {"probes": probes, "seed": seed}.items() if key in bound(one, {}).options}
    options |= settings
    values = summed(ask(name, trace, **options), name)
    # Infinite numbers have no mean, and count as none.
    numbers = {column: np.asarray(values[column], dtype=np.float64) for column in columns}
    return {column: torch.as_tensor(np.where(np.isfinite(cells), cells, np.nan)) for column, cells in numbers.items()}


def _own(one: Method) -> tuple[Column, ...]:
    """The columns that a method's own module says that it has, where it runs the model and cannot be tried out."""
    named: Mapping[str, str] = {} if one.function is not None else getattr(import_module(one.module), "RUN_COLUMNS", {})
    return tuple(Column(name, says) for name, says in named.items())


def _named(one: Method) -> tuple[Column, ...]:
    """The numbers that a method gives, as they are seen when it is asked of a few made-up tokens."""
    axes = one.axes[1:] if one.family.scope == "layer" else one.axes
    arrays = arrays_of(one, bound(one, {}).of(_MADE_UP.__getitem__), axes)
    # What rounding decides, as the gap of a spectrum, has no mean: it may be infinite.
    own = {name: cells for name, (of, cells) in arrays.items() if of == axes and name not in one.varies}
    names = [name for name, cells in own.items() if cells.dtype.kind in "biuf"]
    return tuple(Column(name, f"{name.replace('_', ' ')}: {one.says}") for name in names)


def _made_up() -> dict[str, Any]:
    """Every field, of three tokens and two heads."""
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    projection = torch.randn(2, 4, 8, generator=generator, dtype=torch.float64)
    attention = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64).softmax(-1)
    states = [torch.randn(3, 8, generator=generator, dtype=torch.float64) for _ in range(3)]
    return {
        "attention": attention, "raw": lambda rows: attention[:, rows], "softmax_rows": None, "value": value,
        "value_bias": None, "projection": projection, "context": attention @ value,
        "exact_context": lambda: attention @ value, "row_sum": None, "allowed": None, "queries": 3,
        "output_size": torch.ones(3, dtype=torch.float64),
        "special": torch.tensor([True, False, False]), "copies": torch.arange(3), "key_tokens": ("a", "b", "c"),
        "query_tokens": ("a", "b", "c"), "precision": torch.float64, "key_channels": 4, "layer": 0,
        "heads": (0, 1), "head_count": 2, "hidden_states": states, "embeddings": states[0],
        "attention_gradient": attention, "with_contexts": lambda contexts: contexts.flatten(1).sum(1),
        "special_tokens": torch.tensor([True, False, False]), "replay": lambda given: (given, given, given),
    }  # fmt: skip


_MADE_UP = _made_up()
