"""Families that ask transformers' attention interface for their kernel: it is wrapped where they ask.

Registering a kernel of our own under a new name would change what some families do (they branch on the
name), replace their mask function, and lose the eager kernel that each family passes as its default. So
the lookup itself is wrapped: the model gets its own kernel, whichever that is, and we see its arguments.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface

from identiscope.capture.watch.calls import Call, Watcher, change_context, watchers
from identiscope.errors import CaptureError

_LOCK = threading.Lock()
_USERS = 0
_ORIGINAL: Any = None


def _get_interface(interface: Any, attn_implementation: str, default: Any) -> Any:
    kernel = _ORIGINAL(interface, attn_implementation, default)
    # The outer watcher wraps last, so that it sees what an inner one has put in place.
    for watcher in reversed(watchers()):
        kernel = _watched(kernel, attn_implementation, watcher)
    return kernel


@contextmanager
def watch_interface() -> Iterator[None]:
    """Let the watchers of a thread and context see every kernel that the interface hands out there.

    The lookup is the class's, and so everyone's; who has no watcher gets the kernel as it is.
    """
    global _USERS, _ORIGINAL
    with _LOCK:
        if _USERS == 0:
            _ORIGINAL = AttentionInterface.get_interface
            AttentionInterface.get_interface = _get_interface
        _USERS += 1
    try:
        yield
    finally:
        with _LOCK:
            _USERS -= 1
            if _USERS == 0:
                AttentionInterface.get_interface = _ORIGINAL


def _watched(kernel: Any, implementation: str, watcher: Watcher) -> Any:
    """The same kernel, seen."""

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        name = watcher.name(module)
        if name is None:
            return kernel(module, query, key, value, attention_mask, *rest, **options)
        if attention_mask is not None and not isinstance(attention_mask, Tensor):
            raise CaptureError(
                f"{name} uses the {implementation!r} kernel, whose mask is a {type(attention_mask).__name__}."
                ' Load the model with attn_implementation="sdpa" or "eager".'
            )
        scale = options.get("scaling")
        flag = options.get("is_causal")
        says = getattr(module, "is_causal", None) if flag is None else flag
        causal = says is None or bool(says)  # as transformers' own kernels take it
        # Eager kernels know no flag: what they mask is in the mask.
        triangle = causal and implementation != "eager" and attention_mask is None and query.shape[-2] > 1
        sinks = options.get("s_aux")
        call = Call(
            name=name,
            query=query,
            key=key,
            value=value,
            bias=watcher.read_mask(attention_mask, options.get("position_bias"), triangle),
            scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
            # Some versions pass it to SDPA too, which takes no notice of it.
            softcap=None if implementation == "sdpa" else options.get("softcap"),
            sinks=None if sinks is None else sinks.detach(),
            context=query,
            causal=says,
        )
        result: Any = (query, None)
        if watcher.runs_kernels:
            watcher.inside_kernel = True
            try:
                result = kernel(module, query, key, value, attention_mask, *rest, **options)
            finally:
                watcher.inside_kernel = False
            call.context = result[0].transpose(1, 2)
        if watcher.rule is not None:
            watcher.follow_rule(call)
            return call.context.transpose(1, 2).contiguous(), *result[1:]
        changes = watcher.changed(watcher.count)
        if changes:
            with watcher.paused():
                context = change_context(call, result[0].transpose(1, 2), changes, whole=watcher.whole)
            result = (context.transpose(1, 2).contiguous(), *result[1:])
            call.context = result[0].transpose(1, 2)
        watcher.began(call)
        return result

    return attention
