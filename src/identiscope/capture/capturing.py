"""Run a model on texts and make the traces, each verified before it is handed out."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import torch
from torch import Tensor

from identiscope.capture.batch import Batch, Labels
from identiscope.capture.forward import Forward, forward, try_forward
from identiscope.capture.inputs import encode, is_many
from identiscope.capture.models import Model, load
from identiscope.capture.norms import EmbeddingNorms
from identiscope.capture.room import check_room
from identiscope.capture.site import Site
from identiscope.capture.sorting import Sorter
from identiscope.capture.streams import MAIN
from identiscope.capture.trace import Stream, Trace
from identiscope.capture.twin import twin
from identiscope.capture.watch.calls import Call, Watcher
from identiscope.capture.watch.watching import watching
from identiscope.errors import CaptureError, InputError
from identiscope.linalg.agreement import explained_by

# Query rows of one site that every capture rebuilds, to notice at once when something is not as thought.
QUICK_ROWS = 16


@overload
def trace(
    model: Any,
    text: list[str] | list[tuple[str, str]] | list[str | tuple[str, str]] | list[list[int]],
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
    # One text or a batch of them: only its tensors say.
    text: Mapping[str, Tensor],
    *,
    target: Any = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    truncate: bool = False,
    batch_size: int = 8,
) -> Any: ...
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
    from identiscope.capture.padding import passes

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
        for each in passes(loaded, batch):
            traces += trace_batch(loaded, each, layers, heads)
    return traces if many or len(traces) > 1 else traces[0]


def retrace(before: Trace, model: Model) -> Trace:
    """The input of a trace, once more, in another model that takes the same."""
    if before.batch is None:
        raise InputError("a trace made from arrays has no input that a model could be given.")
    return trace_batch(model, before.batch)[0]


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
    batch = encode(loaded, [text], targets=[target], truncate=truncate).only()
    sorter = Sorter(loaded, batch, None, layers, heads)

    def take(call: Call) -> None:
        for site in sorter.sites(call):
            _check_quickly(site)
            visit(site)

    running = twin(loaded)
    with torch.no_grad(), watching(running.module, visit=take) as watcher:
        forward(running, batch.arguments)
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


def trace_batch(
    model: Model, batch: Batch, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> list[Trace]:
    """The traces of texts that run together."""
    check_room(model, batch)
    running = twin(model)
    with torch.no_grad(), EmbeddingNorms(running.module) as norms, watching(running.module) as watcher:
        result = try_forward(running, batch.arguments)
    _check_counts(model, watcher)
    if MAIN not in result.hidden_states and "text" in result.hidden_states:
        batch = batch.renamed(MAIN, "text")  # one tower of several, run alone
    sorter = Sorter(model, batch, result.hidden_states, layers, heads)
    sites: list[list[Site]] = [[] for _ in range(batch.size)]
    while watcher.calls:
        # Taken out, so that what its sites do not keep is freed before the next is cut.
        for text, site in enumerate(sorter.sites(watcher.calls.pop(0))):
            sites[text].append(site)
            # A kernel that fails in one layer alone is seen where it ran. In half precision one row proves nothing yet.
            if text == batch.size - 1 and not explained_by(site.kernel_error(), site.context.dtype):
                _check_quickly(site)
        # The last site was reached through all others: it is the one checked in more rows every time.
        if not watcher.calls and sites[-1]:
            _check_quickly(sites[-1][-1])
    sorter.check_choice()
    return [
        Trace(
            model=model,
            streams=MappingProxyType(_streams(model, result, batch, text, norms, sites[text])),
            sites=tuple(sites[text]),
            logits=_logits(model, result, batch, text),
            recorded=watcher.count,
            expected=watcher.expected,
            batch=batch.single(text),
            norms=norms.found(result),
        )
        for text in range(batch.size)
    ]


def _check_counts(model: Model, watcher: Watcher) -> None:
    if watcher.count == watcher.expected > 0:
        return
    kind = type(model.module).__name__
    if watcher.expected == 0:
        raise CaptureError(
            f"{model.name} ({kind}) ran no softmax attention; there is nothing to capture. See docs/families.md for"
            " what can be captured."
        )
    unseen = sorted({f"{type(frame.module).__name__} ({frame.name})" for frame in watcher.unseen})
    raise CaptureError(
        f"{model.name} ({kind}) ran {watcher.expected} attention modules, of which {watcher.count} were seen. Not seen:"
        f" {', '.join(unseen[:3])}{' …' * (len(unseen) > 3)}. That attention does not pass where it can be watched: the"
        " attention interface of transformers, torch.nn.MultiheadAttention, scaled_dot_product_attention, or a softmax"
        " between two products. See docs/add-a-model.md."
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


def _streams(
    model: Model, result: Forward, batch: Batch, text: int, norms: EmbeddingNorms, sites: list[Site]
) -> dict[str, Stream]:
    names = list(dict.fromkeys([*batch.labels[text], *result.hidden_states])) or [MAIN]
    order = {name: rank for rank, name in enumerate(("encoder", MAIN, "text", "vision", "decoder"))}
    built = {}
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        layers = result.hidden_states.get(name, ())
        labels = batch.labels[text].get(name)
        if labels is not None and layers and layers[0].shape[1] not in (batch.length(name), len(labels.positions)):
            labels = None  # the model has put positions of its own among those of the text
        padded = labels is not None and bool(layers) and len(labels.positions) != layers[0].shape[1]
        if padded and len({layer.shape[1] for layer in layers}) > 1:
            raise CaptureError(
                f"the layers of {model.name} have different lengths, and which of their positions are padding is not"
                " known. Give one text at a time."
            )
        places = torch.tensor(labels.positions) if labels is not None and padded else slice(None)
        states = tuple(_kept(model, layer[text, places]) for layer in layers)
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
            embedding_sum=_kept(model, norm[1][text, places]) if norm else (states[0] if states else None),
            cut=labels.cut,
        )
    for site in sites:
        for name, count in ((site.query_stream, site.queries), (site.key_stream, site.keys)):
            if name not in built:
                other = _numbered(count)
                built[name] = Stream(name, other.tokens, None, None, other.special, (), None)
    return built


def _kept(model: Model, states: Tensor) -> Tensor:
    return states.detach().to(model.home(states.device))


def _numbered(length: int) -> Labels:
    return Labels(tuple(str(place) for place in range(length)), None, None, (False,) * length, tuple(range(length)))


def _logits(model: Model, result: Forward, batch: Batch, text: int) -> Tensor | None:
    if result.logits is None:
        return None
    logits = _kept(model, result.logits[text])
    for stream in ("decoder", MAIN):
        labels = batch.labels[text].get(stream)
        if labels is not None and logits.dim() == 2 and len(labels.positions) < logits.shape[0]:
            return logits[torch.tensor(labels.positions)]
    return logits
