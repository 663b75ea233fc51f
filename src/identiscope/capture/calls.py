"""What one attention call of a running model was given, and what became of its output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.kernel import Bias, attention_weights, read_mask, same_numbers
from identiscope.errors import CaptureError


@dataclass
class Call:
    """One attention call of one forward pass, a batch as the model ran it. The tensors are the model's own.

    query [batch, head, query, channel]; key and value the same with their own number of heads; context,
    the kernel's output, [batch, head, query, d_v]. projection [head·d_v, model] and output [batch, query,
    model] are what the linear layer behind the kernel holds and returned. value_bias [kv_head, d_v] is what
    the layer that made the values adds to them: zeros where it has no bias, None where it was not found.
    """

    name: str
    query: Tensor
    key: Tensor
    value: Tensor
    bias: Bias
    scale: float
    softcap: float | None
    sinks: Tensor | None
    context: Tensor
    causal: bool
    value_bias: Tensor | None = None
    index: int = -1
    projection: Tensor | None = None
    projection_bias: Tensor | None = None
    projection_input: Tensor | None = None
    output: Tensor | None = None
    problem: str | None = None

    def weights(self, heads: list[int] | None = None) -> Tensor:
        """The attention map in float64, [batch, head, query, key]."""
        count = self.query.shape[1]
        chosen = list(range(count)) if heads is None else heads
        groups = count // self.key.shape[1]
        key = self.key[:, [head // groups for head in chosen]].double()
        position = self.bias.position
        if position is not None and position.shape[-3] != 1:
            position = position[:, chosen]
        allowed = self.bias.allowed
        if allowed is not None and allowed.shape[-3] != 1:
            allowed = allowed[:, chosen]
        return attention_weights(
            self.query[:, chosen].double(),
            key,
            Bias(allowed, self.bias.causal, position),
            scale=self.scale,
            softcap=self.softcap,
            sinks=None if self.sinks is None else self.sinks[chosen],
        )


# (call index, head) → new map [batch, query, key] from the old one, both float64.
Change = Callable[[Tensor], Tensor]
Changes = Mapping[tuple[int, int], Change]


@dataclass
class Watcher:
    """What a `watching` block saw so far, and what it was asked to change."""

    names: dict[nn.Module, str]
    changes: Changes
    visit: Callable[[Call], None] | None
    calls: list[Call] = field(default_factory=list)
    attention_modules_run: int = 0
    count: int = 0
    active: int = 0
    inside_kernel: bool = False
    running: list[nn.Module] = field(default_factory=list)
    frames: list[Any] = field(default_factory=list)
    linears_since: list[str] = field(default_factory=list)
    _pending: Call | None = None
    # Where each linear layer since the last call put its output, with its bias and width.
    _outputs: dict[int, tuple[Tensor | None, int]] = field(default_factory=dict)
    _allowed: list[Tensor] = field(default_factory=list)
    _masks: dict[tuple[int, int, bool], tuple[Any, Bias]] = field(default_factory=dict)

    def read_mask(self, mask: Tensor | None, position: Tensor | None, causal: bool) -> Bias:
        """`read_mask`, once for a mask that many layers share; keeps the mask so that its id stays its own."""
        key = (id(mask), id(position), causal)
        if key not in self._masks:
            self._masks[key] = ((mask, position), read_mask(mask, position, causal))
        return self._masks[key][1]

    def shared(self, allowed: Tensor) -> Tensor | None:
        """The same tensor for masks with the same cells, so that they are kept once; None if all may be seen."""
        if bool(allowed.all()):
            return None
        if torch.equal(allowed, allowed[:, :1].expand_as(allowed)):
            allowed = allowed[:, :1]
        for kept in self._allowed:
            if kept.shape == allowed.shape and torch.equal(kept, allowed):
                return kept
        self._allowed.append(allowed)
        return allowed

    def changed(self, index: int) -> dict[int, Change]:
        """The changes asked for at this call, by head."""
        return {head: change for (call, head), change in self.changes.items() if call == index}

    def began(self, call: Call) -> None:
        """Take in a new call; what its output runs into is still to come."""
        self.finish()
        if call.value_bias is None:
            call.value_bias = self._bias_of(call.value)
        self._outputs.clear()
        call.index = self.count
        self.count += 1
        self._pending = call
        self.linears_since = []

    def met_linear(self, given: Tensor, weight: Tensor, bias: Tensor | None, returned: Tensor) -> None:
        """A linear map ran, weight [in, out]: if it took the last call's context, it is the output projection."""
        self._outputs[returned.untyped_storage().data_ptr()] = (bias, returned.shape[-1])
        call = self._pending
        if call is None:
            return
        if call.projection is not None:
            first = call.projection_input
            if first is not None and first.data_ptr() == given.data_ptr() and first.shape == given.shape:
                call.problem = (
                    "two linear layers read the attention output, as a LoRA adapter does: merge it into the"
                    " weights first (peft: `model.merge_and_unload()`)"
                )
            return
        batch, heads, queries, width = call.context.shape
        self.linears_since.append(f"{tuple(given.shape)} → {returned.shape[-1]}")
        if given.numel() != call.context.numel() or weight.shape[0] != heads * width:
            return
        merged = call.context.transpose(1, 2).reshape(batch, queries, heads * width)
        flat = given.reshape(batch, queries, heads * width)
        if flat.data_ptr() != merged.data_ptr() and not same_numbers(flat, merged):
            return
        call.projection, call.projection_bias, call.projection_input = weight, bias, given
        call.output = returned.reshape(batch, queries, -1)

    def _bias_of(self, value: Tensor) -> Tensor | None:
        """The bias in the values [batch, kv_head, key, d_v], if they are a view of a linear layer's output."""
        found = self._outputs.get(value.untyped_storage().data_ptr())
        _, heads, _, width = value.shape
        if found is None or value.stride(-1) != 1:
            return None
        bias, row = found
        if bias is None:
            return value.new_zeros(heads, width)
        # Where in a row of that output the head's channels begin, be it of values alone or of query, key and value.
        begins = [(value.storage_offset() + head * value.stride(1)) % row for head in range(heads)]
        if any(begin + width > row for begin in begins):
            return None
        return torch.stack([bias[begin : begin + width] for begin in begins])

    def finish(self) -> None:
        """The last call is over: hand it on."""
        call, self._pending = self._pending, None
        if call is None:
            return
        if call.projection is None and call.problem is None:
            seen = ", ".join(self.linears_since[:4]) or "none"
            call.problem = (
                f"its output {tuple(call.context.shape)} [batch, head, query, channel] reached no linear layer"
                f" unchanged; the linear layers that followed it read (shape → width): {seen}"
            )
        call.projection_input = None
        if self.visit is None:
            self.calls.append(call)
        else:
            self.visit(call)


def change_context(call: Call, context: Tensor, changes: Mapping[int, Change]) -> Tensor:
    """The kernel's context plus (A' − A)·V at the changed heads: exactly the context where A' = A."""
    heads = sorted(changes)
    if heads[-1] >= call.query.shape[1]:
        raise CaptureError(f"{call.name} has {call.query.shape[1]} heads; there is no head {heads[-1]}.")
    groups = call.query.shape[1] // call.value.shape[1]
    weights = call.weights(heads)
    context = context.clone()
    for position, head in enumerate(heads):
        before = weights[:, position]
        after = changes[head](before)
        if after.shape != before.shape:
            raise CaptureError(
                f"the new map for head {head} of {call.name} has shape {tuple(after.shape)};"
                f" expected {tuple(before.shape)} [batch, query, key]."
            )
        difference = (after.double() - before) @ call.value[:, head // groups].double()
        context[:, head] += difference.to(context.dtype)
    return context
