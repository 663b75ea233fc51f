"""Fitted probes as one safetensors file, and new text scored with them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import xarray as xr
from safetensors.torch import save

from identiscope.corpus.hidden_state_cache import HiddenStates
from identiscope.errors import InputError
from identiscope.files import printable, write_file
from identiscope.methods.tokens.identification import random_guess, score
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.probes import ProbeSet
from identiscope.methods.tokens.sentences import Sentences
from identiscope.papers.brunner2020.tokens.setup import Fitted, Setup, input_embeddings, probe_by_fold
from identiscope.results import make_result
from identiscope.tensor_files import read_json, read_tensors

FORMAT = "identiscope-probes-2"
# The format before counted the layers from 1.
OLD_FORMAT = "identiscope-probes-1"


def save_probes(fitted: Fitted, result: xr.Dataset, path: str | Path) -> Path:
    """Write the probes that `same_layer` fitted, with the provenance of its result."""
    tensors = {
        f"{name}/{key}": value.contiguous()
        for name, probes in fitted.items()
        if probes is not None
        for key, value in (
            probes.weights | {"epochs": probes.epochs, "rates": probes.rates, "validation": probes.validation}
        ).items()
    }
    if not tensors:
        raise InputError("there is nothing to save: the naive probe has no weights.")
    about = {"layers": [int(layer) for layer in result.layer.values], **result.attrs}
    return write_file(path, save(tensors, metadata={"format": FORMAT, "about": json.dumps(about)}))


def load_probes(path: str | Path) -> tuple[dict[str, ProbeSet], dict[str, Any]]:
    """Probes by name, and what they are of: model, text, layers, setup."""
    tensors, header = read_tensors(path, (FORMAT, OLD_FORMAT), "a file of probes", "pt")
    whole = printable(path)
    about = read_json(header.get("about", ""), whole)
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, part = key.partition("/")
        parts.setdefault(name, {})[part] = tensor
    needed = ("model", "model_name", "text", "layers", "setup")
    if (
        not isinstance(about, dict)
        or not about.keys() >= set(needed)
        or not _whole_numbers(about["layers"])
        or not parts
    ):
        raise InputError(f"{whole} is damaged: its header does not say {', '.join(needed)}, or it has no probes.")
    if header["format"] == OLD_FORMAT:
        about["layers"] = [layer - 1 for layer in about["layers"]]
    return {name: _probe_set(whole, name, part) for name, part in parts.items()}, about


def _whole_numbers(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, int) for one in given)


def _probe_set(whole: str, name: str, tensors: dict[str, torch.Tensor]) -> ProbeSet:
    kind, _, loss = name.partition(" ")
    if kind not in ("linear", "mlp") or loss not in ("cosine", "l2"):
        raise InputError(f"{whole} holds probes named {name!r}; expected linear or mlp, with cosine or l2.")
    missing = {"epochs", "rates", "validation"} - tensors.keys()
    if missing:
        raise InputError(f"{whole} is damaged: its probes {name!r} have no {', '.join(sorted(missing))}.")
    about = {key: tensors.pop(key) for key in ("epochs", "rates", "validation")}
    return ProbeSet("linear" if kind == "linear" else "mlp", "l2" if loss == "l2" else "cosine", tensors, **about)


def score_new_text(
    cache: HiddenStates, probes: Mapping[str, ProbeSet], about: Mapping[str, Any], *, resamples: int = 1000
) -> xr.Dataset:
    """Rates of saved probes on text they have not seen: the mean over the folds' probes of every layer.

    The text must come from the model the probes were fitted to.
    """
    if cache.manifest["model"] != about["model"]:
        raise InputError(
            f"the probes were fitted to {about['model_name']}, and the hidden states are of another model"
            f" ({cache.manifest['model_name']}); fit probes to it, or give the model they belong to."
        )
    layers = [int(layer) for layer in about["layers"]]
    sentences = Sentences(cache.lengths)
    setup = Setup(inputs=about["setup"]["inputs"])
    pairs = Pairs([cache.layer(layer) for layer in layers], [input_embeddings(cache, setup)], sentences)
    rates = torch.zeros(3, len(probes), len(layers), dtype=torch.float64)
    for number, probe_set in enumerate(probes.values()):
        everything = [torch.arange(sentences.count)] * probe_set.epochs.shape[1]
        for index, hidden in enumerate(pairs.states):
            scored = score(probe_by_fold(probe_set, index), hidden, pairs, index, everything, resamples=resamples)
            bounds = [scored.rate, scored.interval.low, scored.interval.high]
            rates[:, number, index] = torch.tensor(bounds, dtype=torch.float64)
    return make_result(
        "token_identifiability_new_text",
        {name: (("probe", "layer"), values) for name, values in zip(("rate", "low", "high"), rates, strict=True)}
        | {"random_guess": (("layer",), [random_guess(pairs.targets[0], sentences.lengths)] * len(layers))},
        coordinates={"probe": list(probes), "layer": layers},
        provenance={key: cache.manifest[key] for key in ("model_name", "model", "text", "texts")}
        | {"fitted_on": about["text"], "inputs": setup.inputs},
    )
