"""Watch a running model's attention: what each kernel was given and what became of its output.

Nothing of the model is changed. Inside the `with` block, transformers' attention interface hands the
model the same kernel as before, wrapped (`interface.py`); families that do not use the interface are
watched at PyTorch's `scaled_dot_product_attention` (`functions.py`) or at their softmax (`softmax.py`), and
`torch.nn.MultiheadAttention` at its call (`multihead.py`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from identiscope.capture.calls import Call, Changes, Watcher
from identiscope.capture.functions import HANDLERS, Functions
from identiscope.capture.interface import watch_interface
from identiscope.capture.multihead import watch_multihead
from identiscope.capture.softmax import SOFTMAX_HANDLERS, watch_softmax


def is_attention(module: nn.Module) -> bool:
    """Whether this module computes attention itself: named so by its class, and holding no other such."""
    return _named_attention(module) and not any(map(_named_attention, list(module.modules())[1:]))


def _named_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower()


@contextmanager
def watching(
    module: nn.Module, *, changes: Changes | None = None, visit: Callable[[Call], None] | None = None
) -> Iterator[Watcher]:
    """Watch the attention calls of `module` while it runs; leave nothing behind, also after an exception.

    changes: maps to put in place, by (call index, head). visit: called with each `Call` as soon as it is
    over, which is then not kept. Blocks may nest, and each sees every call.
    """
    watcher = Watcher({inner: name for name, inner in module.named_modules()}, changes or {}, visit)

    thread = threading.get_ident()

    def mine() -> bool:
        """Hooks are the module's, and another thread may be running it too."""
        return threading.get_ident() == thread

    def enter(inner: nn.Module, args: Any) -> None:
        if mine():
            watcher.attention_modules_run += 1
            watcher.running.append(inner)

    def leave(inner: nn.Module, args: Any, output: Any) -> None:
        if mine():
            watcher.running.pop()

    def start(root: nn.Module, args: Any) -> None:
        watcher.active += mine()

    def stop(root: nn.Module, args: Any, output: Any) -> None:
        watcher.active -= mine()

    with ExitStack() as stack:
        stack.callback(module.register_forward_pre_hook(start).remove)
        for inner in module.modules():
            if is_attention(inner):
                stack.callback(inner.register_forward_pre_hook(enter).remove)
                stack.callback(inner.register_forward_hook(leave, always_call=True).remove)
        watch_multihead(watcher, stack)
        by_hand = watch_softmax(watcher, stack)
        stack.enter_context(watch_interface(watcher))
        stack.enter_context(Functions(watcher, {**HANDLERS, **SOFTMAX_HANDLERS} if by_hand else HANDLERS))
        stack.callback(module.register_forward_hook(stop, always_call=True).remove)
        yield watcher
        watcher.finish()
