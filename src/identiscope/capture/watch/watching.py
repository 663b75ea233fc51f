"""Watch a running model's attention: what each kernel was given and what became of its output.

Nothing of the model is changed. Inside the `with` block, transformers' attention interface hands the
model the same kernel as before, wrapped (`interface.py`); families that do not use the interface are
watched at PyTorch's `scaled_dot_product_attention` (`functions.py`) or at their softmax (`softmax.py`), and
`torch.nn.MultiheadAttention` at its call (`multihead.py`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from identiscope.capture.models import unwrapped
from identiscope.capture.watch.calls import Call, Changes, Rule, Watcher, watched_by
from identiscope.capture.watch.frames import watch_frames
from identiscope.capture.watch.functions import HANDLERS, Functions
from identiscope.capture.watch.interface import watch_interface
from identiscope.capture.watch.multihead import watch_multihead
from identiscope.capture.watch.softmax import SOFTMAX_HANDLERS

_HANDLERS = {**HANDLERS, **SOFTMAX_HANDLERS}


@contextmanager
def watching(
    module: nn.Module,
    *,
    changes: Changes | None = None,
    whole: bool = False,
    visit: Callable[[Call], None] | None = None,
    rule: Rule | None = None,
) -> Iterator[Watcher]:
    """Watch the attention calls of `module` while it runs; leave nothing behind, also after an exception.

    changes: maps to put in place, by (call index, head); whole: as in `change_context`. visit: called with each
    `Call` as soon as it is over, which is then not kept. rule: how attention is computed instead; calls are then only
    counted. Blocks may nest, and each sees every call.
    """
    names = {inner: name for name, inner in module.named_modules()}
    watcher = Watcher(names, _own(module), _stacks(module, names), changes or {}, visit, whole, rule)

    # Looked through only while the module runs: blocks of two tasks in one thread need not end in turn.
    looking = ExitStack()

    def start(root: nn.Module, args: Any) -> None:
        if watcher.is_meant:
            watcher.active += 1
            if watcher.active == 1:
                looking.enter_context(Functions(watcher, _HANDLERS))

    def stop(root: nn.Module, args: Any, output: Any) -> None:
        if watcher.is_meant and watcher.active:
            watcher.active -= 1
            if watcher.active == 0:
                looking.close()

    with ExitStack() as stack, looking:
        stack.enter_context(watched_by(watcher))
        watch_frames(watcher, stack)
        stack.callback(module.register_forward_pre_hook(start, prepend=True).remove)
        watch_multihead(watcher, stack)
        stack.enter_context(watch_interface())
        stack.callback(module.register_forward_hook(stop, always_call=True).remove)
        yield watcher
        watcher.finish()


def _own(module: nn.Module) -> frozenset[str]:
    """The packages that a model's own classes come from; what peft puts around it is not its own."""
    return frozenset({"torch", "transformers", type(unwrapped(module)).__module__.partition(".")[0]})


def _stacks(module: nn.Module, parts: Iterable[nn.Module]) -> dict[nn.Module, nn.Module]:
    """Which list of modules each module is an element of; what the model itself is a list of are no layers."""
    lists = [inner for inner in parts if isinstance(inner, (nn.ModuleList, nn.Sequential))]
    return {element: inner for inner in reversed(lists) if inner is not module for element in inner}
