"""Hidden states of a corpus, captured once and memory-mapped: one array a layer, and a manifest that says of what.

A cache is a directory: `layer_00.npy` (the input embeddings), `layer_01.npy` (what block 0 wrote), … each
[token, channel];
`embedding_sum.npy` where the model puts a norm after the sum of its embeddings; `tokens.json`; `manifest.json`,
written last, so that an interrupted capture is not mistaken for a whole one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from identiscope.capture.batch import Labels
from identiscope.capture.digests import model_hash, tokenizer_hash
from identiscope.capture.forward import forward
from identiscope.capture.inputs import encode
from identiscope.capture.models import Model
from identiscope.capture.norms import EmbeddingNorms
from identiscope.capture.padding import pads_well
from identiscope.capture.twin import twin
from identiscope.corpus.readers import Text, token_tags
from identiscope.errors import CaptureError, InputError
from identiscope.files import ASIDE, make_directory, saying, write_file
from identiscope.json_shapes import ANYTHING, COUNT, TEXT, TRUTH, check_shape
from identiscope.progress import Progress, tell
from identiscope.version import __version__

FORMAT = "identiscope-hidden-states-1"
_STREAMS = ("encoder", "tokens", "text")


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """A cache on disk. Arrays are read as they are used."""

    directory: Path
    manifest: dict[str, Any]

    @property
    def layers(self) -> int:
        """How many layers (blocks); the input embeddings are none."""
        return int(self.manifest["layers"])

    def layer(self, number: int) -> Tensor:
        """Hidden states [token, channel] that a layer wrote, from 0."""
        if not 0 <= number < self.layers:
            raise InputError(f"layer {number} was asked for; {self.directory} has layers 0 to {self.layers - 1}.")
        return self._array(f"layer_{number + 1:02d}.npy")

    @property
    def embeddings(self) -> Tensor:
        """What the first layer reads, [token, channel]."""
        return self._array("layer_00.npy")

    @property
    def states(self) -> list[Tensor]:
        """The hidden states of all layers, without the input embeddings."""
        return [self.layer(number) for number in range(self.layers)]

    @property
    def embedding_sum(self) -> Tensor:
        """The sum of token, segment and position embeddings before the norm that follows it, if one does."""
        return self._array("embedding_sum.npy") if self.manifest["embedding_norm"] else self.embeddings

    @cached_property
    def _labels(self) -> dict[str, Any]:
        path = self.directory / "tokens.json"
        labels: dict[str, Any] = _read(path, _LABELS)
        rows = self.manifest["tokens"]
        if any(count != rows for count in (sum(labels["lengths"]), *(len(labels[name]) for name in _OF_TOKENS))):
            raise InputError(f"{path} is damaged: it is not of {rows} tokens. Remove the directory and capture again.")
        return labels

    @property
    def lengths(self) -> Tensor:
        """Tokens of each text."""
        return torch.tensor(self._labels["lengths"])

    @property
    def tokens(self) -> list[str]:
        """The tokens of all texts, one after the other."""
        return list(self._labels["tokens"])

    @property
    def tokens_by_text(self) -> list[tuple[str, ...]]:
        """The tokens of each text."""
        every = iter(self.tokens)
        return [tuple(islice(every, length)) for length in self._labels["lengths"]]

    @property
    def special(self) -> Tensor:
        """Which tokens are special, such as [CLS]."""
        return torch.tensor(self._labels["special"], dtype=torch.bool)

    @property
    def tags(self) -> list[str | None]:
        """The tag of each token's word; None where the corpus has none."""
        return list(self._labels["tags"])

    def _array(self, name: str) -> Tensor:
        # Copy-on-write: torch asks for writable memory, and what is on disk stays as it is.
        try:
            return torch.from_numpy(np.load(self.directory / name, mmap_mode="c"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.directory / name} is missing or damaged: {error}. Remove the directory and capture again."
            ) from error


def capture_hidden_states(
    model: Model,
    texts: Sequence[Text],
    directory: str | Path,
    *,
    batch_size: int = 8,
    truncate: bool = False,
    progress: Progress | None = None,
) -> HiddenStates:
    """The hidden states of the texts: from the directory if they are there, else captured into it.

    A directory that holds states of another model, tokenizer, text or option is refused, never overwritten.
    """
    directory = Path(directory)
    wanted = _identity(model, texts, truncate)
    if (directory / "manifest.json").is_file():
        kept = open_hidden_states(directory)
        differing = [name for name, value in wanted.items() if kept.manifest.get(name) != value]
        if differing:
            raise InputError(
                f"{directory} holds hidden states of another {', '.join(_SPOKEN[name] for name in differing)}"
                f" ({kept.manifest['model_name']}, {kept.manifest['texts']} texts). Name another directory, or remove"
                " this one."
            )
        return kept
    if batch_size > 1 and not pads_well(model):
        batch_size = 1
    make_directory(directory)
    if any(path.name != "tokens.json" and not path.name.endswith(".npy") for path in _kept(directory)):
        raise InputError(f"{directory} holds other files; name an empty directory for hidden states.")
    with saying(directory), _Writer(directory) as writer:
        for begin in range(0, len(texts), batch_size):
            part = texts[begin : begin + batch_size]
            _capture(model, part, truncate, writer)
            tell(progress, "capturing hidden states", min(begin + batch_size, len(texts)), len(texts))
    counts = {"layers": writer.layers - 1, "width": writer.width, "tokens": writer.rows, "cut": writer.cut}
    write_file(directory / "tokens.json", json.dumps(writer.labels).encode())
    manifest = wanted | counts | {
        "embedding_norm": "embedding_sum" in writer.files, "model_name": model.name, "version": __version__,
    }  # fmt: skip
    write_file(directory / "manifest.json", json.dumps(manifest, indent=1).encode())
    return HiddenStates(directory, manifest)


def _kept(directory: Path) -> list[Path]:
    """What is in a directory but for what a killed process left unfinished."""
    return [path for path in directory.iterdir() if not path.name.startswith(ASIDE)]


def open_hidden_states(directory: str | Path) -> HiddenStates:
    """A cache that `capture_hidden_states` wrote."""
    path = Path(directory) / "manifest.json"
    if not path.is_file():
        raise InputError(
            f"{directory} has no manifest.json: it is no cache of hidden states, or its capture did not end."
        )
    manifest = _read(path, _COUNTS, FORMAT)
    return HiddenStates(Path(directory), manifest)


#: What must be in a manifest, and in the labels of the tokens; more may be.
_COUNTS = {
    "texts": COUNT, "layers": COUNT, "width": COUNT, "tokens": COUNT, "cut": COUNT, "embedding_norm": ANYTHING,
    "model_name": TEXT,
}  # fmt: skip
_LABELS = {"lengths": [COUNT], "tokens": [TEXT], "special": [TRUTH], "tags": [ANYTHING]}
_OF_TOKENS = ("tokens", "special", "tags")


def _read(path: Path, shape: Mapping[str, Any], kind: str | None = None) -> dict[str, Any]:
    """A JSON object of a cache, whatever the bytes are. kind: the format that it must name."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if kind is not None and (not isinstance(content, dict) or content.get("format") != kind):
            raise InputError(f"{path} is not the manifest of a cache of hidden states ({kind}).")
        check_shape({name: content[name] for name in shape if name in content}, dict(shape))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is missing or damaged: {error}. Remove the directory and capture again.") from error
    return dict(content)


_SPOKEN = {
    "format": "format", "model": "model", "tokenizer": "tokenizer", "text": "text", "texts": "number of texts",
    "truncate": "choice of truncation",
}  # fmt: skip


def _identity(model: Model, texts: Sequence[Text], truncate: bool) -> dict[str, Any]:
    if not texts:
        raise InputError("no texts were given; hidden states need at least one.")
    read = hashlib.sha256()
    for text in texts:
        read.update(json.dumps([text.parts, [vars(word) for word in text.words]]).encode())
    return {
        "format": FORMAT, "model": model_hash(model), "tokenizer": tokenizer_hash(model), "text": read.hexdigest(),
        "texts": len(texts), "truncate": truncate,
    }  # fmt: skip


class _Writer:
    """Appends rows to one .npy file a layer; the number of rows goes into their headers at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: dict[str, tuple[BinaryIO, np.dtype[Any]]] = {}
        self.labels: dict[str, list[Any]] = {"lengths": [], "tokens": [], "special": [], "tags": []}
        self.rows = self.layers = self.width = self.cut = 0

    def __enter__(self) -> "_Writer":
        return self

    def add(self, name: str, values: Tensor) -> None:
        wide = values if values.dtype in (torch.float32, torch.float64) else values.float()
        array = wide.cpu().contiguous().numpy()
        if name not in self.files:
            self.files[name] = ((self.directory / f"{name}.npy").open("wb"), array.dtype)
            _header(*self.files[name], 0, array.shape[1])
        self.files[name][0].write(array.data)
        self.width = array.shape[1]

    def __exit__(self, kind: object, *exception: object) -> None:
        whole = False
        try:
            for file, dtype in self.files.values() if kind is None else ():
                file.seek(0)
                _header(file, dtype, self.rows, self.width)
                file.close()
            whole = kind is None
        finally:
            if not whole:
                self._remove()

    def _remove(self) -> None:
        """Leave nothing: what did not come to its end is of no use, and may be what filled the disk."""
        for name, (file, _) in self.files.items():
            with suppress(OSError):
                file.close()
            (self.directory / f"{name}.npy").unlink(missing_ok=True)


def _header(file: BinaryIO, dtype: np.dtype[Any], rows: int, width: int) -> None:
    # NumPy pads the header so that the first axis may grow in place.
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(file, described)


def _capture(model: Model, texts: Sequence[Text], truncate: bool, writer: _Writer) -> None:
    batch = encode(model, [text.given for text in texts], targets=[None] * len(texts), truncate=truncate)
    running = twin(model)
    with torch.no_grad(), EmbeddingNorms(running.module) as norms:
        states = forward(running, batch.arguments).hidden_states
    stream = next((name for name in _STREAMS if name in states and name in batch.labels[0]), None)
    if stream is None:
        raise CaptureError(f"{model.name} shows no hidden states of a text; it has {sorted(states) or 'none'}.")
    layers = states[stream]
    norm = norms.of(layers)
    for number, text in enumerate(texts):
        labels: Labels = batch.labels[number][stream]
        places = torch.tensor(labels.positions)
        for layer, state in enumerate(layers):
            writer.add(f"layer_{layer:02d}", state[number, places])
        if norm:
            writer.add("embedding_sum", norm[1][number, places])
        writer.layers = len(layers)
        writer.rows += len(places)
        writer.cut += labels.cut
        writer.labels["lengths"].append(len(places))
        writer.labels["tokens"] += labels.tokens
        writer.labels["special"] += labels.special
        writer.labels["tags"] += token_tags(text, labels.offsets, labels.special)
