"""Made-up results of models that behave as the paper says, and of models in which there is nothing to find."""

from collections.abc import Iterable

import numpy as np
import xarray as xr

from identiscope.views.plots.figures import Claim

LAYERS, TEXTS = 12, 24


def holding(claims: Iterable[Claim]) -> dict[str, bool | None]:
    return {claim.statement: claim.holds for claim in claims}


# Contributions [layer, input, output] of texts of many lengths.


def lengths(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(24, 60, TEXTS)


def normalised(cells: np.ndarray) -> np.ndarray:
    return cells / cells.sum(-2, keepdims=True)


def local(width: float, own: float, length: int) -> np.ndarray:
    """A kernel that falls with distance, and so much of the token itself, [input, output]."""
    distance = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    context = normalised(np.where(distance > 0, np.exp(-distance / width), 0.0))
    return np.where(distance > 0, (1 - own) * context, own)


def as_published(seed: int = 0) -> list[np.ndarray]:
    """Self contribution falls, context reaches farther with depth, and the first token looks at the middle."""
    generator = np.random.default_rng(seed)
    texts = []
    for length in lengths(seed):
        layers = []
        for layer in range(LAYERS):
            cells = local(2 + layer, 0.32 - 0.02 * layer, length)
            # From the fourth layer on some tokens are outweighed by a neighbour, ever more of them.
            if layer > 2:
                for token in generator.permutation(length)[: int(0.035 * (layer - 2) * length)]:
                    other = (token + 1) % length
                    cells[[token, other], token] = cells[[other, token], token]
            offset = np.abs(np.arange(length) - length // 2)
            middle = np.where(offset == 1, 3.0, np.exp(-offset / 6)) + 0.2 * (np.arange(length) > length // 2)
            middle[0] = 0.0
            cells[:, 0] = 0.8 * middle / middle.sum()
            cells[0, 0] = 0.2
            layers.append(cells * generator.uniform(0.99, 1.01, cells.shape))
        texts.append(normalised(np.stack(layers)))
    return texts


def uniform_mixing() -> list[np.ndarray]:
    return [np.full((LAYERS, length, length), 1 / length) for length in lengths()]


def one_local_kernel(own: float = 0.3) -> list[np.ndarray]:
    """The same in every layer: nothing changes with depth, and the first token looks next to itself."""
    return [np.stack([local(4.0, own, length)] * LAYERS) for length in lengths()]


def random_mixing(seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [normalised(generator.exponential(size=(LAYERS, length, length))) for length in lengths()]


# Rates of probes [probe, layer] with those of resampled sentences.


def rates(values: dict[str, np.ndarray], noise: float = 0.003, axes: tuple[str, ...] = ("layer",), **more: object):
    """A result with `keep_resamples`; noise: what drawing other sentences changes, the same for all layers."""
    generator = np.random.default_rng(0)
    stacked = np.stack(list(values.values()))
    shared = generator.normal(0, noise, 400)
    own = generator.normal(0, noise / 3, (*stacked.shape, 400))
    found = xr.Dataset(
        {
            "rate": (("probe", *axes), stacked),
            "resampled_rate": (("probe", *axes, "resample"), stacked[..., None] + shared + own),
            "sentences": (("probe", *axes), np.full(stacked.shape, 60)),
            "random_guess": ("layer", [0.017] * stacked.shape[-1]),
        },
        {"probe": list(values)},
    )
    return found.assign(more)


# Attention between types of token.


def types(kept: dict[str, float], raw: dict[str, float], texts: int = TEXTS, noise: float = 0.01) -> xr.Dataset:
    """Raw attention to each type (its peak in the middle layers) and the share of it that is effective."""
    generator = np.random.default_rng(0)
    names = ["[CLS]", "[SEP]", ". or ,", "other"]
    counts = np.array([40, 1, 2, 4, 33])
    shape = 1 + 0.5 * np.exp(-((np.arange(LAYERS) - LAYERS / 2) ** 2) / 4)
    level = np.array([raw[name] for name in names]) * shape[:, None]
    share = np.array([kept[name] for name in names])
    axes = ("text", "layer", "from", "to")

    def spread(values: np.ndarray) -> np.ndarray:
        drawn = generator.normal(1, noise, (texts, LAYERS, len(counts), len(names)))
        return np.broadcast_to(values[None, :, None], drawn.shape) * drawn

    return xr.Dataset(
        {
            "raw_of_text": (axes, spread(level)),
            "effective_of_text": (axes, spread(level * share)),
            "queries": (("text", "from"), np.tile(counts, (texts, 1))),
        },
        {"from": ["all", *names], "to": names},
    )
