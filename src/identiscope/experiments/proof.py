"""Proof by substitution: put an alternative back into the running model and see what changes."""

from typing import Any

import torch
import xarray as xr
from torch import Tensor

from identiscope.capture import load, substitute, trace
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
    """
    loaded = load(model)
    found = trace(loaded, text, target=target, truncate=truncate)
    site = found.site(layer, kind, stream)
    raw = site.attention(head)
    if isinstance(alternative, xr.Dataset):
        made_for = {key: alternative.attrs.get("options", {}).get(key) for key in ("layer", "head")}
        if made_for != {"layer": layer, "head": head}:
            raise InputError(f"the alternative was made for {made_for}, not for layer {layer}, head {head}.")
        alternative = torch.from_numpy(alternative["alternative"].values)
    changed = torch.as_tensor(alternative, dtype=torch.float64)
    if changed.shape != raw.shape:
        raise InputError(f"the alternative has shape {tuple(changed.shape)}; this head's map has {tuple(raw.shape)}.")
    distance = 0.5 * (changed - raw).abs().sum(-1)
    other = random_perturbation(raw, site.allowed_keys(head), distance, seed)
    followed = {name: part for name, part in found.streams.items() if part.hidden_states}
    rows = []
    for label, attention in (("alternative", changed), ("random", other)):
        outcome = substitute(
            loaded,
            text,
            {(layer, head): attention},
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
                    (_change(outcome.streams[name][-1], part.hidden_states[-1]) for name, part in followed.items()),
                    default=float("nan"),
                ),
                float("nan") if found.logits is None else _change(outcome.logits, found.logits),
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


def _change(new: Tensor | None, old: Tensor) -> float:
    assert new is not None
    size = float(old.double().abs().max())
    return float((new.double() - old.double()).abs().max()) / (size if size > 0 else 1.0)


def _ratio(random: float, alternative: float) -> float:
    """How many times more; infinite where the alternative changes no bit, NaN where neither changes any."""
    if alternative > 0:
        return random / alternative
    return float("inf") if random > 0 else float("nan")
