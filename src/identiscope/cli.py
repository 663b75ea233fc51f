"""The command line: a thin table of the commands in `commands/`."""

import sys

import click

from identiscope import __version__
from identiscope.commands.attention import attention
from identiscope.commands.attribution import attribution
from identiscope.commands.check import check
from identiscope.commands.tokens import fine_tune, tokens
from identiscope.commands.trace import trace
from identiscope.errors import IdentiscopeError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="identiscope")
def main() -> None:
    """Which part of what a transformer shows you is real?

    MODEL is a built-in name (minilm, smollm2), a directory, or an id on the hub.
    """


for command in (check, trace, attention, attribution, tokens, fine_tune):
    main.add_command(command)


def run() -> None:
    """The console script: an error of ours becomes one line, not a traceback."""
    try:
        main()
    except IdentiscopeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
