"""What a planted model does, and on which inputs: which tokens it truly uses is stated for each, and can be proven."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np
import torch

from identiscope.capture.models import Model
from identiscope.errors import MathError


@dataclass(frozen=True)
class Example:
    """One input of a task. words: the text. truth: the places that decide the answer. others: for each distractor's
    place the words that may stand there; nothing that stands there matters. wrong: for each true place words of which
    at least one moves the answer. What is in neither is the frame (`=`, `|`), and is not judged."""

    words: tuple[str, ...]
    answer: str
    truth: tuple[int, ...]
    others: Mapping[int, tuple[str, ...]]
    wrong: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

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


#: Relative to the largest logit: what is far above rounding, and what is not.
_MOVED, _SAME = 1e-3, 1e-6
#: Texts that differ in distractors are all run up to so many; of more, some.
_EXHAUSTIVE, _SOME = 4096, 200


@dataclass(frozen=True)
class Proof:
    """What interventions showed: texts that differ in distractors alone, how far their logits lie apart, relative to
    the largest, whether all have the answer, and whether in each true place some wrong word moves its logit."""

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


def proven_examples(task: Task, count: int, seed: int = 0) -> list[Example]:
    """Inputs that are drawn, and whose truth interventions prove in both versions of the model.

    What a trained model does was not set by anybody: of an input where it does not need a token that the task needs,
    nothing is known that an explanation could be held against, and the next one is taken.
    """
    found = []
    for example in task.examples(2 * count, seed):
        few = prod(len(words) for words in example.others.values()) <= _EXHAUSTIVE
        texts = None if few else list(example.drawn_variants(np.random.default_rng(seed), _SOME))
        proofs = [proven(task.model(distracting), example, texts) for distracting in (False, True)]
        same = not task.mechanism or all(proof.apart <= _SAME for proof in proofs)
        if same and all(proof.answered and proof.needed for proof in proofs):
            found.append(example)
        if len(found) == count:
            return found
    raise MathError(f"the truth of {task.name} is proven for {len(found)} of {2 * count} inputs; expected {count}.")


def proven(model: Model, example: Example, texts: list[tuple[str, ...]] | None = None) -> Proof:
    """Prove the truth of an example by intervention, on all texts that differ in distractors alone, or on some."""
    same = list(example.variants()) if texts is None else [example.words, *texts]
    answer = int(model.tokenizer.convert_tokens_to_ids(example.answer))
    logits = last_logits(model, same)
    if not bool(torch.isfinite(logits).all()):
        raise MathError(f"the planted model gives no numbers on {example.text!r}.")
    apart = float((logits - logits[:1]).abs().max() / logits.abs().max())
    answered = bool((logits.argmax(-1) == answer).all())
    needed = set(example.wrong) == set(example.truth)
    for place, words in example.wrong.items():
        broken = [tuple(word if at == place else one for at, one in enumerate(example.words)) for word in words]
        moved = (last_logits(model, broken)[:, answer] - logits[0, answer]).abs() / logits.abs().max()
        needed = needed and bool((moved > _MOVED).any())
    return Proof(len(same), apart, answered, needed)
