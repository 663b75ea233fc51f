"""The attention figures of Brunner et al. (2020): 1a, 1b, 1c, 5 and 6, on any model and texts.

Each function gives a result; `identiscope.plot(result, ax=…)` draws it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.maps import attention_maps
from identiscope.asking.provenance import text_digest, texts_provenance
from identiscope.capture import Model, Stream, Trace, load, trace
from identiscope.errors import InputError
from identiscope.linalg.devices import as_numpy, on_cpu
from identiscope.methods.fields import layer_fields
from identiscope.methods.maps.effective import effective
from identiscope.methods.tokens.types import types_of_tokens
from identiscope.progress import Progress
from identiscope.results import make_result

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
    digests: list[str] = []
    for traced in _traces(loaded, texts, truncate, progress, digests):
        lengths.append(len(traced.main))
        rows.append([as_numpy(_effective(site).correlation_with_raw()) for site in _self_attention(traced)])
    return make_result(
        "correlation_by_length",
        {"correlation": (("text", "layer", "head"), np.array(rows)), "length": (("text",), lengths)},
        provenance=texts_provenance(loaded, digests, truncate=truncate),
    )


def attention_between_types(
    model: Any, texts: Sequence[Any], *, truncate: bool = False, progress: Progress | None = None
) -> xr.Dataset:
    """Fig. 1b, 1c and 5: how much attention goes from one type of token to another, raw and effective.

    Axes layer, head, from and to. A value is the weight that a query of type `from` gives to all keys of type
    `to` together, averaged over such queries of all texts; `from` has `all` too, which is Fig. 1. Types are
    [CLS], [SEP] (the tokenizer's own, whatever they are called), full stop or comma, and other. `raw_of_text` and
    `effective_of_text` [text, layer, from, to] are the means over heads of each text, which has `queries` [text, from].

    >>> result = identiscope.attention_between_types(model, texts)
    >>> identiscope.plot(result, values="effective")        # Fig. 1c; "raw" is 1b
    >>> identiscope.plot(result, figure="separator")        # Fig. 5
    """
    loaded = load(model)
    sums: dict[str, Any] = {"raw": 0.0, "effective": 0.0}
    counts = torch.zeros(len(TYPES) + 1, dtype=torch.float64)
    of_text: dict[str, list[Tensor]] = {"raw": [], "effective": []}
    queries = []
    digests: list[str] = []
    for traced in _traces(loaded, texts, truncate, progress, digests):
        masks = token_types(loaded, traced.main)
        froms = torch.cat([torch.ones_like(masks[:1]), masks]).double()
        queries.append(froms.sum(1))
        counts += queries[-1]
        per_layer: dict[str, list[Tensor]] = {"raw": [], "effective": []}
        for site in _self_attention(traced):
            seen = _effective(site)
            device = seen.left.device
            asking, keys = froms.to(device), masks.to(device).double().T
            for name, block in (("raw", seen.raw), ("effective", seen.block)):
                assert block is not None
                total = torch.zeros(seen.shape[0], len(froms), len(masks), dtype=torch.float64, device=device)
                for rows, _ in seen.blocks():
                    total += asking[:, rows] @ (block(rows).double() @ keys)
                per_layer[name].append(on_cpu(total))
        for name, layers in per_layer.items():
            sums[name] = sums[name] + torch.stack(layers)
            of_text[name].append(_mean(torch.stack(layers).mean(1), queries[-1]))
    return make_result(
        "attention_between_types",
        {name: (("layer", "head", "from", "to"), _mean(total, counts)) for name, total in sums.items()}
        | {f"{name}_of_text": (("text", "layer", "from", "to"), torch.stack(parts)) for name, parts in of_text.items()}
        | {"queries": (("text", "from"), torch.stack(queries).long())},
        coordinates={"from": ["all", *TYPES], "to": list(TYPES)},
        provenance=texts_provenance(loaded, digests, truncate=truncate),
    )


def passage_maps(model: Any, text: Any, layer: int, head: int, *, truncate: bool = False) -> xr.Dataset:
    """Fig. 6: raw, effective and null attention of one head on one passage.

    The attributes `strongest_query` and `strongest_key` are the cell of the effective map that is largest off the
    diagonal.
    """
    traced: Any = trace(load(model), text, layers=[layer], heads=[head], truncate=truncate)
    if isinstance(traced, list):
        raise InputError(f"{len(traced)} texts were given; give one passage.")
    result = attention_maps(traced, layer, head, ("raw", "effective", "null"))
    values = result["effective"].values.copy()
    if values.shape[0] == values.shape[1]:
        np.fill_diagonal(values, -np.inf)
    query, key = np.unravel_index(int(values.argmax()), values.shape)
    return result.assign_attrs(strongest_query=int(query), strongest_key=int(key))


def token_types(model: Model, stream: Stream) -> Tensor:
    """Which type each token is of, boolean [type, token]; types as in `TYPES`."""
    flags = types_of_tokens(stream.tokens, stream.ids, stream.special, model.tokenizer)
    masks = torch.tensor([flags[name] for name in ("cls", "sep", "point")])
    return torch.cat([masks, ~masks.any(0, keepdim=True)])


def _mean(total: Tensor, counts: Tensor) -> Tensor:
    """Sums [..., from, to] over queries as means; NaN for a type that no query has."""
    return total / torch.where(counts > 0, counts, torch.nan)[:, None]


def _effective(site: Any) -> Any:
    fields = layer_fields(site)
    return effective(
        fields.value,
        fields.projection,
        fields.context,
        allowed=fields.allowed,
        precision=fields.precision,
        row_sum=fields.row_sum,
        raw=fields.raw,
    )


def _self_attention(traced: Trace) -> list[Any]:
    """The sites in which the text attends to itself."""
    name = traced.main.name
    return [site for site in traced.sites if site.query_stream == site.key_stream == name]


def _traces(model: Model, texts: Sequence[Any], truncate: bool, progress: Progress | None, digests: list[str]) -> Any:
    """A trace of each text, whose digest is added to `digests`."""
    if isinstance(texts, (str, tuple)) or not len(texts):
        raise InputError("give a list of texts, with at least one in it.")
    for done, text in enumerate(texts, 1):
        traced = trace(model, text, truncate=truncate)
        digests.append(text_digest(traced))
        yield traced
        if progress is not None:
            progress(done, len(texts))
