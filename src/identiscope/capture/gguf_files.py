"""GGUF files, read once.

transformers parses one anew for configuration, weights and tokenizer, and asks for the names of all tensors for each
module. Most of the time of loading went there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: What of the package gguf is a function of its arguments alone, and asked again and again.
_ASKED = ("GGUFReader", "get_tensor_name_map")


@contextmanager
def read_once() -> Iterator[None]:
    """Inside the block a file is parsed when it is first asked for. For one thread at a time, as all loading is."""
    import gguf

    ordinary = {name: getattr(gguf, name) for name in _ASKED}
    for name, function in ordinary.items():
        setattr(gguf, name, _kept(function))
    try:
        yield
    finally:
        for name, function in ordinary.items():
            setattr(gguf, name, function)


def _kept(function: Callable[..., Any]) -> Callable[..., Any]:
    answers: dict[tuple[str, ...], Any] = {}

    def ask(*arguments: Any) -> Any:
        key = tuple(map(str, arguments))
        if key not in answers:
            answers[key] = function(*arguments)
        return answers[key]

    return ask
