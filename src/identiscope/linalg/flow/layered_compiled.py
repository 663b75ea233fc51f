"""Maximum flow in a graph of layers, by Dinic's method, compiled: plain loops over arrays (`compiling.py`).

Nodes are (layer, token), layer 0 being the inputs; capacities [layer, from, to] lead one layer down. What a flow has
used can be taken back, so that paths may go up again.
"""

import numpy as np
from numpy.typing import NDArray

from identiscope.linalg.compiling import Numbers, compiled

#: What is left of a capacity and smaller than this is rounding: row sums are one.
_NOTHING = 1e-15


@compiled
def flows_from(capacity: Numbers, top: int, source: int, values: Numbers, gaps: Numbers) -> None:
    """Write into `values` [input] the most that can flow from (top, source) to each input, and into `gaps` how much
    larger the smallest cut that was found is: zero but for rounding, which proves both."""
    nodes = capacity.shape[1]
    flow = np.zeros((top, nodes, nodes))
    level = np.zeros((top + 1, nodes), np.int64)
    pointer = np.zeros((top + 1, nodes), np.int64)
    queue = np.zeros(((top + 1) * nodes, 2), np.int64)
    path = np.zeros(((top + 1) * nodes + 1, 2), np.int64)
    for sink in range(nodes):
        flow[:] = 0.0
        total = 0.0
        while _levels(capacity, flow, top, source, sink, level, queue):
            pointer[:] = 0
            while True:
                sent = _send(capacity, flow, top, source, sink, level, pointer, path)
                if sent <= 0.0:
                    break
                total += sent
        values[sink] = total
        gaps[sink] = _cut(capacity, top, level) - total


@compiled
def _levels(
    capacity: Numbers,
    flow: Numbers,
    top: int,
    source: int,
    sink: int,
    level: NDArray[np.int64],
    queue: NDArray[np.int64],
) -> bool:
    """How many steps each node is from the source, over what is left; −1 for those out of reach."""
    nodes = capacity.shape[1]
    level[:] = -1
    level[top, source] = 0
    queue[0, 0], queue[0, 1] = top, source
    begin, end = 0, 1
    while begin < end:
        layer, token = queue[begin, 0], queue[begin, 1]
        begin += 1
        steps = level[layer, token] + 1
        if layer > 0:
            for other in range(nodes):
                left = capacity[layer - 1, token, other] - flow[layer - 1, token, other]
                if level[layer - 1, other] < 0 and left > _NOTHING:
                    level[layer - 1, other] = steps
                    queue[end, 0], queue[end, 1] = layer - 1, other
                    end += 1
        if layer < top:
            for other in range(nodes):
                if level[layer + 1, other] < 0 and flow[layer, other, token] > _NOTHING:
                    level[layer + 1, other] = steps
                    queue[end, 0], queue[end, 1] = layer + 1, other
                    end += 1
    return bool(level[0, sink] >= 0)


@compiled
def _send(
    capacity: Numbers,
    flow: Numbers,
    top: int,
    source: int,
    sink: int,
    level: NDArray[np.int64],
    pointer: NDArray[np.int64],
    path: NDArray[np.int64],
) -> float:
    """Send what one more shortest path can take; 0 if there is none. Each arc is looked at once until levels change."""
    nodes = capacity.shape[1]
    length = 0
    path[0, 0], path[0, 1] = top, source
    while True:
        layer, token = path[length, 0], path[length, 1]
        if layer == 0 and token == sink:
            break
        advanced = False
        # Arcs 0 to nodes − 1 lead down, the others up.
        while pointer[layer, token] < 2 * nodes:
            arc = pointer[layer, token]
            if arc < nodes:
                below, other = layer - 1, arc
                open_ = layer > 0 and capacity[layer - 1, token, other] - flow[layer - 1, token, other] > _NOTHING
            else:
                below, other = layer + 1, arc - nodes
                open_ = layer < top and flow[layer, other, token] > _NOTHING
            if open_ and level[below, other] == level[layer, token] + 1:
                length += 1
                path[length, 0], path[length, 1] = below, other
                advanced = True
                break
            pointer[layer, token] += 1
        if not advanced:
            if length == 0:
                return 0.0
            length -= 1
            pointer[path[length, 0], path[length, 1]] += 1
    most = np.inf
    for place in range(length):
        layer, token, below, other = path[place, 0], path[place, 1], path[place + 1, 0], path[place + 1, 1]
        if below < layer:
            most = min(most, capacity[below, token, other] - flow[below, token, other])
        else:
            most = min(most, flow[layer, other, token])
    for place in range(length):
        layer, token, below, other = path[place, 0], path[place, 1], path[place + 1, 0], path[place + 1, 1]
        if below < layer:
            flow[below, token, other] += most
        else:
            flow[layer, other, token] -= most
    return most


@compiled
def _cut(capacity: Numbers, top: int, level: NDArray[np.int64]) -> float:
    """What can leave the nodes that the source reaches: no flow is larger."""
    nodes = capacity.shape[1]
    total = 0.0
    for layer in range(1, top + 1):
        for token in range(nodes):
            if level[layer, token] >= 0:
                for other in range(nodes):
                    if level[layer - 1, other] < 0:
                        total += capacity[layer - 1, token, other]
    return total
