"""The attribution tree, against the algorithm of Hao et al. 2021 written out, and by hand."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import identiscope
from identiscope import InputError


def attributions(weights: np.ndarray, first: int = 0) -> xr.Dataset:
    """A result of attention_attribution [layer, head, query, key], as the method would give it."""
    count = weights.shape[-1]
    tokens = [f"w{place}" for place in range(count)]
    labels = {"layer": np.arange(first, first + len(weights)), "query_token": ("query", tokens)}
    arrays = {"attention_attribution": (("layer", "head", "query", "key"), weights)}
    return xr.Dataset(arrays, labels, {"method": "attention_attribution", "kind": "map", "outcome": "a word"})


def segments(axes: Axes) -> int:
    lines = axes.collections[0]
    assert isinstance(lines, LineCollection)
    return len(lines.get_segments())


def literal(weights: np.ndarray, threshold: float) -> tuple[int, set[tuple[int, int, int]]]:
    """Algorithm 1, token by token: NotAppear, Appear at a layer. Edges (layer, parent, child)."""
    summed = weights.sum(1)
    layers, count = summed.shape[:2]
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    gathered = [sum(summed[layer, i, j] for layer in range(layers) for i, j in pairs if i == k) for k in range(count)]
    top = int(np.argmax(gathered))
    appeared = {top: layers}
    edges = set()
    for layer in range(layers - 1, -1, -1):
        ordered = sorted(((summed[layer, i, j], -i, -j) for i, j in pairs), reverse=True)
        for value, i, j in ordered:
            allowed = summed[layer].max() > 0 and value / summed[layer].max() > threshold
            if allowed and appeared.get(-i, -1) > layer and -j not in appeared:
                edges.add((layer, -i, -j))
                appeared[-j] = layer
    return top, edges


@given(seed=st.integers(0, 10_000), count=st.integers(1, 7), layers=st.integers(1, 4), threshold=st.floats(0.05, 0.9))
def test_it_is_the_algorithm_of_the_paper(seed: int, count: int, layers: int, threshold: float) -> None:
    weights = np.random.default_rng(seed).normal(size=(layers, 2, count, count))
    tree = identiscope.attribution_tree(attributions(weights), threshold=threshold)
    top, edges = literal(weights, threshold)
    got = list(zip(*(tree[f"edge_{name}"].values.tolist() for name in ("layer", "query", "key")), strict=True))
    assert tree.attrs["root"] == top and set(got) == edges
    depth = tree["depth"].values
    for layer, parent, child in edges:
        assert depth[child] == depth[parent] + 1
        weight = tree["edge_weight"].values[got.index((layer, parent, child))]
        assert weight == pytest.approx(weights[layer, :, parent, child].sum())
    inside = {top} | {child for *_, child in edges}
    assert set(np.flatnonzero(depth >= 0).tolist()) == inside and len(edges) == len(inside) - 1


def test_a_chain_by_hand() -> None:
    """Layer 1: 2 takes in 1. Layer 0: 1 takes in 0, and 2 would take in 1 again, which it has."""
    weights = np.zeros((2, 1, 3, 3))
    weights[1, 0, 2, 1], weights[0, 0, 1, 0], weights[0, 0, 2, 1] = 1.0, 0.5, 0.9
    tree = identiscope.attribution_tree(attributions(weights))
    assert tree.attrs["root"] == 2 and tree["depth"].values.tolist() == [2, 1, 0]
    assert tree["edge_layer"].values.tolist() == [1, 0] and tree["edge_weight"].values.tolist() == [1.0, 0.5]
    assert tree.attrs["outcome"] == "a word"
    other = identiscope.attribution_tree(attributions(weights), root=0)
    assert len(other["edge_layer"]) == 0 and other["depth"].values.tolist() == [0, -1, -1]


def test_it_is_drawn_tabled_and_saved(minilm: identiscope.Model, tmp_path_factory: pytest.TempPathFactory) -> None:
    trace = identiscope.trace(minilm, "The cat sat on the mat.")
    found = identiscope.attention_attribution(trace, outcome="similarity:A dog lay there.", points=2)
    tree = identiscope.attribution_tree(found)
    axes = identiscope.plot(tree, Figure().add_subplot())
    assert segments(axes) == len(tree["edge_weight"])
    assert axes.get_xticklabels()[0].get_text() == "[CLS]"
    path = tmp_path_factory.mktemp("tree") / "tree.safetensors"
    identiscope.save_result(tree, path)
    assert identiscope.load_result(path).equals(tree)
    assert len(tree.identiscope.table()) >= 1


def test_routes_are_drawn_as_a_graph(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, "The cat sat on the mat.")
    routes = identiscope.flow_routes(trace, outcome="similarity:A dog lay there.")
    axes = identiscope.plot(routes, Figure().add_subplot(), graph=True)
    assert segments(axes) == min(150, len(routes["edge_weight"]))
    saliency = identiscope.saliency(trace, outcome="similarity:A dog lay there.")
    with pytest.raises(InputError, match="has no graph"):
        identiscope.plot(saliency, Figure().add_subplot(), graph=True)


@pytest.mark.parametrize(("options", "said"), [({"threshold": 1.5}, "threshold=1.5"), ({"root": 9}, "tokens 0 to 2")])
def test_bad_choices_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        identiscope.attribution_tree(attributions(np.ones((1, 1, 3, 3))), **options)  # type: ignore[arg-type]


def test_other_results_have_no_tree(minilm: identiscope.Model) -> None:
    with pytest.raises(InputError, match="attention_attribution"):
        identiscope.attribution_tree(identiscope.rollout(identiscope.trace(minilm, "A cat.")))
