"""Where each attention call of a pass belongs: its layer, kind and streams, and the texts it is about."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from identiscope.capture.batch import Batch
from identiscope.capture.cutting import site_of
from identiscope.capture.forward import forward
from identiscope.capture.models import Model
from identiscope.capture.site import Site
from identiscope.capture.streams import DECODER, MAIN, Places
from identiscope.capture.twin import twin
from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.watching import watching
from identiscope.errors import CaptureError, InputError


def in_words(layers: Sequence[int]) -> str:
    """Layers that attend, for an error message."""
    if list(layers) == list(range(len(layers))):
        return f"layers 0 to {len(layers) - 1}"
    return f"attention in layers {', '.join(map(str, layers))}"


def places_of(model: Model, batch: Batch, states: Mapping[str, Sequence[Tensor]] | None = None) -> Places:
    """Places for the calls of one pass; states: the hidden states that it returned, if there are any yet."""
    lengths: dict[str, int | None] = {name: layers[0].shape[1] for name, layers in (states or {}).items()}
    if not lengths:
        lengths = {name: batch.length(name) for name in expected_streams(model, batch)}
    return Places(lengths, batch, _told(model, batch))


def _told(model: Model, batch: Batch) -> list[bool]:
    """Whether each call is causal, from the same texts written twice, if they have no more than one token."""
    streams = [name for name in batch.labels[0] if name != "decoder"]
    if not streams or any(len(labels[name].tokens) > 1 for labels in batch.labels for name in streams):
        return []
    longer, running = batch.doubled(), twin(model)
    try:
        with torch.no_grad(), watching(running.module) as watcher:
            result = forward(running, longer.arguments)
    except Exception:  # whatever a model says to a text it was not given; then it is what its modules say
        return []
    places = places_of(model, longer, result.hidden_states)
    return [places.next(call).kind == DECODER for call in watcher.calls]


def expected_streams(model: Model, batch: Batch) -> list[str]:
    """The streams of a model that shows no hidden states, from what it is given."""
    if getattr(model.config, "is_encoder_decoder", False):
        return ["encoder", "decoder"]
    names = list(batch.labels[0])
    if names == ["text"] and "pixel_values" in batch.arguments:
        names.append("vision")
    return names or [MAIN]


class Sorter:
    """Gives each call its place, and cuts it into the texts of the batch."""

    def __init__(
        self,
        model: Model,
        batch: Batch,
        states: Mapping[str, Sequence[Tensor]] | None,
        layers: Sequence[int] | None,
        heads: Sequence[int] | None,
    ) -> None:
        self.model, self.batch, self.places = model, batch, places_of(model, batch, states)
        self.layers, self.heads = layers, heads

    def sites(self, call: Call) -> list[Site]:
        """The texts' parts of a call, in order; none if its layer was not chosen."""
        if call.problem is not None:
            raise CaptureError(f"{call.name}: {call.problem}. See docs/add-a-model.md.")
        if call.query.shape[0] != self.batch.size:
            raise CaptureError(
                f"{call.name} attends in {call.query.shape[0]} pieces for {self.batch.size} texts (windows?), which"
                " cannot be told apart."
            )
        place = self.places.next(call)
        if self.layers is not None and place.layer not in self.layers:
            return []
        # Here, once for all: what is worked on elsewhere than it was computed is taken there.
        call = call.to(self.model.home(call.query.device))
        count = call.query.shape[1]
        if self.heads is not None and any(not 0 <= head < count for head in self.heads):
            raise InputError(f"heads {list(self.heads)} were asked for; {call.name} has heads 0 to {count - 1}.")
        return [
            site_of(
                call,
                text,
                place=place,
                positions=(
                    self.batch.own_positions(text, place.query_stream, call.query.shape[2]),
                    self.batch.own_positions(text, place.key_stream, call.key.shape[2]),
                ),
                heads=self.heads,
            )
            for text in range(self.batch.size)
        ]

    def check_choice(self) -> None:
        """Every layer asked for must exist."""
        have = sorted({layer for layers in self.places.layers.values() for layer in layers})
        if self.layers is not None and not set(self.layers) <= set(have):
            raise InputError(f"layers {list(self.layers)} were asked for; {self.model.name} has {in_words(have)}.")
