"""What the token experiments share: probes by name, how they are fitted and scored, what a result says of itself."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from identiscope.corpus.hidden_state_cache import HiddenStates
from identiscope.corpus.splits import split_sentences
from identiscope.errors import InputError
from identiscope.methods.tokens.direct_fit import fit_linear_directly
from identiscope.methods.tokens.identification import Score, score
from identiscope.methods.tokens.neighbours import Metric
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.probes import Kind, Probe, ProbeSet, Recipe
from identiscope.methods.tokens.sentences import Split
from identiscope.methods.tokens.training import fit_probes
from identiscope.progress import Progress, part_of, tell

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
    after the norm that BERT has there; "sum" takes the sum of embeddings before it. keep_resamples: give every
    resampled rate too, so that intervals of differences can be had: the same sentences are drawn for every layer and
    probe.
    """

    folds: int = 10
    mlp_folds: int = 1
    shares: tuple[float, float, float] = (0.7, 0.15, 0.15)
    seed: int = 0
    solver: Literal["direct", "adam"] = "direct"
    ridge: float = 0.0
    inputs: Literal["normed", "sum"] = "normed"
    resamples: int = 1000
    keep_resamples: bool = False
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        if self.solver not in ("direct", "adam") or self.inputs not in ("normed", "sum"):
            raise InputError(
                f"solver {self.solver!r} and inputs {self.inputs!r} were given; expected direct or adam, and normed or"
                " sum."
            )

        if not self.mlp_folds >= 1:
            raise InputError(f"mlp_folds {self.mlp_folds} was given; expected at least 1.")

    def splits(self, cache: HiddenStates) -> list[Split]:
        """The folds; texts of the same tokens stand on one side."""
        train, validation, test = self.shares
        texts = cache.tokens_by_text
        return split_sentences(
            len(texts), folds=self.folds, train=train, validation=validation, test=test, seed=self.seed, texts=texts
        )


def input_embeddings(cache: HiddenStates, setup: Setup) -> Tensor:
    """x: what is to be recovered."""
    return cache.embedding_sum if setup.inputs == "sum" else cache.embeddings


def chosen_layers(cache: HiddenStates, layers: Sequence[int] | None) -> list[int]:
    """The layers asked for, from 0; by default all."""
    chosen = list(range(cache.layers)) if layers is None else list(layers)
    if not chosen or any(not 0 <= layer < cache.layers for layer in chosen):
        raise InputError(f"layers {chosen} were asked for; {cache.manifest['model_name']} has 0 to {cache.layers - 1}.")
    return chosen


def fit_and_score(
    pairs: Pairs,
    splits: list[Split],
    probes: Sequence[ProbeName],
    setup: Setup,
    progress: Progress | None,
) -> tuple[Fitted, dict[str, tuple[Sequence[str], Any]]]:
    """Fit each probe to every layer and fold, and score it on the test and training sentences: probes and arrays.

    Folds that a probe was not fitted on have a rate of NaN and no epochs.
    """
    fitted: Fitted = {}
    rows: list[list[tuple[Score, Score]]] = []
    for number, (kind, loss) in enumerate(probes):
        part = part_of(progress, number, len(probes), f"{kind} {loss}: ")
        own = splits[: setup.mlp_folds] if kind == "mlp" else splits
        trained = _fit(pairs, own, kind, loss, setup, part)
        fitted[f"{kind} {loss}"] = trained
        rows.append([])
        for layer, hidden in enumerate(pairs.states):
            probe_of = probe_by_fold(trained, layer) if trained is not None else naive_by_fold(loss)
            tested, learnt = (
                score(probe_of, hidden, pairs, layer, sets, resamples=count, seed=setup.seed)
                for sets, count in (
                    ([split.test for split in own], setup.resamples),
                    ([split.train for split in own], 1),
                )
            )
            rows[-1].append((tested, learnt))
        tell(part, "scored", 1, 1)
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
    if setup.keep_resamples:
        arrays |= {
            "resampled_rate": (
                (*axes, "resample"), torch.stack([torch.stack([one.resampled for one, _ in row]) for row in rows])
            ),
            "sentences": (axes, each(lambda one: one.sentences).long()),
        }  # fmt: skip
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
