"""Brunner et al. (2020), "On Identifiability in Transformers": every figure that the data at hand allow.

What is run: `reproduce_brunner2020`, a figure at a time, each with its claims. What was published: the numbers in
these claims, for BERT-base uncased. What came out is in the claims too. The paper counts layers from 1: its layer l is
block l − 1 here.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from identiscope.capture import Model, load
from identiscope.corpus.readers import Text
from identiscope.errors import InputError
from identiscope.papers.brunner2020.attention import attention_figures
from identiscope.papers.brunner2020.attribution import attribution_figures, tag_figures
from identiscope.papers.brunner2020.setup import FULL, Budget, Data
from identiscope.papers.brunner2020.tokens.figures import checkpoint_figure, token_figures
from identiscope.papers.untrained import beside_untrained
from identiscope.progress import Progress, tell
from identiscope.views.plots.figures import Figure, Missing


def reproduce_brunner2020(
    model: Any, data: Data, workspace: str | Path, *, budget: Budget = FULL, progress: Progress | None = None
) -> Iterator[Figure | Missing]:
    """The figures one after the other, as they are made; those whose data are missing say so.

    workspace: a directory for hidden states and the fine-tuned checkpoints.
    """
    if not any((data.mrpc, data.wiki, data.cola, data.mnli, data.pos)):
        raise InputError("no data were given; expected at least one of mrpc, wiki, cola, mnli and pos.")
    loaded, workspace = load(model), Path(workspace)
    parts = list(_parts(loaded, data, workspace, budget))
    for number, (words, figures) in enumerate(parts):
        tell(progress, words, number, len(parts))
        yield from figures
    tell(progress, "done", len(parts), len(parts))


def _parts(
    model: Model, data: Data, workspace: Path, budget: Budget
) -> Iterator[tuple[str, Iterator[Figure | Missing]]]:
    """What is run, in order: a few words and the figures."""
    yield (
        "attention",
        _or_missing(
            data.wiki,
            "1a, 1b, 1c, 5, 6",
            "--wiki",
            lambda texts: beside_untrained(
                attention_figures(model, texts[: budget.wiki]),
                model,
                lambda null: attention_figures(null, texts[: budget.null_texts]),
                texts=budget.null_texts,
            ),
        ),
    )
    shown = {name: data.names.get(name, name) for name in ("MRPC", "CoLA", "MNLI")}
    for name, texts, numbers in (("MRPC", data.mrpc, None), ("CoLA", data.cola, "38"), ("MNLI", data.mnli, "39")):
        yield (
            f"token identifiability, {shown[name]}",
            _or_missing(
                texts,
                numbers or "2a, 2b, 7–11, 14–17",
                f"--{name.lower()}",
                lambda texts, name=name, numbers=numbers: _identified(  # type: ignore[misc]
                    model, texts[: budget.pairs], name, numbers, shown[name], workspace, budget
                ),
            ),
        )
    for name, texts, number in (("MRPC", data.mrpc, "12"), ("CoLA", data.cola, "13")):
        yield (
            f"fine-tuning on {shown[name]}",
            _or_missing(
                texts,
                number,
                f"--{name.lower()}",
                lambda texts, name=name, number=number: _tuned(  # type: ignore[misc]
                    model, texts[: budget.pairs], name, number, shown[name], workspace, budget
                ),
            ),
        )
    for name, texts, numbers in (
        ("MRPC", data.mrpc, None),
        ("CoLA", data.cola, "40, 41"),
        ("MNLI", data.mnli, "42, 43"),
    ):
        yield (
            f"Hidden Token Attribution, {shown[name]}",
            _or_missing(
                texts,
                numbers or "3a, 3b, 4a, 4b, 18, 19–25",
                f"--{name.lower()}",
                lambda texts, name=name, numbers=numbers: _attributed(  # type: ignore[misc]
                    model, texts[: budget.attributed], name, numbers, shown[name], budget
                ),
            ),
        )
    yield (
        "parts of speech",
        _or_missing(
            data.pos,
            "26–37",
            "--pos",
            lambda texts: beside_untrained(
                tag_figures(model, texts[: budget.attributed], budget.probes),
                model,
                lambda null: tag_figures(null, texts[: budget.null_texts], budget.probes),
                texts=budget.null_texts,
            ),
        ),
    )


def _identified(
    model: Model, texts: list[Text], name: str, numbers: str | None, shown: str, workspace: Path, budget: Budget
) -> Iterator[Figure | Missing]:
    def make(of: Model, given: list[Text], place: Path) -> Iterator[Figure | Missing]:
        states = place / f"states-{name.lower()}"
        return token_figures(of, given, name, states, budget, alone=numbers, shown=shown)

    aside = workspace / "untrained"
    few = texts[: budget.null_pairs]
    own = make(model, texts, workspace)
    return beside_untrained(own, model, lambda null: make(null, few, aside), texts=budget.null_pairs)


def _tuned(
    model: Model, texts: list[Text], name: str, number: str, shown: str, workspace: Path, budget: Budget
) -> Iterator[Figure | Missing]:
    def make(of: Model, given: list[Text], place: Path) -> Iterator[Figure | Missing]:
        return checkpoint_figure(of, given, name, number, place, budget, shown=shown)

    aside = workspace / "untrained"
    few = texts[: budget.null_pairs]
    own = make(model, texts, workspace)
    return beside_untrained(own, model, lambda null: make(null, few, aside), texts=budget.null_pairs)


def _attributed(
    model: Model, texts: list[Text], name: str, numbers: str | None, shown: str, budget: Budget
) -> Iterator[Figure | Missing]:
    def make(of: Model, given: list[Text]) -> Iterator[Figure | Missing]:
        return attribution_figures(of, given, name, budget.probes, others=numbers, shown=shown)

    few = texts[: budget.null_texts]
    return beside_untrained(make(model, texts), model, lambda null: make(null, few), texts=budget.null_texts)


def _or_missing(
    texts: list[Text] | None, numbers: str, option: str, make: Callable[[list[Text]], Iterator[Figure | Missing]]
) -> Iterator[Figure | Missing]:
    if texts:
        yield from make(texts)
    else:
        yield Missing(numbers, option)
