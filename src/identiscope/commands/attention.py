"""`identiscope attention`: how much of what the heads show is real."""

import json
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import (
    COUNT,
    PLACE,
    attention_option,
    head_option,
    json_option,
    layer_option,
    model_options,
    out_option,
    text_options,
)
from identiscope.commands.sections import listed
from identiscope.commands.tracing import load_and_trace
from identiscope.errors import InputError
from identiscope.methods.registry import map_names

#: A bound on how far the head's output may move that is rounding and nothing else.
NO_CHANGE = 1e-9


class MapName(click.ParamType[str]):
    """A map of attention weights: those that are registered when it is asked for. (A base class of click's.)"""

    name = "map"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The choice there is."""
        return f"[{'|'.join(map_names('weights'))}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name of one."""
        return str(click.Choice(map_names("weights")).convert(value, param, ctx))


@listed("look", 30)
@click.command()
@click.argument("model", default="minilm")
@text_options
@layer_option
@head_option
@click.option("--row", type=PLACE, help="With --layer and --head, one query position: all its weights.")
@click.option("--method", type=MapName(), help="With --head: the strongest weights of which map; raw by default.")
@click.option("--top", type=COUNT, help="With --head: how many weights; 10 by default.")
@click.option("--all", "everything", is_flag=True, help="With --head: every weight of the head; may take minutes.")
@click.option("--few", is_flag=True, help="With --head: the same output from few keys, and keys that no row needs.")
@attention_option
@click.option("--without-value-bias", is_flag=True, help="Take the bias out of the values, as the paper's T has none.")
@json_option
@out_option("Save the result (safetensors) to this file.")
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
    few: bool,
    attention: str | None,
    without_value_bias: bool,
    as_json: bool,
    out: Path | None,
    target: str | None,
    truncate: bool,
    **loading: Any,
) -> None:
    """How much of MODEL's attention on TEXT is identifiable: a verdict, then tables.

    With --layer a table of its heads, with --head too its strongest weights and what they may be. Without TEXT, a
    built-in passage is used.
    """
    from identiscope.asking.ask import ask
    from identiscope.files import check_writable, printable
    from identiscope.judge.verdict import verdict
    from identiscope.results import save_result
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables.tidy import tidy

    if (head is not None and layer is None) or (row is not None and head is None):
        raise click.UsageError("--head needs --layer, and --row needs --head.")
    if (method or top or everything) and (head is None or row is not None):
        raise click.UsageError("--method, --top and --all choose weights of a head: they need --head, and no --row.")
    if few and (head is None or row is not None or method or top or everything):
        raise click.UsageError("--few is of a whole head: it needs --layer and --head, and no other choice of weights.")
    if out is not None:
        check_writable(out)
    _, traced = load_and_trace(model, text, loading, passage=True, target=target, truncate=truncate)
    attention = attention or traced.kinds[0]
    _check_place(traced, attention, layer, head, row)
    if few:
        with progress_bar("keys") as moved:
            fewer = ask("few_keys", traced, layer=layer, head=head, attention=attention, progress=moved)
        _show_few(fewer, model, as_json=as_json, out=out)
        return
    with progress_bar("layers") as moved:
        result = ask(
            "attention_identifiability", traced, attention=attention, value_bias=not without_value_bias, progress=moved
        )
    with progress_bar("verdict") as moved:
        said = verdict(traced, result, progress=moved)
    report: dict[str, Any] = {
        "model": model,
        "tokens": len(traced.main),
        "cut": traced.main.cut,
        "attention": attention,
    }
    report["verdict"] = said.sentences
    detail: Any = None
    if layer is not None and head is not None:
        detail = _head_detail(
            traced,
            layer,
            head,
            row,
            method or "raw",
            None if everything else top or 10,
            attention,
            not without_value_bias,
        )
        # The raw map holds the weight too.
        report["weights"] = tidy(detail.drop_vars("weight")).to_dict(orient="records")
    else:
        report["heads"] = _head_rows(result if layer is None else result.sel(layer=[layer]))
    if out is not None:
        save_result(result if detail is None else detail, out)
    if as_json:
        click.echo(json.dumps(_without_nan(report), indent=2))
        return
    _print(report, layer, head, row, method or "raw", everything)
    if out is not None:
        click.echo(f"\nsaved: {printable(out)}")


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: what is not a number is null."""
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and value != value else value


def _check_place(traced: Any, attention: str, layer: int | None, head: int | None, row: int | None) -> None:
    """Refuse a layer, head or row that is not there, before the work that would need it."""
    from identiscope.capture.sorting import in_words
    from identiscope.methods.fields import chosen_sites

    sites = {site.layer: site for site in chosen_sites(traced, None, attention, None)}
    if layer is None:
        return
    if layer not in sites:
        raise InputError(f"layer {layer} was asked for; the model has {in_words(list(sites))}.")
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
                    "simplex_null_share": float(one["simplex_null_share"]),
                    "merged_null_share": float(one["merged_null_share"]),
                    "simplex_correlation": float(one["simplex_correlation"]),
                    "null_share": float(one["null_share"]),
                    "correlation": float(one["correlation"]),
                }
            )
    return rows


def _head_detail(
    traced: Any, layer: int, head: int, row: int | None, method: str, top: int | None, attention: str, value_bias: bool
) -> Any:
    """Intervals of one head's weights, and each weight in every map.

    The weights of one row, or the `top` strongest by `method`, or all of them, strongest first.
    """
    import numpy as np

    from identiscope.asking.ask import ask
    from identiscope.asking.maps import attention_maps
    from identiscope.views.progress import progress_bar

    maps = attention_maps(traced, layer, head, attention=attention, value_bias=value_bias)
    cells = None
    if row is None:
        allowed = traced.site(layer, attention).allowed_keys(head).cpu().numpy()
        strength = np.where(allowed, np.abs(maps[method].values), -1.0)
        order = np.argsort(-strength, axis=None, kind="stable")[: int(allowed.sum())][:top]
        cells = [(int(place) // strength.shape[1], int(place) % strength.shape[1]) for place in order]
    with progress_bar("intervals") as moved:
        result = ask(
            "attention_intervals",
            traced,
            layer=layer,
            head=head,
            row=row,
            cells=cells,
            attention=attention,
            progress=moved,
        )
    pairs = list(zip(result["query"].values, result["key"].values, strict=True))
    for name in map_names("weights"):
        result[name] = ("cell", [float(maps[name].values[query, key]) for query, key in pairs])
    result.attrs["options"] |= {"top": None if row is not None else top, "method": method, "value_bias": value_bias}
    return result


def _print(
    report: dict[str, Any], layer: int | None, head: int | None, row: int | None, method: str, everything: bool
) -> None:
    from identiscope.token_text import shown_token
    from identiscope.views.tables.terminal import console, print_table

    out = console()
    cut = f", {report['cut']} cut" if report["cut"] else ""
    out.print(f"{report['model']}, {report['tokens']} tokens{cut}, {report['attention']} attention\n", markup=False)
    for sentence in report["verdict"]:
        out.print(sentence, markup=False)
    out.print()
    if "weights" in report:
        raw, *others = map_names("weights")
        columns = {"from": "left", "to": "left"}
        merged = any(cell["copies"] > 1 for cell in report["weights"])
        ranges = ("may be", *(["with its copies", "may be together"] if merged else []))
        columns |= dict.fromkeys((raw, *ranges, *(name.replace("_", " ") for name in others)), "right")
        rows = [
            (
                f"{cell['query']} {shown_token(cell['query_token'])}",
                f"{cell['key']} {shown_token(cell['key_token'])}",
                cell[raw],
                f"{cell['lower']:.3f} … {cell['upper']:.3f}",
                *(_together(cell) if merged else ()),
                *(cell[name] for name in others),
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
    columns = dict.fromkeys(("layer", "head", "rank", "dim LN([T,1])", "free rows"), "right")
    shares = ("null share", "copies merged", "correlation", "null share, eq. 8", "correlation, eq. 9")
    columns |= dict.fromkeys(shares, "right")
    rows = [
        (
            line["layer"],
            line["head"],
            line["rank"],
            line["simplex_null_dimension"],
            line["free_rows"],
            line["simplex_null_share"],
            line["merged_null_share"],
            line["simplex_correlation"],
            line["null_share"],
            line["correlation"],
        )
        for line in report["heads"]
    ]
    print_table(
        "By head: rank of T and dimension of LN([T,1]) of the last row; share of rows that can move; ‖A∥‖²/‖A‖² in"
        " LN([T,1]), the same with equal tokens added up, and correlation of A with the rest; as in Brunner et al., in"
        " LN(T), which depends on where the model keeps its value bias",
        columns,
        rows,
        out,
    )


def _together(cell: dict[str, Any]) -> tuple[str, str]:
    """A key with its copies: what they weigh, and may weigh, together."""
    if cell["copies"] == 1:
        return "", ""
    return (
        f"{cell['merged_weight']:.3f} on {cell['copies']}",
        f"{cell['merged_lower']:.3f} … {cell['merged_upper']:.3f}",
    )


def _enough(report: dict[str, Any]) -> str:
    """Which tokens are enough for all rows; of later queries something is said only if a token was left out."""
    certified = f"certified for these rows (output kept to {report['output_error_relative']:.0e})"
    if len(report["kept"]) == report["keys"]:
        return (
            f"No token can be left out for all rows of this text: some row needs each of the {report['keys']}. The rows"
            f" over few tokens are {certified}."
        )
    names = ", ".join(one["token"] for one in report["kept"])
    bound = report["largest_dropping_bound"]
    later = (
        f"a weight w on a token that was left out may change the head's output by up to {bound:.3g}·w."
        if bound > NO_CHANGE
        else "a token that was left out brings nothing that those kept cannot, so it may be left out there, too."
    )
    return (
        f"{len(report['kept'])} tokens are enough for all rows of this text: {names}.\n\nThat is {certified}. Of a"
        f" later query only a bound is known: {later}"
    )


def _show_few(result: Any, model: str, *, as_json: bool, out: Path | None) -> None:
    """How few keys do: by row, and for all rows together."""
    from identiscope.files import printable
    from identiscope.results import save_result
    from identiscope.token_text import shown_token
    from identiscope.views.tables.terminal import console

    if out is not None:
        save_result(result, out)
    place = result.attrs["options"]
    keys, kept = result.sizes["key"], result["kept"].values
    tokens = [shown_token(token) for token in result["key_token"].values]
    report = {
        "model": model,
        "layer": place["layer"],
        "head": place["head"],
        "keys": keys,
        "most": int(result["most"].max()),
        "mean_count": float(result["count"].mean()),
        "mean_raw_count": float(result["raw_count"].mean()),
        "kept": [{"key": int(key), "token": tokens[key]} for key in kept.nonzero()[0]],
        "largest_dropping_bound": float(result["dropping_bound"].max()),
        "output_error_relative": float(result.attrs["output_error_relative"]),
    }
    if as_json:
        click.echo(json.dumps(_without_nan(report), indent=2))
        return
    console().print(
        f"{model}, layer {place['layer']}, head {place['head']}: a row of attention has weight on"
        f" {report['mean_raw_count']:.0f} of {keys} tokens in the mean; {report['mean_count']:.0f} are enough for the"
        f" identical output, and never more than {report['most']} are needed. (Fewer may do: the fewest are hard to"
        f" find.)\n\n{_enough(report)}",
        markup=False,
    )
    if out is not None:
        click.echo(f"\nsaved: {printable(out)}")
