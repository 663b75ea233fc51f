"""`identiscope attribution`: what every hidden token is made of."""

import json
from typing import Any

import click

from identiscope.commands.options import Numbers, model_options
from identiscope.errors import InputError

KINDS = ("pearson", "spearman")


@click.command("attribution")
@click.argument("model", default="minilm")
@click.argument("text", required=False)
@click.option("--exact", is_flag=True, help="Follow every direction, rather than estimate with an error bar.")
@click.option("--probes", type=click.IntRange(min=2), help="Directions for an estimate; 16 by default.")
@click.option("--tolerance", type=float, help="Estimate until the mean relative standard error is this, such as 0.05.")
@click.option("--seconds", type=float, help="Stop an estimate after this time.")
@click.option("--layers", type=Numbers(), help="Only these layers, from 1: 3 or 1,6 or 1-3.")
@click.option("--norm", type=click.Choice(["frobenius", "spectral", "ones"]), default="frobenius", show_default=True)
@click.option(
    "--input", "input_name", type=click.Choice(["embeddings", "embedding_sum"]), default="embeddings",
    show_default=True, help="What the first layer reads, or the sum of embeddings before its norm.",
)  # fmt: skip
@click.option("--memory", type=float, default=1.0, show_default=True, help="GiB that may be used.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random directions.")
@click.option("--compare", is_flag=True, help="Correlation with raw and effective attention, by layer.")
@click.option("--save", type=click.Path(dir_okay=False), help="Save the result to this file.")
@click.option("--resume", type=click.Path(exists=True, dir_okay=False), help="Go on with a result that was saved.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    save: str | None,
    resume: str | None,
    as_json: bool,
    target: str | None,
    truncate: bool,
    revision: str | None,
    trust_remote_code: bool,
) -> None:
    """Show how much each token of TEXT contributes to each hidden token of MODEL (Hidden Token Attribution).

    An estimate with an error bar by default; --exact takes longer. Ctrl-C ends the work and keeps what is done.
    """
    from identiscope import capture
    from identiscope.capture.samples import sample_input
    from identiscope.experiments.attribution import attention_maps
    from identiscope.experiments.attribution import attribution as attribute
    from identiscope.experiments.attribution_figures import comparison_with_attention
    from identiscope.results import load_result, save_result
    from identiscope.views.progress import progress_bar

    loaded = capture.load(model, revision=revision, trust_remote_code=trust_remote_code)
    given, _ = (text, "") if text is not None else sample_input(loaded)
    traced = capture.trace(loaded, given, target=target, truncate=truncate)
    options: dict[str, Any] = {"norm": norm, "mode": "exact" if exact else "estimate", "probes": probes}
    options |= {"tolerance": tolerance, "seconds": seconds}
    with progress_bar("attribution") as moved:
        result = attribute(
            loaded, traced, layers=layers, input=input_name, seed=seed, memory=int(memory * 2**30),
            progress=moved, resume=load_result(resume) if resume else None, **options,
        )  # fmt: skip
    compared = None
    if compare:
        if result.sizes["input"] != result.sizes["output"]:
            raise InputError(
                "the inputs of a decoder are those of two texts, and its attention is of one: leave out --compare."
            )
        maps = attention_maps(traced, [int(layer) for layer in result["layer"].values], result.attrs["stream"])
        compared = comparison_with_attention(result, maps)
    if save is not None:
        save_result(result, save)
    if as_json:
        click.echo(json.dumps(_as_json(result, compared), indent=2))
    else:
        _print(result, compared, save)


def _as_json(result: Any, compared: Any) -> dict[str, Any]:
    kinds = {} if compared is None else {kind: compared[kind].to_series().unstack("layer") for kind in KINDS}
    return {
        **{kind: {name: row.round(6).tolist() for name, row in found.iterrows()} for kind, found in kinds.items()},
        **{name: value for name, value in result.attrs.items() if value == value},
        "layers": result["layer"].values.tolist(),
        "inputs": result["input_token"].values.tolist(),
        "outputs": result["output_token"].values.tolist(),
        "contribution": result["contribution"].values.round(6).tolist(),
        "contribution_error": result["contribution_error"].values.round(6).tolist(),
    }


def _print(result: Any, compared: Any, save: str | None) -> None:
    from identiscope.views.attribution_tables import print_attribution, print_comparison

    print_attribution(result)
    if compared is not None:
        print_comparison(compared)
    if save is not None:
        click.echo(f"\nsaved to {save}")
