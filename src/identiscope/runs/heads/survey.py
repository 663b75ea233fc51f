"""All that is asked of the heads of a model over a corpus: a Run of statistics, and studies of some of its texts."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from identiscope.capture.limits import position_limit
from identiscope.capture.models import Model, load
from identiscope.corpus.dependencies import read_dependencies
from identiscope.corpus.readers import Corpus
from identiscope.errors import InputError
from identiscope.files import printable
from identiscope.methods.registry import of_kind
from identiscope.progress import Progress, say
from identiscope.results import make_result
from identiscope.runs.compute.methods import RUN_METHODS
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.opened_run import Run
from identiscope.runs.heads.against import COMPARED, compared_runs
from identiscope.runs.heads.against_maps import distance_differences
from identiscope.runs.heads.importance import WITHOUT
from identiscope.runs.heads.options import HeadOptions
from identiscope.runs.heads.study import Study, chosen_texts
from identiscope.runs.heads.syntax import FEWEST

#: The methods whose columns every survey has.
STATISTICS = tuple(one.name for one in of_kind("head") if "of heads" in one.tags)


@dataclass(frozen=True, eq=False)
class HeadSurvey:
    """heads: numbers [layer, head], each with its `_error`, and places of the map [layer, head] (x, y). relations: the
    best head of each. pairs [a, b]: y without both, less y. prune: which heads, and what it costs. facts: in words;
    labels: what each number of `heads` is; distances [head, head]: of all heads in one row; against: differences from
    another model, [layer, head]; map_differences: cell by cell, of one text; distance_differences: of every two heads;
    shortened: what the outcome loses in shorter texts, [ranking, share]."""

    heads: xr.Dataset
    labels: Mapping[str, str]
    distances: np.ndarray
    relations: Sequence[Mapping[str, Any]] = ()
    pairs: xr.Dataset | None = None
    prune: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    causal: bool = False
    against: xr.Dataset | None = None
    shortened: xr.Dataset | None = None
    map_differences: xr.Dataset | None = None
    distance_differences: xr.Dataset | None = None


def survey_heads(
    model: Any,
    corpus: Corpus,
    directory: Path,
    *,
    options: HeadOptions | None = None,
    conllu: Path | None = None,
    against: Any = None,
    loading: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> HeadSurvey:
    """Statistics of all texts in a Run (directory/run, which can be gone on with), then studies of some of them.

    against: another model that reads the same tokens; its statistics are in directory/against-run.
    announce: is told what intervals will cost before they are begun.

    >>> survey = survey_heads("minilm", Corpus("passages"), Path("heads"))
    """
    options = options or HeadOptions()
    # What can be refused is refused before all texts are read.
    if options.prune and "zero" not in options.without:
        raise InputError("which heads to drop is told by leaving each out: ablation by zero is needed.")
    if conllu is not None and not any(True for _ in read_dependencies(conllu, options.sentences)):
        raise InputError(f"{printable(conllu)} has no sentences.")
    loaded = model if isinstance(model, Model) else load(model, **(loading or {}))
    second = against if against is None or isinstance(against, Model) else load(against, **(loading or {}))
    known = (options.max_tokens, position_limit(loaded), None if second is None else position_limit(second))
    limits = [limit for limit in known if limit is not None]
    options = replace(options, max_tokens=min(limits, default=None))
    asked = RunOptions(methods=STATISTICS, too_long="cut", max_tokens=options.max_tokens)
    say(progress, "statistics")
    done = run_corpus(model, corpus, directory / "run", options=asked, loading=dict(loading or {}), progress=progress)
    arrays = _of_run(done)
    chosen, counts = chosen_texts(loaded, corpus, options.texts)
    if options.prune and len(chosen) < 2:
        raise InputError("one text cannot be divided; give at least two for the cost of dropping heads.")
    study = Study(loaded, chosen, counts, options, progress, announce, second is not None)
    layers, heads = (done.means(STATISTICS[0])[axis].values.tolist() for axis in ("layer", "head"))
    count = len(layers) * len(heads)
    if options.prune >= count:
        raise InputError(f"{options.prune} heads were to be dropped; the model has {count}, and one must stay.")
    arrays |= study.arrays((len(layers), len(heads)))
    relations, sentences, skipped = study.relations(conllu)
    compared = maps = apart = None
    if second is not None:
        # Tokens that differ are found on some texts, before all of them are read.
        two = study.against(second)
        say(progress, "statistics of the other model")
        where = directory / "against-run"
        other = run_corpus(against, corpus, where, options=asked, loading=dict(loading or {}), progress=progress)
        again = Study(second, chosen, counts, replace(options, intervals=0), progress, each_distance=True)
        places = [other.means(STATISTICS[0])[axis].values.tolist() for axis in ("layer", "head")]
        again.arrays((len(places[0]), len(places[1])))
        compared = compared_runs(done, other, two, STATISTICS, (study.rows(layers, heads), again.rows(*places)))
        maps = study.map_differences(second, two)
        sides = list(itertools.product(layers, heads)), list(itertools.product(*places))
        each = study.distances.each or [], again.distances.each or []
        apart = distance_differences(*each, sides, two.matches(), two.rounding)
    pairs = study.pairs([(layer, head) for layer in layers for head in heads])
    prune = study.prune([(layer, head) for layer in layers for head in heads])
    shortened = study.shortened()
    summary = done.summary
    facts = {
        "model": loaded.name,
        "corpus": corpus.source,
        **({} if second is None else {"against": second.name}),
        "texts": summary["texts"],
        "tokens": summary["tokens"],
        "texts traced": len(chosen),
        "texts with intervals": min(options.intervals, len(chosen)),
        "rows of each": options.rows,
        "outcome": study.outcome_in_words,
        "outcomes that failed": list(study.importance.failed) if study.importance else [],
        "sentences with dependencies": sentences,
        "sentences that were cut and left out": skipped,
        "times that a relation must be met": FEWEST,
        "share of distances on the map": study.shown,
        "rarest token by chance": float(study.rarest.chance.mean),
    }
    dataset = make_result(
        "heads",
        {name: (("layer", "head"), values) for name, values in arrays.items()},
        coordinates={"layer": layers, "head": heads},
        provenance={"model": loaded.name, "corpus": corpus.source, "texts": summary["texts"]},
    )
    distances = study.distances.means.mean
    return HeadSurvey(
        dataset,
        _labels(options),
        distances,
        relations,
        pairs,
        prune,
        facts,
        study.causal,
        compared,
        shortened,
        maps,
        apart,
    )


def _labels(options: HeadOptions) -> dict[str, str]:
    """What each number is, in words."""
    labels = {column.name: column.meaning for name in STATISTICS for column in RUN_METHODS[name].columns}
    for kind in options.without:
        labels[f"{kind}_change"] = f"mean change of the outcome when the head returns {WITHOUT[kind]}"
        labels[f"{kind}_size"] = f"mean size of the change when the head returns {WITHOUT[kind]}"
    return labels | {
        "gate_gradient": "mean size of the gradient of a gate that scales the head",
        **COMPARED,
        "changed_statistics": "how many statistics differ from those of the matched head of the other model",
        "to_rarest": "share of rows whose strongest key is the rarest token of the text",
        "simplex_to_rarest": "the same of effective_simplex_span",
    }


def _of_run(done: Run) -> dict[str, np.ndarray]:
    """Mean and standard error over texts of every column, [layer, head]."""
    arrays = {}
    for name in STATISTICS:
        means = done.means(name)
        for column in means["column"].values.tolist():
            one = means.sel(column=column)
            count, deviation = one["count"].values, one["deviation"].values
            arrays[column] = np.where(count > 0, one["mean"].values, np.nan)
            with np.errstate(invalid="ignore", divide="ignore"):
                arrays[f"{column}_error"] = np.where(count > 1, deviation / np.sqrt(count), np.nan)
    return arrays
