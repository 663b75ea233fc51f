"""Gradients averaged over noise."""

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.outcome_runs import Gradients
from identiscope.methods.scores.answer import Score
from identiscope.progress import Progress

#: Gradients that are taken at a time.
_AT_A_TIME = 16


def smooth_gradient(
    gradient: Gradients,
    embeddings: Tensor,
    *,
    samples: int = 16,
    spread: float = 0.15,
    budget: int = 240,
    seed: int = 0,
    progress: Progress | None = None,
) -> Score:
    """s_i = x_i · mean over noise of ∂F(x + ε)/∂x_i, ε normal (Smilkov et al. 2017), with a standard error.

    samples: how many gradients. spread: the standard deviation of the noise, as a share of the range of the
    embeddings' entries. budget: at most so many passes, a gradient being three: then there are fewer samples. seed: of
    the noise.

    >>> smooth_gradient(lambda x: (x.sum((1, 2)), torch.ones_like(x)), torch.tensor([[1.0, 2.0], [0.0, -1.0]])).score
    tensor([ 3., -1.], dtype=torch.float64)
    """
    if samples < 2 or not spread > 0:
        raise InputError(
            f"samples={samples} and spread={spread} were given; expected at least 2, and a positive share."
        )
    if budget < 6:
        raise InputError(f"budget={budget} was given; two gradients, the least for an error bar, take 6 passes.")
    samples = min(samples, budget // 3)
    deviation = spread * float(embeddings.max() - embeddings.min())
    generator = torch.Generator().manual_seed(seed)
    gradients: list[Tensor] = []
    while sum(map(len, gradients)) < samples:
        count = min(_AT_A_TIME, samples - sum(map(len, gradients)))
        noise = torch.randn(count, *embeddings.shape, generator=generator, dtype=torch.float64).to(embeddings)
        _, slopes = gradient(embeddings + deviation * noise)
        gradients.append((embeddings.double() * slopes.double()).sum(-1))
        if progress is not None:
            progress(sum(map(len, gradients)), samples)
    every = torch.cat(gradients)
    return Score(every.mean(0), every.std(0) / samples**0.5)
