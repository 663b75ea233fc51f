"""The figures of section 5 and appendix C, from the attributions of one or many texts; each a result with a plot."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from identiscope.asking.provenance import texts_digest
from identiscope.errors import InputError
from identiscope.methods.mixtures.attribution.comparison import compare_with_maps
from identiscope.methods.mixtures.attribution.summaries import (
    GROUPS,
    ByOffset,
    by_distance,
    by_offset,
    by_tag,
    self_contribution,
    to_token,
)
from identiscope.results import make_result

Results = xr.Dataset | Sequence[xr.Dataset]

# What the results of one figure have in common, and it says too.
_TOLD = ("model", "model_digest", "configuration_digest", "mode", "norm", "input", "stream", "options")

#: BERT-base uncased on the 408 pairs of the MRPC development set (Fig. 3): by block, in per cent. The paper counts
#: layers from 1: its layer l is block l − 1.
PUBLISHED_MEDIAN = {0: 30.6, 5: 14.4, 11: 10.7}
PUBLISHED_NOT_LARGEST = {0: 0.0, 1: 0.0, 2: 0.0, 5: 18.0, 10: 30.0, 11: 30.0}


def self_contributions(results: Results, *, special: bool = True) -> xr.Dataset:
    """Fig. 3: contribution of a token to itself by layer, and how often another token contributes more.

    special: count [CLS], [SEP] and their kind too, as the paper does. `not_largest` is counted as it comes; of
    estimates the largest is more often another's by noise alone, and `not_largest_noise` says about how much that adds.
    """
    given = _list(results)
    summary = self_contribution(
        _contributions(given),
        None if special else [_ordinary(result) for result in given],
        [np.asarray(result["contribution_error"].values, np.float64) for result in given],
    )
    names = ("median", "lower", "upper", "not_largest", "not_largest_noise")
    arrays = {name: (("layer",), getattr(summary, name)) for name in names}
    return _result("self_contributions", given, arrays, tokens=summary.values.shape[1])


def contributions_by_distance(results: Results) -> xr.Dataset:
    """Fig. 4a: contribution of the neighbours at distance 1, 2, 3, 4–5, 6–10 and 11+; `relative` sums to one over
    the layers for each group, as appendix C.2 says, and `mean` is what it was before."""
    given = _list(results)
    summary = by_distance(_contributions(given))
    names = [f"{near}" if near == far else f"{near}–{far}" if far else f"{near}+" for near, far in GROUPS]
    return _result(
        "contributions_by_distance",
        given,
        {
            "mean": (("layer", "distance"), summary.mean),
            "relative": (("layer", "distance"), summary.relative),
            "count": (("distance",), summary.count),
        },
        coordinates={"distance": names},
    )


def contributions_by_offset(results: Results, *, own: bool = True) -> xr.Dataset:
    """Fig. 4b: contribution of the neighbour at each offset, to the left (−) and to the right (+).

    own: count what a token contributes to itself, at offset 0, where it dwarfs its neighbours.
    """
    given = _list(results)
    summary = by_offset(_contributions(given), own=own)
    return _offsets("contributions_by_offset", given, summary, centre="the token itself", own=own)


def contributions_to_token(
    results: Results, token: str = "[CLS]", centre: str | None = None, *, own: bool = True
) -> xr.Dataset:
    """Fig. 18: contribution to the first `token` of each text, by the offset from it, or from the first `centre`.

    Texts that lack one of the two are left out, and counted. own: count what the token contributes to itself.
    """
    given = _list(results)
    places = [(_first(result, "output", token), _first(result, "input", centre or token)) for result in given]
    having = [
        (result, output, middle)
        for result, (output, middle) in zip(given, places, strict=True)
        if output is not None and middle is not None
    ]
    if not having:
        raise InputError(f"no text has the tokens {token!r} and {centre or token!r}; the first is {_tokens(given[0])}.")
    kept = [result for result, _, _ in having]
    outputs, centres = [place for _, place, _ in having], [place for _, _, place in having]
    summary = to_token(_contributions(kept), outputs, centres, own=own)
    said = {"token": token, "centre": centre or token, "own": own, "left_out": len(given) - len(kept)}
    return _offsets("contributions_to_token", kept, summary, **said)


def contributions_of_word(result: xr.Dataset, output: int) -> xr.Dataset:
    """Fig. 19–25: what one token is made of, at every layer; output: its place in the text."""
    if not 0 <= output < result.sizes["output"]:
        raise InputError(f"output {output} was asked for; the text has the tokens 0 to {result.sizes['output'] - 1}.")
    chosen = result[["contribution", "contribution_error"]].isel(output=output)
    made = _result("contributions_of_word", [result], {}, word=str(result["output_token"].values[output]), place=output)
    return made.assign(
        contribution=(("layer", "input"), chosen["contribution"].values),
        contribution_error=(("layer", "input"), chosen["contribution_error"].values),
    ).assign_coords(input_token=("input", result["input_token"].values))


def contributions_by_tag(results: Results, tags: Sequence[Sequence[str | None]]) -> xr.Dataset:
    """Fig. 26–37: self contribution by part of speech; tags: those of every token, from `token_tags`."""
    given = _list(results)
    summary = by_tag(_contributions(given), tags)
    arrays: dict[str, Any] = {name: (("layer", "tag"), getattr(summary, name)) for name in ("median", "lower", "upper")}
    arrays["count"] = (("tag",), summary.count)
    return _result("contributions_by_tag", given, arrays, coordinates={"tag": list(summary.tags)})


def comparison_with_attention(
    result: xr.Dataset, maps: dict[str, np.ndarray[Any, Any]], *, allowed: np.ndarray[Any, Any] | None = None
) -> xr.Dataset:
    """Correlation of contributions with attention maps, by layer and kind of map.

    maps: name → [layer, query, key], such as raw and effective attention averaged over heads, from
    `attention_maps`. allowed [query, key]: the cells that a mask leaves; by default those the contributions reach.
    """
    values = np.asarray(result["contribution"].values)
    reached: np.ndarray[Any, Any] = np.any(values.transpose(0, 2, 1) > 0, axis=0)
    cells = reached if allowed is None else allowed
    agreements = {name: compare_with_maps(values, np.asarray(array, float), cells) for name, array in maps.items()}
    arrays = {
        kind: (("map", "layer"), np.stack([getattr(agreement, kind) for agreement in agreements.values()]))
        for kind in ("pearson", "spearman")
    }
    return _result("comparison_with_attention", [result], arrays, coordinates={"map": list(agreements)})


def _offsets(method: str, given: list[xr.Dataset], summary: ByOffset, **provenance: Any) -> xr.Dataset:
    return _result(
        method,
        given,
        {
            "mean": (("layer", "offset"), summary.mean),
            "total": (("layer", "offset"), summary.total),
            "count": (("offset",), summary.count),
        },
        coordinates={"offset": summary.offsets},
        **provenance,
    )


def _result(
    method: str,
    given: list[xr.Dataset],
    arrays: dict[str, Any],
    *,
    coordinates: dict[str, Any] | None = None,
    **provenance: Any,
) -> xr.Dataset:
    first = given[0]
    said = {
        name: first.attrs[name]
        for name in _TOLD
        if name in first.attrs and all(result.attrs.get(name) == first.attrs[name] for result in given)
    }
    said["text_digest"] = texts_digest([str(result.attrs.get("text_digest", "")) for result in given])
    labels = {"layer": first["layer"].values, **(coordinates or {})}
    return make_result(method, arrays, coordinates=labels, provenance={**said, "texts": len(given), **provenance})


def _list(results: Results) -> list[xr.Dataset]:
    given = [results] if isinstance(results, xr.Dataset) else list(results)
    if not given:
        raise InputError("no attribution was given; give at least one.")
    if any("contribution" not in result for result in given):
        raise InputError("these are not results of hidden_token_attribution.")
    if any(bool(np.isnan(result["contribution"].values).all()) for result in given):
        raise InputError("an attribution was interrupted before it had any contributions; resume it first.")
    return given


def _contributions(given: list[xr.Dataset]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    return [np.asarray(result["contribution"].values, np.float64) for result in given]


def _ordinary(result: xr.Dataset) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return ~np.asarray(result["output_special"].values, bool)


def _tokens(result: xr.Dataset) -> str:
    return " ".join(str(token) for token in result["output_token"].values)[:120]


def _first(result: xr.Dataset, axis: str, token: str) -> int | None:
    names = [str(name) for name in result[f"{axis}_token"].values]
    return names.index(token) if token in names else None
