"""Numbers of every head, by name."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class HeadNumbers:
    """Some numbers of every head, [head] each."""

    numbers: dict[str, Tensor]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        return {name: (("head",), values) for name, values in self.numbers.items()}
