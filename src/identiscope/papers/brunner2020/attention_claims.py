"""What Brunner et al. (2020) say of raw and effective attention, judged by the numbers alone.

What was published is quoted with the paper's numbers of layers, which it counts from 1: its layer l is block l − 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from identiscope.papers.brunner2020.attention_figures import CLS, OTHER, POINT, SEP
from identiscope.papers.judging import Answer, Array, above, all_of, below, bootstrap
from identiscope.views.plots.figures import Claim

#: A correlation that is one but for rounding.
ONE = 0.999
#: Attention has vanished from a type of token that keeps less than this share of what other tokens keep of theirs.
VANISHED = 0.5
#: A type of token attracts attention if it gets so many times what uniform attention would give it.
ATTRACTS = 2.0

Places = NDArray[np.int64]


def correlation_claims(correlation: Array, lengths: Array, channels: int) -> Iterator[Claim]:
    """Fig. 1a. correlation [text, layer, head] of raw and effective attention, lengths [text]; channels: d_v."""
    short = correlation[lengths <= channels]
    if np.isfinite(short).any():
        least = float(np.nanmin(short))
        yield Claim(
            statement=f"raw and effective attention are one up to d_v = {channels} tokens",
            source="§3.5, Fig. 1a",
            published="for fewer than d_v = 64 tokens attention and effective attention are identical: correlation 1",
            rule=f"every head of every text of at most {channels} tokens has a correlation above {ONE}",
            here=f"least {least:.4f} over {len(short)} texts",
            holds=least > ONE,
        )
    long = lengths > channels
    if long.any():
        means, longer = np.nanmean(correlation[long], axis=(1, 2)), lengths[long]
        slope = bootstrap(len(means), lambda places: _slope(longer[places], means[places]))
        yield Claim(
            statement=f"beyond {channels} tokens they differ more, the longer the text",
            source="§3.5, Fig. 1a",
            published="the correlation decreases with sequence length (no number)",
            rule="correlation of length and mean correlation over texts is below 0, its interval over texts too;"
            " follows from eq. 6, so that random values show it as well",
            here=f"mean {np.nanmean(means):.2f}; with length {slope.said()}, {len(means)} texts",
            holds=below(slope),
        )


def _slope(lengths: Array, values: Array) -> float:
    """Pearson correlation; NaN where either does not vary."""
    known = np.isfinite(values)
    if known.sum() < 3 or np.ptp(lengths[known]) == 0 or np.ptp(values[known]) == 0:
        return float("nan")
    return float(np.corrcoef(lengths[known], values[known])[0, 1])


@dataclass(frozen=True, eq=False)
class Types:
    """Attention between types of token: maps [text, layer, from, to] by name, queries [text, from], names of axes."""

    maps: dict[str, Array]
    queries: Array
    sources: list[str]
    targets: list[str]

    @property
    def texts(self) -> int:
        """How many texts."""
        return len(self.queries)

    @property
    def layers(self) -> int:
        """How many layers."""
        return int(self.maps["raw"].shape[1])

    def has(self, *names: str) -> bool:
        """Whether every one of these types is in some text."""
        return all(self.queries[:, self.sources.index(name)].any() for name in names)

    def weight(self, name: str, to: str, places: Places, source: str = "all") -> Array:
        """Weight that queries of type `source` give to all keys of a type, [layer], in the texts at these places."""
        at, queries = self.sources.index(source), self.queries[places, self.sources.index(source)]
        values = self.maps[name][places, :, at, self.targets.index(to)]
        total = queries.sum()
        result: Array = queries @ values / total if total > 0 else np.full(self.layers, np.nan)
        return result

    def kept(self, to: str, places: Places, source: str = "all") -> Array:
        """Effective over raw weight by layer, [layer]."""
        raw = self.weight("raw", to, places, source)
        effective = self.weight("effective", to, places, source)
        result: Array = np.divide(effective, raw, out=np.full(self.layers, np.nan), where=raw > 0)
        return result

    def uniform(self, to: str) -> float:
        """What uniform attention would give to a type: its share of the tokens, over all texts."""
        return float(self.queries[:, self.sources.index(to)].sum() / self.queries[:, self.sources.index("all")].sum())


def types_of(given: xr.Dataset) -> Types:
    """What `attention_between_types` gave."""
    axes = ("text", "layer", "from", "to")
    maps = {name: np.nan_to_num(given[f"{name}_of_text"].transpose(*axes).values) for name in ("raw", "effective")}
    queries = given["queries"].transpose("text", "from").values.astype(np.float64)
    return Types(maps, queries, list(map(str, given["from"].values)), list(map(str, given["to"].values)))


def _vanishes(types: Types, to: str, layer: Callable[[Array], Any], source: str = "all") -> tuple[Answer, str]:
    """Whether a type keeps far less of its raw weight than other tokens do; layer: which of [layer], or their mean.

    Effective attention is smaller than raw attention for every token, so what others keep is what it is held to.
    """

    def lost(places: Places) -> list[float]:
        one, others = (float(layer(types.kept(name, places, source))) for name in (to, OTHER))
        return [others, VANISHED * others - one]

    everyone = np.arange(types.texts)
    one, others = (float(layer(types.kept(name, everyone, source))) for name in (to, OTHER))
    answer = above(bootstrap(types.texts, lost))
    return answer, f"{to} keeps {100 * one:.0f} % of its raw attention, other tokens {100 * others:.0f} %"


RULE_VANISHED = (
    f"the share of its raw attention that is left in effective attention is below {VANISHED:g} of the share that"
    " other tokens keep, its interval over texts too"
)


def peak_claims(given: xr.Dataset) -> Iterator[Claim]:
    """Fig. 1b and 1c. given: what `attention_between_types` gave."""
    types = types_of(given)
    everyone = np.arange(types.texts)
    for to, source, published in (
        (SEP, "§3.5, Fig. 1b and 1c", "the peak of [SEP] in the middle layers has disappeared"),
        (POINT, "§3.5, Fig. 1b and 1c", "so has the sharp peak on punctuation in layers 10 to 12, counted from 1"),
    ):
        if not types.has(to, OTHER):
            continue
        raw = types.weight("raw", to, everyone)
        peak, uniform = int(raw.argmax()), types.uniform(to)
        answer, said = _vanishes(types, to, lambda values, peak=peak: values[peak])  # type: ignore[misc]
        attracts = bool(raw[peak] >= ATTRACTS * uniform)
        yield Claim(
            statement=f"the peak of raw attention to “{to}” is gone in effective attention",
            source=source,
            published=published + " (no number)",
            rule=f"at the layer where raw attention to it peaks, at {ATTRACTS:g} times its share of the tokens or more,"
            f" {RULE_VANISHED}",
            here=f"layer {peak}: {said}; raw {raw[peak]:.2f}, its share of the tokens {uniform:.2f}",
            # Where it gets no more than its share there is no peak that could be gone.
            holds=answer if attracts else None,
        )
    if types.has(CLS, SEP, POINT):
        yield _order_claim(types)


def _order_claim(types: Types) -> Claim:
    everyone = np.arange(types.texts)
    # Which of the two is the sink differs between models.
    sink = max((CLS, SEP), key=lambda to: float(types.weight("raw", to, everyone).mean()))

    def ahead(places: Places) -> list[float]:
        effective, raw = (
            {to: float(types.weight(name, to, places).mean()) for to in (CLS, SEP, POINT)}
            for name in ("effective", "raw")
        )
        return [effective[POINT] - effective[CLS], effective[POINT] - effective[SEP], raw[sink] - raw[POINT]]

    means = {
        name: " · ".join(f"{to} {types.weight(name, to, everyone).mean():.3f}" for to in (CLS, SEP, POINT))
        for name in ("raw", "effective")
    }
    return Claim(
        statement="in effective attention periods and commas attract more than [CLS] and [SEP]",
        source="§3.5, Fig. 1c",
        published="periods and commas seem to generally attract more attention than [CLS] and [SEP] (no number)",
        rule="mean over layers: effective attention to periods and commas is above that to [CLS] and to [SEP], while"
        f" raw attention to {sink} is above that to them, each by its interval over texts; without the latter the claim"
        " would hold of uniform attention, since there are more of them",
        here=f"effective: {means['effective']}; raw: {means['raw']}",
        holds=above(bootstrap(types.texts, ahead)),
    )


def separator_claims(given: xr.Dataset) -> Iterator[Claim]:
    """Fig. 5. given: what `attention_between_types` gave."""
    types = types_of(given)
    if not types.has(SEP, OTHER):
        return
    answer, said = _vanishes(types, SEP, np.nanmean, OTHER)

    def most(places: Places) -> float:
        return float(np.nanmean(types.kept(SEP, places, OTHER)))

    yield Claim(
        statement="most of the raw attention from other tokens to [SEP] lies in the null space",
        source="A.2, Fig. 5",
        published="most of the raw attention lies effectively in the null space (no number)",
        rule=f"mean over layers: less than half of it is left in effective attention, and {RULE_VANISHED}",
        here=f"from other tokens, {said}",
        holds=all_of([answer, below(bootstrap(types.texts, most), 0.5)]),
    )


def example_layer(layers: int) -> int:
    """The layer of Fig. 6, counted from 0: the fourth of twelve, or as far up in a model of another depth."""
    return max(0, round(4 * layers / 12) - 1)


def passage_claims(given: xr.Dataset) -> Iterator[Claim]:
    """Fig. 6, not of one head that was chosen for it but of all heads of its layer, on all passages."""
    types = types_of(given)
    layer = example_layer(types.layers)
    if not types.has(CLS, SEP, OTHER):
        return
    answers = [_vanishes(types, to, lambda values: values[layer]) for to in (CLS, SEP)]
    yield Claim(
        statement=f"at layer {layer}, attention to [CLS] and to [SEP] is null attention",
        source="A.3, Fig. 6",
        published="“the attention on [CLS] and [SEP] has vanished”, of one head of layer 4 of 12 (from 1) on a passage",
        rule=f"mean over all heads of the layer and all passages: for both, {RULE_VANISHED}",
        here="; ".join(said for _, said in answers),
        holds=all_of(answer for answer, _ in answers),
    )
