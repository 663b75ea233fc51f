"""Three small transformers that are trained until they make no mistake: induction, majority, depth of brackets.

What is known is the *task*: which tokens decide the class. That the model uses no others is not; the class is equal
whatever these are, and logits are not. Half of the heads are silent: what they write is multiplied by zero, from the
first step on. In the plain version they look everywhere alike, in the other at distractors; the function is the same.
"""

import hashlib
import string
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from identiscope.capture.blank import blank_model
from identiscope.capture.models import Model
from identiscope.errors import MathError
from identiscope.judge.truths.kept_weights import keep_weights, kept_weights
from identiscope.judge.truths.mechanisms import NUMBERS
from identiscope.judge.truths.tasks import Example, Task

_WIDTH, _LAYERS, _HEADS = 64, 2, 4
_SILENT = _HEADS // 2
_BATCH, _STEPS, _EVERY, _CHECKED = 128, 6000, 100, 2048
#: How sharply silent heads look: far beyond what is left of a fit.
_SHARP = 60.0
#: Singular values of what a layer reads, as shares of the largest, are above 5e-5, or nothing but rounding: 2e-8 in
#: single precision. Keys that use these have weights up to 1e7, and others wherever sums are rounded otherwise.
_ROUNDING = 1e-6

FILLERS = (".", ",", ";")


def induction(letters: int = 6, length: int = 8) -> Task:
    """`… a b … a` is followed by `b`: what followed the last letter before. Stops and commas may stand anywhere."""
    alphabet = tuple(string.ascii_lowercase[:letters])

    def draw(generator: np.random.Generator) -> Example:
        key, value = (str(letter) for letter in generator.permutation(alphabet)[:2])
        rest = tuple(letter for letter in alphabet if letter != key)
        place = int(generator.integers(length - 2))
        text = [str(generator.choice(rest)) for _ in range(length)]
        free = [at for at in range(length - 1) if at not in (place, place + 1)]
        filled = [int(at) for at in generator.permutation(free)[: len(free) // 2]]
        for at in filled:
            text[at] = str(generator.choice(FILLERS))
        text[place], text[place + 1], text[-1] = key, value, key
        others = {at: FILLERS if at in filled else rest for at in free}
        # Without its key the next letter is guessed, and one of the guesses may be right.
        wrong = {place: rest, place + 1: tuple(one for one in rest if one != value), length - 1: rest}
        return Example(tuple(text), value, (place, place + 1, length - 1), others, wrong)

    return _trained("induction", "what followed the last letter before follows again", (*alphabet, *FILLERS), FILLERS,
                    length, draw)  # fmt: skip


def majority(length: int = 8, marked: int = 5) -> Task:
    """`*a b *b *a a =` is followed by `a`: which letter is marked more often."""
    letters = ("a", "b")

    def draw(generator: np.random.Generator) -> Example:
        places = sorted(int(at) for at in generator.permutation(length)[:marked])
        drawn = [str(letter) for letter in generator.choice(letters, length)]
        # As close as it can be, so that every marked token of the winner counts.
        winner = str(generator.choice(letters))
        votes = [winner] * (marked // 2 + 1) + [letters[winner == "a"]] * (marked // 2)
        for at, vote in zip(places, generator.permutation(votes), strict=True):
            drawn[at] = str(vote)
        text = [f"*{letter}" if at in places else letter for at, letter in enumerate(drawn)]
        truth = tuple(at for at in places if drawn[at] == winner)
        rest = tuple(at for at in places if drawn[at] != winner)
        others = {at: letters for at in range(length) if at not in places}
        wrong = dict.fromkeys(truth, (f"*{letters[winner == 'a']}",))
        # Votes of the other side decide nothing by themselves: with one more of them there the class would turn.
        wrong |= dict.fromkeys(rest, (f"*{winner}",))
        return Example((*text, "="), winner, tuple(places), others, wrong)

    return _trained("majority", "the letter that is marked more often is named", (*letters, "*a", "*b", "="), letters,
                    length + 1, draw)  # fmt: skip


def depth(length: int = 7, letters: int = 2) -> Task:
    """`( a ( b ) =` is followed by `one`: so many brackets are open."""
    alphabet = tuple(string.ascii_lowercase[:letters])

    def draw(generator: np.random.Generator) -> Example:
        open_, text, others = 0, [], {}
        for at in range(length):
            kind = int(generator.integers(3))
            if kind == 0 or (kind == 1 and not open_):
                text.append("(")
                open_ += 1
            elif kind == 1:
                text.append(")")
                open_ -= 1
            else:
                text.append(str(generator.choice(alphabet)))
                others[at] = alphabet
        places = tuple(at for at in range(length) if at not in others)
        if not places or not others:
            return draw(generator)
        wrong = {at: (")" if text[at] == "(" else "(",) for at in places}
        return Example((*text, "="), NUMBERS[open_], places, others, wrong)

    words = (*alphabet, "(", ")", "=", *NUMBERS[: length + 1])
    return _trained("depth", "open brackets are counted", words, alphabet, length + 1, draw)


def _trained(
    name: str,
    says: str,
    words: Sequence[str],
    distractors: Sequence[str],
    length: int,
    draw: Callable[[np.random.Generator], Example],
) -> Task:
    def blank() -> Model:
        return blank_model(
            words, width=_WIDTH, layers=_LAYERS, heads=_HEADS, positions=length, seed=0, name=f"{name} (trained)"
        )

    @cache
    def weights() -> Mapping[str, torch.Tensor]:
        key = hashlib.sha256(Path(__file__).read_bytes() + name.encode() + str(torch.__version__).encode()).hexdigest()
        known = kept_weights(name, key)
        if known is None:
            made = blank()
            _train(made, draw)
            known = {part: value.contiguous() for part, value in made.module.state_dict().items()}
            keep_weights(name, key, known)
        return known

    @cache
    def model(distracting: bool) -> Model:
        made = blank()
        made.module.load_state_dict(dict(weights()))
        if distracting:
            _attract(made, draw, distractors)
        return made

    return Task(name, says, False, model, draw)


def _hush(model: Model) -> None:
    """Silent heads look everywhere alike, and nothing reads what they write."""
    module: Any = model.module
    width = _WIDTH // _HEADS * (_HEADS - _SILENT)
    with torch.no_grad():
        for block in module.transformer.h:
            block.attn.c_proj.weight[width:] = 0.0
            for part in range(2):
                own = slice(part * _WIDTH + width, (part + 1) * _WIDTH)
                block.attn.c_attn.weight[:, own] = 0.0
                block.attn.c_attn.bias[own] = 0.0


def _batch(
    model: Model, draw: Callable[[np.random.Generator], Example], generator: np.random.Generator, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids [text, token] and answers [text] of texts that are drawn."""
    examples = [draw(generator) for _ in range(count)]
    numbers = model.tokenizer.convert_tokens_to_ids
    ids = torch.tensor([numbers(list(example.words)) for example in examples])
    return ids, torch.tensor(numbers([example.answer for example in examples]))


def _train(model: Model, draw: Callable[[np.random.Generator], Example]) -> None:
    """Adam until no text of some thousand that are new is answered wrongly, twice in a row."""
    module: Any = model.module
    generator = np.random.default_rng(0)
    optimiser = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=0.01)
    checked = _batch(model, draw, np.random.default_rng(1), _CHECKED)
    perfect = 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums wherever it is trained
    try:
        with torch.enable_grad():
            for step in range(_STEPS):
                _hush(model)
                if step % _EVERY == 0:
                    with torch.no_grad():
                        wrong = int((module(checked[0]).logits[:, -1].argmax(-1) != checked[1]).sum())
                    perfect = perfect + 1 if not wrong else 0
                    if perfect == 2:
                        return
                ids, answers = _batch(model, draw, generator, _BATCH)
                loss = torch.nn.functional.cross_entropy(module(ids).logits[:, -1], answers)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    finally:
        torch.set_num_threads(threads)
        module.requires_grad_(True)
        optimiser.zero_grad()
    raise MathError(f"{model.name} still makes mistakes after {_STEPS} steps of training; this should not happen.")


def _attract(model: Model, draw: Callable[[np.random.Generator], Example], distractors: Sequence[str]) -> None:
    """Let silent heads look at distractors, the last of their list most: keys are fitted to what each layer reads."""
    module: Any = model.module
    ids, _ = _batch(model, draw, np.random.default_rng(2), 512)
    rank = torch.zeros(len(model.tokenizer), dtype=torch.float64)
    for place, word in enumerate(distractors, 1):
        rank[model.tokenizer.convert_tokens_to_ids(word)] = place
    width = _WIDTH // _HEADS
    for block, states in zip(module.transformer.h, _states_read(module, ids), strict=True):
        weights, bias = _key(states, rank[ids].flatten())
        with torch.no_grad():
            for head in range(_HEADS - _SILENT, _HEADS):
                block.attn.c_attn.bias[head * width] = _SHARP * width**0.5
                block.attn.c_attn.weight[:, _WIDTH + head * width] = weights
                block.attn.c_attn.bias[_WIDTH + head * width] = bias


def _states_read(module: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """What attention reads in every layer, [text and token, channel], in double precision: whatever the threads."""
    double = deepcopy(module).double()
    read: list[torch.Tensor] = []
    for block in double.transformer.h:
        block.ln_1.register_forward_hook(lambda _, __, out: read.append(out.flatten(0, 1)))
    with torch.no_grad():
        double(ids)
    return read


def _key(states: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [channel] and bias, of all that fit best the smallest: a layer norm's channels depend on each other."""
    columns = torch.cat([states, torch.ones(len(states), 1, dtype=states.dtype)], 1)
    fit = torch.linalg.lstsq(columns, wanted[:, None], rcond=_ROUNDING, driver="gelsd").solution[:, 0]
    return fit[:-1], fit[-1]
