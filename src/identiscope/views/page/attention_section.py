"""The heads of a text as a section: of a Trace's layers, of one head's maps, of a model's `attentions`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from identiscope.errors import InputError
from identiscope.methods.registry import map_names, method
from identiscope.token_text import named_in_text, shown_token
from identiscope.views.page.attention_data import Shares, pack_layers
from identiscope.views.page.data import Page, Section, empty_page, plain, tokens_of
from identiscope.views.page.layer import Layer
from identiscope.views.page.packing import Array
from identiscope.views.page.shapes import AttentionData, Interval, NamedMap, PackedLayer, Place

_BOUNDS = ("weight", "lower", "upper")
_INTERVAL = ("layer", "head", "query", "key", *_BOUNDS, "copies", *(f"merged_{name}" for name in _BOUNDS))

#: What every head has beside the maps of the library: name, title and what it says.
_NULL: NamedMap = {
    "name": "simplex_null",
    "title": "Null",
    "note": "Raw minus simplex span: what of it has no effect on the output.",
}


def attention_section(
    layers: Iterable[Layer],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    canonical: Mapping[tuple[int, int], Array] | None = None,
    intervals: Sequence[Mapping[str, Any]] = (),
    start: Place | None = None,
    progress: Callable[[int], None] | None = None,
    shares: Shares | None = None,
) -> Section:
    """The maps of all layers, canonical maps and shares, where known, by (layer, head), and intervals of weights."""
    packed = pack_layers(layers, equal_tokens(queries if keys is None else keys), canonical, progress, shares)
    bounds: list[Any] = [{name: plain(one[name]) for name in _INTERVAL} for one in intervals]
    data: AttentionData = {
        "tokens": {
            "queries": [str(token) for token in queries],
            "keys": None if keys is None else list(map(str, keys)),
        },
        "maps": _named_maps(packed.described),
        "layers": packed.described,
        "intervals": bounds,
        "start": start,
    }
    says = "All heads of the text, and what of each can be known from what the model does."
    return Section("attention", "Attention", says, data, packed.chunks)


def _named_maps(layers: Sequence[PackedLayer]) -> list[NamedMap]:
    """The maps that a layer holds packed, or that follow from them, in the order and the words of the registry."""
    # Most pages have none as the paper has it.
    packed = {*PackedLayer.__annotations__} - (
        {"effective"} if all(one["effective"] is None for one in layers) else set()
    )
    maps: list[NamedMap] = []
    for name in (one for one in map_names() if one in packed):
        # Short enough to stand above a map, beside its buttons.
        title, note = name.removeprefix("effective_").replace("_", " ").capitalize(), method(name).says
        # Of a paper its authors, its year, and where in it.
        paper = method(name).paper.partition(" (")[0]
        maps.append({"name": name, "title": title, "note": f"{note[:1].upper()}{note[1:]} ({paper})."})
        maps += [_NULL] if name == "effective_simplex_span" else []
    return maps


def parts_note(tokens: Sequence[str]) -> list[str]:
    """What tokens that are a part of a character are shown as, where there are any."""
    first = next((token for token in tokens if "<0x" in token), None)
    if first is None:
        return []
    return [
        f"A token that is only a part of a character, as tokenizers of bytes make them, is shown by its bytes, such as"
        f" {shown_token(first)}; where pieces of words are joined, by the character."
    ]


def equal_tokens(tokens: Sequence[str]) -> Array:
    """The number of the group of equal tokens that each is of, from 0."""
    groups: dict[str, int] = {}
    return np.array([groups.setdefault(str(token), len(groups)) for token in tokens], dtype=np.int64)


def with_attention_of(page: Page, name: str, section: Section) -> Page:
    """The page with the layers and intervals of another section of attention in place of its own."""
    old: Any = page.section(name)
    new: Any = section.data
    layers = {layer["layer"]: layer for layer in new["layers"]}
    intervals: dict[Any, Interval] = {}
    for one in (*old["data"]["intervals"], *new["intervals"]):
        intervals[one["layer"], one["head"], one["query"], one["key"]] = one
    data: AttentionData = {
        "tokens": old["data"]["tokens"],
        "maps": old["data"]["maps"],
        "start": old["data"]["start"],
        "layers": [layers.get(layer["layer"], layer) for layer in old["data"]["layers"]],
        "intervals": list(intervals.values()),
    }
    return page.with_other(name, Section(old["kind"], old["title"], old["says"], data, section.chunks))


def maps_of_a_head(result: xr.Dataset) -> tuple[AttentionData, Mapping[str, bytes]]:
    """A result with the maps of one head, by query and key: raw, and others where they are there."""
    options = result.attrs.get("options", {})
    layer, head = int(options.get("layer", 0)), int(options.get("head", 0))
    projected, effective = (
        [result[name].values] if name in result else None for name in ("effective_simplex_span", "effective")
    )
    given = _GivenMaps(layer, (head,), [result["raw"].values], projected, effective)
    canonical = {(layer, head): result["canonical"].values} if "canonical" in result else None
    made = attention_section([given], tokens_of(result, "query"), tokens_of(result, "key"), canonical=canonical)
    data: Any = made.data
    return data, made.chunks


def attentions_page(
    attentions: Sequence[Any], tokens: Sequence[str], *, layers: Sequence[int] | None = None, title: str = "Attention"
) -> Page:
    """A page on what a Hugging Face model returns as `attentions`: one [1, head, query, key] (or without 1) a layer."""
    given = []
    if not hasattr(attentions, "__iter__"):
        raise InputError(
            f"attentions of type {type(attentions).__name__} were given; expected one [1, head, query, key] a layer."
        )
    for place, one in enumerate(attentions):
        cells = _cells(one, place)
        cells = cells[0] if cells.ndim == 4 and len(cells) == 1 else cells
        if cells.ndim != 3 or not cells.size:
            raise InputError(
                f"attention of layer {place} has shape {cells.shape}; expected [1, head, query, key] of one text."
            )
        if not np.isfinite(cells).all() or cells.min() < 0 or cells.max() > 1 + 1e-3:
            raise InputError(f"attention of layer {place} must lie between 0 and 1: give it after the softmax.")
        number = place if layers is None else int(layers[place])
        given.append(_GivenMaps(number, tuple(range(len(cells))), list(np.minimum(cells, 1.0))))
    if not given:
        raise InputError(
            "no attentions were given; an SDPA model returns none: load it with attn_implementation='eager'."
        )
    tokens = named_in_text(tokens)
    shapes = {(one.queries, one.keys) for one in given}
    if shapes != {(given[0].queries, len(tokens))}:
        raise InputError(f"{len(tokens)} tokens were given for attention of shapes {sorted(shapes)} [query, key].")
    queries = list(tokens) if given[0].queries == len(tokens) else [str(place) for place in range(given[0].queries)]
    subtitle = f"{len(tokens)} tokens · {len(given)} layers × {len(given[0].heads)} heads · raw attention only"
    note = (
        "Only attention was given. With the model itself, identiscope.view(trace) also says which part of it is real."
    )
    page = empty_page(title, subtitle, notes=[note, *parts_note(tokens)])
    return page.with_section(attention_section(given, queries, None if queries == list(tokens) else tokens))


def _cells(attention: Any, place: int) -> Array:
    try:
        numbers = attention.detach().cpu().float().numpy() if hasattr(attention, "detach") else attention
        return np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"attention of layer {place} is no array of numbers: {str(error)[:200]}.") from error


@dataclass(frozen=True, eq=False)
class _GivenMaps:
    """Maps that are there already, as a layer."""

    layer: int
    heads: tuple[int, ...]
    maps: Sequence[Array]
    projected: Sequence[Array] | None = None
    effectives: Sequence[Array] | None = None
    query: None = None
    key: None = None
    softcap: None = None
    position: None = None
    sinks: None = None
    left: None = None
    right: None = None
    output: None = None
    start: None = None
    stop: None = None
    matrix: None = None

    @property
    def queries(self) -> int:
        return len(self.maps[0])

    @property
    def keys(self) -> int:
        return int(self.maps[0].shape[1])

    @property
    def raw(self) -> Callable[[int], Array]:
        return lambda place: np.asarray(self.maps[place], dtype=np.float64)

    @property
    def effective_simplex_span(self) -> Callable[[int], Array] | None:
        given = self.projected
        return None if given is None else lambda place: np.asarray(given[place], dtype=np.float64)

    @property
    def effective(self) -> Callable[[int], Array] | None:
        given = self.effectives
        return None if given is None else lambda place: np.asarray(given[place], dtype=np.float64)
