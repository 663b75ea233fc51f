"""The attribution tree of Hao et al. 2021: by which tokens, layer by layer, a prediction came together."""

import numpy as np
import xarray as xr

from identiscope.errors import InputError
from identiscope.results import make_result, using


def attribution_tree(result: xr.Dataset, *, threshold: float = 0.4, root: int | None = None) -> xr.Dataset:
    """The tree of the strongest attention, from what `attention_attribution` gave of all layers (Hao et al. 2021, §5).

    >>> identiscope.attribution_tree(identiscope.attention_attribution(trace, outcome="Paris"))

    From the last layer down, a token that is in the tree takes in those that it attends to with an attribution (summed
    over heads) above `threshold` times the layer's largest, and that are not in it yet; the strongest come first, and
    one that was taken in at a layer attends from the layer below on. `edge_layer`, `edge_query` (the parent),
    `edge_key` (the child) and `edge_weight` are the edges; `depth` [token] is how far from the root a token hangs, −1
    where it is not in the tree. What hangs in the tree is what was strong, not all that the outcome needs.

    root: the token at the top; without, the one that gathers the most from others over all layers, as in the paper.
    """
    if not 0 < threshold < 1:
        raise InputError(f"threshold={threshold} was given; expected a share between 0 and 1, such as 0.4.")
    with using(result, "attention_attribution"):
        summed = result["attention_attribution"].sum("head").transpose("layer", "query", "key")
        weights, layers = summed.values.astype(np.float64), result["layer"].values.tolist()
        tokens = result["query_token"].values.tolist()
    count = len(tokens)
    if weights.shape[1:] != (count, count):
        raise InputError("a tree is of the attention of a text to itself; choose the attention that is not cross.")
    if root is not None and not 0 <= root < count:
        raise InputError(f"root={root} was given; the text has tokens 0 to {count - 1}.")
    others = weights * ~np.eye(count, dtype=bool)
    top = int(others.sum((0, 2)).argmax()) if root is None else root
    edges, depth = tree_edges(others, weights.max((1, 2)), threshold, top)
    columns = np.array([(layers[layer], query, key) for layer, query, key in edges], np.int64).reshape(-1, 3)
    names = ("edge_layer", "edge_query", "edge_key")
    arrays = {name: (("edge",), columns[:, place]) for place, name in enumerate(names)}
    arrays["edge_weight"] = (("edge",), np.array([others[edge] for edge in edges], np.float64))
    arrays["depth"] = (("token",), depth)
    facts = {**result.attrs, "method": "attribution_tree", "threshold": threshold, "root": top}
    facts.pop("kind", None)
    return make_result("attribution_tree", arrays, coordinates={"token_text": ("token", tokens)}, provenance=facts)


def tree_edges(
    weights: np.ndarray, largest: np.ndarray, threshold: float, root: int
) -> tuple[list[tuple[int, int, int]], np.ndarray]:
    """Edges (layer, parent, child) from the last layer down, and how deep each token hangs.

    >>> weights = np.array([[[0, 0, 0], [0, 0, 1.0], [0, 0, 0]], [[0, 1.0, 0.1], [0, 0, 0], [0, 0, 0]]])
    >>> tree_edges(weights, np.ones(2), 0.4, 0)
    ([(1, 0, 1), (0, 1, 2)], array([0, 1, 2]))
    """
    depth = np.full(weights.shape[1], -1)
    depth[root] = 0
    edges = []
    for layer in reversed(range(len(weights))):
        inside = np.flatnonzero(depth >= 0)
        strong = [
            (-weights[layer, query, key], int(query), int(key))
            for query in inside
            for key in np.flatnonzero(weights[layer, query] > threshold * largest[layer])
            if largest[layer] > 0
        ]
        for _, query, key in sorted(strong):
            if depth[key] < 0:
                depth[key] = depth[query] + 1
                edges.append((layer, query, key))
    return edges, depth
