"""Run the model with other attention maps at chosen layers and heads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from identiscope.capture.calls import Change
from identiscope.capture.capturing import expected_streams
from identiscope.capture.forward import forward, left_as_found, try_forward
from identiscope.capture.inputs import encode
from identiscope.capture.models import load
from identiscope.capture.streams import Places
from identiscope.capture.watching import watching
from identiscope.errors import InputError

Replacement = Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """What the model returned with the new maps: logits if it has any, hidden states by stream ([n, d] a layer)."""

    logits: Tensor | None
    streams: Mapping[str, tuple[Tensor, ...]]

    @property
    def hidden_states(self) -> tuple[Tensor, ...]:
        """Hidden states of the last stream: the decoder's, if there is one."""
        return list(self.streams.values())[-1]


def substitute(
    model: Any,
    text: Any,
    replacements: Mapping[tuple[int, int], Replacement],
    *,
    kind: str | None = None,
    stream: str | None = None,
    target: Any = None,
    truncate: bool = False,
) -> Outcome:
    """Run the model on one text with attention replaced at (layer, head).

    >>> substitute(model, text, {(3, 7): lambda attention: attention.flip(-1)})

    A replacement is a map [query, key], or a function from the map in place (float64) to the new one. The
    head's output becomes what the kernel returned plus (A' − A)·V, so a map that stays the same changes no
    bit. kind and stream say which attention is meant where the model has several.
    """
    loaded = load(model)
    batch = encode(loaded, [text], targets=[target], truncate=truncate)
    with torch.no_grad(), left_as_found(loaded.module):
        with watching(loaded.module) as watcher:
            result = try_forward(loaded, batch.arguments)
        places: dict[tuple[int, int], Change] = {}
        numbering = Places(list(result.hidden_states) or expected_streams(loaded, batch))
        known: set[tuple[str, str]] = set()
        left = dict(replacements)
        for call in watcher.calls:
            place = numbering.next(call)
            if kind not in (None, place.kind) or stream not in (None, place.query_stream):
                continue
            known.add((place.kind, place.query_stream))
            for head in range(call.query.shape[1]):
                if (place.layer, head) in left:
                    places[call.index, head] = _change(left[place.layer, head])
        if len(known) > 1:
            raise InputError(f"{loaded.name} has several attentions; say which kind or stream: {sorted(known)}.")
        if len(places) != len(left):
            shape = {key: number for key, number in numbering.layers.items() if key in known}
            heads = watcher.calls[0].query.shape[1] if watcher.calls else 0
            raise InputError(
                f"cannot replace (layer, head) {sorted(left)}; {loaded.name} has layers {shape} and {heads} heads,"
                " both counted from 0."
            )
        del watcher
        with watching(loaded.module, changes=places, visit=lambda call: None):
            changed = forward(loaded, batch.arguments)
    logits = changed.logits
    return Outcome(
        logits=None if logits is None else logits[0].detach(),
        streams={name: tuple(layer[0].detach() for layer in layers) for name, layers in changed.hidden_states.items()},
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
