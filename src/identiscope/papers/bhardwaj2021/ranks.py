"""Null spaces of a model's attention at each length of text, measured on texts."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from identiscope.capture import Trace, load, trace
from identiscope.errors import InputError
from identiscope.methods.freedom.realisable_dimension import realisable_dimension
from identiscope.methods.heads.attention_rank import attention_rank
from identiscope.methods.heads.layer_rank import layer_rank
from identiscope.progress import Progress


@dataclass(frozen=True, eq=False)
class LengthRanks:
    """By length [length]: means over the texts of that length, layers and heads.

    `null_dimension` is dim LN(T), `simplex_null_dimension` dim LN([T,1]), `realisable_dimension` what d_k leaves of it
    for a whole map, `layer_simplex_null_dimension` that of one query's rows of all heads together, which may also trade
    attention between heads, `identifiable` the share of heads with no simplex null space of their own, `uncertain` that
    of ranks without a clear gap in the spectrum, `texts` how many were measured.
    """

    length: np.ndarray
    null_dimension: np.ndarray
    simplex_null_dimension: np.ndarray
    realisable_dimension: np.ndarray
    layer_simplex_null_dimension: np.ndarray
    identifiable: np.ndarray
    uncertain: np.ndarray
    texts: np.ndarray


def ranks_by_length(model: Any, texts: Sequence[Any], *, progress: Progress | None = None) -> LengthRanks:
    """Trace every text and take the rank of T at every layer and head, for a query that sees all keys.

    >>> ranks_by_length(classifier.model, ["What is it ?", "Who wrote the longest letter ?"]).null_dimension

    texts: as `identiscope.trace` takes them, each of one kind of attention.
    """
    if not len(texts):
        raise InputError("no texts were given; give at least one to measure on.")
    loaded = load(model)
    by_length: dict[int, list[np.ndarray]] = {}
    for done, text in enumerate(texts, 1):
        length, rows = _of_trace(trace(loaded, text))
        by_length.setdefault(length, []).append(rows)
        if progress is not None:
            progress(done, len(texts))
    lengths = np.array(sorted(by_length))
    means = np.array([np.concatenate(by_length[length]).mean(0) for length in lengths.tolist()])
    counts = np.array([len(by_length[length]) for length in lengths.tolist()])
    null, simplex, realisable, layer, identifiable, uncertain = means.T
    return LengthRanks(lengths, null, simplex, realisable, layer, identifiable, uncertain, counts)


def _of_trace(traced: Trace) -> tuple[int, np.ndarray]:
    """The length of a text, and one row of numbers for each of its heads."""
    rows = []
    lengths = {site.keys for site in traced.sites}
    if len(lengths) != 1:
        raise InputError(f"the attentions of this text see {sorted(lengths)} keys; give texts of one length each.")
    for site in traced.sites:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an uncertain rank is counted instead
            ranks = attention_rank(
                site.value[list(site.key_value_heads)], site.projection[list(site.heads)], precision=site.value.dtype
            )
        # One value a head, as `layer_rank` of all heads takes them; nothing is chosen here, so all are there.
        whole = layer_rank(site.value[list(site.key_value_heads)], site.projection, precision=site.value.dtype)
        width = site.keys if site.query is None else site.query.shape[-1]
        for head in range(len(site.heads)):
            null = int(ranks.simplex_null_dimension[head])
            rows.append(
                (
                    int(ranks.null_dimension[head]), null, realisable_dimension(site.keys, null, width),
                    whole.simplex_null_dimension, null == 0, bool(ranks.spectrum.uncertain[head]),
                )
            )  # fmt: skip
    return lengths.pop(), np.array(rows, dtype=np.float64)
