"""The draft's claim, measured: which distance between attention maps predicts how much the output changes?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.provenance import text_digest, texts_digest, trace_provenance
from identiscope.asking.structure.extracting import (
    check_structure,
    extract_structure,
    structure_cells,
    structure_weights,
)
from identiscope.capture import Rerun, Site, Trace, load, substitute, trace
from identiscope.errors import InputError
from identiscope.linalg.devices import on_cpu, wide
from identiscope.methods.fields import layer_fields
from identiscope.methods.heads.structure_norm import structure_distance
from identiscope.methods.maps.effective import effective
from identiscope.methods.structure.perturbation import KINDS, Perturbation, equal_perturbations
from identiscope.progress import Progress
from identiscope.results import make_result
from identiscope.stats.paired_ratio import paired_ratio
from identiscope.stats.rank_correlation import rank_correlation

#: What is compared. `structure` is ‖·‖_S with W + ε, `structure_cut` with W alone (a seminorm), `effective` the
#: Frobenius distance of effective attentions, `head_output` that of the head's outputs: no norm of the map alone.
DISTANCES = ("one", "infinity", "frobenius", "spectral", "structure", "structure_cut", "effective", "head_output")

#: What may change: last hidden states and logits (relative, Frobenius), and the share of other predictions.
OUTCOMES = ("hidden_states", "logits", "predictions")

#: The least size of a perturbation, as a share of the largest that all kinds can reach.
LEAST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Subject:
    """Anything that yields a Trace of a text and can be run on it with other maps at (layer, head)."""

    name: str
    trace: Callable[[Any], Trace]
    substitute: Callable[[Any, Mapping[tuple[int, int], Tensor]], Rerun]


def as_subject(
    model: Any, *, layer: int, attention: str | None = None, stream: str | None = None, truncate: bool = False
) -> Subject:
    """A model as a Subject; an object with methods `trace(text)` and `substitute(text, maps)` as it is."""
    if isinstance(model, Subject):
        return model
    if callable(getattr(model, "trace", None)) and callable(getattr(model, "substitute", None)):
        return Subject(str(getattr(model, "name", type(model).__name__)), model.trace, model.substitute)
    loaded = load(model)

    def traced(text: Any) -> Trace:
        made: Trace | list[Trace] = trace(loaded, text, layers=[layer], truncate=truncate)
        if isinstance(made, list):
            raise InputError("several texts were given where one was expected; give a list of single texts.")
        return made

    def substituted(text: Any, maps: Mapping[tuple[int, int], Tensor]) -> Rerun:
        return substitute(loaded, text, maps, attention=attention, stream=stream, truncate=truncate)

    return Subject(loaded.name, traced, substituted)


def perturbation_effects(
    model: Any,
    texts: Sequence[Any],
    layer: int,
    head: int,
    *,
    structure: xr.Dataset | None = None,
    sets: int = 20,
    epsilon: float = 0.01,
    attention: str | None = None,
    stream: str | None = None,
    truncate: bool = False,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Perturb one head's map on some texts, run the model with it, and ask which distance predicted the effect.

    >>> result = identiscope.perturbation_effects("minilm", texts, layer=1, head=5)
    >>> result.correlation.sel(outcome="hidden_states")

    Each of the `sets` of a text has one perturbation that keeps the structure, one that breaks it and one of any
    kind, all of the same Frobenius size (drawn between a tenth and all of what the three can reach) and all on the
    simplex. structure: what `extract_structure` gave, best from other texts; by default from these. epsilon is added
    to W, so that ‖·‖_S is a norm. model: as for `trace`, or any object with `trace(text)` and `substitute(text, maps)`.

    `correlation` [distance, outcome] is Spearman's, within texts, averaged over them, with bootstrap bounds `low` and
    `high` (95 %); `difference` is that to the correlation of ‖·‖_S, and `correlation_any` that over undirected noise
    alone, in which size is most of what differs. `agreement` is the share of pairs of equal
    Frobenius size that a distance orders as their effects are. `break_over_keep` says how many times more a
    perturbation that breaks the structure changes than one of the same size that keeps it.
    """
    if isinstance(texts, (str, tuple, Mapping)) or not len(texts) or sets < 2:
        raise InputError("give a list of at least one text, and at least two sets of perturbations a text.")
    subject = as_subject(model, layer=layer, attention=attention, stream=stream, truncate=truncate)
    if structure is None:
        structure = _structure(subject, texts, layer, attention, stream)
    check_structure(structure)
    distances, effects, sizes, used, digests = [], [], [], [], []
    origin: dict[str, Any] = {}
    for number, text in enumerate(texts):
        generator = torch.Generator().manual_seed(seed + number)
        traced = subject.trace(text)
        origin = origin or trace_provenance(traced)
        digests.append(text_digest(traced))
        measured = _of_text(subject, text, traced, (layer, head), structure, sets, epsilon, generator)
        if measured is not None:
            distances.append(measured[0])
            effects.append(measured[1])
            sizes.append(measured[2])
            used.append(number)
        if progress is not None:
            progress(number + 1, len(texts))
    if not used:
        raise InputError(
            f"no perturbation of equal size can both keep and break the structure of layer {layer}, head {head}: all"
            " cells belong to the structure, or none. Extract it with another threshold, or take another head."
        )
    return _result(
        np.array(distances), np.array(effects), np.array(sizes), used, resamples, seed,
        {
            **origin, "model": subject.name, "text_digest": texts_digest(digests), "structure_text_digest":
            structure.attrs.get("text_digest", ""), "options": {"layer": layer, "head": head, "sets": sets, "epsilon":
            epsilon, "attention": attention, "stream": stream, "truncate": truncate, "resamples": resamples, "seed":
            seed,
            "structure": structure.attrs.get("options")},
            "layer": layer, "head": head, "texts": len(used), "texts_left_out":
            len(texts) - len(used), "sets": sets, "epsilon": epsilon, "seed": seed,
            "threshold": float(structure["threshold"].sel(layer=layer, head=head)),
            "pattern": str(structure["pattern"].sel(layer=layer, head=head).values),
            "structure_texts": structure.attrs["texts"], "layout": structure.attrs["options"]["layout"],
        },
    )  # fmt: skip


def _structure(
    subject: Subject, texts: Sequence[Any], layer: int, attention: str | None, stream: str | None
) -> xr.Dataset:
    traces = [subject.trace(text) for text in texts]
    shapes = {(site.queries, site.keys) for traced in traces for site in [traced.site(layer, attention, stream)]}
    layout: Any = "absolute" if len(shapes) == 1 else "aligned"
    return extract_structure(traces, layout=layout, layers=[layer], attention=attention, stream=stream)


def _of_text(
    subject: Subject,
    text: Any,
    traced: Trace,
    place: tuple[int, int],
    structure: xr.Dataset,
    sets: int,
    epsilon: float,
    generator: torch.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Distances [set, noise, distance], effects [set, noise, outcome] and sizes [set]; None if nothing can move."""
    layer, head = place
    site = traced.site(layer, structure.attrs["attention"], structure.attrs["query_stream"])
    # Random numbers are drawn on the CPU, so that they are the same wherever the model is.
    raw, allowed = on_cpu(site.attention(head)), on_cpu(site.allowed_keys(head))
    weights = on_cpu(structure_weights(structure, traced, layer, head))
    cells = on_cpu(structure_cells(structure, traced, layer, head))
    measured, changed, sizes = [], [], []
    for _ in range(sets):
        share = float(torch.empty(1).uniform_(LEAST_SHARE, 1.0, generator=generator))
        made = equal_perturbations(raw, cells, share=share, allowed=allowed, generator=generator)
        if made is None:
            return None
        measured.append([_distances(one, raw, weights, epsilon, site, head) for one in made])
        changed.append([_effects(traced, subject.substitute(text, {place: one.attention})) for one in made])
        sizes.append(made[0].size)
    return np.array(measured), np.array(changed), np.array(sizes)


def _distances(made: Perturbation, raw: Tensor, weights: Tensor, epsilon: float, site: Site, head: int) -> list[float]:
    fields = layer_fields(site).of_head(head)
    difference = (made.attention - raw).to(fields.value.device)
    plain, cut = (structure_distance(made.attention, raw, one) for one in (weights + epsilon, weights))
    value, projection = fields.value[0].double(), fields.projection[0].double()
    # Projection is linear, so that of the difference is the difference of the two effective attentions.
    seen = effective(
        fields.value, fields.projection, (difference @ value)[None], allowed=fields.allowed, precision=fields.precision
    ).dense()[0]
    values = {
        "one": plain.one, "infinity": plain.infinity,
        # As it was made, not as it comes out after rounding: within a set this one tells nothing apart.
        "frobenius": made.size,
        "spectral": plain.spectral, "structure": plain.structure, "structure_cut": cut.structure,
        "effective": seen.norm(), "head_output": (difference @ value @ projection).norm(),
    }  # fmt: skip
    return [float(values[name]) for name in DISTANCES]


def _effects(before: Trace, after: Rerun) -> list[float]:
    hidden = [
        (after.streams[name][-1], part.hidden_states[-1])
        for name, part in before.streams.items()
        if part.hidden_states and name in after.streams
    ]
    logits = [] if before.logits is None or after.logits is None else [(after.logits, before.logits)]
    other = [float(wide(new.argmax(-1) != old.argmax(-1)).mean()) for new, old in logits]
    return [_relative(hidden), _relative(logits), other[0] if other else float("nan")]


def _relative(pairs: list[tuple[Tensor, Tensor]]) -> float:
    """Frobenius norm of all changes together over that of all originals; NaN without any."""
    if not pairs:
        return float("nan")
    change = sum(float((wide(new) - wide(old)).square().sum()) for new, old in pairs)
    size = sum(float(wide(old).square().sum()) for _, old in pairs)
    return (change / size) ** 0.5 if size > 0 else float("nan")


def _result(
    distances: np.ndarray,
    effects: np.ndarray,
    sizes: np.ndarray,
    used: list[int],
    resamples: int,
    seed: int,
    provenance: dict[str, Any],
) -> xr.Dataset:
    known = [place for place in range(len(OUTCOMES)) if not np.isnan(effects[..., place]).any()]
    if not known:
        raise InputError("the model shows neither hidden states nor logits, so no effect can be measured.")
    effects = effects[..., known]
    against = DISTANCES.index("structure")
    predictions = [
        rank_correlation(list(distances), list(effects[..., place]), against=against, resamples=resamples, seed=seed)
        for place in range(len(known))
    ]
    undirected = KINDS.index("any")
    alone = [
        rank_correlation(
            list(distances[:, :, [undirected]]),
            list(effects[:, :, [undirected], place]),
            resamples=resamples,
            seed=seed,
        )
        for place in range(len(known))
    ]
    names = (
        "correlation", "low", "high", "difference", "difference_low", "difference_high",
        "agreement", "agreement_low", "agreement_high",
    )  # fmt: skip
    keep, broken = KINDS.index("keep"), KINDS.index("break")
    ratios = [
        paired_ratio(
            list(effects[:, :, broken, place]), list(effects[:, :, keep, place]), resamples=resamples, seed=seed
        )
        for place in range(len(known))
    ]
    ratio_names = {"ratio": "", "low": "_low", "high": "_high", "larger": "_share"}
    return make_result(
        "perturbation_effects",
        {name: (("distance", "outcome"), np.stack([getattr(one, name) for one in predictions], 1)) for name in names}
        | {
            f"correlation_any{end}": (("distance", "outcome"), np.stack([getattr(one, name) for one in alone], 1))
            for name, end in {"correlation": "", "low": "_low", "high": "_high"}.items()
        }
        | {
            f"break_over_keep{end}": (("outcome",), [getattr(one, name) for one in ratios])
            for name, end in ratio_names.items()
        }
        | {
            "measured": (("text", "set", "noise", "distance"), distances),
            "effect": (("text", "set", "noise", "outcome"), effects),
            "size": (("text", "set"), sizes),
        },
        coordinates={
            "distance": list(DISTANCES), "outcome": [OUTCOMES[place] for place in known], "noise": list(KINDS),
            "text": used,
        },
        provenance=provenance,
    )  # fmt: skip
