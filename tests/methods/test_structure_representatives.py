"""Representatives of a corpus."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.errors import InputError
from identiscope.methods.structure.representatives import structure_representatives

PROPERTY = settings(max_examples=6, deadline=None, derandomize=True)


def groups(seed: int, clusters: int, each: int = 12, apart: float = 20.0) -> tuple[np.ndarray, np.ndarray]:
    """Clouds of points around centres on a line, each a unit wide, shuffled."""
    generator = np.random.default_rng(seed)
    truth = np.repeat(np.arange(clusters), each)
    points = generator.standard_normal((len(truth), 3))
    points[:, 0] += apart * truth
    order = generator.permutation(len(truth))
    return points[order], truth[order]


@PROPERTY
@given(st.integers(0, 1000), st.integers(2, 6))
def test_the_number_of_groups_is_found(seed: int, clusters: int) -> None:
    points, truth = groups(seed, clusters)
    found = structure_representatives(points, candidates=range(2, 8))
    assert found.clusters == clusters
    assert found.candidates[np.argmax(found.silhouettes)] == clusters and f"{clusters} clusters" in found.reason
    assert sorted(truth[found.samples]) == list(range(clusters))
    assert found.sizes.tolist() == np.bincount(found.labels).tolist() == [12] * clusters


@PROPERTY
@given(st.integers(0, 1000), st.integers(2, 5))
def test_each_representative_is_the_member_nearest_to_its_centre(seed: int, clusters: int) -> None:
    points, _ = groups(seed, 3, apart=3.0)
    found = structure_representatives(points, clusters=clusters)
    assert found.clusters == clusters and bool((np.diff(found.sizes) <= 0).all())
    for cluster, sample in enumerate(found.samples):
        members = np.flatnonzero(found.labels == cluster)
        distances = [np.sqrt(((points[one] - points[members].mean(0)) ** 2).sum()) for one in members]
        assert sample == members[int(np.argmin(distances))]


def test_is_the_same_every_time_and_spreads_less_with_more_clusters() -> None:
    points, _ = groups(3, 4, apart=2.0)
    first, second = (structure_representatives(points, candidates=(2, 4, 8), seed=7) for _ in range(2))
    assert first.samples.tolist() == second.samples.tolist()
    assert bool((np.diff(first.spread) < 0).all())


def test_few_or_equal_samples_stand_for_themselves() -> None:
    found = structure_representatives(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert found.clusters == 2 and "too few" in found.reason
    same = structure_representatives(np.ones((5, 2)))
    assert (same.clusters, same.sizes.tolist(), same.labels.tolist()) == (1, [5], [0] * 5)


def test_refuses_what_cannot_be_clustered() -> None:
    with pytest.raises(InputError, match="expected finite ones"):
        structure_representatives(np.full((2, 2), np.nan))
    with pytest.raises(InputError, match="9 clusters were asked for"):
        structure_representatives(np.eye(3), clusters=9)
