"""The parts of a model's layers, found by numbers: which norm reads what, what is added to what, and by which modules.

No family is known here. A pass is watched; then, layer by layer, each relation that the parts of a layer must have
(x + a enters this norm, that one returns the layer's output) is tried on the numbers of the pass. What is found is
verified by that, and what does not fit is said.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.forward import forward
from identiscope.capture.site import Site
from identiscope.capture.trace import Stream, Trace
from identiscope.capture.twin import twin
from identiscope.capture.watch.trying import first_tensor
from identiscope.errors import CaptureError
from identiscope.linalg.agreement import explained_by, relative_error
from identiscope.linalg.jacobian.blocks import Norm, normalise
from identiscope.linalg.parts import LayerParts, Step, StreamParts

# Modules from the feed-forward part's input to its output: linear, activation, linear, and one to spare.
MOST_MODULES = 4
# Factors on what is added that are tried beside one: some families scale it (Granite's residual_multiplier).
_FACTORS = ("residual_multiplier",)


class _Unknown(Exception):
    """Why a layer is not known; never leaves this file."""


@dataclass(frozen=True, eq=False)
class FoundParts:
    """The parts of every layer of a stream, or why they are not known."""

    parts: StreamParts | None
    reason: str = ""


@dataclass(eq=False)
class _Ran:
    """One call of a module: the first tensor it was given, the first that it returned, and the calls inside it."""

    module: nn.Module
    name: str
    given: Tensor | None
    returned: Tensor | None = None
    inside: "list[_Ran]" = field(default_factory=list)

    def all(self) -> "Iterator[_Ran]":
        """This call and all inside it, in the order they ended."""
        for one in self.inside:
            yield from one.all()
        yield self


def find_parts(trace: Trace, stream: Stream) -> FoundParts:
    """The parts of the layers of a stream, each verified against the pass."""
    if trace.model is None or trace.batch is None:
        return FoundParts(None, "the trace has no model")
    try:
        with torch.no_grad():
            return FoundParts(_find(trace, stream))
    except _Unknown as reason:
        return FoundParts(None, str(reason))


def _find(trace: Trace, stream: Stream) -> StreamParts:
    assert trace.model is not None and trace.batch is not None
    own = [site for site in trace.sites if site.query_stream == site.key_stream == stream.name]
    cross = {
        site.layer: site for site in trace.sites if site.query_stream == stream.name and site.key_stream != stream.name
    }
    count = len(stream.hidden_states) - 1
    if [site.layer for site in own] != list(range(count)):
        raise _Unknown(f"{stream.name} attends to itself in {len(own)} of {count} layers")
    if any(site.output is None for site in own):
        raise _Unknown("what the attention of some layer returned was not seen")
    running = twin(trace.model)
    try:
        blocks = set(blocks_around(running.module, [site.name for site in own]).values())
    except CaptureError as error:
        raise _Unknown(str(error).rstrip(".")) from error
    layers: list[LayerParts] = []

    def over(ran: _Ran) -> None:
        place = len(layers)
        if place < count:
            sites = [own[place], *([cross[place]] if place in cross else [])]
            layers.append(_layer(ran, sites, stream.hidden_states[place], _factors(trace)))

    with _Recording(running.module, blocks, over):
        forward(running, trace.batch.arguments)
    if len(layers) != count:
        raise _Unknown(f"{len(layers)} blocks ran for {count} layers of {stream.name}")
    for place, layer in enumerate(layers[:-1]):
        if not _same(layer.feeds.after, stream.hidden_states[place + 1]):
            raise _Unknown(f"what layer {place} returned is not the hidden state after it")
    return StreamParts(tuple(layers), _final(layers[-1].feeds.after, stream.hidden_states[-1], running.module))


def _final(last: Tensor, shown: Tensor, module: nn.Module) -> Norm | None:
    """The norm between what the last layer wrote and the last hidden state."""
    if _same(last, shown):
        return None
    for inner in module.modules():
        for norm in _formulas(inner) if "norm" in type(inner).__name__.lower() else ():
            fits = norm.weight is None or norm.weight.shape == shown.shape[-1:]
            if fits and _same(normalise(_wide(norm), last.double()), shown):
                return _wide(norm)
    raise _Unknown("the last layer, with or without a norm behind it, does not give the last hidden state")


def _factors(trace: Trace) -> list[float]:
    config = None if trace.model is None else trace.model.config
    own = [getattr(config, name, None) for name in _FACTORS]
    return [1.0, *(float(one) for one in own if isinstance(one, (int, float)) and one != 1.0)]


def blocks_around(module: nn.Module, sites: Sequence[str]) -> dict[str, nn.Module]:
    """The element of a list of modules around each attention: the outermost that does not hold the others' too.

    Names of shared modules (ALBERT) are the same for all layers, and so is their block.
    """
    modules = dict(module.named_modules())
    lists = {
        element for inner in modules.values() if isinstance(inner, (nn.ModuleList, nn.Sequential)) for element in inner
    }
    names = set(sites)
    blocks: dict[str, nn.Module] = {}
    for name in names:
        path = name.split(".")
        around = [".".join(path[:length]) for length in range(1, len(path) + 1)]
        alone = [one for one in around if modules.get(one) in lists and sum(_within(site, one) for site in names) == 1]
        if not alone:
            raise CaptureError(f"{name} is in no list of layers.")
        blocks[name] = modules[alone[0]]
    return blocks


def _within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


class _Recording:
    """Inside the block, every call inside one of `blocks` is kept until that is over, and handed on as a whole."""

    def __init__(self, module: nn.Module, blocks: set[nn.Module], over: Callable[[_Ran], None]) -> None:
        self.module, self.blocks, self.over = module, blocks, over
        self.names = {inner: name for name, inner in module.named_modules()}
        self.running: list[_Ran] = []
        self.handles: list[Any] = []

    def __enter__(self) -> "_Recording":
        inner = {one for block in self.blocks for one in block.modules()}
        for one in inner:
            self.handles.append(one.register_forward_pre_hook(self._begins, with_kwargs=True))
            self.handles.append(one.register_forward_hook(self._ends))
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        given = first_tensor((*args, *kwargs.values()))
        self.running.append(_Ran(module, self.names[module], None if given is None else given.detach()))

    def _ends(self, module: nn.Module, args: Any, output: Any) -> None:
        ran = self.running.pop()
        returned = first_tensor(output)
        # A copy: what a module returned may be added to in its place.
        ran.returned = None if returned is None else returned.detach().clone()
        if self.running:
            self.running[-1].inside.append(ran)
        elif module in self.blocks:
            self.over(ran)


def _layer(block: _Ran, sites: Sequence[Site], state: Tensor, factors: Sequence[float]) -> LayerParts:
    """One layer from the calls inside its block; state: the hidden state before it."""
    if block.given is None or block.returned is None:
        raise _Unknown(f"{block.name} was given or returned no tensor")
    x, z = (_rows(one, state) for one in (block.given, block.returned))
    if x is None or z is None or not _same(x, state):
        raise _Unknown(f"{block.name} was not given the hidden state before it")
    calls = [one for one in block.all() if one is not block]
    norms = [norm for call in calls if (norm := _norm_call(call, state)) is not None]
    outer_norm = next((norm for norm in norms if _same(norm.returned, z)), None)
    attends: list[Step] = []
    before, parallel = x, False
    for site in sites:
        if parallel:
            raise _Unknown(f"nothing in the layer reads the sum of the stream and {sites[0].name}")
        step, parallel = _attend(site, before, norms, calls, factors, outer_norm is not None)
        attends.append(step)
        before = step.after
    feeds = _fed(before, z, norms, outer_norm, factors, calls)
    return LayerParts(tuple(attends), feeds, _feed(feeds, x if parallel else before, norms, calls), parallel)


@dataclass(frozen=True, eq=False)
class _NormCall:
    norm: Norm
    given: Tensor
    returned: Tensor
    module: nn.Module


def _norm_call(call: _Ran, state: Tensor) -> _NormCall | None:
    """A call of a norm on the stream's states, its formula tried on its own numbers."""
    if call.given is None or call.returned is None or "norm" not in type(call.module).__name__.lower():
        return None
    given, returned = _rows(call.given, state), _rows(call.returned, state)
    if given is None or returned is None:
        return None
    for norm in _formulas(call.module):
        if norm.weight is None or norm.weight.shape == given.shape[-1:]:
            made = normalise(_wide(norm), given.double())
            if _same(made, returned):
                return _NormCall(_wide(norm), given, returned, call.module)
    return None


def _formulas(module: nn.Module) -> Iterator[Norm]:
    """What a norm may compute, by what it holds: centred or not, its weight as it is or added to one (Gemma)."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    epsilon = next(
        (float(getattr(module, name)) for name in ("eps", "variance_epsilon", "epsilon") if hasattr(module, name)), None
    )
    if epsilon is None:
        return
    weight = weight.detach() if isinstance(weight, Tensor) else None
    bias = bias.detach() if isinstance(bias, Tensor) else None
    for centred in (isinstance(module, nn.LayerNorm), not isinstance(module, nn.LayerNorm)):
        yield Norm(weight, bias, epsilon, centred)
        if weight is not None:
            yield Norm(1 + weight.double(), bias, epsilon, centred)


def _wide(norm: Norm) -> Norm:
    return replace(
        norm,
        weight=None if norm.weight is None else norm.weight.double(),
        bias=None if norm.bias is None else norm.bias.double(),
    )


def _attend(
    site: Site,
    before: Tensor,
    norms: Sequence[_NormCall],
    calls: Sequence[_Ran],
    factors: Sequence[float],
    normed: bool,
) -> tuple[Step, bool]:
    """How a site's output is added to the stream; and whether nothing in the layer reads the sum, as in parallel ones.

    normed: sums are normed in this layer.
    """
    addition = site.output
    if addition is None or addition.shape != before.shape:
        raise _Unknown(f"what {site.name} returned is not as wide as the stream")
    inner = next((norm for norm in norms if _same(norm.given, addition)), None)
    added = addition if inner is None else inner.returned
    for factor in factors:
        total = (before.double() + factor * added.double()).to(before.dtype)
        outer = next((norm for norm in norms if _same(norm.given, total)), None) if normed else None
        read = outer is not None or any(_reads(call, total) for call in calls)
        if read:
            after = total if outer is None else outer.returned
            return Step(site.index, before, addition, after, _norm(inner), _norm(outer), factor), False
    if normed:
        raise _Unknown(f"nothing in the layer reads the sum of the stream and {site.name}")
    total = (before.double() + added.double()).to(before.dtype)
    return Step(site.index, before, addition, total, _norm(inner)), True


def _reads(call: _Ran, state: Tensor) -> bool:
    given = _rows(call.given, state)
    return given is not None and _same(given, state)


def _norm(call: _NormCall | None) -> Norm | None:
    return None if call is None else call.norm


def _fed(
    before: Tensor,
    z: Tensor,
    norms: Sequence[_NormCall],
    outer: _NormCall | None,
    factors: Sequence[float],
    calls: Sequence[_Ran],
) -> Step:
    """The last step of a layer: something is added, so that its output comes of it; a module must have returned it."""
    total = z if outer is None else outer.given
    outputs = [rows for call in calls if (rows := _rows(call.returned, before)) is not None]
    for factor in factors:
        rest = (total.double() - before.double()) / factor
        inner = next((norm for norm in norms if _is_rest(norm.returned, rest, total)), None)
        made = [rows for rows in outputs if _is_rest(rows, rest, total)]
        if inner is not None or made:
            addition = inner.given if inner is not None else made[0]
            return Step(-1, before, addition, z, _norm(inner), _norm(outer), factor)
    raise _Unknown("no module of the layer returned what its output has beside the stream and attention")


def _feed(
    step: Step, given: Tensor, norms: Sequence[_NormCall], calls: Sequence[_Ran]
) -> Callable[[Tensor], Tensor] | None:
    """The modules that make the addition of what was given, in order, as one function.

    None where no chain of modules does it: something in between is no module.
    """
    readers = [(norm.module, norm.returned) for norm in norms if _same(norm.given, given)]
    for norm, read in [*readers, (None, given)]:
        chain = _chain(step.addition, read, calls)
        if chain:
            feed = _function(([] if norm is None else [norm]) + [call.module for call in chain], chain[0].given)
            if _same(feed(given), step.addition):
                return feed
    return None


def _chain(wanted: Tensor, read: Tensor, calls: Sequence[_Ran]) -> list[_Ran]:
    """The calls that lead from `read` to `wanted`, each reading what the one before it returned; empty without such."""
    chain: list[_Ran] = []
    for _ in range(MOST_MODULES):
        made = [
            call
            for call in calls
            if call.given is not None and call.returned is not None and _alike(call.returned, wanted)
        ]
        # Of modules around each other the outermost that reads the input itself, or else the innermost.
        whole = next((call for call in reversed(made) if call.given is not None and _alike(call.given, read)), None)
        back = whole or next(iter(made), None)
        if back is None or back.given is None:
            return []
        chain.insert(0, back)
        if whole is not None:
            return chain
        wanted = back.given
    return []


def _function(modules: Sequence[nn.Module], given: Tensor | None) -> Callable[[Tensor], Tensor]:
    assert given is not None
    axes, dtype = given.dim(), given.dtype

    def feed(states: Tensor) -> Tensor:
        rows = states.reshape(-1, states.shape[-1]).to(dtype)
        rows = rows[None] if axes == 3 else rows
        for module in modules:
            made = first_tensor(module(rows))
            assert made is not None
            rows = made
        return rows.reshape(states.shape)

    return feed


def _rows(tensor: Tensor | None, state: Tensor) -> Tensor | None:
    """[1, token, model], or XLNet's [token, 1, model], as [token, model]; None if it is something else."""
    if tensor is None or tensor.numel() != state.numel() or tensor.shape[-1] != state.shape[-1]:
        return None
    return tensor.reshape(state.shape).to(state.device)


def _alike(one: Tensor, other: Tensor) -> bool:
    """The same numbers to rounding, whatever axes of length one they have."""
    return one.numel() == other.numel() and _same(one.reshape(-1), other.reshape(-1).to(one.device))


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and explained_by(relative_error(one, other), other.dtype)


def _is_rest(part: Tensor, rest: Tensor, total: Tensor) -> bool:
    """Whether a part of a sum is what is left of it, to the rounding of the sum, which may be much larger."""
    difference, size = float((part.double() - rest).abs().max()), float(part.abs().max())
    largest = max(float(total.abs().max()), size)
    return size > 0 and difference <= 1e-2 * size and explained_by(difference / largest, total.dtype)


def parts_or_error(trace: Trace, stream: Stream) -> StreamParts:
    """`find_parts`, or an error for whoever needs them."""
    parts = find_parts(trace, stream)
    if parts.parts is None:
        name = "arrays" if trace.model is None else trace.model.name
        raise CaptureError(
            f"the parts of the layers of {name} are not known: {parts.reason}. Methods that read attention, gradients"
            " or perturbed texts need none of it."
        )
    return parts.parts
