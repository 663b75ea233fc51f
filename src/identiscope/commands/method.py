"""`identiscope method NAME`: any registered method on a text; made from the registry, when it is asked for."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from identiscope.commands.annotations import default_of, type_of
from identiscope.commands.options import json_option, model_options, out_option, text_options
from identiscope.commands.sections import listed, write_rows
from identiscope.commands.tracing import load_and_trace
from identiscope.errors import InputError
from identiscope.methods.kinds import KINDS
from identiscope.methods.registry import METHODS, Method, of_kind
from identiscope.methods.registry import method as registered_method
from identiscope.methods.signatures import signature

#: So many rows are shown; all of them are in --json and --out.
MOST_ROWS = 20


class Methods(click.Group):
    """A group with a command for each method of the registry, as it is now. (A base class of click's.)"""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(METHODS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """That of a method; dashes are as good as underscores, and an alias as a name."""
        try:
            return method_command(registered_method(cmd_name.replace("-", "_")))
        except InputError as error:
            raise click.UsageError(str(error), ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """All methods by kind, with their sentence."""
        write_methods(formatter)


def write_methods(formatter: click.HelpFormatter) -> None:
    """A section for each kind that has methods."""
    width = max(map(len, METHODS), default=0)
    for kind in KINDS.values():
        rows = [(one.name.ljust(width), one.says) for one in of_kind(kind.name)]
        write_rows(formatter, f"{kind.name} ({kind.says})", rows)


@listed("look", 40)
@click.group(cls=Methods, subcommand_metavar="NAME [MODEL] [TEXT]...")
def method() -> None:
    """Ask any method of a text: identiscope method NAME MODEL TEXT.

    The options of a method are shown by: identiscope method NAME --help.
    """


@listed("look", 50)
@click.command("methods")
@json_option
def methods(as_json: bool) -> None:
    """List all methods by kind, each in a sentence."""
    if as_json:
        fields = ("name", "kind", "paper", "says", "aliases", "axes")
        click.echo(json.dumps([{name: getattr(one, name) for name in fields} for one in METHODS.values()], indent=2))
        return
    formatter = click.HelpFormatter(width=100)
    write_methods(formatter)
    click.echo(formatter.getvalue().strip("\n"))


def method_command(one: Method) -> click.Command:
    """The command of a method: its options are those of its signature, and those of every command with a text."""

    def ask_it(model: str, text: str | None, **options: Any) -> None:
        own = {name: options.pop(name) for name in names}
        _ask(one, model, text, {name: value for name, value in own.items() if value is not None}, **options)

    command = out_option("Save the result (safetensors), or its whole table (a name that ends in .csv).")(ask_it)
    command = model_options(json_option(command))
    names: list[str] = []
    python_only: list[str] = []
    options = []
    for option in signature(one).options:
        known = None if option.name in _taken() else type_of(one, option)
        if known is None:
            python_only.append(option.name)
            continue
        names.append(option.name)
        flag = "--" + option.name.replace("_", "-")
        default = default_of(one, option)
        said = f"{option.says[:1].upper()}{option.says[1:]}." if option.says else ""
        options.append(
            click.option(
                f"{flag}/--no-{flag[2:]}" if known is click.BOOL else flag,
                option.name,
                type=None if known is click.BOOL else known,
                # A default of None is one for click; here it means: as the method itself has it.
                **({"required": True} if option.default is None else {"default": None}),
                help=said if default is None else f"{said}  [default: {default}]".strip(),
            )
        )
    for add in reversed(options):
        command = add(command)
    command = click.argument("model", default="minilm")(text_options(command))
    return click.command(one.name, help=_help(one, python_only), short_help=one.says)(command)


@cache
def _taken() -> frozenset[str]:
    """The names of what every such command has, whatever its method."""

    def nothing(**_: Any) -> None:
        """What stands for a command."""

    command: Any = text_options(model_options(json_option(out_option("")(nothing))))
    return frozenset({"model", *(param.name for param in command.__click_params__)})


def _help(one: Method, python_only: list[str]) -> str:
    says = one.says[:1].upper() + one.says[1:]
    parts = [f"{says}.", f"{one.paper}. Kind: {one.kind} ({one.family.says}). Without TEXT, a sample is used."]
    if python_only:
        parts.append(f"Python only: {', '.join(python_only)} (identiscope.{one.name}).")
    return "\n\n".join(parts)


def _ask(
    one: Method,
    model: str,
    text: str | None,
    own: Mapping[str, Any],
    *,
    as_json: bool,
    out: Path | None,
    target: str | None,
    truncate: bool,
    **loading: Any,
) -> None:
    from identiscope.asking.ask import ask
    from identiscope.files import check_writable
    from identiscope.views.progress import progress_bar

    if out is not None:
        check_writable(out)
    _, traced = load_and_trace(model, text, loading, target=target, truncate=truncate)
    with progress_bar(one.name) as moved:
        result = ask(one.name, traced, progress=moved, **own)
    show_result(result, model, as_json=as_json, out=out)


def show_result(result: Any, model: str, *, as_json: bool, out: Path | None) -> None:
    """Save a result, if asked to, and print it: as JSON, or its largest rows."""
    from identiscope.files import printable
    from identiscope.views.tables.rows import in_words, json_rows, print_rows

    if out is not None:
        save_as(result, out)
    if as_json:
        facts = {name: result.attrs.get(name) for name in ("method", "kind", "says", "paper", "options")}
        said = {"in_words": sentences} if (sentences := in_words(result)[0]) else {}
        click.echo(json.dumps({"model": model, **facts, **said, **json_rows(result)}, indent=2))
        return
    print_rows(result, MOST_ROWS)
    if out is not None:
        click.echo(f"\nsaved: {printable(out)}")


def save_as(result: Any, out: Path) -> None:
    """Write a result, or its tidy table to a file whose name ends in .csv."""
    from identiscope.files import write_file
    from identiscope.results import save_result
    from identiscope.views.tables.rows import csv_rows

    if out.suffix.lower() == ".csv":
        write_file(out, csv_rows(result).encode("utf-8"))
    else:
        save_result(result, out)
