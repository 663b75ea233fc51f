"""`identiscope statistic`: a statistic of attention, and what it could have been."""

import json
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import (
    AT_LEAST_TWO,
    Finite,
    attention_option,
    heads_option,
    json_option,
    layers_option,
    model_options,
    out_option,
    seed_option,
    text_options,
)
from identiscope.commands.sections import listed
from identiscope.commands.tracing import load_and_trace

#: Heads that are shown; all of them are in --json and --out.
MOST_ROWS = 12


@listed("look", 35)
@click.command("statistic")
@click.argument("model", default="minilm")
@text_options
@click.option(
    "--on",
    default="first",
    show_default=True,
    metavar="SPAN",
    help="Weight on these keys: positions (3, 3:7), words of the text, or first, last, special, ordinary, punctuation,"
    " self, previous, next, all.",
)
@click.option("--from", "rows", metavar="SPAN", help="Mean over these queries only.")
@click.option("--minus", metavar="SPAN", help="Less the weight on these keys.")
@click.option("--over", metavar="SPAN", help="Divided by the weight on these keys.")
@click.option("--threshold", type=Finite(), help="Is it on one side of this number, whatever the attention was?")
@click.option("--sample", type=AT_LEAST_TWO, help="Look at so many rows only, drawn at random, with an error bar.")
@seed_option("the rows that are drawn")
@layers_option
@heads_option
@attention_option
@json_option
@out_option("Save the result (safetensors), or its whole table (a name that ends in .csv).")
@model_options
def statistic(
    model: str,
    text: str | None,
    threshold: float | None,
    as_json: bool,
    out: Path | None,
    target: str | None,
    truncate: bool,
    **options: Any,
) -> None:
    """A statistic of MODEL's attention on TEXT, and what it could be with exactly the same output.

    The mean weight that tokens give to chosen tokens: exact bounds over all attention that gives every head's output,
    by head and in the mean. Without TEXT, a built-in passage is used.

    \b
    identiscope statistic minilm --on first
    identiscope statistic smollm2 "…" --on "Paris" --from last --threshold 0.1
    """
    from identiscope.asking.ask import ask
    from identiscope.commands.method import save_as
    from identiscope.files import check_writable, printable
    from identiscope.judge.threshold import counted_rows, mean_errors, mean_interval, side_of
    from identiscope.views.progress import progress_bar

    names = ("on", "rows", "minus", "over", "sample", "seed", "layers", "heads", "attention")
    own = {name: value for name in names if (value := options.pop(name)) is not None}
    if out is not None:
        check_writable(out)
    _, traced = load_and_trace(model, text, options, passage=True, target=target, truncate=truncate)
    own.setdefault("attention", traced.kinds[0])
    with progress_bar("layers") as moved:
        result = ask("statistic_interval", traced, progress=moved, **own)
    if out is not None:
        save_as(result, out)
    mean, errors, rows = mean_interval(result), mean_errors(result), counted_rows(result)
    said = side_of(*mean, threshold, rows, errors).sentence(threshold) if threshold is not None else None
    ends = ("statistic", "lower", "upper")
    report = {
        "model": model, "tokens": len(traced.main), **{name: own.get(name) for name in names[:4]},
        **dict(zip(ends, map(_known, mean), strict=True)),
        **{f"{name}_error": _known(error) for name, error in zip(ends, errors, strict=True)},
        "rows_meant": rows.meant, "rows_looked_at": rows.looked_at, "rows_defined": rows.defined,
        "rows_said": rows.sentence(), "threshold": threshold, "verdict": said, "heads": _heads(result),
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    _print(report, own)
    if out is not None:
        click.echo(f"\nsaved: {printable(out)}")


def _known(number: float) -> float | None:
    """What JSON has no word for is none."""
    return None if number != number else number


def _heads(result: Any) -> list[dict[str, Any]]:
    """A line for each head, that with the widest interval first."""
    names = ["statistic", "lower", "upper", "statistic_error", "rows_meant", "rows_looked_at", "rows"]
    table = result[names].to_dataframe().reset_index()
    table["width"] = table["upper"] - table["lower"]
    table = table.sort_values("width", ascending=False, kind="stable", na_position="last")
    return [{name: None if one != one else one for name, one in row.items()} for row in table.to_dict("records")]


def _mean(report: dict[str, Any]) -> str:
    """The mean over heads in words: an estimate where rows were drawn, exact bounds otherwise."""
    where = ", in the rows where it is defined," if report["rows_defined"] < report["rows_looked_at"] else ""
    if report["rows_looked_at"] == report["rows_meant"]:
        return (
            f"In the mean over heads{where} it is {report['statistic']:.3f}. With exactly the same output of every head"
            f" it may be anything from {report['lower']:.3f} to {report['upper']:.3f}."
        )
    now, low, high = (
        f"{report[name]:.3f} ± {'?' if report[f'{name}_error'] is None else format(report[f'{name}_error'], '.3f')}"
        for name in ("statistic", "lower", "upper")
    )
    return (
        f"In the mean over heads{where} it is about {now}. With exactly the same output of every head it may be"
        f" anything from about {low} to {high}: estimates from the rows drawn, with standard errors."
    )


def _print(report: dict[str, Any], own: dict[str, Any]) -> None:
    from identiscope.views.tables.terminal import console, print_table

    what = f"mean weight on {own.get('on', 'first')}"
    what += f" less that on {own['minus']}" if "minus" in own else ""
    what += f", divided by that on {own['over']}" if "over" in own else ""
    what += f", from {own['rows']}" if "rows" in own else ""
    out = console()
    out.print(f"{report['model']}, {report['tokens']} tokens: {what}\n", markup=False)
    if not report["rows_meant"]:
        out.print(f"No row was meant: {own.get('rows')} is no token of this text.", markup=False)
        return
    if report["rows_said"]:
        out.print(report["rows_said"], markup=False)
    if report["statistic"] is None:
        drawn = " that was drawn" if report["rows_looked_at"] < report["rows_meant"] else ""
        out.print(f"Not defined in any row{drawn}: what it is divided by can be zero.", markup=False)
        return
    out.print(_mean(report), markup=False)
    if report["verdict"]:
        out.print(report["verdict"], markup=False)
    shown = report["heads"][:MOST_ROWS]
    drawn = report["rows_looked_at"] < report["rows_meant"]
    partly = report["rows_defined"] < report["rows_looked_at"]
    names = ("layer", "head", "statistic", *(["± (rows drawn)"] if drawn else []), "may be")
    columns = dict.fromkeys((*names, *(["rows defined"] if partly else [])), "right")
    rows = [
        (
            line["layer"],
            line["head"],
            "–" if line["statistic"] is None else line["statistic"],
            *(["–" if line["statistic_error"] is None else line["statistic_error"]] if drawn else []),
            "not defined" if line["lower"] is None else f"{line['lower']:.3f} … {line['upper']:.3f}",
            *([f"{line['rows']} of {line['rows_looked_at']}"] if partly else []),
        )
        for line in shown
    ]
    more = f", {len(shown)} of {len(report['heads'])}" if len(shown) < len(report["heads"]) else ""
    out.print()
    print_table(f"By head, the loosest first{more}", columns, rows, out)
