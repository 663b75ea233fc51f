"""What the model makes of one attention output: the affine map up to where the attention block returns it.

Usually that is one linear layer, whose weights are taken as they are. Where more happens (an adapter around it, a hook
behind it) the map is found by trying: what it makes of zero is the bias, what it makes of each unit vector the weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.watch.frames import Frame, holds_attention_alone, is_around_attention
from identiscope.capture.watch.kernel import same_numbers
from identiscope.capture.watch.trying import (
    ChannelsFirst,
    Layout,
    Swapped,
    first_tensor,
    hooks_of_others,
    in_float64,
    runs_own_forward,
    version,
    with_first_tensor,
)
from identiscope.linalg.agreement import explained_by, relative_error
from identiscope.linalg.devices import has_float64

# Rows of the real attention output on which a map found by trying is tried once more.
ROWS = 16
# Models that come with these, and nothing else, say whose architecture a part of another package is not.
_LIBRARIES = frozenset({"torch", "transformers"})
_TWO_READERS = "two linear layers read the attention output, and no module joins them"


@dataclass(frozen=True, eq=False)
class _Behind:
    """What was known of the projection, and how it lay, when a module behind it was given what it had returned."""

    layout: Layout
    weight: Tensor
    bias: Tensor | None
    value: Tensor
    version: int | None


class Projection:
    """Follows an attention output [batch, head, query, d_v] through the modules that run after it.

    `weight` [head·d_v, model] and `bias` make `value` [batch, query, model] of it; `returned_by` names the module that
    returned that last. `problem` says why there is no such map.
    """

    def __init__(self, context: Tensor, own: frozenset[str]) -> None:
        self.context, self.own = context, own
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        self.value: Tensor | None = None
        self._version: int | None = None  # of `value`, when the linear map returned it
        self.returned_by = ""
        self.problem: str | None = None
        self.ended = False
        self._behind: Tensor | None = None  # what the last module returned, after that
        self.linears: list[str] = []

    def known(self, weight: Tensor, bias: Tensor | None, value: Tensor, frames: Sequence[Frame]) -> None:
        """The projection was read from the parameters of the innermost module, which returns `value`."""
        self.weight, self.bias, self.value = weight, bias, value
        self._version = version(value)
        self._begin(frames)

    @property
    def merged(self) -> Tensor:
        """The attention output as linear layers read it, [batch, query, head·d_v]."""
        return self.context.transpose(1, 2).flatten(2)

    def entered(self, frame: Frame) -> None:
        """A module begins to run: before anything has become of the attention output, or one behind the projection that
        others than the architecture may have a hand in."""
        tensors = frame.tensors()
        if len(tensors) != 1 or self.ended:
            return
        if self.value is None:
            frame.reads_context = self._context_in(tensors[0]) is not None
        elif self.problem is None and (layout := self._layout(tensors[0], self.value)) is not None:
            assert self.weight is not None
            frame.behind = _Behind(layout, self.weight, self.bias, self.value, version(self.value))

    def met_linear(
        self, given: Tensor, weight: Tensor, bias: Tensor | None, returned: Tensor, frames: Sequence[Frame]
    ) -> None:
        """A linear map ran, weight [in, out]: the first that takes the attention output as it is projects it."""
        if self.ended:
            return
        if self.value is None:
            self.linears.append(f"{tuple(given.shape)} → {returned.shape[-1]}")
        layout = self._context_in(given) if weight.shape[0] == self.context.shape[1] * self.context.shape[3] else None
        if layout is None:
            return
        if self.value is None:
            self.weight, self.bias, self.value = weight, bias, layout(returned)
            self._version = version(returned)
            self._begin(frames)
            return
        reader = next((frame for frame in frames if frame.reads_context), None)
        if reader is not None:
            reader.reads_twice = True
        else:
            self.problem = _TWO_READERS

    def left(self, frame: Frame, output: Any, hooked: bool, around: Sequence[Frame]) -> None:
        """A module is left, with what its caller gets; hooked: hooks of others ran after its forward; around: the
        modules that still run."""
        if self.problem is not None:
            return
        forwarded = frame.output if hooked else output
        if self.value is None:
            if frame.reads_context:
                self._passed(frame, output, around)
            return
        if frame.behind is not None:
            self._passed_on(frame, output, around)
        if not frame.encloses:
            return
        if not self.ended:
            self._follow(frame, forwarded, output, hooked)
        inside = self._is_wrapper(frame) or any(map(is_around_attention, (frame, *around)))
        if self.ended and self.problem is None and inside:
            self._check_behind(frame, output, hooked)

    def _follow(self, frame: Frame, forwarded: Any, output: Any, hooked: bool) -> None:
        """A module around the projection is left, that may pass on what this returned."""
        assert self.value is not None
        # What a hook has written into may be the value itself.
        shown = [tensor for tensor in (first_tensor(forwarded), frame.kept) if tensor is not None]
        layout = next((found for one in shown if (found := self._layout(one, self.value)) is not None), None)
        if frame.reads_context and version(self.value) != self._version and not self._is_own(frame):
            layout = None  # an adapter that adds to what its base layer returned, in place
        if layout is not None:
            self.returned_by = frame.name
            if hooked and not _same(frame.kept, first_tensor(output)):
                self._hooked(frame, forwarded, output, layout)
        elif frame.reads_context:
            self._wrapped(frame, output)
        elif self._is_wrapper(frame):
            self.problem = f"{frame} around it returns something else than the attention that it holds"
        else:
            self.ended = True  # a residual, a norm: what the model does with the block's output

    def _check_behind(self, frame: Frame, output: Any, hooked: bool) -> None:
        """Behind a residual or a norm, but inside the attention block: what others change there is in no map."""
        after = first_tensor(output)
        if hooked and not _same(frame.kept, after):
            self.problem = (
                f"a forward hook on {frame} changes what the attention block returns behind its residual or norm"
            )
        elif not self._is_own(frame) and not _same(self._behind, after):
            replaced = type(frame.module).__module__.partition(".")[0] in self.own
            self.problem = (
                f"the forward of {frame} was replaced, or all modules have hooks, and behind a residual or a norm"
                " nobody can tell what that changes"
                if replaced
                else f"{frame} around it returns something else than the attention that it holds"
            )
        self._behind = after

    def _begin(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            frame.encloses = True
        if frames:
            self.returned_by = frames[-1].name if frames[-1].reads_context else f"a product in {frames[-1].name}"

    def _passed(self, frame: Frame, output: Any, around: Sequence[Frame]) -> None:
        """A module was given the attention output, and no linear map inside it took that as it is."""
        after = first_tensor(output)
        if after is None or self._context_in(after) is not None:
            return  # dropout, in evaluation
        if not any(parameter.dim() > 1 for parameter in frame.module.parameters()):
            self.problem = f"its output passes {frame} before any linear layer"
            return
        self._try_module(frame, after)
        for outer in around:
            outer.encloses = True

    def _passed_on(self, frame: Frame, output: Any, around: Sequence[Frame]) -> None:
        """A module inside the attention block was given what the projection returned, as dropout is: what others make
        of it there is part of the map."""
        behind, after = frame.behind, first_tensor(output)
        if self.ended or not any(map(is_around_attention, around)):
            return
        assert self.value is not None
        written = self.value is behind.value and version(self.value) != behind.version
        if after is not None and not written and self._layout(after, self.value) is not None:
            return
        if after is None:
            self.problem = f"{frame} takes away what the projection returned"
            return
        is_own, is_container = self._is_own(frame), isinstance(frame.module, nn.Sequential)
        if is_own and not is_container and not written and _is_its_own_doing(frame, after):
            return  # the architecture's own, such as a norm, and hooks that only look
        self.weight, self.bias, self.value = behind.weight, behind.bias, behind.value
        self._try_module(frame, after, behind)
        if self.problem is not None and is_own and is_container and not self.own <= _LIBRARIES:
            self.problem = None  # of a model of the user's own, whose architecture it may be

    def _wrapped(self, frame: Frame, output: Any) -> None:
        """A module around the projection, given the attention output alone, returns something else than it."""
        # A container of torch's says nothing of whose architecture it is.
        is_own = self._is_own(frame) and not type(frame.module).__module__.startswith("torch.")
        if is_own and not frame.reads_twice and type(frame.module).__module__.startswith("transformers."):
            self.ended = True
            return
        state = self.weight, self.bias, self.value, self.returned_by
        after = first_tensor(output)
        if after is not None:
            self._try_module(frame, after)
        if self.problem is not None and is_own and not frame.reads_twice:
            # The architecture's own: a norm or an activation behind the projection.
            self.weight, self.bias, self.value, self.returned_by = state
            self.problem, self.ended = None, True

    def _is_own(self, frame: Frame) -> bool:
        """Whether a module's class comes with the model's, rather than from a library of adapters, and runs as is."""
        is_own = type(frame.module).__module__.partition(".")[0] in self.own
        return is_own and runs_own_forward(frame.module, self.own)

    def _is_wrapper(self, frame: Frame) -> bool:
        """A module from elsewhere that stands in the place of the attention."""
        return not self._is_own(frame) and (is_around_attention(frame) or holds_attention_alone(frame.module))

    def _try_module(self, frame: Frame, after: Tensor, behind: "_Behind | None" = None) -> None:
        """Put a module behind what is known of the map, or behind the attention output itself."""
        given = frame.tensors()[0]
        if behind is None:
            width = self.context.shape[1] * self.context.shape[3]
            layout, weight, bias = self._context_in(given), torch.eye(width), None
        else:
            layout, weight, bias = behind.layout, behind.weight, behind.bias
            width = weight.shape[1]
        last = given.shape[-1:] if given.shape[-1] == width else given.shape[-2:]
        flat = given.dim() == 1 + len(last)

        def run(module: nn.Module, rows: Tensor) -> Tensor:
            shaped = rows.reshape(*(() if flat else (1,)), len(rows), *last)
            args = [shaped if value is given else value for value in frame.args]
            kwargs = {name: shaped if value is given else value for name, value in frame.kwargs.items()}
            made = first_tensor(module(*args, **kwargs))
            assert made is not None
            return made.reshape(len(rows), -1)

        assert layout is not None
        self._compose(in_float64(frame.module, run), self.merged, weight, bias, layout(after), str(frame))
        self.returned_by = frame.name

    def _hooked(self, frame: Frame, forwarded: Any, output: Any, layout: Layout) -> None:
        """Hooks of others may have changed what a module returned."""
        after = first_tensor(output)
        if after is None:
            self.problem = f"a forward hook on {frame} takes its output away"
            return

        def run(rows: Tensor) -> Tensor:
            before = first_tensor(forwarded)
            assert before is not None
            value = with_first_tensor(forwarded, rows.reshape(*[1] * (before.dim() - 2), *rows.shape))
            for key, hook in hooks_of_others(frame.module):
                with_kwargs = key in frame.module._forward_hooks_with_kwargs
                given = (frame.args, frame.kwargs) if with_kwargs else (frame.args,)
                changed = hook(frame.module, *given, value)
                value = value if changed is None else changed
            made = first_tensor(value)
            assert made is not None
            return made.reshape(len(rows), -1)

        assert self.weight is not None
        self._compose(run, self.merged, self.weight, self.bias, layout(after), f"a forward hook on {frame}")

    def _compose(
        self,
        run: Callable[[Tensor], Tensor],
        given: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        after: Tensor,
        name: str,
    ) -> None:
        """Put `run` behind x·weight + bias; refused unless the whole is affine, and makes `after` of `given`."""
        # Modules and hooks run where the model is, which may not know float64.
        finest = torch.float64 if has_float64(given.device) else torch.float32
        weight = weight.to(given.device, finest)
        offset = weight.new_zeros(weight.shape[1]) if bias is None else bias.to(weight)
        rows = given.flatten(0, 1)
        rows = rows[torch.linspace(0, len(rows) - 1, min(len(rows), ROWS)).long()].to(finest)
        try:
            with torch.no_grad():
                tried = run(torch.cat([weight + offset, offset[None], rows @ weight + offset])).to(finest)
        except Exception as error:  # whatever a foreign module or hook raises
            self.problem = f"{name} cannot be tried on other input than the text's: {str(error)[:200]}"
            return
        size = len(weight)
        made_bias, made = tried[size], tried[:size] - tried[size]
        affine = relative_error(rows @ made + made_bias, tried[size + 1 :])
        # All of them: what is done at one position of a long text alone is seen nowhere else.
        same = relative_error(given.flatten(0, 1).to(finest) @ made + made_bias, after.flatten(0, 1))
        if not explained_by(affine, torch.float32) or not explained_by(same, after.dtype):
            self.problem = (
                f"what {name} makes of it is no affine map that is the same for all positions: relative error"
                f" {max(affine, same):.1e}"
            )
            return
        dtype = torch.promote_types(self.context.dtype, torch.float32)
        self.weight, self.bias, self.value = made.to(dtype), made_bias.to(dtype), after
        self._version = version(after)

    def _context_in(self, tensor: Tensor) -> Layout | None:
        """How `tensor` holds the attention output, if it does."""
        return self._layout(tensor, self.merged) if tensor.numel() == self.context.numel() else None

    def _layout(self, tensor: Tensor, numbers: Tensor) -> Layout | None:
        """How `tensor` has to be turned to hold `numbers` [batch, query, …]; None if it does not hold them."""
        if tensor.numel() != numbers.numel():
            return None
        batch, queries = numbers.shape[:2]
        # Where there is one text, or one query, the first two are the same.
        swapped = [Swapped(batch, queries)] if batch > 1 and queries > 1 else []
        for layout in (Layout(batch, queries), *swapped, ChannelsFirst(batch, queries)):
            turned = layout(tensor)
            if turned.shape != numbers.shape:
                continue
            same_place = turned.data_ptr() == numbers.data_ptr() and turned.stride() == numbers.stride()
            if same_place and turned.dtype == numbers.dtype:
                return layout
            if same_numbers(turned[0, :1], numbers[0, :1].to(turned.dtype)) and same_numbers(
                turned, numbers.to(turned.dtype)
            ):
                return layout
        return None


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether a module passed on what it was given, as far as it is a tensor."""
    if one is None or other is None:
        return one is other
    return one is other or (one.shape == other.shape and same_numbers(one, other))


def _is_its_own_doing(frame: Frame, after: Tensor) -> bool:
    """Whether a module returns what its forward makes of what it was given, whatever its hooks."""
    module = frame.module
    if not hooks_of_others(module) and not hooks_of_others(module, before=True):
        return True  # what accelerate does to it is to move numbers
    with torch.no_grad():
        return _same(first_tensor(type(module).forward(module, *frame.args, **frame.kwargs)), after)
