"""Every method by name: file, function and key are the same word. The contract tests run on each line."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from identiscope.errors import InputError

METHODS = (
    "attention_rank",
    "canonical",
    "effective",
    "effective_simplex_span",
    "head_pattern",
    "head_summary",
    "intervals",
    "layer_rank",
    "null",
    "null_share",
    "null_space_basis",
    "raw_correlation",
    "realisable_alternative",
    "row_rank",
    "shared_subspace",
    "structure_norm",
)


def method(name: str) -> Callable[..., Any]:
    """The function of a method.

    >>> method("effective").__name__
    'effective'
    """
    if name not in METHODS:
        raise InputError(f"there is no method {name!r}; there are {', '.join(METHODS)}.")
    function: Callable[..., Any] = getattr(import_module(f"identiscope.methods.{name}"), name)
    return function
