"""Attention flow against networkx's maximum flow, and cases that can be counted by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import identiscope
from identiscope.errors import InputError
from identiscope.methods.mixtures.attention_flow import attention_flow
from plain_families import traced

networkx = pytest.importorskip("networkx")


def reference(layers: list[np.ndarray], residual: float, top: int, source: int, sink: int) -> float:
    """The maximum flow from hidden token `source` after layer `top` to an input, in the graph of Abnar & Zuidema 2020.

    Capacities are mean attention mixed with the stream itself, rows normalised.
    """
    graph = networkx.DiGraph()
    graph.add_nodes_from([(top + 1, source), (0, sink)])
    for number in range(top + 1):
        mean = layers[number].mean(0)
        for i in range(len(mean)):
            row = [(1 - residual) * mean[i, j] + residual * (i == j) for j in range(len(mean))]
            for j, weight in enumerate(row):
                if weight > 0:
                    graph.add_edge((number + 1, i), (number, j), capacity=weight / sum(row))
    return float(networkx.maximum_flow_value(graph, (top + 1, source), (0, sink)))


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**20), depth=st.integers(1, 4), heads=st.integers(1, 2), count=st.integers(1, 5),
    causal=st.booleans(), residual=st.sampled_from([0.0, 0.2, 0.5, 1.0]), sink=st.sampled_from([1.0, 0.4]),
)  # fmt: skip
def test_it_is_the_maximum_flow(
    seed: int, depth: int, heads: int, count: int, causal: bool, residual: float, sink: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Sharp rows: many edges that are nearly nothing, and cuts in the middle of the graph.
    logits = 6 * torch.randn(depth, heads, count, count, generator=generator, dtype=torch.float64)
    if causal:
        logits = logits.masked_fill(torch.ones(count, count, dtype=torch.bool).triu(1), -torch.inf)
    attention = list(sink * logits.softmax(-1))
    found = attention_flow(attention, residual=residual)
    plain = [one.numpy() for one in attention]
    for layer in {0, depth - 1}:
        for source in range(count):
            for token in range(count):
                expected = reference(plain, residual, layer, source, token)
                assert abs(float(found.flow[layer, source, token]) - expected) < 1e-9
    assert found.largest_gap < 1e-9
    assert not (causal and bool(found.flow.triu(1).any()))


def test_by_hand() -> None:
    """Two tokens, two layers. From token 0 all goes to middle 0 and 1 by .8 and .2; to input 1 lead .3 and .9 from
    these, so that it gets .3 of the .8 and all of the .2; to input 0 lead .7 and .1: .7 of the .8, and .1 of the .2.
    """
    first = torch.tensor([[[0.7, 0.3], [0.1, 0.9]]], dtype=torch.float64)
    second = torch.tensor([[[0.8, 0.2], [0.5, 0.5]]], dtype=torch.float64)
    found = attention_flow([first, second], residual=0.0).flow
    np.testing.assert_allclose(found[1, 0], [0.7 + 0.1, 0.3 + 0.2], atol=1e-12)
    np.testing.assert_allclose(found[1, 1], [0.5 + 0.1, 0.3 + 0.5], atol=1e-12)
    np.testing.assert_allclose(found[0], first[0], atol=1e-12)


def test_what_was_sent_may_be_taken_back() -> None:
    """A graph in which the first shortest path blocks the best flow, unless some of it is sent another way."""
    # From token 0 half goes to middle 0, half to 1; middle 0 leads to 0 and 1 below, middle 1 to 0 alone.
    top = np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]])
    middle = np.array([[0.5, 0.5, 0], [1, 0, 0], [0, 0, 1]])
    bottom = np.array([[0.5, 0, 0.5], [0, 0.5, 0.5], [0, 1, 0]])
    layers = [torch.from_numpy(one)[None] for one in (bottom, middle, top)]
    # Input 2 is reached by .5 from each of the two below: both are needed, so middle 0 must leave 0 to middle 1.
    found = attention_flow(layers, residual=0.0).flow
    assert abs(float(found[2, 0, 2]) - 1) < 1e-12
    assert abs(reference([one.numpy() for one in layers], 0.0, 2, 0, 2) - 1) < 1e-12


def test_of_a_model_it_is_that_of_its_attention_and_the_share_that_inputs_decide_is_counted() -> None:
    trace = traced("GPT-2")
    result = identiscope.attention_flow(trace, layers=[1], tokens=[3, 11])
    plain = [site.attentions().double().numpy() for site in trace.sites]
    cells = result["attention_flow"].values[0]
    decided = []
    entering = (np.stack([one.mean(0) for one in plain])[0] / 2 + np.eye(12) / 2).sum(0)
    for source in (3, 11):
        for token in range(12):
            assert abs(cells[source, token] - reference(plain, 0.5, 1, source, token)) < 1e-9
            decided.append(min(abs(cells[source, token] - entering[token]), abs(cells[source, token] - 1)) < 1e-9)
    assert np.isnan(np.delete(cells, [3, 11], 0)).all()
    assert abs(float(result["decided_by_input"][0]) - np.mean(decided)) < 1e-12 and 0 < np.mean(decided) < 1


@pytest.mark.parametrize("options", [{"layers": [2]}, {"tokens": [12]}, {"tokens": []}, {"residual": 1.5}])
def test_what_is_not_there_is_refused(options: dict[str, list[int] | float]) -> None:
    with pytest.raises(InputError, match=r"there are 0 to|expected a share"):
        identiscope.attention_flow(traced("GPT-2"), **options)
