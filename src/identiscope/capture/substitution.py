"""Run the model with other attention maps at chosen layers and heads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from identiscope.capture.forward import forward, try_forward
from identiscope.capture.inputs import encode
from identiscope.capture.models import load
from identiscope.capture.sorting import in_words, places_of
from identiscope.capture.twin import twin
from identiscope.capture.watch.calls import Change
from identiscope.capture.watch.watching import watching
from identiscope.capture.words import as_html, precision_in_words, shape_in_words
from identiscope.errors import InputError

Replacement = Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Rerun:
    """What the model returned with the new maps: logits if it has any, hidden states by stream ([n, d] a layer)."""

    logits: Tensor | None
    streams: Mapping[str, tuple[Tensor, ...]]

    @property
    def hidden_states(self) -> tuple[Tensor, ...]:
        """Hidden states of the last stream: the decoder's, if there is one."""
        return list(self.streams.values())[-1]

    def __repr__(self) -> str:
        parts = [] if self.logits is None else [f"logits {shape_in_words(self.logits.shape)}"]
        for name, layers in self.streams.items():
            parts.append(f"{len(layers)} hidden states of {name}, {shape_in_words(layers[-1].shape)}")
        tensors = [*([] if self.logits is None else [self.logits]), *(layers[-1] for layers in self.streams.values())]
        dtypes = dict.fromkeys(precision_in_words(tensor.dtype) for tensor in tensors)
        return f"Rerun({'; '.join([*parts, ' and '.join(dtypes)] if parts else ['nothing'])})"

    def _repr_html_(self) -> str:
        return as_html(repr(self))


def substitute(
    model: Any,
    text: Any,
    replacements: Mapping[tuple[int, int], Replacement],
    *,
    attention: str | None = None,
    stream: str | None = None,
    target: Any = None,
    truncate: bool = False,
    whole: bool = False,
) -> Rerun:
    """Run the model on one text with attention replaced at (layer, head).

    >>> substitute(model, text, {(3, 7): lambda attention: attention.flip(-1)})

    A replacement is a map [query, key], or a function from the map in place (float64) to the new one. The
    head's output becomes what the kernel returned plus (A' − A)·V, so a map that stays the same changes no
    bit. whole: it becomes A'·V, summed in float64 and rounded once to the model's precision; a map that stays the
    same then shows what rounding does. attention and stream say which attention is meant where the model has several.
    """
    loaded = load(model)
    batch = encode(loaded, [text], targets=[target], truncate=truncate).only()
    running = twin(loaded)
    with torch.no_grad():
        with watching(running.module) as watcher:
            result = try_forward(running, batch.arguments)
        places: dict[tuple[int, int], Change] = {}
        numbering = places_of(loaded, batch, result.hidden_states)
        known: set[tuple[str, str]] = set()
        left = dict(replacements)
        for call in watcher.calls:
            place = numbering.next(call)
            if attention not in (None, place.kind) or stream not in (None, place.query_stream):
                continue
            known.add((place.kind, place.query_stream))
            for head in range(call.query.shape[1]):
                if (place.layer, head) in left:
                    places[call.index, head] = _change(left[place.layer, head])
        if len(known) > 1:
            raise InputError(f"{loaded.name} has several attentions; say which (attention or stream): {sorted(known)}.")
        if len(places) != len(left):
            layers = sorted({layer for key in known for layer in numbering.layers[key]})
            heads = watcher.calls[0].query.shape[1] if watcher.calls else 0
            raise InputError(
                f"cannot replace (layer, head) {sorted(left)}; {loaded.name} has {in_words(layers)} and {heads} heads,"
                " both counted from 0."
            )
        del watcher
        with watching(running.module, changes=places, whole=whole, visit=lambda call: None):
            changed = forward(running, batch.arguments)

    def kept(states: Tensor) -> Tensor:
        return states[0].detach().to(loaded.home(states.device))

    return Rerun(
        logits=None if changed.logits is None else kept(changed.logits),
        streams={name: tuple(map(kept, layers)) for name, layers in changed.hidden_states.items()},
    )


def _change(replacement: Replacement) -> Change:
    def change(attention: Tensor) -> Tensor:
        new = replacement(attention[0]) if callable(replacement) else replacement
        new = torch.as_tensor(new, dtype=torch.float64, device=attention.device)
        if new.shape != attention[0].shape:
            raise InputError(
                f"the new map has shape {tuple(new.shape)}; expected {tuple(attention[0].shape)} [query, key]."
            )
        if not bool(torch.isfinite(new).all()):
            raise InputError("the new map has NaN or infinite entries.")
        return new[None]

    return change
