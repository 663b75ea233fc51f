"""identiscope: which part of what a transformer shows you is real?

>>> import identiscope
>>> trace = identiscope.trace("minilm", "The cat sat on the mat.")
>>> trace.verify().verified
True

Public names are imported when first used, so that importing identiscope loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from identiscope.capture import (
        Model,
        Outcome,
        Replay,
        Site,
        Stream,
        Trace,
        Verification,
        from_arrays,
        load,
        stream,
        substitute,
        trace,
        watching,
    )
    from identiscope.errors import CaptureError, IdentiscopeError, InputError, MathError, ModelError

_HOMES = {
    "identiscope.capture": (
        "Model", "Outcome", "Replay", "Site", "Stream", "Trace", "Verification",
        "from_arrays", "load", "stream", "substitute", "trace", "watching",
    ),
    "identiscope.errors": ("CaptureError", "IdentiscopeError", "InputError", "MathError", "ModelError"),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CaptureError", "IdentiscopeError", "InputError", "MathError", "Model", "ModelError", "Outcome", "Replay",
    "Site", "Stream", "Trace", "Verification", "from_arrays", "load", "stream", "substitute", "trace", "watching",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'identiscope' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
