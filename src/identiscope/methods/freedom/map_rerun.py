"""What another map of a head changes in the running model, beside its own and a random one as far away."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from identiscope.linalg.distances import total_variation
from identiscope.linalg.random_rows import random_rows

if TYPE_CHECKING:
    from identiscope.capture import Site, Trace


def changes_in_the_run(trace: "Trace", site: "Site", head: int, changed: Tensor, seed: int = 0) -> dict[str, float]:
    """How much the last hidden states and the logits, if there are any, move with a map [query, key] of a head: the
    largest difference over the largest value, from the run in which the head's own map is put back. And by how much
    with random rows as far away (`…_at_random`), on the same keys."""
    runner, own = trace.runner(), site.attention(head)
    given = {name: trace.streams[name].embeddings[None].detach() for name in trace.replay.entries}
    raw = own.to(changed)
    far = random_rows(raw, site.allowed_keys(head).to(changed.device), total_variation(changed, raw), seed)
    runs = []
    for cells in (raw, changed, far):

        def put(index: int, maps: Tensor, cells: Tensor = cells) -> Tensor:
            if index != site.index:
                return maps
            new = maps.clone()
            new[:, head] = cells.to(new)
            return new

        with torch.no_grad():
            runs.append(runner(given, rule=runner.rule(put)))
    moved: dict[str, float] = {}
    for run, words in zip(runs[1:], ("", "_at_random"), strict=True):
        states = [
            _change(run.hidden_states[name][-1], states[-1]) for name, states in runs[0].hidden_states.items() if states
        ]
        if states:
            moved[f"hidden_states_moved{words}"] = max(states)
        if run.logits is not None and runs[0].logits is not None:
            moved[f"logits_moved{words}"] = _change(run.logits, runs[0].logits)
    return moved


def _change(now: Tensor, before: Tensor) -> float:
    """The largest difference over the largest value."""
    size = float(before.double().abs().max())
    return float((now.double() - before.double()).abs().max()) / (size or 1.0)
