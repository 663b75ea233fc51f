"""The span of many matrices, grown one at a time."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.linalg.rank.shared_span import SharedSpan, extend_span, merge_spans, no_span

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)

CUTOFF = torch.tensor([1e-9, 1e-9], dtype=torch.float64)


def grown(matrices: list[torch.Tensor]) -> SharedSpan:
    span = no_span(2, matrices[0].shape[1])
    for number, matrix in enumerate(matrices, 1):
        span = extend_span(span, matrix, CUTOFF, number)
    return span


@st.composite
def stacks(draw: st.DrawFn) -> list[torch.Tensor]:
    """Matrices [2 heads, n, c] of low rank, some inside the span of those before, some zero."""
    keys, columns = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    pool = torch.randn(2, keys, draw(st.integers(1, 6)), generator=generator, dtype=torch.float64)
    made = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["pool", "free", "zero"]))
        mix = torch.randn(2, pool.shape[2], columns, generator=generator, dtype=torch.float64)
        free = torch.randn(2, keys, columns, generator=generator, dtype=torch.float64)
        matrix = {"pool": pool @ mix, "free": free, "zero": torch.zeros_like(free)}[kind]
        size = torch.linalg.matrix_norm(matrix, 2)[:, None, None]
        made.append(matrix / torch.where(size > 0, size, 1.0))
    return made


@PROPERTY
@given(stacks())
def test_dimension_is_the_rank_of_all_columns_at_every_step(matrices: list[torch.Tensor]) -> None:
    span = grown(matrices)
    for head in range(2):
        for number in range(1, len(matrices) + 1):
            rank = int(torch.linalg.matrix_rank(torch.cat([one[head] for one in matrices[:number]], 1), rtol=1e-9))
            assert int(((span.origin[head] > 0) & (span.origin[head] <= number)).sum()) == rank
        basis = span.of_head(head)
        assert torch.allclose(basis.mT @ basis, torch.eye(basis.shape[1]).double(), atol=1e-13)
        everything = torch.cat([one[head] for one in matrices], 1)
        assert torch.allclose(basis @ (basis.mT @ everything), everything, atol=1e-8)
        filled = int(span.filled_at[head])
        assert (filled > 0) == (basis.shape[1] == basis.shape[0])


@PROPERTY
@given(stacks(), st.integers(0, 6))
def test_merging_finds_the_same_matrix_for_every_direction(matrices: list[torch.Tensor], split: int) -> None:
    split = min(split, len(matrices))
    whole = grown(matrices)
    first = grown(matrices[:split]) if split else no_span(2, matrices[0].shape[1])
    second = grown(matrices[split:]) if split < len(matrices) else no_span(2, matrices[0].shape[1])
    merged = merge_spans(first, second, split, CUTOFF)
    assert torch.equal(merged.origin, whole.origin)
    assert torch.equal(merged.filled_at, whole.filled_at)
    for head in range(2):
        one, other = merged.of_head(head), whole.of_head(head)
        assert torch.allclose(one @ one.mT, other @ other.mT, atol=1e-7)


def test_a_weak_direction_is_called_uncertain() -> None:
    column = torch.tensor([1.0, 0.0]).double()[None, :, None]
    weak = torch.tensor([[[1.0, 0.0], [0.0, 2e-9]]], dtype=torch.float64)
    cutoff = CUTOFF[:1]
    assert not bool(extend_span(no_span(1, 2), column, cutoff, 1).uncertain)
    assert bool(extend_span(no_span(1, 2), weak, cutoff, 1).uncertain)
    assert int(extend_span(no_span(1, 2), weak / 4, cutoff, 1).dimension) == 1
