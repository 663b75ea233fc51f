"""On Identifiability in Transformers (Brunner et al., ICLR 2020).

>>> from identiscope.papers import brunner2020
>>> result, probes = brunner2020.same_layer(identiscope.capture_hidden_states(model, texts, "states"))
"""

from identiscope.papers import imported_later

#: What is for others, by the module that it is in.
_HOMES = {
    "tokens.studies": (
        "same_layer", "across_layers", "previous_layer", "compare_checkpoints", "neighbours", "data_fractions",
    ),
    "tokens.losses": ("lost_tokens", "identifiability_against_contribution"),
}  # fmt: skip
__all__, __getattr__ = imported_later(__name__, _HOMES)
