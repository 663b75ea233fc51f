"""Train the probes of all layers, folds and learning rates together, each until it stops getting better."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.tokens.neighbours import Metric
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.probes import (
    Kind,
    Moments,
    Probe,
    ProbeSet,
    Recipe,
    adam_step,
    check_kind,
    gradients,
    start_weights,
    training_targets,
    zero_moments,
)
from identiscope.methods.tokens.sentences import Split
from identiscope.progress import Progress, tell

#: Probes whose weights have together about so many numbers take their steps in one batched product: more would
#: only drive each other out of the processor's cache.
TOGETHER = 1_000_000


@dataclass(eq=False)
class _Member:
    """One probe in training: of which layer, fold and learning rate, and how it fared."""

    layer: int
    fold: int
    rate: float
    best: float = -1.0
    best_epoch: int = 0
    history: list[float] = field(default_factory=list)
    running: bool = True


@dataclass(frozen=True, eq=False)
class _Group:
    """Members of one fold that take their steps together, and their weights and moments stacked."""

    members: list[_Member]
    weights: dict[str, Tensor]
    moments: Moments
    best: dict[str, Tensor]


def fit_probes(
    pairs: Pairs,
    splits: Sequence[Split],
    *,
    kind: Kind = "linear",
    loss: Metric = "cosine",
    recipe: Recipe | None = None,
    progress: Progress | None = None,
) -> ProbeSet:
    """Train a probe for every layer and split by the paper's recipe (section 4.1, appendix B.1).

    progress: called with how many probes are done, and of how many.

    Batches depend on the seed, the fold and the epoch alone: layers and learning rates see the same ones, and
    two runs give the same probes.
    """
    recipe = recipe or Recipe()
    check_kind(kind, loss)
    if kind == "naive" or not splits:
        raise InputError("give a linear or mlp probe and at least one split; the naive probe has nothing to fit.")
    groups = _groups(pairs, len(splits), kind, recipe)
    everyone = [member for group in groups for member in group.members]
    kept: dict[int, dict[str, Tensor]] = {}
    for epoch in range(recipe.maximum_epochs):
        for group in groups:
            split = splits[group.members[0].fold]
            _run_epoch(group, pairs, split, kind, loss, epoch, recipe)
            _validate(group, pairs, split, kind, loss, epoch, recipe)
        if recipe.race:
            _race(everyone, recipe)
        if epoch + 1 == recipe.maximum_epochs:
            for member in everyone:
                member.running = False
        groups = [left for group in groups if (left := _without_finished(group, kept)) is not None]
        if progress is not None:
            running = sum(member.running for member in everyone)
            words = f"epoch {epoch + 1}, {running} of {len(everyone)} probes in training"
            tell(progress, words, len(everyone) - running, len(everyone))
        if not groups:
            break
    return _chosen(everyone, kept, kind, loss, len(pairs.states), len(splits))


def _groups(pairs: Pairs, folds: int, kind: Kind, recipe: Recipe) -> list[_Group]:
    groups = []
    for fold in range(folds):
        members = [_Member(layer, fold, rate) for layer in range(len(pairs.states)) for rate in recipe.learning_rates]
        starts = [
            # All learning rates of a layer and fold start alike, so that only the rate differs.
            start_weights(kind, pairs.states[member.layer].shape[1], pairs.target(member.layer).shape[1], recipe,
                          _seed(recipe.seed, fold, member.layer))
            for member in members
        ]  # fmt: skip
        size = max(1, TOGETHER // sum(weight.numel() for weight in starts[0].values()))
        for begin in range(0, len(members), size):
            part = slice(begin, begin + size)
            # Drawn in float32, and then in the precision of the states, so that all begin at the same numbers.
            precision = pairs.states[0].dtype
            stacked = {name: torch.stack([start[name] for start in starts[part]]).to(precision) for name in starts[0]}
            best = {name: weight.clone() for name, weight in stacked.items()}
            groups.append(_Group(members[part], stacked, zero_moments(stacked), best))
    return groups


def _seed(*parts: int) -> int:
    """One seed from several numbers, the same on every machine."""
    mixed = 0
    for part in parts:
        mixed = (mixed * 1_000_003 + part + 1) % (2**62)
    return mixed


def _run_epoch(group: _Group, pairs: Pairs, split: Split, kind: Kind, loss: Metric, epoch: int, recipe: Recipe) -> None:
    rows = pairs.train_rows(split)
    generator = torch.Generator().manual_seed(_seed(recipe.seed, group.members[0].fold, epoch))
    order = rows[torch.randperm(len(rows), generator=generator)]
    precision = next(iter(group.weights.values())).dtype
    rates = torch.tensor([member.rate for member in group.members], dtype=precision)[:, None, None]
    layers = sorted({member.layer for member in group.members})
    own = torch.tensor([layers.index(member.layer) for member in group.members])
    alone = len(layers) == len(group.members)
    steps = -(-len(rows) // recipe.batch_size)
    for number, batch in enumerate(order.split(recipe.batch_size)):
        hidden = torch.stack([pairs.states[layer].index_select(0, batch) for layer in layers])
        goal = training_targets(loss, _gather_targets(pairs, layers, batch + pairs.offset))
        if not alone:
            hidden, goal = hidden[own], goal[own] if len(goal) > 1 else goal
        slopes = gradients(kind, loss, group.weights, hidden, goal)
        adam_step(group.weights, slopes, group.moments, rates, epoch * steps + number + 1, recipe)


def _gather_targets(pairs: Pairs, layers: list[int], rows: Tensor) -> Tensor:
    """[layer, token, channel]; one layer if all have the same targets."""
    chosen = layers if len(pairs.targets) > 1 else layers[:1]
    return torch.stack([pairs.target(layer).index_select(0, rows) for layer in chosen])


def _validate(group: _Group, pairs: Pairs, split: Split, kind: Kind, loss: Metric, epoch: int, recipe: Recipe) -> None:
    for index, member in enumerate(group.members):
        probe = Probe(kind, loss, {name: weight[index] for name, weight in group.weights.items()})
        rate = validation_rate(probe, pairs, member.layer, member.fold, split)
        # Of epochs with equal rates the last is kept, whose loss is lowest; only a better rate renews the patience.
        if rate >= member.best:
            for name, weight in group.weights.items():
                group.best[name][index] = weight[index]
        if rate > member.best:
            member.best, member.best_epoch = rate, epoch
        member.history.append(member.best)
        member.running = epoch - member.best_epoch < recipe.patience


def validation_rate(probe: Probe, pairs: Pairs, layer: int, fold: int, split: Split) -> float:
    """The share of the validation tokens identified, by the metric the probe is trained for."""
    identified = counted = 0
    for rows, lookup in pairs.kept_lookups(layer, fold, split.validation, probe.loss):
        neighbours = lookup.nearest(probe(pairs.states[layer].index_select(0, rows)))
        identified += int(neighbours.identified.sum())
        counted += int(neighbours.counted.sum())
    return identified / max(counted, 1)


def _race(members: list[_Member], recipe: Recipe) -> None:
    leaders: dict[tuple[int, int], float] = {}
    for member in members:
        if not member.running:
            key = (member.layer, member.fold)
            leaders[key] = max(leaders.get(key, -1.0), member.best)
    for member in members:
        leader = leaders.get((member.layer, member.fold))
        if member.running and leader is not None and len(member.history) > recipe.patience:
            gained = member.best - member.history[-1 - recipe.patience]
            member.running = member.best + gained > leader


def _without_finished(group: _Group, kept: dict[int, dict[str, Tensor]]) -> _Group | None:
    """The group without its finished members, whose best weights are put aside."""
    going = [index for index, member in enumerate(group.members) if member.running]
    if len(going) == len(group.members):
        return group
    for index, member in enumerate(group.members):
        if not member.running:
            kept[id(member)] = {name: weight[index].clone() for name, weight in group.best.items()}

    def left(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: array[going] for name, array in arrays.items()}

    if not going:
        return None
    return _Group(
        [group.members[index] for index in going],
        left(group.weights),
        replace(group.moments, first=left(group.moments.first), second=left(group.moments.second)),
        left(group.best),
    )


def _chosen(
    members: list[_Member], kept: dict[int, dict[str, Tensor]], kind: Kind, loss: Metric, layers: int, folds: int
) -> ProbeSet:
    """The best learning rate of each layer and fold."""
    best: dict[tuple[int, int], _Member] = {}
    for member in members:
        earlier = best.get((member.layer, member.fold))
        if earlier is None or member.best > earlier.best:
            best[member.layer, member.fold] = member
    order = [[best[layer, fold] for fold in range(folds)] for layer in range(layers)]
    first = kept[id(order[0][0])]
    return ProbeSet(
        kind,
        loss,
        {name: torch.stack([torch.stack([kept[id(m)][name] for m in row]) for row in order]) for name in first},
        torch.tensor([[len(member.history) for member in row] for row in order]),
        torch.tensor([[member.rate for member in row] for row in order], dtype=torch.float64),
        torch.tensor([[member.best for member in row] for row in order], dtype=torch.float64),
    )
