"""What the contributions of many texts say together: arrays [layer, input, output], one for each text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import ndtr

from identiscope.errors import InputError

Array = NDArray[np.float64]

#: The groups of neighbours of Fig. 4a: (nearest, farthest) distance; the last has no end.
GROUPS: tuple[tuple[int, int | None], ...] = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))


# Points at which the noise of a token's own contribution is taken; its chances are smooth.
NODES = 32


@dataclass(frozen=True, eq=False)
class SelfContribution:
    """Contribution of a token to its own hidden embedding (Fig. 3), by layer.

    median, lower and upper quartile [layer]; not_largest [layer]: share of tokens of which another token is a
    larger contributor; not_largest_noise [layer]: about how much of that the noise of estimates adds, since the
    largest of many noisy numbers is more often another's; values [layer, token]: all of them, text after text.
    """

    median: Array
    lower: Array
    upper: Array
    not_largest: Array
    not_largest_noise: Array
    values: Array


def self_contribution(
    contributions: Sequence[Array],
    keep: Sequence[NDArray[np.bool_]] | None = None,
    errors: Sequence[Array] | None = None,
) -> SelfContribution:
    """c_jj of every token, and whether it is the largest c_ij of that j.

    keep: for each text, which output tokens count; all by default. With more inputs than outputs (encoder and
    decoder) the outputs' own inputs are the last ones. errors: standard errors of estimated contributions.

    >>> self_contribution([np.array([[[0.9, 0.6], [0.1, 0.4]]])]).not_largest
    array([0.5])
    """
    _check(contributions)
    values, beaten, again = [], [], []
    for number, contribution in enumerate(contributions):
        _, inputs, outputs = contribution.shape
        chosen = np.ones(outputs, bool) if keep is None else np.asarray(keep[number], bool)
        places = np.arange(outputs)[chosen]
        own = contribution[:, places + inputs - outputs, places]
        values.append(own)
        beaten.append(contribution[:, :, places].max(1) > own)
        if errors is not None:
            shares, error = contribution[:, :, places], errors[number][:, :, places]
            again.append(_beaten_again(shares, error, places + inputs - outputs) if error.any() else beaten[-1])
    every = np.concatenate(values, 1)
    if every.shape[1] == 0:
        raise InputError("no token is left to summarise; keep at least one.")
    lower, median, upper = np.quantile(every, [0.25, 0.5, 0.75], axis=1)
    not_largest = np.concatenate(beaten, 1).mean(1)
    noise = np.concatenate(again, 1).mean(1) - not_largest if again else np.zeros_like(not_largest)
    return SelfContribution(median, lower, upper, not_largest, noise, every)


def _beaten_again(contribution: Array, error: Array, own: NDArray[np.int64]) -> Array:
    """The chance, [layer, output], that a token is not its own largest contributor once noise like that of the
    estimate is added once more: what it does the second time is about what it did the first.

    own [output]: the input that is the token itself. The noise of a logarithm is taken as normal.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(contribution)
    spread = np.divide(error, contribution, out=np.zeros_like(error), where=contribution > 0)
    places = np.arange(contribution.shape[2])
    nodes, weights = hermegauss(NODES)
    others = np.ones(contribution.shape, bool)
    others[:, own, places] = False
    chance = np.zeros((len(contribution), len(places)))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        ahead = logs[:, own, places] + node * spread[:, own, places]
        with np.errstate(invalid="ignore", divide="ignore"):
            reached = ahead[:, None] - logs
            # Without noise it is ahead or not; a tie is not beaten.
            stays = np.where(spread > 0, ndtr(reached / spread), ~(reached < 0))
        chance += weight * (1 - np.prod(stays, axis=1, where=others))
    return chance


@dataclass(frozen=True, eq=False)
class ByDistance:
    """Contribution by distance of the contributor (Fig. 4a): mean [layer, group], relative [layer, group] with each
    group's sum over layers one, and how many tokens have such a neighbour, count [group]."""

    mean: Array
    relative: Array
    count: NDArray[np.int64]


def by_distance(
    contributions: Sequence[Array],
    groups: Sequence[tuple[int, int | None]] = GROUPS,
    keep: Sequence[NDArray[np.bool_]] | None = None,
) -> ByDistance:
    """Appendix C.2: the mean over a token's neighbours of the group, left and right; then over all tokens; then
    each group normalised over the layers, to show in which layer it contributes most.

    At the edge of a text the mean is over the neighbours there are, and a token without any does not count.
    """
    layers = _check(contributions)
    total, count = np.zeros((layers, len(groups))), np.zeros(len(groups), np.int64)
    for number, contribution in enumerate(contributions):
        distance = np.abs(_offsets(contribution))
        chosen = _kept(keep, number, contribution)
        for group, (near, far) in enumerate(groups):
            inside = (distance >= near) & (distance <= (distance.max() if far is None else far))
            neighbours = inside.sum(0)
            some = (neighbours > 0) & chosen
            means = (contribution * inside).sum(1)[:, some] / neighbours[some]
            total[:, group] += means.sum(1)
            count[group] += int(some.sum())
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    sums = mean.sum(0)
    return ByDistance(mean, np.divide(mean, sums, out=np.full_like(mean, np.nan), where=sums > 0), count)


@dataclass(frozen=True, eq=False)
class ByOffset:
    """Contribution by offset input − output (Fig. 4b, 18): offsets; mean [layer, offset] over the cells at that
    offset; total [layer, offset], their sum as a share of all; count [offset] of cells."""

    offsets: NDArray[np.int64]
    mean: Array
    total: Array
    count: NDArray[np.int64]


def by_offset(
    contributions: Sequence[Array], keep: Sequence[NDArray[np.bool_]] | None = None, *, own: bool = True
) -> ByOffset:
    """Mean contribution of the neighbour at each offset, over the tokens that have one.

    `total` is the paper's "normalized total contribution aggregated over all tokens", which falls off at far
    offsets for the plain reason that few tokens have such neighbours; `mean` does not. own: count the token itself.

    >>> by_offset([np.full((1, 3, 3), 1 / 3)]).mean
    array([[0.33333333, 0.33333333, 0.33333333, 0.33333333, 0.33333333]])
    """
    cells = []
    for number, contribution in enumerate(contributions):
        chosen = _kept(keep, number, contribution)
        offset = _offsets(contribution)
        used = chosen & (own | (offset != 0))
        cells.append((offset[used], contribution[:, used]))
    return _gather_offsets(contributions, cells)


def to_token(
    contributions: Sequence[Array], outputs: Sequence[int], centres: Sequence[int], *, own: bool = True
) -> ByOffset:
    """Contribution to one output token of each text, by the offset of the input from a centre (Fig. 18).

    outputs: e.g. the place of [CLS] in each text; centres: the place of offset 0, e.g. [CLS] itself or [SEP].
    own: count what the token contributes to itself.
    """
    cells = []
    for contribution, output, centre in zip(contributions, outputs, centres, strict=True):
        _, inputs, count = contribution.shape
        places = np.arange(inputs)
        used = own | (places != output + inputs - count)
        cells.append((places[used] - centre, contribution[:, used, output]))
    return _gather_offsets(contributions, cells)


@dataclass(frozen=True, eq=False)
class ByTag:
    """Self contribution by tag (Fig. 26–37): tags, largest median in the last layer first; median, lower and upper
    quartile [layer, tag]; count [tag]."""

    tags: tuple[str, ...]
    median: Array
    lower: Array
    upper: Array
    count: NDArray[np.int64]


def by_tag(contributions: Sequence[Array], tags: Sequence[Sequence[str | None]]) -> ByTag:
    """Self contribution of the tokens of each tag; tokens tagged None are left out."""
    _check(contributions)
    values = self_contribution(contributions).values
    flat = np.array([tag if tag is not None else "" for text in tags for tag in text], dtype=object)
    known = np.array([tag is not None for text in tags for tag in text], bool)
    if len(flat) != values.shape[1]:
        raise InputError(f"{len(flat)} tags were given for {values.shape[1]} tokens; give one for each token.")
    names = sorted(set(flat[known]))
    if not names:
        raise InputError("every token is without a tag; give at least one.")
    parts = [values[:, (flat == name) & known] for name in names]
    order = sorted(range(len(names)), key=lambda place: -np.median(parts[place][-1]))
    quantiles = np.stack([np.quantile(parts[place], [0.25, 0.5, 0.75], axis=1) for place in order], -1)
    counts = np.array([parts[place].shape[1] for place in order], np.int64)
    return ByTag(tuple(names[place] for place in order), quantiles[1], quantiles[0], quantiles[2], counts)


def _gather_offsets(contributions: Sequence[Array], cells: list[tuple[NDArray[np.int64], Array]]) -> ByOffset:
    layers = _check(contributions)
    low, high = min(int(offset.min()) for offset, _ in cells), max(int(offset.max()) for offset, _ in cells)
    total, count = np.zeros((layers, high - low + 1)), np.zeros(high - low + 1, np.int64)
    for offset, values in cells:
        places = (offset - low).ravel()
        count += np.bincount(places, minlength=len(count))
        for layer in range(layers):
            total[layer] += np.bincount(places, weights=values[layer].ravel(), minlength=len(count))
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return ByOffset(np.arange(low, high + 1), mean, total / total.sum(1, keepdims=True), count)


def _offsets(contribution: Array) -> NDArray[np.int64]:
    """Input − output place of every cell, [input, output]."""
    _, inputs, outputs = contribution.shape
    if inputs != outputs:
        raise InputError(f"{inputs} inputs and {outputs} outputs are not the same tokens; distances have no meaning.")
    return np.arange(inputs)[:, None] - np.arange(outputs)[None, :]


def _kept(keep: Sequence[NDArray[np.bool_]] | None, number: int, contribution: Array) -> NDArray[np.bool_]:
    return np.ones(contribution.shape[2], bool) if keep is None else np.asarray(keep[number], bool)


def _check(contributions: Sequence[Array]) -> int:
    """How many layers all of them have."""
    layers = {contribution.shape[0] for contribution in contributions}
    if len(layers) != 1 or any(contribution.ndim != 3 for contribution in contributions):
        raise InputError(
            "contributions are a list of arrays [layer, input, output] with the same layers; given shapes"
            f" {sorted({contribution.shape for contribution in contributions})[:4]}."
        )
    return int(layers.pop())
