"""Published works again: what is run, what was published, what came out."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def imported_later(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[list[str], Callable[[str], Any]]:
    """What a paper hands out, and the `__getattr__` of its package, which imports each when it is first asked for.

    homes: the names, by the module of the package that they are in.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return list(home), attribute
