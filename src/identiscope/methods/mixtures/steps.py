"""What several methods give: one layer's mixture of tokens, and those of all layers multiplied up."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.parts import StreamParts


@dataclass(frozen=True, eq=False)
class Steps:
    """rolled and step [layer, output, input]; ratio: if there is one, what makes the share of other tokens [layer,
    output], when it is asked for."""

    rolled: Tensor
    step: Tensor
    ratio: Callable[[], Tensor] | None = None

    @property
    def main(self) -> Tensor:
        """What the method is about."""
        return self.rolled

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        cells = ("layer", "output", "input")
        arrays: dict[str, tuple[tuple[str, ...], Tensor]] = {
            "mixture": (cells, self.rolled),
            "step": (cells, self.step),
        }
        if self.ratio is not None:
            arrays["mixing_ratio"] = (cells[:2], self.ratio())
        return arrays


def check_one_stream(parts: StreamParts) -> None:
    """Layers that read another stream as well mix more than these steps say."""
    if any(len(layer.attends) > 1 for layer in parts.layers):
        raise InputError(
            "this stream reads another one in each layer (a decoder reads its encoder), which this method does not"
            " follow; ask for the encoder (stream='encoder'), or for alti, which follows both."
        )
