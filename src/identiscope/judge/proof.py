"""Proof by substitution: put an alternative back into the running model and see what changes."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.provenance import map_digest, trace_provenance
from identiscope.capture import Rerun, Site, Trace, load, substitute, trace
from identiscope.capture.inputs import encode
from identiscope.capture.streams import MAIN
from identiscope.errors import InputError
from identiscope.judge.certificate import (
    MapCertificate,
    certify_layer,
    certify_map,
    check_alternative,
    check_finite,
    refuse_broken,
)
from identiscope.linalg.devices import wide
from identiscope.linalg.distances import total_variation
from identiscope.linalg.random_rows import random_rows
from identiscope.linalg.tolerance import ROUNDING_SLACK, least_rounding
from identiscope.results import make_result

#: What is compared, and in what words.
MEASURED = {"head_output": "the output", "hidden_states": "the hidden states", "logits": "the logits"}


def prove(
    model: Any,
    text: Any,
    layer: int,
    head: int | None,
    alternative: xr.Dataset | Tensor,
    *,
    attention: str | None = None,
    stream: str | None = None,
    target: Any = None,
    truncate: bool = False,
    seed: int = 0,
    check: bool = True,
) -> xr.Dataset:
    """Run the model with an alternative map at one head, with its own map put back, and with a random map.

    >>> proof = prove(model, text, 3, 5, attention_alternative(trace, 3, 5))
    >>> bool(proof.same), float(proof.ratio), proof.attrs["verdict"]

    head: None for all heads of the layer together. alternative: what `attention_alternative` gave, or a map [query,
    key]; of all heads, what `layer_alternative` gave, or maps [head, query, key]. In all three runs the heads' context
    is computed whole as A'·V, in float64, and rounded to the model's precision. Changes are the largest absolute
    difference over the largest original value, of the output of the head (of the layer, for all heads), the last hidden
    states and the logits (NaN without). An alternative that may move the output (`epsilon`) is held to that, and what
    it changes is shown all the same. What the raw map changes is the floor: rounding alone. The random map moves each
    row as far in total variation as the alternative, to other weights on the same keys.

    `same` is the verdict: every change is at most four times the floor (or the spacing of the model's numbers, where
    that is more), and the certificate says that the output is kept. `ratio` is how many times more the random
    map changes the hidden states (the logits, where no hidden state follows the head) than the alternative or
    rounding does. `attrs["verdict"]` says both in a sentence, `attrs["rule"]` how it was judged.

    Before anything is run, the certificate is worked out anew from what the model computed: no weight below zero, row
    sums and the output kept, nothing on a key that may not be seen. What fails it is refused; with check=False
    it is run all the same, and judged. Padding in the text keeps the attention it had, and is left out of every change.
    """
    loaded = load(model)
    plain: Any = trace(loaded, text, target=target, truncate=truncate)
    if not isinstance(plain, Trace):
        raise InputError(f"{len(plain)} texts were given; a proof is of one text, so make one for each.")
    site = plain.site(layer, attention, stream)
    changed = _maps_of(alternative, site, head)
    raw = {one: site.attention(one) for one in changed}
    epsilon = _epsilon(alternative)
    certificate = _certified(site, head, changed, epsilon, check=check)
    other = {
        one: random_rows(raw[one], site.allowed_keys(one), total_variation(changed[one], raw[one]), seed + place)
        for place, one in enumerate(changed)
    }
    # Where the text's own positions are among those the model runs on, by stream.
    labels = encode(loaded, [text], targets=[target], truncate=truncate).labels[0]
    places = {name: torch.tensor(label.positions) for name, label in labels.items()}
    maps = {"alternative": changed, "raw": raw, "random": other}
    rows = {}
    for name, weights in maps.items():
        rerun = substitute(
            loaded,
            text,
            {
                (layer, one): _among_padding(cells, places.get(site.query_stream), places.get(site.key_stream))
                for one, cells in weights.items()
            },
            attention=site.kind,
            stream=site.query_stream,
            target=target,
            truncate=truncate,
            whole=True,
        )
        rows[name] = _changes(plain, site, weights, rerun, places)
    judged = judge(rows, certificate, site.value.dtype)
    moved = [max(float(total_variation(one[at], raw[at]).max()) for at in raw) for one in maps.values()]
    arrays: dict[str, Any] = {
        measured: (("map",), [rows[name][measured] for name in maps]) for measured in MEASURED
    } | {"total_variation": (("map",), moved), "same": ((), judged.same), "ratio": ((), judged.ratio)}
    return make_result(
        "prove",
        arrays,
        coordinates={"map": list(maps)},
        provenance=trace_provenance(
            plain, layer=layer, head=head, attention=attention, stream=stream, truncate=truncate, seed=seed, check=check
        )
        | {
            "alternative_digest": map_digest(torch.stack(list(changed.values())) if head is None else changed[head]),
            "layer": layer, "head": head, "attention": site.kind, "seed": seed,
            "dtype": str(site.value.dtype).removeprefix("torch."), "verdict": judged.sentence, "rule": judged.rule,
            **asdict(certificate.kept), "masked_weight": certificate.masked_weight,
            **({"epsilon": epsilon, "output_share": certificate.output_share} if epsilon else {}),
        },
    )  # fmt: skip


def _epsilon(alternative: xr.Dataset | Tensor) -> float:
    """The share of the output by which an alternative says that it may move it."""
    options = alternative.attrs.get("options", {}) if isinstance(alternative, xr.Dataset) else {}
    return float(options.get("epsilon") or 0.0)


def _certified(
    site: Site, head: int | None, changed: Mapping[int, Tensor], epsilon: float, *, check: bool
) -> MapCertificate:
    """The certificate, worked out anew; what fails it is refused, if it is to be checked."""
    if head is not None:
        return (check_alternative if check else certify_map)(site, head, changed[head], epsilon)
    for cells in changed.values() if check else ():
        check_finite(cells)
    certificate = certify_layer(site, changed)
    return refuse_broken(certificate, f"layer {site.layer}") if check else certificate


Changes = dict[str, float]


@dataclass(frozen=True)
class Judgement:
    """What a proof comes to: the verdict, how many times more a random map changes, and both in words."""

    same: bool
    ratio: float
    sentence: str
    rule: str


def judge(rows: Mapping[str, Changes], certificate: MapCertificate, precision: torch.dtype) -> Judgement:
    """Judge the changes of the maps `alternative`, `raw` (the floor) and `random`, each by what was measured."""
    least = least_rounding(precision)
    limits = {name: ROUNDING_SLACK * max(rows["raw"][name], least) for name in MEASURED}
    # NaN was not measured; whatever was must be within its limit.
    beyond = [name for name in MEASURED if rows["alternative"][name] > limits[name]]
    same = not beyond and certificate.keeps_output
    # Where the change shows: behind the head if anything is there that a random map moves.
    shown = next((name for name in ("hidden_states", "logits") if rows["random"][name] > 0), "head_output")
    change, floor, random = (rows[name][shown] for name in ("alternative", "raw", "random"))
    ratio = random / max(change, floor, least)
    telling = "" if random > limits[shown] else ", which is no more than rounding: this run tells nothing"
    first = f"Same within rounding: {'yes' if same else 'no'}."
    if certificate.epsilon > 0:
        within = "yes" if certificate.keeps_output else "no"
        first = f"Within {certificate.epsilon:g} of the attention block's output: {within}."
    sentence = (
        f"{first} The map that was given changes {MEASURED[shown]} by"
        f" {change:.1e}, the raw map put back the same way by {floor:.1e}, and a random map as far away by"
        f" {random:.1e}{telling}."
    )
    if broken := certificate.broken():
        sentence += f" It is no alternative: {'; '.join(broken)}."
    rule = (
        f"it is the same if each change is at most {ROUNDING_SLACK:g} times that of the raw map put back (or"
        f" {least:.1e} where that is more) and each row of the output is kept to {certificate.tolerance:.0e}."
    )
    return Judgement(same, ratio, sentence, rule)


def _changes(
    traced: Trace, site: Site, maps: Mapping[int, Tensor], outcome: Rerun, places: Mapping[str, Tensor]
) -> Changes:
    """What one run changed, by the names of `MEASURED`; NaN where there is no such thing."""
    # Rounded as the run rounds it, beside what the kernel returned.
    outputs = [
        torch.stack([context.to(site.context.dtype).double() @ site.projection[head].double() for head, context in of])
        for of in (
            [(head, cells @ site.value_of(head).double()) for head, cells in maps.items()],
            [(head, site.context[head]) for head in maps],
        )
    ]
    followed = [
        _change(_unpadded(outcome.streams[name][-1], places.get(name)), part.hidden_states[-1])
        for name, part in traced.streams.items()
        if part.hidden_states
    ]
    return {
        "head_output": _change(outputs[0].sum(0), outputs[1].sum(0)),
        # Whatever follows from these heads, in any stream.
        "hidden_states": max(followed, default=float("nan")),
        "logits": _logits_change(outcome.logits, traced.logits, places),
    }


def _maps_of(alternative: xr.Dataset | Tensor, site: Site, head: int | None) -> dict[int, Tensor]:
    """The map [query, key] of each head in what was given, refused where it says that it is of another place."""
    name = "alternative" if head is not None else "layer_alternative"
    heads = list(site.heads) if head is None else [head]
    if isinstance(alternative, xr.Dataset):
        if name not in alternative:
            made_by = "attention_alternative" if head is not None else "layer_alternative"
            raise InputError(
                f"a result of {alternative.attrs.get('method')!r} was given, which holds no alternative of"
                f" {'this head' if head is not None else 'a layer'}; give what {made_by} returned, or its maps as a"
                " tensor."
            )
        alternative, heads = _of_result(alternative, site, head, name)
    try:
        maps = torch.as_tensor(alternative, dtype=torch.float64, device=site.context.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"an alternative of type {type(alternative).__name__} was given; expected what attention_alternative"
            f" returned, or a map [query, key]: {error}"
        ) from error
    shape = (site.queries, site.keys) if head is not None else (len(heads), site.queries, site.keys)
    if maps.shape != shape:
        raise InputError(f"the alternative has shape {tuple(maps.shape)}; expected {shape} here.")
    return {head: maps} if head is not None else dict(zip(heads, maps, strict=True))


def _of_result(result: xr.Dataset, site: Site, head: int | None, name: str) -> tuple[Tensor, list[int]]:
    """The maps of a result, and of which heads they are; refused where they are of another place."""
    attributes, options = result.attrs, result.attrs.get("options", {})
    place: dict[str, Any] = {"attention": attributes.get("attention"), "stream": attributes.get("query_stream")}
    here: dict[str, Any] = {"attention": site.kind, "stream": site.query_stream}
    if head is None:
        layers = [int(layer) for layer in result["layer"].values.reshape(-1)]
        place["layer"], here["layer"] = site.layer if site.layer in layers else layers, site.layer
    else:
        place |= {"layer": options.get("layer"), "head": options.get("head")}
        here |= {"layer": site.layer, "head": head}
    if place != here:
        raise InputError(f"the alternative was made for {place}, not for {here}; make one for this place.")
    if head is not None:
        return torch.from_numpy(result[name].values), [head]
    maps = result[name].sel(layer=site.layer) if "layer" in result[name].dims else result[name]
    return torch.from_numpy(maps.values), [int(one) for one in result["head"].values]


def _among_padding(attention: Tensor, queries: Tensor | None, keys: Tensor | None) -> Callable[[Tensor], Tensor]:
    """A function that puts a map of the text's own positions into the map in place, which may have padding."""

    def put(present: Tensor) -> Tensor:
        new = attention.to(present.device)
        if present.shape == new.shape:
            return new
        full = present.clone()
        rows, columns = (
            torch.arange(length) if chosen is None else chosen
            for chosen, length in zip((queries, keys), present.shape, strict=True)
        )
        full[rows[:, None], columns] = new
        return full

    return put


def _unpadded(values: Tensor, positions: Tensor | None) -> Tensor:
    """The text's own positions of [position, …]."""
    return values if positions is None or len(positions) == len(values) else values[positions]


def _logits_change(new: Tensor | None, old: Tensor | None, places: Mapping[str, Tensor]) -> float:
    """Change of the logits; NaN where there are none."""
    if new is None or old is None:
        return float("nan")
    # Logits by position are those of the decoder, or of the text; a classifier has one row for it all.
    by_position = new.dim() == 2 and new.shape != old.shape
    stream = "decoder" if "decoder" in places else MAIN
    return _change(_unpadded(new, places.get(stream)) if by_position else new, old)


def _change(new: Tensor, old: Tensor) -> float:
    """Largest difference over the largest original value; infinite where what came out is no number."""
    new, old = wide(new), wide(old)
    size = float(old.abs().max())
    difference = float((new - old).abs().max())
    return difference / (size if size > 0 else 1.0) if difference == difference else float("inf")
