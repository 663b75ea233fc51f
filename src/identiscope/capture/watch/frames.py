"""Which modules of a watched model are running, with what they were given."""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from identiscope.capture.watch.trying import may_be_changed

if TYPE_CHECKING:
    from identiscope.capture.watch.calls import Watcher


# What families call attention that has no softmax.
_LINEAR = re.compile("linear|lightning|delta", re.IGNORECASE)
# What is more than an attention block, whatever else its class says.
_HOLDS_MORE = re.compile("model|encoder|decoder")


@dataclass(eq=False, slots=True)
class Frame:
    """One running call of a module.

    `output` is what its forward returned, before the hooks of others changed it; `kept` the numbers of that, of a
    module with such hooks around the output projection. `reads_context`: the attention output is the one tensor it was
    given; `reads_twice`: more than one linear map inside it took that. `encloses`: the output projection ran inside
    it. `theirs`: others than the architecture may have a hand in what it returns; `behind` is what was known of the
    projection when such a module was given what this had returned. `calls`: the attention calls seen in it, of the
    `softmaxes` that it ran; `products`: how many of batches of matrices; `scores`: what `softmax.py` notes of those.
    `block`: which call it is among those of the stack of layers that it belongs to, from 0.
    """

    module: nn.Module
    name: str
    attends: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None
    kept: Tensor | None = None
    reads_context: bool = False
    reads_twice: bool = False
    encloses: bool = False
    theirs: bool = False
    behind: Any = None
    calls: int = 0
    softmaxes: int = 0
    products: int = 0
    scores: Any = None
    block: int | None = None

    def tensors(self) -> list[Tensor]:
        """The tensors among its arguments."""
        return [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor)]

    def missed_attention(self) -> bool:
        """Whether this call, now over, attended in a way that was not seen, as far as that can be told."""
        if self.scores is not None and self.scores.weights is not None and not self.scores.again:
            return True  # the softmax of a product, and what was weighed with it was not found
        if not self.attends or self.calls or self.softmaxes:
            return self.attends and self.softmaxes > self.calls
        # Without a softmax it may be linear attention, or have had nothing to do; what code that is not transformers'
        # computes outside torch is not known.
        known = type(self.module).__module__.startswith("transformers.models.")
        return not _LINEAR.search(type(self.module).__name__) and (self.products > 0 or not known)

    def __str__(self) -> str:
        return f"{self.name or 'the model'} ({type(self.module).__name__})"


def is_attention(module: nn.Module) -> bool:
    """Whether this module computes attention itself: named so by its class, and holding no other such."""
    return _named_attention(module) and not any(map(_named_attention, list(module.modules())[1:]))


def is_around_attention(frame: Frame) -> bool:
    """Whether this module is an attention block by its class or by what it is called: no layer, and no model."""
    kind, name = type(frame.module).__name__.lower(), frame.name.rpartition(".")[2].lower()
    if frame.attends or not frame.name or _HOLDS_MORE.search(kind):
        return frame.attends
    return any(word in called for word in ("attention", "attn") for called in (kind, name))


def holds_attention_alone(module: nn.Module) -> bool:
    """Whether attention is the only part of this module."""
    parts = list(module.children())
    return len(parts) == 1 and _named_attention(parts[0])


def _named_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower()


def _may_project(module: nn.Module) -> bool:
    """Whether this module may be an output projection, or hold one: no norm, dropout or activation."""
    return bool(module._modules) or any(
        weight is not None and weight.dim() > 1 for weight in module._parameters.values()
    )


def watch_frames(watcher: "Watcher", stack: ExitStack) -> None:
    """Keep `watcher.frames`, innermost last, and tell the watcher when a module is entered and left."""
    attending: set[nn.Module] = set()
    hooked: set[nn.Module] = set()
    theirs: set[nn.Module] = set()
    handles: list[RemovableHandle] = []

    def enter(module: nn.Module, args: Any, *kwargs: Any) -> None:
        # In another thread the hook may come or go between what torch looks up of it: not even kwargs are sure.
        if watcher.sees(module):
            own = watcher.watched(module)
            frame = Frame(module, watcher.names[own], own in attending, args, *kwargs)
            frame.theirs = own in theirs
            watcher.entered(frame)

    def forwarded(module: nn.Module, args: Any, output: Any) -> None:
        if watcher.sees(module):
            watcher.forwarded(output)

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if watcher.sees(module):
            watcher.left(output, watcher.watched(module) in hooked)

    def remove() -> None:
        for handle in reversed(handles):
            handle.remove()

    # The same three for every module: this is done for every pass, and to make functions takes time.
    stack.callback(remove)
    for module in watcher.names:
        if may_be_changed(module, watcher.own):
            theirs.add(module)
        if is_attention(module):
            attending.add(module)
            watcher.has_attention_modules = True
        elif module not in theirs and not _may_project(module):
            continue
        # First of all hooks, so that what others change can be told from what the module itself did; last of all to
        # leave, so that what is seen is what the caller gets.
        handles.append(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True))
        if module._forward_hooks:
            hooked.add(module)
            handles.append(module.register_forward_hook(forwarded, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
