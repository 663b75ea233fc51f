"""Rewrite a model: other weights, the same function, verified."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.models import Model, load, quiet
from identiscope.capture.rewriting import attention, feed_forward, residual
from identiscope.capture.rewriting.anatomy import Anatomy, anatomy
from identiscope.capture.rewriting.verification import LIMITS, check, largest_change, outputs, sample_batches
from identiscope.errors import InputError, ModelError

#: The ways to write the same function, each with what it does to a model.
REWRITINGS: Mapping[str, Callable[[Anatomy, torch.Generator], None]] = {
    "value_output": attention.value_output,
    "value_bias": attention.value_bias,
    "query_key": attention.query_key,
    "key_bias": attention.key_bias,
    "head_order": attention.head_order,
    "feed_forward": feed_forward.feed_forward,
    "residual_rotation": residual.residual_rotation,
    "residual_permutation": residual.residual_permutation,
}


@dataclass(frozen=True, eq=False, repr=False)
class Rewritten(Model):
    """A model that computes what another one does, by other weights; `module` is transformers' own, and can be saved.

    how and seed: how it was made. heads [layer, head]: which head of the original stands in each place. order and sign
    [model]: where the coordinates of the stream come from, and with which sign. change: max|Δ logits| ÷ max|logits|
    against the original, in the model's precision; change_in_float64: the same with every step in float64.
    """

    how: tuple[str, ...]
    seed: int
    heads: Tensor
    order: Tensor
    sign: Tensor
    change: float
    change_in_float64: float

    def save_pretrained(self, folder: str | Path) -> None:
        """Write weights, configuration and tokenizer as transformers does: `from_pretrained` reads them again.

        Beside them `rewriting.json` says what was done, and where heads and coordinates of states come from.
        """
        module: Any = self.module
        with quiet():
            module.save_pretrained(folder)
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(folder)
        said = {name: getattr(self, name).tolist() for name in ("heads", "order", "sign")}
        said |= {"how": list(self.how), "seed": self.seed}
        (Path(folder) / "rewriting.json").write_text(json.dumps(said) + "\n", encoding="utf-8")

    def states(self, rewritten: Tensor) -> Tensor:
        """Hidden states [..., model] of the rewritten model in the coordinates of the original; of a rotation they
        stay as they are."""
        undone = torch.empty_like(rewritten)
        undone[..., self.order.to(rewritten.device)] = rewritten * self.sign.to(rewritten)
        return undone


def rewrite(model: Any, how: str | Sequence[str], seed: int = 0, *, texts: Sequence[Any] | None = None) -> Rewritten:
    """The same function with other weights: a real Hugging Face model, which can be saved; the given one stays.

    >>> other = identiscope.rewrite("minilm", "value_bias")
    >>> other.change_in_float64 < 1e-10
    True
    >>> other.save_pretrained("minilm-rewritten")

    how: one of these, or several, taken one after the other. What a family does not allow is refused, saying why.

    - `value_output`: values times a matrix, the output projection times its inverse; one for each group of heads;
    - `value_bias`: a constant added to the values, and taken off the output's bias;
    - `query_key`: queries times a matrix, keys times its inverse transposed; with rotary positions a turn and a scale
      for each frequency, behind norms of queries and keys a scale between their gains;
    - `key_bias`: any other bias of keys;
    - `head_order`: heads in another order;
    - `feed_forward`: units in another order, at another scale where they are gated or ReLU;
    - `residual_rotation`: the stream in turned coordinates, gains folded into what reads them, embeddings untied;
    - `residual_permutation`: the stream's coordinates in another order, with other signs.

    seed: of what is drawn; matrices have a condition of at most 10. texts: what both models are run on, by default
    samples. What they return may differ by 1e-4 of its largest in float32, and by 1e-10 where every step is taken in
    float64; otherwise the rewriting is refused.
    """
    loaded, names = load(model), names_of(how)
    _check_model(loaded)
    batches = sample_batches(loaded, texts)
    wide, made = _wide_copy(loaded)
    before = outputs(wide, batches, in_float64=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in names:
            REWRITINGS[name](made, generator)
    exact = largest_change(before, _undone(made, outputs(wide, batches, in_float64=True)))
    check(loaded.name, names, exact, torch.float64)
    _as_it_was(wide.module, loaded)
    change = largest_change(outputs(loaded, batches), _undone(made, outputs(wide, batches)))
    # Families that take norms in float32 are no more exact than that, whatever their weights are.
    check(loaded.name, names, change, torch.float32)
    return Rewritten(
        wide.module, loaded.tokenizer, loaded.name, names, seed, made.heads, made.order, made.sign, change, exact,
        analysis_device=loaded.analysis_device,
    )  # fmt: skip


def openings(model: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    """The rewritings that are open to a model, and why the others are not. Each is tried on a copy; nothing is run."""
    loaded = load(model)
    _check_model(loaded)
    _, made = _wide_copy(loaded)
    refused: dict[str, str] = {}
    with torch.no_grad():
        for name, function in REWRITINGS.items():
            try:
                function(made, torch.Generator().manual_seed(0))
            except ModelError as error:
                refused[name] = str(error)
    return tuple(name for name in REWRITINGS if name not in refused), refused


def _wide_copy(loaded: Model) -> tuple[Model, Anatomy]:
    module: Any = copy.deepcopy(loaded.module).to("cpu", torch.float64).eval()
    if getattr(module, "hf_quantizer", None) is not None:
        # Weights that a file had packed are plain numbers here; transformers would not save them otherwise.
        module.hf_quantizer.remove_quantization_config(module)
    return Model(module, loaded.tokenizer, loaded.name), anatomy(module, loaded.name)


def _check_model(loaded: Model) -> None:
    if loaded.dtype not in LIMITS:
        raise ModelError(
            f"{loaded.name} is in {str(loaded.dtype).removeprefix('torch.')}, in which a rewriting cannot be told from"
            " a mistake; load it in float32 or float64 (dtype=…)."
        )
    if not loaded.is_transformers or loaded.module is not loaded.inner:
        raise ModelError(
            f"{loaded.name} is {type(loaded.module).__name__}; expected a model of transformers, adapters merged into"
            " its weights."
        )


def names_of(how: str | Sequence[str]) -> tuple[str, ...]:
    """The rewritings that are named, in their order."""
    given = how.split(",") if isinstance(how, str) else list(how)
    names = tuple(str(name).strip() for name in given)
    strange = [name for name in names if name not in REWRITINGS]
    if strange or not names:
        raise InputError(f"how={how!r} was given; expected one or several of {', '.join(REWRITINGS)}.")
    return names


def _undone(made: Anatomy, returned: list[Tensor]) -> list[Tensor]:
    """States that are returned as they are, with their coordinates put back; logits have none."""
    if made.readers() and made.module is not made.base:
        return returned
    undone = []
    for one in returned:
        own = torch.empty_like(one)
        own[..., made.order] = one * made.sign
        undone.append(own)
    return undone


def _as_it_was(module: nn.Module, loaded: Model) -> None:
    """Give every weight the precision and place that it had."""
    known = dict(loaded.module.named_parameters()) | dict(loaded.module.named_buffers())
    placed: dict[Tensor, Tensor] = {}
    for path, part in module.named_modules():
        for slots in (part._parameters, part._buffers):
            for name, tensor in slots.items():
                if tensor is None:
                    continue
                like = known.get(f"{path}.{name}" if path else name)
                if tensor not in placed:  # what is tied stays so
                    dtype, device = (loaded.dtype, loaded.device) if like is None else (like.dtype, like.device)
                    moved = tensor.data.to(device, dtype)
                    # Anew, since not every device lets a tensor of another have its numbers.
                    is_weight = isinstance(tensor, nn.Parameter)
                    placed[tensor] = nn.Parameter(moved, tensor.requires_grad) if is_weight else moved
                slots[name] = placed[tensor]
