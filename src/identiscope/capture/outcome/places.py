"""Where in what a model returns the logits of an outcome are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from identiscope.capture.models import Model
from identiscope.errors import InputError
from identiscope.token_text import shown_token

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace

#: What configurations call models whose classes do not exclude each other.
SEVERAL = "multi_label_classification"


@dataclass(frozen=True)
class Logits:
    """Where the logits of an outcome are: token, or None for those of the whole text; and what they are over.

    over: the "vocabulary"; "classes", of which one holds; "labels", each of which holds or not; or plain "numbers".
    """

    token: int | None
    over: str
    where: str  # in words


def logits_of(trace: "Trace", place: int | None) -> Logits:
    """Where in the logits the outcome is to be read."""
    logits, model = trace.logits, trace.model
    assert logits is not None and model is not None
    if logits.dim() == 1:
        if place is not None:
            raise InputError(f"{model.name} gives logits for the whole text; leave @{place} out.")
        count = getattr(model.config, "num_labels", None)
        if len(logits) not in (1, count) and len(logits) == len(trace.main):
            raise InputError(
                f"{model.name} gives one number for each token, and not {count} classes of the text; say what of them"
                " is to be explained by a function (in Python: outcome=lambda run: run.logits[3])."
            )
        return Logits(None, _classes(model, len(logits)), "")
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
    if is_vocabulary(model, logits):
        if any(site.kind == "decoder-self" and site.query_stream == stream.name for site in trace.sites):
            token = len(stream) - 1 if place is None else place % len(stream)
            last = token == len(stream) - 1
            return Logits(token, "vocabulary", " as the next token" if last else f" after token {token}")
        return _masked(trace, place)
    return _labelled_token(trace, place)


def _classes(model: Model, count: int) -> str:
    """What logits over classes are trained to be, as the model's configuration says."""
    kind = getattr(model.config, "problem_type", None)
    return "numbers" if kind == "regression" or count == 1 else "labels" if kind == SEVERAL else "classes"


def is_vocabulary(model: Model, logits: Tensor) -> bool:
    """Whether these are of words, rather than of classes."""
    configurations = (model.config, getattr(model.config, "text_config", None), getattr(model.config, "decoder", None))
    return logits.shape[-1] in {getattr(one, "vocab_size", None) for one in configurations}


def _masked(trace: "Trace", place: int | None) -> Logits:
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
    return Logits(place, "vocabulary", f" at {'the mask' if place in places else f'token {place}'}")


def _labelled_token(trace: "Trace", place: int | None) -> Logits:
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
    return Logits(
        place, _classes(model, logits.shape[-1]), f" for {shown_token(stream.tokens[place])!r} (token {place})"
    )


def row_of(trace: "Trace", logits: Logits) -> Tensor:
    """The logits of the traced text, where the outcome is read."""
    assert trace.logits is not None
    return trace.logits if logits.token is None else trace.logits[logits.token]
