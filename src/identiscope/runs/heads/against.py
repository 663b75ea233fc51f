"""Two models on the same tokens: which head is which, how far their maps are apart, and which statistics changed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from identiscope.capture.site import Site
from identiscope.capture.trace import Trace
from identiscope.errors import InputError
from identiscope.linalg.agreement import TOLERANCES
from identiscope.linalg.devices import as_numpy
from identiscope.methods.fields import layer_fields
from identiscope.methods.maps.effective_simplex_span import simplex_map
from identiscope.methods.structure.head_matching import centred_grams, cosines, matched, output_changes, row_changes
from identiscope.results import make_result
from identiscope.runs.format.opened_run import Run
from identiscope.runs.heads.means import Means
from identiscope.runs.heads.traced import own_sites
from identiscope.stats.simultaneous_interval import simultaneous_interval

Array = NDArray[np.float64]
Places = list[tuple[int, int]]

#: What is said of two heads on a text → in words.
COMPARED = {
    "output_similarity": "how alike what both heads write is, token by token, in any coordinates (1: the same)",
    "output_change": "size of the change of what the head writes, relative to what it wrote",
    "map_cosine": "cosine of the map of the one model and that of the other",
    "simplex_map_cosine": "the same of the maps that no rewriting of a model changes",
    "map_change": "how much weight of a row stands elsewhere in the map of the other model (total variation)",
    "simplex_map_change": "half of the sum of the sizes of differences of a row of the maps that no rewriting changes",
}


@dataclass(eq=False)
class TwoModels:
    """All heads of the one with all of the other, over texts; with as many layers and heads, layer by layer."""

    layers: list[tuple[Places, Places]] = field(default_factory=list)
    means: list[dict[str, Means]] = field(default_factory=list)
    #: How many tokens each text has, by its number.
    tokens: dict[int, int] = field(default_factory=dict)
    #: What rounding explains of a difference.
    rounding: float = TOLERANCES[torch.float32]

    def add(self, one: Trace, other: Trace, number: int) -> None:
        """One text as both models read it."""
        _check_tokens(one, other, number)
        self.tokens[number] = len(one.main)
        sides = own_sites(one), own_sites(other)
        self.rounding = max(self.rounding, *(TOLERANCES.get(side[0].context.dtype, 0.0) for side in sides))
        alike = [len(site.heads) for site in sides[0]] == [len(site.heads) for site in sides[1]]
        groups = [([a], [b]) for a, b in zip(*sides, strict=True)] if alike else [sides]
        if not self.layers:
            self.layers = [(_places(first), _places(second)) for first, second in groups]
            self.means = [{name: Means() for name in COMPARED} for _ in groups]
        for means, (first, second) in zip(self.means, groups, strict=True):
            for name, values in _compared(first, second).items():
                means[name].add(as_numpy(values))

    def matches(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Of each head (layer, head) of the one that has a partner, that of the other."""
        found = {}
        for (first, second), means in zip(self.layers, self.means, strict=True):
            for place, partner in zip(first, matched(means["output_similarity"].mean), strict=True):
                if partner >= 0:
                    found[place] = second[int(partner)]
        return found

    def arrays(self, layers: Sequence[int], heads: Sequence[int]) -> dict[str, Array]:
        """[layer, head] of the one: its partner, and means over texts of what both are to each other, with errors."""
        shape, partners = (len(layers), len(heads)), self.matches()
        names = ("matched_layer", "matched_head", *(name + end for name in COMPARED for end in ("", "_error")))
        arrays = {name: np.full(shape, np.nan) for name in names}
        for (first, second), means in zip(self.layers, self.means, strict=True):
            for row, place in enumerate(first):
                if place not in partners:
                    continue
                at, column = (layers.index(place[0]), heads.index(place[1])), second.index(partners[place])
                arrays["matched_layer"][at], arrays["matched_head"][at] = partners[place]
                for name in COMPARED:
                    arrays[name][at] = means[name].mean[row, column]
                    arrays[f"{name}_error"][at] = means[name].error[row, column]
        return arrays


def compared_runs(
    one: Run,
    other: Run,
    two: TwoModels,
    statistics: Iterable[str],
    traced: tuple[xr.Dataset, xr.Dataset] | None = None,
) -> xr.Dataset:
    """Of each head and column: that of its partner less its own, the mean over the same texts, with its error and a
    paired interval (95 % for all heads and columns together). `changed_statistics`: in how many the interval is off
    zero, by more than rounding explains. traced: what both have of texts that were traced, [text, layer, head]."""
    tables = [(one.to_xarray(name), other.to_xarray(name)) for name in statistics]
    layers, heads = (tables[0][0][axis].values.tolist() for axis in ("layer", "head"))
    partners = two.matches()
    differences: dict[str, Array] = {}
    sizes: dict[str, float] = {}
    for first, second in tables:
        same = first.sizes["text"] == second.sizes["text"] and np.array_equal(first["tokens"], second["tokens"])
        if not same:
            raise InputError("the two models read these texts as other numbers of tokens; they cannot be compared.")
    for first, second in [*tables, *([] if traced is None else [traced])]:
        for column in [name for name in first.data_vars if name in second]:
            mine, theirs = first[column].transpose("text", "layer", "head"), second[column]
            sizes[str(column)] = max(1.0, float(np.abs(np.nan_to_num(mine.values)).max(initial=0.0)))
            values = np.full(mine.shape, np.nan)
            for (layer, head), (at, number) in partners.items():
                place = layers.index(layer), heads.index(head)
                values[:, *place] = theirs.sel(layer=at, head=number).values - mine.values[:, *place]
            differences[str(column)] = values
    comparisons = len(differences) * len(layers) * len(heads)
    arrays = two.arrays(layers, heads)
    changed = np.zeros((len(layers), len(heads)))
    for column, values in differences.items():
        means = Means()
        for text in values:
            means.add(text)
        low, high = simultaneous_interval(means.mean, means.error, means.count, comparisons)
        changed += ((low > 0) | (high < 0)) & (np.abs(means.mean) > two.rounding * sizes[column])
        name = f"{column}_difference"
        arrays |= {name: means.mean, f"{name}_error": means.error, f"{name}_lower": low, f"{name}_upper": high}
    arrays["changed_statistics"] = changed
    return make_result(
        "heads_against",
        {name: (("layer", "head"), values) for name, values in arrays.items()},
        coordinates={"layer": layers, "head": heads},
        provenance={"statistics": len(differences), "rounding": two.rounding},
    )


def _places(sites: Sequence[Site]) -> Places:
    return [(site.layer, head) for site in sites for head in site.heads]


def _compared(first: Sequence[Site], second: Sequence[Site]) -> dict[str, Tensor]:
    """All heads of the ones with all of the others, [a, b], by name of `COMPARED`."""
    grams = [torch.cat([centred_grams(site.context, site.projection) for site in sites]) for sites in (first, second)]
    maps = [torch.cat([site.attentions().flatten(1) for site in sites]) for sites in (first, second)]
    rows = first[0].queries
    real = [torch.cat([_simplex(site) for site in sites]) for sites in (first, second)]
    writes = [torch.cat([_written(site) for site in sites]) for sites in (first, second)]
    apart = grams[0].new_full((len(grams[0]), len(grams[1])), torch.nan)
    if writes[0].shape[1] == writes[1].shape[1]:
        apart = output_changes(*writes)
    found = (
        cosines(*grams),
        apart,
        cosines(*maps),
        cosines(*real),
        row_changes(maps[0], maps[1], rows),
        row_changes(real[0], real[1], rows),
    )
    return dict(zip(COMPARED, found, strict=True))


def _simplex(site: Site) -> Tensor:
    fields = layer_fields(site)
    given = fields.value, fields.projection, fields.allowed, fields.precision, fields.row_sum
    return simplex_map(fields.attention, *given).flatten(1)


def _written(site: Site) -> Tensor:
    """What each head adds to the stream, [head, token·model]."""
    return (site.context.double() @ site.projection.double()).flatten(1)


def _check_tokens(one: Trace, other: Trace, number: int) -> None:
    first, second = list(one.main.tokens), list(other.main.tokens)
    if first == second:
        return
    place = next((place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    said = (
        f"{len(first)} and {len(second)} tokens"
        if place is None
        else f"token {place} as {first[place]!r} and as {second[place]!r}"
    )
    raise InputError(
        f"two models are compared on the same tokens; these read text {number} otherwise: {said}. Give two that share a"
        " tokenizer."
    )
