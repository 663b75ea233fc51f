"""Does a method find the tokens that a planted model truly uses?"""

from collections.abc import Callable, Mapping
from math import comb

import numpy as np
from numpy.typing import NDArray

from identiscope.errors import InputError
from identiscope.judge.case import Case, Judgement, Numbers

Mask = NDArray[np.bool_]


def planted(case: Case) -> Judgement:
    """Mass on the true tokens, precision at as many as there are, and the reciprocal rank of the first.

    By the sizes of scores, over true tokens and distractors; what frames them is left out. Equal scores have the
    expected value over all orders of these. A method that says zero of all tokens has what chance has.
    """
    if case.truth is None:
        raise InputError("a planted truth was asked for a text that has none; give an input of a planted model.")
    truth = case.truth[case.players]
    sizes = np.abs(case.scores[:, case.players])
    values = {
        f"{case.version}{name}": np.array(
            [measure(row, truth) if said else np.nan for row, said in zip(sizes, case.heard, strict=True)]
        )
        for name, measure in MEASURES.items()
    }
    chance = {f"{case.version}{name}": measure(np.zeros(len(truth)), truth) for name, measure in MEASURES.items()}
    ceiling = {f"{case.version}{name}": measure(truth.astype(float), truth) for name, measure in MEASURES.items()}
    return Judgement(values, chance, ceiling)


def mass(sizes: Numbers, truth: Mask) -> float:
    """The share of the sizes of scores that lies on the true tokens.

    >>> mass(np.array([3.0, 1.0]), np.array([True, False]))
    0.75
    """
    whole = float(sizes.sum())
    return float(sizes[truth].sum()) / whole if whole > 0 else float(truth.mean())


def precision(sizes: Numbers, truth: Mask) -> float:
    """How many of the k largest are true, k being how many are: expected over orders of equal ones.

    >>> precision(np.array([1.0, 1.0, 0.0]), np.array([True, False, False]))
    0.5
    """
    count = int(truth.sum())
    least = np.sort(sizes)[::-1][count - 1]
    above, tied = sizes > least, sizes == least
    left = count - int(above.sum())
    return (float(truth[above].sum()) + float(truth[tied].sum()) * left / int(tied.sum())) / count


def reciprocal_rank(sizes: Numbers, truth: Mask) -> float:
    """One over the place of the first true token, expected over orders of equal ones.

    >>> reciprocal_rank(np.array([2.0, 1.0, 1.0]), np.array([False, True, False]))
    0.41666666666666663
    """
    best = sizes[truth].max()
    above, tied = int((sizes > best).sum()), sizes == best
    size, true = int(tied.sum()), int(truth[tied].sum())
    # The first of `true` among `size` in a random order is at place r in C(size − r, true − 1) of C(size, true) cases.
    places = range(1, size - true + 2)
    return sum(comb(size - place, true - 1) / (above + place) for place in places) / comb(size, true)


MEASURES: Mapping[str, Callable[[Numbers, Mask], float]] = {
    "mass": mass,
    "precision": precision,
    "reciprocal_rank": reciprocal_rank,
}
