"""How commands are given a text: as words, or in a file. The name of a file is never taken for a text."""

import os
from pathlib import Path

import click

#: What files of texts end in.
SUFFIXES = (".txt", ".md", ".rst", ".tsv", ".csv", ".json", ".jsonl", ".conllu", ".parquet", ".html", ".gz", ".pdf")


def given_text(text: str | None, words: str | None, file: Path | None) -> str | None:
    """The one text that was given: as TEXT, with --text, or in a file; None if none was."""
    given = [one for one in (text, words, file) if one is not None]
    if len(given) > 1:
        raise click.UsageError("give a text (TEXT or --text) or --file, not both.")
    if text is not None:
        ask_about_paths(text)
    if file is not None:
        from identiscope.corpus.lines import whole_text

        return whole_text(file)
    return text if words is None else words


def ask_about_paths(text: str) -> None:
    """Refuse a TEXT that looks like a path, with a question."""
    shown = text if len(text) <= 80 else text[:79] + "…"
    anyway = f"Give --text {shown} to analyse these words."
    if os.path.isdir(text):
        raise click.UsageError(
            f"{shown!r} is a directory, and was given as a text; did you mean a Run: identiscope report --run {shown}?"
            f" {anyway}"
        )
    if os.path.exists(text) or (not _has_blanks(text) and (_has_suffix(text) or _has_separator(text))):
        raise click.UsageError(
            f"{shown!r} looks like a file, and was given as a text; did you mean --file {shown}? {anyway}"
        )


def ask_about_runs(text: str) -> None:
    """Refuse a TEXT that may be the name of a Run which is not there."""
    if text.strip() and not _has_blanks(text):
        raise click.UsageError(
            f"{text!r} is one word, and no Run is there; did you mean a Run in another place: --run DIR? Give --text"
            f" {text} to analyse this word."
        )


def _has_blanks(text: str) -> bool:
    return len(text.split()) != 1


def _has_suffix(text: str) -> bool:
    return text.lower().endswith(SUFFIXES)


def _has_separator(text: str) -> bool:
    return any(one in text for one in (os.sep, os.altsep) if one)
