"""identiscope: which part of what a transformer shows you is real?

>>> import identiscope
>>> trace = identiscope.trace("minilm", "The cat sat on the mat.")
>>> trace.verify().verified
True

Public names are imported when first used, so that importing identiscope loads no torch; every method of the registry is
one of them. What they are given is checked against their type hints.
"""

import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from identiscope.methods.registry import METHODS, TAKEN
from identiscope.version import __version__ as __version__

if TYPE_CHECKING:
    from identiscope.asking.ask import ask
    from identiscope.asking.comparing import compare
    from identiscope.asking.explaining import explain
    from identiscope.asking.freedom_ladder import freedom_ladder
    from identiscope.asking.maps import attention_maps, factored_attention
    from identiscope.asking.structure.equivalence import equivalence_under_texts
    from identiscope.asking.structure.extracting import extract_structure, structure_weights
    from identiscope.asking.structure.subspaces import SharedSubspaces, structural_maps
    from identiscope.asking.trees import attribution_tree
    from identiscope.capture import (
        Model,
        Replay,
        Rerun,
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
    from identiscope.capture.rewriting.rewriting import rewrite
    from identiscope.capture.samples import PASSAGE
    from identiscope.corpus.hidden_state_cache import capture_hidden_states
    from identiscope.corpus.readers import read_corpus
    from identiscope.errors import CaptureError, IdentiscopeError, InputError, MathError, ModelError
    from identiscope.judge.arena.arena import arena
    from identiscope.judge.audits.gauge import gauge_audit
    from identiscope.judge.audits.null import null_audit
    from identiscope.judge.audits.redrawn import randomisation
    from identiscope.judge.proof import prove
    from identiscope.methods.registry import Method, registered
    from identiscope.methods.structure.identifiable_attention import IdentifiableSelfAttention
    from identiscope.papers.brunner2020.attention_figures import (
        attention_between_types,
        correlation_by_length,
        passage_maps,
    )
    from identiscope.papers.structure_draft.corpus_structure import corpus_structure, shared_subspaces
    from identiscope.papers.structure_draft.perturbation import perturbation_effects
    from identiscope.reports.reporting import report, view
    from identiscope.reports.reporting_run import report_run
    from identiscope.results import load_result, save_result
    from identiscope.runs.compute.options import RunOptions
    from identiscope.runs.compute.run import run_corpus
    from identiscope.runs.format.opened_run import Run, open_run
    from identiscope.views.plots.plotting import plot

_HOMES = {
    "identiscope.asking.ask": ("ask",),
    "identiscope.asking.comparing": ("compare",),
    "identiscope.asking.explaining": ("explain",),
    "identiscope.asking.freedom_ladder": ("freedom_ladder",),
    "identiscope.asking.maps": ("attention_maps", "factored_attention"),
    "identiscope.asking.structure.extracting": ("extract_structure", "structure_weights"),
    "identiscope.asking.trees": ("attribution_tree",),
    "identiscope.asking.structure.equivalence": ("equivalence_under_texts",),
    "identiscope.asking.structure.subspaces": ("SharedSubspaces", "structural_maps"),
    "identiscope.capture": (
        "Model", "Replay", "Rerun", "Site", "Stream", "Trace", "Verification",
        "from_arrays", "load", "stream", "substitute", "trace", "watching",
    ),
    "identiscope.capture.rewriting.rewriting": ("rewrite",),
    "identiscope.capture.samples": ("PASSAGE",),
    "identiscope.corpus.hidden_state_cache": ("capture_hidden_states",),
    "identiscope.corpus.readers": ("read_corpus",),
    "identiscope.errors": ("CaptureError", "IdentiscopeError", "InputError", "MathError", "ModelError"),
    "identiscope.judge.arena.arena": ("arena",),
    "identiscope.judge.audits.gauge": ("gauge_audit",),
    "identiscope.judge.audits.null": ("null_audit",),
    "identiscope.judge.audits.redrawn": ("randomisation",),
    "identiscope.judge.proof": ("prove",),
    "identiscope.methods.registry": ("Method", "registered"),
    "identiscope.methods.structure.identifiable_attention": ("IdentifiableSelfAttention",),
    "identiscope.papers.brunner2020.attention_figures": (
        "attention_between_types", "correlation_by_length", "passage_maps",
    ),
    "identiscope.papers.structure_draft.corpus_structure": ("corpus_structure", "shared_subspaces"),
    "identiscope.papers.structure_draft.perturbation": ("perturbation_effects",),
    "identiscope.reports.reporting": ("report", "view"),
    "identiscope.reports.reporting_run": ("report_run",),
    "identiscope.results": ("load_result", "save_result"),
    "identiscope.runs.compute.run": ("run_corpus",),
    "identiscope.runs.format.opened_run": ("Run", "open_run"),
    "identiscope.runs.compute.options": ("RunOptions",),
    "identiscope.views.plots.plotting": ("plot",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
TAKEN.update(_HOME)
#: The functions of methods that were asked for, each with the line it is of.
_ASKED: dict[str, tuple[Any, Any]] = {}
#: Names that were, and are for one release more: old → new.
_OLD = {"Outcome": "Rerun"}

__all__ = [
    "PASSAGE",
    "CaptureError",
    "IdentifiableSelfAttention",
    "IdentiscopeError",
    "InputError",
    "MathError",
    "Method",
    "Model",
    "ModelError",
    "Replay",
    "Rerun",
    "Run",
    "RunOptions",
    "SharedSubspaces",
    "Site",
    "Stream",
    "Trace",
    "Verification",
    "arena",
    "ask",
    "attention_between_types",
    "attention_maps",
    "attribution_tree",
    "capture_hidden_states",
    "compare",
    "corpus_structure",
    "correlation_by_length",
    "equivalence_under_texts",
    "explain",
    "extract_structure",
    "factored_attention",
    "freedom_ladder",
    "from_arrays",
    "gauge_audit",
    "load",
    "load_result",
    "null_audit",
    "open_run",
    "passage_maps",
    "perturbation_effects",
    "plot",
    "prove",
    "randomisation",
    "read_corpus",
    "registered",
    "report",
    "report_run",
    "rewrite",
    "run_corpus",
    "save_result",
    "shared_subspaces",
    "stream",
    "structural_maps",
    "structure_weights",
    "substitute",
    "trace",
    "view",
    "watching",
]  # fmt: skip
__all__ += METHODS


def __getattr__(name: str) -> Any:
    if name in _OLD:
        warnings.warn(
            f"identiscope.{name} is called {_OLD[name]} now, and will be gone in 0.2.", FutureWarning, stacklevel=2
        )
        return __getattr__(_OLD[name])
    if name in _HOME:
        function = getattr(import_module(_HOME[name]), name)
    elif name in METHODS:
        from identiscope.asking.ask import function_of

        line, known = _ASKED.get(name, (None, None))
        if known is not None and line is METHODS[name]:
            return known
        function = function_of(name)
    else:
        raise AttributeError(f"module 'identiscope' has no attribute {name!r}")
    from identiscope.validation import check_methods, checked

    if "xarray" in sys.modules:
        # Whoever can make a result finds `result.identiscope` there.
        import_module("identiscope.accessor")
    # Classes are met without being asked for, as what a function returns.
    for home, others in (*_HOMES.items(), ("identiscope.accessor", ("ResultAccessor",))):
        for other in others if home in sys.modules else ():
            one = getattr(sys.modules[home], other, None)
            if isinstance(one, type):
                check_methods(one)
    if callable(function) and not isinstance(function, type):
        function = checked(function, name)
    if name in _HOME:
        globals()[name] = function
    else:
        # Not for good: a method may be registered for a while only, and another of its name after it.
        _ASKED[name] = METHODS[name], function
    return function


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *METHODS])
