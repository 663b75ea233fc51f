"""`identiscope run`: methods over a corpus, into a directory that can be gone on with."""

from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import Numbers

METHODS = ("attention", "attribution", "tokens", "structure")


@click.command("run")
@click.argument("model")
@click.argument("corpus")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory of the Run."
)
@click.option("--methods", default="attention", show_default=True, help=f"Some of {', '.join(METHODS)}.")
@click.option("--columns", help="Columns with the text: one, or two for pairs, as sentence1,sentence2.")
@click.option("--label", help="Column with a label, to be kept beside the texts.")
@click.option("--split", help="Split of a Hugging Face dataset.")
@click.option("--limit", type=click.IntRange(min=1), help="Use only so many texts.")
@click.option("--layers", type=Numbers(), help="Only these layers, from 0: 3 or 0,5 or 0-2.")
@click.option("--heads", type=Numbers(), help="Only these heads.")
@click.option("--max-tokens", type=int, help="Most tokens of a text; by default what the model takes.")
@click.option("--too-long", type=click.Choice(["refuse", "cut", "keep"]), default="refuse", show_default=True,
              help="A longer text: stop before any work, cut it, or keep its place without statistics.")  # fmt: skip
@click.option("--batch-size", type=int, default=32, show_default=True, help="Texts of one forward pass.")
@click.option("--shard-size", type=int, default=128, show_default=True, help="Texts of one shard.")
@click.option("--probes", type=int, default=8, show_default=True, help="Directions of an attribution estimate.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of these directions.")
@click.option("--threads", type=int, default=1, show_default=True, help="Of torch, in each worker.")
@click.option("--no-texts", is_flag=True, help="Do not write the texts beside their numbers.")
@click.option("--hidden-states", is_flag=True, help="Write the hidden states of all layers, too.")
@click.option("--subspace-length", type=int, help="Sum the projectors of texts of just so many tokens.")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes with a model each."
)
@click.option(
    "--address", help="Of a Ray cluster, such as auto or ray://host:10001; without it a local one is started."
)
@click.option("--repair", is_flag=True, help="Compute damaged shards again, rather than stop at them.")
@click.option("--revision", help="Revision of a model on the hub.")
@click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the model.")
@click.option("--json", "as_json", is_flag=True, help="Print progress and summary as JSON lines.")
@click.pass_context
def run(context: click.Context, /, model: str, corpus: str, **options: Any) -> None:
    """Run methods over CORPUS with MODEL, into a directory.

    CORPUS is built in (pairs, passages), a .txt (a text a line), .tsv, .csv, .jsonl, .conllu or .parquet file, or a
    Hugging Face dataset: a directory it was saved to, or an id (name or name:configuration). Stopped at any point,
    the same command goes on; the directory ends with the same bytes. See docs/format.md.
    """
    from identiscope.corpus.readers import Corpus
    from identiscope.corpus.run import Interrupted, run_corpus
    from identiscope.corpus.run_options import RunOptions, chosen
    from identiscope.views.run_progress import run_progress
    from identiscope.views.run_tables import print_run

    asked = RunOptions(
        methods=tuple(name.strip() for name in options["methods"].split(",") if name.strip()),
        layers=chosen(options["layers"]),
        heads=chosen(options["heads"]),
        keep_texts=not options["no_texts"],
        **{name: options[name] for name in _SAME},
    )
    loading = {name: options[name] for name in ("revision", "trust_remote_code") if options[name]}
    columns = options["columns"].split(",") if options["columns"] else None
    source = Corpus(corpus, columns, options["label"], options["limit"], options["split"])
    try:
        with run_progress(model, as_json=options["as_json"]) as moved:
            done = run_corpus(
                model, source, options["out"], options=asked, loading=loading, engine=options["engine"],
                workers=options["workers"], address=options["address"], repair=options["repair"], progress=moved,
            )  # fmt: skip
    except Interrupted as interrupted:
        click.echo(str(interrupted), err=True)
        context.exit(130)
    print_run(done.summary, str(done.directory), as_json=options["as_json"])


_SAME = (
    "max_tokens", "too_long", "batch_size", "shard_size", "probes", "seed", "threads", "hidden_states",
    "subspace_length",
)  # fmt: skip
