"""`identiscope trace`: what every head attends to, as computed."""

import json
from typing import Any

import click

from identiscope.commands.options import heads_option, json_option, layers_option, model_options, text_options
from identiscope.commands.sections import listed
from identiscope.commands.tracing import load_and_trace


@listed("look", 20)
@click.command("trace")
@click.argument("model", default="minilm")
@text_options
@layers_option
@heads_option
@json_option
@model_options
def trace(
    model: str,
    text: str | None,
    layers: list[int] | None,
    heads: list[int] | None,
    as_json: bool,
    target: str | None,
    truncate: bool,
    **loading: Any,
) -> None:
    """Show what every head of MODEL attends to on TEXT: raw attention, as computed."""
    import torch

    from identiscope.methods.heads.head_summary import map_summary
    from identiscope.token_text import shown_token
    from identiscope.views.tables.terminal import console, print_table

    _, traced = load_and_trace(model, text, loading, target=target, layers=layers, heads=heads, truncate=truncate)
    rows: list[dict[str, Any]] = []
    for site in traced.sites:
        queries, keys = traced.streams[site.query_stream].tokens, traced.streams[site.key_stream].tokens
        special = torch.tensor(traced.streams[site.key_stream].special)
        for head in site.heads:
            summary = map_summary(site.attention(head), special)
            rows.append(
                {"kind": site.kind, "layer": site.layer, "head": head}
                | vars(summary)
                | {"from": queries[summary.strongest_query], "to": keys[summary.strongest_key]}
            )
    if as_json:
        click.echo(json.dumps({"model": model, "tokens": traced.tokens, "heads": rows}, indent=2))
        return
    out = console()
    cut = f" ({traced.main.cut} tokens cut)" if traced.main.cut else ""
    out.print(f"{len(traced.main)} tokens{cut}: {' '.join(map(shown_token, traced.tokens))}\n", markup=False)
    columns = {"kind": "left"} | dict.fromkeys(
        ("layer", "head", "entropy", "to special", "to itself", "strongest"), "right"
    )
    columns |= {"between": "left"}
    print_table(
        "Raw attention by head: mean entropy (bits), mean weight on special tokens and on itself, strongest other",
        columns,
        [
            (
                row["kind"],
                row["layer"],
                row["head"],
                row["entropy"],
                row["to_special"],
                row["to_self"],
                row["strongest"],
                f"{shown_token(row['from'])} → {shown_token(row['to'])}",
            )
            for row in rows
        ],
        out,
    )
