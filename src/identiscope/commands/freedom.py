"""`identiscope freedom`: how far attention can move with the same head output, nearly the same, the same prediction."""

import json
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import (
    COUNT,
    Finite,
    json_option,
    layers_option,
    model_options,
    out_option,
    outcome_option,
    seed_option,
    text_options,
)
from identiscope.commands.sections import listed
from identiscope.commands.tracing import load_and_trace

AT_LEAST_ZERO, ABOVE_ZERO = Finite(min=0), Finite(min=0, min_open=True)


@listed("explain", 20)
@click.command("freedom")
@click.argument("model", default="smollm2")
@text_options
@outcome_option(
    "What is predicted, as for explain: a word, a class, similarity:TEXT. Where there are choices all their"
    " probabilities are to stay, whichever is named; else the number itself."
)
@click.option(
    "--epsilon", type=ABOVE_ZERO, multiple=True, default=(0.01, 0.05), show_default=True,
    help="Share of the layer's attention output that a head may move it by; may be given more than once.",
)  # fmt: skip
@click.option(
    "--tolerance", type=AT_LEAST_ZERO, multiple=True, default=(0.01, 0.05), show_default=True,
    help="How far the probabilities of all words or classes may move together; may be given more than once.",
)  # fmt: skip
@layers_option
@click.option("--top", type=COUNT, default=20, show_default=True, help="So many weights that bear a load.")
@click.option("--rows", "most_rows", type=COUNT, default=12, show_default=True, help="Rows of a head for intervals.")
@seed_option("the random maps")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page to look at.")
@json_option
@out_option("Save the result (safetensors), or its table by layer (a name that ends in .csv).")
@model_options
def freedom(
    model: str,
    text: str | None,
    top: int,
    html: Path | None,
    as_json: bool,
    out: Path | None,
    target: str | None,
    truncate: bool,
    **options: Any,
) -> None:
    """How free the attention of MODEL on TEXT is: what may it be, and the prediction still be the same?

    A sentence, then by layer how far attention may move with the same output of each head, with one that moves a
    little, and with the same prediction in the running model; then the weights that the prediction rests on. Without
    TEXT, a sample is used.

    \b
    identiscope freedom smollm2 "The capital of France is the city of"
    identiscope freedom minilm "A cat sat." --outcome "similarity:A dog lay there."
    """
    from identiscope.asking.freedom_ladder import freedom_ladder
    from identiscope.commands.method import save_as
    from identiscope.files import check_writable, printable
    from identiscope.reports.reporting import report
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables.freedom_ladder import ladder_table, load_table, print_ladder

    own = {name: options.pop(name) for name in ("outcome", "epsilon", "tolerance", "layers", "most_rows", "seed")}
    for path in (out, html):
        if path is not None:
            check_writable(path)
    _, traced = load_and_trace(model, text, options, target=target, truncate=truncate)
    with progress_bar("freedom") as moved:
        result = freedom_ladder(traced, own.pop("outcome"), top=top, progress=moved, **own)
    if out is not None:
        save_as(result, out)
    if html is not None:
        report(result, path=html)
    if as_json:
        facts = {name: result.attrs.get(name) for name in ("sentence", "outcome", "outcome_value", "passes")}
        tables = {"layers": _rows(*ladder_table(result)), "load": _rows(*load_table(result, top))}
        click.echo(json.dumps({"model": model, **facts, **tables}, indent=2))
        return
    print_ladder(result, top)
    for path in (out, html):
        if path is not None:
            click.echo(f"saved: {printable(path)}")


def _rows(columns: Any, rows: Any) -> list[dict[str, Any]]:
    plain = [[None if cell != cell else cell for cell in row] for row in rows]
    return [dict(zip(columns, row, strict=True)) for row in plain]
