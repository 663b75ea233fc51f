"""Load a model: by built-in name, directory, hub id, or as it already is in memory."""

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.utils import logging as transformers_logging

from identiscope.capture.builtin import BUILTIN, locate
from identiscope.capture.gguf_files import read_once
from identiscope.capture.half_precision import check_half_precision
from identiscope.capture.hub import unreachable
from identiscope.capture.placement import (
    check_dtype,
    check_in_memory,
    find_analysis_device,
    find_device,
    find_dtype,
    move,
)
from identiscope.capture.sizes import check_size
from identiscope.capture.words import as_html, precision_in_words
from identiscope.errors import ModelError
from identiscope.linalg.devices import working_device
from identiscope.linalg.free_memory import free_memory, in_words, is_out_of_memory

_LOADING = threading.RLock()
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges.txt", "spiece.model", "sentencepiece*", "*.spm", "*.tiktoken")
_WEIGHT_FILES = ("*.safetensors", "*.bin", "*.gguf", "*.safetensors.index.json", "*.bin.index.json")


@dataclass(frozen=True, eq=False)
class Model:
    """A model ready to be traced: the module as loaded, its tokenizer if it reads text, and its name.

    analysis_device: where what it computed is worked on, if that is not where it was computed.
    """

    module: nn.Module
    tokenizer: Any
    name: str
    analysis_device: torch.device | None = field(default=None, kw_only=True)

    @property
    def inner(self) -> nn.Module:
        """The model itself, where peft has put something around it; it is the outer one that runs."""
        return unwrapped(self.module)

    @property
    def config(self) -> Any:
        """transformers' configuration; None for a plain PyTorch module."""
        return getattr(self.inner, "config", None)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first floating-point weight."""
        weights = (parameter for parameter in self.module.parameters() if parameter.is_floating_point())
        return next((weight.dtype for weight in weights), torch.get_default_dtype())

    @property
    def device(self) -> torch.device:
        """Where the first weight is."""
        return next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))

    def home(self, device: torch.device) -> torch.device:
        """Where to work on what the model computed on a device."""
        return working_device(device) if self.analysis_device is None else self.analysis_device

    @property
    def is_transformers(self) -> bool:
        """Whether this is one of transformers' models, rather than a plain PyTorch module."""
        return isinstance(self.inner, transformers.PreTrainedModel)

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
        size = f"{parameters / 1e6:.1f} M parameters" if parameters >= 1e5 else f"{parameters} parameters"
        places = sorted({str(parameter.device) for parameter in self.module.parameters()})
        where = "" if places in ([], ["cpu"]) else f", {' and '.join(places)}"
        where += "" if self.analysis_device is None else f", analysed on {self.analysis_device}"
        text = "" if self.tokenizer is not None else ", no tokenizer"
        kind = type(self.module).__name__
        return f"Model({self.name!r}, {kind}, {size}, {precision_in_words(self.dtype)}{where}{text})"

    def _repr_html_(self) -> str:
        return as_html(repr(self))


def load(
    model: "str | Path | nn.Module | Model" = "minilm",
    tokenizer: Any = None,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    analysis_device: str | torch.device | None = None,
    attn_implementation: str | None = None,
) -> Model:
    """A model to be traced.

    >>> load()                                       # the built-in `minilm`
    >>> load("./my-checkpoint")                      # a directory
    >>> load("bert-base-uncased", revision="main")   # an id on the hub
    >>> load(model, tokenizer)                       # already in memory; it is left as it was found
    >>> load(torch.nn.TransformerEncoder(...))       # plain PyTorch
    >>> load("minilm", device="cuda:1")              # "auto": CUDA, or else Apple's mps, or else the CPU

    Weights are read as safetensors, or as a pickle that holds tensors alone; code in a checkpoint is run
    only with `trust_remote_code=True`. dtype: such as "float16"; as saved by default. A model is loaded to the CPU
    unless a device is given; one in memory stays where it is, be it on several devices. What it computes is worked on
    where it was computed, or on the analysis_device, such as "cpu".
    """
    if isinstance(tokenizer, (str, Path)):
        raise ModelError(
            f"tokenizer={tokenizer!r} is a name; pass the tokenizer itself (AutoTokenizer.from_pretrained)."
        )
    given = {"revision": revision, "dtype": dtype, "device": device, "attn_implementation": attn_implementation}
    unused = [name for name, value in given.items() if value is not None] + ["trust_remote_code"] * trust_remote_code
    if isinstance(model, (Model, nn.Module)) and unused:
        raise ModelError(f"{', '.join(unused)} cannot be set for a model that is already in memory.")
    home = None if analysis_device is None else find_analysis_device(analysis_device)
    if isinstance(model, Model):
        changes = {"tokenizer": tokenizer, "analysis_device": home}
        changes = {name: value for name, value in changes.items() if value is not None}
        return replace(model, **changes) if changes else model
    if isinstance(model, nn.Module):
        # What torch.compile returns is a wrapper; the model inside is the one that has attention to watch.
        model = getattr(model, "_orig_mod", model)
        _check_adapters(model)
        loaded = Model(model, tokenizer, "")
        name = str(getattr(loaded.config, "_name_or_path", "") or type(loaded.inner).__name__)
        return _checked(Model(model, tokenizer, name, analysis_device=home))
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    no_hub: str | None = None
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
        if not _check_folder(source):
            _check_spelling(source)
            no_hub = unreachable()
    # A hub that does not answer would be asked for minutes; what is here of it has to do.
    options |= {"local_files_only": True} if no_hub else {}
    place = None if device is None else find_device(device)
    dtype = None if dtype is None else find_dtype(dtype)
    if dtype is not None:
        check_dtype(dtype, torch.device("cpu") if place is None else place)
    chosen = {"dtype": dtype, "attn_implementation": attn_implementation}
    loading = options | {key: value for key, value in chosen.items() if value is not None}
    with quiet(), read_once() if "gguf_file" in options else nullcontext():
        module = _read_model(source, name, loading, no_hub)
        if tokenizer is None:
            tokenizer = _read_tokenizer(source, name, options)
    if place is not None:
        module = move(module, place, name)
    return _checked(Model(module.eval(), tokenizer, name, analysis_device=home))


def _check_spelling(name: str) -> None:
    """A name that is nearly that of a built-in model is not asked the hub for."""
    close = get_close_matches(name.lower(), BUILTIN, 1, cutoff=0.8)
    if close:
        raise ModelError(f"there is no model {name!r}; did you mean {close[0]}?")


def _check_folder(source: str) -> bool:
    """Whether this is a directory; say in words what is missing in it before transformers says it in its own."""
    folder = Path(source)
    try:
        is_file, is_folder = folder.is_file(), folder.is_dir()
    except OSError as error:
        raise ModelError(f"{source[:80]!r} names no model: {error.strerror}.") from error
    if is_file:
        raise ModelError(f"{source} is a file; give the directory that holds the model's config.json and weights.")
    if not is_folder:
        if source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source:
            raise ModelError(f"there is no directory {source}. Check the path, or give an id on the hub (owner/name).")
        return False
    if not (folder / "config.json").is_file():
        raise ModelError(f"{source} has no config.json; expected a directory written by `model.save_pretrained`.")
    if not any(next(folder.glob(pattern), None) for pattern in _WEIGHT_FILES):
        raise ModelError(
            f"{source} has a config.json but no weights; expected model.safetensors (or pytorch_model.bin)."
            " Save the model again with `model.save_pretrained`."
        )
    return True


def _read_model(source: str, name: str, options: dict[str, Any], no_hub: str | None) -> nn.Module:
    try:
        config_options = {key: value for key, value in options.items() if key != "dtype"}
        config = transformers.AutoConfig.from_pretrained(source, **config_options)
        # The class the checkpoint was saved from keeps its head, so that there are logits to compare.
        architecture = (getattr(config, "architectures", None) or [""])[0]
        known: Any = getattr(transformers, str(architecture), None)
        if not (isinstance(known, type) and issubclass(known, transformers.PreTrainedModel)):
            known = transformers.AutoModelForCausalLM if options.get("gguf_file") else transformers.AutoModel
        if options.get("gguf_file"):
            # Or it would be made of the file once more, which takes seconds.
            options = options | {"config": config}
        if not options.get("gguf_file") and not options.get("trust_remote_code"):
            check_size(config, known, source, name, options.get("dtype"))
        # A mapping of states, never a pickle that runs code.
        module, report = known.from_pretrained(source, weights_only=True, output_loading_info=True, **options)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"the weights of {name} are damaged, or a pickle that holds more than tensors, and loading that could run"
            " code. They are not loaded. Ask their author for safetensors."
        ) from error
    except ModelError:
        raise
    except Exception as error:  # transformers and the parsers below it raise nearly every kind
        if is_out_of_memory(error):
            free = free_memory()
            there = "" if free is None else f", where {in_words(free)} are free now"
            raise ModelError(
                f"loading {name} needs more memory than there is on cpu{there}. It said: {_first_lines(error)[:200]}"
                " Give dtype='float16', a smaller model, or end what else is running."
            ) from error
        if no_hub is not None:
            raise ModelError(
                f"there is no directory {name!r}, no built-in model of that name ({', '.join(BUILTIN)}), and nothing of"
                f" it in the local cache of the hub. {no_hub}."
            ) from error
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


def _read_tokenizer(source: str, name: str, options: dict[str, Any]) -> Any:
    """The tokenizer, or None: a vision model has none, and ids can be given without one.

    Without its files transformers would make up an empty one for some families.
    """
    folder = Path(source)
    has_files = folder.is_dir() and any(next(folder.glob(pattern), None) for pattern in _TOKENIZER_FILES)
    if folder.is_dir() and "gguf_file" not in options and not has_files:
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:  # transformers and the parsers below it raise nearly every kind
        if not has_files or "gguf_file" in options:
            return None
        if not _has_vocabulary(folder):
            raise ModelError(
                f"the tokenizer of {name} is not whole: there is a tokenizer_config.json, but no tokenizer.json, nor a"
                " vocabulary that it could be made of. Save it again, or give one: load(model, tokenizer)."
            ) from error
        raise ModelError(
            f"the tokenizer of {name} is there, and damaged or not of a kind that can be read here. transformers said:"
            f" {_first_lines(error)[:300]} Save it again, or give one: load(model, tokenizer)."
        ) from error


def _has_vocabulary(folder: Path) -> bool:
    """Whether a directory has more of a tokenizer than its settings."""
    files = (path.name for pattern in _TOKENIZER_FILES for path in folder.glob(pattern))
    return any(name != "tokenizer_config.json" for name in files)


def _first_lines(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]) or type(error).__name__


def _is_peft(module: nn.Module) -> bool:
    return type(module).__module__.startswith("peft.") and hasattr(module, "get_base_model")


def unwrapped(module: nn.Module) -> nn.Module:
    """The model inside what peft puts around one that has adapters; any other as it is."""
    inner: Any = module
    return inner.get_base_model() if _is_peft(module) else inner  # type: ignore[no-any-return]


def _check_adapters(module: nn.Module) -> None:
    """Refuse adapters that put positions into a text that are no tokens of it."""
    if not _is_peft(module):
        return
    for name, config in getattr(module, "peft_config", {}).items():
        if getattr(config, "is_prompt_learning", False):
            raise ModelError(
                f"the adapter {name!r} ({type(config).__name__}) adds virtual tokens to every text, which no trace can"
                " name; give the model without it (`model.get_base_model()`)."
            )


def _checked(model: Model) -> Model:
    """Refuse weights that cannot give a number."""
    check_in_memory(model.module, model.name)
    dtypes = {weight.dtype for weight in model.module.parameters() if weight.device.type == "cpu"}
    if dtypes and torch.is_autocast_enabled("cpu"):
        dtypes.add(torch.get_autocast_dtype("cpu"))
    check_half_precision(dtypes, model.name)
    for name, parameter in model.module.named_parameters():
        # A sum is not finite if a term is not, and far cheaper than looking at each; it may be too large, though.
        if not parameter.is_floating_point():
            continue
        weight = parameter.detach()
        weight = weight.float() if weight.dtype.itemsize == 1 else weight  # which torch cannot add up
        if bool(torch.isfinite(weight.sum(dtype=_summed(weight)))):
            continue
        if not bool(torch.isfinite(weight).all()):
            raise ModelError(
                f"the weight {name} of {model.name} has NaN or infinite entries; nothing computed with it means"
                " anything. Load the checkpoint again, or in a wider dtype."
            )
    return model


def _summed(parameter: torch.Tensor) -> torch.dtype:
    """What a weight is added up in: float16 would overflow, and eight bits are promoted to nothing."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


@contextmanager
def quiet() -> Iterator[None]:
    """transformers' bars and notes are not ours to print; both are set back as they were.

    One thread at a time: two that set back what the other has set would leave neither's.
    """
    with _LOADING:
        yield from _quietly()


def _quietly() -> Iterator[None]:
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
