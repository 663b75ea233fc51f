"""The command line: every command that a module of `commands/` lists."""

import logging
import os
import pkgutil
import sys
import traceback
import warnings
from importlib import import_module
from io import TextIOWrapper

import click

import identiscope.commands
from identiscope.commands.memory import free_in_words
from identiscope.commands.sections import InSections, commands
from identiscope.errors import IdentiscopeError
from identiscope.files import printable
from identiscope.version import __version__


@click.group(cls=InSections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="identiscope")
def main() -> None:
    """Which part of what a transformer shows you is real?

    MODEL is a built-in name (minilm, smollm2), a directory, or an id on the hub.
    """


for module in pkgutil.iter_modules(identiscope.commands.__path__, "identiscope.commands."):
    import_module(module.name)
for command in commands():
    main.add_command(command)


def run() -> None:
    """The console script: an error becomes one line and not a traceback, and a warning its message alone.

    IDENTISCOPE_TRACEBACK=1 shows where an error came from, too.
    """
    warnings.showwarning = lambda message, *_, **__: click.echo(f"warning: {message}", err=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name that is no UTF-8 is shown by its escapes, whatever the terminal.
            stream.reconfigure(errors="backslashreplace")
    if sys.stderr.isatty():
        _tell_who_waits("identiscope.compiling")
    try:
        main()
    except Exception as error:
        if os.environ.get("IDENTISCOPE_TRACEBACK"):
            traceback.print_exc()
        said, code = explained(error)
        click.echo(f"error: {said}", err=True)
        sys.exit(code)


def _tell_who_waits(logger: str) -> None:
    """Write what a logger says to the standard error."""

    class Echo(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            click.echo(record.getMessage(), err=True)

    logging.getLogger(logger).addHandler(Echo())
    logging.getLogger(logger).setLevel(logging.INFO)


def explained(error: Exception) -> tuple[str, int]:
    """An error in words, and the exit code: 2 for what was refused or is not to be had, 1 for a mistake of ours."""
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, IdentiscopeError):
        return str(error), 2
    if isinstance(error, OSError):
        place = f"{printable(os.fsdecode(error.filename))}: " if isinstance(error.filename, (str, bytes)) else ""
        return f"{place}{error.strerror or said}. See to it, or name another place.", 2
    if isinstance(error, UnicodeError):
        return f"something is no text in the encoding that was expected: {said[:300]}.", 2
    if isinstance(error, RecursionError):
        return "something is nested more deeply than can be followed here.", 2
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in said and "alloc" in said):
        wanted = f" It said: {said[:200]}" if str(error) else ""
        free = free_in_words()
        return f"there is not enough memory for this{free}; take fewer or shorter texts, or smaller sizes.{wanted}", 2
    return (
        f"{type(error).__name__}: {said[:300]}. This is a mistake in identiscope: please report it, with what"
        " IDENTISCOPE_TRACEBACK=1 in front of the command shows."
    ), 1
