"""`identiscope trace`: what every head attends to, as computed."""

import json
from typing import Any

import click

from identiscope.commands.options import Numbers, model_options


@click.command("trace")
@click.argument("model", default="minilm")
@click.argument("text", required=False)
@click.option("--layers", type=Numbers(), help="Only these layers, from 0: 3 or 0,2 or 0-3.")
@click.option("--heads", type=Numbers(), help="Only these heads, from 0.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@model_options
def trace(
    model: str,
    text: str | None,
    layers: list[int] | None,
    heads: list[int] | None,
    as_json: bool,
    target: str | None,
    truncate: bool,
    revision: str | None,
    trust_remote_code: bool,
) -> None:
    """Show what every head of MODEL attends to on TEXT: raw attention, as computed."""
    import torch

    from identiscope import capture
    from identiscope.capture.samples import sample_input
    from identiscope.methods.head_summary import head_summary
    from identiscope.views.terminal import console, print_table, readable

    loaded = capture.load(model, revision=revision, trust_remote_code=trust_remote_code)
    given, _ = (text, "") if text is not None else sample_input(loaded)
    found = capture.trace(loaded, given, target=target, layers=layers, heads=heads, truncate=truncate)
    rows: list[dict[str, Any]] = []
    for site in found.sites:
        queries, keys = found.streams[site.query_stream].tokens, found.streams[site.key_stream].tokens
        special = torch.tensor(found.streams[site.key_stream].special)
        for head in site.heads:
            summary = head_summary(site.attention(head), special)
            rows.append(
                {"kind": site.kind, "layer": site.layer, "head": head}
                | vars(summary)
                | {"from": queries[summary.strongest_query], "to": keys[summary.strongest_key]}
            )
    if as_json:
        click.echo(json.dumps({"model": model, "tokens": found.tokens, "heads": rows}, indent=2))
        return
    out = console()
    cut = f" ({found.main.cut} tokens cut)" if found.main.cut else ""
    out.print(f"{len(found.main)} tokens{cut}: {' '.join(map(readable, found.tokens))}\n", markup=False)
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
                f"{readable(row['from'])} → {readable(row['to'])}",
            )
            for row in rows
        ],
        out,
    )
