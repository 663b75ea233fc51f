"""The command line: a thin table of the commands in `commands/`."""

import sys
import warnings

import click

from identiscope import __version__
from identiscope.commands.attention import attention
from identiscope.commands.attribution import attribution
from identiscope.commands.check import check
from identiscope.commands.report import report
from identiscope.commands.reproduce import reproduce
from identiscope.commands.reverse_demo import reverse_demo
from identiscope.commands.run import run as run_corpus
from identiscope.commands.serve import serve
from identiscope.commands.structure import structure
from identiscope.commands.tokens import fine_tune, tokens
from identiscope.commands.trace import trace
from identiscope.commands.train_identifiable import train_identifiable
from identiscope.errors import IdentiscopeError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="identiscope")
def main() -> None:
    """Which part of what a transformer shows you is real?

    MODEL is a built-in name (minilm, smollm2), a directory, or an id on the hub.
    """


for command in (
    check, trace, attention, attribution, tokens, fine_tune, structure, reverse_demo, train_identifiable,
    run_corpus, report, serve, reproduce,
):  # fmt: skip
    main.add_command(command)


def run() -> None:
    """The console script: an error of ours becomes one line, not a traceback, and a warning its message alone."""
    warnings.showwarning = lambda message, *_, **__: click.echo(f"warning: {message}", err=True)
    try:
        main()
    except IdentiscopeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
