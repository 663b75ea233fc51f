"""Run a model on texts and make the traces, each verified before it is handed out."""

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, overload

import torch
from torch import Tensor

from identiscope.capture.calls import Call, Watcher
from identiscope.capture.forward import Forward, forward, left_as_found, try_forward
from identiscope.capture.inputs import Batch, Labels, encode, is_many
from identiscope.capture.models import Model, load
from identiscope.capture.norms import EmbeddingNorms
from identiscope.capture.site import Site, site_of
from identiscope.capture.softmax import FAMILIES
from identiscope.capture.streams import MAIN, Places
from identiscope.capture.trace import Stream, Trace
from identiscope.capture.watching import watching
from identiscope.errors import CaptureError, InputError

# Query rows of one site that every capture rebuilds, to notice at once when something is not as thought.
QUICK_ROWS = 16


@overload
def trace(
    model: Any,
    text: list[str] | list[tuple[str, str]] | list[list[int]],
    *,
    target: Any = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    truncate: bool = False,
    batch_size: int = 8,
) -> list[Trace]: ...
@overload
def trace(
    model: Any,
    text: Any,
    *,
    target: Any = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    truncate: bool = False,
    batch_size: int = 8,
) -> Trace: ...
def trace(
    model: Any,
    text: Any,
    *,
    target: Any = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    truncate: bool = False,
    batch_size: int = 8,
) -> Trace | list[Trace]:
    """What the model's attention computed on a text.

    text: a string; a tuple of two strings (a pair); a list of token ids; a float tensor (pixels, speech
    features, or embeddings for a plain PyTorch module); a mapping of the model's own arguments; or a list
    of any of the first three, which gives a list of traces, run `batch_size` at a time.
    target: for an encoder–decoder, the text the decoder has been given. layers, heads: keep only these.
    truncate: cut a text that is too long, and count the tokens cut, instead of refusing it.
    """
    loaded = load(model)
    many = is_many(text)
    texts = list(text) if many else [text]
    if many and isinstance(target, str):
        raise InputError(f"one target was given for {len(texts)} texts; give a list with one for each.")
    _check_choice(layers, "layers")
    _check_choice(heads, "heads")
    targets = list(target) if many and target is not None else [target] * len(texts)
    if len(targets) != len(texts):
        raise InputError(f"{len(texts)} texts were given with {len(targets)} targets; give one target for each text.")
    traces: list[Trace] = []
    for begin in range(0, max(len(texts), 1), max(batch_size, 1)):
        part = slice(begin, begin + max(batch_size, 1))
        batch = encode(loaded, texts[part], targets=targets[part], truncate=truncate)
        traces += _trace_batch(loaded, batch, layers, heads)
    return traces if many or len(traces) > 1 else traces[0]


def stream(
    model: Any,
    text: Any,
    visit: Callable[[Site], None],
    *,
    target: Any = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    truncate: bool = False,
) -> None:
    """Call `visit` with each attention site of one text as the model reaches it, and keep none of them.

    Memory stays that of one site, however many layers there are.
    """
    loaded = load(model)
    _check_choice(layers, "layers")
    _check_choice(heads, "heads")
    batch = encode(loaded, [text], targets=[target], truncate=truncate)
    sorter = _Sorter(loaded, batch, expected_streams(loaded, batch), layers, heads)

    def take(call: Call) -> None:
        for site in sorter.sites(call):
            _check_quickly(site)
            visit(site)

    with torch.no_grad(), left_as_found(loaded.module), watching(loaded.module, visit=take) as watcher:
        forward(loaded, batch.arguments)
    _check_counts(loaded, watcher)
    sorter.check_choice()


def _check_choice(choice: Any, name: str) -> None:
    """A choice of layers or heads is some whole numbers, or None for all."""
    if choice is None:
        return
    if not isinstance(choice, (list, tuple, range)) or not choice or not all(isinstance(one, int) for one in choice):
        raise InputError(
            f"{name}={choice!r} was given; expected a list of whole numbers such as [0, 3], or None for all."
        )


def _trace_batch(model: Model, batch: Batch, layers: Sequence[int] | None, heads: Sequence[int] | None) -> list[Trace]:
    norms = EmbeddingNorms(model.module)
    with torch.no_grad(), left_as_found(model.module), norms, watching(model.module) as watcher:
        result = try_forward(model, batch.arguments)
    _check_counts(model, watcher)
    names = list(result.hidden_states) or expected_streams(model, batch)
    sorter = _Sorter(model, batch, names, layers, heads)
    sites: list[list[Site]] = [[] for _ in range(batch.size)]
    for number, call in enumerate(watcher.calls):
        for text, site in enumerate(sorter.sites(call)):
            sites[text].append(site)
        # The last site was reached through all others: it is the one checked every time.
        if number == len(watcher.calls) - 1 and sites[-1]:
            _check_quickly(sites[-1][-1])
    sorter.check_choice()
    return [
        Trace(
            model=model,
            streams=MappingProxyType(_streams(result, batch, text, norms, sites[text])),
            sites=tuple(sites[text]),
            logits=_logits(result, batch, text),
            recorded=watcher.count,
            expected=watcher.attention_modules_run,
            batch=batch.single(text),
            norms=norms.found(result),
        )
        for text in range(batch.size)
    ]


def _check_counts(model: Model, watcher: Watcher) -> None:
    if watcher.count == watcher.attention_modules_run > 0:
        return
    kind = type(model.module).__name__
    works = "families that work: those that use transformers' attention interface, torch.nn.MultiheadAttention, and "
    works += ", ".join(sorted({key.partition(".")[0] for key in FAMILIES}))
    if watcher.count == watcher.attention_modules_run == 0:
        raise CaptureError(f"{model.name} ({kind}) ran no attention; there is nothing to capture. ({works})")
    raise CaptureError(
        f"{model.name} ({kind}) ran {watcher.attention_modules_run} attention modules, of which {watcher.count} were"
        f" seen. Its attention does not pass where it can be watched; {works}. See docs/add-a-model.md."
    )


def _check_quickly(site: Site) -> None:
    check = site.verify(rows=QUICK_ROWS)
    if check.error != check.error:
        raise CaptureError(
            f"the model itself returned NaN at {site.name} (layer {site.layer}); there is nothing to verify. Padding in"
            " a dtype that the family does not compute its softmax in can do this: give one text at a time."
        )
    if not check.verified:
        raise CaptureError(
            f"{site.name} (layer {site.layer}, {site.kind}): the attention that was seen does not give what the"
            f" block returned; relative error {check.error:.1e} on {check.rows_checked} rows, {check.heads} heads,"
            f" d_v {check.d_v}, mask {check.mask}. What was captured cannot be trusted, so nothing is returned."
        )


def expected_streams(model: Model, batch: Batch) -> list[str]:
    """The streams of a model that shows no hidden states, from what it is given."""
    if getattr(model.config, "is_encoder_decoder", False):
        return ["encoder", "decoder"]
    names = list(batch.labels[0])
    if names == ["text"] and "pixel_values" in batch.arguments:
        names.append("vision")
    return names or [MAIN]


class _Sorter:
    """Gives each call its place, and cuts it into the texts of the batch."""

    def __init__(
        self,
        model: Model,
        batch: Batch,
        streams: list[str],
        layers: Sequence[int] | None,
        heads: Sequence[int] | None,
    ) -> None:
        self.model, self.batch, self.places = model, batch, Places(streams)
        self.layers, self.heads = layers, heads

    def sites(self, call: Call) -> list[Site]:
        """The texts' parts of a call, in order; none if its layer was not chosen."""
        if call.problem is not None:
            raise CaptureError(f"{call.name}: {call.problem}. See docs/add-a-model.md.")
        place = self.places.next(call)
        if self.layers is not None and place.layer not in self.layers:
            return []
        count = call.query.shape[1]
        if self.heads is not None and any(not 0 <= head < count for head in self.heads):
            raise InputError(f"heads {list(self.heads)} were asked for; {call.name} has heads 0 to {count - 1}.")
        if call.query.shape[0] != self.batch.size:
            raise CaptureError(
                f"{call.name} attends in {call.query.shape[0]} pieces for {self.batch.size} texts (windows?), which"
                " cannot be told apart."
            )
        return [
            site_of(
                call,
                text,
                place=place,
                positions=(
                    self._positions(text, place.query_stream, call.query.shape[2]),
                    self._positions(text, place.key_stream, call.key.shape[2]),
                ),
                heads=self.heads,
            )
            for text in range(self.batch.size)
        ]

    def _positions(self, text: int, stream: str, length: int) -> Tensor | None:
        labels = self.batch.labels[text].get(stream)
        if labels is None or len(labels.positions) == length:
            return None
        return torch.tensor(labels.positions)

    def check_choice(self) -> None:
        """Every layer asked for must exist."""
        most = max(self.places.layers.values(), default=0)
        if self.layers is not None and any(not 0 <= layer < most for layer in self.layers):
            raise InputError(
                f"layers {list(self.layers)} were asked for; {self.model.name} has layers 0 to {most - 1}."
            )


def _streams(result: Forward, batch: Batch, text: int, norms: EmbeddingNorms, sites: list[Site]) -> dict[str, Stream]:
    names = list(dict.fromkeys([*batch.labels[text], *result.hidden_states])) or [MAIN]
    order = {name: rank for rank, name in enumerate(("encoder", MAIN, "text", "vision", "decoder"))}
    built = {}
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        layers = result.hidden_states.get(name, ())
        labels = batch.labels[text].get(name)
        padded = labels is not None and bool(layers) and len(labels.positions) != layers[0].shape[1]
        places = torch.tensor(labels.positions) if labels is not None and padded else slice(None)
        states = tuple(layer[text, places].detach() for layer in layers)
        norm = norms.of(layers)
        length = states[0].shape[0] if states else max((site.queries for site in sites), default=0)
        labels = labels or _numbered(length)
        built[name] = Stream(
            name=name,
            tokens=labels.tokens,
            ids=labels.ids,
            offsets=labels.offsets,
            special=labels.special,
            hidden_states=states,
            embedding_sum=norm[1][text, places].detach() if norm else (states[0] if states else None),
            cut=labels.cut,
        )
    for site in sites:
        if site.key_stream not in built:
            other = _numbered(site.keys)
            built[site.key_stream] = Stream(site.key_stream, other.tokens, None, None, other.special, (), None)
    return built


def _numbered(length: int) -> Labels:
    return Labels(tuple(str(place) for place in range(length)), None, None, (False,) * length, tuple(range(length)))


def _logits(result: Forward, batch: Batch, text: int) -> Tensor | None:
    if result.logits is None:
        return None
    logits = result.logits[text].detach()
    for stream in ("decoder", MAIN):
        labels = batch.labels[text].get(stream)
        if labels is not None and logits.dim() == 2 and len(labels.positions) < logits.shape[0]:
            return logits[torch.tensor(labels.positions)]
    return logits
