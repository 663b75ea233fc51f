"""One forward pass over a batch of texts, from which all methods of a Run take what they need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identiscope.capture.calls import Call
from identiscope.capture.capturing import QUICK_ROWS, expected_streams, trace
from identiscope.capture.forward import left_as_found, try_forward
from identiscope.capture.inputs import Batch, encode
from identiscope.capture.models import Model
from identiscope.capture.streams import Places
from identiscope.capture.watching import watching
from identiscope.corpus.attribution_statistics import attribution_statistics
from identiscope.corpus.batch_tokens import BatchTokens, batch_tokens
from identiscope.corpus.run_methods import RUN_METHODS
from identiscope.corpus.run_options import RunOptions
from identiscope.corpus.structure_statistics import text_site
from identiscope.errors import CaptureError, InputError
from identiscope.linalg.full_rank import HeadProducts, head_products
from identiscope.linalg.projection_factor import projection_factor
from identiscope.methods.shared_subspace import SharedSubspace, no_samples

Columns = dict[str, NDArray[np.float64]]
_STREAMS = ("encoder", "tokens", "text")


@dataclass(frozen=True)
class Shape:
    """Which attention layers and heads of a model a Run is about, and how many calls one pass makes."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]

    def of(self, axes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The labels of a table's axes; hidden states are counted from 1, after the layer before."""
        if tuple(axes) == ("layer",):
            return (tuple(layer + 1 for layer in self.layers),)
        return self.layers, self.heads


def model_shape(model: Model, options: RunOptions) -> Shape:
    """Look at the model once, on three tokens: whether its attention can be captured, and what there is of it."""
    found = trace(model, [3, 4, 5])
    own = [site for site in found.sites if site.query_stream == site.key_stream == found.main.name]
    if not own:
        raise CaptureError(f"{model.name} has no attention of a text to itself.")
    layers = tuple(range(len(own))) if options.layers is None else options.layers
    heads = tuple(range(own[0].head_count)) if options.heads is None else options.heads
    for name, asked, count in (("layers", layers, len(own)), ("heads", heads, own[0].head_count)):
        if any(not 0 <= number < count for number in asked):
            raise InputError(f"{name} {list(asked)} were asked for; {model.name} has {name} 0 to {count - 1}.")
    if any(site.head_count != own[0].head_count for site in own):
        raise InputError(f"the layers of {model.name} have different numbers of heads; choose layers that have not.")
    return Shape(layers, heads)


@dataclass(eq=False)
class Worker:
    """A model with what is computed once for all batches. products: of each layer's output projection."""

    model: Model
    options: RunOptions
    shape: Shape
    products: dict[int, HeadProducts] = field(default_factory=dict)

    def of_layer(self, call: Call, layer: int) -> HeadProducts:
        """The products of a layer, from the first call that shows them."""
        if layer not in self.products:
            assert call.projection is not None
            heads = call.projection.reshape(call.query.shape[1], -1, call.projection.shape[1])
            self.products[layer] = head_products(projection_factor(heads))
        return self.products[layer]


@dataclass(frozen=True, eq=False)
class Computed:
    """Of one batch: columns by method [text, layer] or [text, layer, head]; hidden states by text and layer, if asked
    for; subspaces by layer, of texts of the length asked for."""

    tables: Mapping[str, Columns]
    states: Sequence[Sequence[Tensor]] | None
    subspaces: Mapping[int, SharedSubspace]


def compute_batch(worker: Worker, texts: Sequence[str | tuple[str, str]]) -> Computed:
    """All methods asked for, on one batch."""
    options, model = worker.options, worker.model
    batch = encode(model, texts, targets=[None] * len(texts))
    stream = next(name for name in _STREAMS if name in batch.labels[0])
    labels = [label[stream] for label in batch.labels]
    tokens = batch_tokens(labels, batch.arguments["input_ids"].shape[1], model.tokenizer)
    seen: dict[str, dict[int, Mapping[str, Tensor]]] = {name: {} for name in options.methods}
    subspaces: dict[int, SharedSubspace] = {}
    states = _forward(worker, batch, stream, tokens, seen, subspaces)
    tables: dict[str, Columns] = {}
    for name in options.methods:
        method = RUN_METHODS[name]
        if method.kind == "call":
            layers = [seen[name][layer] for layer in worker.shape.layers]
            tables[name] = {key: torch.stack([layer[key] for layer in layers], 1).numpy() for key in layers[0]}
        elif method.kind == "states":
            rows = method.function(_of_texts(states, tokens, (0, *(layer + 1 for layer in worker.shape.layers))))
            tables[name] = {key: value.numpy() for key, value in rows.items()}
        else:
            tables[name] = _of_traces(worker, texts)
    kept = _of_texts(states, tokens, range(len(states))) if options.hidden_states else None
    return Computed(tables, kept, subspaces)


def _forward(
    worker: Worker,
    batch: Batch,
    stream: str,
    tokens: BatchTokens,
    seen: dict[str, dict[int, Mapping[str, Tensor]]],
    subspaces: dict[int, SharedSubspace],
) -> Sequence[Tensor]:
    """Run the model, hand every attention call to the methods that want it, and return the hidden states."""
    options, shape = worker.options, worker.shape
    wanted = [name for name in options.methods if RUN_METHODS[name].kind == "call"]
    places = Places(expected_streams(worker.model, batch))
    checked = False

    def visit(call: Call) -> None:
        nonlocal checked
        if call.problem is not None:
            raise CaptureError(f"{call.name}: {call.problem}. See docs/add-a-model.md.")
        place = places.next(call)
        if not place.query_stream == place.key_stream == stream or place.layer not in shape.layers:
            return
        if place.layer == shape.layers[-1]:
            # The last layer was reached through all others: it is the one checked every time.
            checked = text_site(call, place, 0, tokens, None).verify(rows=QUICK_ROWS).verified
        layer = worker.of_layer(call, place.layer)
        for name in wanted:
            seen[name][place.layer] = RUN_METHODS[name].function(call, place, tokens, layer, shape.heads)
        for number, length in enumerate(tokens.lengths):
            if length == options.subspace_length:
                site = text_site(call, place, number, tokens, None)
                before = subspaces.get(place.layer, no_samples(call.query.shape[1], length))
                subspaces[place.layer] = before.add(site.value, layer.factor, precision=site.value.dtype)

    def undisturbed(call: Call) -> None:
        # What is computed here is not the model's, and need not be watched.
        with torch._C.DisableTorchFunction():
            visit(call)

    module = worker.model.module
    if not wanted and options.subspace_length is None:
        with torch.no_grad(), left_as_found(module):
            return try_forward(worker.model, batch.arguments).hidden_states.get(stream, ())
    with torch.no_grad(), left_as_found(module), watching(module, visit=undisturbed) as watcher:
        states = try_forward(worker.model, batch.arguments).hidden_states.get(stream, ())
    if not checked or watcher.count != watcher.attention_modules_run:
        raise CaptureError(
            f"{worker.model.name}: the attention that was seen does not give what the model returned on this batch of"
            f" {batch.size} texts ({watcher.count} of {watcher.attention_modules_run} attention modules were seen)."
        )
    return states


def _of_texts(states: Sequence[Tensor], tokens: BatchTokens, layers: Sequence[int]) -> list[list[Tensor]]:
    """Hidden states by text and layer, padding dropped."""
    if not states:
        raise CaptureError("the model shows no hidden states, which `tokens` and --hidden-states need.")
    everyone = range(len(tokens.lengths))
    return [[states[layer][text, tokens.real[text]] for layer in layers] for text in everyone]


def _of_traces(worker: Worker, texts: Sequence[Any]) -> Columns:
    layers = [layer + 1 for layer in worker.shape.layers]
    options = {"probes": worker.options.probes, "seed": worker.options.seed}
    rows = [attribution_statistics(trace(worker.model, text), layers, **options) for text in texts]
    return {name: torch.stack([row[name] for row in rows]).numpy() for name in rows[0]}
