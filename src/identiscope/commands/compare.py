"""`identiscope compare`: how far methods of one kind agree on a text."""

import json
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import (
    attention_option,
    heads_option,
    json_option,
    layers_option,
    model_options,
    out_option,
    outcome_option,
    text_options,
)
from identiscope.commands.sections import listed
from identiscope.commands.tracing import load_and_trace

#: Pairs of statistics that are shown; all of them are in --json and --out.
MOST_ROWS = 20


@listed("look", 55)
@click.command("compare")
@click.argument("model", default="minilm")
@text_options
@click.option("--methods", required=True, help="Two or more of one kind, as a,b,c: see identiscope methods.")
@layers_option
@heads_option
@attention_option
@outcome_option("What is explained by methods that explain something; as in identiscope explain.")
@json_option
@out_option("Save the result (safetensors), or its whole table (a name that ends in .csv).")
@model_options
def compare(
    model: str,
    text: str | None,
    methods: str,
    as_json: bool,
    out: Path | None,
    target: str | None,
    truncate: bool,
    **options: Any,
) -> None:
    """How far methods of one kind agree on TEXT: maps head by head, mixtures layer by layer, scores by rank.

    Methods that give numbers for each head, hidden token or layer are compared statistic by statistic. In Python:
    identiscope.compare(trace, methods). Without TEXT, a sample is used.
    """
    from identiscope.asking import comparing
    from identiscope.commands.method import save_as
    from identiscope.files import check_writable, printable
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables.comparison import print_comparison
    from identiscope.views.tables.rows import json_rows

    own = {name: options.pop(name) for name in ("layers", "heads", "attention", "outcome")}
    given = {name: value for name, value in own.items() if value is not None}
    names = [name.strip().replace("-", "_") for name in methods.split(",") if name.strip()]
    if out is not None:
        check_writable(out)
    _, traced = load_and_trace(model, text, options, target=target, truncate=truncate)
    with progress_bar("methods") as moved:
        result = comparing.compare(traced, names, progress=moved, **given)
    if out is not None:
        save_as(result, out)
    if as_json:
        facts = {"model": model, "methods": result.attrs["options"]["methods"], "compared": result.attrs["compared"]}
        click.echo(json.dumps({**facts, **json_rows(result)}, indent=2))
        return
    print_comparison(result, MOST_ROWS)
    if out is not None:
        click.echo(f"\nsaved: {printable(out)}")
