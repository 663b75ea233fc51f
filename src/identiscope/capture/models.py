"""Load a model: by built-in name, directory, hub id, or as it already is in memory."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.utils import logging as transformers_logging

from identiscope.capture.builtin import BUILTIN, locate
from identiscope.errors import ModelError

_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges.txt", "spiece.model", "sentencepiece*", "*.spm", "*.tiktoken")
_WEIGHT_FILES = ("*.safetensors", "*.bin", "*.gguf", "*.safetensors.index.json", "*.bin.index.json")


@dataclass(frozen=True, eq=False)
class Model:
    """A model ready to be traced: the module as loaded, its tokenizer if it reads text, and its name."""

    module: nn.Module
    tokenizer: Any
    name: str

    @property
    def config(self) -> Any:
        """transformers' configuration; None for a plain PyTorch module."""
        return getattr(self.module, "config", None)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first floating-point weight."""
        weights = (parameter for parameter in self.module.parameters() if parameter.is_floating_point())
        return next((weight.dtype for weight in weights), torch.get_default_dtype())

    @property
    def device(self) -> torch.device:
        """Where the first weight is."""
        return next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))

    @property
    def is_transformers(self) -> bool:
        """Whether this is one of transformers' models, rather than a plain PyTorch module."""
        return isinstance(self.module, transformers.PreTrainedModel)

    @cached_property
    def position_offset(self) -> int | None:
        """How many entries at the start of the table of positions are never used; None in all but RoBERTa and its kin.

        These count positions from padding_idx + 1. Kept, since every text asks, and a walk over all modules answers.
        """
        for name, module in self.module.named_modules():
            index = getattr(module, "padding_idx", None)
            if name.endswith("embeddings.position_embeddings") and isinstance(index, int):
                return index + 1
        return None

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.module.parameters())
        return f"Model({self.name!r}, {type(self.module).__name__}, {parameters / 1e6:.1f} M parameters, {self.dtype})"


def load(
    model: "str | Path | nn.Module | Model" = "minilm",
    tokenizer: Any = None,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    dtype: torch.dtype | None = None,
    attn_implementation: str | None = None,
) -> Model:
    """A model to be traced.

    >>> load()                                       # the built-in `minilm`
    >>> load("./my-checkpoint")                      # a directory
    >>> load("bert-base-uncased", revision="main")   # an id on the hub
    >>> load(model, tokenizer)                       # already in memory; it is left as it was found
    >>> load(torch.nn.TransformerEncoder(...))       # plain PyTorch

    Weights are read as safetensors, or as a pickle that holds tensors alone; code in a checkpoint is run
    only with `trust_remote_code=True`.
    """
    if isinstance(tokenizer, (str, Path)):
        raise ModelError(
            f"tokenizer={tokenizer!r} is a name; pass the tokenizer itself (AutoTokenizer.from_pretrained)."
        )
    given = {"revision": revision, "dtype": dtype, "attn_implementation": attn_implementation}
    unused = [name for name, value in given.items() if value is not None] + ["trust_remote_code"] * trust_remote_code
    if isinstance(model, (Model, nn.Module)) and unused:
        raise ModelError(f"{', '.join(unused)} cannot be set for a model that is already in memory.")
    if isinstance(model, Model):
        return model if tokenizer is None else Model(model.module, tokenizer, model.name)
    if isinstance(model, nn.Module):
        # What torch.compile returns is a wrapper; the model inside is the one that has attention to watch.
        model = getattr(model, "_orig_mod", model)
        name = str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
        return _checked(Model(model, tokenizer, name))
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    if not isinstance(model, (str, Path)):
        raise ModelError(f"a model is a name, a directory, or a torch.nn.Module; given {type(model).__name__}.")
    if str(model) in BUILTIN:
        if revision is not None:
            raise ModelError(f"the built-in model {model} has no revisions.")
        folder, gguf = locate(str(model))
        name, source = str(model), str(folder)
        options = {"gguf_file": gguf} if gguf else {}
    else:
        name = source = str(model)
        _check_folder(source)
    chosen = {"dtype": dtype, "attn_implementation": attn_implementation}
    loading = options | {key: value for key, value in chosen.items() if value is not None}
    with _quiet():
        module = _read_model(source, name, loading)
        if tokenizer is None:
            tokenizer = _read_tokenizer(source, options)
    return _checked(Model(module.eval(), tokenizer, name))


def _check_folder(source: str) -> None:
    """Say in words what is missing before transformers says it in its own."""
    folder = Path(source)
    if folder.is_file():
        raise ModelError(f"{source} is a file; give the directory that holds the model's config.json and weights.")
    if not folder.is_dir():
        if source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source:
            raise ModelError(f"there is no directory {source}. Check the path, or give an id on the hub (owner/name).")
        return
    if not (folder / "config.json").is_file():
        raise ModelError(f"{source} has no config.json; expected a directory written by `model.save_pretrained`.")
    if not any(next(folder.glob(pattern), None) for pattern in _WEIGHT_FILES):
        raise ModelError(
            f"{source} has a config.json but no weights; expected model.safetensors (or pytorch_model.bin)."
            " Save the model again with `model.save_pretrained`."
        )


def _read_model(source: str, name: str, options: dict[str, Any]) -> nn.Module:
    try:
        config_options = {key: value for key, value in options.items() if key != "dtype"}
        config = transformers.AutoConfig.from_pretrained(source, **config_options)
        # The class the checkpoint was saved from keeps its head, so that there are logits to compare.
        architecture = (getattr(config, "architectures", None) or [""])[0]
        known: Any = getattr(transformers, str(architecture), None)
        if not (isinstance(known, type) and issubclass(known, transformers.PreTrainedModel)):
            known = transformers.AutoModelForCausalLM if options.get("gguf_file") else transformers.AutoModel
        # A mapping of states, never a pickle that runs code.
        module, report = known.from_pretrained(source, weights_only=True, output_loading_info=True, **options)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"the weights of {name} are damaged, or a pickle that holds more than tensors, and loading that could run"
            " code. They are not loaded. Ask their author for safetensors."
        ) from error
    except Exception as error:  # transformers and the parsers below it raise nearly every kind
        raise ModelError(
            f"cannot load {name!r} as a built-in name ({', '.join(BUILTIN)}), a directory or an id on the hub."
            f" transformers said: {_first_lines(error)}"
        ) from error
    # A pooler is often not saved, and nothing here reads it; any other weight that is not there would be random.
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    mismatched = sorted(str(key) for key in report["mismatched_keys"])
    if missing or mismatched:
        raise ModelError(
            f"{name} does not have all the weights of a {type(module).__name__}: {len(missing)} are missing"
            f" {missing[:5]}, {len(mismatched)} have another shape {mismatched[:5]}. They would be random: check"
            " config.json."
        )
    assert isinstance(module, nn.Module)
    return module


def _read_tokenizer(source: str, options: dict[str, Any]) -> Any:
    """The tokenizer, or None: a vision model has none, and ids can be given without one.

    Without its files transformers would make up an empty one for some families.
    """
    folder = Path(source)
    has_files = any(next(folder.glob(pattern), None) for pattern in _TOKENIZER_FILES)
    if folder.is_dir() and "gguf_file" not in options and not has_files:
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(source, **options)
    except Exception:  # transformers raises many kinds here, all of which mean: no tokenizer
        return None


def _first_lines(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]) or type(error).__name__


def _checked(model: Model) -> Model:
    """Refuse weights that cannot give a number."""
    for name, parameter in model.module.named_parameters():
        if parameter.is_floating_point() and not bool(torch.isfinite(parameter).all()):
            raise ModelError(
                f"the weight {name} of {model.name} has NaN or infinite entries; nothing computed with it means"
                " anything. Load the checkpoint again, or in a wider dtype."
            )
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers' bars and notes are not ours to print; both are set back as they were."""
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
