"""The structure-aware draft: norms, subspaces and a reversing model.

>>> from identiscope.papers import structure_draft
>>> model = structure_draft.load_reversal("reverse/model.safetensors")
"""

from importlib import import_module
from typing import Any

#: What is for others, by the module that it is in, which is imported when it is first asked for.
_HOMES = {"reversal_model": ("load_reversal", "reversal_inputs", "reversal_samples")}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
