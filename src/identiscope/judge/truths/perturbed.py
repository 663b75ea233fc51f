"""A text without some of its tokens, in three ways: a token that says nothing in their place, none, or another word.

Ids are changed and never tokenised again. Texts run in batches sorted by length, each once.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from identiscope.errors import InputError
from identiscope.judge.case import Case, Numbers

Kept = NDArray[np.bool_]


class Perturbed:
    """The outcome of a case's text with only some of its players there; each set of these is run once.

    in_words: what stands in the place of the others. passes: texts that were run.
    """

    def __init__(self, case: Case, run: Callable[[torch.Tensor], torch.Tensor], in_words: str) -> None:
        self.players = np.flatnonzero(case.players)
        self.inputs = len(case.players)
        self.in_words = in_words
        self._run = run
        self._known: dict[bytes, float] = {}

    @property
    def passes(self) -> int:
        """How many texts were run."""
        return len(self._known)

    def __call__(self, kept: Kept) -> Numbers:
        """Outcomes [set] of sets of players that are kept, [set, player]."""
        packed = np.packbits(kept, axis=1)
        keys = [row.tobytes() for row in packed]
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        # Long ones together: where tokens are deleted, batches are of like length.
        places = sorted(new.values(), key=lambda place: int(kept[place].sum()))
        if places:
            whole = np.ones((len(places), self.inputs), bool)
            whole[:, self.players] = kept[places]
            values = self._run(torch.from_numpy(whole)).double().cpu().numpy()
            if not np.isfinite(values).all():
                raise InputError("the outcome is no number for a perturbed text; give the model in float32 or float64.")
            self._known |= {keys[place]: float(value) for place, value in zip(places, values, strict=True)}
        return np.array([self._known[key] for key in keys])


@lru_cache(maxsize=1)  # several tests ask for the same sets of one text
def masked(case: Case) -> Perturbed:
    """Erased tokens become the model's mask token, or another special one; without any, the text's mean embedding."""
    runs = case.runs
    fillers = [runs.runner.filler(part.name) for part in runs.sources]
    if any(number is None for number, _ in fillers):
        rows, words = runs.baseline("mean")

        def run(kept: torch.Tensor) -> torch.Tensor:
            return runs.values(torch.where(kept[..., None].to(rows.device), runs.embeddings, rows))

        return Perturbed(case, run, words)
    filled = torch.cat(
        [torch.full((len(part),), number) for part, (number, _) in zip(runs.sources, fillers, strict=True)]
    )
    return _with_ids(case, filled, " and ".join(dict.fromkeys(str(word) for _, word in fillers)))


def resampled(case: Case) -> Perturbed:
    """Erased tokens become words that are drawn from the vocabulary: one for each place, the same for all methods."""
    runs = case.runs
    assert case.trace.model is not None
    tokenizer = case.trace.model.tokenizer
    special = np.array(sorted(getattr(tokenizer, "all_special_ids", ())), np.int64)
    size = len(tokenizer) if tokenizer is not None else int(case.trace.model.config.vocab_size)
    ordinary = np.setdiff1d(np.arange(size), special)
    generator = np.random.default_rng((case.seed, _RESAMPLED))
    drawn = generator.choice(ordinary, sum(len(part) for part in runs.sources))
    return _with_ids(case, torch.from_numpy(drawn), "another word")


def deleted(case: Case) -> Perturbed:
    """Erased tokens are not there at all."""
    return Perturbed(case, case.runs.without, "nothing")


#: What a random draw is for, beside the seed of the case.
_RESAMPLED = 1


def _with_ids(case: Case, filled: torch.Tensor, words: str) -> Perturbed:
    own = [part.ids for part in case.runs.sources]
    if any(ids is None for ids in own):
        raise InputError("the positions of this text are no tokens; nothing can be put in their place.")
    ids = torch.tensor([token for part in own for token in part])  # type: ignore[union-attr]
    return Perturbed(case, lambda kept: case.runs.replaced(torch.where(kept, ids, filled)), words)
