"""What is asked of a trace of some texts of a corpus: distances between heads, the rarest token, intervals."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identiscope.asking.ask import ask
from identiscope.capture.site import Site
from identiscope.capture.trace import Trace
from identiscope.linalg.devices import as_numpy
from identiscope.methods.fields import layer_fields
from identiscope.methods.heads.attends_interval import WITH_INTERVAL
from identiscope.methods.heads.both_maps import both_maps
from identiscope.methods.structure.head_distances import head_distances
from identiscope.runs.heads.means import Means


def own_sites(trace: Trace) -> list[Site]:
    """The attention of a text to itself, by layer."""
    return [site for site in trace.sites if site.query_stream == site.key_stream == trace.main.name]


def both_of(site: Site) -> Tensor:
    """Raw maps of all heads of a site, and behind them those that no rewriting changes: [2·head, query, key]."""
    fields = layer_fields(site)
    given = fields.value, fields.projection, fields.allowed, fields.precision, fields.row_sum
    return both_maps(fields.attention, *given)


@dataclass(eq=False)
class Distances:
    """Jensen–Shannon distances of all heads, of rows that are drawn from each text."""

    rows: int
    seed: int
    means: Means = field(default_factory=Means)
    #: Those of each text, where they are kept for another model.
    each: list[NDArray[np.float64]] | None = None

    def add(self, trace: Trace) -> None:
        """Some rows of all heads of one text."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.randperm(len(trace.main), generator=generator)[: self.rows].sort().values
        maps = torch.cat([site.attentions()[:, drawn] for site in own_sites(trace)])
        found = as_numpy(head_distances(maps))
        self.means.add(found)
        if self.each is not None:
            self.each.append(found)


@dataclass(eq=False)
class Rarest:
    """Voita et al. 2019, §5.3: how often a head's strongest key is the rarest token of the text; [layer, head] of raw
    maps (`means`) and of those that no rewriting changes (`simplex`).

    counts: of tokens in the corpus. Texts in which several tokens are the rarest have several to hit; special tokens
    are neither queries nor keys. `chance` is what a head that looks anywhere would have.
    """

    counts: Counter[str]
    means: Means = field(default_factory=Means)
    simplex: Means = field(default_factory=Means)
    chance: Means = field(default_factory=Means)
    #: Of each text, by its number, both shares by name: [layer, head].
    rows: dict[int, dict[str, NDArray[np.float64]]] = field(default_factory=dict)

    def add(self, trace: Trace, number: int) -> None:
        """One text."""
        tokens, special = trace.main.tokens, torch.tensor(trace.main.special)
        if int((~special).sum()) < 2:
            return
        counts = torch.tensor([float(self.counts[token]) for token in tokens]).masked_fill(special, torch.inf)
        rare = counts == counts.min()
        shares = []
        for site in own_sites(trace):
            inside = site.allowed_keys(site.heads[0]).cpu() & ~special
            maps = both_of(site).cpu().masked_fill(~inside, -torch.inf)
            # Only rows that may see it, and more than one token.
            rows = ~special & (inside & rare).any(-1) & (inside.sum(-1) > 1)
            hits = rare[maps.argmax(-1)][:, rows].double()
            shares.append(as_numpy(hits.mean(-1)) if int(rows.sum()) else np.full(len(maps), np.nan))
            chance = ((inside & rare).sum(-1) / inside.sum(-1).clamp(min=1))[rows].double().mean()
        raw, simplex = np.split(np.stack(shares), 2, axis=1)
        self.means.add(raw)
        self.simplex.add(simplex)
        self.rows[number] = {"to_rarest": raw, "simplex_to_rarest": simplex}
        self.chance.add(np.asarray(float(chance)))


@dataclass(eq=False)
class Intervals:
    """The intervals of what heads look at, of rows that are drawn from each text."""

    rows: int
    seed: int
    means: dict[str, Means] = field(default_factory=dict)

    def add(self, trace: Trace) -> None:
        """One text."""
        found = ask("attends_interval", trace, sample=self.rows, seed=self.seed, attention=own_sites(trace)[0].kind)
        for name in WITH_INTERVAL:
            for end in ("", "_lower", "_upper"):
                self.means.setdefault(name + end, Means()).add(found[name + end].values)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Means over texts [layer, head] and their errors, which have in them what drawing rows leaves open."""
        means = {f"interval_{name}": one.mean for name, one in self.means.items()}
        return means | {f"interval_{name}_error": one.error for name, one in self.means.items()}


def interval_cost(texts: int, heads: int, rows: int) -> str:
    """What intervals will cost, in words; rows of fewer than a hundred tokens take less.

    >>> interval_cost(2, 72, 4)
    'intervals: 14976 linear programs (2 texts, 72 heads, 13 statistics, 4 rows, 2 ends), about 15 s at 100 tokens'
    """
    programs = texts * heads * len(WITH_INTERVAL) * rows * 2
    of = f"{texts} texts, {heads} heads, {len(WITH_INTERVAL)} statistics, {rows} rows, 2 ends"
    return f"intervals: {programs} linear programs ({of}), about {programs / 1000:.0f} s at 100 tokens"


def evenly(count: int, most: int) -> list[int]:
    """The numbers of at most so many texts, spread over all.

    >>> evenly(10, 3)
    [0, 3, 6]
    """
    return [place * count // most for place in range(most)] if most < count else list(range(count))
