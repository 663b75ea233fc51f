"""ALTI and ALTI+ by loops, in NumPy, from what a plain model did."""

import numpy as np

from plain_models import Attended, Ran
from plain_parts import shares, vectors


def own_contributions(attended: Attended) -> np.ndarray:
    """c_ij = max(0, ‖y_i‖₁ − ‖y_i − T_i(x_j)‖₁) / Σ_k …, the stream in T_i(x_i) (Ferrando et al. 2022, eq. 7 and 8)."""
    parts, after = vectors(attended), attended.after.detach().numpy()
    found = np.zeros(parts.shape[:2])
    for i in range(parts.shape[0]):
        for j in range(parts.shape[1]):
            found[i, j] = max(0.0, np.abs(after[i]).sum() - np.abs(after[i] - parts[i, j]).sum())
    return shares(found)


def cross_contributions(attended: Attended) -> tuple[np.ndarray, np.ndarray]:
    """Of the encoder's states [query, key], and of the stream [query]: all of them together are one (ALTI+)."""
    parts, after = vectors(attended, stream=False), attended.after.detach().numpy()
    found = np.zeros((parts.shape[0], parts.shape[1] + 1))
    for i in range(parts.shape[0]):
        own = attended.carried_stream(attended.before[i], i).detach().numpy()
        for j, part in enumerate([*parts[i], own]):
            found[i, j] = max(0.0, np.abs(after[i]).sum() - np.abs(after[i] - part).sum())
    found = shares(found)
    return found[:, :-1], found[:, -1]


def rolled(plain: Ran, encoder: np.ndarray | None = None) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What tokens are made of after each layer [token, input], and before each; encoder: what its last states are.

    The inputs of a decoder are those of the encoder, then its own.
    """
    count = len(plain.embeddings)
    mixture = np.eye(count)
    if encoder is not None:
        mixture = np.concatenate([np.zeros((count, encoder.shape[1])), mixture], 1)
    after, before = [], []
    for layer in plain.layers:
        before.append(mixture)
        own = own_contributions(layer.attended[0])
        now = np.zeros_like(mixture)
        for i in range(count):
            for k in range(count):
                now[i] += own[i, k] * mixture[k]
        if encoder is not None:
            read, stays = cross_contributions(layer.attended[1])
            for i in range(count):
                now[i] *= stays[i]
                for k in range(read.shape[1]):
                    now[i, : encoder.shape[1]] += read[i, k] * encoder[k]
        mixture = now
        after.append(mixture)
    return after, before
