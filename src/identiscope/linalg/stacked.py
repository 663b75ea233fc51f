"""The spectrum of all heads of a layer stacked, from one small matrix per head."""

import torch
from torch import Tensor

from identiscope.linalg.column_space import Spectrum, spectrum
from identiscope.linalg.coordinates import Coordinates
from identiscope.linalg.tolerance import relative_cutoff


def stacked_spectrum(points: Coordinates, output_projection: Tensor) -> tuple[Tensor, Spectrum]:
    """Ranks of the heads alone [head], and the spectrum [1, column] of their T stacked (head·key × model).

    With V = Q·S per value head, the stacked T is an orthonormal matrix times the stacked S·H: a matrix of
    head·channel rows, whatever the number of keys. With ones, each head has its own column of ones, since
    each head keeps its own row sums.
    """
    heads = len(points.triangle)
    keys, channels, model = points.points.shape[1], points.channels, points.model
    small = points.of_head(torch.linalg.qr(points.points).R)
    extra = heads if points.unit is not None else 0
    stacked = small.new_zeros(heads, small.shape[1], model + extra)
    stacked[:, :, :model] = small[..., :channels] @ output_projection.double()
    for head in range(extra):
        stacked[head, :, model + head] = small[head, :, channels] * points.triangle[head, channels, channels]
    flat = stacked.flatten(0, 1)
    values = torch.linalg.svdvals(flat)
    # The stacked matrix has head·key rows and its heads rarely align, so its largest singular value is that
    # of the strongest head: the cutoff grows with the shape as for any matrix.
    relative = relative_cutoff(heads * keys, heads * channels, model, points.precision)
    produced = float((points.bias_norm.square().sum() * keys).sqrt())
    together = spectrum(values[None], relative * values[:1].clamp(min=produced))
    alone_values = torch.linalg.svdvals(small @ points.triangle.mT)
    alone = spectrum(alone_values, points.cutoff(keys) * points.reference(alone_values[:, 0], keys))
    return alone.rank, together
