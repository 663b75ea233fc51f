"""Five mechanisms compiled by hand, each with the inputs it is for: copy, reverse, count, look up, add."""

import string
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch

from identiscope.capture.models import Model
from identiscope.judge.truths.compiled import SHARP, Compiler, compiler
from identiscope.judge.truths.tasks import Example, Task

NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
)  # fmt: skip
#: How far apart the logits of neighbouring answers are, at least.
_CLEAR = 40.0


def copy(letters: int = 6, length: int = 6) -> Task:
    """`a b c | a b` is followed by `c`: the token as far before the last as the bar says, whatever it is."""
    return _by_position("copy", "the token one length before the next is copied", letters, length, lambda i: i)


def reverse(letters: int = 6, length: int = 6) -> Task:
    """`a b c | c b` is followed by `a`."""
    return _by_position(
        "reverse", "the text before the bar is given backwards", letters, length, lambda i: length - 1 - i
    )


def _by_position(name: str, says: str, letters: int, length: int, source: Callable[[int], int]) -> Task:
    alphabet = tuple(string.ascii_lowercase[:letters])

    @cache
    def model(distracting: bool) -> Model:
        made = compiler(name, (*alphabet, "|"), 2 * length, 1, answer=letters)
        scores, bias = made.nothing()
        away = torch.zeros_like(scores)
        for step in range(length):
            query, key = made.one("position", length + step), source(step)
            scores[query, made.one("position", key)] = SHARP
            # The silent heads look at one place before the bar, and never at the true one.
            away[query, made.one("position", (key + 1) % length)] = SHARP
        moved = {made.one("token", at): {made.one("answer", at): 1.0} for at in range(letters)}
        made.head(0, 0, scores, moved, bias)
        made.silent(0, away if distracting else torch.zeros_like(away), bias)
        for at, letter in enumerate(alphabet):
            made.logits(letter, {made.one("answer", at): _CLEAR})
        return made.model

    def draw(generator: np.random.Generator) -> Example:
        text = [str(letter) for letter in generator.choice(alphabet, length)]
        step = int(generator.integers(length))
        written = [text[source(at)] for at in range(step)]
        place = source(step)
        words = (*text, "|", *written)
        others = {at: alphabet for at in range(len(words)) if at not in (place, length)}
        wrong = (alphabet[(alphabet.index(text[place]) + 1) % letters],)
        return Example(words, text[place], (place,), others, {place: wrong})

    return Task(name, says, True, model, draw)


def count(letters: int = 5, length: int = 8) -> Task:
    """`a x b x =` is followed by `two`: so many x there are. Attention of `=` is shared by itself and every x."""
    alphabet = tuple(string.ascii_lowercase[:letters])
    words = (*alphabet, "x", "=", *NUMBERS[: length + 1])

    @cache
    def model(distracting: bool) -> Model:
        made = compiler("count", words, length + 1, 1, share=1)
        scores, bias = made.nothing()
        bias[made.word("x")] = bias[made.word("=")] = SHARP
        made.head(0, 0, scores, {made.word("="): {made.one("share", 0): 1.0}}, bias)
        made.silent(0, *_to_distractors(made, alphabet, distracting))
        # The share of `=` is s = 1 / (x + 1): 2·s·t − t² is largest where t = s. Neighbouring t lie this far apart.
        sharp = _CLEAR * ((length + 1) * length) ** 2
        for number in range(length + 1):
            near = 1 / (number + 1)
            made.logits(NUMBERS[number], {made.one("share", 0): 2 * sharp * near, made.word("="): -sharp * near**2})
        return made.model

    def draw(generator: np.random.Generator) -> Example:
        many = int(generator.integers(1, length))
        places = tuple(sorted(int(at) for at in generator.permutation(length)[:many]))
        letter = generator.choice(alphabet, length)
        text = ["x" if at in places else str(letter[at]) for at in range(length)]
        others = {at: alphabet for at in range(length) if at not in places}
        return Example((*text, "="), NUMBERS[many], places, others, dict.fromkeys(places, alphabet[:1]))

    return Task("count", "the x are counted, by the share of attention that is left", True, model, draw)


def add(digits: int = 10, length: int = 7) -> Task:
    """`3 *5 2 *4 =` is followed by `nine`: the sum of the two marked digits."""
    plain = tuple(str(digit) for digit in range(digits))
    marked = tuple(f"*{digit}" for digit in range(digits))
    words = (*plain, *marked, "=", *NUMBERS[: 2 * digits - 1])

    @cache
    def model(distracting: bool) -> Model:
        made = compiler("add", words, length + 1, 1, sum=1)
        scores, bias = made.nothing()
        for word in marked:
            bias[made.word(word)] = SHARP
        # Two marked digits share the attention: twice their mean is their sum.
        moved = {made.word(word): {made.one("sum", 0): 2.0 * digit} for digit, word in enumerate(marked)}
        made.head(0, 0, scores, moved, bias)
        made.silent(0, *_to_distractors(made, plain, distracting))
        for number in range(2 * digits - 1):
            read = {made.one("sum", 0): 2 * _CLEAR * number, made.word("="): _CLEAR * (1 - number**2)}
            made.logits(NUMBERS[number], read)
        return made.model

    def draw(generator: np.random.Generator) -> Example:
        places = tuple(sorted(int(at) for at in generator.permutation(length)[:2]))
        drawn = generator.integers(digits, size=length)
        # The logit of zero is the same for every sum, and nothing could be asked of it.
        drawn[places[0]] = max(1, drawn[places[0]])
        text = [marked[drawn[at]] if at in places else plain[drawn[at]] for at in range(length)]
        others = {at: plain for at in range(length) if at not in places}
        wrong = {at: (marked[(int(drawn[at]) + 1) % digits],) for at in places}
        total = int(sum(drawn[at] for at in places))
        return Example((*text, "="), NUMBERS[total], places, others, wrong)

    return Task("add", "two marked digits are added, by the mean of what they write", True, model, draw)


def look_up(keys: int = 5, values: int = 5, pairs: int = 4) -> Task:
    """`A p B q ? A` is followed by `p`; as many values as pairs, at least.

    Layer 0 writes before which token each stands; layer 1 looks for the key.
    """
    names = tuple(string.ascii_uppercase[:keys])
    things = tuple(string.ascii_lowercase[15 : 15 + values])
    words = (*names, *things, "?")
    length = 2 * pairs + 2

    @cache
    def model(distracting: bool) -> Model:
        made = compiler("look_up", words, length, 2, before=keys, answer=values)
        scores, bias = made.nothing()
        for at in range(1, length):
            scores[made.one("position", at), made.one("position", at - 1)] = SHARP
        moved = {made.one("token", at): {made.one("before", at): 1.0} for at in range(keys)}
        made.head(0, 0, scores, moved, bias)
        made.silent(0, *made.nothing())
        scores, bias = made.nothing()
        away = torch.zeros_like(scores)
        rank = torch.zeros_like(bias)
        for at in range(keys):
            scores[made.one("token", at), made.one("before", at)] = SHARP
            away[made.one("token", at), made.one("before", at)] = -10 * SHARP
            # Values of other keys, of the first of these keys most.
            rank[made.one("before", at)] = SHARP * (keys - at)
        moved = {made.word(thing): {made.one("answer", at): 1.0} for at, thing in enumerate(things)}
        made.head(1, 0, scores, moved, bias)
        made.silent(1, *((away, rank) if distracting else made.nothing()))
        for at, thing in enumerate(things):
            made.logits(thing, {made.one("answer", at): _CLEAR})
        return made.model

    def draw(generator: np.random.Generator) -> Example:
        chosen = [str(key) for key in generator.permutation(names)[:pairs]]
        given = [str(thing) for thing in generator.permutation(things)[:pairs]]
        asked = int(generator.integers(pairs))
        key, value = chosen[asked], given[asked]
        text = [word for pair in zip(chosen, given, strict=True) for word in pair] + ["?", key]
        truth = (2 * asked, 2 * asked + 1, length - 1)
        others = {
            at: tuple(name for name in names if name != key) if at % 2 == 0 else things
            for at in range(2 * pairs)
            if at not in truth
        }
        unknown = next((name for name in names if name not in chosen), names[0])
        next_value = things[(things.index(value) + 1) % values]
        wrong = {truth[0]: (unknown,), truth[1]: (next_value,), truth[2]: (unknown,)}
        return Example(tuple(text), value, truth, others, wrong)

    return Task("look_up", "the value behind a key is found by the key", True, model, draw)


def _to_distractors(made: Compiler, distractors: Sequence[str], distracting: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and bias of heads that look at the last in the alphabet of some words, wherever it stands."""
    scores, bias = made.nothing()
    for rank, word in enumerate(distractors, 1):
        bias[made.word(word)] = SHARP * rank * distracting
    return scores, bias
