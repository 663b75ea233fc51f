"""Figures 1, 5 and 6: raw against effective attention."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from identiscope.analysis.attention import attention_identifiability
from identiscope.capture import Model, trace
from identiscope.corpus.readers import Text
from identiscope.experiments.attention_figures import attention_between_types, correlation_by_length, passage_maps
from identiscope.views.figures import Claim, Figure, Missing, Panel


def attention_figures(model: Model, texts: list[Text]) -> Iterator[Figure | Missing]:
    """1a on texts of all lengths, 1b and 1c and 5 by type of token, 6 on one passage."""
    given = [text.given for text in texts]
    data = f"{len(texts)} passages"
    correlation = correlation_by_length(model, given, truncate=True)
    first = trace(model, given[0], truncate=True)
    channels = first.sites[0].value.shape[-1]
    yield Figure(
        "1a", "Correlation of raw and effective attention by length", data, (Panel("correlation", correlation),),
        tuple(_correlation_claims(correlation, channels)),
    )  # fmt: skip
    types = attention_between_types(model, given, truncate=True)
    yield Figure(
        "1b, 1c", "Attention to types of token, raw and effective", data,
        (Panel("raw", types, None, {"values": "raw"}), Panel("effective", types, None, {"values": "effective"})),
        tuple(_special_claims(types)),
    )  # fmt: skip
    separator = "attention_plots.plot_separator_attention"
    yield Figure(
        "5", "Attention from [SEP] and from other tokens to [SEP]", data,
        (Panel("effective", types, separator), Panel("raw", types, separator, {"values": "raw"})),
    )  # fmt: skip
    yield _passage(model, texts)


def _correlation_claims(result: xr.Dataset, channels: int) -> Iterator[Claim]:
    lengths, values = result["length"].values, result["correlation"].mean(("layer", "head")).values
    short, long = values[lengths <= channels], values[lengths > channels]
    if len(short):
        yield Claim(
            f"raw and effective attention are one up to d_v = {channels} tokens", "correlation 1",
            f"mean {np.nanmean(short):.4f} over {len(short)} texts", bool(np.nanmin(short) > 0.999),
        )  # fmt: skip
    if len(long) > 2:
        fall = float(np.corrcoef(lengths[lengths > channels], long)[0, 1])
        yield Claim(
            f"beyond {channels} tokens they differ more, the longer the text", "falls with length",
            f"mean {np.nanmean(long):.2f}; correlation with length {fall:+.2f}", fall < 0,
        )  # fmt: skip


def _special_claims(types: xr.Dataset) -> Iterator[Claim]:
    for name, published in (("[SEP]", "yes (layers 5 to 10 of 12)"), ("[CLS]", "not said")):
        raw, effective = (
            types[kind].sel({"from": "all", "to": name}).mean("head").values for kind in ("raw", "effective")
        )
        if np.isfinite(raw).all():
            peak = int(raw.argmax())
            # Where hardly any attention goes there, there is no peak that could disappear.
            holds = bool(effective[peak] < 0.5 * raw[peak]) if raw[peak] > 0.1 else None
            yield Claim(
                f"the peak of attention to {name} all but disappears in effective attention", published,
                f"layer {peak}: raw {raw[peak]:.2f}, effective {effective[peak]:.2f}", holds,
            )  # fmt: skip


def _passage(model: Model, texts: list[Text]) -> Figure:
    """The head of one passage whose raw map says least about the effective one."""
    # The shortest that is longer than a head is wide: beyond that raw and effective differ, and names can be read.
    lengths = [(len(trace(model, text.given, layers=[0], truncate=True).main), text.given) for text in texts[:50]]
    wide = trace(model, lengths[0][1], layers=[0], truncate=True).sites[0].value.shape[-1]
    given = min([one for one in lengths if one[0] > wide] or lengths, key=lambda one: one[0])[1]
    found = trace(model, given, truncate=True)
    seen = attention_identifiability(found)["correlation"].values
    layer, head = np.unravel_index(int(np.nanargmin(np.where(np.isfinite(seen), seen, np.inf))), seen.shape)
    maps = passage_maps(model, given, int(layer), int(head), truncate=True)
    query, key = maps.attrs["strongest_query"], maps.attrs["strongest_key"]
    cells = {name: float(maps[name].values[query, key]) for name in ("raw", "effective")}
    names = [str(maps[f"{axis}_token"].values[place]) for axis, place in (("query", query), ("key", key))]
    largest = tuple(int(place) for place in np.unravel_index(int(maps["raw"].values.argmax()), maps["raw"].shape))
    claim = Claim(
        "effective attention has structure that raw attention hides", "its strongest cell is not the raw map's",
        f"{names[0]} → {names[1]}: effective {cells['effective']:.2f}, raw {cells['raw']:.2f}",
        largest != (query, key),
    )  # fmt: skip
    panels = tuple(Panel(name, maps, None, {"values": name}) for name in ("raw", "effective", "null"))
    return Figure(
        "6", f"Raw, effective and null attention of layer {layer}, head {head}", "one passage", panels, (claim,)
    )
