"""Shortened texts (Tan et al. 2023): what the outcome loses, and what time is won, by which tokens are kept."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.ask import ask
from identiscope.capture.outcome.choices import place_of_answer
from identiscope.capture.trace import Trace
from identiscope.errors import IdentiscopeError
from identiscope.linalg.devices import as_numpy
from identiscope.methods.trace_fields import runs_of
from identiscope.results import make_result
from identiscope.runs.heads.means import Means

#: How many of the tokens that may go are kept.
SHARES = (0.9, 0.75, 0.5, 0.25)
#: By what they are ranked: raw attention received in the first layer, effective attention received, and at random.
RANKINGS = ("attention", "effective", "random")
#: Draws of the random ranking for each text.
DRAWS = 4
#: A token from whose state the outcome is read for more than this share stays.
_READ = 0.5


@dataclass(eq=False)
class Shortening:
    """Sums over texts. moved [ranking, share]: the size of the outcome's change; same: whether the answer stays; right:
    whether it is the text's label, `right_whole` of the whole text; seconds [share + 1]: CPU time of a pass, that of
    the whole text first."""

    outcome: Callable[[int], Any]
    seed: int = 0
    label: Callable[[int], str | None] = lambda number: None
    moved: Means = field(default_factory=Means)
    same: Means = field(default_factory=Means)
    right: Means = field(default_factory=Means)
    right_whole: Means = field(default_factory=Means)
    against: Means = field(default_factory=Means)
    seconds: list[float] = field(default_factory=lambda: [0.0] * (len(SHARES) + 1))
    failed: list[str] = field(default_factory=list)

    def add(self, trace: Trace, number: int) -> None:
        """One text; one that cannot be shortened, or has no outcome, is counted and left out."""
        try:
            runs = runs_of(trace, self.outcome(number))
            movable = free_tokens(trace, runs.outcome.read)
            if int(movable.sum()) < 2:
                self.failed.append(f"text {number}: fewer than two tokens may go")
                return
            moved, same, right = (np.full((len(RANKINGS), len(SHARES)), np.nan) for _ in range(3))
            label = self.label(number)
            truth = None if label is None else place_of_answer(trace, label)
            whole = runs.answers_without(torch.ones(1, len(trace.main), dtype=torch.bool))[1]
            for place, ranking in enumerate(RANKINGS):
                scores = self._scores(trace, ranking, number)
                kept = torch.stack([kept_tokens(one, movable, share) for share in SHARES for one in scores])
                values, choices = runs.answers_without(kept)
                changes = np.abs(as_numpy(values.double()) - runs.outcome.value)
                moved[place] = changes.reshape(len(SHARES), -1).mean(1)
                if choices is not None and whole is not None:
                    for answer, found in ((int(whole.argmax()), same), (truth, right)):
                        if answer is not None:
                            hits = as_numpy((choices.argmax(-1) == answer).double())
                            found[place] = hits.reshape(len(SHARES), -1).mean(1)
                if ranking == "attention":
                    self._time(runs.without, kept)
        except IdentiscopeError as error:
            self.failed.append(f"text {number}: {error}")
            return
        self.moved.add(moved)
        self.same.add(same)
        self.right.add(right)
        hit = None if whole is None or truth is None else float(int(whole.argmax()) == truth)
        self.right_whole.add(np.asarray(np.nan if hit is None else hit))
        # On the same text: what is lost by attention less what is lost by the others.
        self.against.add(moved[0] - moved[1:])

    def _scores(self, trace: Trace, ranking: str, number: int) -> list[Tensor]:
        if ranking == "random":
            generator = torch.Generator().manual_seed(self.seed + number)
            return [torch.rand(len(trace.main), generator=generator) for _ in range(DRAWS)]
        return [torch.from_numpy(ask("received_attention", trace, of=ranking)["score"].values)]

    def _time(self, without: Callable[[Tensor], Tensor], kept: Tensor) -> None:
        for place, one in enumerate((torch.ones_like(kept[0]), *kept)):
            tries = []
            for _ in range(3):
                begin = time.process_time()
                without(one[None])
                tries.append(time.process_time() - begin)
            self.seconds[place] += min(tries)

    def result(self) -> xr.Dataset:
        """Means over texts with errors [ranking, share]: `moved`, `same` (how often the answer stays) and `right` (how
        often it is the label, `right_whole` of whole texts), NaN where there is none; `difference` [other, share] of
        attention less another ranking on the same text, and `speed` [share], plain passes that one of the shortened
        text is cheaper by."""
        axes, shape = ("ranking", "share"), (len(RANKINGS), len(SHARES))
        speed = [self.seconds[0] / one if one > 0 else float("nan") for one in self.seconds[1:]]
        both: dict[str, tuple[tuple[str, ...], Means, tuple[int, ...]]] = {
            "moved": (axes, self.moved, shape),
            "same": (axes, self.same, shape),
        }
        both |= {"right": (axes, self.right, shape), "right_whole": ((), self.right_whole, ())}
        both |= {"difference": (("other", "share"), self.against, (2, len(SHARES)))}
        arrays: dict[str, Any] = {"speed": (("share",), np.array(speed))}
        for name, (own, means, size) in both.items():
            arrays[name] = (own, np.broadcast_to(means.mean, size).copy())
            arrays[f"{name}_error"] = (own, np.broadcast_to(means.error, size).copy())
        labels = {"ranking": list(RANKINGS), "other": list(RANKINGS[1:]), "share": list(SHARES)}
        facts = {"texts": int(np.max(self.moved.count)), "failed": len(self.failed)}
        return make_result("shortened_texts", arrays, coordinates=labels, provenance=facts)


def free_tokens(trace: Trace, read: Tensor) -> Tensor:
    """Which tokens may go: those that are not special, and from whose state the outcome is not mainly read."""
    special = torch.tensor(trace.main.special, dtype=torch.bool)
    size = read.double().cpu().abs()
    return ~special & ~(size > _READ * size.sum())


def kept_tokens(score: Tensor, movable: Tensor, share: float) -> Tensor:
    """The tokens that are kept, [token]: all that may not go, and a share of the others with the largest scores, at
    least one; of equal ones the earlier.

    >>> kept_tokens(torch.tensor([0.0, 3.0, 1.0, 2.0]), torch.tensor([False, True, True, True]), 0.6).tolist()
    [True, True, False, True]
    """
    count = max(1, round(share * int(movable.sum())))
    order = torch.where(movable, score.double().cpu(), -torch.inf).sort(descending=True, stable=True).indices
    kept = ~movable
    kept[order[:count]] = True
    return kept
