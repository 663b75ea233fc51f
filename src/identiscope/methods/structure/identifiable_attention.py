"""Self-attention whose heads can be identified: keys and values of any width, heads side by side or added.

Bhardwaj et al. 2021, "More Identifiable yet Equally Performant Transformers for Text Classification". A usual head has
d_v = d/h, so T = V·H has rank at most d/h and every longer text leaves its attention a null space. Here d_k and d_v
are free of each other and of the number of heads. Heads that are *added* have d_v = d, and then rank(T) is up to
min(n, d): no null space until the text is longer than the model is wide. A small d_k leaves the null space as it is and
leaves less room in it, since the logits of a map that the head can produce have rank at most d_k.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from identiscope.errors import InputError

Combine = Literal["concatenate", "add"]


class IdentifiableSelfAttention(nn.Module):
    """Multi-head self-attention with d_k, d_v and the joining of heads chosen freely. (A base class of torch's.)

    >>> attention = IdentifiableSelfAttention(128, 8, key_width=4, combine="add")
    >>> output, weights = attention(torch.randn(2, 20, 128))
    >>> encoder_layer.self_attn = attention      # in place of the nn.MultiheadAttention of a TransformerEncoderLayer

    It is called as `nn.MultiheadAttention(batch_first=True)` is, and its masks mean the same: True, or -inf where it is
    added, at a key that may *not* be seen. The logits are divided by √d_k, the width that they are a product over.
    combine="concatenate": (A_1·V_1, …, A_h·V_h)·W_O with d_v = d/h unless given, the usual attention.
    combine="add": (A_1·V_1 + … + A_h·V_h)·W_O with d_v = d unless given, one W_O for all heads.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        key_width: int | None = None,
        value_width: int | None = None,
        combine: Combine = "concatenate",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if combine not in get_args(Combine):
            raise InputError(f"combine={combine!r} was given; expected {' or '.join(get_args(Combine))}.")
        if embed_dim < 1 or num_heads < 1 or not 0 <= dropout < 1:
            raise InputError(
                f"width {embed_dim}, {num_heads} heads and dropout {dropout} were given; expected a width and a head at"
                " least, and dropout from 0 to below 1."
            )
        narrow = [name for name, width in (("key_width", key_width), ("value_width", value_width)) if width is None]
        if combine == "add":
            narrow = [name for name in narrow if name != "value_width"]
        if narrow and embed_dim % num_heads:
            raise InputError(f"{num_heads} heads do not divide the width {embed_dim}; give {' and '.join(narrow)}.")
        self.embed_dim, self.num_heads, self.dropout, self.combine = embed_dim, num_heads, dropout, combine
        self.key_width = embed_dim // num_heads if key_width is None else key_width
        usual = embed_dim if combine == "add" else embed_dim // num_heads
        self.value_width = usual if value_width is None else value_width
        if min(self.key_width, self.value_width) < 1:
            raise InputError(f"key width {self.key_width} and value width {self.value_width}; expected 1 at least.")
        # What nn.TransformerEncoderLayer asks of its attention before it takes a fused path that would skip it.
        self.batch_first, self._qkv_same_embed_dim, self.in_proj_bias = True, False, None
        self.query = nn.Linear(embed_dim, num_heads * self.key_width, bias=bias)
        self.key = nn.Linear(embed_dim, num_heads * self.key_width, bias=bias)
        self.value = nn.Linear(embed_dim, num_heads * self.value_width, bias=bias)
        joined = self.value_width * (num_heads if combine == "concatenate" else 1)
        self.output = nn.Linear(joined, embed_dim, bias=bias)
        self._initialise()

    def _initialise(self) -> None:
        # Glorot's bound of a square map, whatever the widths: queries, keys and values begin at the size of the input.
        for layer in (self.query, self.key, self.value):
            nn.init.uniform_(layer.weight, -((3 / self.embed_dim) ** 0.5), (3 / self.embed_dim) ** 0.5)
        # As wide as for heads side by side, so that a sum of h heads is no larger when training begins.
        bound = (self.num_heads * self.value_width) ** -0.5
        nn.init.uniform_(self.output.weight, -bound, bound)
        for layer in (self.query, self.key, self.value, self.output):
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    @staticmethod
    def from_multihead(module: nn.MultiheadAttention) -> "IdentifiableSelfAttention":
        """The same attention as a `nn.MultiheadAttention`, with copies of its weights."""
        if module.bias_k is not None or module.add_zero_attn or not module._qkv_same_embed_dim:
            raise InputError(
                "a nn.MultiheadAttention with add_bias_kv, add_zero_attn, kdim or vdim is no self-attention of this"
                " kind; construct it without them."
            )
        made = IdentifiableSelfAttention(
            module.embed_dim, module.num_heads, dropout=module.dropout, bias=module.in_proj_bias is not None
        ).to(module.in_proj_weight)
        parts = (made.query, made.key, made.value)
        with torch.no_grad():
            for part, weight in zip(parts, module.in_proj_weight.chunk(3), strict=True):
                part.weight.copy_(weight)
            made.output.weight.copy_(module.out_proj.weight)
            if module.in_proj_bias is not None:
                for part, bias in zip(parts, module.in_proj_bias.chunk(3), strict=True):
                    part.bias.copy_(bias)
                made.output.bias.copy_(module.out_proj.bias)
        return made.train(module.training)

    def head_projection(self) -> Tensor:
        """H of every head, [head, d_v, model]; heads that are added share one."""
        return self._output_weight().T.reshape(self.num_heads, self.value_width, self.embed_dim)

    def head_values(self, inputs: Tensor) -> Tensor:
        """V of every head on one text [n, model], [head, n, d_v]: with `head_projection` what `attention_rank` takes.

        >>> attention_rank(attention.head_values(x), attention.head_projection()).spectrum.rank
        """
        if inputs.dim() < 2 or inputs.shape[-1] != self.value.in_features or not inputs.is_floating_point():
            raise InputError(
                f"inputs of shape {list(inputs.shape)} in {str(inputs.dtype).removeprefix('torch.')} were given;"
                f" expected one text [n, {self.value.in_features}] in floating point."
            )
        return self._heads(self.value, inputs[None])[0]

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Output [batch, n, model] and, if needed, the weights before dropout, [batch, n, n] or of each head.

        query: [batch, n, model], or [n, model] for one text. key and value may be left out; if given, as
        nn.MultiheadAttention needs them, they must be the query. A row that may see no key has the output bias alone.
        """
        if any(other is not None and other is not query for other in (key, value)):
            raise InputError("key and value were given and are not the query; this is self-attention, leave them out.")
        if query.dim() not in (2, 3) or query.shape[-1] != self.embed_dim:
            raise InputError(
                f"an input of shape {tuple(query.shape)} was given; expected [batch, n, {self.embed_dim}] or"
                f" [n, {self.embed_dim}]."
            )
        inputs = query if query.dim() == 3 else query[None]
        mask = self._mask(inputs, key_padding_mask, attn_mask)
        queries, keys, values = (self._heads(part, inputs) for part in (self.query, self.key, self.value))
        if is_causal and mask is not None:
            mask = _joined([mask, _causal(inputs)], inputs.dtype)
        context = nn.functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=is_causal and mask is None,
            scale=self.key_width**-0.5,
        )
        # Added heads go side by side through repeated copies of W_O, which adds them: whoever watches linear layers
        # sees what each head gives to the output.
        merged = context.transpose(1, 2).flatten(2)
        output = nn.functional.linear(merged, self._output_weight(), self.output.bias)
        weights = None
        if need_weights:
            weights = self._weights(queries, keys, _causal(inputs) if is_causal and mask is None else mask)
            weights = weights.mean(1) if average_attn_weights else weights
        if query.dim() == 2:
            return output[0], None if weights is None else weights[0]
        return output, weights

    def _output_weight(self) -> Tensor:
        """[model, head·d_v]."""
        return self.output.weight if self.combine == "concatenate" else self.output.weight.repeat(1, self.num_heads)

    def _heads(self, layer: nn.Linear, inputs: Tensor) -> Tensor:
        """[batch, n, model] to [batch, head, n, channel]."""
        return layer(inputs).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]

    def _mask(self, inputs: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """torch's two masks as one that the kernel takes, over [batch, head, query, key]: True where a key is seen."""
        batch, length, _ = inputs.shape
        parts = []
        if padding is not None:
            padding = padding if padding.dim() == 2 else padding[None]
            if padding.shape != (batch, length):
                raise InputError(f"key_padding_mask {tuple(padding.shape)} must be [batch={batch}, n={length}].")
            parts.append(padding[:, None, None, :])
        if mask is not None:
            shapes = ((length, length), (batch * self.num_heads, length, length))
            if tuple(mask.shape) not in shapes:
                raise InputError(
                    f"attn_mask {tuple(mask.shape)} must be one of {shapes}, [n, n] or [batch·head, n, n]."
                )
            parts.append(mask[None, None] if mask.dim() == 2 else mask.unflatten(0, (batch, self.num_heads)))
        return _joined([~part if part.dtype == torch.bool else part for part in parts], inputs.dtype) if parts else None

    def _weights(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        logits: Tensor = queries @ keys.mT * self.key_width**-0.5
        if mask is None:
            return logits.softmax(-1)
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
        return logits.softmax(-1).nan_to_num()  # a row that may see nothing has no weights

    def extra_repr(self) -> str:
        """What torch prints of this module."""
        return (
            f"{self.embed_dim}, {self.num_heads}, key_width={self.key_width}, value_width={self.value_width},"
            f" combine={self.combine!r}, dropout={self.dropout}"
        )


def _causal(inputs: Tensor) -> Tensor:
    """True at the keys up to each query."""
    length = inputs.shape[1]
    return torch.ones(length, length, dtype=torch.bool, device=inputs.device).tril()


def _joined(parts: list[Tensor], dtype: torch.dtype) -> Tensor:
    """One mask of several: of truth values if all are, else of numbers to be added."""
    if all(part.dtype == torch.bool for part in parts):
        seen = parts[0]
        for part in parts[1:]:
            seen = seen & part
        return seen
    added = torch.zeros((), dtype=dtype, device=parts[0].device)
    for part in parts:
        if part.dtype == torch.bool:
            part = torch.zeros(part.shape, dtype=dtype, device=part.device).masked_fill(~part, -torch.inf)
        added = added + part.to(dtype)
    return added
