"""`identiscope train-identifiable`: is identifiable attention as accurate as regular attention?"""

from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import AT_LEAST_TWO, COUNT, POSITIVE, Finite, corpus_options, out_option, renamed
from identiscope.commands.sections import listed

VARIANTS = ("regular", "small d_k", "added heads", "added, small d_k")


@listed("papers", 30)
@click.command("train-identifiable")
@corpus_options
@click.option("--test", type=click.Path(path_type=Path),
              help="File with the texts to test on.  [default: a tenth of CORPUS]")  # fmt: skip
@click.option("--columns", help="Column with the text.  [default: the usual names]")
@click.option("--text", "text_column", hidden=True)
@click.option("--label", default="label", show_default=True, help="Column with the label.")
@click.option("--limit", type=COUNT, help="Use only so many texts of each file.")
@out_option("Directory for the result, the classifiers and the plots.", default=Path("identifiable"), show_default=True)
@click.option("--variant", "variants", multiple=True, type=click.Choice(VARIANTS[1:]),
              help="Compare with regular attention; may be repeated.  [default: small d_k, added heads]")  # fmt: skip
@click.option("--seeds", type=COUNT, default=5, show_default=True, help="Trainings of each, from seed 0.")
@click.option("--key-width", type=COUNT, default=2, show_default=True, help="The small d_k.")
@click.option("--width", type=COUNT, default=64, show_default=True, help="Of the model, d.")
@click.option("--heads", type=COUNT, default=8, show_default=True)
@click.option("--layers", type=COUNT, default=1, show_default=True)
@click.option("--dropout", type=Finite(0, 1, max_open=True), default=0.3, show_default=True)
@click.option(
    "--longest",
    type=AT_LEAST_TWO,
    default=256,
    show_default=True,
    help="Cut texts after so many words.",
)
@click.option("--epochs", type=COUNT, default=8, show_default=True)
@click.option("--learning-rate", type=POSITIVE, default=2e-3, show_default=True)
@click.option("--batch-size", type=COUNT, default=64, show_default=True)
@click.option("--margin", type=Finite(0, 1), default=0.02, show_default=True,
              help="Accuracies within this of each other count as equal.")  # fmt: skip
@click.option("--per-length", type=COUNT, default=5, show_default=True,
              help="Texts of each length to measure null spaces on.")  # fmt: skip
def train_identifiable(corpus: str, test: Path | None, **options: Any) -> None:
    """Train text classifiers with regular and with identifiable attention on the labels of CORPUS, and compare them.

    CORPUS is a .tsv, .csv or .jsonl file. No pretrained weights are used: words and weights are learnt from CORPUS.
    """
    from identiscope.corpus.readers import read_corpus
    from identiscope.errors import InputError
    from identiscope.files import make_directory, printable
    from identiscope.papers.bhardwaj2021.classifier import Classifier, save_classifier
    from identiscope.papers.bhardwaj2021.comparison import compare_attention, variants_with
    from identiscope.papers.bhardwaj2021.training import TrainingRecipe
    from identiscope.results import save_result
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables.identifiable import print_comparison, save_comparison_plots
    from identiscope.views.tables.terminal import console

    column = options["columns"] or renamed("--text", options["text_column"], "--columns")

    def read(path: str | Path) -> list[tuple[str, str]]:
        columns = {"text_columns": [column] if column else None, "label_column": options["label"]}
        texts = list(read_corpus(path, limit=options["limit"], **columns))
        if any(len(text.parts) > 1 for text in texts):
            raise InputError(f"{path} holds pairs of texts; name one column with --columns.")
        return [(text.parts[0], text.label or "") for text in texts]

    given, held_out = read(corpus), None if test is None else read(test)
    out: Path = options["out"]
    make_directory(out)
    chosen = options["variants"] or VARIANTS[1:3]
    known = variants_with(options["key_width"])
    recipe = TrainingRecipe(
        epochs=options["epochs"], batch_size=options["batch_size"], learning_rate=options["learning_rate"]
    )

    def keep(name: str, seed: int, classifier: Classifier) -> None:
        if seed == 0:
            save_classifier(classifier, out / f"{name.replace(',', '').replace(' ', '-')}.safetensors")

    with progress_bar("training", share=True) as moved:
        result = compare_attention(
            given, held_out,
            variants={name: known[name] for name in (VARIANTS[0], *(name for name in VARIANTS if name in chosen))},
            seeds=range(options["seeds"]),
            shape={name: options[name] for name in ("width", "heads", "layers", "dropout", "longest")}
            | {"feed_forward": 2 * options["width"]},
            recipe=recipe, margin=options["margin"], per_length=options["per_length"], keep=keep, progress=moved,
        )  # fmt: skip
    screen = console()
    print_comparison(result, screen)
    paths = [save_result(result, out / "comparison.safetensors"), *save_comparison_plots(result, out)]
    screen.print(f"\nsaved {', '.join(map(printable, paths))}, and the classifiers of seed 0", style="dim",
                 markup=False)  # fmt: skip
