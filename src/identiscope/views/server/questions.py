"""What a page of the server may ask for: checked field by field, with a message for whoever wrote it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from identiscope.errors import InputError
from identiscope.methods.kinds import KINDS as KINDS_OF_METHODS
from identiscope.methods.registry import METHODS, method
from identiscope.progress import Progress
from identiscope.views.page.data import Page

#: What is asked for by a name, and is not shown as a section of its method.
VERDICT, CANONICAL, ATTRIBUTION = "verdict", "canonical", "attribution"

KINDS = ("encoder-self", "decoder-self", "cross")

#: Directions of an attribution estimate: the time goes with them, the error with one over their root.
DIRECTIONS = (2, 64)

#: How many heads and rows one question may name.
MOST_PLACES = 64


@dataclass(frozen=True)
class Choice:
    """What a text can be asked to be shown with, beside its maps.

    text and note: in words. on: unless asked otherwise. group: what the kind of it gives; none for what stands first.
    """

    name: str
    text: str
    note: str
    on: bool = False
    group: str = ""


def choices() -> list[Choice]:
    """What can be asked for: what belongs to the maps of a page, then every other method, by its kind."""
    first = [
        Choice(VERDICT, "Verdict", "what is real, in words, with the ranges of some weights", on=True),
        Choice(CANONICAL, "Canonical maps of all heads", "the one map that stands for all with the same output"),
        Choice(ATTRIBUTION, "Hidden Token Attribution", "what each hidden token is made of (eq. 11), estimated"),
    ]
    shown = {method(one.name).name for one in first if one.name != VERDICT}
    others = [one for kind in KINDS_OF_METHODS for one in METHODS.values() if one.kind == kind]
    return first + [
        Choice(one.name, one.name.replace("_", " ").capitalize(), f"{one.says} ({one.paper})", group=one.family.says)
        for one in others
        if one.name not in shown
    ]


@dataclass(frozen=True)
class ServedModel:
    """A model that the server was started with, as the browser may know it."""

    name: str
    target: bool = False  # whether it has a decoder, which needs a text of its own
    where: str = ""  # the device and precision that it computes in


@dataclass(frozen=True)
class Question:
    """A text for one of the server's models, and what to compute; or, with a base, what to add to its page."""

    model: int
    text: str
    target: str | None = None
    attention: str | None = None
    methods: tuple[str, ...] = (VERDICT,)
    outcome: str | None = None  # what methods explain that explain something; none: what is usual for the model
    directions: int = 8
    canonical: tuple[tuple[int, int], ...] = ()  # (layer, head)
    intervals: tuple[tuple[int, int, int], ...] = ()  # (layer, head, row)
    base: Page | None = None


#: From a question to a page; the progress raises when the answer is no longer wanted.
Compute = Callable[[Question, Progress], Page]


def read_question(given: Any, models: int, longest: int) -> Question:
    """A question about a text, from parsed JSON."""
    fields = _fields(given, {"model", "text"}, {"target", "attention", "methods", "outcome", "directions"})
    model = _whole(fields["model"], "model", 0, models - 1)
    target = None if fields.get("target") is None else _text(fields["target"], "target", longest)
    attention = fields.get("attention")
    if attention is not None and attention not in KINDS:
        raise InputError(f"attention must be one of {', '.join(KINDS)}.")
    text = _text(fields["text"], "text", longest)
    methods = _methods(fields.get("methods", [VERDICT]))
    outcome = None if fields.get("outcome") is None else _text(fields["outcome"], "outcome", longest)
    return Question(model, text, target, attention, methods, outcome, _directions(fields))


def read_more(given: Any, about: Question, base: Page) -> Question:
    """A question about what to add to a page that was made before."""
    fields = _fields(given, set(), {"methods", "directions", "canonical", "intervals"})
    return Question(
        about.model, about.text, about.target, about.attention,
        methods=_methods(fields.get("methods", [])),
        outcome=about.outcome,
        directions=_directions(fields),
        canonical=_places(fields.get("canonical", []), "canonical", 2),
        intervals=_places(fields.get("intervals", []), "intervals", 3),
        base=base,
    )  # fmt: skip


def _fields(given: Any, needed: set[str], optional: set[str]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise InputError("a JSON object is expected.")
    missing, unknown = sorted(needed - set(given)), sorted(set(given) - needed - optional)
    if missing or unknown:
        known = ", ".join(sorted(needed | optional))
        said = [f"{', '.join(missing)} missing"] * bool(missing) + ["there is a field of another name"] * bool(unknown)
        raise InputError(f"{'; '.join(said)}. The fields are {known}.")
    return given


def _text(value: Any, name: str, longest: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name} must be some words.")
    if len(value) > longest:
        raise InputError(f"{name} has {len(value)} characters; at most {longest} are taken here.")
    # Half of a surrogate pair is valid JSON and no text: tokenizers refuse it with a message about bytes.
    return value.encode("utf-8", "replace").decode("utf-8")


def _whole(value: Any, name: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InputError(f"{name} must be a whole number from {least} to {most}.")
    return value


def _methods(value: Any) -> tuple[str, ...]:
    known = [one.name for one in choices()]
    if not isinstance(value, list) or not all(one in known for one in value):
        raise InputError(f"methods must be a list of some of {', '.join(known)}.")
    return tuple(dict.fromkeys(value))


def _directions(fields: Mapping[str, Any]) -> int:
    return _whole(fields.get("directions", 8), "directions", *DIRECTIONS)


def _places(value: Any, name: str, count: int) -> Any:
    expected = "[layer, head, row]" if count == 3 else "[layer, head]"
    if not isinstance(value, list) or len(value) > MOST_PLACES:
        raise InputError(f"{name} must be a list of at most {MOST_PLACES} {expected}.")
    for one in value:
        if not isinstance(one, list) or len(one) != count:
            raise InputError(f"{name} must be a list of {expected}.")
    return tuple(tuple(_whole(part, name, 0, 2**20) for part in one) for one in value)
