"""What one attention call of a running model was given, and what became of its output."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.twin import original
from identiscope.capture.watch.frames import Frame
from identiscope.capture.watch.kernel import Bias, attention_weights, read_mask, repeat_heads
from identiscope.capture.watch.projection import Projection
from identiscope.capture.watch.trying import first_tensor, version
from identiscope.errors import CaptureError
from identiscope.linalg.devices import wide


@dataclass
class Call:
    """One attention call of one forward pass, a batch as the model ran it. The tensors are the model's own.

    query [batch, head, query, channel]; key and value the same with their own number of heads; context,
    the kernel's output, [batch, head, query, d_v]. projection [head·d_v, model] and projection_bias make of it the
    block's output [batch, query, model], which the module `returned_by` returned. value_bias [kv_head, d_v] is what
    the layer that made the values adds to them: zeros where it has no bias, None where it was not found. causal:
    whether the module says that it is. block: the place of its layer in the stack of layers, None without one.
    """

    name: str
    query: Tensor
    key: Tensor
    value: Tensor
    bias: Bias
    scale: float
    softcap: float | None
    sinks: Tensor | None
    context: Tensor
    causal: bool | None
    value_bias: Tensor | None = None
    index: int = -1
    projection: Tensor | None = None
    projection_bias: Tensor | None = None
    output: Tensor | None = None
    returned_by: str = ""
    block: int | None = None
    problem: str | None = None

    def to(self, device: torch.device) -> "Call":
        """The same with all tensors on a device."""
        tensors: Any = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        if all(value.device == device for value in (*tensors.values(), *self.bias.tensors())):
            return self
        moved: Any = {name: value.to(device) for name, value in tensors.items()}
        return replace(self, bias=self.bias.to(device), **moved)

    def weights(self, heads: list[int] | None = None) -> Tensor:
        """The attention map in float64, [batch, head, query, key], on the working device."""
        count = self.query.shape[1]
        chosen = list(range(count)) if heads is None else heads
        groups = count // self.key.shape[1]
        key = wide(self.key[:, [head // groups for head in chosen]])
        position = self.bias.position
        if position is not None and position.shape[-3] != 1:
            position = position[:, chosen]
        allowed = self.bias.allowed
        if allowed is not None and allowed.shape[-3] != 1:
            allowed = allowed[:, chosen]
        return attention_weights(
            wide(self.query[:, chosen]),
            key,
            Bias(allowed, self.bias.causal, position).to(key.device),
            scale=self.scale,
            softcap=self.softcap,
            sinks=None if self.sinks is None else self.sinks[chosen].to(key.device),
        )


# (call index, head) → new map [batch, query, key] from the old one, both float64.
Change = Callable[[Tensor], Tensor]
Changes = Mapping[tuple[int, int], Change]


@dataclass(frozen=True)
class Rule:
    """Attention by a rule of one's own, in place of the model's kernel: all of it in operations that derivatives pass.

    maps: from the number of a call and its maps [batch, head, query, key], in float64, to those that are used. context:
    if given, the whole of what a kernel does, from a call to [batch, head, query, d_v]. returned: if given, the model's
    own kernel runs, and this makes of the call, whose context is what it returned, the context that is used. Attention
    that a module computes by hand is met at its maps in any case.
    """

    maps: Callable[[int, Tensor], Tensor] = lambda index, maps: maps
    context: Callable[[Call], Tensor] | None = None
    returned: Callable[[Call], Tensor] | None = None

    def of(self, call: Call) -> Tensor:
        """What the kernel returns, [batch, head, query, d_v]."""
        if self.returned is not None:
            return self.returned(call)
        if self.context is not None:
            return self.context(call)
        value = repeat_heads(wide(call.value), call.query.shape[1])
        return (self.maps(call.index, call.weights()) @ value).to(call.value)


@dataclass
class Watcher:
    """What a `watching` block saw so far, and what it was asked to change.

    own: the packages that the model's classes come from. stacks: the list of layers that a module is part of, and
    passed: how many of its layers ran. frames: the modules that are running, innermost last. unseen: modules called
    attention in which none was seen.
    """

    names: dict[nn.Module, str]
    own: frozenset[str]
    stacks: dict[nn.Module, nn.Module]
    changes: Changes
    visit: Callable[[Call], None] | None
    # Whether a changed head's context is computed whole from its new map, rather than moved by the difference.
    whole: bool = False
    # How attention is computed, if not by the model's kernels; then nothing else is followed.
    rule: Rule | None = None
    calls: list[Call] = field(default_factory=list)
    unseen: list[Frame] = field(default_factory=list)
    count: int = 0
    active: int = 0
    inside_kernel: bool = False
    has_attention_modules: bool = False
    frames: list[Frame] = field(default_factory=list)
    passed: dict[nn.Module, int] = field(default_factory=dict)
    _pending: Call | None = None
    _projection: Projection | None = None
    _paused: bool = False
    # Where each linear layer of the running attention module put its output, with its bias. The output is kept: its
    # place in memory is its own only as long as it is there. Last: how often it was written to.
    _outputs: dict[int, tuple[Tensor, Tensor | None, int | None]] = field(default_factory=dict)
    _allowed: list[Tensor] = field(default_factory=list)
    _masks: dict[tuple[int, int, bool], tuple[Any, Bias]] = field(default_factory=dict)
    _thread: int = field(default_factory=threading.get_ident)

    @property
    def is_meant(self) -> bool:
        """Whether what runs now runs inside the block, in its thread and context: hooks are met by everyone."""
        if threading.get_ident() != self._thread:
            return False
        for one in _WATCHERS.get():  # noqa: SIM110 – asked by every hook of every module; this is twice as fast as any()
            if one is self:
                return True
        return False

    def name(self, module: nn.Module) -> str | None:
        """What the module is called; None if it is not part of what is watched."""
        return self.names.get(self.watched(module))

    def watched(self, module: nn.Module) -> nn.Module:
        """The module, or the one it is a twin of: a trace inside the block runs a twin of what is watched."""
        return module if module in self.names else original(module)

    def read_mask(self, mask: Tensor | None, position: Tensor | None, causal: bool) -> Bias:
        """`read_mask`, once for a mask that many layers share; keeps the mask so that its id stays its own."""
        key = (id(mask), id(position), causal)
        if key not in self._masks:
            self._masks[key] = ((mask, position), read_mask(mask, position, causal))
        return self._masks[key][1]

    def shared(self, allowed: Tensor) -> Tensor | None:
        """The same tensor for masks with the same cells, so that they are kept once; None if all may be seen."""
        if bool(allowed.all()):
            return None
        if torch.equal(allowed, allowed[:, :1].expand_as(allowed)):
            allowed = allowed[:, :1]
        for kept in self._allowed:
            alike = kept.shape == allowed.shape and kept.device == allowed.device
            if alike and torch.equal(kept, allowed):
                return kept
        self._allowed.append(allowed)
        return allowed

    def changed(self, index: int) -> dict[int, Change]:
        """The changes asked for at this call, by head."""
        return {head: change for (call, head), change in self.changes.items() if call == index}

    @property
    def looking(self) -> bool:
        """Whether what runs now is the model: another may run inside the block, and so may we."""
        return self.active > 0 and not self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is computed inside is ours, not the model's."""
        before, self._paused = self._paused, True
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            self._paused = before

    def sees(self, module: nn.Module) -> bool:
        """Whether this module's running is the model's, inside the block, in its thread and context: hooks are met by
        everyone."""
        return self.is_meant and self.looking and self.name(module) is not None

    @property
    def attending(self) -> Frame | None:
        """The innermost running module that is called attention."""
        return next((frame for frame in reversed(self.frames) if frame.attends), None)

    @property
    def expected(self) -> int:
        """How many attention calls the pass made: those seen, and the modules called attention in which none was."""
        return self.count + len(self.unseen)

    def entered(self, frame: Frame) -> None:
        """A module begins to run."""
        stack = self.stacks.get(self.watched(frame.module))
        if stack is not None:
            frame.block = self.passed[stack] = self.passed.get(stack, -1) + 1
        if self._projection is not None and (frame.theirs or self._projection.value is None):
            with self.paused():
                self._projection.entered(frame)
        self.frames.append(frame)

    def forwarded(self, output: Any) -> None:
        """The forward of the innermost running module is over; the hooks of others come next."""
        frame = self.frames[-1]
        frame.output = output
        if frame.encloses:
            with self.paused():
                shown = first_tensor(output)
                frame.kept = None if shown is None else shown.detach().clone()  # a hook may write into it

    def left(self, output: Any, hooked: bool) -> None:
        """The innermost running module is over; its caller gets `output`."""
        frame = self.frames.pop()
        if frame.attends:
            self._outputs.clear()
        if frame.missed_attention():
            self.unseen.append(frame)
        projection = self._projection
        if projection is not None and (frame.encloses or frame.behind is not None or projection.value is None):
            with self.paused():
                projection.left(frame, output, hooked, self.frames)

    def just_attended(self, query: Tensor, key: Tensor) -> bool:
        """Whether the last call attended with these, as they lie in memory."""
        last = self._pending
        return last is not None and (query.data_ptr(), key.data_ptr()) == (last.query.data_ptr(), last.key.data_ptr())

    def began(self, call: Call) -> None:
        """Take in a new call; what its output runs into is still to come, unless the call says it."""
        attending = self.attending
        if self.rule is not None:
            self.count += 1
            self._pending = call
            return
        again = attending is not None and attending.calls > 0 and self._pending is not None
        if again and self._projection is not None and self._projection.value is None:
            self._projection.problem = (
                "it attends more than once, and joins what comes of it before any linear layer; one map of each head"
                " does not give what it returns"
            )
        self.finish()
        if call.value_bias is None:
            call.value_bias = self._bias_of(call.value)
        self._outputs.clear()
        call.index = self.count
        self.count += 1
        call.block = next((frame.block for frame in self.frames if frame.block is not None), None)
        if attending is not None:
            attending.calls += 1
        self._pending = call
        for frame in self.frames:
            frame.reads_context = False  # what it was given is the output of an earlier call
        self._projection = Projection(call.context, self.own)
        if call.projection is not None and call.output is not None:
            self._projection.known(call.projection, call.projection_bias, call.output, self.frames)

    @property
    def runs_kernels(self) -> bool:
        """Whether the model's own kernels run: always, but for a rule that takes their place."""
        return self.rule is None or self.rule.returned is not None

    def follow_rule(self, call: Call) -> None:
        """A new call, with the context that the rule gives it."""
        assert self.rule is not None
        call.index = self.count
        with self.paused():
            call.context = self.rule.of(call)
        self.began(call)

    def met_linear(self, given: Tensor, weight: Tensor, bias: Tensor | None, returned: Tensor) -> None:
        """A linear map ran, weight [in, out]."""
        if self.rule is None and (not self.has_attention_modules or self.attending is not None):
            self._outputs[returned.untyped_storage().data_ptr()] = (returned, bias, version(returned))
        if self._projection is not None:
            self._projection.met_linear(given, weight, bias, returned, self.frames)

    def _bias_of(self, value: Tensor) -> Tensor | None:
        """The bias in the values [batch, kv_head, key, d_v], if they are a view of a linear layer's output."""
        written = self._outputs.get(value.untyped_storage().data_ptr())
        _, heads, _, width = value.shape
        if written is None or value.stride(-1) != 1:
            return None
        output, bias, writes = written
        if version(output) != writes:
            return None  # a hook wrote into it
        row = output.shape[-1]
        if bias is None:
            return value.new_zeros(heads, width)
        # Where in a row of that output the head's channels begin, be it of values alone or of query, key and value.
        first, step = value.storage_offset(), value.stride(1)
        begins = [(first + head * step) % row for head in range(heads)]
        if any(begin + width > row for begin in begins):
            return None
        if begins == list(range(begins[0], begins[0] + heads * width, width)):
            return bias[begins[0] : begins[0] + heads * width].reshape(heads, width)
        return torch.stack([bias[begin : begin + width] for begin in begins])

    def finish(self) -> None:
        """The last call is over: hand it on."""
        call, self._pending = self._pending, None
        projection, self._projection = self._projection, None
        if call is None or projection is None:
            return
        call.projection, call.projection_bias = projection.weight, projection.bias
        call.output, call.returned_by = projection.value, projection.returned_by
        call.problem = call.problem or projection.problem
        if call.projection is None and call.problem is None:
            seen = ", ".join(projection.linears[:4]) or "none"
            call.problem = (
                f"its output {tuple(call.context.shape)} [batch, head, query, channel] reached no linear layer"
                f" unchanged; the linear layers that followed it read (shape → width): {seen}"
            )
        if self.visit is None:
            self.calls.append(call)
        else:
            with self.paused():
                self.visit(call)


_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("identiscope_watchers", default=())


def watchers() -> tuple[Watcher, ...]:
    """The watchers of this thread and context, the outermost first."""
    return tuple(watcher for watcher in _WATCHERS.get() if watcher.is_meant)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """What runs in this thread and context, inside the block, is for this watcher too."""
    token = _WATCHERS.set((*_WATCHERS.get(), watcher))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


def change_context(call: Call, context: Tensor, changes: Mapping[int, Change], *, whole: bool = False) -> Tensor:
    """The kernel's context plus (A' − A)·V at the changed heads: exactly the context where A' = A.

    whole: A'·V itself there, summed in float64 and rounded once.
    """
    heads = sorted(changes)
    if heads[-1] >= call.query.shape[1]:
        raise CaptureError(f"{call.name} has {call.query.shape[1]} heads; there is no head {heads[-1]}.")
    groups = call.query.shape[1] // call.value.shape[1]
    weights = call.weights(heads)
    context = context.clone()
    for position, head in enumerate(heads):
        before = weights[:, position]
        after = changes[head](before)
        if after.shape != before.shape:
            raise CaptureError(
                f"the new map for head {head} of {call.name} has shape {tuple(after.shape)};"
                f" expected {tuple(before.shape)} [batch, query, key]."
            )
        value = wide(call.value[:, head // groups])
        if whole:
            context[:, head] = (after.double() @ value).to(context)
        else:
            context[:, head] += ((after.double() - before) @ value).to(context)
    return context
