"""Patching between two texts that differ in one word: what of the outcome's change goes through a token's place.

Activation patching (Vig et al. 2020; Meng et al. 2022) puts a state of one run into the other and runs on; attribution
patching (Nanda 2023) is the same to first order, for all places from one backward pass.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.judge.case import Case, Numbers
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.trace_fields import runs_of

if TYPE_CHECKING:
    from identiscope.capture import Trace


@dataclass(frozen=True, eq=False)
class Patched:
    """What the outcome loses by each patch, [place] or [state, place]: measured, and to first order."""

    activation: Numbers
    attribution: Numbers


def patched(runs: OutcomeRuns, other: Tensor, places: Tensor) -> Patched:
    """Put the embedding of another text into each of these places, one at a time: other [input, model].

    Of two texts that differ in one word the patch at its place is the whole of the change, and all others are nothing.
    """
    own = runs.embeddings[0]
    rows = own.expand(len(places), -1, -1).clone()
    rows[torch.arange(len(places)), places] = other[places].to(own)
    value, gradient = runs.gradients(runs.embeddings)
    lost = value.double() - runs.values(rows).double()
    slope = (gradient[0].double() * (own.double() - other.double()))[places].sum(-1)
    return Patched(lost.cpu().numpy(), slope.cpu().numpy())


def patched_layers(runs: OutcomeRuns, other: Tensor, places: Tensor) -> Patched:
    """Put each state of another text into the run of this one, one state and place at a time: [state, place].

    other [input, model]: the embeddings of the other text, which is as long. The first state is these, `input`; each
    after it is what a layer handed on, from layer 0. Each patch is one pass, and all first orders together are one
    forward and one back.
    """
    if len(runs.sources) != 1:
        raise InputError(f"{len(runs.sources)} streams feed the outcome; patching by layers is of models with one.")
    first = patched(runs, other, places)
    own, others = (_states(runs, rows) for rows in (runs.embeddings, other[None].to(runs.embeddings)))
    value, slopes = _slopes(runs, len(own))
    lost, slope = [first.activation], [first.attribution]
    for layer, (mine, theirs) in enumerate(zip(own, others, strict=True)):
        values = torch.cat([_run(runs, layer, theirs, some) for some in places.split(runs.runner.at_a_time)])
        lost.append((value - values).cpu().numpy())
        along = slopes[layer].double() * (mine.double() - theirs.double())
        slope.append(along[places.to(along.device)].sum(-1).cpu().numpy())
    return Patched(np.stack(lost), np.stack(slope))


def patched_texts(trace: "Trace", other: "Trace", outcome: Any = None) -> Patched:
    """Two traces of one model whose texts differ in some words: by state and place what the first one's outcome loses.

    >>> found = patched_texts(identiscope.trace(model, "He came."), identiscope.trace(model, "She came."))
    >>> found.activation.shape      # the input and what each layer handed on, tokens
    """
    one, two = trace.main.ids, other.main.ids
    if one is None or two is None or len(one) != len(two) or one == two:
        raise InputError(
            f"texts of {len(one or ())} and {len(two or ())} tokens were given; expected as many in both, and"
            " not all the same: a word may have several pieces."
        )
    runs = runs_of(trace, outcome)
    return patched_layers(runs, other.main.embeddings.to(runs.embeddings), torch.arange(len(one)))


def _states(runs: OutcomeRuns, embeddings: Tensor) -> list[Tensor]:
    """What every layer hands on, [layer] of [input, model]."""
    kept: list[Tensor] = []

    def keep(layer: int, states: Tensor) -> Tensor:
        kept.append(states[0].detach())
        return states

    with torch.no_grad():
        runs.runner.with_states(runs.outcome, runs.split(embeddings), keep)
    return kept


def _run(runs: OutcomeRuns, layer: int, theirs: Tensor, places: Tensor) -> Tensor:
    """The outcome [place] with the state of the other text in one layer, at each of these places."""

    def change(number: int, states: Tensor) -> Tensor:
        if number != layer:
            return states
        rows = states.clone()
        rows[torch.arange(len(places)), places] = theirs[places].to(states)
        return rows

    embeddings = runs.embeddings.expand(len(places), -1, -1)
    with torch.no_grad():
        values: Tensor = runs.runner.with_states(runs.outcome, runs.split(embeddings), change).double()
    return values


def _slopes(runs: OutcomeRuns, layers: int) -> tuple[Tensor, list[Tensor]]:
    """The outcome as it is, [1], and its derivative by what every layer hands on, [layer] of [input, model]."""
    added: dict[int, Tensor] = {}

    def add(layer: int, states: Tensor) -> Tensor:
        added[layer] = torch.zeros_like(states, requires_grad=True)
        return states + added[layer]

    with torch.enable_grad():
        value = runs.runner.with_states(runs.outcome, runs.split(runs.embeddings), add)
        found = torch.autograd.grad(value.sum(), [added[layer] for layer in range(layers)], allow_unused=True)
    runs.runner.passes += 2
    slopes = [torch.zeros_like(added[layer]) if slope is None else slope for layer, slope in enumerate(found)]
    return value.detach().double(), [slope[0] for slope in slopes]


def other_words(case: Case, generator: np.random.Generator) -> Tensor:
    """Embeddings [input, model] of a text that has another word, drawn from the vocabulary, in the place of each."""
    runs = case.runs
    assert case.trace.model is not None
    tokenizer = case.trace.model.tokenizer
    special = set(getattr(tokenizer, "all_special_ids", ()))
    size = len(tokenizer) if tokenizer is not None else int(case.trace.model.config.vocab_size)
    ordinary = np.array([token for token in range(size) if token not in special])
    rows = []
    for part in runs.sources:
        drawn = torch.from_numpy(generator.choice(ordinary, len(part)))[None]
        rows.append(runs.runner.first_states({runs.runner.ids_argument(part.name): drawn}, part.name))
    return torch.cat(rows)
