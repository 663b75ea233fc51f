"""Attention times the gradient of the outcome."""

from torch import Tensor


def gradient_attention(attention: Tensor, attention_gradient: Tensor) -> Tensor:
    """A ⊙ ∂F/∂A: to first order, what the outcome F owes to each weight; signs kept (Barkan et al. 2021, §3).

    Everything that follows the layer is computed anew for the derivative, later attention too.

    >>> gradient_attention(torch.tensor([[[0.5, 0.5]]]), torch.tensor([[[2.0, -1.0]]]))
    tensor([[[ 1.0000, -0.5000]]], dtype=torch.float64)
    """
    return attention.double() * attention_gradient.double()
