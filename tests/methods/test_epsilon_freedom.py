"""Freedom with an output that moves a little: against plain references over T itself, and the exact answer at ε = 0."""

from typing import Any

import numpy as np
import pytest
import torch

import contract
import identiscope
from reference_cone import best_of_supports, best_row

# Of few directions, in which cutting planes end soon: twelve tokens with three different values. Of few keys, five.
REPEATED, FEW, MORE = (contract.CASES[name] for name in ("repeated tokens", "fewer tokens than channels", "more"))


def radius(traced: identiscope.Trace, layer: int, query: int, epsilon: float) -> float:
    """ε times the length of a row of Σ A·V·H + b_O, in a plain loop."""
    site = traced.site(layer)
    total = np.zeros(site.projection.shape[-1])
    for head in range(site.head_count):
        values = site.value_of(head).double() @ site.projection[head].double()
        total = total + (site.attention(head)[query] @ values).numpy()
    if site.projection_bias is not None:
        total = total + site.projection_bias.double().numpy()
    return epsilon * float(np.linalg.norm(total))


def ends(
    traced: identiscope.Trace,
    layer: int,
    head: int,
    query: int,
    group: np.ndarray,
    epsilon: float,
    best: Any = best_row,
) -> list[float]:
    """The least and the most that some keys of a row weigh together."""
    site = traced.site(layer)
    seen = site.allowed_keys(head)[query].numpy()
    points = (site.value_of(head).double() @ site.projection[head].double()).numpy()[seen]
    # The same lengths in fewer numbers.
    left, sizes, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
    points = (left * sizes)[:, sizes > 1e-10 * sizes[0]] if sizes[0] > 0 else points[:, :1]
    row, cost = site.attention(head)[query].numpy()[seen], group[seen].astype(float)
    size = radius(traced, layer, query, epsilon)
    return [float(cost @ best(points, row, size, sign * cost)) for sign in (1.0, -1.0)]


@pytest.mark.parametrize(("case", "best"), [(REPEATED, best_row), (FEW, best_of_supports)])
def test_the_widths_of_a_head_are_those_of_the_reference(case: contract.Case, best: Any) -> None:
    traced = contract.trace(case)
    found = identiscope.epsilon_freedom(traced, layers=[0], heads=[2], epsilon=0.05, most_rows=2)
    widths = []
    for query in (0, len(traced.main) - 1):
        row = traced.site(0).attention(2)[query].numpy()
        least, most = ends(traced, 0, 2, query, np.arange(len(row)) == row.argmax(), 0.05, best)
        widths.append(most - least)
    np.testing.assert_allclose(found["width"].values, [[np.mean(widths)]], atol=5e-6)
    assert float(found["gap"].max()) < 2e-6
    exact = identiscope.interval_map(traced, 0, 2)
    rows = [0, len(traced.main) - 1]
    strongest = exact["weight"].values[rows].argmax(1)
    np.testing.assert_allclose(
        found["exact_width"].values, [[exact["width"].values[rows, strongest].mean()]], atol=1e-9
    )


def test_the_references_agree() -> None:
    generator = np.random.default_rng(0)
    for keys, channels in ((4, 2), (5, 3), (6, 2)):
        points, row = generator.standard_normal((keys, channels)), generator.dirichlet(np.ones(keys))
        cost = generator.standard_normal(keys)
        one, other = (float(cost @ way(points, row, 0.2, cost)) for way in (best_row, best_of_supports))
        np.testing.assert_allclose(one, other, atol=5e-6)


def test_intervals_and_maps_of_them_agree_and_copies_are_merged() -> None:
    traced = contract.trace(REPEATED)
    site, query = traced.site(0), len(traced.main) - 1
    tokens = np.array(traced.tokens)
    whole = identiscope.interval_map(traced, 0, 1, epsilon=0.05)
    found = identiscope.attention_intervals(traced, 0, 1, cells=[(query, 0), (query, 1)], epsilon=0.05, box=True)
    for place in range(2):
        least, most = ends(traced, 0, 1, query, np.arange(len(tokens)) == place, 0.05)
        np.testing.assert_allclose([found["lower"][place], found["upper"][place]], [least, most], atol=5e-6)
        least, most = ends(traced, 0, 1, query, tokens == tokens[place], 0.05)
        np.testing.assert_allclose(
            [found["merged_lower"][place], found["merged_upper"][place]], [least, most], atol=5e-6
        )
        for name in ("lower", "upper", "merged_lower", "merged_upper"):
            np.testing.assert_allclose(whole[name].values[query, place], found[name].values[place], atol=5e-6)
    # The box that holds the ball holds more, the one within it less.
    assert (found["outer_lower"] <= found["lower"] + 2e-6).all() and (
        found["lower"] <= found["inner_lower"] + 2e-6
    ).all()
    assert (found["inner_upper"] <= found["upper"] + 2e-6).all() and (
        found["upper"] <= found["outer_upper"] + 2e-6
    ).all()
    transformed = site.value_of(1).double() @ site.projection[1].double()
    for rows in ("lower_row", "upper_row"):
        moved = (torch.from_numpy(found[rows].values) - site.attention(1)[query]) @ transformed
        assert float(moved.norm(dim=-1).max()) <= radius(traced, 0, query, 0.05) * (1 + 1e-9)


def test_without_room_it_is_the_exact_answer() -> None:
    traced = contract.trace(MORE)
    exact, zero = (
        identiscope.attention_intervals(traced, 1, 1),
        identiscope.attention_intervals(traced, 1, 1, epsilon=0.0),
    )
    contract.assert_same(exact.drop_attrs(), zero.drop_attrs())
    curve = identiscope.epsilon_curve(traced, 1, 1, epsilons=[0.0, 0.01, 0.1], most_rows=3)
    weights = traced.site(1).attention(1).numpy()
    widths = identiscope.interval_map(traced, 1, 1)["width"].values
    places = curve["place"].values
    expected = [widths[place, weights[place].argmax()] for place in places]
    np.testing.assert_allclose(curve["width"].values[0], expected, atol=1e-9)
    for name in ("width", "merged_width", "reach", "merged_reach"):
        assert (np.diff(curve[name].values, axis=0) >= -2e-6).all(), name
    # The farthest row is as far as the strongest weight can be taken, at the least.
    assert (curve["reach"].values + 1e-6 >= 0.5 * curve["width"].values).all()


def test_two_keys_have_a_closed_form() -> None:
    from identiscope.methods.freedom.epsilon_curve import epsilon_curve
    from identiscope.methods.maps.factored import rows_of

    value, weights = torch.tensor([[[0.0, 0.0], [3.0, 4.0]]]), torch.tensor([[[0.7, 0.3]]])
    projection = torch.eye(2)[None] * 2
    for epsilon in (0.01, 0.05, 1.0, 9.0):
        found = epsilon_curve(value, projection, rows_of(weights), 1, torch.tensor([2.0]), epsilons=[epsilon])
        shift = 2.0 * epsilon / 10.0
        np.testing.assert_allclose(found.numbers["reach"], [[min(shift, 0.7)]], atol=1e-6)
        np.testing.assert_allclose(found.numbers["width"], [[min(shift, 0.7) + min(shift, 0.3)]], atol=1e-6)


def test_alternatives_stay_within_and_are_run() -> None:
    traced = contract.trace(MORE)
    near = identiscope.attention_alternative(traced, 1, 2, epsilon=0.05)
    assert float(near["output_share"].max()) <= 0.05 * (1 + 1e-9)
    exact = identiscope.attention_alternative(traced, 1, 2)
    assert float(near["total_variation"].mean()) > float(exact["total_variation"].mean())
    proof = identiscope.prove(contract.model("BERT"), list(MORE.text), 1, 2, near)
    assert "Within 0.05 of the attention block's output: yes" in proof.attrs["verdict"]
    assert 0 < proof.attrs["output_share"] <= 0.05 * (1 + 1e-9) and not bool(proof["same"])
    # The alternative itself says what it changes in the running model, and what chance does.
    for name, row in (("hidden_states_moved", "alternative"), ("hidden_states_moved_at_random", "random")):
        np.testing.assert_allclose(near.attrs[name], proof["hidden_states"].sel(map=row), rtol=1e-9)
    assert near.attrs["hidden_states_moved"] > 1e-6 and "hidden_states_moved" not in exact.attrs
    too_far = near.copy()
    too_far.attrs = {**near.attrs, "options": near.attrs["options"] | {"epsilon": 0.001}}
    with pytest.raises(identiscope.InputError, match=r"at most 0\.001 was allowed"):
        identiscope.prove(contract.model("BERT"), list(MORE.text), 1, 2, too_far)


@pytest.mark.parametrize("given", [-0.1, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused(given: float) -> None:
    traced = contract.trace(MORE)
    for ask in (identiscope.attention_intervals, identiscope.attention_alternative, identiscope.interval_map):
        with pytest.raises(identiscope.InputError, match="0 or more"):
            ask(traced, 1, 1, epsilon=given)
    with pytest.raises(identiscope.InputError, match="0 or more"):
        identiscope.epsilon_freedom(traced, epsilon=given)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("epsilon_freedom", {"epsilon": 0.0}, "above 0"),
        ("epsilon_freedom", {"most_rows": 0}, "at least 1"),
        ("epsilon_curve", {"layer": 1, "head": 1, "epsilons": []}, "at least one"),
        ("attention_intervals", {"layer": 1, "head": 1, "box": True}, "no box"),
        ("attention_alternative", {"layer": 1, "head": 1, "how": "realisable", "epsilon": 0.1}, "keeps the output"),
    ],
)
def test_what_cannot_be_asked_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(identiscope.InputError, match=words):
        identiscope.ask(name, contract.trace(MORE), **options)


def test_a_row_with_one_key_cannot_move() -> None:
    found = identiscope.attention_intervals(contract.trace(contract.CASES["one token"]), 0, 0, epsilon=0.05)
    assert found["lower"].values.tolist() == found["upper"].values.tolist() == [1.0]
