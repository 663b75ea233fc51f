"""On Identifiability in Transformers (Brunner et al., ICLR 2020).

>>> from identiscope.papers import brunner2020
>>> result, probes = brunner2020.same_layer(identiscope.capture_hidden_states(model, texts, "states"))
"""

from importlib import import_module
from typing import Any

#: What is for others, by the module that it is in, which is imported when it is first asked for.
_HOMES = {
    "tokens.studies": (
        "same_layer", "across_layers", "previous_layer", "compare_checkpoints", "neighbours", "data_fractions",
    ),
    "tokens.losses": ("lost_tokens", "identifiability_against_contribution"),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
