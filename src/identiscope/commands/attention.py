"""`identiscope attention`: how much of what the heads show is real."""

import json
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import model_options
from identiscope.errors import InputError

METHODS = ("raw", "effective", "null", "effective_simplex_span", "canonical")


@click.command()
@click.argument("model", default="minilm")
@click.argument("text", required=False)
@click.option("--layer", type=int, help="One layer, from 0: a table of its heads.")
@click.option("--head", type=int, help="With --layer, one head: its strongest weights and what they may be.")
@click.option("--row", type=int, help="With --layer and --head, one query position: all its weights.")
@click.option(
    "--method", type=click.Choice(METHODS), help="With --head: the strongest weights of which map; raw by default."
)
@click.option("--top", type=click.IntRange(min=1), help="With --head: how many weights; 10 by default.")
@click.option("--all", "everything", is_flag=True, help="With --head: every weight of the head; may take minutes.")
@click.option("--kind", type=click.Choice(["encoder-self", "decoder-self", "cross"]), help="Which attention.")
@click.option("--without-value-bias", is_flag=True, help="Take the bias out of the values, as the paper's T has none.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=click.Path(path_type=Path), help="Save the result (safetensors) to this file.")
@model_options
def attention(
    model: str,
    text: str | None,
    layer: int | None,
    head: int | None,
    row: int | None,
    method: str | None,
    top: int | None,
    everything: bool,
    kind: str | None,
    without_value_bias: bool,
    as_json: bool,
    out: Path | None,
    target: str | None,
    truncate: bool,
    revision: str | None,
    trust_remote_code: bool,
) -> None:
    """How much of MODEL's attention on TEXT is identifiable: a verdict, then tables.

    Without TEXT, a built-in passage is used.
    """
    from identiscope.analysis.attention import attention_identifiability
    from identiscope.analysis.verdict import verdict
    from identiscope.capture import load, trace
    from identiscope.capture.samples import PASSAGE
    from identiscope.files import check_writable
    from identiscope.results import save_result
    from identiscope.views.progress import progress_bar

    if (head is not None and layer is None) or (row is not None and head is None):
        raise click.UsageError("--head needs --layer, and --row needs --head.")
    if (method or top or everything) and (head is None or row is not None):
        raise click.UsageError("--method, --top and --all choose weights of a head: they need --head, and no --row.")
    if out is not None:
        check_writable(out)
    loaded = load(model, revision=revision, trust_remote_code=trust_remote_code)
    given = PASSAGE if text is None and loaded.tokenizer is not None else text
    if given is None:
        raise InputError(f"{model} reads no text; use identiscope.attention_identifiability from Python.")
    found = trace(loaded, given, target=target, truncate=truncate)
    kind = kind or found.kinds[0]
    _check_place(found, kind, layer, head, row)
    with progress_bar("layers") as moved:
        result = attention_identifiability(found, kind=kind, value_bias=not without_value_bias, progress=moved)
    with progress_bar("verdict") as moved:
        said = verdict(found, result, progress=moved)
    report: dict[str, Any] = {"model": model, "tokens": len(found.main), "cut": found.main.cut, "kind": kind}
    report["verdict"] = said.sentences
    detail: Any = None
    if layer is not None and head is not None:
        detail = _head_detail(
            found, layer, head, row, method or "raw", None if everything else top or 10, kind, not without_value_bias
        )
        # The raw map holds the weight too.
        shown = detail.drop_vars(["lower_row", "upper_row", "weight"])
        report["weights"] = shown.to_dataframe().reset_index().to_dict(orient="records")
    else:
        report["heads"] = _head_rows(result if layer is None else result.sel(layer=[layer]))
    if out is not None:
        save_result(result if detail is None else detail, out)
    if as_json:
        click.echo(json.dumps(_without_nan(report), indent=2))
        return
    _print(report, layer, head, row, method or "raw", everything)
    if out is not None:
        click.echo(f"\nsaved: {out}")


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: what is not a number is null."""
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and value != value else value


def _check_place(found: Any, kind: str, layer: int | None, head: int | None, row: int | None) -> None:
    """Refuse a layer, head or row that is not there, before the work that would need it."""
    from identiscope.analysis.site_tensors import chosen_sites

    sites = {site.layer: site for site in chosen_sites(found, None, kind, None)}
    if layer is None:
        return
    if layer not in sites:
        raise InputError(f"layer {layer} was asked for; there are layers {min(sites)} to {max(sites)}.")
    site = sites[layer]
    if head is not None:
        site.place(head)
    if row is not None and not 0 <= row < site.queries:
        raise InputError(f"row {row} was asked for; the text has query positions 0 to {site.queries - 1}.")


def _head_rows(result: Any) -> list[dict[str, Any]]:
    rows = []
    for layer in result["layer"].values:
        for head in result["head"].values:
            one = result.sel(layer=layer, head=head)
            last = one.isel(query=-1)
            rows.append(
                {
                    "layer": int(layer),
                    "head": int(head),
                    "rank": int(last["rank"]),
                    "null_dimension": int(last["null_dimension"]),
                    "simplex_null_dimension": int(last["simplex_null_dimension"]),
                    "free_rows": float(one["free_rows"]),
                    "null_share": float(one["null_share"]),
                    "correlation": float(one["correlation"]),
                }
            )
    return rows


def _head_detail(
    found: Any, layer: int, head: int, row: int | None, method: str, top: int | None, kind: str, value_bias: bool
) -> Any:
    """Intervals of one head's weights, and each weight in every map.

    The weights of one row, or the `top` strongest by `method`, or all of them, strongest first.
    """
    import numpy as np

    from identiscope.analysis.attention import attention_intervals, attention_maps
    from identiscope.views.progress import progress_bar

    maps = attention_maps(found, layer, head, METHODS, kind=kind, value_bias=value_bias)  # type: ignore[arg-type]
    cells = None
    if row is None:
        allowed = found.site(layer, kind).allowed_keys(head).numpy()
        strength = np.where(allowed, np.abs(maps[method].values), -1.0)
        order = np.argsort(-strength, axis=None, kind="stable")[: int(allowed.sum())][:top]
        cells = [(int(place) // strength.shape[1], int(place) % strength.shape[1]) for place in order]
    with progress_bar("intervals") as moved:
        result = attention_intervals(found, layer, head, row=row, cells=cells, kind=kind, progress=moved)
    pairs = list(zip(result["query"].values, result["key"].values, strict=True))
    for name in METHODS:
        result[name] = ("cell", [float(maps[name].values[query, key]) for query, key in pairs])
    result.attrs["options"] |= {"top": None if row is not None else top, "method": method, "value_bias": value_bias}
    return result


def _print(
    report: dict[str, Any], layer: int | None, head: int | None, row: int | None, method: str, everything: bool
) -> None:
    from identiscope.views.terminal import console, print_table, readable

    out = console()
    cut = f", {report['cut']} cut" if report["cut"] else ""
    out.print(f"{report['model']}, {report['tokens']} tokens{cut}, {report['kind']} attention\n", markup=False)
    for sentence in report["verdict"]:
        out.print(sentence, markup=False)
    out.print()
    if "weights" in report:
        columns = {"from": "left", "to": "left"} | dict.fromkeys(
            ("raw", "may be", "effective", "null", "simplex span", "canonical"), "right"
        )
        rows = [
            (
                f"{cell['query']} {readable(cell['query_token'])}",
                f"{cell['key']} {readable(cell['key_token'])}",
                cell["raw"],
                f"{cell['lower']:.3f} … {cell['upper']:.3f}",
                cell["effective"],
                cell["null"],
                cell["effective_simplex_span"],
                cell["canonical"],
            )
            for cell in report["weights"]
        ]
        which = f"{len(rows)} strongest weights by {method} attention"
        if row is not None:
            which = f"row {row}"
        elif everything:
            which = f"all {len(rows)} weights, the strongest by {method} attention first"
        print_table(f"Layer {layer}, head {head}: {which}", columns, rows, out)
        return
    columns = dict.fromkeys(("layer", "head", "rank", "dim LN(T)", "dim LN([T,1])"), "right")
    columns |= dict.fromkeys(("free rows", "null share", "correlation"), "right")
    rows = [
        (
            line["layer"],
            line["head"],
            line["rank"],
            line["null_dimension"],
            line["simplex_null_dimension"],
            line["free_rows"],
            line["null_share"],
            line["correlation"],
        )
        for line in report["heads"]
    ]
    print_table(
        "By head: rank and null spaces of the last row; share of rows that can move; ‖A∥‖²/‖A‖²; correlation A, A⊥",
        columns,
        rows,
        out,
    )
