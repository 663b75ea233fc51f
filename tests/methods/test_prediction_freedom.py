"""How far attention can move with the same outcome: against plain linear programs, paths by hand, other runs."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import contract
import identiscope
from identiscope.linalg.simplex.kept_rows import kept_rows
from identiscope.methods.attention_runs import Answers, LayerMaps, rows_that_matter
from identiscope.methods.predictions.drawing_back import (
    FIRST_STEPS,
    Tried,
    Way,
    aims_of,
    distances,
    random_way,
    ways_back,
)
from identiscope.methods.predictions.prediction_freedom import prediction_freedom
from identiscope.methods.trace_fields import TraceFields, chosen_stream
from linear_runs import LinearRuns

CAUSAL = contract.CASES["causal, grouped queries"]


def least(row: np.ndarray, numbers: np.ndarray, cost: np.ndarray) -> float:
    """The least cost of a row with this sum and these numbers."""
    equal = np.vstack([np.ones(len(row)), numbers])
    found = linprog(cost, A_eq=equal, b_eq=equal @ row, bounds=(0, None), method="highs")
    assert found.status == 0
    return float(found.fun)


@settings(max_examples=30)
@given(st.integers(0, 2**20), st.integers(2, 9), st.integers(0, 4), st.booleans())
def test_rows_that_keep_numbers_are_the_best_there_are(seed: int, keys: int, count: int, repeated: bool) -> None:
    generator = np.random.default_rng(seed)
    row, cost = generator.dirichlet(np.full(keys, 0.5)), generator.standard_normal(keys)
    numbers = generator.standard_normal((count, keys)) * 10.0 ** generator.integers(-4, 4, (count, 1))
    if repeated and count > 1:
        numbers[1] = 3 * numbers[0] + 2  # says nothing that the first and the sum do not
    every = torch.ones(1, keys, dtype=torch.bool)
    new = kept_rows(torch.tensor(row)[None], every, torch.tensor(numbers)[:, None], torch.tensor(cost)[None])[0].numpy()
    assert new.min() >= 0 and abs(new.sum() - 1) < 1e-12
    sizes = np.abs(numbers).max(1, initial=1e-300)
    assert (np.abs(numbers @ (new - row)) <= 1e-7 * sizes).all()
    assert abs(cost @ new - least(row, numbers / sizes[:, None], cost)) < 1e-6


def test_of_a_linear_outcome_the_whole_way_holds() -> None:
    runs: Any = LinearRuns(0, (2, 2, 6), causal=True)
    found = prediction_freedom(runs, tolerance=0.0001).arrays()
    for place, layer in enumerate(runs.layers):
        moved = []
        for head in range(2):
            for query in range(1, 6):
                row = layer.raw[head, query, : query + 1].numpy()
                cost = (np.arange(len(row)) == row.argmax()).astype(float)
                kept = least(row, runs.slopes[place][head, query, : query + 1].numpy()[None], cost)
                # At least what leaves the strongest key has moved.
                moved.append(row.max() - kept)
        assert found["step"][1][place, 0] == 1.0 or found["first_order"][1][place, 0] == 0.0
        assert found["reach"][1][place] >= np.mean(moved) - 1e-9
        assert found["outcome_moved"][1][place] <= 0.0001
        assert found["control_moved"][1][place] > 0.01
    assert found["all_moved_within"][1][0] <= 0.0001 and found["all_reach_within"][1][0] > 0
    # One pass as it is; for each of three ways at most four runs and a half, the same with nothing kept, a control.
    assert runs.passes <= 1 + 3 * (2 * 5 + 1)


def test_copies_added_up_have_moved_less() -> None:
    runs: Any = LinearRuns(1, (1, 2, 6), copies=[0, 1, 0, 1, 0, 1])
    found = prediction_freedom(runs, tolerance=0.01).arrays()
    assert 0 < found["merged_reach"][1][0] < found["reach"][1][0]
    away = prediction_freedom(runs, tolerance=0.01, merged=True).arrays()
    assert away["merged_reach"][1][0] >= found["merged_reach"][1][0] - 1e-9


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_with_copies_merged_tokens_move_as_far_as_plain_programs_of_tokens_say(seed: int) -> None:
    copies = [0, 0, 1, 1, 2, 2, 3, 3]
    runs: Any = LinearRuns(seed, (1, 2, 8), copies=copies)
    runs.slopes = runs.slopes[..., copies]  # copies write the same: weight goes from one to the other for nothing
    found = prediction_freedom(runs, tolerance=1e-6, merged=True).arrays()
    raw, moved = runs.layers[0].raw.numpy(), []
    for head in range(2):
        for query in range(8):
            weights = np.bincount(copies, raw[head, query])
            slopes = runs.slopes[0, head, query, ::2].numpy()[None]
            moved.append(weights.max() - least(weights, slopes, (np.arange(4) == weights.argmax()).astype(float)))
    assert found["merged_reach"][1][0] >= np.mean(moved) - 1e-9 > 0.1
    alone = prediction_freedom(runs, tolerance=1e-6).arrays()
    assert alone["merged_reach"][1][0] < found["merged_reach"][1][0]


@pytest.mark.parametrize("merged", [False, True])
def test_the_control_is_as_far_away_and_not_what_was_searched(merged: bool) -> None:
    runs: Any = LinearRuns(3, (1, 2, 6), causal=True, copies=[0, 1, 2, 0, 1, 2])
    layer = runs.layers[0]
    aims = aims_of({0: layer}, {0: runs.slopes[0][None]}, merged, seed=0)
    assert [(one.first_order, one.random) for one in aims] == [
        (True, False), (False, False), (True, True), (False, True)
    ]  # fmt: skip
    every = torch.ones(layer.raw.shape[:2], dtype=torch.bool)
    for one in aims:
        assert float(one.targets[0].min()) >= 0 and float((one.targets[0].sum(-1) - 1).abs().max()) < 1e-12
        change = ((one.targets[0] - layer.raw) * runs.slopes[0]).sum(-1).abs().max()
        assert (float(change) < 1e-9) == one.first_order
        way = Way(runs.layers, one.targets, {0: every}, {0: runs.free_rows[0]})
        control = random_way(way, 0.4, 0, merged)
        np.testing.assert_allclose(
            distances(layer, control.targets[0], merged), distances(layer, way.at(0, torch.tensor([0.4]))[0], merged)
        )
        # Nothing goes from copy to copy without having to be counted.
        both = [distances(layer, control.targets[0], one) for one in (False, True)]
        assert not merged or float((both[0] - both[1]).abs().max()) < 1e-12
        # Same seed, and yet another way.
        along = (control.targets[0] - layer.raw).flatten(), (one.targets[0] - layer.raw).flatten()
        assert float(torch.cosine_similarity(*along, dim=0)) < 0.9


class BentRuns(LinearRuns):
    """The outcome is a square of the mean of what rows have on their strongest key: all moved alike adds up."""

    def answers(self, changed: Any, count: int) -> Answers:
        """With other maps."""
        self.passes += count
        raw = self.layers[0].raw
        maps = changed[0](torch.arange(count)) if 0 in changed else raw[None]
        strongest = torch.zeros_like(raw).scatter_(2, raw.argmax(-1, keepdim=True), 1.0)
        away = ((raw - maps) * strongest).sum(-1)[..., 1:].mean((1, 2))
        return Answers(10 * away**2, None)

    def gradients(self, most: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """None, where nothing has moved."""
        return self.reference.value, [torch.zeros_like(self.layers[0].raw)[None]]


def test_where_rows_moved_alike_move_the_outcome_random_ways_go_farther() -> None:
    runs: Any = BentRuns(0, (1, 3, 8), causal=True)
    found = prediction_freedom(runs, tolerance=[0.01, 0.05]).arrays()
    assert found["random"][1].tolist() == [[1.0, 1.0]] and (found["moved_within"][1] <= [[0.01, 0.05]]).all()
    runs.passes = 0
    aims = aims_of({0: runs.layers[0]}, {0: torch.zeros_like(runs.layers[0].raw)[None]}, False, 0)
    every = {0: torch.ones(3, 8, dtype=torch.bool)}
    alone = ways_back(runs, aims[:2], every, {0: runs.free_rows[0]}, False, [0.01, 0.05], 1, FIRST_STEPS)
    assert found["reach_within"][1][0, 0] > 1.2 * alone.reach(0.01)


def test_shares_of_the_way_are_read_off_the_runs_next_to_them() -> None:
    # What moves by the square, 0.16 t², is within 0.05 up to t = 0.559.
    tried = Tried([0.0] * 4, [0.0, 1.0, 0.5, 0.25], [0.0, 0.16, 0.04, 0.01], [True] * 4)
    assert tried.next_step(0.05) == pytest.approx((0.95 * 0.05 / 0.16) ** 0.5)
    assert tried.next_step(0.2) is None and tried.next_step(None) is None
    # Nothing holds: from the two that are nearest; no tolerance: half way.
    assert tried.next_step(0.001) == pytest.approx((0.95 * 0.001 / 0.16) ** 0.5)
    assert tried.next_step(0.0) == 0.125
    # No power of the share goes through these two; nothing was run beyond the last.
    assert Tried([0.0] * 3, [0.0, 0.25, 1.0], [0.0, 0.001, 0.05001], [True] * 3).next_step(0.05) == 0.625
    assert Tried([0.0] * 2, [0.0, 0.25], [0.0, 0.001], [True] * 2).next_step(0.05) == 0.625
    tried.same[1] = False
    assert tried.next_step(None) == 0.75


def test_heads_and_rows_by_themselves() -> None:
    runs: Any = LinearRuns(2, (2, 3, 5))
    found = prediction_freedom(runs, tolerance=0.01, by="row", heads=[0, 2], rows=[1, 4], layers=[4]).arrays()
    reach = found["row_reach_within"][1]
    assert reach.shape == (1, 3, 5, 1) and set(zip(*np.nonzero(reach[0, :, :, 0]), strict=True)) == {
        (0, 1), (0, 4), (2, 1), (2, 4),
    }  # fmt: skip
    by_head = prediction_freedom(runs, tolerance=0.01, by="head").arrays()["head_reach_within"][1]
    assert by_head.shape == (2, 3, 1) and (by_head > 0).all()


@settings(max_examples=30)
@given(st.integers(0, 2**20), st.integers(1, 4), st.integers(1, 6))
def test_rows_without_a_path_are_those_that_no_walk_reaches(seed: int, depth: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    masks = (generator.random((depth, count, count)) < 0.3) | np.eye(count, dtype=bool)
    read = generator.random(count) < 0.4
    layers = [
        LayerMaps(0, (0,), torch.zeros(1, count, count), torch.tensor(mask), torch.arange(count)) for mask in masks
    ]
    found = torch.stack(rows_that_matter(layers, torch.tensor(read).double())).numpy()

    def reaches(layer: int, token: int) -> bool:
        """Whether what layer `layer` writes at a token is read, or seen by something above that is."""
        if layer == depth:
            return bool(read[token])
        later = any(masks[layer][query, token] and reaches(layer + 1, query) for query in range(count))
        return later or reaches(layer + 1, token)

    expected = [[reaches(layer + 1, token) for token in range(count)] for layer in range(depth)]
    np.testing.assert_array_equal(found, expected)


def test_rows_that_are_exactly_free_can_be_anything_in_the_running_model() -> None:
    traced = contract.trace(CAUSAL)
    found = identiscope.prediction_freedom(traced, layers=[1])
    count = len(traced.main)
    np.testing.assert_allclose(found["exactly_free"], (count - 2) / (count - 1))

    def other(attention: torch.Tensor) -> torch.Tensor:
        moved = attention.clone()
        moved[:-1] = torch.tril(torch.rand(count - 1, count, generator=torch.Generator().manual_seed(0)).double() ** 4)
        moved[:-1] /= moved[:-1].sum(-1, keepdim=True)
        return moved

    run = identiscope.substitute(contract.model("Llama"), list(CAUSAL.text), {(1, head): other for head in range(4)})
    assert run.logits is not None and traced.logits is not None
    assert float((run.logits[-1] - traced.logits[-1]).abs().max()) < 1e-12
    assert float((run.logits[-2] - traced.logits[-2]).abs().max()) > 1e-3


def largest(run: identiscope.Rerun) -> torch.Tensor:
    """A number whose derivative sees one token, and that depends on all."""
    return run.hidden_states[-1][:, 0].max()


def test_rows_that_a_derivative_does_not_see_are_not_free() -> None:
    found = identiscope.prediction_freedom(contract.trace(contract.CASES["more"]), outcome=largest, all_at_once=False)
    assert found["exactly_free"].values.tolist() == [0, 0]


def test_rows_of_a_layer_are_not_free_where_layers_above_were_not_captured() -> None:
    traced = identiscope.trace(contract.model("Llama"), list(CAUSAL.text), layers=[0])
    for method in (identiscope.prediction_freedom, identiscope.replaced_attention):
        assert method(traced)["exactly_free"].values.tolist() == [0], method.__name__


def test_what_was_found_is_within_and_the_answer_the_same() -> None:
    found = identiscope.prediction_freedom(contract.trace(CAUSAL), tolerance=[0.05, 0.01])
    assert found["criterion"].values.tolist() == ["0.01", "0.05", "same choice"]
    reach = found["reach_within"].values
    assert (reach[:, 0] <= reach[:, 1] + 1e-12).all() and (reach > 0).any()
    assert (found["moved_within"].values[:, :2] <= [0.01, 0.05]).all()
    assert found.attrs["measured"].startswith("total variation") and "lower bound" in found.attrs["bound"]
    np.testing.assert_allclose(found["reach"], reach[:, 1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tolerance": -0.1}, "0 or more"),
        ({"tolerance": float("nan")}, "0 or more"),
        ({"tolerance": []}, "0 or more"),
        ({"layers": [9]}, "there are 0 to 1"),
        ({"heads": [7]}, "there are 0 to 3"),
        ({"rows": [99]}, "there are 0 to 12"),
        ({"outcomes": 0}, "at least 1"),
        ({"refinements": -1}, "0 or more"),
        ({"outcome": "id:99999"}, "there are"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(identiscope.InputError, match=words):
        identiscope.prediction_freedom(contract.trace(CAUSAL), **options)


def test_a_tolerance_that_nothing_meets_moves_what_is_exactly_free_alone() -> None:
    found = identiscope.prediction_freedom(contract.trace(CAUSAL), tolerance=0.0)
    assert float(found["reach"][0]) == 0 and float(found["reach"][1]) > 0.3


def test_a_run_that_gives_no_number_is_said() -> None:
    traced = contract.trace(CAUSAL)
    assert traced.logits is not None
    own = float(traced.logits[-1, 0])

    def only_as_it_was(run: identiscope.Rerun) -> torch.Tensor:
        assert run.logits is not None
        value = run.logits[-1, 0]
        return value if abs(float(value.detach()) - own) < 1e-9 else value * torch.nan

    with pytest.raises(identiscope.MathError, match="with other attention put into the model"):
        identiscope.prediction_freedom(traced, outcome=only_as_it_was)


def test_the_maps_that_were_found_can_be_run_again() -> None:
    traced = contract.trace(CAUSAL)
    found = identiscope.prediction_freedom(traced, tolerance=0.05, maps=True)
    assert traced.logits is not None
    raw = torch.stack([traced.site(0).attention(head) for head in range(4)]).numpy()
    away = 0.5 * np.abs(found["maps"].sel(layer=0).values - raw).sum(-1)[:, 1:]  # the first row sees one key
    np.testing.assert_allclose(found["reach"].values[0], away.mean(), atol=1e-12)

    def moved(maps: Any, layers: list[int]) -> tuple[float, float]:
        changes: dict[Any, Any] = {
            (layer, head): torch.from_numpy(maps.sel(layer=layer, head=head).values)
            for layer in layers
            for head in range(4)
        }
        run = identiscope.substitute(contract.model("Llama"), list(CAUSAL.text), changes, whole=True)
        assert run.logits is not None and traced.logits is not None
        one, other = (logits[-1].double().softmax(-1) for logits in (run.logits, traced.logits))
        return 0.5 * float((one - other).abs().sum()), float(one[other.argmax()].log())

    for layer in (0, 1):
        expected = moved(found["maps"], [layer])
        np.testing.assert_allclose(found["outcome_moved"].sel(layer=layer), expected[0], atol=1e-10)
        np.testing.assert_allclose(found["outcome_within"].sel(layer=layer)[0], expected[1], atol=1e-10)
    together = moved(found["all_maps"], [0, 1])
    np.testing.assert_allclose(found["all_moved_within"].values[0], together[0], atol=1e-10)


@pytest.mark.parametrize("name", ["causal, grouped queries", "more", "sinks", "decoder of two sides"])
def test_runs_from_a_layer_on_are_those_from_the_start(name: str) -> None:
    case = contract.CASES[name]
    traced = contract.trace(case)
    outcome = None if traced.logits is not None else contract.some_outcome
    stream = chosen_stream(traced, "decoder" if name.startswith("decoder") else None)
    runs = TraceFields(traced, stream, given_outcome=outcome).attention_runs
    for place, layer in enumerate(runs.layers):
        drawn = torch.rand(3, *layer.raw.shape, generator=torch.Generator().manual_seed(place)).double()
        cells = torch.where(layer.allowed, drawn, 0.0)
        maps = cells / cells.sum(-1, keepdim=True) * layer.raw.sum(-1, keepdim=True)

        def some(numbers: torch.Tensor, maps: torch.Tensor = maps) -> torch.Tensor:
            return maps[numbers]

        before = runs.passes
        on = runs.answers({place: some}, 3)
        assert runs._can_run_on(place) and (place == 0 or runs.passes - before < 4)
        runs._running_on[place] = False
        whole = runs.answers({place: some}, 3)
        np.testing.assert_allclose(on.value, whole.value, atol=1e-9)
        assert float((whole.value - runs.reference.value).abs().min()) > 1e-6
