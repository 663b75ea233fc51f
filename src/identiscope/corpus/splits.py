"""Which sentences train, choose and test: never tokens, so that no sentence stands on two sides."""

import torch

from identiscope.errors import InputError
from identiscope.methods.token_sentences import Split


def split_sentences(
    count: int,
    *,
    folds: int = 10,
    train: float = 0.7,
    validation: float = 0.15,
    test: float = 0.15,
    seed: int = 0,
) -> list[Split]:
    """Splits of `count` sentences, by default the paper's: ten of 70 / 15 / 15.

    The sentences are shuffled once and laid in a ring; each split takes its test and validation sentences from
    another place of the ring. So with ten folds of 15 % every sentence is tested once or twice, and what the
    training sets have in common is known.

    >>> [len(part) for part in vars(split_sentences(20, folds=1)[0]).values()]
    [14, 3, 3]
    """
    if folds < 1 or min(train, validation, test) <= 0 or abs(train + validation + test - 1) > 1e-9:
        raise InputError(
            f"{folds} folds of {train} / {validation} / {test} were asked for; expected at least one fold, and shares"
            " above 0 that sum to 1."
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    tested, validated = round(test * count), round(validation * count)
    splits = []
    for fold in range(folds):
        ring = order.roll(-round(fold * count / folds))
        parts = ring[:tested], ring[tested : tested + validated], ring[tested + validated :]
        splits.append(Split(*(part.sort().values for part in reversed(parts))))
    return splits


def part_of_training(split: Split, share: float, *, seed: int = 0) -> Split:
    """The same split with a share of its training sentences; a smaller share is part of a larger one."""
    if not 0 < share <= 1:
        raise InputError(f"a share of {share} of the training sentences was asked for; expected above 0, at most 1.")
    order = torch.randperm(len(split.train), generator=torch.Generator().manual_seed(seed))
    kept = order[: max(1, round(share * len(order)))]
    return Split(split.train[kept].sort().values, split.validation, split.test)
