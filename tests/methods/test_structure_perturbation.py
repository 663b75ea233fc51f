"""Noise that keeps or breaks the structure: on the simplex, of equal size, and where it says it is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.errors import InputError
from identiscope.methods.structure.perturbation import KINDS, Kind, equal_perturbations, perturb, perturbation_target

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def cases(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """A map, a structure and a mask; causal or not, with rows that sum to less than one or not."""
    queries = draw(st.integers(1, 7))
    keys = queries if draw(st.booleans()) else draw(st.integers(1, 7))
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(queries, keys, generator=generator, dtype=torch.float64)
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    if queries == keys and draw(st.booleans()):
        allowed = allowed.tril()
    attention = logits.masked_fill(~allowed, -torch.inf).softmax(-1) * draw(st.sampled_from([1.0, 0.8]))
    structure = (torch.rand(queries, keys, generator=generator) < draw(st.sampled_from([0.0, 0.3, 1.0]))) & allowed
    return attention, structure, allowed, seed


@PROPERTY
@given(cases(), st.sampled_from(KINDS), st.floats(0, 1))
def test_rows_stay_on_the_simplex_and_the_size_is_as_asked(case: tuple, kind: Kind, share: float) -> None:  # type: ignore[type-arg]
    attention, structure, allowed, seed = case
    generator = torch.Generator().manual_seed(seed)
    target = perturbation_target(attention, structure, kind, allowed=allowed, generator=generator)
    reach = float((target - attention).norm())
    made = perturb(attention, target, kind, share * reach)
    for weights in (target, made.attention):
        assert float(weights.min()) >= 0
        assert torch.allclose(weights.sum(1), attention.sum(1), atol=1e-12)
        assert not bool(weights[~allowed].any())
    assert float((made.attention - attention).norm()) == pytest.approx(share * reach, abs=1e-12)
    if kind == "keep":
        assert torch.equal(made.attention[structure], attention[structure])
    if kind == "break":
        assert bool((made.attention[structure] <= attention[structure]).all())
        assert bool((made.attention[~structure] >= attention[~structure]).all())
        movable = (allowed & ~structure).any(1)
        assert not bool(target[movable][structure[movable]].any())
        assert torch.equal(target[~movable], attention[~movable])


@PROPERTY
@given(cases(), st.floats(0.05, 1))
def test_kinds_have_equal_size(case: tuple, share: float) -> None:  # type: ignore[type-arg]
    attention, structure, allowed, seed = case
    generator = torch.Generator().manual_seed(seed)
    made = equal_perturbations(attention, structure, share=share, allowed=allowed, generator=generator)
    if made is None:
        # Something could not move: no structure, nothing but structure, or a single cell off it in every row.
        elsewhere = (allowed & ~structure).sum(1)
        single = bool((elsewhere <= 1).all())
        assert single or not bool(((structure.sum(1) > 0) & (elsewhere > 0)).any())
        return
    sizes = [float((one.attention - attention).norm()) for one in made]
    assert [one.kind for one in made] == list(KINDS)
    assert sizes == pytest.approx([made[0].size] * 3, abs=1e-12)
    assert made[0].size == pytest.approx(share * min(one.reach for one in made), rel=1e-12)


def test_the_same_seed_gives_the_same_noise() -> None:
    attention, structure = torch.full((4, 4), 0.25), torch.eye(4, dtype=torch.bool)
    first, second = (
        equal_perturbations(attention, structure, generator=torch.Generator().manual_seed(5)) for _ in range(2)
    )
    assert first is not None and second is not None
    assert all(torch.equal(one.attention, other.attention) for one, other in zip(first, second, strict=True))


def test_refuses_what_it_cannot_do() -> None:
    generator = torch.Generator()
    with pytest.raises(InputError, match="kind 'bend'"):
        perturbation_target(torch.eye(2), torch.eye(2).bool(), "bend", generator=generator)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="booleans of the same shape"):
        perturbation_target(torch.eye(2), torch.eye(2), "keep", generator=generator)
    with pytest.raises(InputError, match="weights would become negative"):
        perturb(torch.eye(2), torch.eye(2).flip(0), "any", 2.1)
    with pytest.raises(InputError, match="share of 0"):
        equal_perturbations(torch.eye(2), torch.eye(2).bool(), share=0, generator=generator)
