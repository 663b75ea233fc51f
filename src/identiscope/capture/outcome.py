"""What is explained: one number that a model gives for a text, that can be read from any run of the model.

An outcome is asked for in words (a word, a class, a difference, `similarity:TEXT`) or as a function; here the words are
found in what the model returns. How the outcome reads the last hidden states is not looked up by family: it is what the
derivative of the outcome says.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from identiscope.capture.forward import Forward, forward
from identiscope.capture.inputs import encode
from identiscope.capture.limits import token_names
from identiscope.capture.models import Model
from identiscope.capture.substitution import Rerun
from identiscope.capture.tokenizing import tokenize
from identiscope.capture.twin import twin
from identiscope.errors import InputError, MathError
from identiscope.token_text import shown_token

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace

#: What a number can be; the first is what it is if nothing is said. A difference of two is the same in the first two.
UNITS = ("log-probability", "logit", "probability")
_PREFIX = re.compile(rf"({'|'.join(UNITS)}):(.*)", re.DOTALL)
_PLACE = re.compile(r"(.*)@(-?\d+)", re.DOTALL)
#: What an outcome may be given as: words, the number of a class, or a function from what a run returned.
Given = str | int | Callable[[Rerun], Tensor] | None


@dataclass(frozen=True, eq=False)
class Seen:
    """What some runs returned, and where in them the tokens of the text are now.

    kept [text, position] says which tokens of the text stand at each position, −1 for none: all in their places, if
    nothing was deleted (None).
    """

    forward: Forward
    kept: Tensor | None = None

    def place(self, token: int, count: int) -> Tensor | int:
        """Where a token of the text is in each run; where it was deleted, the last one before it."""
        if self.kept is None:
            return token
        before = (self.kept >= 0) & (self.kept <= token)
        return torch.where(before, torch.arange(self.kept.shape[1], device=self.kept.device), -1).max(1).values


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """One number of a model for a text.

    name: in words, for whoever reads a result. of: from runs to a number for each, differentiable.
    """

    name: str
    unit: str
    of: Callable[[Seen], Tensor]
    trace: "Trace"

    @cached_property
    def value(self) -> float:
        """What it is for the text as it was traced."""
        return self._read_off[0]

    @property
    def stream(self) -> str:
        """The stream whose last states it is read from."""
        return self._read_off[1]

    @property
    def read(self) -> Tensor:
        """How much it reads of the last state of each token: the size of its derivative there; they sum to one."""
        size = self.direction.double().norm(dim=-1)
        total = size.sum()
        share: Tensor = size / total if float(total) > 0 else size
        return share

    @property
    def direction(self) -> Tensor:
        """Its derivative by the last hidden state, [token, model], as transformers reports that: after a final norm."""
        return self._read_off[2]

    @cached_property
    def _read_off(self) -> tuple[float, str, Tensor]:
        trace = self.trace
        assert trace.model is not None and trace.batch is not None
        with torch.enable_grad():
            # Some weight wants a derivative, or else an input that does brings one about.
            made = _states_with_graph(trace)
            value = self.of(Seen(made))[0]
            last = {name: states[-1] for name, states in made.hidden_states.items() if states}
            wanted = list(last.values())
            gradients = (
                torch.autograd.grad(value, wanted, allow_unused=True) if value.requires_grad else [None] * len(last)
            )
        number = float(value.detach())
        if number != number:
            raise MathError(f"the outcome ({self.name}) is not a number for this text.")
        sizes = {name: 0.0 if one is None else float(one.norm()) for name, one in zip(last, gradients, strict=True)}
        if not any(size > 0 for size in sizes.values()):
            raise InputError(
                f"the outcome ({self.name}) does not depend on the last hidden states of {trace.model.name}, so that"
                " it cannot be traced to its tokens."
            )
        stream = max(sizes, key=lambda name: sizes[name])
        gradient = dict(zip(last, gradients, strict=True))[stream]
        assert gradient is not None
        return number, stream, gradient[0].detach().to(trace.model.home(gradient.device))

    def __repr__(self) -> str:
        return f"Outcome({self.name} = {self.value:.4g})"


def _states_with_graph(trace: "Trace") -> Forward:
    """A pass whose last states are known to what follows them."""
    run = trace.runner()
    embeddings = {
        name: trace.streams[name].embeddings[None].detach().clone().requires_grad_() for name in trace.replay.entries
    }
    return run(embeddings)


def find_outcome(trace: "Trace", given: Given = None) -> Outcome:
    """The outcome that was asked for, or the usual one of such a model.

    >>> find_outcome(trace, "Paris").name
    "log-probability of ' Paris' as the next token"
    """
    if trace.model is None or trace.batch is None:
        raise InputError("a trace made from arrays has no model, and so no outcome.")
    if isinstance(given, Outcome):
        return given
    if callable(given):
        return Outcome(f"{getattr(given, '__name__', 'a function')}, as given", "number", _called(given), trace)
    if isinstance(given, str) and given.startswith("similarity:"):
        return _similarity(trace, given.removeprefix("similarity:").strip())
    if not (given is None or isinstance(given, (str, int))) or isinstance(given, bool):
        raise InputError(f"outcome={given!r} was given; expected words, the number of a class, or a function.")
    if trace.logits is None:
        raise InputError(
            f"{trace.model.name} ({type(trace.model.inner).__name__}) returns hidden states and no logits, so there is"
            f" no usual outcome{'' if given is None else f' and no {given!r}'}. Say what is to be explained:"
            " similarity:TEXT, the cosine with another text (--outcome 'similarity:A second text.'), or in Python a"
            " function of the states."
        )
    return _of_logits(trace, given)


def _called(function: Callable[[Rerun], Tensor]) -> Callable[[Seen], Tensor]:
    def of(seen: Seen) -> Tensor:
        made = seen.forward
        size = next(len(states[0]) for states in made.hidden_states.values() if states)
        numbers = []
        for text in range(size):
            streams = {name: tuple(state[text] for state in states) for name, states in made.hidden_states.items()}
            number = function(Rerun(None if made.logits is None else made.logits[text], streams))
            if not isinstance(number, Tensor) or number.numel() != 1 or not number.is_floating_point():
                raise InputError(
                    f"the outcome's function returned {type(number).__name__}; expected a tensor with one number, made"
                    " of what it was given, so that it can be differentiated."
                )
            numbers.append(number.reshape(()))
        return torch.stack(numbers)

    return of


# Of texts.


@dataclass(frozen=True)
class Pooling:
    """How the last states of a text become one vector: their mean, or that of the first token."""

    first: bool

    def of(self, seen: Seen, stream: str) -> Tensor:
        """[text, model]."""
        states = seen.forward.hidden_states[stream][-1]
        if self.first:
            return states[:, 0]
        if seen.kept is None:
            return states.mean(1)
        there = (seen.kept >= 0).to(states)[..., None]
        return (states * there).sum(1) / there.sum(1)


def _pooling(model: Model) -> Pooling:
    """As the model's folder says, if sentence-transformers wrote it; else the mean."""
    path = Path(str(getattr(model.config, "_name_or_path", ""))) / "1_Pooling" / "config.json"
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Pooling(False)
    return Pooling(bool(said.get("pooling_mode_cls_token")) and not said.get("pooling_mode_mean_tokens"))


def _similarity(trace: "Trace", other: str) -> Outcome:
    if not other:
        raise InputError("similarity: was given without a text; expected similarity:TEXT.")
    model = trace.model
    assert model is not None
    pooling, stream = _pooling(model), trace.main.name
    if not trace.main.hidden_states:
        raise InputError(f"{model.name} shows no hidden states, and so no similarity of texts.")
    batch = encode(model, [other], targets=[None])
    with torch.no_grad():
        fixed = pooling.of(Seen(forward(twin(model), batch.arguments)), stream).double()

    def of(seen: Seen) -> Tensor:
        here = pooling.of(seen, stream).double()
        return torch.nn.functional.cosine_similarity(here, fixed.to(here.device), dim=-1)

    how = "first token's state" if pooling.first else "mean state"
    short = other if len(other) <= 60 else f"{other[:57]}…"
    return Outcome(f"cosine of the {how} with that of {short!r}", "cosine", of, trace)


# Of logits.


@dataclass(frozen=True)
class _Logits:
    """Where the logits of an outcome are: token, or None for those of the whole text; and what they are over."""

    token: int | None
    over: str  # "vocabulary" or "classes"
    where: str  # in words


def _of_logits(trace: "Trace", given: str | int | None) -> Outcome:
    unit, asked = UNITS[0], given
    if isinstance(given, str) and (parts := _PREFIX.fullmatch(given)):
        unit, asked = parts[1], parts[2].strip() or None
    place = None
    if isinstance(asked, str) and (parts := _PLACE.fullmatch(asked)):
        asked, place = parts[1] or None, int(parts[2])
    logits = _logits(trace, place)
    row = _row(trace, logits)
    if row.numel() == 1 and asked is None:
        number = _number(logits, [(1.0, 0)], "logit")
        return Outcome(f"the number that the model gives{logits.where}", "logit", number, trace)
    if asked is None:
        best = int(row.argmax())
        chosen, words = [(1.0, best)], f"{_named(trace, logits, best)}{logits.where} (the most likely)"
    else:
        chosen, words = _chosen(trace, logits, asked)
        words += logits.where
    if len(chosen) > 1 and unit == UNITS[0]:
        unit = "logit"  # the same: what all logits have in common is in both
    name = f"{unit} of {words}" if len(chosen) == 1 else f"difference in {unit} of {words}"
    return Outcome(name, unit, _number(logits, chosen, unit), trace)


def _logits(trace: "Trace", place: int | None) -> _Logits:
    """Where in the logits the outcome is to be read."""
    logits, model = trace.logits, trace.model
    assert logits is not None and model is not None
    if logits.dim() == 1:
        if place is not None:
            raise InputError(f"{model.name} gives logits for the whole text; leave @{place} out.")
        return _Logits(None, "classes", "")
    if logits.dim() != 2:
        raise InputError(
            f"the logits of {model.name} have the axes {list(logits.shape)}; say what of them is to be explained by a"
            " function (in Python: outcome=lambda run: run.logits[…])."
        )
    stream = trace.streams.get("decoder", trace.main)
    if logits.shape[0] != len(stream):
        raise InputError(f"{model.name} gives {logits.shape[0]} logits for {len(stream)} tokens; give a function.")
    if place is not None and not -len(stream) <= place < len(stream):
        raise InputError(f"@{place} was given; the text has tokens 0 to {len(stream) - 1}.")
    if _is_vocabulary(model, logits):
        if any(site.kind == "decoder-self" and site.query_stream == stream.name for site in trace.sites):
            token = len(stream) - 1 if place is None else place % len(stream)
            last = token == len(stream) - 1
            return _Logits(token, "vocabulary", " as the next token" if last else f" after token {token}")
        return _masked(trace, place)
    return _labelled_token(trace, place)


def _is_vocabulary(model: Model, logits: Tensor) -> bool:
    configurations = (model.config, getattr(model.config, "text_config", None), getattr(model.config, "decoder", None))
    return logits.shape[-1] in {getattr(one, "vocab_size", None) for one in configurations}


def _masked(trace: "Trace", place: int | None) -> _Logits:
    model, stream = trace.model, trace.main
    assert model is not None
    mask = getattr(model.tokenizer, "mask_token_id", None)
    places = [at for at, token in enumerate(stream.ids or ()) if mask is not None and token == mask]
    if place is None:
        if len(places) != 1:
            name = getattr(model.tokenizer, "mask_token", None) or "the mask token"
            raise InputError(
                f"{model.name} says which word stands at {name}; the text has {len(places)} of them. Give a text with"
                " one, or say at which token the outcome is to be read (--outcome WORD@POSITION)."
            )
        place = places[0]
    place %= len(stream)
    return _Logits(place, "vocabulary", f" at {'the mask' if place in places else f'token {place}'}")


def _labelled_token(trace: "Trace", place: int | None) -> _Logits:
    """Of a model that labels every token; by default the one it is surest of, among those whose label says more."""
    model, stream, logits = trace.model, trace.main, trace.logits
    assert model is not None and logits is not None
    if place is None:
        surest, labels = logits.double().log_softmax(-1).max(-1)
        names = getattr(model.config, "id2label", {})
        open_ = [
            at for at in range(len(stream)) if not stream.special[at] and names.get(int(labels[at])) not in ("O", "o")
        ] or [at for at in range(len(stream)) if not stream.special[at]]
        if not open_:
            raise InputError("the text has no word to label.")
        place = max(open_, key=lambda at: float(surest[at]))
    place %= len(stream)
    return _Logits(place, "classes", f" for {shown_token(stream.tokens[place])!r} (token {place})")


def _row(trace: "Trace", logits: _Logits) -> Tensor:
    assert trace.logits is not None
    return trace.logits if logits.token is None else trace.logits[logits.token]


def _number(logits: _Logits, chosen: list[tuple[float, int]], unit: str) -> Callable[[Seen], Tensor]:
    def of(seen: Seen) -> Tensor:
        rows = seen.forward.logits
        assert rows is not None
        if logits.token is not None:
            rows = rows[torch.arange(len(rows), device=rows.device), seen.place(logits.token, rows.shape[1])]
        rows = rows.double()
        if unit != "logit":
            rows = rows.log_softmax(-1)
        if unit == "probability":
            rows = rows.exp()
        total: Tensor = sum(weight * rows[:, place] for weight, place in chosen)  # type: ignore[assignment]
        return total

    return of


def _chosen(trace: "Trace", logits: _Logits, asked: str | int) -> tuple[list[tuple[float, int]], str]:
    """Which logits are meant, with their weights, and their names: one, or a difference "A-B"."""
    whole = _place_of(trace, logits, asked)
    if isinstance(whole, int):
        return [(1.0, whole)], _named(trace, logits, whole)
    if not isinstance(asked, str):
        raise InputError(f"outcome={asked!r} was given: {whole}")
    ways = []
    for cut in (at for at, letter in enumerate(asked) if letter == "-"):
        sides = [_place_of(trace, logits, side.strip()) for side in (asked[:cut], asked[cut + 1 :]) if side.strip()]
        if len(sides) == 2 and all(isinstance(side, int) for side in sides):
            ways.append(sides)
    if len(ways) == 1:
        first, second = (int(side) for side in ways[0])
        if first == second:
            raise InputError(f"outcome={asked!r} was given, the difference of a logit and itself, which is always 0.")
        return [(1.0, first), (-1.0, second)], f"{_named(trace, logits, first)} and {_named(trace, logits, second)}"
    if len(ways) > 1:
        raise InputError(f"outcome={asked!r} can be cut into two in {len(ways)} ways; say it with id:NUMBER.")
    raise InputError(f"outcome={asked!r} was given: {whole}")


def _place_of(trace: "Trace", logits: _Logits, asked: str | int) -> int | str:
    """The place of a word or class among the logits, or why there is none."""
    count = _row(trace, logits).shape[-1]
    number = asked if isinstance(asked, int) else None
    if isinstance(asked, str) and re.fullmatch(r"id:\d+", asked):
        number = int(asked[3:])
    if number is not None:
        return number if 0 <= number < count else f"there are {count} logits, 0 to {count - 1}."
    assert isinstance(asked, str)
    return _class(trace, asked, count) if logits.over == "classes" else _word(trace, asked, count)


def _class(trace: "Trace", asked: str, count: int) -> int | str:
    assert trace.model is not None
    names = {int(place): str(name) for place, name in (getattr(trace.model.config, "id2label", None) or {}).items()}
    exact = [place for place, name in names.items() if name == asked]
    alike = exact or [place for place, name in names.items() if name.casefold() == asked.casefold()]
    if len(alike) == 1:
        return alike[0]
    if asked.isdecimal() and int(asked) < count:
        return int(asked)
    known = ", ".join(list(names.values())[:8]) + (", …" if len(names) > 8 else "")
    return f"the classes of {trace.model.name} are {known or f'0 to {count - 1}'}."


def _word(trace: "Trace", asked: str, count: int) -> int | str:
    """The id of a word; where words are written with the space before them, that form first."""
    tokenizer = trace.model.tokenizer if trace.model is not None else None
    if tokenizer is None:
        return "the model came without a tokenizer; give the number of a token, as id:NUMBER."
    pieces: list[list[int]] = []
    for form in (asked, f" {asked}") if asked[:1].isspace() else (f" {asked}", asked):
        ids = list(tokenize(tokenizer, form, add_special_tokens=False, verbose=False)["input_ids"])
        if len(ids) == 1 and ids[0] != getattr(tokenizer, "unk_token_id", None):
            return int(ids[0]) if ids[0] < count else f"its id {ids[0]} is beyond the {count} logits."
        pieces.append(ids)
    assert trace.model is not None
    if pieces[0] and pieces[0] != [getattr(tokenizer, "unk_token_id", None)]:
        shown = ", ".join(repr(shown_token(name)) for name in token_names(trace.model, pieces[0]))
        return (
            f"the tokenizer writes it as {len(pieces[0])} tokens ({shown}), and an outcome is of one. Give one of them,"
            f" such as id:{pieces[0][0]}."
        )
    return "the tokenizer does not know it."


def _named(trace: "Trace", logits: _Logits, place: int) -> str:
    assert trace.model is not None
    if logits.over == "vocabulary":
        return repr(shown_token(token_names(trace.model, [place])[0]))
    names: Mapping[Any, Any] = getattr(trace.model.config, "id2label", None) or {}
    return f"class {names.get(place, place)}"
