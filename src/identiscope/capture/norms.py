"""Find the sum of embeddings that some models norm before the first layer reads it."""

from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.forward import Forward
from identiscope.capture.twin import original


class EmbeddingNorms:
    """Sees the norms among the embedding modules, to find the sum that enters one of them."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.seen: list[tuple[nn.Module, Tensor, Tensor]] = []
        self.handles: list[Any] = []

    def __enter__(self) -> "EmbeddingNorms":
        for name, inner in self.module.named_modules():
            if "norm" in type(inner).__name__.lower() and "emb" in name.lower():
                self.handles.append(inner.register_forward_hook(self._returned))
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _returned(self, inner: nn.Module, args: Any, output: Any) -> None:
        if args and isinstance(output, Tensor):
            self.seen.append((inner, args[0], output))

    def of(self, states: tuple[Tensor, ...]) -> tuple[nn.Module, Tensor] | None:
        """The norm whose output is the stream's input embeddings, and what entered it."""
        for inner, given, output in self.seen:
            if states and output.shape == states[0].shape and torch.equal(output, states[0].to(output.device)):
                return inner, given
        return None

    def found(self, result: Forward) -> dict[str, nn.Module]:
        """The norm of each stream that has one, the user's own."""
        norms = {stream: self.of(states) for stream, states in result.hidden_states.items()}
        return {stream: original(pair[0]) for stream, pair in norms.items() if pair is not None}
