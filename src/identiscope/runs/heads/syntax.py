"""Syntactic heads (Clark et al. 2019, §4.1): for each relation the head that finds it best, beside a fixed offset.

The head and the offset are chosen on every other sentence, and their accuracy is that on the rest: the best of many
heads on the sentences that it was chosen on would look better than it is.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from identiscope.capture.trace import Trace
from identiscope.corpus.dependencies import Sentence, pieces_of_words
from identiscope.errors import InputError
from identiscope.linalg.devices import as_numpy
from identiscope.methods.structure.syntactic_heads import strongest_words, word_attention
from identiscope.runs.heads.traced import both_of, own_sites

#: From the dependent to its head, and the other way.
DIRECTIONS = ("dependent to head", "head to dependent")
#: Offsets between words that a fixed rule may have.
_OFFSETS = tuple(offset for offset in range(-8, 9) if offset)
#: Relations that are met less often, in the half that is judged, are left out.
FEWEST = 20
_NOT = ("root", "punct")


@dataclass(eq=False)
class _Hits:
    """Sums over sentences of hits h and words n: Σh, Σh², Σhn [candidate], Σn and Σn²."""

    hits: NDArray[np.float64]
    squares: NDArray[np.float64]
    products: NDArray[np.float64]
    words: float = 0.0
    words_squared: float = 0.0

    def add(self, hits: NDArray[np.float64], words: int) -> None:
        self.hits += hits
        self.squares += hits**2
        self.products += hits * words
        self.words += words
        self.words_squared += words**2

    def rate(self, place: int) -> tuple[float, float]:
        """Hits a word, and its standard error over sentences."""
        rate = float(self.hits[place] / self.words)
        spread = self.squares[place] - 2 * rate * self.products[place] + rate**2 * self.words_squared
        return rate, float(np.sqrt(max(spread, 0.0)) / self.words)


def _none(count: int) -> _Hits:
    return _Hits(np.zeros(count), np.zeros(count), np.zeros(count))


@dataclass(eq=False)
class Syntax:
    """Hits of every head, by raw maps and by those that no rewriting changes, and of every offset, by relation and
    direction, in two halves of the sentences."""

    heads: list[tuple[int, int]] = field(default_factory=list)
    sums: dict[tuple[str, str], list[tuple[_Hits, ...]]] = field(default_factory=dict)
    sentences: int = 0

    def add(self, trace: Trace, sentence: Sentence) -> None:
        """One sentence; its words must be the tokens' words."""
        if trace.main.offsets is None:
            raise InputError("the tokenizer does not say which characters its tokens are; words cannot be found.")
        pieces = pieces_of_words(sentence, trace.main.offsets, trace.main.special)
        sites = own_sites(trace)
        self.heads = self.heads or [(site.layer, head) for site in sites for head in site.heads]
        words = [word_attention(both_of(site), pieces).chunk(2) for site in sites]
        pointed = as_numpy(torch.stack([strongest_words(torch.cat(maps)) for maps in zip(*words, strict=True)]))
        by_relation: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for place, word in enumerate(sentence.words):
            if word.head >= 0 and word.relation not in _NOT:
                by_relation[word.relation, DIRECTIONS[0]].append((place, word.head))
                by_relation[word.relation, DIRECTIONS[1]].append((word.head, place))
        half = self.sentences % 2
        for key, pairs in by_relation.items():
            at, wanted = (np.array(side) for side in zip(*pairs, strict=True))
            if key not in self.sums:
                sizes = (len(self.heads), len(self.heads), len(_OFFSETS))
                self.sums[key] = [tuple(_none(size) for size in sizes) for _ in range(2)]
            found = [*(pointed[..., at] == wanted), wanted - at == np.array(_OFFSETS)[:, None]]
            for one, hits in zip(self.sums[key][half], found, strict=True):
                one.add(hits.sum(1).astype(float), len(pairs))
        self.sentences += 1

    def table(self) -> list[dict[str, Any]]:
        """A row for each relation and direction that is met often enough, the surest first."""
        rows = []
        for (relation, direction), (chosen, judged) in self.sums.items():
            if judged[0].words < FEWEST or not chosen[0].words:
                continue
            best, real, offset = (int(np.argmax(one.hits)) for one in chosen)
            rate, error = judged[0].rate(best)
            real_rate, real_error = judged[1].rate(real)
            fixed, fixed_error = judged[2].rate(offset)
            margin = float(np.hypot(error, fixed_error))
            rows.append(
                {
                    "relation": relation,
                    "direction": direction,
                    "layer": self.heads[best][0],
                    "head": self.heads[best][1],
                    "accuracy": rate,
                    "error": error,
                    "simplex_layer": self.heads[real][0],
                    "simplex_head": self.heads[real][1],
                    "simplex_accuracy": real_rate,
                    "simplex_error": real_error,
                    "offset": _OFFSETS[offset],
                    "offset_accuracy": fixed,
                    "offset_error": fixed_error,
                    "words": int(judged[0].words),
                    "is_better": rate - fixed > 2 * margin,
                }
            )
        return sorted(rows, key=lambda row: (-(row["accuracy"] - row["offset_accuracy"]), row["relation"]))
