"""Tokens of many sentences in one long array: which rows are whose, and which sentences train, choose and test."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from identiscope.errors import InputError


@dataclass(frozen=True, eq=False)
class Sentences:
    """How many tokens each sentence has; their rows follow each other.

    >>> Sentences(torch.tensor([2, 3])).rows(torch.tensor([1]))
    tensor([2, 3, 4])
    """

    lengths: Tensor

    def __post_init__(self) -> None:
        if self.lengths.dim() != 1 or self.lengths.numel() == 0 or bool((self.lengths < 1).any()):
            raise InputError(
                f"lengths of shape {tuple(self.lengths.shape)} were given; expected one number of tokens, at least 1,"
                " for each sentence."
            )

    @property
    def count(self) -> int:
        """How many sentences."""
        return self.lengths.numel()

    @cached_property
    def tokens(self) -> int:
        """How many tokens in all."""
        return int(self.lengths.sum())

    @cached_property
    def starts(self) -> Tensor:
        """The first row of each sentence."""
        return self.lengths.cumsum(0) - self.lengths

    @cached_property
    def sentence(self) -> Tensor:
        """The sentence of each row."""
        return torch.repeat_interleave(torch.arange(self.count), self.lengths)

    @cached_property
    def position(self) -> Tensor:
        """The place of each row in its sentence, from 0."""
        return torch.arange(self.tokens) - self.starts[self.sentence]

    def rows(self, chosen: Tensor) -> Tensor:
        """The rows of the chosen sentences, in the order given."""
        lengths = self.lengths[chosen]
        within = torch.arange(int(lengths.sum())) - torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
        return torch.repeat_interleave(self.starts[chosen], lengths) + within

    def rows_with_target(self, chosen: Tensor, offset: int) -> Tensor:
        """The rows of the chosen sentences whose neighbour at `offset` is in the sentence too."""
        rows = self.rows(chosen)
        place = self.position[rows] + offset
        return rows[(place >= 0) & (place < self.lengths[self.sentence[rows]])]

    def parts(self, chosen: Tensor, tokens: int = 16384) -> Iterator[Tensor]:
        """The chosen sentences in order, in parts of about so many tokens, so that memory stays that of one part."""
        part = (self.lengths[chosen].cumsum(0) - 1) // tokens
        for number in torch.unique(part).tolist():
            yield chosen[part == number]


@dataclass(frozen=True, eq=False)
class Split:
    """Sentence numbers to train on, to stop training by, and to test on; no sentence is in two of them."""

    train: Tensor
    validation: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        every = torch.cat([self.train, self.validation, self.test])
        if every.unique().numel() != every.numel():
            raise InputError("a sentence stands in two sets of one split; its tokens would be seen before the test.")
        if not (self.train.numel() and self.validation.numel() and self.test.numel()):
            raise InputError(
                f"a split of {self.train.numel()} / {self.validation.numel()} / {self.test.numel()} sentences to train,"
                " validate and test was given; each needs at least one. Give more sentences that differ, or other"
                " shares."
            )
