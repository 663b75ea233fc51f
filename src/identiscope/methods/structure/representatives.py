"""A few samples that stand for a corpus: k-means in embedding space, and the sample nearest to each centre."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from identiscope.errors import InputError

#: Numbers of clusters that are tried where none is given.
CANDIDATES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)

#: Silhouettes compare every pair of samples; beyond so many samples a random choice of them must do.
MOST_PAIRED = 2000


@dataclass(frozen=True, eq=False)
class Representatives:
    """The samples chosen, one a cluster, largest cluster first, and why there are so many.

    `samples` [cluster] are their numbers, `sizes` [cluster] how many samples each stands for, `labels` [sample] the
    cluster of each. `candidates` are the numbers of clusters tried, with the mean `silhouettes` (−1 to 1, larger is
    clearer; the number with the largest is chosen) and the `spread` within clusters (k-means' own objective).
    """

    samples: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray
    candidates: np.ndarray
    silhouettes: np.ndarray
    spread: np.ndarray
    reason: str

    @property
    def clusters(self) -> int:
        """How many."""
        return len(self.samples)


def structure_representatives(
    embeddings: np.ndarray,
    *,
    clusters: int | None = None,
    candidates: Sequence[int] = CANDIDATES,
    seed: int = 0,
) -> Representatives:
    """Choose representatives of samples with embeddings [sample, channel] (section III-B1 of the draft).

    A centroid is no input that a model can be run on, so the sample nearest to it stands for the cluster. Without
    `clusters`, each of the `candidates` below the number of samples is tried, and the one with the largest mean
    silhouette taken.

    >>> points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    >>> sorted(structure_representatives(points).samples.tolist())
    [1, 4]
    """
    points = np.asarray(embeddings, dtype=np.float64)
    if points.ndim != 2 or not points.size or not np.isfinite(points).all():
        raise InputError(f"embeddings of shape {points.shape} were given, expected finite ones [sample, channel]")
    distinct = len(np.unique(points, axis=0))
    if clusters is not None:
        if not 1 <= clusters <= distinct:
            raise InputError(f"{clusters} clusters were asked for; the {distinct} different samples allow 1 to that.")
        tried = [clusters]
    else:
        tried = sorted({one for one in candidates if 2 <= one < distinct})
    if not tried:
        # Too few samples to tell clusters apart: each different one stands for itself.
        _, first, place = np.unique(points, axis=0, return_index=True, return_inverse=True)
        labels = place.ravel()
        none = np.zeros(0)
        return Representatives(
            first, np.bincount(labels), labels, none.astype(int), none, none,
            f"{distinct} different samples are too few to cluster, so each stands for itself",
        )  # fmt: skip
    fits = [_fit(points, one, seed) for one in tried]
    scores = np.array([_silhouette(points, labels, seed) for labels, _, _ in fits])
    chosen = int(np.nanargmax(scores)) if np.isfinite(scores).any() else 0
    labels, centres, _ = fits[chosen]
    samples, sizes, labels = _nearest(points, labels, centres)
    if clusters is not None:
        reason = f"{clusters} clusters as asked for; mean silhouette {scores[0]:.2f}"
    else:
        reason = f"{tried[chosen]} clusters have the largest mean silhouette, {scores[chosen]:.2f}, of {tried}"
    spread = np.array([inertia for _, _, inertia in fits])
    return Representatives(samples, sizes, labels, np.array(tried), scores, spread, reason)


def _fit(points: np.ndarray, clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    from sklearn.cluster import KMeans

    clustering = KMeans(clusters, n_init=10, random_state=seed).fit(points)
    return clustering.labels_, clustering.cluster_centers_, float(clustering.inertia_)


def _silhouette(points: np.ndarray, labels: np.ndarray, seed: int) -> float:
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(labels)) < len(points):
        return float("nan")
    size = MOST_PAIRED if len(points) > MOST_PAIRED else None
    return float(silhouette_score(points, labels, sample_size=size, random_state=seed))


def _nearest(points: np.ndarray, labels: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The member nearest to each centre, the clusters in order of size."""
    sizes = np.bincount(labels, minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    samples = []
    for cluster in order:
        members = np.flatnonzero(labels == cluster)
        samples.append(members[np.linalg.norm(points[members] - centres[cluster], axis=1).argmin()])
    place = np.empty(len(centres), dtype=int)
    place[order] = np.arange(len(order))
    return np.array(samples), sizes[order], place[labels]
