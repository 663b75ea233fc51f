"""Information flow routes, against the formula by loops, and the numbers that are published."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import identiscope
from identiscope.errors import InputError
from identiscope.methods.scores.flow_routes import FEED_FORWARD, STREAM, contribution_shares, cut, flow_routes
from plain_families import PRECISION, SIDES, ran, traced
from plain_models import Layer, Ran
from plain_parts import Shape, fields, random_run, shapes

FLOOR = 1e-5
Edges = dict[tuple[int, int, int, int], float]  # (layer, query, key, head) → share of its token


def proximities(whole: np.ndarray, parts: list[np.ndarray], norm: int) -> list[float]:
    """max(‖y‖ − ‖y − z‖, ε) (Ferrando & Voita 2024, eq. 4)."""
    lengths = {1: lambda v: np.abs(v).sum(), 2: lambda v: np.sqrt((v**2).sum())}
    length = lengths[norm]
    return [max(float(length(whole) - length(whole - part)), FLOOR) for part in parts]


def thresholded(sizes: list[float], threshold: float) -> list[float]:
    """Shares; those below the threshold away, but never the largest; shares again (eq. 6)."""
    share = [size / sum(sizes) for size in sizes]
    kept = [one if one >= threshold or one == max(share) else 0.0 for one in share]
    return [one / sum(kept) for one in kept]


def layer_edges(number: int, layer: Layer, norm: int, threshold: float) -> tuple[Edges, np.ndarray]:
    """The shares of all edges into each token after attention, and that of the feed-forward part after it [token]."""
    one = layer.attended[0]
    edges: Edges = {}
    heads, queries, keys = one.maps.shape
    fed = np.zeros(queries)
    for i in range(queries):
        names = [(number, i, j, h) for j in range(keys) for h in range(heads) if one.maps[h, i, j] > 0]
        parts = [one.carried(one.brought(i, j, h), i).detach().numpy() for _, _, j, h in names]
        names.append((number, i, i, STREAM))
        parts.append(one.carried_stream(one.before[i], i).detach().numpy())
        sizes = proximities(one.after[i].detach().numpy(), parts, norm)
        edges.update(zip(names, thresholded(sizes, threshold), strict=True))
        added, stays = layer.addition[i], layer.before[i]
        if layer.feeds.inner is not None:
            added = layer.feeds.inner.linear(added, layer.addition[i])
        if layer.feeds.outer is not None:
            added, stays = (layer.feeds.outer.linear(part, layer.sum[i]) for part in (added, stays))
        both = [part.detach().numpy() for part in (added, stays)]
        fed[i] = thresholded(proximities(layer.after[i].detach().numpy(), both, norm), threshold)[0]
    return edges, fed


def reference(plain: Ran, read: np.ndarray, norm: int, threshold: float) -> tuple[np.ndarray, Edges, np.ndarray]:
    """What arrives at each input, every edge with its share of the outcome, and what passes feed-forward parts."""
    arriving, graph, feeds = read.copy(), {}, np.zeros(len(plain.layers))
    for number in reversed(range(len(plain.layers))):
        layer = plain.layers[number]
        edges, fed = layer_edges(number, layer, norm, threshold)
        below = np.zeros_like(arriving)
        for i in range(len(arriving)):
            through = arriving[i] * fed[i]
            feeds[number] += through
            if through > 0:
                graph[number, i, i, FEED_FORWARD] = through
            # A feed-forward part beside attention reads what the layer was given, and nothing of it passes attention.
            attends = arriving[i] - through if layer.feeds.parallel else arriving[i]
            below[i] += arriving[i] - attends
            for (_, query, key, head), share in edges.items():
                if query == i and attends * share > 0:
                    graph[number, i, key, head] = attends * share
                    below[key] += attends * share
        arriving = below
    return arriving, graph, feeds


def listed(arrays: dict[str, np.ndarray]) -> Edges:
    names = [arrays[f"edge_{name}"] for name in ("layer", "query", "key", "head", "weight")]
    found = {(int(a), int(b), int(c), int(d)): float(weight) for a, b, c, d, weight in zip(*names, strict=True)}
    assert len(found) == len(names[0]), "every edge is there once"
    return found


def assert_same_graph(one: Edges, other: Edges, tolerance: float) -> None:
    assert set(one) == set(other)
    assert max(abs(one[edge] - other[edge]) for edge in one) < tolerance


def test_the_published_toy() -> None:
    """Parts [1, 1] and [−1, 0], residual [2, 1], whole [2, 2]; then a threshold of 0.1 on .05, .15 and .8."""
    whole = torch.tensor([[2.0, 2.0]], dtype=torch.float64)
    parts = torch.tensor([[[1.0, 1.0], [-1.0, 0.0], [2.0, 1.0]]], dtype=torch.float64)
    np.testing.assert_allclose(contribution_shares(whole, parts, 2, 0.0)[0], [0.43613, 0, 0.56387], atol=1e-5)
    np.testing.assert_allclose(contribution_shares(whole, parts, 1, 0.0)[0], [0.4, 0, 0.6], atol=1e-5)
    shared = cut(torch.tensor([[0.05, 0.15, 0.8]], dtype=torch.float64), 0.1)[0]
    np.testing.assert_allclose(shared, [0, 0.157894, 0.842105], atol=1e-6)
    assert float(shared[0]) == 0


@given(
    shape=shapes, norm=st.sampled_from([1, 2]), threshold=st.sampled_from([0.0, 0.01, 0.1, 0.4]), parallel=st.booleans()
)
def test_it_is_the_formula(shape: Shape, norm: int, threshold: float, parallel: bool) -> None:
    parallel = parallel and "outer" not in shape.norms
    plain = random_run(Shape(**{**vars(shape), "parallel": parallel}))
    read = np.random.default_rng(shape.seed).dirichlet(np.ones(shape.tokens))
    outcome = SimpleNamespace(read=torch.from_numpy(read))
    found = flow_routes(*fields(plain, shape.group), outcome, threshold=threshold, norm=norm)
    arrays = {name: values.numpy() for name, (_, values) in found.arrays().items()}
    score, graph, feeds = reference(plain, read, norm, threshold)
    np.testing.assert_allclose(arrays["score"], score, atol=1e-10)
    np.testing.assert_allclose(arrays["feed_forward"], feeds, atol=1e-10)
    assert_same_graph(listed(arrays), graph, 1e-10)
    for layer, row in enumerate(arrays["by_head"]):
        for head, weight in enumerate(row):
            own = sum(share for (at, _, _, which), share in graph.items() if (at, which) == (layer, head))
            assert abs(weight - own) < 1e-10
    # All of the outcome arrives somewhere, and the list begins with the largest.
    assert abs(arrays["score"].sum() - 1) < 1e-10
    assert (np.diff(arrays["edge_weight"]) <= 0).all()


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_that_of_its_weights(family: str, norm: int) -> None:
    _, plain = ran(family)

    def read(run: identiscope.Rerun) -> torch.Tensor:
        return run.hidden_states[-1][3:5].sum(-1).pow(2).sum()

    trace = traced(family)
    result = identiscope.flow_routes(trace, outcome=read, norm=norm, threshold=0.03)
    score, graph, feeds = reference(plain, trace.outcome(read).read.numpy(), norm, 0.03)
    tolerance = 50 * PRECISION.get(family, 1e-11)
    np.testing.assert_allclose(result["score"], score, atol=tolerance)
    np.testing.assert_allclose(result["feed_forward"], feeds, atol=tolerance)
    assert_same_graph(listed({str(name): values.values for name, values in result.data_vars.items()}), graph, tolerance)


def test_what_no_head_may_see_is_no_edge() -> None:
    plain = random_run(Shape(0, 4, causal=True))
    outcome = SimpleNamespace(read=torch.tensor([0, 0, 1.0, 0], dtype=torch.float64))
    found = flow_routes(*fields(plain), outcome, threshold=0.0)
    assert float(found.score[3]) == 0
    arrays = found.arrays()
    assert bool((arrays["edge_key"][1] <= arrays["edge_query"][1]).all())


@pytest.mark.parametrize("options", [{"threshold": 1.0}, {"threshold": -0.1}, {"norm": 3}])
def test_what_is_no_share_and_no_norm_is_refused(options: dict[str, float]) -> None:
    outcome = SimpleNamespace(read=torch.ones(3, dtype=torch.float64) / 3)
    with pytest.raises(InputError, match="expected a share below 1, and 1 or 2"):
        flow_routes(*fields(random_run(Shape(0, 3))), outcome, **options)  # type: ignore[arg-type]
