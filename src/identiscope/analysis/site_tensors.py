"""What a Site holds, in the shapes the attention methods take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed

if TYPE_CHECKING:
    from identiscope.capture import Site, Trace


@dataclass(frozen=True, eq=False, repr=False)
class SiteTensors:
    """One site's chosen heads: value [kv_head, key, d_v], projection [head, d_v, model], context [head, query, d_v].

    `raw` gives the attention of some consecutive queries, computed when asked for. `value_bias` [kv_head, d_v]
    and `row_sum` [head, query] are None where the site has none to speak of.
    """

    site: "Site"
    heads: tuple[int, ...]
    value: Tensor
    projection: Tensor
    context: Tensor
    allowed: Allowed
    row_sum: Tensor | None
    value_bias: Tensor | None

    @property
    def precision(self) -> torch.dtype:
        """The dtype in which the forward pass computed the values."""
        return self.site.value.dtype

    def raw(self, rows: slice) -> Tensor:
        """Raw attention of some consecutive queries, [head, query, key]."""
        chosen = range(self.site.queries)[rows]
        return torch.stack([self.site.attention(head, chosen) for head in self.heads])

    def of_head(self, head: int) -> "SiteTensors":
        """One head alone."""
        self.site.place(head)
        place = self.heads.index(head)
        group = len(self.projection) // len(self.value)
        alone, kept = slice(place, place + 1), slice(place // group, place // group + 1)
        return SiteTensors(
            self.site,
            (head,),
            self.value[kept],
            self.projection[alone],
            self.context[alone],
            self.allowed,
            None if self.row_sum is None else self.row_sum[alone],
            None if self.value_bias is None else self.value_bias[kept],
        )


def site_tensors(site: "Site") -> SiteTensors:
    """The tensors of a site, ready for `methods`."""
    heads = list(site.heads)
    value, bias = site.value, site.value_bias
    if len(heads) != site.head_count:
        # A choice of heads need not be whole groups: give each head its own values.
        value = value[list(site.key_value_heads)]
        bias = None if bias is None else bias[list(site.key_value_heads)]
    allowed: Allowed = None
    if site.bias.allowed is not None:
        if site.bias.allowed.shape[0] > 1 and not _same_for_all(site.bias.allowed):
            raise InputError(f"the heads of {site.name} see different keys; capture one head at a time (heads=[h]).")
        allowed = site.allowed_keys(heads[0])
    elif site.bias.causal:
        allowed = "causal"
    return SiteTensors(
        site, site.heads, value, site.projection[heads], site.context[heads], allowed, site.row_sums(), bias
    )


def _same_for_all(allowed: Tensor) -> bool:
    return torch.equal(allowed, allowed[:1].expand_as(allowed))


def chosen_sites(trace: "Trace", layers: Sequence[int] | None, kind: str | None, stream: str | None) -> list["Site"]:
    """The sites of one kind of attention, in order of their layers."""
    sites = [
        site
        for site in trace.sites
        if (layers is None or site.layer in layers)
        and kind in (None, site.kind)
        and stream in (None, site.query_stream)
    ]
    places = {(site.kind, site.query_stream) for site in sites}
    if len(places) > 1:
        raise InputError(f"the trace has several attentions; say which kind or stream: {sorted(places)}.")
    missing = sorted(set(layers or ()) - {site.layer for site in sites})
    if missing or not sites:
        have = sorted({(site.kind, site.query_stream, site.layer) for site in trace.sites})
        raise InputError(f"no captured layers {missing or 'at all'}; captured (kind, stream, layer): {have}.")
    return sites


def provenance(trace: "Trace", site: "Site", **options: object) -> dict[str, object]:
    """What a result says of where it comes from."""
    return {
        "model": "arrays" if trace.model is None else trace.model.name,
        "kind": site.kind,
        "query_stream": site.query_stream,
        "key_stream": site.key_stream,
        "tokens": len(trace.streams[site.query_stream]),
        "dtype": str(site.value.dtype).removeprefix("torch."),
        "options": options,
    }
