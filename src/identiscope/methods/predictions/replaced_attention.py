"""The published experiments on attention and predictions: permuted, uniform, adversarial, erased by rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.distances import jensen_shannon
from identiscope.methods.attention_runs import (
    Answers,
    AttentionRuns,
    LayerMaps,
    chosen_places,
    free_share,
)
from identiscope.methods.freedom.polytopes import output_radii
from identiscope.methods.predictions.drawing_back import (
    FIRST_STEPS,
    aims_of,
    checked_tolerances,
    distances,
    ways_back,
)
from identiscope.progress import Progress

#: The columns that a Run has: name → meaning.
RUN_COLUMNS = {
    "permuted_moved": "by how much the outcome moves with the weights of every row of the layer permuted (median)",
    "uniform_moved": "by how much it moves with equal weights",
    "adversarial_reach": "how far the layer's rows were moved with the outcome within the tolerance (total variation)",
    "exact_width": "how far the strongest token of a row may go with the same output of its head",
    "epsilon_width": "how far with an output that moves by a share ε of the layer's",
    "erased_share": "share of the largest weights of each row whose loss changes the answer; NaN if none does",
}
#: Shares of a row's keys that are erased, those of the highest rank first.
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
RANKINGS = ("attention", "gradient", "random")


@dataclass(frozen=True, eq=False)
class ReplacedAttention:
    """What became of the outcome in each experiment, by layer."""

    arrays_by_name: dict[str, tuple[tuple[str, ...], Any]]
    layers: list[int]
    facts: dict[str, Any]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """By name, with their axes."""
        return self.arrays_by_name

    def labels(self) -> dict[str, Sequence[Any]]:
        """The layers, what the weights were ranked by, and how many of them were erased."""
        return {"layer": self.layers, "ranking": list(RANKINGS), "share": list(SHARES)}


def replaced_attention(
    attention_runs: AttentionRuns,
    *,
    tolerance: float = 0.05,
    permutations: int = 5,
    layers: Sequence[int] | None = None,
    outcomes: int = 5,
    epsilon: float = 0.01,
    most_rows: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> ReplacedAttention:
    """What becomes of an outcome when the attention of a layer is replaced, as in the published experiments.

    `permuted_moved` is by how much the outcome moves (total variation of the probabilities of all choices, or the size
    of its change where there are none) with the weights of every row permuted among the keys that it sees, the median
    over `permutations` (Jain & Wallace 2019); `uniform_moved` the same with equal weights (Wiegreffe & Pinter 2019);
    `adversarial_reach` and `adversarial_divergence` (Jensen–Shannon, nats) how far other weights are that keep the
    outcome within the tolerance, a lower bound (Jain & Wallace's adversary, found by linear programs and drawn back).
    `erased_moved` [layer, ranking, share] is with the highest-ranked share of each row's keys erased and the others
    scaled up (Serrano & Smith 2019), ranked by weight, by weight times derivative, or at random; `erased_share` the
    smallest share, ranked by weight, that changes the answer, and `ranked_erased_share` by each ranking. `exactly_free`
    is the share of rows from which no path leads to the outcome: of these an experiment says nothing. `exact_width` and
    `epsilon_width` are how far the strongest token of a row may go with the same output of its head, and with one that
    moves by a share ε of the layer's (means): what an experiment changes within that, the layer hardly sees. With
    `_same`: whether the answer is the same.

    tolerance: what the adversary may move the outcome by. permutations: how many. layers: only these. outcomes: how
    many choices the adversary keeps to first order. epsilon: the share of the layer's output for `epsilon_width`.
    most_rows: of longer texts so many rows of a head, spread evenly, stand for all in widths. seed: of what is drawn.

    >>> replaced_attention(runs, layers=[0]).arrays()["uniform_moved"]
    """
    limit = checked_tolerances(tolerance)[0]
    if permutations < 1:
        raise InputError(f"permutations={permutations} was given; expected at least 1.")
    known = attention_runs.layers
    places = chosen_places("layers", layers, [one.layer for one in known])
    if output_radii(epsilon, torch.ones(1)) is None:
        raise InputError("epsilon=0 was given; expected a share above 0. What is exactly free is `exact_width`.")
    if most_rows < 1:
        raise InputError(f"most_rows={most_rows} was given; expected at least 1.")
    _, gradients = attention_runs.gradients(outcomes)
    found: list[dict[str, Any]] = []
    for done, place in enumerate(places):
        if progress is not None:
            progress(done, len(places))
        found.append(_of_layer(attention_runs, place, gradients[place], limit, permutations, seed))
        found[-1]["exactly_free"] = free_share(known[place], attention_runs.free_rows[place])
        found[-1]["exact_width"], found[-1]["epsilon_width"] = attention_runs.widths(place, epsilon, most_rows)
    if progress is not None:
        progress(len(places), len(places))
    erased = ("layer", "ranking", "share")
    axes: dict[str, tuple[str, ...]] = {"erased_moved": erased, "erased_same": erased}
    axes["ranked_erased_share"] = erased[:2]
    arrays: dict[str, tuple[tuple[str, ...], Any]] = {
        name: (axes.get(name, ("layer",)), np.array([one[name] for one in found], dtype=np.float64))
        for name in found[0]
    }
    return ReplacedAttention(arrays, [known[place].layer for place in places], {"tolerance": limit, "epsilon": epsilon})


def _of_layer(
    runs: AttentionRuns, place: int, gradients: Tensor, limit: float, permutations: int, seed: int
) -> dict[str, Any]:
    layer = runs.layers[place]
    generator = torch.Generator().manual_seed(seed + place)
    permuted = [permuted_rows(layer, generator) for _ in range(permutations)]
    uniform = layer.allowed.double() / layer.allowed.sum(-1, keepdim=True).clamp(min=1)
    uniform = uniform * layer.raw.sum(-1, keepdim=True)
    rankings = {
        "attention": layer.raw,
        "gradient": (layer.raw * gradients[0]).abs(),
        "random": torch.rand(layer.raw.shape, generator=generator, dtype=torch.float64).to(layer.raw),
    }
    erased = [erased_rows(layer, rankings[name], share) for name in RANKINGS for share in SHARES]
    maps = [*permuted, uniform, *erased]
    answers = runs.answers(
        {place: lambda numbers: torch.stack([maps[number] for number in numbers.tolist()])}, len(maps)
    )
    moved, same = answers.variation(runs.reference).cpu().numpy(), _same(answers, runs.reference)
    after = permutations + 1
    erased_same = same[after:].reshape(len(RANKINGS), len(SHARES))
    flips = [_first_flip(row) for row in erased_same]
    found = _adversary(runs, place, gradients, limit, seed)
    return {
        "permuted_moved": float(np.median(moved[:permutations])),
        "permuted_same": float(np.mean(same[:permutations])),
        "permuted_distance": float(torch.stack([distances(layer, one).mean() for one in permuted]).mean()),
        "uniform_moved": float(moved[permutations]),
        "uniform_same": float(same[permutations]),
        "uniform_distance": float(distances(layer, uniform).mean()),
        "adversarial_reach": found["reach"],
        "adversarial_divergence": found["divergence"],
        "adversarial_moved": found["moved"],
        "erased_share": flips[0],
        "ranked_erased_share": flips,
        "erased_moved": moved[after:].reshape(len(RANKINGS), len(SHARES)),
        "erased_same": erased_same,
    }


def _same(answers: Answers, reference: Answers) -> np.ndarray:
    same = answers.same_choice(reference)
    return np.full(len(answers.value), np.nan) if same is None else same.double().cpu().numpy()


def _first_flip(same: np.ndarray) -> float:
    """The smallest share whose loss changes the answer; NaN where none does, or there is no answer to change."""
    flipped = [share for share, kept in zip(SHARES, same, strict=True) if kept == 0]
    return flipped[0] if flipped else float("nan")


def _adversary(runs: AttentionRuns, place: int, gradients: Tensor, limit: float, seed: int) -> dict[str, float]:
    layer = runs.layers[place]
    every = torch.ones(layer.raw.shape[:2], dtype=torch.bool, device=layer.raw.device)
    none = torch.zeros(layer.raw.shape[1], dtype=torch.bool, device=layer.raw.device)
    aims = aims_of({place: layer}, {place: gradients}, False, seed)
    ways = ways_back(runs, aims, {place: every}, {place: none}, False, [limit], 1, FIRST_STEPS)
    way, tried, best, _ = ways.farthest(limit)
    maps = way.at(place, torch.tensor([tried.steps[best]]))[0]
    rows = layer.movable.expand(layer.raw.shape[:2])
    divergence = jensen_shannon(layer.raw, maps)[rows]
    reach = way.reach(tried.steps[best])[0]
    return {
        "reach": reach,
        "divergence": float(divergence.mean()) if len(divergence) else 0.0,
        "moved": tried.moved[best],
    }


def permuted_rows(layer: LayerMaps, generator: torch.Generator) -> Tensor:
    """Every row with its weights in another order, among the keys that it sees: [head, query, key]."""
    drawn = torch.rand(layer.raw.shape, generator=generator, dtype=torch.float64).to(layer.raw.device)
    # Keys that are not seen come last, and their weights, which are zero, stay behind all others.
    order = torch.where(layer.allowed, drawn, 2.0).argsort(-1)
    seen = torch.where(layer.allowed, 0.0, 1.0).expand_as(layer.raw).sort(dim=-1, stable=True).indices
    return torch.zeros_like(layer.raw).scatter_(-1, seen, layer.raw.gather(-1, order))


def erased_rows(layer: LayerMaps, ranking: Tensor, share: float) -> Tensor:
    """Every row without the highest-ranked share of its keys, the others scaled up to its sum: at least one goes, and
    at least one stays. A row whose other weights are all zero, or that sees one key alone, stays as it is."""
    counts = layer.allowed.sum(-1)
    lost = torch.minimum((share * counts).round().clamp(min=1), (counts - 1).double())
    rank = (
        torch.where(layer.allowed, ranking, -torch.inf).sort(dim=-1, descending=True, stable=True).indices.argsort(-1)
    )
    left = torch.where(rank < lost[:, None], 0.0, layer.raw)
    total = left.sum(-1, keepdim=True)
    scaled = left / torch.where(total > 0, total, 1.0) * layer.raw.sum(-1, keepdim=True)
    return torch.where(total > 0, scaled, layer.raw)
