"""What is made of contributions: against the paper's words written out as loops."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_attribution as reference
from identiscope.errors import InputError
from identiscope.methods.mixtures.attribution.comparison import compare_with_maps
from identiscope.methods.mixtures.attribution.summaries import (
    GROUPS,
    by_distance,
    by_offset,
    by_tag,
    self_contribution,
    to_token,
)
from identiscope.methods.tokens.tags import tags_of_tokens


def shares(layers: int, tokens: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).random((layers, tokens, tokens)) ** 3
    return values / values.sum(1, keepdims=True)


texts = st.lists(st.integers(1, 14), min_size=1, max_size=4).map(
    lambda lengths: [shares(3, length, seed) for seed, length in enumerate(lengths)]
)


@settings(max_examples=30, deadline=None)
@given(texts)
def test_self_contribution_is_the_diagonal(contributions: list[Any]) -> None:
    found = self_contribution(contributions)
    for layer in range(3):
        pairs = [reference.own_shares(contribution[layer]) for contribution in contributions]
        values = [value for own, _ in pairs for value in own]
        beaten = [flag for _, flags in pairs for flag in flags]
        np.testing.assert_allclose(found.values[layer], values)
        assert found.median[layer] == pytest.approx(np.median(values))
        assert (found.lower[layer], found.upper[layer]) == pytest.approx(tuple(np.percentile(values, [25, 75])))
        assert found.not_largest[layer] == pytest.approx(np.mean(beaten))


@settings(max_examples=30, deadline=None)
@given(texts)
def test_distances_and_offsets_are_the_loops(contributions: list[Any]) -> None:
    found, offsets = by_distance(contributions), by_offset(contributions)
    for layer in range(3):
        maps = [contribution[layer] for contribution in contributions]
        for group, (near, far) in enumerate(GROUPS):
            expected = reference.group_mean(maps, near, far or 10**6)
            np.testing.assert_allclose(found.mean[layer, group], expected)
        sums = []
        for place, offset in enumerate(offsets.offsets):
            mean, total = reference.offset_mean(maps, int(offset))
            assert offsets.mean[layer, place] == pytest.approx(mean)
            sums.append(total)
        np.testing.assert_allclose(offsets.total[layer], np.array(sums) / sum(sums))
    known = ~np.isnan(found.mean).any(0)
    # Appendix C.2: each group sums to one over the layers.
    np.testing.assert_allclose(found.relative[:, known].sum(0), 1)


@pytest.mark.parametrize("length", [2, 5, 13])
def test_a_uniform_map_has_the_same_mean_everywhere_also_at_the_edges(length: int) -> None:
    uniform = [np.full((2, length, length), 1 / length)]
    found = by_distance(uniform)
    for group, count in enumerate(found.count):
        expected = 1 / length if count else np.nan
        np.testing.assert_allclose(found.mean[:, group], expected)
    assert found.count[0] == length and found.count[-1] == max(0, 2 * (length - 11))
    np.testing.assert_allclose(by_offset(uniform).mean, 1 / length)


def test_a_neighbour_at_the_edge_counts_once() -> None:
    contribution = np.zeros((1, 3, 3))
    contribution[0, 1, 0], contribution[0, 0, 1], contribution[0, 2, 1], contribution[0, 1, 2] = 0.4, 0.1, 0.3, 0.6
    # Token 0 has one neighbour at distance 1, token 1 two, token 2 one.
    assert by_distance([contribution]).mean[0, 0] == pytest.approx((0.4 + (0.1 + 0.3) / 2 + 0.6) / 3)


def test_to_a_token_is_one_column_around_a_centre() -> None:
    contributions = [shares(2, 4, 1), shares(2, 6, 2)]
    found = to_token(contributions, [0, 0], [2, 3])
    assert found.offsets.tolist() == [-3, -2, -1, 0, 1, 2]
    assert found.count.tolist() == [1, 2, 2, 2, 2, 1]
    assert found.mean[1, 3] == pytest.approx((contributions[0][1, 2, 0] + contributions[1][1, 3, 0]) / 2)
    assert found.mean[0, 0] == pytest.approx(contributions[1][0, 0, 0])
    np.testing.assert_allclose(found.total.sum(1), 1)
    others = to_token(contributions, [0, 0], [2, 3], own=False)
    assert others.count.tolist() == [1, 2, 2, 2, 1]
    assert by_offset(contributions, own=False).count[5] == 0


def test_tags_group_the_diagonal() -> None:
    contributions = [shares(2, 3, 1), shares(2, 2, 2)]
    found = by_tag(contributions, [["NN", "VB", None], ["VB", "NN"]])
    first, second = contributions
    expected = {
        "NN": [first[1, 0, 0], second[1, 1, 1]],
        "VB": [first[1, 1, 1], second[1, 0, 0]],
    }
    assert set(found.tags) == {"NN", "VB"} and found.count.tolist() == [2, 2]
    for place, tag in enumerate(found.tags):
        assert found.median[1, place] == pytest.approx(np.median(expected[tag]))
        assert found.upper[1, place] == pytest.approx(np.percentile(expected[tag], 75))
    assert found.median[1, 0] >= found.median[1, 1]
    with pytest.raises(InputError, match="one for each token"):
        by_tag(contributions, [["NN"]])
    with pytest.raises(InputError, match="without a tag"):
        by_tag(contributions, [[None] * 3, [None] * 2])


def test_word_pieces_inherit_and_parts_are_told_apart() -> None:
    tokens = ["[CLS]", "walk", "##ing", "on", "[SEP]", "we", "'", "[SEP]"]
    offsets = [(0, 0), (0, 4), (4, 7), (8, 10), (0, 0), (0, 2), (2, 3), (0, 0)]
    special = [token.startswith("[") for token in tokens]
    words = [[(0, 7, "VBG"), (8, 10, "RP")], [(0, 2, "PRP")]]
    expected = ["[CLS]", "VBG", "VBG", "RP", "[SEP]", "PRP", None, "[SEP]"]
    assert tags_of_tokens(tokens, offsets, special, words) == expected
    # A token over two words goes to the one it shares more with, and to the first if equal.
    spans = [(0, 5), (0, 4)]
    assert tags_of_tokens(["abcde", "abcd"], spans, [False] * 2, [[(0, 2, "A"), (2, 5, "B")]]) == ["B", "A"]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(0, 99))
def test_correlations_share_ties(tokens: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    contribution = random.integers(0, 4, (2, tokens, tokens)).astype(float)
    maps = random.integers(0, 4, (2, tokens, tokens)).astype(float)
    found = compare_with_maps(contribution, maps)
    for layer in range(2):
        ours, theirs = contribution[layer].T.ravel(), maps[layer].ravel()
        if np.ptp(ours) == 0 or np.ptp(theirs) == 0:
            assert np.isnan(found.pearson[layer]) and np.isnan(found.spearman[layer])
            continue
        assert found.pearson[layer] == pytest.approx(reference.pearson(ours, theirs), abs=1e-12)
        ranks = reference.mean_ranks(ours), reference.mean_ranks(theirs)
        assert found.spearman[layer] == pytest.approx(reference.pearson(*ranks), abs=1e-12)


def test_masked_cells_do_not_count_as_agreement() -> None:
    contribution, maps = shares(1, 5, 3), shares(1, 5, 4)
    lower = np.tril(np.ones((5, 5), bool))
    found = compare_with_maps(contribution, maps, lower)
    assert found.cells.tolist() == [15]
    assert found.pearson[0] == pytest.approx(reference.pearson(contribution[0].T[lower], maps[0][lower]))
    with pytest.raises(InputError, match="need maps"):
        compare_with_maps(contribution, maps[:, :3])


def test_bad_contributions_are_named() -> None:
    with pytest.raises(InputError, match="same layers"):
        self_contribution([shares(2, 3), shares(3, 3)])
    with pytest.raises(InputError, match="at least one"):
        self_contribution([shares(2, 3)], [np.zeros(3, bool)])
    with pytest.raises(InputError, match="not the same tokens"):
        by_distance([np.ones((1, 4, 3)) / 4])


def test_more_inputs_than_outputs_own_the_last_ones() -> None:
    contribution = np.zeros((1, 4, 2))
    contribution[0, :, 0], contribution[0, :, 1] = [0.1, 0.1, 0.7, 0.1], [0.5, 0.1, 0.1, 0.3]
    found = self_contribution([contribution])
    assert found.values.tolist() == [[0.7, 0.3]] and found.not_largest.tolist() == [0.5]
