"""Token identifiability of a trace: against the literal definition, with repeats, ties, one token, and labels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import families
import identiscope
from identiscope.errors import CaptureError, InputError
from identiscope.methods.tokens.token_identifiability import token_identifiability

Numbers = np.ndarray


def literal(states: list[Numbers], metric: str) -> dict[str, Numbers]:
    """Section 4 in plain loops: every hidden embedding is compared with every input embedding of the text."""
    inputs, names = states[0], ("identified", "tied", "nearest", "cosine_to_input", "norm")
    rows: dict[str, list[list[float]]] = {name: [] for name in names}
    for state in states[1:]:
        for name in names:
            rows[name].append([])
        for place, hidden in enumerate(state):
            distances = []
            for x in inputs:
                if metric == "l2":
                    distances.append(float(sum((one - other) ** 2 for one, other in zip(hidden, x, strict=True))))
                else:
                    # What all candidates share, the length of the hidden embedding, does not change their order.
                    distances.append(1 - float(hidden @ x) / np.sqrt(float(x @ x)))
            least = min(distances)
            near = [number for number, distance in enumerate(distances) if distance <= least + 1e-9]
            rows["nearest"][-1].append(near[0])
            rows["tied"][-1].append(len(near) > 1)
            rows["identified"][-1].append(bool((inputs[near[0]] == inputs[place]).all()))
            own = inputs[place]
            rows["cosine_to_input"][-1].append(float(hidden @ own) / np.sqrt(float(hidden @ hidden) * float(own @ own)))
            rows["norm"][-1].append(np.sqrt(float(hidden @ hidden)))
    return {name: np.array(values) for name, values in rows.items()}


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 8),
    width=st.integers(2, 5),
    layers=st.integers(1, 3),
    seed=st.integers(0, 10**6),
    metric=st.sampled_from(["cosine", "l2"]),
    repeated=st.booleans(),
)
def test_it_is_what_the_definition_says(
    tokens: int, width: int, layers: int, seed: int, metric: str, repeated: bool
) -> None:
    draw = np.random.default_rng(seed)
    states = [draw.standard_normal((tokens, width)) for _ in range(layers + 1)]
    if repeated and tokens > 1:
        states[0][-1] = states[0][0]
    found = token_identifiability([torch.from_numpy(state) for state in states], metric=metric)  # type: ignore[arg-type]
    for name, (axes, values) in found.arrays().items():
        assert axes == ("layer", "output") and values.shape == (layers, tokens)
        np.testing.assert_allclose(values.numpy(), literal(states, metric)[name], rtol=1e-9, err_msg=name)


def test_a_repeated_token_is_as_good_as_itself() -> None:
    inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = token_identifiability([inputs, inputs])
    assert found.identified.tolist() == [[True, True, True]] and found.nearest.tolist() == [[0, 1, 0]]
    assert found.tied.tolist() == [[True, False, True]]


def test_half_precision_is_compared_in_single() -> None:
    states = [torch.randn(5, 8, generator=torch.Generator().manual_seed(seed)).half() for seed in (0, 1)]
    found, fine = token_identifiability(states), token_identifiability([state.double() for state in states])
    assert found.norm.dtype == torch.float32 and torch.equal(found.nearest, fine.nearest)
    torch.testing.assert_close(found.cosine_to_input.double(), fine.cosine_to_input, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["BERT", "Llama", "T5"])
def test_a_trace_is_labelled(name: str) -> None:
    family = families.ALL[name]
    trace = identiscope.trace(family.model(), family.inputs())
    found = identiscope.token_identifiability(trace, metric="l2")
    stream = trace.streams[found.attrs["stream"]]
    assert found["identified"].dims == ("layer", "output") and found["layer"].values.tolist() == [0, 1]
    assert found["output_token"].values.tolist() == list(stream.tokens) and found.attrs["kind"] == "token"
    states = [state.double().detach().numpy() for state in stream.hidden_states]
    expected = literal(states, "l2")
    for part in ("identified", "tied", "nearest"):
        np.testing.assert_array_equal(found[part], expected[part])
    np.testing.assert_allclose(found["norm"], expected["norm"], rtol=1e-6)
    last = identiscope.token_identifiability(trace, metric="l2", layers=[1])
    np.testing.assert_array_equal(last["nearest"].values, found["nearest"].values[1:])


def test_what_cannot_be_is_named() -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), families.ALL["BERT"].inputs())
    with pytest.raises(InputError, match="'cosine' or 'l2'"):
        identiscope.token_identifiability(trace, metric="manhattan")
    with pytest.raises(InputError, match="there are 0 to 1"):
        identiscope.token_identifiability(trace, layers=[2])
    with pytest.raises(InputError, match="identiscope\\.trace"):
        identiscope.token_identifiability("The cat sat.")
    with pytest.raises(InputError, match="expected the input and"):
        token_identifiability([torch.eye(2)])
    arrays = identiscope.from_arrays(torch.full((1, 1, 3, 3), 1 / 3), torch.ones(1, 1, 3, 2))
    with pytest.raises(CaptureError, match="no hidden states were captured"):
        identiscope.token_identifiability(arrays)
