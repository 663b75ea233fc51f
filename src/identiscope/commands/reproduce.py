"""`identiscope reproduce`: the figures of a paper, on your model and data, and whether its claims hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from identiscope.commands.options import LOADING, PLACE, analysis_options, loading, out_option
from identiscope.commands.sections import listed

Command = TypeVar("Command", bound=Callable[..., Any])
#: What the paper calls the data of an option.
PAPERS = {"mrpc": "MRPC", "cola": "CoLA", "mnli": "MNLI"}


@listed("papers", 10)
@click.group()
def reproduce() -> None:
    """The figures of a paper on your model and data, and whether its claims hold."""


def _source(name: str, what: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", help=f"{what}: a file, a dataset, or the built-in pairs or passages.")


@reproduce.command()
@click.option("--model", default="minilm", show_default=True, help="The paper's is bert-base-uncased.")
@_source("mrpc", "Sentence pairs with a label column (MRPC)")
@_source("wiki", "Passages (Wikipedia)")
@_source("cola", "Sentences with a label column (CoLA)")
@_source("mnli", "Sentence pairs (MNLI-matched)")
@_source("pos", "Texts with tags (CoNLL-U)")
@out_option("Directory for the page, the figures and the data.", default=Path("brunner2020"), show_default=True)
@click.option("--quick", is_flag=True, help="Minutes: fewer texts, folds and probes, and no MLP.")
@analysis_options
def brunner2020(model: str, out: Path, quick: bool, **options: Any) -> None:
    """Every figure of "On Identifiability in Transformers" that the data given allow.

    Columns with the text follow a #, as in --wiki segments.jsonl#text_a,text_b; the usual names are known. Without
    data the built-in pairs and passages are used. Ctrl-C keeps what is done.
    """
    from identiscope.capture import load
    from identiscope.corpus.readers import BUILTIN
    from identiscope.files import make_directory
    from identiscope.papers.brunner2020.reproduce import reproduce_brunner2020
    from identiscope.papers.brunner2020.setup import FULL, QUICK, Data
    from identiscope.views.progress import progress_bar

    sources = {name: source for name, source in options.items() if name not in LOADING}
    chosen = sources if any(sources.values()) else {"mrpc": "pairs", "wiki": "passages"}
    texts = {
        name: _read(source, "label" if name in ("mrpc", "cola") else None) for name, source in chosen.items() if source
    }
    built_in = {name: f"built-in {source}" for name, source in chosen.items() if source in BUILTIN}
    names = {paper: built_in[name] for name, paper in PAPERS.items() if name in built_in}
    loaded = load(model, **loading(options))
    make_directory(out)
    about = [("model", loaded.name), ("budget", "quick" if quick else "full")]
    about += [(name, f"{source}, {len(texts[name])} texts") for name, source in chosen.items() if source]
    with progress_bar("reproducing", share=True) as moved:
        made = reproduce_brunner2020(
            loaded, Data(**texts, names=names), out / "work", budget=QUICK if quick else FULL, progress=moved
        )
        _write(made, out, "Brunner et al. (2020), On Identifiability in Transformers", about)


@reproduce.command()
@click.option("--model", default="minilm", show_default=True, help="A transformer whose attention is perturbed.")
@_source("corpus", "Texts to perturb it on")
@click.option("--layer", type=PLACE, default=1, show_default=True, help="Of the head that is perturbed.")
@click.option("--head", type=PLACE, default=5, show_default=True)
@_source("labelled", "Texts with a label column to train classifiers on, such as TREC")
@click.option("--label", default="label", show_default=True, help="That column.")
@out_option("Directory for the page, the figures and the data.", default=Path("structure-draft"), show_default=True)
@click.option("--quick", is_flag=True, help="Minutes: fewer texts, perturbations and trainings.")
@analysis_options
def structure(
    model: str,
    corpus: str | None,
    layer: int,
    head: int,
    labelled: str | None,
    label: str,
    out: Path,
    quick: bool,
    **options: Any,
) -> None:
    """The figures of the structure-aware draft, and whether identifiable attention is as accurate.

    Without --corpus the built-in pairs are perturbed. Columns with the text follow a #. Ctrl-C keeps what is done.
    """
    from identiscope.capture import load
    from identiscope.papers.structure_draft.reproduce import QUICK_STRUCTURE, StructureBudget, reproduce_structure
    from identiscope.views.progress import progress_bar

    texts = [text.given for text in _read(corpus or "pairs")]
    pairs = [(text.parts[0], str(text.label)) for text in _read(labelled, label)] if labelled else None
    loaded = load(model, **loading(options))
    about = [("model", loaded.name), ("budget", "quick" if quick else "full"), ("corpus", corpus or "pairs")]
    about += [("labelled", f"{labelled}, {len(pairs)} texts")] if pairs else []
    with progress_bar("reproducing", share=True) as moved:
        made = reproduce_structure(
            loaded, texts, pairs, head=(layer, head), budget=QUICK_STRUCTURE if quick else StructureBudget(),
            progress=moved,
        )  # fmt: skip
        _write(made, out, "The structure-aware draft", about)


def _read(source: str, label: str | None = None) -> list[Any]:
    """The texts of a source, whose columns may follow a #."""
    from identiscope.corpus.readers import read_corpus

    path, _, columns = source.partition("#")
    return list(read_corpus(path, text_columns=columns.split(",") if columns else None, label_column=label))


def _write(made: Any, out: Path, title: str, about: list[tuple[str, str]]) -> None:
    """Write each figure as it comes, and the page anew with it: an interrupt loses nothing."""
    from identiscope.files import make_directory, printable
    from identiscope.views.page.reproduction import write_figure, write_page
    from identiscope.views.plots.figures import Missing
    from identiscope.views.tables.terminal import console

    screen = console()
    figures: list[Any] = []
    missing: list[tuple[str, str]] = []
    make_directory(out)
    path = write_page(out, title, about, figures, missing)
    try:
        for item in made:
            if isinstance(item, Missing):
                missing.append((item.number, item.needs))
            else:
                figures.append((item, write_figure(item, out)))
                screen.print(f"figure {item.number}: {item.title}", markup=False)
                for claim in item.claims:
                    screen.print(
                        f"  {claim.statement}: published {claim.published}; here {claim.here}: {claim.verdict}",
                        markup=False, style="dim" if claim.holds is None else None,
                    )  # fmt: skip
            path = write_page(out, title, about, figures, missing)
    except KeyboardInterrupt:
        screen.print("interrupted; what is done is kept", markup=False)
    for number, needs in missing:
        screen.print(f"figure {number} was not made: it needs {needs}", markup=False, style="dim")
    screen.print(f"written to {printable(path)}", markup=False)
