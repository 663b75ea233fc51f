"""Options that commands share."""

import math
import re
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from identiscope.commands.texts import given_text

#: More of anything than can be counted here, and more layers or heads than anything has.
MOST, MOST_NUMBERS = 2**31, 10_000


class Whole(click.IntRange):
    """A whole number from `least` on that can be counted to. (A base class of click's.)"""

    def __init__(self, least: int) -> None:
        super().__init__(min=least)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        number = int(super().convert(value, param, ctx))
        if number >= MOST:
            self.fail(f"{number} is too large", param, ctx)
        return number


#: How many of something; of something that needs two; where random numbers begin, and a layer, head or row.
COUNT, AT_LEAST_TWO = Whole(1), Whole(2)
SEED = PLACE = Whole(0)


class Finite(click.FloatRange):
    """A number in a range, and neither infinite nor none. (A base class of click's.)"""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


#: A number above zero.
POSITIVE = Finite(min=0, min_open=True)


class Numbers(click.ParamType[list[int]]):
    """A choice of whole numbers: `3`, `0,2,5` or `0-3`. (A base class of click's.)"""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """The numbers named."""
        if isinstance(value, list):
            return value
        chosen: list[int] = []
        for part in str(value).split(","):
            span = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip())
            if span is None:
                self.fail(f"{value!r} is not a list of numbers such as 3, 0,2,5 or 0-3", param, ctx)
            first, last = int(span[1]), int(span[2] or span[1])
            if last < first:
                self.fail(f"{part!r} runs backwards; give the smaller number first", param, ctx)
            if len(chosen) + last - first >= MOST_NUMBERS:
                self.fail(f"{value!r} is more than {MOST_NUMBERS:,} numbers", param, ctx)
            chosen += range(first, last + 1)
        return chosen


#: Choices that commands share, always under the same names and counted from 0.
layer_option = click.option("--layer", type=PLACE, help="One layer (block), from 0.")
head_option = click.option("--head", type=PLACE, help="One head, from 0.")
layers_option = click.option("--layers", type=Numbers(), help="Only these layers (blocks), from 0: 3 or 0,2 or 0-3.")
heads_option = click.option("--heads", type=Numbers(), help="Only these heads, from 0.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
#: Which attention of a model, where it has several.
ATTENTION = click.Choice(["encoder-self", "decoder-self", "cross"])


def seed_option(of: str) -> Callable[..., Any]:
    """Where random numbers begin; of: what is drawn."""
    return click.option("--seed", type=SEED, default=0, show_default=True, help=f"Of {of}.")


def outcome_option(what: str, default: str = "the most likely word or class") -> Callable[..., Any]:
    """What is explained; what: that in words, for this command."""
    return click.option("--outcome", metavar="WHAT", help=f"{what}  [default: {default}]")


def out_option(what: str, **options: Any) -> Callable[..., Any]:
    """Where a command writes; what: what it writes there."""
    return click.option("-o", "--out", type=click.Path(path_type=Path), help=what, **options)


def attention_option(command: Callable[..., None]) -> Callable[..., None]:
    """`--attention`, which was called `--kind`."""

    @wraps(command)
    def with_attention(*arguments: Any, attention: str | None, kind: str | None, **options: Any) -> None:
        command(*arguments, attention=attention or renamed("--kind", kind, "--attention"), **options)

    for option in (
        click.option("--kind", type=ATTENTION, hidden=True),
        click.option("--attention", type=ATTENTION, help="Which attention, where the model has several."),
    ):
        with_attention = option(with_attention)
    return with_attention


def renamed(old: str, given: Any, new: str) -> Any:
    """What was given by an option's old name, with a warning if anything was."""
    if given is not None:
        warnings.warn(f"{old} is called {new} now, and will be gone in 0.2.", FutureWarning, stacklevel=3)
    return given


def text_options(command: Callable[..., None]) -> Callable[..., None]:
    """TEXT, `--text` or `--file`, of which one may be given: the command gets a `text`, or None."""

    @wraps(command)
    def with_text(*arguments: Any, text: str | None, words: str | None, file: Path | None, **options: Any) -> None:
        command(*arguments, text=given_text(text, words, file), **options)

    return _ways_to_give_a_text(with_text, click.argument("text", required=False))


def several_texts_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same where there may be several, or a Run: the command gets `texts`, `words` and a `file`."""
    return _ways_to_give_a_text(command, click.argument("texts", nargs=-1, metavar="[TEXT|RUN]..."), multiple=True)


def _ways_to_give_a_text(
    command: Callable[..., None], argument: Callable[..., Any], *, multiple: bool = False
) -> Callable[..., None]:
    again = "; may be repeated" if multiple else ""
    for option in (
        click.option("--file", type=click.Path(path_type=Path), help="Read the text from this file (UTF-8)."),
        click.option("--text", "words", metavar="TEXT", multiple=multiple,
                     help=f"The text, whatever it looks like: TEXT is asked about if it looks like a file{again}."),
        argument,
    ):  # fmt: skip
        command = option(command)
    return command


def corpus_options(command: Callable[..., None]) -> Callable[..., None]:
    """CORPUS, or `--file`, of which one is given: the command gets a `corpus`."""

    @wraps(command)
    def with_corpus(*arguments: Any, corpus: str | None, **options: Any) -> None:
        if corpus is None:
            raise click.UsageError("give CORPUS (a file, or the name of a corpus) or --file.")
        command(*arguments, corpus=corpus, **options)

    return maybe_corpus_options(with_corpus)


def maybe_corpus_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same where there may be none: the command gets a `corpus`, or None."""

    @wraps(command)
    def with_corpus(*arguments: Any, corpus: str | None, file: Path | None, **options: Any) -> None:
        if corpus is not None and file is not None:
            raise click.UsageError("give CORPUS or --file, not both.")
        command(*arguments, corpus=corpus if file is None else str(file), **options)

    for option in (
        click.option("--file", type=click.Path(exists=True, path_type=Path),
                     help="Read CORPUS from this file, whatever its name."),
        click.argument("corpus", required=False),
    ):  # fmt: skip
        with_corpus = option(with_corpus)
    return with_corpus


DTYPES = ("float64", "float32", "float16", "bfloat16")
#: The names of what `loading_options` and `analysis_options` give, which are those of `identiscope.load`.
LOADING = ("revision", "trust_remote_code", "device", "dtype", "analysis_device")


def loading_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that loads a model."""
    for option in (
        click.option("--dtype", type=click.Choice(DTYPES), help="Precision of the weights; by default as they are."),
        click.option("--device", help="Where the model runs: cpu, cuda, cuda:1, mps, …, or auto for the best that is"
                     " there.  [default: cpu]"),
        click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the model."),
        click.option("--revision", help="Revision of a model on the hub."),
    ):  # fmt: skip
        command = option(command)
    return command


def analysis_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that loads a model and looks at its attention."""
    option = click.option(
        "--analysis-device", metavar="DEVICE", help="Where its attention is analysed; by default where the model runs."
    )
    return loading_options(option(command))


def loading(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a command's options that `identiscope.load` takes, if they were given."""
    return {name: options[name] for name in LOADING if options.get(name)}


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that loads a model and runs a text."""
    for option in (
        analysis_options,
        click.option("--truncate", is_flag=True, help="Cut a text that is too long for the model, and say how much."),
        click.option("--target", help="For an encoder–decoder: the text the decoder has been given."),
    ):
        command = option(command)
    return command
