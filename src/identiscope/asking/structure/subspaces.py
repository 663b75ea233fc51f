"""The shared subspace R of every head over the traces of a corpus, by length, in one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from identiscope.asking.maps import attention_maps
from identiscope.asking.provenance import provenance, text_digest, texts_digest
from identiscope.errors import InputError
from identiscope.linalg.devices import as_numpy
from identiscope.methods.fields import chosen_sites, layer_fields
from identiscope.methods.maps.effective_structural import effective_structural, ignored_directions
from identiscope.methods.structure.shared_subspace import (
    SharedSubspace,
    chance_spectrum,
    from_arrays,
    no_samples,
    own_basis,
)
from identiscope.results import make_result

if TYPE_CHECKING:
    from identiscope.capture import Site, Trace

Longer = Literal["skip", "first_keys"]

#: A direction that at least this share of the texts use counts as used always, one that at most 1 − it use as never.
ALWAYS = 0.9


@dataclass(frozen=True, eq=False, repr=False)
class SharedSubspaces:
    """R of every head by length and layer, over the texts added so far. Immutable: `add` and `merge` give a new one.

    >>> found = SharedSubspaces(length=32)
    >>> for text in texts:
    ...     found = found.add(identiscope.trace(model, text))
    >>> found.summary()

    Texts of different lengths live in different spaces. Without `length`, every length has a subspace of its own. With
    it only texts of just that many keys count; `shorter` and `longer` ones are left out and counted, unless
    `when_longer` is "first_keys": then the first `length` keys of a longer text are taken, as they are in that text.
    layers: only these. value_bias=False takes the bias out of the values first, as in the literal T = E·W_V·H.
    """

    layers: tuple[int, ...] | None = None
    length: int | None = None
    when_longer: Longer = "skip"
    attention: str | None = None
    stream: str | None = None
    value_bias: bool = True
    places: Mapping[tuple[int, int], SharedSubspace] = field(default_factory=dict)
    heads: tuple[int, ...] = ()
    used: int = 0
    shorter: int = 0
    longer: int = 0
    origin: Mapping[str, Any] = field(default_factory=dict)
    digests: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.when_longer not in ("skip", "first_keys"):
            raise InputError(f"when_longer={self.when_longer!r} was given; expected 'skip' or 'first_keys'.")
        if self.length is None and self.when_longer != "skip":
            raise InputError("the first keys of longer texts can be taken only where a length is given.")

    def __repr__(self) -> str:
        lengths, layers = ({place[axis] for place in self.places} for axis in (0, 1))
        shown = ", ".join(str(length) for length in sorted(lengths)) or "none"
        return (
            f"SharedSubspaces({self.used} texts, keys {shown}, {len(layers)} layers, {len(self.heads)} heads;"
            f" left out: {self.shorter} shorter, {self.longer} longer)"
        )

    def add(self, trace: "Trace") -> "SharedSubspaces":
        """With one more text."""
        sites = chosen_sites(trace, self.layers, self.attention, self.stream)
        keys = sites[0].keys
        if self.length is not None and keys < self.length:
            return replace(self, shorter=self.shorter + 1)
        if self.length is not None and keys > self.length and self.when_longer == "skip":
            return replace(self, longer=self.longer + 1)
        if self.heads and self.heads != sites[0].heads:
            raise InputError(f"heads {list(sites[0].heads)} were captured of this text, {list(self.heads)} before.")
        places = dict(self.places)
        for site in sites:
            places.update([self._added(places, site)])
        return replace(
            self,
            places=places,
            heads=sites[0].heads,
            used=self.used + 1,
            longer=self.longer + (self.length is not None and keys > self.length),
            origin=self.origin or provenance(trace, sites[0]),
            digests=(*self.digests, text_digest(trace)),
        )

    def _added(
        self, places: Mapping[tuple[int, int], SharedSubspace], site: "Site"
    ) -> tuple[tuple[int, int], SharedSubspace]:
        fields = layer_fields(site)
        value = fields.value if self.length is None else fields.value[:, : self.length]
        place = (value.shape[1], site.layer)
        before = places.get(place, no_samples(len(site.heads), value.shape[1]))
        if not self.value_bias and fields.bias is None:
            raise InputError(f"the bias inside the values of {site.name} could not be told; leave value_bias as it is.")
        bias = None if self.value_bias else fields.bias
        return place, before.add(value, fields.projection, precision=fields.precision, value_bias=bias)

    def merge(self, other: "SharedSubspaces") -> "SharedSubspaces":
        """Of the texts of both, as if those of the other had come after these."""
        names = ("layers", "length", "when_longer", "attention", "stream", "value_bias")
        differing = [name for name in names if getattr(self, name) != getattr(other, name)]
        if differing or (self.heads and other.heads and self.heads != other.heads):
            raise InputError(f"subspaces made with different {', '.join(differing) or 'heads'} cannot be merged.")
        places = dict(self.places)
        for place, subspace in other.places.items():
            places[place] = places[place].merge(subspace) if place in places else subspace
        return replace(
            self, places=places, heads=self.heads or other.heads, used=self.used + other.used,
            shorter=self.shorter + other.shorter, longer=self.longer + other.longer,
            origin=self.origin or other.origin, digests=self.digests + other.digests,
        )  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        """As plain arrays by name, to be stored a shard at a time; `with_arrays` reads them."""
        arrays = {
            f"{keys}.{layer}.{name}": array
            for (keys, layer), subspace in self.places.items()
            for name, array in subspace.arrays().items()
        }
        counts = np.array([self.used, self.shorter, self.longer])
        return arrays | {"counts": counts, "heads": np.array(self.heads, dtype=np.int64)}

    def with_arrays(self, arrays: Mapping[str, np.ndarray]) -> "SharedSubspaces":
        """An empty one's settings with the texts that were stored as `arrays`."""
        parts: dict[tuple[int, int], dict[str, np.ndarray]] = {}
        try:
            for name, array in arrays.items():
                if name.count(".") == 2:
                    keys, layer, rest = name.split(".")
                    parts.setdefault((int(keys), int(layer)), {})[rest] = array
            used, shorter, longer = (int(count) for count in arrays["counts"])
            places = {place: from_arrays(part) for place, part in parts.items()}
            heads = tuple(int(head) for head in arrays["heads"])
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(
                f"these are not the arrays of shared subspaces: {type(error).__name__} {error}. Give what `arrays()`"
                " returned."
            ) from error
        return replace(self, places=places, heads=heads, used=used, shorter=shorter, longer=longer)

    def lengths(self, least: int = 1) -> list[int]:
        """The lengths that at least so many texts have, the commonest first."""
        counts = {keys: subspace.samples for (keys, _), subspace in self.places.items()}
        return sorted(
            (keys for keys, count in counts.items() if count >= least), key=lambda keys: (-counts[keys], keys)
        )

    def of(self, layer: int, keys: int) -> SharedSubspace:
        """The subspace of one layer for texts of so many keys; its heads are in the order of `heads`."""
        if (keys, layer) not in self.places:
            have = sorted(self.places)
            raise InputError(f"there is no text of {keys} keys at layer {layer}; there are (keys, layer) {have[:12]}.")
        return self.places[keys, layer]

    def summary(self, *, least: int = 2, lengths: Sequence[int] | None = None) -> xr.Dataset:
        """Dimension, eigenvalues and the text that filled the space, on axes length, layer and head.

        `dimension` is that of the hard R, `filled_at` the number of the text that made it the whole space (0: none
        yet), `eigenvalue` [length, layer, head, direction] the share of texts that use each direction of the soft R,
        `always` and `never` the shares of directions that ≥ 90 % and ≤ 10 % of the texts use. `chance` [length,
        direction] is what as many random subspaces of the median rank have: compare before calling a direction shared.
        least: leave out lengths with fewer texts.
        """
        chosen = sorted(self.lengths(least) if lengths is None else lengths)
        if not chosen:
            raise InputError(
                f"no length has {least} texts ({self.used} texts used, {self.shorter} too short, {self.longer} too"
                " long); give a length, or more texts."
            )
        layers = sorted({layer for _, layer in self.places})
        subspaces = [[self.of(layer, keys) for layer in layers] for keys in chosen]
        eigenvalues = np.full((len(chosen), len(layers), len(self.heads), max(chosen)), np.nan)
        for row, per_layer in enumerate(subspaces):
            for column, subspace in enumerate(per_layer):
                eigenvalues[row, column, :, : subspace.keys] = subspace.soft.eigenvalues.numpy()
        known = ~np.isnan(eigenvalues)
        counts = known.sum(-1)
        chance = np.full((len(chosen), max(chosen)), np.nan)
        for row, keys in enumerate(chosen):
            rank = round(float(np.median(np.nansum(eigenvalues[row], -1))))
            chance[row, :keys] = chance_spectrum(keys, rank, subspaces[row][0].samples).numpy()
        spans = {
            name: np.array([[getattr(one.span, name).numpy() for one in per_layer] for per_layer in subspaces])
            for name in ("dimension", "filled_at", "uncertain")
        }
        return make_result(
            "shared_subspaces",
            {name: (("length", "layer", "head"), values) for name, values in spans.items()}
            | {
                "eigenvalue": (("length", "layer", "head", "direction"), eigenvalues),
                "mean_rank": (("length", "layer", "head"), np.nansum(eigenvalues, -1)),
                "always": (("length", "layer", "head"), (np.nan_to_num(eigenvalues) >= ALWAYS).sum(-1) / counts),
                "never": (("length", "layer", "head"), (known & (eigenvalues <= 1 - ALWAYS)).sum(-1) / counts),
                "chance": (("length", "direction"), chance),
                "samples": (("length",), [one[0].samples for one in subspaces]),
            },
            coordinates={"length": chosen, "layer": layers, "head": list(self.heads)},
            provenance={
                # What was stored and read again does not say which texts it is of.
                **self.origin, "text_digest": texts_digest(self.digests) if len(self.digests) == self.used else "",
                "options": {
                    "layers": self.layers, "attention": self.attention, "stream": self.stream, "least": least,
                    "lengths": lengths,
                },
                "texts": self.used, "shorter": self.shorter, "longer": self.longer,
                "common_length": self.length, "when_longer": self.when_longer, "value_bias": self.value_bias,
            },
        )  # fmt: skip


def structural_maps(
    trace: "Trace", layer: int, head: int, subspaces: SharedSubspaces, *, cut: float | None = None
) -> xr.Dataset:
    """Raw, effective and structurally effective attention of one head, and what this text ignores of R.

    `effective_structural` is the projection on R: the hard one, or with a `cut` on the directions that at least this
    share of the texts use. `ignored_share` [direction] says how much of each such direction this text's own embeddings
    ignore; the attributes `ignored_dimension` and `ignored_attention` (a share of ‖A‖²) sum it up.
    """
    site = chosen_sites(trace, [layer], subspaces.attention, subspaces.stream)[0]
    subspace = subspaces.of(layer, site.keys)
    if head not in subspaces.heads:
        raise InputError(f"head {head} is not in these subspaces; there are {list(subspaces.heads)}.")
    fields = layer_fields(site).of_head(head)
    basis = subspace.basis(subspaces.heads.index(head), cut)
    raw = site.attention(head)
    basis = basis.to(raw.device)
    own = own_basis(
        fields.value, fields.projection, precision=fields.precision,
        value_bias=None if subspaces.value_bias else fields.bias,
    )[0]  # fmt: skip
    ignored = ignored_directions(raw, basis, own)
    maps = attention_maps(
        trace, layer, head, ("raw", "effective"), attention=site.kind, stream=site.query_stream,
        value_bias=subspaces.value_bias,
    )  # fmt: skip
    seen = effective_structural(raw, basis, allowed=fields.allowed)
    return maps.assign(
        effective_structural=(("query", "key"), as_numpy(seen)),
        ignored_share=(("direction",), as_numpy(ignored.share)),
    ).assign_attrs(
        method="structural_maps",
        cut=cut,
        dimension=int(basis.shape[1]),
        ignored_dimension=ignored.dimension,
        ignored_attention=ignored.attention,
        samples=subspace.samples,
    )
