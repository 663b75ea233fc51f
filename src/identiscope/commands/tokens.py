"""`identiscope tokens`: can hidden embeddings still be traced to their tokens?"""

from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import (
    COUNT,
    LOADING,
    POSITIVE,
    Finite,
    corpus_options,
    loading,
    loading_options,
    out_option,
    renamed,
    seed_option,
)
from identiscope.commands.sections import listed

EXPERIMENTS = ("same-layer", "across-layers", "previous-layer", "neighbours", "fractions", "losses")
PROBES = ("naive", "linear", "mlp")


@listed("explain", 20)
@click.command()
@click.argument("model")
@corpus_options
@out_option("Directory for hidden states, results, probes and plots.", default=Path("tokens"), show_default=True)
@click.option("--experiment", "experiments", multiple=True, type=click.Choice(EXPERIMENTS),
              help="What to run; may be repeated.  [default: same-layer, across-layers, losses]")  # fmt: skip
@click.option("--probe", "probes", multiple=True, type=click.Choice(PROBES),
              help="Which probes, with both metrics; may be repeated.  [default: naive, linear]")  # fmt: skip
@click.option("--columns", help="Columns with the text: one, or two for pairs, as sentence1,sentence2.")
@click.option("--tags", type=click.Choice(["xpos", "upos"]), default="xpos", show_default=True,
              help="Parts of speech of a .conllu file.")  # fmt: skip
@click.option("--limit", type=COUNT, help="Use only so many texts.")
@click.option("--folds", type=COUNT, default=10, show_default=True, help="Splits of 70/15/15 by sentence.")
@click.option(
    "--mlp-folds", type=COUNT, default=1, show_default=True, help="Folds that MLPs are trained on: minutes each."
)
@seed_option("splits, weights, batches and resampling")
@click.option("--solver", type=click.Choice(["direct", "adam"]), default="direct", show_default=True,
              help="Linear probes: at the minimum of their loss, or trained as in the paper.")  # fmt: skip
@click.option("--learning-rates", default="0.0001", show_default=True, help="One, or several to search: 1e-3,1e-4.")
@click.option("--batch-size", type=COUNT, default=256, show_default=True, help="Tokens in a training step.")
@click.option(
    "--patience", type=COUNT, default=20, show_default=True, help="Epochs without a better rate before the end."
)
@click.option("--epochs", type=COUNT, default=1000, show_default=True, help="At most so many.")
@click.option("--hidden-width", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Of the MLP.")
@click.option("--inputs", type=click.Choice(["normed", "sum"]), default="normed", show_default=True,
              help="Input embeddings after the norm that BERT puts there, or before.")  # fmt: skip
@click.option("--against", help="Another checkpoint: compare layer to previous layer, as before and after fine-tuning.")
@click.option("--probes", "probe_file", type=click.Path(path_type=Path), help="Score CORPUS with probes saved earlier.")
@click.option("--truncate", is_flag=True, help="Cut texts that are too long for the model.")
@loading_options
def tokens(model: str, corpus: str, **options: Any) -> None:
    """Can MODEL's hidden embeddings of CORPUS still be traced to their tokens?

    CORPUS is a .txt (a text a line), .tsv, .csv, .jsonl or .conllu file. Hidden states are captured once into the
    output directory and used again by later runs on the same model and text.
    """
    from identiscope.capture import load
    from identiscope.corpus.hidden_state_cache import capture_hidden_states
    from identiscope.corpus.readers import read_corpus
    from identiscope.files import make_directory
    from identiscope.methods.tokens.probes import Recipe
    from identiscope.papers.brunner2020.tokens.setup import Setup
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables.terminal import console

    try:
        rates = tuple(float(rate) for rate in options["learning_rates"].split(","))
        if not all(0 < rate < 1e6 for rate in rates):
            raise ValueError
    except ValueError:
        raise click.BadParameter("give numbers such as 1e-3,1e-4", param_hint="--learning-rates") from None
    recipe = Recipe(
        learning_rates=rates, batch_size=options["batch_size"], patience=options["patience"],
        maximum_epochs=options["epochs"], hidden_width=options["hidden_width"],
    )  # fmt: skip
    setup = Setup(
        folds=options["folds"], mlp_folds=options["mlp_folds"], seed=options["seed"], solver=options["solver"],
        inputs=options["inputs"], recipe=recipe,
    )  # fmt: skip
    columns = options["columns"].split(",") if options["columns"] else None
    texts = list(read_corpus(corpus, text_columns=columns, tags=options["tags"], limit=options["limit"]))
    out = make_directory(options["out"])
    with progress_bar("capturing", share=True) as moved:
        cache = capture_hidden_states(
            load(model, **loading(options)), texts, out / "hidden-states", truncate=options["truncate"], progress=moved
        )
        other = None
        if options["against"]:
            other = capture_hidden_states(
                load(options["against"], **loading(options)), texts, out / "hidden-states-against",
                truncate=options["truncate"], progress=moved,
            )  # fmt: skip
    cut = f", {cache.manifest['cut']} tokens cut" if cache.manifest["cut"] else ""
    screen = console()
    screen.print(
        f"{model}: {len(texts)} texts, {cache.manifest['tokens']} tokens{cut}; {cache.layers} layers;"
        f" input embeddings: {setup.inputs}\n",
        markup=False,
    )
    if options["probe_file"] is not None:
        _score_new_text(cache, options["probe_file"], out, screen)
        return
    chosen = options["experiments"] or (() if other else ("same-layer", "across-layers", "losses"))
    names = [(kind, metric) for kind in options["probes"] or ("naive", "linear") for metric in ("cosine", "l2")]
    with progress_bar("probes", share=True) as moved:
        results = _run(cache, other, setup, names, chosen, moved, out)
    _show(results, cache, out, screen)


def _run(cache: Any, other: Any, setup: Any, names: Any, chosen: Any, moved: Any, out: Path) -> dict[str, Any]:
    """The experiments asked for; those that need fitted probes share them."""
    from identiscope.papers.brunner2020.probe_files import save_probes
    from identiscope.papers.brunner2020.tokens import studies as experiments
    from identiscope.papers.brunner2020.tokens.losses import look_up_layers, lost_tokens

    results: dict[str, Any] = {}
    if {"same-layer", "across-layers", "losses"} & set(chosen):
        results["same-layer"], fitted = experiments.same_layer(cache, setup=setup, probes=names, progress=moved)
        trained = [probes for probes in fitted.values() if probes is not None]
        if trained:
            save_probes(fitted, results["same-layer"], out / "probes.safetensors")
        if "across-layers" in chosen and trained:
            results["across-layers"] = experiments.across_layers(cache, fitted, setup=setup, progress=moved)
        if "losses" in chosen:
            identified = look_up_layers(cache, trained[0] if trained else None, setup=setup)
            results["losses"] = lost_tokens(cache, identified)
    if "previous-layer" in chosen:
        results["previous-layer"] = experiments.previous_layer(cache, setup=setup, probes=names, progress=moved)
    learnt = [name for name in names if name[0] != "naive"] or [("linear", "cosine")]
    if "neighbours" in chosen:
        results["neighbours"] = experiments.neighbours(cache, setup=setup, probes=learnt, progress=moved)
    if "fractions" in chosen:
        layer = max(0, cache.layers - 2)
        results["fractions"] = experiments.data_fractions(cache, layer, setup=setup, probe=learnt[-1], progress=moved)
    if other is not None:
        caches = {"model": cache, "against": other}
        results["checkpoints"] = experiments.compare_checkpoints(caches, setup=setup, progress=moved)
    return results


def _show(results: dict[str, Any], cache: Any, out: Path, screen: Any) -> None:
    from identiscope.files import printable
    from identiscope.results import save_result
    from identiscope.views.tables import tokens as token_tables

    for name, result in results.items():
        path = save_result(result, out / f"{name}.safetensors")
        token_tables.print_result(name, result, screen)
        pictures = token_tables.save_plots(name, result, out)
        saved = ", ".join(printable(one) for one in (path, *pictures))
        screen.print(f"saved {saved}\n", markup=False, style="dim")


def _score_new_text(cache: Any, path: Path, out: Path, screen: Any) -> None:
    from identiscope.papers.brunner2020.probe_files import load_probes, score_new_text

    _show({"new-text": score_new_text(cache, *load_probes(path))}, cache, out, screen)


@listed("papers", 40)
@click.command("fine-tune")
@click.argument("model")
@corpus_options
@click.argument("directory", required=False, metavar="", type=click.Path(path_type=Path))
@out_option("Directory for the checkpoint.")
@click.option("--columns", help="Columns with the text: one, or two for pairs, as sentence1,sentence2.")
@click.option("--label", default="label", show_default=True, help="Column with the label.")
@click.option("--limit", type=COUNT, help="Use only so many texts.")
@click.option("--epochs", type=COUNT, default=3, show_default=True)
@click.option("--learning-rate", type=POSITIVE, default=2e-5, show_default=True)
@click.option("--batch-size", type=COUNT, default=32, show_default=True)
@click.option(
    "--held-out",
    type=Finite(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="Share of texts kept to measure accuracy.",
)
@click.option("--token", type=click.Choice(["first", "last"]), help="Which token the label is read from.")
@seed_option("weights, batches and the held-out texts")
@loading_options
def fine_tune(model: str, corpus: str, directory: Path | None, out: Path | None, **options: Any) -> None:
    """Fine-tune MODEL on the labels of CORPUS and save it: a second checkpoint to compare with."""
    directory = out or renamed("DIRECTORY", directory, "--out")
    if directory is None:
        raise click.UsageError("-o DIR is needed.")
    from identiscope.capture import load
    from identiscope.corpus.readers import read_corpus
    from identiscope.files import printable
    from identiscope.papers.brunner2020.fine_tune import fine_tune as train
    from identiscope.views.progress import progress_bar

    given = load(model, **loading(options))
    options = {name: value for name, value in options.items() if name not in LOADING}
    columns = options.pop("columns")
    chosen = {"text_columns": columns.split(",") if columns else None, "label_column": options.pop("label")}
    texts = list(read_corpus(corpus, limit=options.pop("limit"), **chosen))
    with progress_bar("fine-tuning", share=True) as moved:
        done = train(given, texts, directory, progress=moved, **options)
    click.echo(
        f"{printable(directory)}: {len(done.labels)} labels, accuracy {done.accuracy:.3f} on {done.held_out} held-out"
        f" texts; loss by epoch {', '.join(f'{loss:.3f}' for loss in done.losses)}"
    )
