"""What the layers of a model hand on, seen and changed while it runs."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from identiscope.capture.anatomy import blocks_around
from identiscope.capture.watch.trying import first_tensor, with_first_tensor

#: From the number of a layer and what it returns, [text, token, model], to what it is to return.
Change = Callable[[int, Tensor], Tensor]


class LayerStates:
    """A block in which what every layer returns goes through a function. Layers are numbered as they are called."""

    def __init__(self, module: nn.Module, sites: Sequence[str], change: Change) -> None:
        self.blocks = set(blocks_around(module, sites).values())
        self.change = change
        self.count = 0
        self._handles: list[Any] = []

    def __enter__(self) -> "LayerStates":
        self._handles = [block.register_forward_hook(self._returned) for block in self.blocks]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def _returned(self, module: nn.Module, given: Any, output: Any) -> Any:
        states, number = first_tensor(output), self.count
        self.count += 1
        return output if states is None else with_first_tensor(output, self.change(number, states))
