"""What the token experiments share: probes by name, how they are fitted and scored, what a result says of itself."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from identiscope.corpus.hidden_state_cache import HiddenStates, Progress
from identiscope.corpus.splits import split_sentences
from identiscope.errors import InputError
from identiscope.methods.token_direct import fit_linear_directly
from identiscope.methods.token_identifiability import Score, score
from identiscope.methods.token_neighbours import Metric
from identiscope.methods.token_pairs import Pairs
from identiscope.methods.token_probes import Kind, Probe, ProbeSet, Recipe
from identiscope.methods.token_sentences import Sentences, Split
from identiscope.methods.token_training import fit_probes

ProbeName = tuple[Kind, Metric]
NAIVE: tuple[ProbeName, ...] = (("naive", "cosine"), ("naive", "l2"))
LINEAR: tuple[ProbeName, ...] = (("linear", "cosine"), ("linear", "l2"))
MLP: tuple[ProbeName, ...] = (("mlp", "cosine"), ("mlp", "l2"))
ALL_PROBES = (*NAIVE, *LINEAR, *MLP)

Fitted = dict[str, ProbeSet | None]


@dataclass(frozen=True)
class Setup:
    """How an experiment is run; the defaults are the paper's, but for the solver of linear probes.

    solver: "direct" fits linear probes at the minimum of their loss (the closed form for L2), "adam" trains them by
    the recipe, as the paper did; MLPs are always trained, which takes minutes a fold, so only on the first
    `mlp_folds`. inputs: "normed" takes as x what the first layer reads,
    after the norm that BERT has there; "sum" takes the sum of embeddings before it.
    """

    folds: int = 10
    mlp_folds: int = 1
    shares: tuple[float, float, float] = (0.7, 0.15, 0.15)
    seed: int = 0
    solver: Literal["direct", "adam"] = "direct"
    ridge: float = 0.0
    inputs: Literal["normed", "sum"] = "normed"
    resamples: int = 1000
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        if self.solver not in ("direct", "adam") or self.inputs not in ("normed", "sum"):
            raise InputError(
                f"solver {self.solver!r} and inputs {self.inputs!r} were given; expected direct or adam, and normed or"
                " sum."
            )

        if not self.mlp_folds >= 1:
            raise InputError(f"mlp_folds {self.mlp_folds} was given; expected at least 1.")

    def splits(self, sentences: Sentences) -> list[Split]:
        """The folds."""
        train, validation, test = self.shares
        return split_sentences(
            sentences.count, folds=self.folds, train=train, validation=validation, test=test, seed=self.seed
        )


def input_embeddings(cache: HiddenStates, setup: Setup) -> Tensor:
    """x: what is to be recovered."""
    return cache.embedding_sum if setup.inputs == "sum" else cache.layer(0)


def chosen_layers(cache: HiddenStates, layers: Sequence[int] | None) -> list[int]:
    """The layers asked for, from 1; by default all."""
    chosen = list(range(1, cache.layers + 1)) if layers is None else list(layers)
    if not chosen or any(not 1 <= layer <= cache.layers for layer in chosen):
        raise InputError(f"layers {chosen} were asked for; {cache.manifest['model_name']} has 1 to {cache.layers}.")
    return chosen


def fit_and_score(
    pairs: Pairs,
    probes: Sequence[ProbeName],
    setup: Setup,
    progress: Progress | None,
    splits: list[Split] | None = None,
) -> tuple[Fitted, dict[str, tuple[Sequence[str], Any]]]:
    """Fit each probe to every layer and fold, and score it on the test and training sentences: probes and arrays.

    Folds that a probe was not fitted on have a rate of NaN and no epochs.
    """
    splits = splits or setup.splits(pairs.sentences)
    fitted: Fitted = {}
    rows: list[list[tuple[Score, Score]]] = []
    for number, (kind, loss) in enumerate(probes):
        part = part_of(progress, number, len(probes), f"{kind} {loss}: ")
        own = splits[: setup.mlp_folds] if kind == "mlp" else splits
        found = _fit(pairs, own, kind, loss, setup, part)
        fitted[f"{kind} {loss}"] = found
        rows.append([])
        for layer, hidden in enumerate(pairs.states):
            probe_of = probe_by_fold(found, layer) if found is not None else naive_by_fold(loss)
            tested, learnt = (
                score(probe_of, hidden, pairs, layer, sets, resamples=count, seed=setup.seed)
                for sets, count in (
                    ([split.test for split in own], setup.resamples),
                    ([split.train for split in own], 1),
                )
            )
            rows[-1].append((tested, learnt))
        tell(part, 1.0, "scored")
    axes = ("probe", "layer")

    def each(value: Callable[[Score], float]) -> Tensor:
        return torch.tensor([[value(tested) for tested, _ in row] for row in rows], dtype=torch.float64)

    arrays: dict[str, tuple[Sequence[str], Any]] = {
        "rate": (axes, each(lambda one: one.rate)),
        "low": (axes, each(lambda one: one.interval.low)),
        "high": (axes, each(lambda one: one.interval.high)),
        "train_rate": (axes, torch.tensor([[learnt.rate for _, learnt in row] for row in rows], dtype=torch.float64)),
        "fold_rate": ((*axes, "fold"), torch.stack([_fold_rates(row, len(splits)) for row in rows])),
        "tokens": (axes, each(lambda one: one.tokens).long()),
        "ties": (axes, each(lambda one: one.ties).long()),
        "tied_identified": (axes, each(lambda one: one.tied_identified).long()),
        "epochs": (
            (*axes, "fold"),
            torch.stack([_epochs(one, len(pairs.states), len(splits)) for one in fitted.values()]),
        ),
    }
    return fitted, arrays


def _epochs(probes: ProbeSet | None, layers: int, folds: int) -> Tensor:
    epochs = torch.zeros(layers, folds, dtype=torch.long)
    if probes is not None:
        epochs[:, : probes.epochs.shape[1]] = probes.epochs
    return epochs


def _fold_rates(row: list[tuple[Score, Score]], folds: int) -> Tensor:
    rates = torch.full((len(row), folds), torch.nan, dtype=torch.float64)
    for layer, (tested, _) in enumerate(row):
        rates[layer, : len(tested.folds)] = tested.folds
    return rates


def _fit(
    pairs: Pairs, splits: list[Split], kind: Kind, loss: Metric, setup: Setup, progress: Progress | None
) -> ProbeSet | None:
    if kind == "naive":
        return None
    if kind == "linear" and setup.solver == "direct":
        ridge = setup.ridge if loss == "l2" else 0.0
        return fit_linear_directly(pairs, splits, loss=loss, ridge=ridge, progress=progress)
    recipe = replace(setup.recipe, seed=setup.seed)
    return fit_probes(pairs, splits, kind=kind, loss=loss, recipe=recipe, progress=progress)


def probe_by_fold(probes: ProbeSet, layer: int) -> Callable[[int], Probe]:
    """The probes of a layer, by fold."""
    return lambda fold: probes.probe(layer, fold)


def naive_by_fold(loss: Metric) -> Callable[[int], Probe]:
    """The same naive probe for every fold."""
    return lambda _: Probe("naive", loss, {})


def provenance(cache: HiddenStates, setup: Setup, experiment: str) -> dict[str, Any]:
    """What an experiment's result says of itself."""
    given = cache.manifest
    described = asdict(setup)
    described["recipe"]["seed"] = setup.seed
    return {
        "experiment": experiment, "model_name": given["model_name"],
        "model": given["model"], "tokenizer": given["tokenizer"], "text": given["text"], "texts": given["texts"],
        "tokens_in_corpus": given["tokens"], "setup": described,
    }  # fmt: skip


def tell(progress: Progress | None, share: float, words: str) -> None:
    """Report progress, if anyone listens."""
    if progress is not None:
        progress(share, words)


def part_of(progress: Progress | None, number: int, count: int, name: str) -> Progress | None:
    """Progress of one of several equal parts."""
    if progress is None:
        return None
    return lambda share, words: progress((number + share) / count, name + words)
