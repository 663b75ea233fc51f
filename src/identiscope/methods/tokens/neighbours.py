"""Nearest neighbours inside the sentence, with ties seen and counted."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from identiscope.errors import InputError, MathError
from identiscope.methods.tokens.sentences import Sentences

Metric = Literal["cosine", "l2"]
METRICS: tuple[Metric, ...] = ("cosine", "l2")

#: Sentences are compared in blocks of similar length, padded; a block holds about this many tokens.
BLOCK_TOKENS = 2048


@dataclass(frozen=True, eq=False)
class Neighbours:
    """What each token was taken for, by row of the tokens looked up.

    nearest: place in its sentence of the nearest candidate, the first of several equally near.
    identified: whether that is the target, or a candidate with the very same vector. tied: whether another
    candidate was equally near. counted: whether the token has a target at all (a neighbour may lie outside).
    """

    nearest: Tensor
    identified: Tensor
    tied: Tensor
    counted: Tensor


@dataclass(frozen=True, eq=False)
class _Block:
    rows: Tensor  # [sentence, place], row among the tokens looked up, 0 where padded
    source: Tensor  # [sentence, place], row among the candidates, 0 where padded
    real: Tensor  # [sentence, place]
    vector: Tensor  # [sentence, place], equal where candidates are equal
    target: Tensor  # [sentence, place], place of the target; -1 where there is none


@dataclass(frozen=True, eq=False)
class Lookup:
    """Candidates of some sentences, made ready once to look tokens up among them often.

    The candidates themselves are read when needed, a block of sentences at a time: they may be memory-mapped.
    """

    candidates: Tensor
    metric: Metric
    blocks: tuple[_Block, ...]
    tokens: int

    def nearest(self, predicted: Tensor) -> Neighbours:
        """The nearest candidate of each row of `predicted` [token, channel], in the order of the lookup's sentences."""
        if predicted.shape[0] != self.tokens:
            raise InputError(f"{predicted.shape[0]} rows were given; the chosen sentences have {self.tokens} tokens.")
        if not bool(torch.isfinite(predicted).all()):
            raise MathError(
                "predicted vectors have NaN or infinite entries, which have no nearest neighbour. If a probe was being"
                " trained, lower its learning rate."
            )
        nearest = torch.zeros(self.tokens, dtype=torch.long, device=predicted.device)
        flags = torch.zeros(3, self.tokens, dtype=torch.bool, device=predicted.device)
        for block in self.blocks:
            given, candidates = predicted[block.rows], self.candidates[block.source]
            place, tied, doubtful = _nearest(given, candidates, block, self.metric)
            if bool(doubtful.any()):
                # Few sentences as a rule; all of them where one channel is far larger than the rest.
                again = _Block(*(part[doubtful] for part in vars(block).values()))
                exactly = _nearest(given[doubtful].double(), candidates[doubtful].double(), again, self.metric)
                place[doubtful], tied[doubtful] = exactly[:2]
            won = block.vector.gather(1, place)
            counted = block.target >= 0
            identified = counted & (won == block.vector.gather(1, block.target.clamp(min=0)))
            rows = block.rows[block.real]
            nearest[rows] = place[block.real]
            flags[:, rows] = torch.stack([identified, tied, counted])[:, block.real]
        return Neighbours(nearest, flags[0], flags[1], flags[2])

    def rate(self, predicted: Tensor) -> float:
        """The share of the counted tokens that are identified."""
        neighbours = self.nearest(predicted)
        return int(neighbours.identified.sum()) / max(int(neighbours.counted.sum()), 1)


def _nearest(predicted: Tensor, candidates: Tensor, block: _Block, metric: Metric) -> tuple[Tensor, Tensor, Tensor]:
    """Place of the nearest candidate and whether another is as near, [sentence, token], and where that is in doubt,
    [sentence].

    A product of d terms is off by at most d·ε·‖g‖·‖x‖/2, and so are a square and a length. Where one channel is large,
    as hidden states often have it, that is more than what tells them apart: the sentence must be looked at again, in
    float64.
    """
    scores = _scores(predicted, candidates, metric).masked_fill_(~block.real[:, None, :], -torch.inf)
    best, place = scores.max(dim=2)
    same = block.vector[:, None, :] == block.vector.gather(1, place)[:, :, None]
    if scores.dtype == torch.float64:
        tied = ((same | (scores == best[:, :, None])) & block.real[:, None, :]).sum(dim=2) > 1
        return place, tied, torch.zeros(len(scores), dtype=torch.bool)
    tied = (same & block.real[:, None, :]).sum(dim=2) > 1
    rival = scores.masked_fill_(same, -torch.inf).amax(dim=2)
    size = predicted.norm(dim=-1)
    if metric == "l2":
        longest = candidates.norm(dim=-1).amax(dim=1, keepdim=True)
        size = longest * (size + 0.5 * longest)
    # Of two scores, with the length that a cosine is divided by, and a few roundings more for the rest.
    rounding = (1.5 * candidates.shape[-1] + 8) * torch.finfo(scores.dtype).eps * size
    # Scores that overflowed are NaN, and larger than nothing.
    return place, tied, (~(best - rival > rounding) & block.real).any(dim=1)


def _scores(predicted: Tensor, candidates: Tensor, metric: Metric) -> Tensor:
    """[sentence, token, candidate], larger where nearer: all that an order by distance needs."""
    if metric == "cosine":
        return torch.bmm(predicted, normalize(candidates, dim=-1).transpose(1, 2))
    # −½‖g − x‖² without the term that all candidates share.
    return torch.bmm(predicted, candidates.transpose(1, 2)).sub_(0.5 * candidates.square().sum(-1)[:, None, :])


def make_lookup(
    candidates: Tensor,
    sentences: Sentences,
    chosen: Tensor,
    *,
    metric: Metric = "cosine",
    offset: int = 0,
    equal: Tensor | None = None,
) -> Lookup:
    """A lookup among the candidates [all tokens, channel] of the chosen sentences, where the candidates are.

    metric: "cosine" or "l2". offset: the target of a token is the candidate so many places further on.
    equal: what `equal_vectors` found, if that is known.

    The cosine of a zero vector is taken as 0 with everything.
    """
    if metric not in METRICS:
        raise InputError(f"metric {metric!r} was given; expected one of {', '.join(METRICS)}.")
    if candidates.shape[0] != sentences.tokens:
        raise InputError(
            f"{candidates.shape[0]} candidates were given for {sentences.tokens} tokens; give one for each."
        )
    if equal is None:
        equal = equal_vectors(candidates, sentences, chosen)
    lengths = sentences.lengths[chosen]
    first = lengths.cumsum(0) - lengths
    order = torch.argsort(lengths, stable=True)
    # Sorted by length, so that a block is padded little.
    part = (lengths[order].cumsum(0) - 1) // BLOCK_TOKENS
    blocks = []
    for number in torch.unique(part).tolist():
        inside = order[part == number]
        place = torch.arange(int(lengths[inside].max()))[None, :]
        real = place < lengths[inside][:, None]
        rows = torch.where(real, first[inside][:, None] + place, 0)
        source = torch.where(real, sentences.starts[chosen[inside]][:, None] + place, 0)
        goal = place + offset
        target = torch.where(real & (goal >= 0) & (goal < lengths[inside][:, None]), goal, -1)
        parts = (rows, source, real, torch.where(real, equal[source], -1), target)
        blocks.append(_Block(*(one.to(candidates.device) for one in parts)))
    return Lookup(candidates, metric, tuple(blocks), int(lengths.sum()))


def equal_vectors(candidates: Tensor, sentences: Sentences, chosen: Tensor | None = None) -> Tensor:
    """A number for each token, the same for tokens of one sentence with the very same vector.

    >>> equal_vectors(torch.tensor([[1.0], [2.0], [1.0]]), Sentences(torch.tensor([3])))
    tensor([0, 1, 0])
    """
    numbers = torch.zeros(sentences.tokens, dtype=torch.long)
    everyone = torch.arange(sentences.count) if chosen is None else chosen
    for begin, length in zip(sentences.starts[everyone].tolist(), sentences.lengths[everyone].tolist(), strict=True):
        own = candidates[begin : begin + length]
        numbers[begin : begin + length] = torch.unique(own, dim=0, return_inverse=True)[1]
    return numbers


def nearest_in_sentence(
    predicted: Tensor, candidates: Tensor, sentences: Sentences, *, metric: Metric = "cosine", offset: int = 0
) -> Neighbours:
    """NN(g(e_i)) of section 4: for every token the nearest candidate of its own sentence.

    >>> x = torch.eye(3)
    >>> nearest_in_sentence(x, x, Sentences(torch.tensor([3]))).identified
    tensor([True, True, True])
    """
    return make_lookup(candidates, sentences, torch.arange(sentences.count), metric=metric, offset=offset).nearest(
        predicted
    )
