"""What a planted model does, and on which inputs: which tokens it truly uses is stated for each, and can be proven."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import torch

from identiscope.capture.models import Model
from identiscope.errors import MathError


@dataclass(frozen=True)
class Example:
    """One input of a task. words: the text. truth: the places that decide the answer. others: for each distractor's
    place the words that may stand there; nothing that stands there matters. wrong: for each true place a word that
    moves the answer. What is in neither is the frame (`=`, `|`), and is not judged."""

    words: tuple[str, ...]
    answer: str
    truth: tuple[int, ...]
    others: Mapping[int, tuple[str, ...]]
    wrong: Mapping[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """As the model's tokenizer reads it."""
        return " ".join(self.words)

    def variants(self) -> Iterator[tuple[str, ...]]:
        """Every text that differs from this one in distractors alone, itself among them."""
        places = list(self.others)
        for words in product(*self.others.values()):
            changed = dict(zip(places, words, strict=True))
            yield tuple(changed.get(place, word) for place, word in enumerate(self.words))

    def drawn_variants(self, generator: np.random.Generator, count: int) -> Iterator[tuple[str, ...]]:
        """Some of them."""
        for _ in range(count):
            changed = {place: str(generator.choice(words)) for place, words in self.others.items()}
            yield tuple(changed.get(place, word) for place, word in enumerate(self.words))


@dataclass(frozen=True)
class Task:
    """A mechanism that is known.

    mechanism: logits are equal whatever the distractors are; else the *task* ignores them and the class is equal, which
    is called task truth. model: the model, by whether its distractors attract attention without effect. draw: an input.
    """

    name: str
    says: str
    mechanism: bool
    model: Callable[[bool], Model]
    draw: Callable[[np.random.Generator], Example]

    def examples(self, count: int, seed: int = 0) -> list[Example]:
        """Inputs that are drawn."""
        generator = np.random.default_rng(seed)
        return [self.draw(generator) for _ in range(count)]


#: Relative to the largest logit: far above rounding.
_MOVED = 1e-3


@dataclass(frozen=True)
class Proof:
    """What interventions showed: texts that differ in distractors alone, how far their logits lie apart, relative to
    the largest, whether all have the answer, and whether a wrong word in each true place moves the answer's logit."""

    texts: int
    apart: float
    answered: bool
    needed: bool


def last_logits(model: Model, texts: list[tuple[str, ...]]) -> torch.Tensor:
    """Logits of the next token of texts of one length, [text, word]."""
    ids = torch.tensor([model.tokenizer.convert_tokens_to_ids(list(words)) for words in texts])
    parts = []
    with torch.no_grad():
        for some in ids.split(1024):
            parts.append(model.module(input_ids=some).logits[:, -1].double())
    return torch.cat(parts)


def proven(model: Model, example: Example, texts: list[tuple[str, ...]] | None = None) -> Proof:
    """Prove the truth of an example by intervention, on all texts that differ in distractors alone, or on some."""
    same = list(example.variants()) if texts is None else [example.words, *texts]
    answer = int(model.tokenizer.convert_tokens_to_ids(example.answer))
    logits = last_logits(model, same)
    if not bool(torch.isfinite(logits).all()):
        raise MathError(f"the planted model gives no numbers on {example.text!r}.")
    apart = float((logits - logits[:1]).abs().max() / logits.abs().max())
    answered = bool((logits.argmax(-1) == answer).all())
    broken = [
        tuple(word if at == place else one for at, one in enumerate(example.words))
        for place, word in example.wrong.items()
    ]
    needed = set(example.wrong) == set(example.truth)
    if broken:
        moved = (last_logits(model, broken)[:, answer] - logits[0, answer]).abs() / logits.abs().max()
        needed = needed and bool((moved > _MOVED).all())
    return Proof(len(same), apart, answered, needed)
