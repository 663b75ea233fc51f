"""A call that works of every public name: what random calls begin with.

The names are those of the package, so that none is left out; what has no arguments here that fit is an error.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn

import identiscope
from identiscope.accessor import ResultAccessor
from identiscope.methods.registry import METHODS

Call = tuple[str, Callable[..., Any], dict[str, Any]]


def nothing(*args: Any, **kwargs: Any) -> None:
    """A function that takes anything; one that does not may raise what it likes when it is called back."""


def things(folder: Path) -> dict[str, Any]:
    """What good calls are made of: tiny models, traces, results, a Run."""
    from soak.tiny import save_tiny, words

    model = identiscope.load(save_tiny(folder / "model"))
    trace = identiscope.trace(model, words(6))
    other = identiscope.trace(model, words(6, seed=1))
    # It has a head, and so an outcome to explain.
    causal = identiscope.trace(identiscope.load(save_tiny(folder / "causal", "OPTForCausalLM", ffn_dim=48)), words(4))
    options = identiscope.RunOptions(methods=("attention_identifiability", "tokens"), batch_size=2)
    (folder / "corpus.txt").write_text("\n".join(words(5, seed) for seed in range(3)) + "\n")
    run = identiscope.run_corpus(folder / "model", folder / "corpus.txt", folder / "run", options=options)
    alternative = identiscope.attention_alternative(trace, 0, 1)
    return {
        "model": model, "trace": trace, "other": other, "causal": causal, "site": trace.site(1), "run": run,
        "identifiability": identiscope.attention_identifiability(trace), "options": options,
        "alternative": alternative, "maps": identiscope.attention_maps(trace, 1, 2),
        "intervals": identiscope.attention_intervals(trace, 0, 1, row=2),
        "attribution": identiscope.hidden_token_attribution(trace, mode="estimate", probes=2),
        "structure": identiscope.extract_structure([trace, other]),
        "subspaces": identiscope.shared_subspaces(model, [words(6), words(6, seed=2)]),
        "proof": identiscope.prove(model, words(6), 0, 1, alternative), "replay": trace.replay,
        "arrays": identiscope.from_arrays(torch.eye(4), torch.randn(4, 2)), "stream": trace.main,
        "verification": trace.verify(), "rerun": identiscope.substitute(model, words(6), {(0, 1): torch.eye(8)}),
        "method": METHODS["effective"], "layer": identiscope.IdentifiableSelfAttention(8, 2),
    }  # fmt: skip


def calls(given: dict[str, Any]) -> list[Call]:
    """Calls that work, each of them cheap: functions, constructors, and the methods of objects."""
    found: list[Call] = []
    for name in identiscope.__all__:
        public = getattr(identiscope, name)
        if isinstance(public, type) and issubclass(public, Exception):
            continue
        if isinstance(public, type):
            one = next(thing for thing in given.values() if isinstance(thing, public))
            found += [(name, public, _made_of(one, given)), *_methods_of(name, one, given)]
        elif callable(public):
            found.append((name, _read_out(public), _arguments(name, public, given)))
    return [*found, *_methods_of("result.identiscope", given["maps"].identiscope, given, ResultAccessor)]


def _methods_of(name: str, one: Any, given: dict[str, Any], cls: type | None = None) -> Iterator[Call]:
    """The public methods of an object, and itself if it can be called; torch's own module is called by its forward."""
    for key, attribute in vars(cls or type(one)).items():
        if not isinstance(attribute, (FunctionType, staticmethod, classmethod)) or key == "forward":
            continue
        if key == "__call__" or not key.startswith("_"):
            method = getattr(one, key)
            yield f"{name}.{key}", _read_out(method), _arguments(f"{name}.{key}", method, given)


def _read_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """What yields is read to its end, and what is entered is left again: it begins no sooner."""
    if not inspect.isgeneratorfunction(inspect.unwrap(function)):
        return function

    def call(*args: Any, **arguments: Any) -> Any:
        found = function(*args, **arguments)
        if not isinstance(found, AbstractContextManager):
            return list(found)
        with found:
            return found

    call.__wrapped__ = function  # type: ignore[attr-defined]
    return call


def _made_of(one: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What an object was made with."""
    name = type(one).__name__
    if name in _special(given) or not is_dataclass(one):
        return _arguments(name, type(one), given)
    return {field.name: getattr(one, field.name) for field in fields(one) if field.init}


def _arguments(name: str, function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """What is said of this call; for the rest, the defaults of its options, and of what has none, what it is called."""
    special, usual = _special(given).get(name, {}), _usual(given)
    parameters = inspect.signature(function).parameters
    if "outcome" in parameters:
        usual |= {"trace": given["causal"]}
    found = {}
    for one in parameters.values():
        if one.name in special:
            found[one.name] = special[one.name]
        elif one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        elif one.default is not one.empty:
            # Those of everything by itself take longer than a random call may; a choice of layers comes to the same.
            of_layers = one.name == "layers" and name in METHODS and "layer" in METHODS[name].axes
            found[one.name] = [0] if of_layers else one.default
        elif one.name in usual:
            found[one.name] = usual[one.name]
        else:
            raise LookupError(f"{name}() needs {one.name}: say in soak/good_calls.py what works there.")
    return found | special


def _usual(given: dict[str, Any]) -> dict[str, Any]:
    """What works as an argument of this name."""
    from soak.tiny import words

    texts = [words(6), words(6, seed=3)]
    names = ("trace", "model", "alternative", "subspaces", "site")
    return {name: given[name] for name in names} | {
        "layer": 0, "head": 1, "text": texts[0], "texts": texts, "path": "written", "result": given["maps"],
        "directory": given["run"].directory, "name": "attention_identifiability", "traces": [given["trace"]],
        "module": given["model"].module, "method": "attention",
    }  # fmt: skip


def _special(given: dict[str, Any]) -> Mapping[str, dict[str, Any]]:
    """Arguments of calls for which the usual ones are none, or would take long."""
    model, trace, subspaces = (given[name] for name in ("model", "trace", "subspaces"))
    both = [trace, given["other"]]
    corpus = given["run"].directory.parent / "corpus.txt"
    return {
        "arena": {
            "model": given["causal"].model, "corpus": corpus, "directory": "new-arena", "methods": ["attention"],
            "tests": ["erasure"], "limit": 1, "budget": 20, "planted": 1, "trained": False,
        },
        "ask": {"name": "effective", "layers": [0], "heads": [1], "value_bias": False},
        "attention_intervals": {"row": 2},
        "attention_maps": {"maps": ["raw", "null"]},
        "compare": {"methods": ["effective", "null"], "layers": [0], "heads": [1], "value_bias": False},
        "corpus_structure": {"layers": [0], "clusters": 1},
        "equivalence_under_texts": {"first": trace, "second": given["other"]},
        "explain": {"methods": ["gradient_input", "weighted_norm"], "budget": 4},
        "rewrite": {"how": "value_bias"},
        "Trace.with_attention": {"maps": {0: trace.site(0).attentions()}},
        "null_audit": {"methods": ["attention"], "alternatives": ["canonical"], "intervals": 1},
        "gauge_audit": {"model": given["causal"].model, "methods": ["attention"], "how": ["value_bias"]},
        "randomisation": {"model": given["causal"].model, "methods": ["attention"], "draws": 1, "steps": 1},
        "extract_structure": {"traces": both, "layers": [0]},
        "from_arrays": {"attention": torch.eye(4), "value": torch.randn(4, 2), "tokens": list("abcd")},
        "hidden_token_attribution": {"mode": "estimate", "probes": 2},
        "IdentifiableSelfAttention": {"embed_dim": 8, "num_heads": 2, "key_width": 3, "dropout": 0.1},
        "IdentifiableSelfAttention.from_multihead": {"module": nn.MultiheadAttention(8, 2, batch_first=True)},
        "IdentifiableSelfAttention.head_values": {"inputs": torch.randn(3, 8)},
        "integrated_gradients": {"budget": 41},
        "kernel_shap": {"budget": 40},
        "load": {"model": model},
        "load_result": {"path": "junk"},
        "Model": {"module": model.module, "tokenizer": None, "name": "mine"},
        "Model.home": {"device": torch.device("cpu")},
        "perturbation_effects": {"sets": 2, "resamples": 3},
        "read_corpus": {"path": corpus},
        "registered": {"new": identiscope.Method("mine", "map", "nobody", "nothing", function=nothing)},
        "Replay.__call__": {"embeddings": trace.embeddings, "summed": False},
        "report": {"model": trace, "text": None, "with_verdict": False, "canonical": "none"},
        "result.identiscope.plot": {"values": "raw"},
        "Trace.outcome": {"given": "similarity:w1 w2"},
        "Run.means": {"method": "attention"},
        "Run.query": {"condition": "layer == 0"},
        "run_corpus": {"corpus": "junk", "directory": "new-run", "options": given["options"]},
        "RunOptions": {"layers": (0,), "batch_size": 2, "probes": 4},
        "shapley": {"exact": 3, "budget": 20},
        "SharedSubspaces.merge": {"other": subspaces},
        "SharedSubspaces.of": {"keys": 8},
        "SharedSubspaces.with_arrays": {"arrays": subspaces.arrays()},
        "smooth_gradient": {"samples": 2},
        "stream": {"visit": nothing, "layers": [0]},
        "structure_weights": {"result": given["structure"]},
        "substitute": {"replacements": {(0, 1): lambda attention: attention.flip(-1)}},
        "trace": {"layers": [0], "heads": [1], "truncate": True, "batch_size": 2},
        "view": {"shown": given["maps"]},
        "null_share": {"key_types": torch.eye(8, dtype=torch.bool)},
        "structure_norm": {"weights": torch.ones(8, 8)},
        "statistic_interval": {"on": np.array([0]).tolist()},
    }  # fmt: skip
