"""What is asked of traces of some texts of a corpus: distances, intervals, importance, syntax, pairs, pruning."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from identiscope.capture.capturing import trace
from identiscope.capture.inputs import token_row
from identiscope.capture.limits import token_names
from identiscope.capture.models import Model
from identiscope.capture.trace import Trace
from identiscope.corpus.dependencies import read_dependencies
from identiscope.corpus.readers import Corpus, Text
from identiscope.errors import InputError
from identiscope.methods.structure.head_distances import scaled_to_plane
from identiscope.progress import Progress, tell
from identiscope.results import make_result
from identiscope.runs.heads.against import TwoModels
from identiscope.runs.heads.against_maps import map_differences
from identiscope.runs.heads.importance import Importance, pair_changes, pruning_cost
from identiscope.runs.heads.means import Means
from identiscope.runs.heads.options import HeadOptions
from identiscope.runs.heads.shortening import Shortening
from identiscope.runs.heads.syntax import Syntax
from identiscope.runs.heads.traced import Distances, Intervals, Rarest, evenly, interval_cost

#: So many tokens the text has, or nearly, of which maps of two models are shown.
PICTURED = 24


class Study:
    """What is asked of traces."""

    def __init__(
        self,
        model: Model,
        chosen: Sequence[Text],
        counts: Counter[str],
        options: HeadOptions,
        progress: Progress | None,
        announce: Callable[[str], None] | None = None,
        each_distance: bool = False,
    ) -> None:
        self.model, self.chosen, self.options, self.progress = model, chosen, options, progress
        self.announce = announce
        self.distances = Distances(8, options.seed, each=[] if each_distance else None)
        self.rarest = Rarest(counts)
        self.intervals = Intervals(options.rows, options.seed)
        self.shown = float("nan")
        self.importance = Importance(options.without, self.outcome) if options.without else None

    def outcome(self, number: int) -> Any:
        """What is explained of a text that is traced."""
        if self.options.outcome is not None or self._has_logits:
            return self.options.outcome
        other = self.chosen[(number + 1) % len(self.chosen)]
        return f"similarity:{' '.join(other.parts)}"

    @property
    def causal(self) -> bool:
        """Whether no token sees a later one."""
        return any(site.kind == "decoder-self" for site in self._first.sites)

    @property
    def outcome_in_words(self) -> str:
        """What heads matter for."""
        if self.importance is None:
            return "none"
        given = self.options.outcome is not None or self._has_logits
        next_text = "the next text" if len(self.chosen) > 1 else "the same text, the only one, as the model has it"
        return self.importance.name if given else f"cosine of the mean state with that of {next_text}"

    @property
    def _has_logits(self) -> bool:
        return self._first.logits is not None

    @property
    def _first(self) -> Trace:
        if not hasattr(self, "_kept"):
            self._kept = self._trace(self.chosen[0])
        return self._kept

    def _trace(self, text: Text) -> Trace:
        return trace(self.model, token_row(self.model, text.parts, self.options.max_tokens))

    def _traces(self, words: str, places: Sequence[int] | None = None) -> Iterator[tuple[int, Trace]]:
        """The chosen texts one after the other, none of them kept."""
        numbers = range(len(self.chosen)) if places is None else places
        for done, number in enumerate(numbers, 1):
            yield number, self._trace(self.chosen[number])
            tell(self.progress, words, done, len(numbers))

    def arrays(self, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """Numbers [layer, head] of importance, distances, the rarest token and intervals."""
        with_intervals = set(evenly(len(self.chosen), self.options.intervals)) if self.options.intervals else set()
        if with_intervals and self.announce is not None:
            self.announce(interval_cost(len(with_intervals), shape[0] * shape[1], self.options.rows))
        for number, traced in self._traces("distances and intervals"):
            self.distances.add(traced)
            self.rarest.add(traced, number)
            if number in with_intervals:
                self.intervals.add(traced)
            if self.importance is not None:
                self.importance.add_mean(traced)
        places, self.shown = scaled_to_plane(self.distances.means.mean)
        arrays = {"map_x": places[:, 0].reshape(shape), "map_y": places[:, 1].reshape(shape)}
        for name, means in (("to_rarest", self.rarest.means), ("simplex_to_rarest", self.rarest.simplex)):
            arrays |= {name: means.mean, f"{name}_error": means.error}
        arrays = {name: np.broadcast_to(values, shape).copy() for name, values in arrays.items()}
        if with_intervals:
            arrays |= self.intervals.arrays()
        if self.importance is not None:
            # Half of the texts say which heads to drop; the others what that costs.
            held = self.held_back()
            for number, traced in self._traces("heads left out", [n for n in range(len(self.chosen)) if n not in held]):
                self.importance.add(traced, number)
            if self.importance.changes:
                arrays |= self.importance.arrays()
        return arrays

    def held_back(self) -> set[int]:
        """The texts on which dropping heads is tried: every other one, if it is asked for."""
        return set(range(1, len(self.chosen), 2)) if self.options.prune else set()

    def relations(self, conllu: Path | None) -> tuple[list[dict[str, Any]], int, int]:
        """The best head of each relation, of how many sentences, and how many were too long."""
        if conllu is None:
            return [], 0, 0
        syntax, skipped = Syntax(), 0
        for sentence in read_dependencies(conllu, self.options.sentences):
            traced = self._trace(Text((sentence.text,)))
            if traced.main.cut:
                skipped += 1
                continue
            syntax.add(traced, sentence)
            tell(self.progress, "dependencies", syntax.sentences, self.options.sentences or syntax.sentences + 1)
        return syntax.table(), syntax.sentences, skipped

    def rows(self, layers: Sequence[int], heads: Sequence[int]) -> xr.Dataset:
        """What there is of each text that was traced, [text, layer, head]: the rarest token, and importance."""
        parts = [self.rarest.rows] + ([] if self.importance is None else [self.importance.rows])
        names = dict.fromkeys(
            name for part in parts for row in part.values() for name in row if not name.startswith("null_")
        )
        arrays = {name: np.full((len(self.chosen), len(layers), len(heads)), np.nan) for name in names}
        for part in parts:
            for number, row in part.items():
                for name in names.keys() & row.keys():
                    arrays[name][number] = row[name]
        axes = ("text", "layer", "head")
        labels = {"text": range(len(self.chosen)), "layer": list(layers), "head": list(heads)}
        return xr.Dataset({name: (axes, values) for name, values in arrays.items()}, coords=labels)

    def against(self, other: Model) -> TwoModels:
        """The chosen texts as another model reads them."""
        two = TwoModels()
        for number, traced in self._traces("the other model"):
            ids = token_row(other, self.chosen[number].parts, self.options.max_tokens)
            two.add(traced, trace(other, ids), number)
        return two

    def map_differences(self, other: Model, two: TwoModels) -> xr.Dataset:
        """Maps of both models, cell by cell, of the text that is nearest to what a picture holds."""
        number = min(two.tokens, key=lambda text: abs(two.tokens[text] - PICTURED))
        ids = token_row(other, self.chosen[number].parts, self.options.max_tokens)
        return map_differences(self._trace(self.chosen[number]), trace(other, ids), two.matches())

    def pairs(self, heads: Sequence[tuple[int, int]]) -> xr.Dataset | None:
        """What the outcome loses without two heads, over some texts."""
        if not self.options.pairs:
            return None
        alone, both = Means(), Means()
        for number, traced in self._traces("pairs of heads", evenly(len(self.chosen), self.options.pairs)):
            single, double = pair_changes(traced, self.outcome(number))
            alone.add(single)
            both.add(double)
        names = [f"{layer}.{head}" for layer, head in heads]
        arrays = {
            "alone": (("first",), alone.mean),
            "both": (("first", "second"), both.mean),
            "both_error": (("first", "second"), both.error),
        }
        return make_result("head_pairs", arrays, coordinates={"first": names, "second": names}, provenance={})

    def shortened(self) -> xr.Dataset | None:
        """What the outcome loses when texts are shortened, and what that saves."""
        if not self.options.shorten:
            return None
        study = Shortening(self.outcome, self.options.seed, lambda number: self.chosen[number].label)
        for number, traced in self._traces("shortened texts"):
            study.add(traced, number)
        if not np.max(study.moved.count):
            raise InputError(f"no text could be shortened: {study.failed[0]}.")
        return study.result()

    def prune(self, heads: Sequence[tuple[int, int]]) -> dict[str, Any] | None:
        """Which heads to drop by what half of the texts say, and what that costs on the other half."""
        count = self.options.prune
        if not count:
            return None
        if self.importance is not None and self.importance.failed and not self.importance.sizes:
            raise InputError(f"no text says which heads to drop: {self.importance.failed[0]}")
        assert self.importance is not None
        order = np.argsort(self.importance.sizes["zero"].mean.ravel(), kind="stable").tolist()
        held = sorted(self.held_back())
        cost = pruning_cost(self._traces("dropping heads", held), self.outcome, order, count, self.options.seed)
        return {"drop": [list(heads[place]) for place in order[:count]], **cost}


def chosen_texts(model: Model, corpus: Corpus, most: int) -> tuple[list[Text], Counter[str]]:
    """At most so many texts, spread over the corpus, and how often each token is in all of it; nothing else is kept."""
    counts: Counter[str] = Counter()
    tokenizer: Any = model.tokenizer
    total = 0
    for text in _not_empty(corpus):
        total += 1
        for part in text.parts:
            counts.update(token_names(model, tokenizer(part, add_special_tokens=False)["input_ids"]))
    places = set(evenly(total, most))
    return [text for place, text in enumerate(_not_empty(corpus)) if place in places], counts


def _not_empty(corpus: Corpus) -> Iterator[Text]:
    return (text for text in corpus.read() if all(part.strip() for part in text.parts))
