"""Proof by substitution: put an alternative back into the running model and see what changes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from identiscope.capture import Site, Trace, load, substitute, trace
from identiscope.capture.inputs import encode
from identiscope.capture.streams import MAIN
from identiscope.errors import InputError
from identiscope.results import make_result


def prove(
    model: Any,
    text: Any,
    layer: int,
    head: int,
    alternative: xr.Dataset | Tensor,
    *,
    kind: str | None = None,
    stream: str | None = None,
    target: Any = None,
    truncate: bool = False,
    seed: int = 0,
) -> xr.Dataset:
    """Run the model with an alternative map at one head, and with a random map that is as far from the original.

    >>> prove(model, text, 3, 5, attention_alternative(trace, 3, 5)).ratio

    alternative: what `attention_alternative` gave, or a map [query, key]. Changes are the largest absolute
    difference over the largest original value, of the head's output, the last hidden states and the logits (NaN
    without). The random map moves each row as far in total variation, to other weights on the same keys.
    `ratio` is how many times more it changes the hidden states, or the logits where no hidden state follows the head.
    Padding in the text keeps the attention it had, and is left out of every change.
    """
    loaded = load(model)
    found: Any = trace(loaded, text, target=target, truncate=truncate)
    if not isinstance(found, Trace):
        raise InputError(f"{len(found)} texts were given; a proof is of one text, so make one for each.")
    site = found.site(layer, kind, stream)
    raw = site.attention(head)
    changed = _map_of(alternative, site, head)
    if changed.shape != raw.shape:
        raise InputError(f"the alternative has shape {tuple(changed.shape)}; this head's map has {tuple(raw.shape)}.")
    distance = 0.5 * (changed - raw).abs().sum(-1)
    other = random_perturbation(raw, site.allowed_keys(head), distance, seed)
    # Where the text's own positions are among those the model runs on, by stream.
    labels = encode(loaded, [text], targets=[target], truncate=truncate).labels[0]
    places = {name: torch.tensor(label.positions) for name, label in labels.items()}
    followed = {name: part for name, part in found.streams.items() if part.hidden_states}
    rows = []
    for label, attention in (("alternative", changed), ("random", other)):
        outcome = substitute(
            loaded,
            text,
            {(layer, head): _among_padding(attention, places.get(site.query_stream), places.get(site.key_stream))},
            kind=site.kind,
            stream=site.query_stream,
            target=target,
            truncate=truncate,
        )
        value, projection = site.value_of(head).double(), site.projection[head].double()
        rows.append(
            (
                label,
                _change(attention @ value @ projection, raw @ value @ projection),
                # Whatever follows from this head, in any stream.
                max(
                    (
                        _change(_unpadded(outcome.streams[name][-1], places.get(name)), part.hidden_states[-1])
                        for name, part in followed.items()
                    ),
                    default=float("nan"),
                ),
                _logits_change(outcome.logits, found.logits, places),
                float((0.5 * (attention - raw).abs().sum(-1)).max()),
            )
        )
    columns = list(zip(*rows, strict=True))
    arrays: dict[str, Any] = {
        name: (("map",), list(values))
        for name, values in zip(("head_output", "hidden_states", "logits", "total_variation"), columns[1:], strict=True)
    }
    changes = [row[2] if rows[1][2] > 0 else row[3] for row in rows]
    arrays["ratio"] = ((), _ratio(changes[1], changes[0]))
    return make_result(
        "prove",
        arrays,
        coordinates={"map": list(columns[0])},
        provenance={"model": loaded.name, "layer": layer, "head": head, "kind": site.kind, "seed": seed},
    )


def _map_of(alternative: xr.Dataset | Tensor, site: Site, head: int) -> Tensor:
    """The map [query, key] in what was given, refused where it says that it is of another place."""
    if isinstance(alternative, xr.Dataset):
        if "alternative" not in alternative:
            raise InputError(
                f"a result of {alternative.attrs.get('method')!r} was given, which holds no alternative; give what"
                " attention_alternative returned, or one map [query, key] of it as a tensor."
            )
        attributes = alternative.attrs
        options = attributes.get("options", {})
        made_for = (options.get("layer"), options.get("head"), attributes.get("kind"), attributes.get("query_stream"))
        if made_for != (site.layer, head, site.kind, site.query_stream):
            raise InputError(
                f"the alternative was made for (layer, head, kind, stream) {made_for}, not for"
                f" {(site.layer, head, site.kind, site.query_stream)}; make one for this place."
            )
        alternative = torch.from_numpy(alternative["alternative"].values)
    try:
        return torch.as_tensor(alternative, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"an alternative of type {type(alternative).__name__} was given; expected what attention_alternative"
            f" returned, or a map [query, key]: {error}"
        ) from error


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


def random_perturbation(raw: Tensor, allowed: Tensor, distance: Tensor, seed: int) -> Tensor:
    """Move each row [query, key] towards random weights on its allowed keys, by a given total variation [query].

    The direction is towards a random distribution with the row's own sum; where that is nearer than the
    distance, towards all weight on the key that has least, which is as far as a row can go.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(raw.shape, generator=generator, dtype=torch.float64).clamp(min=1e-12)
    # A power makes the target uneven, and so far from most rows.
    drawn = torch.where(allowed, drawn**8, 0.0)
    total = raw.sum(-1, keepdim=True)
    aim = drawn / drawn.sum(-1, keepdim=True) * total
    least = torch.where(allowed, raw, torch.inf).argmin(-1)
    corner = torch.zeros_like(raw).scatter_(-1, least[:, None], total)
    near = 0.5 * (aim - raw).abs().sum(-1) < distance
    aim = torch.where(near[:, None], corner, aim)
    reach = 0.5 * (aim - raw).abs().sum(-1)
    step = torch.where(reach > 0, distance / torch.where(reach > 0, reach, 1.0), 0.0).clamp(max=1.0)
    return raw + step[:, None] * (aim - raw)


def _change(new: Tensor, old: Tensor) -> float:
    size = float(old.double().abs().max())
    return float((new.double() - old.double()).abs().max()) / (size if size > 0 else 1.0)


def _ratio(random: float, alternative: float) -> float:
    """How many times more; infinite where the alternative changes no bit, NaN where neither changes any."""
    if alternative > 0:
        return random / alternative
    return float("inf") if random > 0 else float("nan")
