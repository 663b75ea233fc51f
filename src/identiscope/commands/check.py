"""`identiscope check`: is what we capture what the model computed?"""

import json
import sys
from typing import Any

import click

from identiscope.commands.options import json_option, model_options, text_options
from identiscope.commands.sections import listed
from identiscope.errors import IdentiscopeError


@listed("look", 10)
@click.command()
@click.argument("model", default="minilm")
@text_options
@json_option
@model_options
def check(
    model: str,
    text: str | None,
    as_json: bool,
    target: str | None,
    truncate: bool,
    **loading: Any,
) -> None:
    """Capture MODEL's attention and compare it with what the model returned.

    On TEXT; without it on a sentence, or noise for a model that reads none.
    The exit code is 0 only if every attention site was found and rebuilds the block's output.
    """
    from identiscope.capture import load, trace
    from identiscope.capture.samples import sample_input

    report: dict[str, Any] = {"model": model}
    try:
        loaded = load(model, **loading)
        given, described = (text, f"the text {text!r}") if text is not None else sample_input(loaded)
        traced = trace(loaded, given, target=target, truncate=truncate)
        verification = traced.verify()
    except IdentiscopeError as error:
        if as_json:
            click.echo(json.dumps(report | {"verified": False, "error": str(error)}, indent=2))
        else:
            click.echo(f"not verified: {error}", err=True)
        sys.exit(1)
    report |= {
        "verified": verification.verified,
        "input": described,
        "tokens": len(traced.main),
        "cut": traced.main.cut,
        "recorded": verification.recorded,
        "expected": verification.expected,
        "error": verification.error,
        "precision": verification.precision,
        "sites": [vars(site) for site in verification.sites],
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print_check(repr(loaded), report)
    sys.exit(0 if verification.verified else 1)


def _print_check(model: str, report: dict[str, Any]) -> None:
    from identiscope.views.tables.terminal import console, print_table

    out = console()
    out.print(model, markup=False)
    cut = f", {report['cut']} tokens cut" if report["cut"] else ""
    out.print(f"on {report['input']}: {report['tokens']} tokens{cut}\n", markup=False)
    columns = {"layer": "right", "kind": "left", "module": "left"}
    columns |= dict.fromkeys(("heads", "kv", "size", "d_k", "d_v"), "right")
    columns |= {"mask": "left", "error": "right", "precision": "left"}
    rows = [
        (
            site["layer"],
            site["kind"],
            site["name"],
            site["heads"],
            site["key_value_heads"],
            f"{site['queries']}×{site['keys']}",
            site["d_k"],
            site["d_v"],
            site["mask"],
            f"{site['error']:.1e}",
            site["precision"] + ("" if site["verified"] else "  ✗"),
        )
        for site in report["sites"]
    ]
    print_table("Attention sites, Σ A·V·H + b against the block's output", columns, rows, out)
    word = f"verified to {report['precision']}" if report["verified"] else "NOT verified"
    out.print(
        f"\n{word}: {report['recorded']} of {report['expected']} attention modules recorded;"
        f" largest relative error {report['error']:.1e}",
        markup=False,
    )
