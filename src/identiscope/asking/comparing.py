"""How far methods of one kind agree on a text."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr

from identiscope.asking.ask import ask, bound, described
from identiscope.asking.provenance import trace_provenance
from identiscope.errors import InputError
from identiscope.linalg.devices import as_numpy
from identiscope.linalg.tolerance import VARIANCE_FLOOR, machine_epsilon
from identiscope.methods.fields import chosen_sites
from identiscope.methods.registry import Method, method
from identiscope.progress import Progress
from identiscope.results import make_result
from identiscope.stats.agreement import cell_agreement, statistic_agreement

if TYPE_CHECKING:
    from identiscope.capture import Trace

Arrays = dict[str, tuple[tuple[str, ...], Any]]


def compare(trace: "Trace", methods: Sequence[str], *, progress: Progress | None = None, **options: Any) -> xr.Dataset:
    """How far methods of one kind agree on a text.

    >>> identiscope.compare(trace, ["attention", "effective", "canonical"]).spearman.mean("head")

    Maps are compared head by head, mixtures layer by layer and scores as a whole, every pair of methods over the cells
    that are not masked: `pearson`, `spearman` (ties share their rank) and `total_variation`, the last where both are
    distributions. Methods that give numbers for each head, hidden token or layer are compared statistic by statistic,
    over all of these: `pearson` and `spearman` [statistic, other]. options: each is given to the methods that have it.
    """
    chosen = _chosen(methods)
    kind = chosen[0].kind
    known = {one.name: set(bound(one, {}).described) for one in chosen}
    strange = sorted(set(options).difference(*known.values()))
    if strange:
        raise InputError(f"none of {', '.join(known)} has an option {', '.join(strange)}.")
    results: dict[str, xr.Dataset] = {}
    for done, one in enumerate(chosen, 1):
        own = {name: value for name, value in options.items() if name in known[one.name]}
        results[one.name] = ask(one.name, trace, **own)
        if progress is not None:
            progress(done, len(chosen))
    said = {name: described(value) if name == "outcome" else value for name, value in options.items()}
    arrays, labels = _COMPARED[kind](trace, results, chosen[0].family.axes, options)
    return make_result(
        "compare",
        arrays,
        coordinates=labels,
        provenance=trace_provenance(trace, methods=list(results), **said) | {"compared": kind},
    )


def _chosen(methods: Sequence[str]) -> list[Method]:
    chosen = [method(name) for name in ([methods] if isinstance(methods, str) else methods)]
    names = [one.name for one in chosen]
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"methods {', '.join(names) or 'none'} were given; expected two or more, each once.")
    kinds = {one.name: one.kind for one in chosen}
    if len(set(kinds.values())) > 1:
        given = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise InputError(f"methods of one kind can be compared; {given} were given.")
    if chosen[0].kind not in _COMPARED:
        raise InputError(
            f"methods of the kind {chosen[0].kind} cannot be compared; those of {', '.join(_COMPARED)} can."
        )
    return chosen


Compared = Callable[
    ["Trace", Mapping[str, xr.Dataset], tuple[str, ...], Mapping[str, Any]], tuple[Arrays, dict[str, Any]]
]


def _maps(
    trace: "Trace", results: Mapping[str, xr.Dataset], axes: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[Arrays, dict[str, Any]]:
    tables = _tables(results, axes)
    one = next(iter(tables.values()))
    sites = chosen_sites(trace, *(options.get(name) for name in ("layers", "attention", "stream")))
    allowed = np.stack(
        [np.stack([as_numpy(site.allowed_keys(int(head))) for head in one["head"].values]) for site in sites]
    )
    # Rows of attention sum to about one, so that what is small in them is known; other kinds have scales of their own.
    return _pairs(tables, axes[:2], allowed, smallest=_rounding(one))


def _mixtures(
    trace: "Trace", results: Mapping[str, xr.Dataset], axes: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[Arrays, dict[str, Any]]:
    tables = _tables(results, axes)
    # What is zero at every layer in all of them cannot be anything else, as what comes later in a causal model.
    able = np.any([(table.values != 0).any(0) for table in tables.values()], axis=0)
    return _pairs(tables, axes[:1], np.broadcast_to(able, next(iter(tables.values())).shape))


def _scores(
    trace: "Trace", results: Mapping[str, xr.Dataset], axes: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[Arrays, dict[str, Any]]:
    tables = _tables(results, axes)
    return _pairs(tables, (), np.ones(next(iter(tables.values())).shape, bool))


def _statistics(
    trace: "Trace", results: Mapping[str, xr.Dataset], axes: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[Arrays, dict[str, Any]]:
    samples: dict[str, np.ndarray] = {}
    for name, result in results.items():
        for statistic, values in result.data_vars.items():
            if set(values.dims) == set(axes) and values.dtype.kind in "biuf":
                samples[f"{name}.{statistic}"] = values.transpose(*axes).values.astype(np.float64).ravel()
        if not any(label.startswith(f"{name}.") for label in samples):
            raise InputError(f"{name} gives no number for each {' and '.join(axes)}, so there is nothing to compare.")
    if len({len(values) for values in samples.values()}) > 1:
        raise InputError(f"{', '.join(results)} are not of the same {' and '.join(axes)}.")
    correlations = statistic_agreement(np.stack(list(samples.values())), floor=VARIANCE_FLOOR)
    both = ("statistic", "other")
    labels = {axis: list(samples) for axis in both}
    return {"pearson": (both, correlations[0]), "spearman": (both, correlations[1])}, labels


#: How methods of each kind are compared.
_COMPARED: Mapping[str, Compared] = {
    "map": _maps, "layer": _maps, "mixture": _mixtures, "score": _scores,
    "head": _statistics, "token": _statistics, "prediction": _statistics,
}  # fmt: skip


def _tables(results: Mapping[str, xr.Dataset], axes: tuple[str, ...]) -> dict[str, xr.DataArray]:
    """The array of each result on the axes of the kind, on the layers that all have."""
    tables: dict[str, xr.DataArray] = {}
    for name, result in results.items():
        fitting = [values for values in result.data_vars.values() if set(values.dims) == set(axes)]
        if not fitting:
            raise InputError(f"{name} gives nothing on the axes {', '.join(axes)}.")
        tables[name] = fitting[0].transpose(*axes)
    if "layer" in axes:
        shared = [
            layer
            for layer in next(iter(tables.values()))["layer"].values
            if all(layer in table["layer"].values for table in tables.values())
        ]
        tables = {name: table.sel(layer=shared) for name, table in tables.items()}
    shapes = {name: table.shape for name, table in tables.items()}
    if len(set(shapes.values())) > 1 or not next(iter(tables.values())).size:
        given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise InputError(f"the results are not of the same {', '.join(axes)}: {given}.")
    return tables


def _pairs(
    tables: Mapping[str, xr.DataArray], slices: tuple[str, ...], allowed: np.ndarray, smallest: float = 0.0
) -> tuple[Arrays, dict[str, Any]]:
    """Every pair of methods, slice by slice."""
    one = next(iter(tables.values()))
    sizes = one.shape[: len(slices)]
    cells = one.shape[len(slices) :]
    shape = (-1, *(cells if len(cells) == 2 else (1, *cells)))
    pairs = list(combinations(tables, 2))
    arrays: Arrays = {}
    agreements = [
        cell_agreement(
            tables[first].values.astype(np.float64).reshape(shape),
            tables[second].values.astype(np.float64).reshape(shape),
            allowed.reshape(shape),
            rounding=_rounding(one),
            smallest=smallest,
            floor=VARIANCE_FLOOR,
        )
        for first, second in pairs
    ]
    for name in ("pearson", "spearman", "total_variation"):
        arrays[name] = (("pair", *slices), np.stack([getattr(pair, name).reshape(sizes) for pair in agreements]))
    labels: dict[str, Any] = {"pair": [f"{first}, {second}" for first, second in pairs]}
    labels |= {"first": ("pair", [pair[0] for pair in pairs]), "second": ("pair", [pair[1] for pair in pairs])}
    return arrays, labels | {axis: one[axis].values for axis in slices if axis in one.coords}


def _rounding(table: xr.DataArray) -> float:
    """Rows of so many numbers that were rounded to float32 sum to one but for this."""
    return machine_epsilon(torch.float32) * table.shape[-1]
