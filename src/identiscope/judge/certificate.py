"""Whether a map is an alternative to a head's own: worked out from what the site holds, not from what a result says."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.simplex.polytope import Certificate, certify, worst_certificate
from identiscope.linalg.tolerance import alternative_tolerance

if TYPE_CHECKING:
    from identiscope.capture import Site


@dataclass(frozen=True)
class MapCertificate:
    """How far a map [query, key] is from being an alternative, and what may be put down to rounding (`tolerance`).

    `masked_weight` is the largest weight on a key that its query may not see, which must be exactly zero. Of a map that
    may move the output by a share `epsilon` of the attention block's, `output_share` is the largest by which it does.
    """

    kept: Certificate
    masked_weight: float
    tolerance: float
    epsilon: float = 0.0
    output_share: float = 0.0

    @property
    def keeps_output(self) -> bool:
        """Whether every row gives the output it gave, or one as near as it may be. Written so that NaN does not."""
        if self.epsilon > 0:
            return self.output_share <= self.epsilon * (1 + self.tolerance)
        return self.kept.output_error_relative <= self.tolerance

    @property
    def is_attention(self) -> bool:
        """Whether every row is non-negative, sums to what it did, and looks at what it may."""
        return (
            self.kept.least_weight >= -self.tolerance
            and self.kept.row_sum_error <= self.tolerance
            and self.masked_weight == 0
        )

    def broken(self) -> list[str]:
        """What it does not keep, in words; empty for an alternative."""
        kept, limit = self.kept, f"at most {self.tolerance:.0e} is rounding"
        complaints = []
        if not kept.least_weight >= -self.tolerance:
            complaints.append(f"its least weight is {kept.least_weight:.3g}")
        if not kept.row_sum_error <= self.tolerance:
            complaints.append(f"a row sum changes by {kept.row_sum_error:.3g} ({limit})")
        if self.masked_weight != 0:
            complaints.append(f"a key that its query may not see gets a weight of {self.masked_weight:.3g}")
        if not self.keeps_output and self.epsilon > 0:
            complaints.append(
                f"a row of it moves the attention block's output by {self.output_share:.3g} of its length (at most"
                f" {self.epsilon:g} was allowed)"
            )
        elif not self.keeps_output:
            complaints.append(
                f"a row of the head's output changes by {kept.output_error_relative:.3g} of itself ({limit})"
            )
        return complaints


def certify_map(site: "Site", head: int, attention: Tensor, epsilon: float = 0.0) -> MapCertificate:
    """The certificate of a map [query, key] (float64) in place of the site's own, computed in float64.

    epsilon: by which share of the attention block's output each row may move it.
    """
    transformed = site.value_of(head).double() @ site.projection[head].double()
    hidden = attention.masked_fill(site.allowed_keys(head), 0.0).abs()
    moved, size = ((attention - site.attention(head)) @ transformed).norm(dim=-1), site.output_size()
    share = torch.where(size > 0, moved / torch.where(size > 0, size, 1.0), torch.where(moved > 0, torch.inf, 0.0))
    return MapCertificate(
        certify(transformed, site.attention(head), attention),
        float(hidden.max()) if hidden.numel() else 0.0,
        alternative_tolerance(site.value.dtype),
        epsilon,
        float(share.max()),
    )


def certify_layer(site: "Site", maps: Mapping[int, Tensor]) -> MapCertificate:
    """The certificate of maps [query, key] (float64) by head in place of the site's own: the sum of outputs is kept."""
    shape = (site.queries, site.projection.shape[-1])
    change, whole = torch.zeros(2, *shape, dtype=torch.float64, device=site.context.device)
    if site.projection_bias is not None:
        whole = whole + site.projection_bias.double()
    kept, hidden = [], 0.0
    for head in range(site.head_count):
        transformed = site.value_of(head).double() @ site.projection[head].double()
        raw = site.attention(head)
        whole = whole + raw @ transformed
        if head in maps:
            change = change + (maps[head] - raw) @ transformed
            kept.append(certify(transformed, raw, maps[head]))
            masked = maps[head].masked_fill(site.allowed_keys(head), 0.0).abs()
            hidden = max(hidden, float(masked.max()) if masked.numel() else 0.0)
    moved, size = change.norm(dim=-1), whole.norm(dim=-1)
    relative = torch.where(size > 0, moved / torch.where(size > 0, size, 1), moved)
    worst = worst_certificate(kept)
    both = replace(worst, output_error=float(moved.max()), output_error_relative=float(relative.max()))
    return MapCertificate(both, hidden, alternative_tolerance(site.value.dtype))


def refuse_broken(certificate: MapCertificate, place: str) -> MapCertificate:
    """Refuse what is no alternative; the certificate of what is."""
    if certificate.broken():
        raise InputError(
            f"the map that was given is no alternative to {place}: {'; '.join(certificate.broken())}. Give what"
            " attention_alternative or layer_alternative returned for this text, traced alone (a batch rounds"
            " otherwise), or run it all the same with check=False."
        )
    return certificate


def check_finite(attention: Tensor) -> None:
    """Refuse a map that has no number somewhere."""
    if not bool(torch.isfinite(attention).all()):
        raise InputError("the map that was given has NaN or infinite entries; give one weight for each query and key.")


def check_alternative(site: "Site", head: int, attention: Tensor, epsilon: float = 0.0) -> MapCertificate:
    """Refuse a map that is no alternative; the certificate of one that is."""
    check_finite(attention)
    return refuse_broken(certify_map(site, head, attention, epsilon), f"layer {site.layer}, head {head}")
