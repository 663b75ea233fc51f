"""The structure of a model's heads over a corpus: representatives, W of every head, and the shared subspace R."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from identiscope.asking.structure.extracting import extract_structure
from identiscope.asking.structure.subspaces import Longer, SharedSubspaces
from identiscope.capture import Model, Trace, load, trace
from identiscope.errors import InputError
from identiscope.linalg.devices import as_numpy
from identiscope.methods.fields import chosen_sites
from identiscope.methods.structure.layout import LAYOUTS, Layout
from identiscope.methods.structure.representatives import CANDIDATES, Representatives, structure_representatives
from identiscope.methods.structure.threshold import MOST_EMPTY
from identiscope.progress import Progress

#: Fewer representatives than this do not stand for the variety of a corpus, whatever the silhouette says.
FEWEST = 8


def corpus_structure(
    model: Any,
    texts: Sequence[Any],
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    layout: Layout | None = None,
    representatives: bool = True,
    clusters: int | None = None,
    threshold: float | None = None,
    penalty: float = 0.0,
    empty: float = MOST_EMPTY,
    attention: str | None = None,
    stream: str | None = None,
    truncate: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> xr.Dataset:
    """W of every head from representative texts of a corpus (section III-B1 of the structure-aware draft).

    >>> result = identiscope.corpus_structure("minilm", texts)
    >>> result.pattern.values, result.threshold.values, result.silhouette.values

    Representatives are the texts nearest to the centres of a k-means clustering of all texts' embeddings (the mean
    over tokens of what the first layer reads); the number of `clusters` is the one with the largest silhouette among
    those of at least 8, where the corpus allows it: fewer cannot stand for its variety. representatives=False takes
    all texts. layout: by default `absolute` if all texts have one length, else `aligned`; see `extract_structure` for
    this and for threshold, penalty and empty.
    """
    _check(texts)
    loaded = load(model)
    total = len(texts)
    points, shapes = [], set()
    for number, text in enumerate(texts):
        traced = _trace(loaded, text, [layers[0] if layers else 0], None, truncate)
        site = chosen_sites(traced, None, attention, stream)[0]
        points.append(text_embedding(traced))
        shapes.add((site.queries, site.keys))
        if progress is not None:
            progress(number + 1, 2 * total)
    chosen = _representatives(np.stack(points), clusters, seed) if representatives else None
    places = list(range(total)) if chosen is None else chosen.samples.tolist()
    if layout is None:
        layout = "absolute" if len(shapes) == 1 else "aligned"
    elif layout not in LAYOUTS:
        raise InputError(f"layout {layout!r} was given, expected one of {', '.join(LAYOUTS)}.")

    def traces() -> Iterator[Trace]:
        for done, place in enumerate(places, 1):
            yield _trace(loaded, texts[place], layers, heads, truncate)
            if progress is not None:
                progress(total + round(total * done / len(places)), 2 * total)

    result = extract_structure(
        traces(), layout=layout, layers=layers, attention=attention, stream=stream, threshold=threshold,
        penalty=penalty, empty=empty,
    )  # fmt: skip
    return _with_representatives(result, chosen, places, total)


def shared_subspaces(
    model: Any,
    texts: Sequence[Any],
    *,
    length: int | None = None,
    when_longer: Longer = "skip",
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    attention: str | None = None,
    stream: str | None = None,
    value_bias: bool = True,
    truncate: bool = False,
    progress: Progress | None = None,
) -> SharedSubspaces:
    """R of every head over a corpus (eq. 6 of the structure-aware draft), in one pass; `.summary()` is a result.

    >>> found = identiscope.shared_subspaces("minilm", texts, length=32, when_longer="first_keys")
    >>> found.summary().filled_at, found.summary().eigenvalue

    Without a `length`, texts are gathered by their length, each length in a space of its own. Memory is two n×n
    matrices a head, layer and length: choose layers for a corpus of many lengths. See `SharedSubspaces`.
    """
    _check(texts)
    loaded = load(model)
    subspaces = SharedSubspaces(
        layers=None if layers is None else tuple(layers), length=length, when_longer=when_longer, attention=attention,
        stream=stream, value_bias=value_bias,
    )  # fmt: skip
    for done, text in enumerate(texts, 1):
        subspaces = subspaces.add(_trace(loaded, text, layers, heads, truncate))
        if progress is not None:
            progress(done, len(texts))
    return subspaces


def text_embedding(traced: Trace) -> np.ndarray:
    """One vector for a text: the mean over tokens of what the first layer reads, or else of the values."""
    if traced.main.hidden_states:
        pooled: np.ndarray = as_numpy(traced.embeddings.double().mean(0))
        return pooled
    site = traced.sites[0]
    values: np.ndarray = as_numpy(site.value.double().mean(1).flatten())
    return values


def _check(texts: Sequence[Any]) -> None:
    if isinstance(texts, (str, tuple, Mapping)) or not len(texts):
        raise InputError("give a list of texts, with at least one in it.")


def _trace(model: Model, text: Any, layers: Sequence[int] | None, heads: Sequence[int] | None, truncate: bool) -> Trace:
    traced: Trace | list[Trace] = trace(model, text, layers=layers, heads=heads, truncate=truncate)
    if isinstance(traced, list):
        raise InputError("an item of the corpus holds several texts; give one at a time.")
    return traced


def _representatives(points: np.ndarray, clusters: int | None, seed: int) -> Representatives:
    enough = min(FEWEST, max(len(points) // 2, 2))
    return structure_representatives(
        points, clusters=clusters, candidates=[one for one in CANDIDATES if one >= enough], seed=seed
    )


def _with_representatives(
    result: xr.Dataset, chosen: Representatives | None, places: list[int], texts: int
) -> xr.Dataset:
    if chosen is None:
        return result.assign_attrs(corpus=texts, representatives=f"all {texts} texts")
    return (
        result.assign(
            representative=(("cluster",), np.array(places)),
            cluster_size=(("cluster",), chosen.sizes),
            silhouette=(("candidate",), chosen.silhouettes),
            within_clusters=(("candidate",), chosen.spread),
        )
        .assign_coords(candidate=chosen.candidates)
        .assign_attrs(corpus=texts, representatives=chosen.reason)
    )
