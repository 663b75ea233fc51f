"""One forward pass over a batch of texts, from which all methods of a Run take what they need."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identiscope.capture.batch import Batch
from identiscope.capture.capturing import QUICK_ROWS, trace
from identiscope.capture.forward import try_forward
from identiscope.capture.inputs import TokenRow, encode
from identiscope.capture.models import Model
from identiscope.capture.padding import pads_well
from identiscope.capture.sorting import in_words, places_of
from identiscope.capture.twin import twin
from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.watching import watching
from identiscope.errors import CaptureError, InputError
from identiscope.linalg.devices import as_numpy, on_cpu
from identiscope.linalg.rank.full_rank import HeadProducts, head_products
from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.methods.structure.shared_subspace import SharedSubspace, no_samples
from identiscope.runs.compute.batch_tokens import BatchTokens, batch_tokens
from identiscope.runs.compute.batched.head_pattern import text_site
from identiscope.runs.compute.filling import FromCall, FromInputs, FromStates, FromTrace
from identiscope.runs.compute.methods import RUN_METHODS
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.format.tables import Shape

Columns = dict[str, NDArray[np.float64]]
#: A text, a pair, or what its tokenizer made of it.
Given = str | tuple[str, str] | TokenRow
_STREAMS = ("encoder", "tokens", "text")
#: What the time is called that no method took.
FORWARD = "forward pass"


def model_shape(model: Model, options: RunOptions) -> Shape:
    """Look at the model once, on three tokens: whether its attention can be captured, and what there is of it."""
    traced = trace(model, [3, 4, 5])
    own = [site for site in traced.sites if site.query_stream == site.key_stream == traced.main.name]
    if not own:
        raise CaptureError(f"{model.name} has no attention of a text to itself.")
    have, count = tuple(site.layer for site in own), own[0].head_count
    layers = have if options.layers is None else options.layers
    heads = tuple(range(count)) if options.heads is None else options.heads
    if not set(layers) <= set(have):
        raise InputError(f"layers {list(layers)} were asked for; {model.name} has {in_words(have)}.")
    if any(not 0 <= head < count for head in heads):
        raise InputError(f"heads {list(heads)} were asked for; {model.name} has heads 0 to {count - 1}.")
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

    @cached_property
    def batch_size(self) -> int:
        """How many texts run together: one, where padding would change what they give."""
        return self.options.batch_size if self.options.batch_size > 1 and pads_well(self.model) else 1

    def of_layer(self, call: Call, layer: int) -> HeadProducts:
        """The products of a layer, from the first call that shows them."""
        if layer not in self.products:
            assert call.projection is not None
            heads = call.projection.reshape(call.query.shape[1], -1, call.projection.shape[1])
            self.products[layer] = head_products(projection_factor(heads))
        return self.products[layer]


@dataclass(frozen=True, eq=False)
class Computed:
    """Of one batch: columns by method [text, layer] or [text, layer, head]; rows of tokens by method and text; hidden
    states by text and layer, if asked for; subspaces by layer, of texts of the length asked for; seconds that each
    method took, and the forward pass with all that is done beside it."""

    tables: Mapping[str, Columns]
    states: Sequence[Sequence[Tensor]] | None
    subspaces: Mapping[int, SharedSubspace]
    seconds: Mapping[str, float]
    tokens: Mapping[str, Sequence[Mapping[str, NDArray[Any]]]] = field(default_factory=dict)


def compute_batch(worker: Worker, texts: Sequence[Given], traced: Callable[[int], None] | None = None) -> Computed:
    """All methods asked for, on one batch. traced: called with the number of each text that the methods that follow
    each text by itself are done with."""
    options, model = worker.options, worker.model
    begun, seconds = perf_counter(), dict.fromkeys(options.methods, 0.0)
    batch = encode(model, texts, targets=[None] * len(texts))
    stream = next(name for name in _STREAMS if name in batch.labels[0])
    labels = [label[stream] for label in batch.labels]
    tokens = batch_tokens(labels, batch.arguments["input_ids"].shape[1], model.tokenizer)
    seen: dict[str, dict[int, Mapping[str, Tensor]]] = {name: {} for name in options.methods}
    subspaces: dict[int, SharedSubspace] = {}
    states = _forward(worker, batch, stream, tokens, seen, subspaces, seconds)
    tables: dict[str, Columns] = {}
    for name in options.methods:
        filled = RUN_METHODS[name].filled
        if isinstance(filled, FromCall):
            layers = [seen[name][layer] for layer in worker.shape.layers]
            tables[name] = {key: as_numpy(torch.stack([layer[key] for layer in layers], 1)) for key in layers[0]}
        elif isinstance(filled, FromStates):
            with _timed(seconds, name):
                # Number 0 is the input; what block 0 wrote is number 1.
                rows = filled.fill(_of_texts(states, tokens, (0, *(layer + 1 for layer in worker.shape.layers))))
            tables[name] = {key: as_numpy(value) for key, value in rows.items()}
    kept = _of_texts(states, tokens, range(len(states))) if options.hidden_states else None
    # Last, since they take by far the longest: with such a text all is done.
    followed, by_token = _of_traces(worker, texts, seconds, traced)
    times = {FORWARD: perf_counter() - begun - sum(seconds.values()), **seconds}
    return Computed(tables | followed, kept, subspaces, times, by_token)


def _forward(
    worker: Worker,
    batch: Batch,
    stream: str,
    tokens: BatchTokens,
    seen: dict[str, dict[int, Mapping[str, Tensor]]],
    subspaces: dict[int, SharedSubspace],
    seconds: dict[str, float],
) -> Sequence[Tensor]:
    """Run the model, hand every attention call to the methods that want it, and return the hidden states."""
    options, shape = worker.options, worker.shape
    filling = {name: RUN_METHODS[name].filled for name in options.methods}
    wanted = {name: filled for name, filled in filling.items() if isinstance(filled, FromCall)}
    places = places_of(worker.model, batch)
    checked = False

    def visit(call: Call) -> None:
        nonlocal checked
        if call.problem is not None:
            raise CaptureError(f"{call.name}: {call.problem}. See docs/add-a-model.md.")
        place = places.next(call)
        if not place.query_stream == place.key_stream == stream or place.layer not in shape.layers:
            return
        call = call.to(worker.model.home(call.query.device))
        if place.layer == shape.layers[-1]:
            # The last layer was reached through all others: it is the one checked every time.
            checked = text_site(call, place, 0, tokens, None).verify(rows=QUICK_ROWS).verified
        layer = worker.of_layer(call, place.layer)
        for name, filled in wanted.items():
            with _timed(seconds, name):
                columns = filled.fill(call, place, tokens, layer, shape.heads)
                # One move for all of them: the layers of a model may be on several devices.
                together = on_cpu(torch.stack(list(columns.values())))
            seen[name][place.layer] = dict(zip(columns, together, strict=True))
        for number, length in enumerate(tokens.lengths):
            if length == options.subspace_length:
                site = text_site(call, place, number, tokens, None)
                before = subspaces.get(place.layer, no_samples(call.query.shape[1], length))
                subspaces[place.layer] = before.add(site.value, layer.factor, precision=site.value.dtype)

    def undisturbed(call: Call) -> None:
        # What is computed here is not the model's, and need not be watched.
        with torch._C.DisableTorchFunction():
            visit(call)

    running = twin(worker.model)
    if not wanted and options.subspace_length is None:
        with torch.no_grad():
            return try_forward(running, batch.arguments).hidden_states.get(stream, ())
    with torch.no_grad(), watching(running.module, visit=undisturbed) as watcher:
        states = try_forward(running, batch.arguments).hidden_states.get(stream, ())
    if not checked or watcher.count != watcher.expected:
        raise CaptureError(
            f"{worker.model.name}: the attention that was seen does not give what the model returned on this batch of"
            f" {batch.size} texts ({watcher.count} of {watcher.expected} attention modules were seen)."
        )
    return states


def _of_texts(states: Sequence[Tensor], tokens: BatchTokens, layers: Sequence[int]) -> list[list[Tensor]]:
    """Hidden states by text and layer, padding dropped."""
    if not states:
        raise CaptureError("the model shows no hidden states, which some methods and --hidden-states need.")
    everyone = range(len(tokens.lengths))
    return [[states[layer][text, tokens.real[text]] for layer in layers] for text in everyone]


def trace_methods(options: RunOptions) -> dict[str, FromTrace | FromInputs]:
    """Those of the methods asked for that follow each text by itself, and how they are filled."""
    filling = {name: one.filled for name, one in options.chosen.items()}
    return {name: filled for name, filled in filling.items() if isinstance(filled, FromTrace | FromInputs)}


def _of_traces(
    worker: Worker, texts: Sequence[Given], seconds: dict[str, float], traced: Callable[[int], None] | None
) -> tuple[dict[str, Columns], dict[str, list[Mapping[str, NDArray[Any]]]]]:
    """One trace of each text, from which all that follow it are filled: columns by text, and rows of tokens."""
    methods, options = trace_methods(worker.options), worker.options
    rows: dict[str, list[Mapping[str, NDArray[Any]]]] = {name: [] for name in methods}
    settings = {name: options.settings_of(name) for name in methods}
    for number, text in enumerate(texts if methods else ()):
        # The trace is on the account of the first.
        with _timed(seconds, next(iter(methods))):
            seen = trace(worker.model, text)
        for name, filled in methods.items():
            own: dict[str, Any] = {"seed": options.seed, "settings": settings[name]}
            with _timed(seconds, name):
                if isinstance(filled, FromInputs):
                    rows[name].append(filled.fill(seen, **own))
                else:
                    columns = filled.fill(seen, worker.shape.layers, worker.shape.heads, probes=options.probes, **own)
                    rows[name].append({key: as_numpy(values) for key, values in columns.items()})
        if traced is not None:
            traced(number)
    by_token = {name: rows.pop(name) for name, filled in methods.items() if isinstance(filled, FromInputs)}
    together = {name: {key: np.stack([row[key] for row in every]) for key in every[0]} for name, every in rows.items()}
    return together, by_token


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    begun = perf_counter()
    try:
        yield
    finally:
        seconds[name] += perf_counter() - begun
