"""Token identifiability: can a hidden embedding still be traced to its token? (Section 4 of the paper.)"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.tokens.neighbours import Metric, make_lookup
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.probes import Probe
from identiscope.methods.tokens.sentences import Sentences
from identiscope.stats.text_bootstrap import Interval, interval_of, sentence_resamples


@dataclass(frozen=True, eq=False)
class Identified:
    """What became of each token looked up; rows are numbers in the array of all tokens.

    nearest: the row it was taken for. identified, tied: as for `Neighbours`. Tokens without a target are left out.
    """

    rows: Tensor
    nearest: Tensor
    identified: Tensor
    tied: Tensor

    @property
    def rate(self) -> float:
        """The share of tokens identified; NaN if there are none."""
        return float(self.identified.double().mean()) if len(self.rows) else float("nan")


def identify_tokens(
    hidden: Tensor,
    embeddings: Tensor,
    lengths: Tensor,
    *,
    probe: Probe | None = None,
    metric: Metric | None = None,
    offset: int = 0,
    chosen: Tensor | None = None,
) -> Identified:
    """Which tokens are identified: NN(g(e_i)) = x_i among the input embeddings of the same sentence.

    hidden, embeddings: [all tokens, channel]; lengths: tokens of each sentence. probe: g, by default the identity.
    metric: "cosine" or "l2", by default that of the probe's loss. offset: look for the token so many places further
    on. chosen: only these sentences.

    A tie goes to the first of the nearest. It is correct only if that is the right place or has the very same
    vector, as a repeated token has in a model without absolute positions.

    >>> x = torch.eye(2)
    >>> identify_tokens(x.flip(0), x, torch.tensor([2])).rate
    0.0
    """
    probe = probe or Probe("naive", "cosine", {})
    sentences = Sentences(lengths)
    sought = torch.arange(sentences.count) if chosen is None else chosen
    return look_up(probe, hidden, Pairs([hidden], [embeddings], sentences, offset), 0, sought, metric)


def look_up(
    probe: Probe, hidden: Tensor, pairs: Pairs, layer: int, chosen: Tensor, metric: Metric | None = None
) -> Identified:
    """Look the chosen sentences' g(hidden) up among the targets of a layer, a part of them at a time."""
    parts = []
    for rows, lookup in pairs.lookups(layer, chosen, metric or probe.loss):
        part = lookup.nearest(probe(hidden.index_select(0, rows)))
        first = pairs.sentences.starts[pairs.sentences.sentence[rows]]
        kept = part.counted
        parts.append((rows[kept], (first + part.nearest)[kept], part.identified[kept], part.tied[kept]))
    if not parts:
        raise InputError("no sentence was chosen; expected at least one.")
    return Identified(*(torch.cat(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Score:
    """A rate over the sets of all folds: pooled over tokens, its interval over sentences, by fold, and the ties.

    ties: tokens with several equally near candidates; tied_identified: those counted as identified. sentences: how many
    were looked up; resampled: the rate on sentences drawn anew, as `sentence_resamples` draws them.
    """

    rate: float
    interval: Interval
    folds: Tensor
    tokens: int
    ties: int
    tied_identified: int
    sentences: int
    resampled: Tensor


def score(
    probe_of: Callable[[int], Probe],
    hidden: Tensor,
    pairs: Pairs,
    layer: int,
    sets: Sequence[Tensor],
    *,
    metric: Metric | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Score:
    """Rate of the probe of each fold on its own sentences.

    hidden: what the probes read, which may be another layer than they were fitted to. sets: the sentences of each
    fold, such as its test sentences.
    """
    identified = torch.zeros(pairs.sentences.count, dtype=torch.float64)
    counted = torch.zeros_like(identified)
    rates, ties, tied_identified = [], 0, 0
    for fold, chosen in enumerate(sets):
        looked_up = look_up(probe_of(fold), hidden, pairs, layer, chosen, metric)
        sentence = pairs.sentences.sentence[looked_up.rows]
        identified.index_add_(0, sentence, looked_up.identified.double())
        counted.index_add_(0, sentence, torch.ones(len(sentence), dtype=torch.float64))
        rates.append(looked_up.rate)
        ties += int(looked_up.tied.sum())
        tied_identified += int((looked_up.tied & looked_up.identified).sum())
    resampled = sentence_resamples(identified, counted, resamples=resamples, seed=seed)
    total = int(counted.sum())
    rate = float(identified.sum() / total) if total else float("nan")
    folds = torch.tensor(rates, dtype=torch.float64)
    sentences = int((counted > 0).sum())
    return Score(rate, interval_of(resampled), folds, total, ties, tied_identified, sentences, resampled)


def random_guess(embeddings: Tensor, lengths: Tensor) -> float:
    """The rate of guessing: the mean over tokens of 1/n, or of m/n where m tokens of the sentence share one vector.

    Without repeated vectors this is the number of sentences over the number of tokens.

    >>> random_guess(torch.eye(4), torch.tensor([4]))
    0.25
    """
    sentences = Sentences(lengths)
    everyone = torch.arange(sentences.count)
    total = 0.0
    for part in sentences.parts(everyone):
        for block in make_lookup(embeddings, sentences, part).blocks:
            equal = (block.vector[:, :, None] == block.vector[:, None, :]) & block.real[:, None, :]
            share = equal.sum(2) / block.real.sum(1, keepdim=True)
            total += float(share.double()[block.real].sum())
    return total / sentences.tokens
