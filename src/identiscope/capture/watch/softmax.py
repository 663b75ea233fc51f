"""Attention that a module computes by hand: seen at its softmax and at the products around it.

A product, the softmax of a multiple of it, and a product with that are attention, wherever they stand. A family needs a
line in `FAMILIES` only if it adds a position bias to the logits: then the factor on query·key cannot be told from them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.watch.calls import Call, Watcher
from identiscope.capture.watch.frames import Frame
from identiscope.capture.watch.functions import arguments, matmul
from identiscope.capture.watch.kernel import MASKED_BELOW, Bias, same_numbers
from identiscope.errors import CaptureError
from identiscope.linalg.agreement import TOLERANCES, explained_by, relative_error
from identiscope.linalg.devices import wide

# The factor on query·key of families that add a position bias. Key: the family's folder in transformers, and the class
# whose forward holds the softmax.
FAMILIES: Mapping[str, Callable[[Any], float]] = {
    "bloom.BloomAttention": lambda module: float(module.inv_norm_factor),
    "cpmant.CpmAntAttention": lambda module: float(module.dim_head**-0.5),
    # The factor is already in the key or the query when they are multiplied.
    "deberta.DisentangledSelfAttention": lambda module: 1.0,
    "deberta_v2.DisentangledSelfAttention": lambda module: 1.0,
    "funnel.FunnelRelMultiheadAttention": lambda module: 1.0,
    "layoutlmv3.LayoutLMv3SelfAttention": lambda module: 1.0,
    "sew_d.DisentangledSelfAttention": lambda module: 1.0,
    "mpnet.MPNetSelfAttention": lambda module: float(module.attention_head_size**-0.5),
    "mpt.MptAttention": lambda module: float(module.softmax_scale),
    "xlnet.XLNetRelativeAttention": lambda module: float(module.scale),
}
# Query rows on which the factor on query·key is found.
FITTED_ROWS = 32
# What modules call their number of heads, where head and text share an axis.
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")


@dataclass
class _Scores:
    """What a module has multiplied since it began, or since it last attended.

    again: the logits are those of the call just seen, computed anew, as to show the map that a kernel does not return.
    """

    products: list[tuple[Tensor, Tensor, int]] = field(default_factory=list)
    query: Tensor | None = None
    key: Tensor | None = None
    logits: Tensor | None = None
    weights: Tensor | None = None
    again: bool = False


def family_key(module: nn.Module) -> str:
    """The key of a module in `FAMILIES`."""
    return f"{type(module).__module__.rpartition('.modeling_')[2]}.{type(module).__name__}"


def _frame(watcher: Watcher) -> Frame | None:
    """The running module that multiplies: the one called attention, or else the innermost that is not torch's own."""
    if watcher.inside_kernel:
        return None
    attending = next((frame for frame in reversed(watcher.frames) if frame.attends), None)
    own = (frame for frame in reversed(watcher.frames) if not type(frame.module).__module__.startswith("torch.nn."))
    frame = attending or next(own, None)
    if frame is not None and frame.scores is None:
        frame.scores = _Scores()
    return frame


def _softmax(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    weights = func(*args, **kwargs)
    frame = _frame(watcher)
    if frame is None:
        return weights
    scores = frame.scores
    logits, dim = arguments(args, kwargs, ("input", "dim"))
    product = next(((left, right) for left, right, size in scores.products if size == weights.numel()), None)
    scores.again = product is not None and watcher.just_attended(*product)
    # An adapter inside, such as one that mixes vectors by a softmax, does not attend.
    frame.softmaxes += not scores.again and not (product is None and _is_foreign(watcher))
    if product is None or weights.dim() not in (3, 4) or dim not in (-1, weights.dim() - 1):
        return weights
    heads = weights.shape[1] if weights.dim() == 4 else _head_count(frame.module, weights.shape[0])
    if watcher.rule is not None:
        if watcher.rule.context is not None:
            raise CaptureError(f"{frame} computes its attention by hand, which cannot be done by another rule.")
        by_head = weights.view(-1, heads, *weights.shape[-2:])
        weights = watcher.rule.maps(watcher.count, wide(by_head)).to(weights).view(weights.shape)
    changes = watcher.changed(watcher.count)
    if changes:
        weights = weights.clone()
        by_head = weights.view(-1, heads, *weights.shape[-2:])
        for head, change in changes.items():
            before = wide(by_head[:, head])
            after = change(before).double()
            if watcher.whole:
                by_head[:, head] = after.to(weights)
            else:
                by_head[:, head] += (after - before).to(weights)
    shape = (-1, heads, *weights.shape[-2:])
    scores.query = product[0].reshape(*shape[:3], product[0].shape[-1])
    scores.key = product[1].transpose(-1, -2).reshape(-1, heads, shape[3], product[1].shape[-2])
    scores.logits, scores.weights = logits.reshape(shape), weights.reshape(shape)
    return weights


def _is_foreign(watcher: Watcher) -> bool:
    """Whether what runs now is code of another package than the model: what was put around one of its parts."""
    return type(watcher.frames[-1].module).__module__.partition(".")[0] not in watcher.own


def _head_count(module: nn.Module, pieces: int) -> int:
    counts = (getattr(module, name, None) for name in _HEADS)
    return next((count for count in counts if isinstance(count, int) and count and pieces % count == 0), 1)


def _product(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    returned = matmul(watcher, func, args, kwargs)
    if func in (torch.baddbmm, Tensor.baddbmm):
        _, left, right = arguments(args, kwargs, ("input", "batch1", "batch2"))
    else:
        left, right = arguments(args, kwargs, ("input", "other" if func is not torch.bmm else "mat2"))
    _multiplied(watcher, left, right, returned)
    return returned


def _einsum(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    returned = func(*args, **kwargs)
    equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if isinstance(equation, str) and len(operands) == 2 and "." not in equation and "->" in equation:
        left, right, made = equation.replace(" ", "").replace("->", ",").split(",")
        summed = [letter for letter in left if letter in right and letter not in made]
        batch = [letter for letter in made if letter in left and letter in right]
        rows = [letter for letter in made if letter in left and letter not in right]
        columns = [letter for letter in made if letter in right and letter not in left]
        if not batch and summed and len(columns) == 1 and len({*left}) == len(left):
            # A linear layer whose weight has an axis of its own for the heads.
            given = _permuted(operands[0], left, rows + summed).flatten(len(rows))
            weight = _permuted(operands[1], right, summed + columns).flatten(0, -2)
            watcher.met_linear(given, weight.detach(), None, _permuted(returned, made, rows + columns))
        elif batch and len(summed) == len(rows) == len(columns) == 1:
            _multiplied(
                watcher,
                _permuted(operands[0], left, batch + rows + summed),
                _permuted(operands[1], right, batch + summed + columns),
                _permuted(returned, made, batch + rows + columns),
            )
    return returned


def _permuted(tensor: Tensor, letters: str, order: list[str]) -> Tensor:
    return tensor.permute([letters.index(letter) for letter in order])


def _multiplied(watcher: Watcher, left: Tensor, right: Tensor, returned: Tensor) -> None:
    frame = _frame(watcher) if left.dim() >= 3 and right.dim() >= 3 else None
    if frame is None:
        return
    frame.products += 1
    scores = frame.scores
    if scores.weights is None:
        scores.products.append((left, right, returned.numel()))
        return
    weights = scores.weights
    if left.numel() != weights.numel() or not same_numbers(left.reshape(weights.shape), weights.to(left.dtype)):
        return
    frame.scores = None  # a module may attend twice (XLNet's two streams): start anew
    if watcher.rule is not None:
        watcher.count += 1
        return
    watcher.began(_call(watcher, frame, scores, right, returned))


def _call(watcher: Watcher, frame: Frame, scores: _Scores, right: Tensor, returned: Tensor) -> Call:
    query, key, logits = scores.query, scores.key, scores.logits
    assert query is not None and key is not None and logits is not None
    batch, heads, queries, keys = logits.shape
    allowed = logits > MASKED_BELOW
    family = FAMILIES.get(family_key(frame.module))
    position, problem = None, None
    if family is not None:
        scale = family(frame.module)
        content = wide(query) @ wide(key).transpose(-1, -2) * scale
        position = torch.where(allowed, (wide(logits) - content).to(logits), 0.0)
    else:
        # Logits may be wider than the product that they were made of, as under autocast.
        precision = max((logits.dtype, query.dtype, key.dtype), key=lambda dtype: torch.finfo(dtype).eps)
        scale, error = _fitted_scale(query, key, logits, allowed, precision)
        if not explained_by(error, precision):
            problem = (
                f"its logits are no multiple of query·key (off by {error:.1e}): with a position bias, the factor cannot"
                " be seen and needs a line in `FAMILIES`"
            )
    return Call(
        name=frame.name,
        query=query,
        key=key,
        value=right.reshape(batch, heads, keys, -1),
        bias=Bias(watcher.shared(allowed), False, position),
        scale=scale,
        softcap=None,
        sinks=None,
        context=returned.reshape(batch, heads, queries, -1),
        causal=getattr(frame.module, "is_causal", None),
        problem=problem,
    )


def _fitted_scale(
    query: Tensor, key: Tensor, logits: Tensor, allowed: Tensor, precision: torch.dtype
) -> tuple[float, float]:
    """The factor that makes the logits of query·key, and how far off they are; on some rows, which tell as much.

    What is the same for a whole row, such as its maximum taken away beforehand, is no part of the map.
    """
    rows = torch.linspace(0, query.shape[-2] - 1, min(query.shape[-2], FITTED_ROWS), device=query.device).long()
    content = wide(query[..., rows, :]) @ wide(key).transpose(-1, -2)
    kept = allowed[..., rows, :].to(content.device)
    seen, wanted = (_centred(part, kept) for part in (content, wide(logits[..., rows, :])))
    if not bool(seen.any()):  # rows of one key
        seen, wanted = content[kept], wide(logits[..., rows, :])[kept]
    square = float(seen @ seen)
    scale = float(seen @ wanted) / square if square > 0 else 1.0
    for usual in (1.0, query.shape[-1] ** -0.5):
        if abs(scale / usual - 1) <= TOLERANCES[precision] / 10:
            scale = usual
    return scale, relative_error(seen * scale, wanted)


def _centred(cells: Tensor, kept: Tensor) -> Tensor:
    """The kept cells of [..., row, key], less the mean of those of their row."""
    kept = kept.expand_as(cells)
    cells = torch.where(kept, cells, 0.0)
    return (cells - cells.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1))[kept]


SOFTMAX_HANDLERS: Mapping[Any, Any] = {
    nn.functional.softmax: _softmax,
    torch.softmax: _softmax,
    Tensor.softmax: _softmax,
    torch.matmul: _product,
    Tensor.matmul: _product,
    Tensor.__matmul__: _product,
    torch.bmm: _product,
    Tensor.bmm: _product,
    torch.baddbmm: _product,
    Tensor.baddbmm: _product,
    torch.functional.einsum: _einsum,
    torch.einsum: _einsum,
}
