"""`identiscope run`: methods over a corpus, into a directory that can be gone on with."""

from pathlib import Path
from typing import Any, NoReturn

import click

from identiscope.commands.options import (
    AT_LEAST_TWO,
    COUNT,
    analysis_options,
    heads_option,
    layers_option,
    loading,
    maybe_corpus_options,
    seed_option,
)
from identiscope.commands.sections import listed
from identiscope.files import printable
from identiscope.methods.registry import in_runs


@listed("corpus", 10)
@click.command("run")
@click.argument("model", required=False, metavar="MODEL")
@maybe_corpus_options
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Directory of the Run.")
@click.option("--verify", type=click.Path(path_type=Path), metavar="DIR",
              help="Compute nothing: read every byte of the Run in DIR and say all that is wrong with it.")  # fmt: skip
@click.option("--methods", default="attention_identifiability", show_default=True,
              help=f"Some of {', '.join(in_runs())}, explain.")  # fmt: skip
@click.option("--explain", metavar="all|fast|NAME,…",
              help="What the outcome of each text rests on, by these methods: the method explain.")  # fmt: skip
@click.option(
    "--outcome",
    metavar="WHAT",
    help="What is explained, as in identiscope explain; of every method that has an outcome.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="METHOD.OPTION=VALUE",
    help="An option of a method, such as statistic_interval.on=special; may be given several times.",
)
@click.option("--columns", help="Columns with the text: one, or two for pairs, as sentence1,sentence2.")
@click.option("--label", help="Column with a label, to be kept beside the texts.")
@click.option("--split", help="Split of a Hugging Face dataset.")
@click.option("--limit", type=COUNT, help="Use only so many texts.")
@layers_option
@heads_option
@click.option("--max-tokens", type=COUNT, help="Most tokens of a text; by default what the model takes.")
@click.option("--too-long", type=click.Choice(["refuse", "cut", "keep"]), default="refuse", show_default=True,
              help="A longer text: stop before any work, cut it, or keep its place without statistics.")  # fmt: skip
@click.option("--batch-size", type=COUNT, default=32, show_default=True, help="Texts of one forward pass.")
@click.option("--shard-size", type=COUNT, default=128, show_default=True, help="Texts of one shard.")
@click.option("--probes", type=AT_LEAST_TWO, default=8, show_default=True,
              help="Directions of an attribution estimate.")  # fmt: skip
@seed_option("these directions, and of all else that methods draw")
@click.option("--threads", type=COUNT, default=1, show_default=True, help="Of torch, in each worker.")
@click.option("--no-texts", is_flag=True, help="Do not write the texts beside their numbers.")
@click.option("--hidden-states", is_flag=True, help="Write the hidden states of all layers, too.")
@click.option("--subspace-length", type=COUNT, help="Sum the projectors of texts of just so many tokens.")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--workers", type=COUNT, default=1, show_default=True, help="Processes with a model each.")
@click.option(
    "--address", help="Of a Ray cluster, such as auto or ray://host:10001; without it a local one is started."
)
@click.option("--repair", is_flag=True,
              help="Move damaged shards, and what is none, to DIR.aside, and compute them again.")  # fmt: skip
@analysis_options
@click.option("--json", "as_json", is_flag=True, help="Print progress and summary as JSON lines.")
@click.pass_context
def run(context: click.Context, /, model: str | None, corpus: str | None, **options: Any) -> None:
    """Run methods over CORPUS with MODEL, into a directory; or verify one: identiscope run --verify DIR.

    CORPUS is built in (pairs, passages), a .txt (a text a line), .tsv, .csv, .jsonl, .conllu or .parquet file, or a
    Hugging Face dataset: a directory it was saved to, or an id (name or name:configuration). Stopped at any point,
    the same command goes on; the directory ends with the same bytes. See docs/format.md. --verify ends with 0 if
    every byte is as it was written and with 1 if not.
    """
    if options["verify"] is not None:
        _verify(context, options["verify"], as_json=options["as_json"])
    if model is None or corpus is None or options["out"] is None:
        raise click.UsageError("MODEL, CORPUS and -o DIR are needed, or --verify DIR.", context)
    from identiscope.corpus.readers import Corpus
    from identiscope.runs.compute.methods import EXPLAIN
    from identiscope.runs.compute.options import RunOptions
    from identiscope.runs.compute.run import Interrupted, run_corpus
    from identiscope.runs.format.options import chosen
    from identiscope.runs.format.repair import aside_directory
    from identiscope.views.progress import run_progress
    from identiscope.views.tables.run import print_run, print_words

    methods, settings = _methods(context, options)
    asked = RunOptions(
        methods=methods,
        layers=chosen(options["layers"]),
        heads=chosen(options["heads"]),
        keep_texts=not options["no_texts"],
        settings=settings,
        **{name: options[name] for name in _SAME},
    )
    columns = options["columns"].split(",") if options["columns"] else None
    source = Corpus(corpus, columns, options["label"], options["limit"], options["split"])
    try:
        with run_progress(model, as_json=options["as_json"]) as moved:
            done = run_corpus(
                model, source, options["out"], options=asked, loading=loading(options), engine=options["engine"],
                workers=options["workers"], address=options["address"], repair=options["repair"], progress=moved,
            )  # fmt: skip
    except Interrupted as interrupted:
        click.echo(str(interrupted), err=True)
        context.exit(130)
    aside = aside_directory(done.directory)
    if options["repair"] and aside.is_dir():
        click.echo(
            f"what was damaged or unknown is in {printable(aside)}; remove it when you need it no more.", err=True
        )
    print_run(done.summary, str(done.directory), as_json=options["as_json"])
    if EXPLAIN in done.methods and not options["as_json"]:
        print_words(done)


def _methods(context: click.Context, options: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The methods asked for, and their settings; who asks for explanations alone need not name the method."""
    from identiscope.runs.compute.methods import EXPLAIN

    names = [name.strip() for name in options["methods"].split(",") if name.strip()]
    outcome = options["outcome"]
    read_it = [name for name in names if outcome is not None and _has_outcome(name)]
    of_others = tuple(f"{name}.outcome={outcome}" for name in read_it)
    given = {"methods": options["explain"]}
    if EXPLAIN in names or options["explain"] is not None or not read_it:
        given["outcome"] = outcome
    own = tuple(f"{EXPLAIN}.{name}={value}" for name, value in given.items() if value is not None)
    if own and EXPLAIN not in names:
        usual = context.get_parameter_source("methods") is click.core.ParameterSource.DEFAULT
        names = [EXPLAIN] if usual else [*names, EXPLAIN]
    return tuple(names), (*options["settings"], *of_others, *own)


def _has_outcome(name: str) -> bool:
    """Whether a method of the registry asks for an outcome."""
    from identiscope.methods.registry import METHODS
    from identiscope.methods.signatures import signature

    return name in METHODS and any(option.name == "outcome" for option in signature(METHODS[name]).options)


def _verify(context: click.Context, directory: Path, *, as_json: bool) -> NoReturn:
    from identiscope.runs.format.verification import verify_run
    from identiscope.views.tables.run import print_verification

    verification = verify_run(directory)
    print_verification(str(directory), verification.problems, verification.notes, verification.shards, as_json=as_json)
    context.exit(1 if verification.problems else 0)


_SAME = (
    "max_tokens", "too_long", "batch_size", "shard_size", "probes", "seed", "threads", "hidden_states",
    "subspace_length",
)  # fmt: skip
