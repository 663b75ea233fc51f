"""The structure that maps share: mean, cut, normalised; where to cut; and maps of different lengths."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_structure as reference
from identiscope.errors import InputError
from identiscope.methods.structure.extraction import cut, no_maps, normalised_rows, spread, structure_extraction
from identiscope.methods.structure.layout import LAYOUTS, Layout, cell_classes, class_parts, token_roles
from identiscope.methods.structure.threshold import structure_threshold

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)

#: Share of every row that is random, up to which the antidiagonal is found from 16 maps of 20 tokens.
STATED_NOISE = 0.9


def random_maps(seed: int, count: int, size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = -torch.rand(count, size, size, generator=generator, dtype=torch.float64).log()
    return list(drawn / drawn.sum(-1, keepdim=True))


def noisy(structure: torch.Tensor, noise: float, seed: int, count: int = 16) -> list[torch.Tensor]:
    """Maps that are the structure but for a share of every row, which is a random distribution (Dirichlet of ones)."""
    return [(1 - noise) * structure + noise * one for one in random_maps(seed, count, len(structure))]


@PROPERTY
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 7), st.floats(0, 1))
def test_equals_the_literal_extraction(seed: int, count: int, size: int, threshold: float) -> None:
    maps = random_maps(seed, count, size)
    found = structure_extraction(maps, threshold)
    assert np.allclose(found, reference.extraction([one.numpy() for one in maps], threshold), atol=1e-14)
    sums = found.sum(-1)
    assert bool(((sums - 1).abs().le(1e-12) | (sums == 0)).all())


@PROPERTY
@given(st.integers(0, 2**31), st.floats(0, 0.5))
def test_penalties_are_those_of_eq_8(seed: int, threshold: float) -> None:
    (attention,) = random_maps(seed, 1, 5)
    found = cut(attention, threshold, lambda weights: weights**2)
    assert np.allclose(found, reference.cut(attention.numpy(), threshold, lambda value: value**2), atol=1e-15)
    assert torch.equal(cut(attention, 0.0), attention)


def test_a_penalty_may_not_raise_weights() -> None:
    with pytest.raises(InputError, match="0 ≤ h"):
        cut(torch.tensor([[0.1, 0.9]]), 0.5, lambda weights: weights)
    with pytest.raises(InputError, match="0 ≤ h"):
        cut(torch.tensor([[0.1, 0.9]]), 0.5, lambda weights: -weights)
    assert cut(torch.tensor([[0.0, 0.9]]), 0.5, lambda weights: weights / 2).tolist() == [[0.0, pytest.approx(0.9)]]
    with pytest.raises(InputError, match="expected l ≥ 0"):
        cut(torch.eye(2), -0.1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", np.arange(0, STATED_NOISE + 0.01, 0.1))
def test_the_antidiagonal_is_found_at_every_noise_up_to_the_stated(noise: float, seed: int) -> None:
    structure = torch.eye(20, dtype=torch.float64).flip(0)
    maps = noisy(structure, float(noise), seed)
    sweep = structure_threshold(torch.stack(maps).mean(0).numpy())
    found = structure_extraction(maps, sweep.recommended)
    assert torch.equal(found > 0, structure > 0)
    assert torch.allclose(found, structure)


def test_beyond_it_there_is_nothing_to_find() -> None:
    """All noise: the recommended cut says so by explaining little, and keeps far more than a cell a row."""
    maps = noisy(torch.eye(20, dtype=torch.float64).flip(0), 1.0, 0)
    sweep = structure_threshold(torch.stack(maps).mean(0).numpy())
    clear = structure_threshold(torch.stack(noisy(torch.eye(20).double(), 0.5, 0)).mean(0).numpy())
    assert sweep.best_separation < 0.7 < 0.95 < clear.best_separation
    assert int((structure_extraction(maps, sweep.recommended) > 0).sum()) > 60


@PROPERTY
@given(st.integers(0, 2**31), st.integers(2, 6), st.sampled_from([0.0, 0.1, 0.4]))
def test_recommended_threshold_is_the_best_possible_split(seed: int, size: int, empty: float) -> None:
    (mean,) = random_maps(seed, 1, size)
    values = mean.numpy()
    sweep = structure_threshold(values, empty=empty)
    middles = np.unique(values)
    possible = {
        float((low + high) / 2): reference.between_class_variance(values.ravel(), (low + high) / 2)
        for low, high in pairwise(middles)
        if (values.max(1) < high).mean() <= empty
    }
    if possible:
        assert sweep.best_separation == pytest.approx(max(possible.values()), rel=1e-9)
        assert possible[min(possible, key=lambda one: abs(one - sweep.recommended))] == pytest.approx(
            sweep.best_separation, rel=1e-9
        )
        assert sweep.stable_from <= sweep.recommended <= sweep.stable_to
        for inside in np.linspace(sweep.stable_from, sweep.stable_to, 7)[1:-1]:
            assert reference.between_class_variance(values.ravel(), inside) >= 0.95 * sweep.best_separation - 1e-12
    assert (values.max(1) < sweep.recommended).mean() <= empty
    everything = [reference.between_class_variance(values.ravel(), value) for value in middles[1:]]
    assert sweep.limited == (0.95 * max(everything) > sweep.best_separation)
    for place, threshold in enumerate(sweep.thresholds):
        kept = values >= threshold
        assert sweep.cells[place] == pytest.approx(kept.mean())
        assert sweep.weight[place] == pytest.approx(values[kept].sum() / values.sum())
        assert sweep.empty_rows[place] == pytest.approx((~kept.any(1)).mean())
        expected = reference.between_class_variance(values.ravel(), threshold)
        assert sweep.separation[place] == pytest.approx(expected, abs=1e-9)


def test_a_uniform_map_has_no_structure() -> None:
    sweep = structure_threshold(np.full((4, 4), 0.25))
    assert "no structure" in sweep.reason and sweep.recommended == 0.25 and sweep.best_separation == 0
    assert bool((structure_extraction([torch.full((4, 4), 0.25)], sweep.recommended) == 0.25).all())


def test_a_sharp_row_does_not_empty_the_others() -> None:
    """One row at 0.99 and others at 0.3: a split by size alone would keep only the one."""
    mean = np.full((8, 8), 0.1)
    mean[0] = 0.01 / 7
    mean[0, 0] = 0.99
    mean[1:, 3] = 0.3
    sweep = structure_threshold(mean)
    assert sweep.limited and "without a cell" in sweep.reason and 0.1 < sweep.recommended <= 0.3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_added_in_shards_is_the_same(layout: Layout) -> None:
    sizes = (5, 5, 5) if layout == "absolute" else (4, 7, 5)
    maps = [torch.stack(random_maps(number, 2, size)) for number, size in enumerate(sizes)]
    classes = []
    for size in sizes:
        special = torch.zeros(size, dtype=torch.bool)
        special[[0, -1]] = True
        classes.append(cell_classes(layout, token_roles(special), token_roles(special)))
    whole = no_maps(2)
    for attention, codes in zip(maps, classes, strict=True):
        whole = whole.add(attention, codes)
    parts = no_maps(2).add(maps[2], classes[2]).merge(no_maps(2).add(maps[0], classes[0]).add(maps[1], classes[1]))
    assert torch.equal(parts.codes, whole.codes) and torch.equal(parts.counts, whole.counts)
    assert torch.allclose(parts.means, whole.means, atol=1e-14)
    assert int(whole.counts.sum()) == sum(size**2 for size in sizes)
    # Spread over the cells again, the means hold as much weight as the maps did.
    total = torch.stack([spread(whole.codes, whole.means, codes).sum((1, 2)) for codes in classes]).sum(0)
    assert torch.allclose(total, torch.stack([attention.sum((1, 2)) for attention in maps]).sum(0))


def test_absolute_classes_average_cell_by_cell() -> None:
    maps = random_maps(0, 5, 6)
    classes = cell_classes("absolute", torch.zeros(6, dtype=torch.long), torch.zeros(6, dtype=torch.long))
    means = no_maps(1)
    for one in maps:
        means = means.add(one[None], classes)
    assert torch.allclose(spread(means.codes, means.means, classes)[0], torch.stack(maps).mean(0), atol=1e-15)


@PROPERTY
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 2**31))
def test_relative_classes_average_by_offset(sizes: list[int], seed: int) -> None:
    maps = [random_maps(seed + number, 1, size)[0] for number, size in enumerate(sizes)]
    means = no_maps(1)
    for one in maps:
        roles = torch.zeros(len(one), dtype=torch.long)
        means = means.add(one[None], cell_classes("relative", roles, roles))
    expected = reference.relative_extraction([one.numpy() for one in maps])
    found = {class_parts(code)[2]: float(mean) for code, mean in zip(means.codes.tolist(), means.means[0], strict=True)}
    assert found == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.6])
def test_a_previous_token_head_is_found_over_texts_of_different_lengths(noise: float) -> None:
    means, layouts = no_maps(1), []
    for number, size in enumerate((9, 14, 11, 20, 17)):
        structure = torch.eye(size, dtype=torch.float64).roll(-1, 1)
        structure[0] = 0
        structure[0, 0] = 1
        roles = torch.zeros(size, dtype=torch.long)
        layouts.append(cell_classes("relative", roles, roles))
        means = means.add(noisy(structure, noise, number, 1)[0][None], layouts[-1])
    rows = torch.cat([spread(means.codes, means.means[0], one).amax(1) for one in layouts])
    sweep = structure_threshold(means.means[0].numpy(), means.counts.numpy(), rows.numpy())
    kept = means.codes[means.means[0] >= sweep.recommended]
    assert [class_parts(code)[2] for code in kept.tolist()] == [-1]
    longer = torch.zeros(30, dtype=torch.long)
    weights = normalised_rows(
        spread(means.codes, cut(means.means[0], sweep.recommended), cell_classes("relative", longer, longer))
    )
    assert torch.allclose(weights[1:], torch.eye(30, dtype=torch.float64).roll(-1, 1)[1:])


def test_roles_find_a_separator_at_any_length() -> None:
    means, layouts = no_maps(1), []
    for number, (first, second) in enumerate(((3, 5), (6, 2), (4, 4))):
        special = torch.zeros(first + second + 3, dtype=torch.bool)
        special[[0, first + 1, -1]] = True
        roles = token_roles(special)
        structure = torch.zeros(len(special), len(special), dtype=torch.float64)
        structure[:, first + 1] = 1
        layouts.append(cell_classes("roles", roles, roles))
        means = means.add(noisy(structure, 0.5, number, 1)[0][None], layouts[-1])
    rows = torch.cat([spread(means.codes, means.means[0], one).amax(1) for one in layouts])
    sweep = structure_threshold(means.means[0].numpy(), means.counts.numpy(), rows.numpy())
    kept = [class_parts(code) for code in means.codes[means.means[0] >= sweep.recommended].tolist()]
    assert kept == [(role, 2, 0) for role in range(5)]


def test_roles_and_classes_by_hand() -> None:
    special = torch.tensor([True, False, False, True, False, True])
    assert token_roles(special).tolist() == [0, 1, 1, 2, 3, 4]
    assert token_roles(torch.zeros(3, dtype=torch.bool)).tolist() == [0, 1, 1]
    roles = token_roles(special)
    aligned = cell_classes("aligned", roles, roles)
    assert class_parts(int(aligned[1, 2])) == (1, 1, 1) and class_parts(int(aligned[2, 1])) == (1, 1, -1)
    assert class_parts(int(aligned[1, 3])) == (1, 2, 0) and class_parts(int(aligned[1, 4])) == (1, 3, 0)
    forbidden = cell_classes("relative", roles, roles, allowed=torch.ones(6, 6, dtype=torch.bool).tril())
    assert bool((forbidden.triu(1)[torch.ones(6, 6, dtype=torch.bool).triu(1)] == -1).all())
    assert [class_parts(code)[2] for code in forbidden[2, :3].tolist()] == [-2, -1, 0]


def test_forbidden_cells_are_no_zeros() -> None:
    """A causal map's mean over an offset counts only cells that may be seen."""
    roles = torch.zeros(3, dtype=torch.long)
    allowed = torch.ones(3, 3, dtype=torch.bool).tril()
    attention = torch.where(allowed, 1.0, 0.0).double()
    means = no_maps(1).add(attention[None], cell_classes("relative", roles, roles, allowed=allowed))
    assert means.counts.tolist() == [1, 2, 3] and bool((means.means == 1).all())


def test_refuses_maps_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="by relative position or by roles"):
        structure_extraction([torch.eye(3), torch.eye(4)], 0.1)
    with pytest.raises(InputError, match="layout 'other'"):
        cell_classes("other", *[torch.zeros(2, dtype=torch.long)] * 2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="were given, expected"):
        no_maps(1).add(torch.ones(2, 3, 3), torch.zeros(3, 3, dtype=torch.long))
    with pytest.raises(InputError, match="no class has a value"):
        spread(no_maps(1).codes, no_maps(1).means, torch.zeros(2, 2, dtype=torch.long))
    with pytest.raises(InputError, match="booleans"):
        token_roles(torch.zeros(3))
    with pytest.raises(InputError, match="not negative"):
        class_parts(-1)
    with pytest.raises(InputError, match="means of classes"):
        structure_threshold(np.ones(3))
    with pytest.raises(InputError, match="share of empty rows"):
        structure_threshold(np.eye(2), empty=1.0)
    with pytest.raises(InputError, match="not negative and finite"):
        structure_threshold(-np.ones((2, 2)))
