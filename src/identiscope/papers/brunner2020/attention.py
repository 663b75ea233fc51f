"""Figures 1, 5 and 6: raw against effective attention."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from identiscope.capture import Model, trace
from identiscope.corpus.readers import Text
from identiscope.papers.brunner2020.attention_claims import (
    correlation_claims,
    example_layer,
    passage_claims,
    peak_claims,
    separator_claims,
)
from identiscope.papers.brunner2020.attention_figures import (
    CLS,
    SEP,
    attention_between_types,
    correlation_by_length,
    passage_maps,
)
from identiscope.views.plots.figures import Figure, Missing, Panel


def attention_figures(model: Model, texts: list[Text]) -> Iterator[Figure | Missing]:
    """1a on texts of all lengths, 1b and 1c and 5 by type of token, 6 on one passage."""
    given = [text.given for text in texts]
    data = f"{len(texts)} passages"
    correlation = correlation_by_length(model, given, truncate=True)
    lengths, values = correlation["length"].values, correlation["correlation"].transpose("text", "layer", "head").values
    channels = trace(model, given[0], layers=[0], truncate=True).sites[0].value.shape[-1]
    yield Figure(
        "1a", "Correlation of raw and effective attention by length", data, (Panel("correlation", correlation),),
        tuple(correlation_claims(values, lengths, channels)),
    )  # fmt: skip
    types = attention_between_types(model, given, truncate=True)
    yield Figure(
        "1b, 1c", "Attention to types of token, raw and effective", data,
        (Panel("raw", types, None, {"values": "raw"}), Panel("effective", types, None, {"values": "effective"})),
        tuple(peak_claims(types)),
    )  # fmt: skip
    separator = "attention.plot_separator_attention"
    yield Figure(
        "5", "Attention from [SEP] and from other tokens to [SEP]", data,
        (Panel("effective", types, separator), Panel("raw", types, separator, {"values": "raw"})),
        tuple(separator_claims(types)),
    )  # fmt: skip
    # The shortest that is longer than a head is wide: beyond that raw and effective differ, and names can be read.
    shown = int(np.where(lengths > channels, lengths, lengths.max() + 1).argmin())
    yield _passage(model, texts[shown], types, data)


def _passage(model: Model, text: Text, types: xr.Dataset, data: str) -> Figure:
    """The head of the paper's layer that gives [CLS] and [SEP] most raw attention: chosen by raw attention alone."""
    layer = example_layer(types.sizes["layer"])
    special = types["raw"].isel(layer=layer).sel({"from": "all", "to": [CLS, SEP]}).sum("to")
    head = int(special.values.argmax())
    maps = passage_maps(model, text.given, layer, head, truncate=True)
    panels = tuple(Panel(name, maps, None, {"values": name}) for name in ("raw", "effective", "null"))
    title = f"Raw, effective and null attention of layer {layer}, head {head} (from 0; the paper counts from 1)"
    return Figure("6", title, f"one passage; the claim, of {data}", panels, tuple(passage_claims(types)))
