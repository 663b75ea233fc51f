"""`identiscope attribution`: what every hidden token is made of."""

import json
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import (
    AT_LEAST_TWO,
    POSITIVE,
    Finite,
    json_option,
    layers_option,
    model_options,
    out_option,
    renamed,
    seed_option,
    text_options,
)
from identiscope.commands.sections import listed
from identiscope.commands.tracing import load_and_trace
from identiscope.errors import InputError

KINDS = ("pearson", "spearman")


@listed("explain", 10)
@click.command("attribution")
@click.argument("model", default="minilm")
@text_options
@click.option("--exact", is_flag=True, help="Follow every direction, rather than estimate with an error bar.")
@click.option("--probes", type=AT_LEAST_TWO, help="Directions for an estimate; 16 by default.")
@click.option(
    "--tolerance", type=POSITIVE, help="Estimate until the mean relative standard error is this, such as 0.05."
)
@click.option("--seconds", type=POSITIVE, help="Stop an estimate after this time.")
@layers_option
@click.option("--norm", type=click.Choice(["frobenius", "spectral", "ones"]), default="frobenius", show_default=True)
@click.option(
    "--input", "input_name", type=click.Choice(["embeddings", "embedding_sum"]), default="embeddings",
    show_default=True, help="What the first layer reads, or the sum of embeddings before its norm.",
)  # fmt: skip
@click.option("--memory", type=Finite(0.001, 2**20), default=1.0, show_default=True, help="GiB that may be used.")
@seed_option("the random directions")
@click.option("--compare", is_flag=True, help="Correlation with raw and effective attention, by layer.")
@out_option("Save the result (safetensors) to this file.")
@click.option("--save", hidden=True, type=click.Path(path_type=Path))
@click.option("--resume", type=click.Path(exists=True, dir_okay=False), help="Go on with a result that was saved.")
@json_option
@model_options
def attribution(
    model: str,
    text: str | None,
    exact: bool,
    probes: int | None,
    tolerance: float | None,
    seconds: float | None,
    layers: list[int] | None,
    norm: str,
    input_name: str,
    memory: float,
    seed: int,
    compare: bool,
    out: Path | None,
    save: Path | None,
    resume: str | None,
    as_json: bool,
    target: str | None,
    truncate: bool,
    **loading: Any,
) -> None:
    """Show how much each token of TEXT contributes to each hidden token of MODEL (Hidden Token Attribution).

    An estimate with an error bar by default; --exact takes longer. Ctrl-C ends the work and keeps what is done.
    """
    from identiscope.asking.ask import ask
    from identiscope.asking.maps import mean_attention_maps
    from identiscope.files import check_writable
    from identiscope.papers.brunner2020.attribution_figures import comparison_with_attention
    from identiscope.results import load_result, save_result
    from identiscope.views.progress import progress_bar

    out = out or renamed("--save", save, "--out")
    if out is not None:
        check_writable(out)
    _, traced = load_and_trace(model, text, loading, target=target, truncate=truncate)
    options: dict[str, Any] = {"norm": norm, "mode": "exact" if exact else "estimate", "probes": probes}
    options |= {"tolerance": tolerance, "seconds": seconds}
    with progress_bar("attribution") as moved:
        result = ask(
            "hidden_token_attribution", traced, layers=layers, input=input_name, seed=seed, memory=int(memory * 2**30),
            progress=moved, resume=load_result(resume) if resume else None, **options,
        )  # fmt: skip
    compared = None
    if compare:
        if result.sizes["input"] != result.sizes["output"]:
            raise InputError(
                "the inputs of a decoder are those of two texts, and its attention is of one: leave out --compare."
            )
        maps = mean_attention_maps(traced, [int(layer) for layer in result["layer"].values], result.attrs["stream"])
        compared = comparison_with_attention(result, maps)
    if out is not None:
        save_result(result, out)
    if as_json:
        click.echo(json.dumps(_as_json(result, compared), indent=2))
    else:
        _print(result, compared, out)


def _as_json(result: Any, compared: Any) -> dict[str, Any]:
    kinds = {} if compared is None else {kind: compared[kind].to_series().unstack("layer") for kind in KINDS}
    return {
        **{kind: {name: row.round(6).tolist() for name, row in table.iterrows()} for kind, table in kinds.items()},
        **{name: value for name, value in result.attrs.items() if value == value},
        "layers": result["layer"].values.tolist(),
        "inputs": result["input_token"].values.tolist(),
        "outputs": result["output_token"].values.tolist(),
        "contribution": result["contribution"].values.round(6).tolist(),
        "contribution_error": result["contribution_error"].values.round(6).tolist(),
    }


def _print(result: Any, compared: Any, out: Path | None) -> None:
    from identiscope.files import printable
    from identiscope.views.tables.attribution import print_attribution, print_comparison

    print_attribution(result)
    if compared is not None:
        print_comparison(compared)
    if out is not None:
        click.echo(f"\nsaved: {printable(out)}")
