"""`identiscope explain`: what a prediction rests on, by many methods."""

import json
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import (
    COUNT,
    json_option,
    model_options,
    out_option,
    outcome_option,
    seed_option,
    text_options,
)
from identiscope.commands.sections import listed
from identiscope.commands.tracing import load_and_trace


@listed("explain", 10)
@click.command("explain")
@click.argument("model", default="minilm")
@text_options
@outcome_option(
    "What is explained: a word, the name or number of a class, a difference A-B, similarity:TEXT (the cosine with"
    " another text); WORD@POSITION says where it is read, logit:, probability: or log-probability: what it is."
)
@click.option("--methods", default="fast", show_default=True, metavar="all|fast|NAME,…", help="Which methods.")
@click.option("--top", type=COUNT, default=5, show_default=True, help="So many tokens of each method.")
@click.option("--words", "whole_words", is_flag=True, help="Add the pieces of each word up.")
@click.option(
    "--budget", type=COUNT, metavar="PASSES", help="At most so many passes for a method that draws or refines."
)
@click.option(
    "--baseline",
    type=click.Choice(["mask", "unknown", "padding", "mean", "zero"]),
    help="What stands for a token that says nothing.  [default: the first of these that the model has]",
)
@seed_option("what methods draw")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page to look at.")
@click.option("--resume", type=click.Path(path_type=Path), help="Keep what a result (--out) has, and ask the rest.")
@json_option
@out_option("Save the result (safetensors), or its whole table (a name that ends in .csv).")
@model_options
def explain(
    model: str,
    text: str | None,
    methods: str,
    top: int,
    whole_words: bool,
    html: Path | None,
    resume: Path | None,
    as_json: bool,
    out: Path | None,
    target: str | None,
    truncate: bool,
    **options: Any,
) -> None:
    """What a prediction of MODEL on TEXT rests on: each word coloured by each method, and how far methods agree.

    All methods read one captured pass. What each promises is measured: what its scores must add up to, and by how much
    they do not. Without TEXT, a sample is used.

    \b
    identiscope explain smollm2 "The capital of France is the city of"
    identiscope explain my-classifier "A fine film." --outcome positive-negative --methods all --html page.html
    identiscope explain minilm "A cat sat." --outcome "similarity:A dog lay there."
    """
    from identiscope.asking.explaining import chosen_methods
    from identiscope.asking.explaining import explain as asked
    from identiscope.commands.method import save_as
    from identiscope.files import check_writable, printable
    from identiscope.reports.reporting import report
    from identiscope.results import load_result
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables.explanation import print_explanation, top_rows
    from identiscope.views.tables.rows import json_rows

    own = {name: options.pop(name) for name in ("outcome", "budget", "baseline", "seed")}
    names = [name.replace("-", "_") for name in methods.split(",")]
    chosen_methods(methods if methods in ("all", "fast") else names)
    for path in (out, html):
        if path is not None:
            check_writable(path)
    earlier = None if resume is None else load_result(resume)
    resumable = out is not None and out.suffix.lower() != ".csv"
    _, traced = load_and_trace(model, text, options, target=target, truncate=truncate)
    with progress_bar("methods") as moved:
        result = asked(
            traced,
            own.pop("outcome"),
            methods=methods if methods in ("all", "fast") else names,
            words=whole_words,
            resume=earlier,
            out=out if resumable else None,
            progress=moved,
            **own,
        )
    if out is not None and not resumable:
        save_as(result, out)
    if html is not None:
        report(result, path=html)
    if as_json:
        facts = {name: result.attrs[name] for name in ("outcome", "outcome_value", "outcome_unit")}
        tokens = {"tokens": result["input_token"].values.tolist()}
        agreement = {"methods": result["method"].values.tolist(), "agreement": _plain(result["agreement"].values)}
        click.echo(json.dumps({"model": model, **facts, **tokens, "top": top_rows(result, top), **agreement,
                               **json_rows(result)}, indent=2))  # fmt: skip
        return
    print_explanation(result, top)
    for path in (out, html):
        if path is not None:
            click.echo(f"saved: {printable(path)}")


def _plain(table: Any) -> list[list[float | None]]:
    return [[None if value != value else float(value) for value in row] for row in table.tolist()]
