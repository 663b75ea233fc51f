"""A Trace as plain NumPy arrays: what a page needs to rebuild every head's maps, and the maps to check it against."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from identiscope.linalg.allowed import AllowedKeys, describe_allowed
from identiscope.linalg.devices import as_numpy
from identiscope.linalg.rank.projection_factor import ProjectionFactor, projection_factor
from identiscope.linalg.thin_position import ThinPosition, thin_position
from identiscope.linalg.tolerance import GRAM_FLOOR
from identiscope.methods.fields import chosen_sites, layer_fields
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span

if TYPE_CHECKING:
    from identiscope.capture import Site, Trace

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class LayerArrays:
    """One site in thin matrices, heads that share keys or values sharing them here too.

    logits of a head = query[head]·key[group]ᵀ (the scale is in the query), then `softcap`, `position` and `sinks`;
    query and key are None where a map cannot be had from them (a position bias that is not thin, maps given as
    arrays). Attention projected on col([T,1]) is left[head]·right[group]ᵀ on the allowed keys, `right`
    [group, key, column] has orthonormal columns, and right[group]·output[head] is T up to a rotation of its columns,
    which no norm of an output sees.
    `start` and `stop` [query] are the allowed range of keys, `matrix` [query, key] where a range does not say it; all
    None where every key may be seen. `raw` and `effective_simplex_span` give the library's own map of the place-th
    head in float64, there until the next is asked for; the paper's `effective` attention, which another way of writing
    the model changes, is not held.
    """

    layer: int
    kind: str
    heads: tuple[int, ...]
    queries: int
    keys: int
    query: Array | None
    key: Array | None
    softcap: float | None
    position: ThinPosition | None
    sinks: Array | None
    left: Array
    right: Array
    output: Array
    start: Array | None
    stop: Array | None
    matrix: Array | None
    raw: Callable[[int], Array]
    effective_simplex_span: Callable[[int], Array]
    effective: None = None


def report_layers(
    trace: "Trace", *, layers: Sequence[int] | None = None, attention: str | None = None, stream: str | None = None
) -> Iterator[LayerArrays]:
    """The chosen sites one after the other, each as thin matrices.

    >>> [arrays.right.shape for arrays in report_layers(trace)]
    """
    for site in chosen_sites(trace, layers, attention, stream):
        yield layer_arrays(site)


def layer_arrays(site: "Site") -> LayerArrays:
    """One site as thin matrices."""
    fields = layer_fields(site)
    projection = projection_factor(fields.projection)
    factored = effective_simplex_span(
        fields.value,
        projection,
        fields.context,
        allowed=fields.allowed,
        precision=fields.precision,
        row_sum=fields.row_sum,
    )
    left, right, output = _orthonormal(fields.value, projection, factored.left, factored.right)
    described = describe_allowed(fields.allowed, site.queries, site.keys, fields.value.device)
    position = _position(site, described)
    query, key = _logit_factors(site) if site.bias.position is None or position is not None else (None, None)
    ranged = not described.everything and described.matrix is None

    # Maps are made in the same memory again and again: to get it anew takes longer than to compute them.
    room = torch.empty(2, site.queries, site.keys, dtype=torch.float64, device=factored.left.device)
    softmax = fields.softmax_rows
    compiled = None if softmax is None else replace(softmax, room=room[0].view(-1))

    def raw(place: int) -> Array:
        if compiled is None or int(compiled.lengths.max()) < site.keys:
            return as_numpy(site.attention(site.heads[place]))
        return as_numpy(compiled.of_head(place).rows(slice(0, site.queries))[0][0])

    def projected(place: int) -> Array:
        group = len(factored.left) // len(factored.right)
        cells = torch.mm(factored.left[place], factored.right[place // group].mT, out=room[1])
        if not described.everything:
            cells *= described.block(slice(0, site.queries))
        return as_numpy(cells)

    return LayerArrays(
        layer=site.layer,
        kind=site.kind,
        heads=site.heads,
        queries=site.queries,
        keys=site.keys,
        query=query,
        key=key,
        softcap=site.softcap,
        position=position,
        sinks=None if site.sinks is None else as_numpy(site.sinks.double()),
        left=as_numpy(left),
        right=as_numpy(right),
        output=as_numpy(output),
        start=as_numpy(described.start) if ranged else None,
        stop=as_numpy(described.stop) if ranged else None,
        matrix=None if described.matrix is None else as_numpy(described.matrix),
        raw=raw,
        effective_simplex_span=projected,
    )


def _position(site: "Site", allowed: AllowedKeys) -> ThinPosition | None:
    """The position bias of the chosen heads, if it has a thin form."""
    if site.bias.position is None or site.given is not None:
        return None
    inside = None if allowed.everything else as_numpy(allowed.block(slice(0, site.queries)))
    cells = as_numpy(site.bias.position.double())
    return thin_position(cells, inside, len(site.heads), site.queries, site.keys)


def _logit_factors(site: "Site") -> tuple[Array | None, Array | None]:
    """Scaled queries [head, query, channel] and keys [group, key, channel]; None where they do not give the map."""
    if site.given is not None or site.query is None or site.key is None:
        return None, None
    groups = list(site.key_value_heads)
    key = site.key
    if len(site.heads) != site.head_count or len(site.heads) % len(key):
        # A choice of heads need not be whole groups: give each head its own keys.
        key = key[groups]
    return as_numpy(site.query.double() * site.scale), as_numpy(key.double())


def _orthonormal(
    value: Tensor, projection: ProjectionFactor, left: Tensor, right: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same product left·rightᵀ with orthonormal columns on the right, and T in their coordinates.

    The first column is the same for all keys, so that where every key may be seen all rows, which have one sum, have
    one number there: next to nothing to store. Directions below GRAM_FLOOR of the largest are left out: what they held
    is in the packer's measured error.
    """
    squares, vectors = torch.linalg.eigh(right.mT @ right)
    kept = squares > GRAM_FLOOR**2 * squares[:, -1:]
    inverse = torch.where(kept, torch.where(kept, squares, 1).rsqrt(), 0)
    basis = right @ (vectors * inverse[:, None])
    ones, identity = basis.sum(1)[..., None], torch.eye(right.shape[2]).to(right).expand(len(right), -1, -1)
    basis = basis @ torch.linalg.qr(torch.cat([ones, identity], 2)).Q
    group = len(left) // len(right)
    coordinates = basis.mT @ right
    left = left @ coordinates.repeat_interleave(group, 0).mT
    triangle, values = projection.triangle, value.double()
    t = values.repeat_interleave(len(triangle) // len(values), 0) @ triangle.mT
    output = basis.repeat_interleave(group, 0).mT @ t
    if group == 1:
        # The singular directions of centred T as columns: what is left of the output is one number each, and the mean.
        directions, sizes, ways = torch.linalg.svd(output[:, 1:])
        turned = torch.zeros_like(output)
        turned[:, :1] = output[:, :1] @ ways.mT
        turned[:, 1:].diagonal(dim1=1, dim2=2).copy_(sizes)
        left, basis = (torch.cat([part[..., :1], part[..., 1:] @ directions], 2) for part in (left, basis))
        output = turned
    else:
        # Heads share a basis: a triangle for each, half of which is zero.
        output = torch.linalg.qr(output.mT).R.mT
    return left, basis, output
