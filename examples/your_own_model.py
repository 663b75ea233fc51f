"""A model written by hand, without transformers: captured, verified and analysed like any other.

python examples/your_own_model.py
"""

import torch
from torch import nn

import identiscope


class CausalSelfAttention(nn.Module):
    """Four heads of width 8 on PyTorch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, and project."""
        parts = self.query_key_value(x).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in parts)
        context = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(context.transpose(1, 2).flatten(2))


class Network(nn.Module):
    """Three attention blocks with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(CausalSelfAttention() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the blocks."""
        for block in self.blocks:
            x = x + block(x)
        return x


torch.manual_seed(0)
trace = identiscope.trace(Network(), torch.randn(24, 32))
print(f"{len(trace.sites)} attention sites, verified to {trace.verify().error:.0e}")
result = identiscope.attention_identifiability(trace)
print("dimensions in which each row of the first head can move:", result.simplex_null_dimension[0, 0].values.tolist())
