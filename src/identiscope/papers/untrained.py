"""The null model of a claim: one of the same shape that never learnt. What holds of it says nothing of training."""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import torch

from identiscope.capture import Model
from identiscope.views.plots.figures import Claim, Figure, Missing

_Model = TypeVar("_Model")

#: Claims are judged of the null model on at most so many texts: enough for an interval.
NULL_TEXTS = 12
#: The same of token probes, which are fitted to texts.
NULL_PAIRS = 100


def untrained(model: Model, seed: int = 0) -> Model | None:
    """A model of the same class and configuration with the weights that it begins from; None of what has none."""
    if not model.is_transformers:
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = type(model.inner)(copy.deepcopy(model.config))
    module = module.to(device=model.device, dtype=model.dtype).eval()
    return replace(model, module=module, name=f"{model.name}, untrained")


def beside_untrained(
    made: Iterable[Figure | Missing],
    model: Model,
    make: Callable[[Model], Iterable[Figure | Missing]],
    *,
    texts: int | None = None,
) -> Iterator[Figure | Missing]:
    """The same figures, their claims judged of the null model too where any holds; make: the figures of a model.

    texts: of how many it makes them; of 0 there are none, and the claims stay as they are.
    """
    return beside_null(made, lambda: None if texts == 0 else untrained(model), make)


def beside_null(
    made: Iterable[Figure | Missing],
    null_model: Callable[[], _Model | None],
    make: Callable[[_Model], Iterable[Figure | Missing]],
) -> Iterator[Figure | Missing]:
    """The same of any kind of model; null_model: makes the null model, if there is one."""
    figures = list(made)
    holds = any(claim.holds for figure in figures if isinstance(figure, Figure) for claim in figure.claims)
    null = null_model() if holds else None
    if null is None:
        yield from figures
        return
    judged = {
        (figure.number, claim.statement): claim
        for figure in make(null)
        if isinstance(figure, Figure)
        for claim in figure.claims
    }
    for figure in figures:
        if isinstance(figure, Missing):
            yield figure
            continue
        others = [judged.get((figure.number, claim.statement)) for claim in figure.claims]
        yield replace(figure, claims=tuple(map(beside, figure.claims, others)))


def beside(claim: Claim, null: Claim | None) -> Claim:
    """A claim that holds, with what came out of the null model."""
    if not claim.holds or null is None:
        return claim
    return replace(claim, here=f"{claim.here}; untrained: {null.here}", untrained=null.holds)


def claims_beside(
    claims: Iterable[Claim], null_model: Callable[[], _Model | None], make: Callable[[_Model], Iterable[Claim]]
) -> list[Claim]:
    """Claims that stand in no figure, told apart by what they state; make: those of the null model."""
    given = list(claims)
    null = null_model() if any(claim.holds for claim in given) else None
    if null is None:
        return given
    judged = {claim.statement: claim for claim in make(null)}
    return [beside(claim, judged.get(claim.statement)) for claim in given]
