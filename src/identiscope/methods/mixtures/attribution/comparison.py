"""How contributions and attention maps of the same text agree."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from identiscope.errors import InputError


@dataclass(frozen=True, eq=False)
class MapAgreement:
    """Correlation of contributions with maps over all cells of a layer, [layer]; NaN where either is constant."""

    pearson: NDArray[np.float64]
    spearman: NDArray[np.float64]
    cells: NDArray[np.int64]


def compare_with_maps(
    contribution: NDArray[np.float64], maps: NDArray[np.float64], allowed: NDArray[np.bool_] | None = None
) -> MapAgreement:
    """Pearson and Spearman correlation, by layer, of contribution [layer, input, output] with maps [layer, query, key].

    A map is attention of any kind, raw or effective, averaged over heads or of one: its query is the output
    token, its key the input token. allowed [query, key] leaves out cells that are zero by a mask, where agreement
    says nothing. Ties share their mean rank.

    >>> c = np.array([[[0.7, 0.4], [0.3, 0.6]]])
    >>> compare_with_maps(c, c.transpose(0, 2, 1)).spearman
    array([1.])
    """
    turned = contribution.transpose(0, 2, 1)
    if turned.shape != maps.shape:
        raise InputError(
            f"contributions {contribution.shape} [layer, input, output] need maps {turned.shape} [layer, query, key];"
            f" given {maps.shape}."
        )
    cells = np.ones(maps.shape[1:], bool) if allowed is None else np.asarray(allowed, bool)
    pearson, spearman = [], []
    for ours, theirs in zip(turned[:, cells], maps[:, cells], strict=True):
        # scipy warns where a correlation is not defined; here it is NaN without noise.
        defined = len(ours) > 1 and np.ptp(ours) > 0 and np.ptp(theirs) > 0
        pearson.append(float(pearsonr(ours, theirs).statistic) if defined else np.nan)
        spearman.append(float(spearmanr(ours, theirs).statistic) if defined else np.nan)
    return MapAgreement(np.array(pearson), np.array(spearman), np.full(len(maps), int(cells.sum())))
