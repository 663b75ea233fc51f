"""Which sentences train, choose and test: never tokens, so that no sentence stands on two sides; nor do its repeats."""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.tokens.sentences import Split


def split_sentences(
    count: int,
    *,
    folds: int = 10,
    train: float = 0.7,
    validation: float = 0.15,
    test: float = 0.15,
    seed: int = 0,
    texts: Sequence[Hashable] | None = None,
) -> list[Split]:
    """Splits of `count` sentences, by default the paper's: ten of 70 / 15 / 15.

    The sentences are shuffled once and laid in a ring; each split takes its test and validation sentences from
    another place of the ring. So with ten folds of 15 % every sentence is tested once or twice, and what the
    training sets have in common is known.

    texts: what each sentence says. Sentences that say the same lie side by side in the ring and are never cut apart, so
    the sets are as near to their shares as whole groups allow, each with one at least. Without it all sentences are
    taken as different.

    >>> [len(part) for part in vars(split_sentences(20, folds=1)[0]).values()]
    [14, 3, 3]
    """
    if folds > max(count, 1):
        raise InputError(f"{folds} folds of {count} sentences were asked for; there is one for each at most.")
    if folds < 1 or min(train, validation, test) <= 0 or abs(train + validation + test - 1) > 1e-9:
        raise InputError(
            f"{folds} folds of {train} / {validation} / {test} were asked for; expected at least one fold, and shares"
            " above 0 that sum to 1."
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    order, starts = together(order, range(count) if texts is None else texts)
    # Three times round, so that the places of a fold follow each other.
    ring = torch.cat([starts, starts + count, starts + 2 * count])
    tested, validated = round(test * count), round(validation * count)
    # Repeats may swallow a set that has sentences by its share; where there are three texts it is left one of them.
    least = int(len(starts) >= 3 and tested > 0 and validated > 0 and tested + validated < count)
    splits = []
    for fold in range(folds):
        begin = round(fold * count / folds)
        places = [nearest_place(ring, place) for place in (begin, begin + tested, begin + tested + validated)]
        for after in (1, 2):
            room = places[0] + len(starts) - least * (3 - after)
            places[after] = min(max(places[after], places[after - 1] + least), room)
        first, second, third = ring[places].tolist()
        parts = (third, first + count), (second, third), (first, second)
        splits.append(Split(*(order[torch.arange(*part) % count].sort().values for part in parts)))
    return splits


def together(order: Tensor, texts: Sequence[Hashable]) -> tuple[Tensor, Tensor]:
    """An order of sentences with equal texts moved to the first of them, and where in it each text starts.

    >>> together(torch.tensor([1, 0, 2, 3]), ["a", "b", "c", "b"])
    (tensor([1, 3, 0, 2]), tensor([0, 2, 3]))
    """
    if len(texts) != len(order):
        raise InputError(f"{len(texts)} texts were given for {len(order)} sentences; give one for each.")
    numbers: dict[Hashable, int] = {}
    group = torch.tensor([numbers.setdefault(texts[place], len(numbers)) for place in order.tolist()], dtype=torch.long)
    group, moved = group.sort(stable=True)
    return order[moved], torch.searchsorted(group, torch.arange(len(numbers)))


def nearest_place(starts: Tensor, place: int) -> int:
    """Which of the starts of texts is nearest to a place, the earlier of two."""
    return int((starts - place).abs().argmin())


def nearest_start(starts: Tensor, place: int) -> int:
    """The start of a text that is nearest to a place, the earlier of two."""
    return int(starts[nearest_place(starts, place)])


def part_of_training(split: Split, share: float, *, seed: int = 0) -> Split:
    """The same split with a share of its training sentences; a smaller share is part of a larger one."""
    if not 0 < share <= 1:
        raise InputError(f"a share of {share} of the training sentences was asked for; expected above 0, at most 1.")
    order = torch.randperm(len(split.train), generator=torch.Generator().manual_seed(seed))
    kept = order[: max(1, round(share * len(order)))]
    return Split(split.train[kept].sort().values, split.validation, split.test)
