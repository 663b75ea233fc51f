"""The attention figures of Brunner et al. (2020): 1a, 1b, 1c, 5 and 6, on any model and texts.

Each function gives a result; `identiscope.plot(result, ax=…)` draws it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.analysis.attention import attention_maps
from identiscope.analysis.site_tensors import site_tensors
from identiscope.capture import Model, Stream, Trace, load, trace
from identiscope.errors import InputError
from identiscope.methods.effective import effective
from identiscope.results import make_result

Progress = Callable[[int, int], None]

CLS, SEP, POINT, OTHER = "[CLS]", "[SEP]", ". or ,", "other"
TYPES = (CLS, SEP, POINT, OTHER)


def correlation_by_length(
    model: Any, texts: Sequence[Any], *, truncate: bool = False, progress: Progress | None = None
) -> xr.Dataset:
    """Fig. 1a: Pearson correlation of raw and effective attention against the length of the text.

    Axes text, layer and head; `length` [text] in tokens. Not a number where a text is too short to vary.
    """
    loaded = load(model)
    lengths, rows = [], []
    for found in _traces(loaded, texts, truncate, progress):
        lengths.append(len(found.main))
        rows.append([_effective(site).correlation_with_raw().numpy() for site in _self_attention(found)])
    return make_result(
        "correlation_by_length",
        {"correlation": (("text", "layer", "head"), np.array(rows)), "length": (("text",), lengths)},
        provenance=_provenance(loaded, texts),
    )


def attention_between_types(
    model: Any, texts: Sequence[Any], *, truncate: bool = False, progress: Progress | None = None
) -> xr.Dataset:
    """Fig. 1b, 1c and 5: how much attention goes from one type of token to another, raw and effective.

    Axes layer, head, from and to. A value is the weight that a query of type `from` gives to all keys of type
    `to` together, averaged over such queries of all texts; `from` has `all` too, which is Fig. 1. Types are
    [CLS], [SEP] (the tokenizer's own, whatever they are called), full stop or comma, and other.

    >>> result = identiscope.attention_between_types(model, texts)
    >>> identiscope.plot(result, values="effective")        # Fig. 1c; "raw" is 1b
    >>> identiscope.plot(result, figure="separator")        # Fig. 5
    """
    loaded = load(model)
    sums: dict[str, Any] = {"raw": 0.0, "effective": 0.0}
    counts = torch.zeros(len(TYPES) + 1, dtype=torch.float64)
    for found in _traces(loaded, texts, truncate, progress):
        masks = token_types(loaded, found.main)
        froms = torch.cat([torch.ones_like(masks[:1]), masks]).double()
        counts += froms.sum(1)
        per_layer: dict[str, list[Tensor]] = {"raw": [], "effective": []}
        for site in _self_attention(found):
            seen = _effective(site)
            for name, block in (("raw", seen.raw), ("effective", seen.block)):
                assert block is not None
                total = torch.zeros(seen.shape[0], len(froms), len(masks), dtype=torch.float64)
                for rows, _ in seen.blocks():
                    total += froms[:, rows] @ (block(rows).double() @ masks.double().T)
                per_layer[name].append(total)
        for name, layers in per_layer.items():
            sums[name] = sums[name] + torch.stack(layers)
    return make_result(
        "attention_between_types",
        {
            name: (("layer", "head", "from", "to"), total / counts[:, None].clamp(min=1) + _undefined(counts))
            for name, total in sums.items()
        },
        coordinates={"from": ["all", *TYPES], "to": list(TYPES)},
        provenance=_provenance(loaded, texts),
    )


def passage_maps(model: Any, text: Any, layer: int, head: int, *, truncate: bool = False) -> xr.Dataset:
    """Fig. 6: raw, effective and null attention of one head on one passage.

    The attributes `strongest_query` and `strongest_key` are the cell of the effective map that is largest off the
    diagonal.
    """
    found = trace(load(model), text, layers=[layer], heads=[head], truncate=truncate)
    result = attention_maps(found, layer, head, ("raw", "effective", "null"))
    values = result["effective"].values.copy()
    if values.shape[0] == values.shape[1]:
        np.fill_diagonal(values, -np.inf)
    query, key = np.unravel_index(int(values.argmax()), values.shape)
    return result.assign_attrs(strongest_query=int(query), strongest_key=int(key))


def token_types(model: Model, stream: Stream) -> Tensor:
    """Which type each token is of, boolean [type, token]; types as in `TYPES`."""
    tokenizer = model.tokenizer
    ids = stream.ids or (None,) * len(stream)
    first, separator = getattr(tokenizer, "cls_token_id", None), getattr(tokenizer, "sep_token_id", None)
    names = [token.lstrip("Ġ▁") for token in stream.tokens]
    masks = torch.tensor(
        [
            [first is not None and token == first for token in ids],
            [separator is not None and token == separator for token in ids],
            [name in (".", ",") for name in names],
        ]
    )
    return torch.cat([masks, ~masks.any(0, keepdim=True)])


def _undefined(counts: Tensor) -> Tensor:
    """NaN for a type that no query has, 0 otherwise."""
    return torch.where(counts > 0, 0.0, torch.nan)[:, None]


def _effective(site: Any) -> Any:
    held = site_tensors(site)
    return effective(
        held.value,
        held.projection,
        held.context,
        allowed=held.allowed,
        precision=held.precision,
        row_sum=held.row_sum,
        raw=held.raw,
    )


def _self_attention(found: Trace) -> list[Any]:
    """The sites in which the text attends to itself."""
    name = found.main.name
    return [site for site in found.sites if site.query_stream == site.key_stream == name]


def _traces(model: Model, texts: Sequence[Any], truncate: bool, progress: Progress | None) -> Any:
    if isinstance(texts, (str, tuple)) or not len(texts):
        raise InputError("give a list of texts, with at least one in it.")
    for done, text in enumerate(texts, 1):
        yield trace(model, text, truncate=truncate)
        if progress is not None:
            progress(done, len(texts))


def _provenance(model: Model, texts: Sequence[Any]) -> dict[str, Any]:
    return {"model": model.name, "texts": len(texts)}
