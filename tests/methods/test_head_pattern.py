"""Pattern classes: each synthetic pattern is told, noise is not, and scores are what they say."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_structure as reference
from identiscope.errors import InputError
from identiscope.methods.heads.head_pattern import (
    PATTERNS,
    _causal_intervals,
    _masked_intervals,
    _unmasked_intervals,
    head_pattern,
    map_pattern,
)

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)
SIZE = 16


def even(size: int = SIZE) -> torch.Tensor:
    return torch.full((size, size), 1 / size, dtype=torch.float64)


def blocks(*sizes: int) -> torch.Tensor:
    return torch.block_diag(*(even(size) for size in sizes))


def column(key: int) -> torch.Tensor:
    return torch.zeros(SIZE, SIZE, dtype=torch.float64).index_fill_(1, torch.tensor([key]), 1.0)


def shifted(offset: int) -> torch.Tensor:
    """Weight on the token at an offset; where there is none, on all tokens."""
    found = torch.diag(torch.ones(SIZE - abs(offset), dtype=torch.float64), offset)
    return torch.where(found.sum(1, keepdim=True) > 0, found, even())


IDENTITY = torch.eye(SIZE, dtype=torch.float64)
EXAMPLES = {
    "diagonal": IDENTITY,
    "previous": shifted(-1),
    "next": shifted(1),
    "vertical": column(5),
    "block": blocks(6, 10),
    "broad": even(),
    "antidiagonal": IDENTITY.flip(0),
}


def random_rows(seed: int, size: int = SIZE) -> torch.Tensor:
    drawn = -torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log()
    return drawn / drawn.sum(-1, keepdim=True)


# Two blocks share half of their weight with even attention, so that more noise than this makes them broad.
LEVELS = [(name, noise) for name in PATTERNS for noise in (0.0, 0.2, 0.4) if name != "block" or noise <= 0.2]


@pytest.mark.parametrize(("name", "noise"), LEVELS)
def test_each_pattern_is_told_through_noise(name: str, noise: float) -> None:
    for seed in range(3):
        found = map_pattern((1 - noise) * EXAMPLES[name] + noise * random_rows(seed))
        assert found.name == name
        others = max(score for other, score in found.scores.items() if other != name)
        assert found.scores[name] > others + 0.05
        if noise == 0:
            assert found.scores[name] == pytest.approx(1, abs=1e-12)
    assert map_pattern(EXAMPLES["vertical"]).vertical_key == 5
    assert map_pattern(EXAMPLES["block"]).block_starts == (0, 6)
    assert map_pattern(blocks(4, 5, 7)).block_starts == (0, 4, 9)


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_pattern_but_broad(seed: int) -> None:
    found = map_pattern(random_rows(seed, 32))
    assert all(score < 0.1 for name, score in found.scores.items() if name != "broad")
    assert found.name == "broad" and 0.4 < found.broad < 0.8
    # The mean of many random maps is nearly even, and so nearly wholly broad.
    assert map_pattern(torch.stack([random_rows(seed + n, 32) for n in range(100)]).sum(0)).broad > 0.9


def test_one_hot_at_random_places_is_mixed() -> None:
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(32, (32,), generator=generator)
    found = map_pattern(torch.nn.functional.one_hot(places, 32).double())
    assert found.name == "mixed" and max(found.scores.values()) < 0.3


@PROPERTY
@given(st.integers(0, 2**31), st.integers(1, 8), st.floats(0.1, 8))
def test_scores_equal_the_literal_ones(seed: int, size: int, power: float) -> None:
    weights = random_rows(seed, size) ** power
    found, matrix = map_pattern(weights), weights.numpy()
    offsets = {"diagonal": 0, "previous": -1, "next": 1}
    for name, offset in offsets.items():
        cells = {(i, i + offset) for i in range(size) if 0 <= i + offset < size}
        assert found.scores[name] == pytest.approx(reference.pattern_score(matrix, cells), abs=1e-12)
    mirrored = {(i, size - 1 - i) for i in range(size)}
    assert found.antidiagonal == pytest.approx(reference.pattern_score(matrix, mirrored), abs=1e-12)
    columns = [reference.pattern_score(matrix, {(i, j) for i in range(size)}) for j in range(size)]
    assert found.vertical == pytest.approx(max(columns), abs=1e-12)
    assert found.broad == pytest.approx(reference.broad_score(matrix), abs=1e-12)
    assert found.block == pytest.approx(reference.block_score(matrix), abs=1e-12)
    assert all(0 <= score <= 1 for score in found.scores.values())


@PROPERTY
@given(st.integers(0, 2**31))
def test_mirrored_maps_have_mirrored_patterns(seed: int) -> None:
    weights = random_rows(seed, 9) ** 3
    plain, turned = map_pattern(weights), map_pattern(weights.flip(0, 1))
    swapped = {"previous": "next", "next": "previous"}
    for name in PATTERNS:
        assert turned.scores[swapped.get(name, name)] == pytest.approx(plain.scores[name], abs=1e-9)
    assert map_pattern(weights.flip(1)).antidiagonal == pytest.approx(plain.diagonal, abs=1e-12)


def test_even_causal_attention_looks_like_nothing_but_broad() -> None:
    lower = torch.ones(SIZE, SIZE, dtype=torch.float64).tril()
    found = map_pattern(lower / lower.sum(1, keepdim=True), allowed="causal")
    assert found.broad == pytest.approx(1) and found.name == "broad"
    assert max(score for name, score in found.scores.items() if name != "broad") < 1e-12
    # Without the mask the same map seems to prefer the first token.
    assert map_pattern(lower / lower.sum(1, keepdim=True)).vertical > 0.1


def test_causal_maps_have_no_next_and_the_last_column_is_no_vertical() -> None:
    causal = torch.diag(torch.ones(SIZE - 1, dtype=torch.float64), -1)
    causal[0, 0] = 1
    found = map_pattern(causal, allowed="causal")
    assert found.name == "previous" and found.next == 0 and found.vertical < 0.2
    first = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    first[:, 0] = 1
    assert map_pattern(first, allowed="causal").name == "vertical"


@PROPERTY
@given(st.integers(0, 2**31), st.integers(4, 9))
def test_all_ways_to_search_blocks_agree(seed: int, size: int) -> None:
    drawn = random_rows(seed, size) ** 2
    drawn[seed % size] = 0
    places = np.arange(size + 1)
    begins, ends = (one.ravel() for one in np.meshgrid(places, places))
    wide = ends - begins >= 2
    for inside, quick in (
        (np.ones((size, size), dtype=bool), _unmasked_intervals),
        (np.tri(size, dtype=bool), _causal_intervals),
    ):
        weights = drawn.numpy() * inside
        kept = weights.sum(1) > 0
        normal = weights / np.where(kept, weights.sum(1), 1)[:, None]
        blocks = (normal, inside, kept, begins[wide], ends[wide])
        for one, other in zip(quick(*blocks), _masked_intervals(*blocks), strict=True):
            assert np.allclose(one, other, atol=1e-12)


def test_rows_of_zeros_and_small_maps() -> None:
    half = IDENTITY.clone()
    half[8:] = 0
    assert map_pattern(half).diagonal == pytest.approx(1)
    one = map_pattern(torch.ones(1, 1))
    assert one.name == "mixed" and set(one.scores.values()) == {0.0}
    assert map_pattern(torch.zeros(3, 3)).name == "mixed"
    assert map_pattern(torch.rand(3, 5)).block == 0


def test_long_maps_are_cut_at_fewer_places() -> None:
    found = map_pattern(torch.block_diag(even(60), even(80)))
    assert found.name == "block" and found.block > 0.95 and abs(found.block_starts[1] - 60) <= 3


def test_several_at_once_and_bad_input() -> None:
    scores = head_pattern(torch.stack(list(EXAMPLES.values()))).scores
    assert scores.argmax(1).tolist() == [PATTERNS.index(name) for name in EXAMPLES]
    with pytest.raises(InputError, match="negative or not finite"):
        map_pattern(-torch.eye(3))
    with pytest.raises(InputError, match="expected one"):
        map_pattern(torch.ones(3))
