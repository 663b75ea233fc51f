"""Relevance propagated through attention."""

from torch import Tensor

from identiscope.methods.outcome_runs import Gradients
from identiscope.methods.scores.answer import Score


def attention_lrp(relevance_gradient: Gradients, embeddings: Tensor) -> Score:
    """s_i = x_i · ∂F/∂x_i with the derivatives of AttnLRP (Achtibat et al. 2024): relevance is passed on, not made.

    Activations pass relevance as it is (identity rule), a product of two states shares it out by halves, norms divide
    by what is held, and softmax has its own derivative. What is shared out is what the outcome's derivative says of the
    logits (`promised_sum`); `residual` says what biases and softmax have taken or added on the way.

    >>> linear = lambda x: (x.sum((1, 2)), torch.ones_like(x))
    >>> attention_lrp(linear, torch.tensor([[1.0, 2.0], [0.0, -1.0]])).facts
    {'promised_sum': 2.0, 'residual': 0.0}
    """
    whole, slope = relevance_gradient(embeddings[None])
    return Score((embeddings.double() * slope[0].double()).sum(-1), whole=float(whole[0]))
