"""What may be asked of the heads of a model over a corpus."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HeadOptions:
    """What is asked beside the statistics.

    outcome: of every text, as `explain` takes it, or `loss`; without one, the usual one of such a model, and the
    similarity with the next text for models without logits. without: what stands for a head that is left out. texts:
    how many texts are traced, for importance, distances and the rarest token. intervals: how many of them have
    intervals, of `rows` rows each. prune: so many heads are chosen to be dropped. pairs: of so many texts all pairs of
    heads are left out. shorten: the texts that are traced are shortened, in several ways. sentences: of the CoNLL-U
    file, at most. max_tokens: texts are cut there. seed: of what is drawn.
    """

    outcome: str | None = None
    without: tuple[str, ...] = ("zero", "mean", "uniform", "resample", "null")
    texts: int = 16
    intervals: int = 4
    rows: int = 4
    prune: int = 0
    pairs: int = 0
    shorten: bool = False
    sentences: int | None = None
    max_tokens: int | None = 128
    seed: int = 0
