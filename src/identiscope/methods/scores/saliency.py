"""The length of the gradient."""

from torch import Tensor

from identiscope.linalg.decomposition import shares
from identiscope.methods.outcome_runs import Gradients
from identiscope.methods.scores.answer import Score


def saliency(gradient: Gradients, embeddings: Tensor) -> Score:
    """s_i = ‖∂F/∂x_i‖₂: how fast the outcome F can change with a token's embedding (Simonyan et al. 2014).

    `share` is s_i / Σ_k s_k: Hidden Token Attribution (Brunner et al. 2020, eq. 11) with the last hidden state replaced
    by the outcome.

    >>> saliency(lambda x: (x.sum((1, 2)), torch.ones_like(x)), torch.zeros(2, 4)).score
    tensor([2., 2.], dtype=torch.float64)
    """
    _, slope = gradient(embeddings[None])
    lengths = slope[0].double().norm(dim=-1)
    return Score(lengths, more={"share": (("input",), shares(lengths[None])[0])})
