"""Gradient times input."""

from torch import Tensor

from identiscope.methods.outcome_runs import Gradients
from identiscope.methods.scores.answer import Score


def gradient_input(gradient: Gradients, embeddings: Tensor) -> Score:
    """s_i = x_i · ∂F/∂x_i: how much the outcome F would lose to first order if the token's embedding vanished.

    >>> gradient_input(lambda x: (x.sum((1, 2)), torch.ones_like(x)), torch.tensor([[1.0, 2.0], [0.0, -1.0]])).score
    tensor([ 3., -1.], dtype=torch.float64)
    """
    _, slope = gradient(embeddings[None])
    return Score((embeddings.double() * slope[0].double()).sum(-1))
