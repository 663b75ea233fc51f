"""The weights that an outcome rests on: the closed form against one linear program for each end, and runs."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import contract
import identiscope
from identiscope.methods.attention_runs import LayerMaps
from identiscope.methods.predictions.first_order import first_order_bounds, removal_effect
from identiscope.methods.predictions.load_bearing import _ran, load_bearing
from identiscope.methods.trace_fields import TraceFields, chosen_stream
from linear_runs import LinearRuns


def end(row: np.ndarray, slopes: np.ndarray, limit: float, group: np.ndarray, sign: float) -> float:
    """The least (or most) that a group of keys weighs, no number moving by more than the limit."""
    both = np.concatenate([slopes, -slopes])
    room = limit + both @ row
    found = linprog(
        sign * group, A_ub=both, b_ub=room, A_eq=np.ones((1, len(row))), b_eq=[row.sum()], bounds=(0, None),
        method="highs",
    )  # fmt: skip
    assert found.status == 0
    return sign * float(found.fun)


def layer_of(seed: int, keys: int, copies: list[int] | None = None) -> tuple[LayerMaps, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    raw = (2 * torch.randn(1, 2, keys, generator=generator, dtype=torch.float64)).softmax(-1)
    slopes = torch.randn(3, 1, 2, keys, generator=generator, dtype=torch.float64)
    groups = torch.arange(keys) if copies is None else torch.tensor(copies)
    return LayerMaps(0, (0,), raw, torch.ones(2, keys, dtype=torch.bool), groups), slopes


@settings(max_examples=25)
@given(st.integers(0, 2**20), st.integers(2, 6), st.sampled_from([0.001, 0.05, 0.5]), st.booleans())
def test_the_closed_form_is_the_linear_program(seed: int, keys: int, limit: float, merged: bool) -> None:
    copies = [key // 2 for key in range(keys)] if merged else None
    layer, slopes = layer_of(seed, keys, copies)
    one = first_order_bounds(layer, slopes[:1], layer.copies, limit)
    several = first_order_bounds(layer, slopes, layer.copies, limit)
    for query in range(2):
        row, numbers = layer.raw[0, query].numpy(), slopes[:, 0, query].numpy()
        for group in range(int(layer.copies.max()) + 1):
            own = (layer.copies == group).double().numpy()
            lower, upper = (end(row, numbers[:1], limit, own, sign) for sign in (1.0, -1.0))
            assert abs(float(one[0][0, query, group]) - lower) < 1e-7
            assert abs(float(one[1][0, query, group]) - upper) < 1e-7
            # Of several numbers each gives a bound that holds: what all allow together lies within.
            assert float(several[0][0, query, group]) <= end(row, numbers, limit, own, 1.0) + 1e-7
            assert float(several[1][0, query, group]) >= end(row, numbers, limit, own, -1.0) - 1e-7
            assert float(several[0][0, query, group]) >= float(one[0][0, query, group]) - 1e-12


def test_the_effect_of_a_removal_is_that_of_a_plain_loop() -> None:
    layer, slopes = layer_of(4, 5, [0, 1, 0, 2, 2])
    found = removal_effect(layer, slopes)
    for query in range(2):
        row = layer.raw[0, query].numpy()
        for group in range(3):
            left = np.where(layer.copies.numpy() == group, 0.0, row)
            change = left / left.sum() - row
            expected = max(abs(float(slope[0, query].numpy() @ change)) for slope in slopes)
            np.testing.assert_allclose(float(found[0, query, group]), expected, atol=1e-12)


def test_where_an_end_does_not_hold_in_the_run_the_row_is_drawn_back() -> None:
    class Bent(LinearRuns):
        """What comes out moves twice as far as its derivative says."""

        def gradients(self, most: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
            value, slopes = super().gradients(most)
            return value, [slope / 2 for slope in slopes]

    runs: Any = Bent(3, (2, 2, 5), causal=True)
    cells = load_bearing(runs, tolerance=0.02, top=8).cells
    beyond = np.minimum(cells["lower_moved"], cells["removed_moved"]) > 0.02
    assert beyond.any()
    # Half of the way holds; of the other half at most a sixteenth of the way is not told.
    way = cells["merged_weight"] - cells["end_lower"]
    assert (cells["held_lower"] >= cells["end_lower"] - 1e-9)[beyond].all()
    np.testing.assert_allclose(
        cells["held_lower"][beyond], (cells["merged_weight"] - way * 0.02 / cells["lower_moved"])[beyond],
        atol=float(way.max()) / 16 + 1e-9,
    )  # fmt: skip
    exact: Any = LinearRuns(3, (2, 2, 5), causal=True)
    cells = load_bearing(exact, tolerance=0.02, top=8).cells
    np.testing.assert_allclose(cells["held_lower"], cells["end_lower"], atol=1e-7)


def test_keys_that_are_not_seen_have_no_weight_and_a_single_key_all() -> None:
    layer, slopes = layer_of(0, 3)
    seen = torch.tensor([[True, False, False], [True, True, True]])
    masked = LayerMaps(0, (0,), layer.raw * seen / (layer.raw * seen).sum(-1, keepdim=True), seen, layer.copies)
    lower, upper = first_order_bounds(masked, slopes, masked.copies, 0.1)
    assert lower[0, 0].tolist() == [1, 0, 0] and upper[0, 0].tolist() == [1, 0, 0]


def test_of_a_linear_outcome_the_ends_hold_in_the_run() -> None:
    runs: Any = LinearRuns(3, (2, 2, 5), causal=True)
    found = load_bearing(runs, tolerance=0.02, top=8)
    cells = found.cells
    assert len(cells["weight"]) == 8 and (np.diff(cells["merged_lower"]) <= 0).all()
    np.testing.assert_allclose(cells["end_lower"], cells["merged_lower"], atol=1e-7)
    np.testing.assert_allclose(cells["end_upper"], cells["merged_upper"], atol=1e-7)
    assert (cells["lower_moved"] <= 0.02 + 1e-9).all() and (cells["upper_moved"] <= 0.02 + 1e-9).all()
    # What bears a load cannot be taken away within the tolerance; what bears none can.
    assert (cells["removed_moved"][cells["merged_lower"] > 1e-9] > 0.02).all()
    assert set(cells["layer_of_cell"]) <= {3, 4}
    # Without any room all that moves the outcome is load, and with enough of it nothing is.
    assert (load_bearing(runs, tolerance=0.0, top=1).load >= found.load).all()
    assert (load_bearing(runs, tolerance=100.0, top=1).load == 0).all()


def test_it_is_of_the_running_model() -> None:
    found = identiscope.load_bearing(contract.trace(contract.CASES["causal, grouped queries"]), top=5, tolerance=0.001)
    assert found.sizes["cell"] == 5 and found["load"].dims == ("layer",) and "least" not in found
    assert ((found["load"] >= 0) & (found["load"] <= 1)).all()
    assert (found["lower"] <= found["weight"] + 1e-9).all() and (found["weight"] <= found["upper"] + 1e-9).all()
    # To first order; the run says what it really is.
    assert (found["lower_moved"] < 0.2).all()


def test_the_interval_of_every_weight_is_given_when_asked_for() -> None:
    traced = contract.trace(contract.CASES["causal, grouped queries"])
    found = identiscope.load_bearing(traced, top=4, tolerance=0.001, weights=True)
    raw = np.stack([[site.attention(head).numpy() for head in range(4)] for site in traced.sites])
    least, most = found["least"].values, found["most"].values
    assert least.shape == raw.shape and (least <= most + 1e-12).all() and (np.triu(most, 1) == 0).all()
    tokens = np.array(traced.tokens)
    merged = raw @ (tokens[:, None] == tokens)
    assert (least <= merged + 1e-9).all() and (merged <= most + np.triu(np.ones_like(raw), 1) + 1e-9).all()
    for place in range(4):
        one = found.isel(cell=place)
        where = (int(one["layer_of_cell"]), int(one["head_of_cell"]), int(one["query"]), int(one["key"]))
        assert (least[where], most[where]) == (float(one["merged_lower"]), float(one["merged_upper"]))


@pytest.mark.parametrize(("options", "words"), [({"top": 0}, "at least 1"), ({"tolerance": -1.0}, "0 or more"),
                                                ({"layers": [5]}, "there are 0 to 1")])  # fmt: skip
def test_bad_input_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(identiscope.InputError, match=words):
        identiscope.load_bearing(contract.trace(contract.CASES["more"]), outcome=contract.some_outcome, **options)


def test_a_row_is_put_in_by_itself_and_all_above_it_reacts() -> None:
    case = contract.CASES["causal, grouped queries"]
    traced = contract.trace(case)
    runs = TraceFields(traced, chosen_stream(traced, None)).attention_runs
    count, query = len(traced.main), 3
    row = torch.zeros(count, dtype=torch.float64)
    row[1] = 1.0
    tried: Any = [({"place": place, "head_of_cell": 2, "query": query}, row) for place in (0, 1, 0)]
    found = _ran(runs, tried)

    def changed(attention: torch.Tensor) -> torch.Tensor:
        new = attention.clone()
        new[query] = row
        return new

    assert traced.logits is not None
    own = traced.logits[-1].double().softmax(-1)
    for layer, moved in enumerate(found[:2]):
        run = identiscope.substitute(contract.model("Llama"), list(case.text), {(layer, 2): changed})
        assert run.logits is not None
        expected = 0.5 * float((run.logits[-1].double().softmax(-1) - own).abs().sum())
        np.testing.assert_allclose(moved, expected, atol=1e-10)
    assert found[2] == pytest.approx(found[0]) and found[0] > 1e-6
