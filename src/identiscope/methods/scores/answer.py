"""What several scores give: a number for each input, an error bar, and what was promised of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Score:
    """score [input]; error [input], one standard error, if it was estimated; more: further arrays by name with axes.

    whole: what the scores are to add up to, if their method promises that.
    """

    score: Tensor
    error: Tensor | None = None
    whole: float | None = None
    more: Mapping[str, tuple[tuple[str, ...], Tensor]] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)
    axes: Mapping[str, Any] = field(default_factory=dict)

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        arrays: dict[str, tuple[tuple[str, ...], Tensor]] = {"score": (("input",), self.score)}
        if self.error is not None:
            arrays["score_error"] = (("input",), self.error)
        return arrays | dict(self.more)

    def labels(self) -> Mapping[str, Any]:
        """Of axes that only this method has."""
        return self.axes

    @property
    def facts(self) -> dict[str, Any]:
        """What it says of itself; residual: by how much the scores do not add up to what was promised."""
        facts = dict(self.said)
        if self.whole is not None:
            facts |= {"promised_sum": self.whole, "residual": float(self.score.sum()) - self.whole}
        return facts
