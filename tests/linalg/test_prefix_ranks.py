"""All prefixes of a text in one sweep, against each prefix on its own: the same ranks, whatever the values."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
import reference_prefixes
from identiscope.linalg.rank.coordinates import Coordinates, coordinates
from identiscope.linalg.rank.full_rank import head_products
from identiscope.linalg.rank.prefix.projection import PrefixProjections
from identiscope.linalg.rank.prefix.ranks import PrefixRanks, prefix_ranks
from identiscope.linalg.rank.projection_factor import ProjectionFactor, projection_factor

PRECISIONS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
KINDS = (
    "plain", "low rank", "equal tokens", "nearly equal tokens", "nearly dependent columns", "outlier", "zero rows",
    "late direction", "constant channel",
)  # fmt: skip
HEADS = ("plain", "singular", "nearly singular", "values where it is nearly singular")


def values_of(generator, kind, keys, channels, power):
    """Values [key, channel] of a kind; `power` is how near to degenerate they are."""
    value = generator.standard_normal((keys, channels))
    small = 10.0**-power
    if kind == "low rank":
        rank = generator.integers(1, channels + 1)
        value = value[:, :rank] @ generator.standard_normal((rank, channels))
    elif kind in ("equal tokens", "nearly equal tokens"):
        value = value[generator.integers(0, max(1, min(keys, channels) - 1), keys)]
        if kind == "nearly equal tokens":
            value += small * generator.standard_normal(value.shape)
    elif kind == "nearly dependent columns":
        value[:, -1] = value[:, :-1].sum(1) + small * value[:, -1]
    elif kind == "outlier":
        value[generator.integers(0, keys)] /= small
    elif kind == "zero rows":
        value[generator.random(keys) < 0.4] = 0
    elif kind == "late direction":
        value[: keys // 2, 0] *= small
    elif kind == "constant channel":
        value[:, 0] = 1 + (small if power > 4 else 0) * value[:, 0]
    return value


def points_of(
    value: torch.Tensor, factor: ProjectionFactor, precision: torch.dtype | None = None
) -> tuple[Coordinates, Coordinates]:
    """What ranks are counted of: plain, and with a column of ones."""
    return coordinates(value, factor, precision), coordinates(value, factor, precision, with_ones=True)


def projections_of(generator, kind, heads, channels, model, power):
    """Output projections [head, channel, model]; the last head is the degenerate one, its small direction given too."""
    found = generator.standard_normal((heads, channels, model))
    direction = generator.standard_normal(channels)
    direction /= np.linalg.norm(direction)
    if kind != "plain":
        small = 0.0 if kind == "singular" else 10.0**-power
        # Shortened by `small` along the direction of the values.
        found[-1] -= (1 - small) * np.outer(direction, direction @ found[-1])
    return found, direction


def check(projections, both, weights):
    """Rank, Σy², y at the last key, sums over columns and cells of A⊥ of each row, on T and on [T,1]; the rows given a
    few at a time."""
    lengths = projections.plain.lengths
    whole, total = projections.plain.points.weighted(weights), weights.sum(-1)
    keys = weights.shape[2]
    begin = 0
    for size in (1, 2, 5, keys):
        rows = slice(begin, min(begin + size, weights.shape[1]))
        if rows.start >= rows.stop:
            break
        begin = rows.stop
        stop = int(lengths[rows][-1])
        given_weights = weights[:, rows, :stop].contiguous()
        kinds = projections.rows(whole[:, rows].contiguous(), total[:, rows], given_weights, left=(True, True))
        for found, expected in zip(kinds, both, strict=True):
            cells = found.cells(given_weights, torch.arange(stop))
            first = found.cells(given_weights, places=torch.tensor([0]))[:, 0].numpy()
            for head, literal in enumerate(expected):
                for place, row in enumerate(range(rows.start, rows.stop)):
                    if literal.undecided[row]:
                        continue
                    assert int(found.rank[head, place]) == literal.rank[row], (head, row)
                    effective = literal.effective[row]
                    close = 1e-12 + literal.rounding[row]
                    assert np.abs(cells[head, place].numpy() - effective[:stop]).max() <= close
                    assert place or np.abs(first[head] - effective[:stop]).max() <= close
                    assert abs(float(found.squares[head, place]) - effective @ effective) <= 2 * close
                    assert abs(float(found.own[head, place]) - effective[int(lengths[row]) - 1]) <= close
                    sums = np.array([effective.sum(), effective[::2].sum()])
                    assert np.abs(found.columns[head, place].numpy() - sums).max() <= close * keys


@given(
    st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 7), st.sampled_from([(1, 1), (1, 2), (2, 4)]),
    st.sampled_from([4, 24]), st.sampled_from(KINDS), st.sampled_from(HEADS), st.integers(1, 15),
    st.sampled_from(sorted(PRECISIONS)), st.booleans(), st.integers(0, 3),
)  # fmt: skip
@settings(max_examples=600, deadline=None, derandomize=True)
def test_every_prefix_is_as_it_is_alone(
    seed, keys, channels, heads, model, kind, head_kind, power, precision, bias, before
):
    generator = np.random.default_rng(seed)
    value_heads, count = heads
    group = count // value_heads
    values = np.stack([values_of(generator, kind, keys, channels, power) for _ in range(value_heads)])
    outputs, direction = projections_of(generator, head_kind, count, channels, model, power)
    if head_kind.startswith("values"):
        values[-1] = np.outer(values[-1] @ direction, direction) + 10.0**-power * values[-1]
    # Queries may come after keys that none of them is at, as with a cache.
    queries = keys - min(before, keys - 1)
    causal = reference.allowed_matrix("causal", queries, keys)
    attention = reference.softmax_rows(generator, count, causal, temperature=2.0)
    taken = generator.standard_normal((value_heads, channels)) if bias else None
    given_values = values if taken is None else values + taken[:, None]

    factor = projection_factor(torch.from_numpy(outputs))
    made = PRECISIONS[precision]
    plain = coordinates(
        torch.from_numpy(given_values), factor, made, value_bias=None if taken is None else torch.from_numpy(taken)
    )
    ones = coordinates(torch.from_numpy(given_values), factor, made, with_ones=True)
    ranks, with_ones = prefix_ranks(plain, ones, head_products(factor), queries)

    expected, simplex = [], []
    for head in range(count):
        value, weights = given_values[head // group], attention[head]
        scale = reference_prefixes.scale_of_ones(value, outputs[head])
        own = None if taken is None else taken[head // group]
        expected.append(reference_prefixes.prefixes(value, outputs[head], weights, precision, own))
        simplex.append(reference_prefixes.prefixes(value, outputs[head], weights, precision, None, scale))
    columns = torch.stack([torch.ones(keys), (torch.arange(keys) % 2 == 0).float()])
    check(PrefixProjections(ranks, with_ones, columns), (expected, simplex), torch.from_numpy(attention))
    for found, literal in ((ranks.all(), expected), (with_ones.all(), simplex)):
        for head, one in enumerate(literal):
            decided = ~one.undecided
            assert (found[head].numpy() == one.rank)[decided].all(), (head, found[head].tolist(), one.rank.tolist())


def test_hardly_a_prefix_of_a_usual_text_needs_its_singular_values():
    generator = torch.Generator().manual_seed(0)
    value, projection = torch.randn(3, 300, 16, generator=generator), torch.randn(9, 16, 144, generator=generator)
    value[:, 7] = value[:, 2]
    factor = projection_factor(projection)
    for found in prefix_ranks(*points_of(value, factor), head_products(factor), 300):
        assert int((found.known() < 0).sum()) == 0
        assert found.all()[:, -1].tolist() == [found.columns] * 9
        assert found.all()[:, 9].tolist() == [9] * 9


def test_a_head_without_an_inverse_leaves_the_others_their_proofs():
    generator = torch.Generator().manual_seed(0)
    value, projection = torch.randn(1, 60, 6, generator=generator), torch.randn(2, 6, 48, generator=generator)
    projection[1, 0] = projection[1, 1]
    factor = projection_factor(projection)
    plain, _ = prefix_ranks(*points_of(value, factor), head_products(factor), 60)
    assert bool((plain.known()[0] > 0).all())
    assert plain.known()[1].tolist() == [1, 2, 3, 4, 5] + [-1] * 55
    assert plain.all()[:, -1].tolist() == [6, 5]


@pytest.mark.parametrize("precision", sorted(PRECISIONS))
@pytest.mark.parametrize("side", [-1, 1])
def test_nothing_is_proven_beside_the_cutoff(precision, side):
    """One direction a hundred-thousandth above or below the cutoff of its prefix: either rank is right only there."""
    keys, model = 40, 32
    relative = reference_prefixes.relative_cutoff(keys, model, precision)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((keys, 2)))[0]
    value = torch.from_numpy(basis * np.array([1.0, relative * (1 + side * 1e-5)]))[None]
    factor = projection_factor(torch.eye(2, model)[None])
    points = points_of(value, factor, PRECISIONS[precision])
    if precision == "float64":
        # There float64 itself rounds by more than that: whichever it is, no bound may claim it.
        assert _last(prefix_ranks(*points, head_products(factor), keys)[0]) == -1
        return
    plain, _ = prefix_ranks(*points, head_products(factor), keys)
    assert _last(plain) == -1
    assert int(plain.all()[0, -1]) == (2 if side > 0 else 1)


def _last(ranks: PrefixRanks) -> int:
    return int(ranks.known()[0, -1])
