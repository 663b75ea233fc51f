"""identiscope: which part of what a transformer shows you is real?

>>> import identiscope
>>> trace = identiscope.trace("minilm", "The cat sat on the mat.")
>>> trace.verify().verified
True

Public names are imported when first used, so that importing identiscope loads no torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from identiscope.analysis.alternatives import attention_alternative
    from identiscope.analysis.attention import (
        attention_identifiability,
        attention_intervals,
        attention_maps,
        factored_attention,
    )
    from identiscope.analysis.structure import extract_structure, structure_weights
    from identiscope.analysis.structure_equivalence import equivalence_under_texts
    from identiscope.analysis.structure_subspaces import SharedSubspaces, structural_maps
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
    from identiscope.corpus.opened_run import Run, open_run
    from identiscope.corpus.run import run_corpus
    from identiscope.corpus.run_options import RunOptions
    from identiscope.errors import CaptureError, IdentiscopeError, InputError, MathError, ModelError
    from identiscope.experiments.attention_figures import (
        attention_between_types,
        correlation_by_length,
        passage_maps,
    )
    from identiscope.experiments.attribution import attribution as hidden_token_attribution
    from identiscope.experiments.proof import prove
    from identiscope.experiments.reporting import report, view
    from identiscope.experiments.reporting_run import report_run
    from identiscope.experiments.structure import corpus_structure, shared_subspaces
    from identiscope.experiments.structure_perturbation import perturbation_effects
    from identiscope.methods.identifiable_attention import IdentifiableSelfAttention
    from identiscope.methods.null_space_basis import null_space_basis
    from identiscope.results import load_result, save_result
    from identiscope.views.plotting import plot

_HOMES = {
    "identiscope.analysis.alternatives": ("attention_alternative",),
    "identiscope.analysis.attention": (
        "attention_identifiability", "attention_intervals", "attention_maps", "factored_attention",
    ),
    "identiscope.analysis.structure": ("extract_structure", "structure_weights"),
    "identiscope.analysis.structure_equivalence": ("equivalence_under_texts",),
    "identiscope.analysis.structure_subspaces": ("SharedSubspaces", "structural_maps"),
    "identiscope.capture": (
        "Model", "Outcome", "Replay", "Site", "Stream", "Trace", "Verification",
        "from_arrays", "load", "stream", "substitute", "trace", "watching",
    ),
    "identiscope.corpus.opened_run": ("Run", "open_run"),
    "identiscope.corpus.run": ("run_corpus",),
    "identiscope.corpus.run_options": ("RunOptions",),
    "identiscope.errors": ("CaptureError", "IdentiscopeError", "InputError", "MathError", "ModelError"),
    "identiscope.experiments.attention_figures": (
        "attention_between_types", "correlation_by_length", "passage_maps",
    ),
    "identiscope.experiments.attribution": ("hidden_token_attribution",),
    "identiscope.experiments.proof": ("prove",),
    "identiscope.experiments.reporting": ("report", "view"),
    "identiscope.experiments.reporting_run": ("report_run",),
    "identiscope.experiments.structure": ("corpus_structure", "shared_subspaces"),
    "identiscope.experiments.structure_perturbation": ("perturbation_effects",),
    "identiscope.methods.identifiable_attention": ("IdentifiableSelfAttention",),
    "identiscope.methods.null_space_basis": ("null_space_basis",),
    "identiscope.results": ("load_result", "save_result"),
    "identiscope.views.plotting": ("plot",),
}  # fmt: skip
# Known there by a shorter name, beside the method on tensors that has this one.
_ALIASES = {"hidden_token_attribution": "attribution"}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CaptureError", "IdentifiableSelfAttention", "IdentiscopeError", "InputError", "MathError", "Model", "ModelError",
    "Outcome", "Replay", "Run", "RunOptions", "SharedSubspaces", "Site", "Stream", "Trace", "Verification",
    "attention_alternative", "attention_between_types", "attention_identifiability", "attention_intervals",
    "attention_maps", "corpus_structure", "correlation_by_length", "equivalence_under_texts", "extract_structure",
    "factored_attention", "from_arrays", "hidden_token_attribution", "load", "load_result", "null_space_basis",
    "open_run", "passage_maps", "perturbation_effects", "plot", "prove", "report", "report_run", "run_corpus",
    "save_result", "shared_subspaces", "stream", "structural_maps", "structure_weights", "substitute", "trace", "view",
    "watching",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'identiscope' has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), _ALIASES.get(name, name))
    if "xarray" in sys.modules:
        # Whoever can make a result finds `result.identiscope` there.
        import_module("identiscope.accessor")
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
