"""The structure-aware draft: norms, subspaces and a reversing model.

>>> from identiscope.papers import structure_draft
>>> model = structure_draft.load_reversal("reverse/model.safetensors")
"""

from identiscope.papers import imported_later

#: What is for others, by the module that it is in.
_HOMES = {"reversal_model": ("load_reversal", "reversal_inputs", "reversal_samples")}
__all__, __getattr__ = imported_later(__name__, _HOMES)
