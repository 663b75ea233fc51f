"""What an outcome loses without each head, over texts: by gradient and by ablation, of pairs, and of many at once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identiscope.capture.site import Site
from identiscope.capture.trace import Trace
from identiscope.errors import IdentiscopeError, InputError
from identiscope.linalg.devices import as_numpy
from identiscope.methods.fields import layer_fields
from identiscope.methods.heads.head_importance import INSTEAD, one_by_one, replaced
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.trace_fields import runs_of
from identiscope.runs.heads.means import Means
from identiscope.runs.heads.traced import own_sites

#: What may stand for a head: as for one text, the mean being that of the corpus, and what it returned on another text.
WITHOUT = {**INSTEAD, "mean": "its mean over the corpus", "resample": "what it returned on another text"}
#: Most heads of a model of which all pairs are tried.
MOST_HEADS_OF_PAIRS = 150
#: Choices of heads that a choice to drop is compared with.
RANDOM_CHOICES = 5

Array = NDArray[np.float64]


@dataclass(eq=False)
class Importance:
    """Sums over texts. kinds: of `WITHOUT`. outcome: what is asked of a text, by its number, as `trace.outcome` takes
    it.

    The texts are seen twice: first for the means of what heads return, then for the outcomes.
    """

    kinds: tuple[str, ...]
    outcome: Callable[[int], Any]
    changes: dict[str, Means] = field(default_factory=dict)
    sizes: dict[str, Means] = field(default_factory=dict)
    gate: Means = field(default_factory=Means)
    values: Means = field(default_factory=Means)
    failed: list[str] = field(default_factory=list)
    #: Of each text, by its number, sizes of changes and of the gate's gradient by name: [layer, head].
    rows: dict[int, dict[str, Array]] = field(default_factory=dict)
    name: str = ""
    passes: float = 0.0
    _sums: list[Tensor] = field(default_factory=list)
    _tokens: int = 0
    _other: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        strange = [kind for kind in self.kinds if kind not in WITHOUT]
        if strange:
            raise InputError(f"ablation by {', '.join(strange)} was asked for; there are {', '.join(WITHOUT)}.")

    def add_mean(self, trace: Trace) -> None:
        """One text, for what heads return on average and on another text."""
        own = [site.context.double() for site in own_sites(trace)]
        sums = [context.sum(1) for context in own]
        self._sums = sums if not self._sums else [old + new for old, new in zip(self._sums, sums, strict=True)]
        self._tokens += len(trace.main)
        self._other = [context.clone() for context in own]

    def add(self, trace: Trace, number: int) -> None:
        """One text, after the means of all; one of which the outcome cannot be had is counted, and left out."""
        try:
            runs = runs_of(trace, self.outcome(number))
            changes, gates = self._changes(trace, runs)
        except IdentiscopeError as error:
            self.failed.append(f"text {number}: {error}")
            return
        finally:
            # The next text is given what heads returned on this one.
            self._other = [site.context.double() for site in own_sites(trace)]
        self.name, self.passes = runs.outcome.name, self.passes + runs.passes
        self.values.add(np.asarray(runs.outcome.value))
        self.gate.add(np.abs(gates))
        self.rows[number] = {"gate_gradient": np.abs(gates)}
        for kind, values in changes.items():
            self.changes.setdefault(kind, Means()).add(values)
            self.sizes.setdefault(kind, Means()).add(np.abs(values))
            self.rows[number] |= {f"{kind}_change": values, f"{kind}_size": np.abs(values)}

    def _changes(self, trace: Trace, runs: OutcomeRuns) -> tuple[dict[str, Array], Array]:
        layers: list[Array] = []
        gates: list[Array] = []
        for place, site in enumerate(own_sites(trace)):
            fields = layer_fields(site, trace.streams)
            instead = {kind: self._instead(kind, place, site) for kind in self.kinds}
            values = runs.with_contexts(site.index, one_by_one(site.context, instead))
            layers.append(as_numpy(values[1:].reshape(len(instead), -1) - values[0]))
            gates.append(as_numpy((fields.attention * runs.attention_gradient(site.index)).sum((1, 2))))
        stacked = np.stack(layers, 1)
        return dict(zip(self.kinds, stacked, strict=True)), np.stack(gates)

    def _instead(self, kind: str, place: int, site: Site) -> Tensor:
        if kind == "mean":
            return (self._sums[place] / self._tokens)[:, None].expand_as(site.context)
        if kind == "resample":
            other = self._other[place]
            return other[:, torch.arange(site.queries) % other.shape[1]]
        fields = layer_fields(site)
        value = fields.value.double().repeat_interleave(len(site.heads) // len(fields.value), 0)
        given = fields.projection, site.context, fields.allowed, fields.precision, fields.row_sum
        return replaced(kind, fields.attention, value, *given)

    def arrays(self) -> dict[str, Array]:
        """Means over texts [layer, head], and their errors: of |∂y/∂ξ|, of changes, and of the sizes of changes."""
        arrays = {"gate_gradient": self.gate.mean, "gate_gradient_error": self.gate.error}
        for kind, means in self.changes.items():
            arrays |= {f"{kind}_change": means.mean, f"{kind}_change_error": means.error}
            size = self.sizes[kind]
            arrays |= {f"{kind}_size": size.mean, f"{kind}_size_error": size.error}
        return arrays


def pair_changes(trace: Trace, outcome: Any) -> tuple[Array, Array]:
    """y without each head [head], and without each pair of them [head, head], less y: all heads in one row."""
    sites = own_sites(trace)
    places = [(site.index, head) for site in sites for head in range(len(site.heads))]
    if len(places) > MOST_HEADS_OF_PAIRS:
        raise InputError(
            f"pairs of {len(places)} heads were asked for; all pairs are tried of at most {MOST_HEADS_OF_PAIRS} heads."
        )
    runs = runs_of(trace, outcome)
    before = runs.outcome.value
    alone = np.array([float(runs.gated(_gates(sites, [[place]]))[0]) - before for place in places])
    both = np.zeros((len(places), len(places)))
    # Pairs whose lower head is the same go on from the same layer, together.
    for first, place in enumerate(places):
        others = list(range(first + 1, len(places)))
        for part in np.array_split(others, max(1, -(-len(others) // 32))) if others else ():
            values = runs.gated(_gates(sites, [[place, places[other]] for other in part]))
            both[first, part] = both[part, first] = as_numpy(values) - before
    np.fill_diagonal(both, alone)
    return alone, both


def _gates(sites: Sequence[Site], without: Sequence[Sequence[tuple[int, int]]]) -> dict[int, Tensor]:
    """By call [variant, head]: zero for the heads (call, head) that each variant goes without."""
    touched = sorted({index for heads in without for index, _ in heads})
    gates = {site.index: torch.ones(len(without), len(site.heads)) for site in sites if site.index in touched}
    for variant, heads in enumerate(without):
        for index, head in heads:
            gates[index][variant, head] = 0
    return gates


def pruning_cost(
    traces: Iterable[tuple[int, Trace]], outcome: Callable[[int], Any], order: Sequence[int], count: int, seed: int
) -> dict[str, Any]:
    """What dropping `count` heads really costs on texts that had no say in which: the mean change of the outcome, and
    the mean size of these changes, which cannot cancel, each with its error; beside as many heads drawn at random.
    `saved`: by how much the size is below that at random on the same text.

    order: all heads of the model in one row, the least important first.
    """
    generator = np.random.default_rng(seed)
    choices = [list(order[:count])]
    choices += [generator.permutation(len(order))[:count].tolist() for _ in range(RANDOM_CHOICES)]
    means, sizes, saved = [Means() for _ in choices], Means(), Means()
    failed = 0
    for number, trace in traces:
        sites = own_sites(trace)
        places = [(site.index, head) for site in sites for head in range(len(site.heads))]
        try:
            runs = runs_of(trace, outcome(number))
            values = runs.gated(_gates(sites, [[places[place] for place in choice] for choice in choices]))
            changes = as_numpy(values) - runs.outcome.value
        except IdentiscopeError:
            failed += 1
            continue
        for one, change in zip(means, changes, strict=True):
            one.add(np.asarray(change))
        size, at_random = np.abs(changes[0]), np.abs(changes[1:]).mean()
        sizes.add(np.array([size, at_random]))
        saved.add(np.asarray(at_random - size))
    if not sizes.count.shape:
        raise InputError(f"the outcome could not be had on any of the {failed} texts held back for dropping heads.")
    drawn = [float(one.mean) for one in means[1:]]
    return {
        "heads": count,
        "change": float(means[0].mean),
        "change_error": float(means[0].error),
        "random_change": float(np.mean(drawn)),
        "random_changes": drawn,
        "size": float(sizes.mean[0]),
        "size_error": float(sizes.error[0]),
        "random_size": float(sizes.mean[1]),
        "random_size_error": float(sizes.error[1]),
        "saved": float(saved.mean),
        "saved_error": float(saved.error),
        "texts": int(means[0].count),
        "failed": failed,
    }
