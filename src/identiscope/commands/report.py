"""`identiscope report`: one HTML file that shows what of the attention is real."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from identiscope.commands.options import (
    AT_LEAST_TWO,
    attention_option,
    layers_option,
    loading,
    model_options,
    outcome_option,
    several_texts_options,
)
from identiscope.commands.sections import listed
from identiscope.commands.texts import ask_about_paths, ask_about_runs
from identiscope.errors import InputError
from identiscope.methods.registry import METHODS

#: The options that a page of a Run has.
OF_RUNS = ("run_directory", "out")


@listed("look", 60)
@click.command("report")
@click.argument("model", default="minilm")
@several_texts_options
@click.option("--run", "run_directory", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="The page of a corpus run, in this directory.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("report.html"),
              show_default=True, help="The HTML file to write.")  # fmt: skip
@layers_option
@attention_option
@click.option("--canonical", default="auto", show_default=True,
              help="Heads to compute canonical maps of: auto, all, none, or layer:head as 0:4,3:7.")  # fmt: skip
@click.option("--intervals", "rows", multiple=True, metavar="LAYER:HEAD:ROW",
              help="A row to compute the intervals of all weights of; may be repeated.")  # fmt: skip
@click.option("--with", "others", multiple=True, metavar="METHOD|FILE",
              help="Show another method too (`identiscope method --help` lists them), or a saved result; may be"
              " repeated, or several methods given as rollout,effective.")  # fmt: skip
@outcome_option("What methods of --with explain, those that explain something; as in identiscope explain.")
@click.option("--attribution", type=AT_LEAST_TWO, metavar="PROBES",
              help="Estimate Hidden Token Attribution with so many directions, and show it.")  # fmt: skip
@click.option("--no-verdict", is_flag=True, help="Leave out the linear programs behind the verdict: far quicker.")
@model_options
def report(model: str, out: Path, **options: Any) -> None:
    """Write one HTML file that shows what of MODEL's attention on TEXT is real: maps, rows, alternatives.

    It holds everything and asks nothing of any network. Several TEXTs give several files, numbered. A RUN is the
    directory of a corpus run: its page shows the corpus as a whole, and takes no option but --out. Without TEXT, a
    built-in passage is used.
    """
    from identiscope.files import check_writable

    if os.path.isfile(os.path.join(model, "manifest.json")) and not os.path.exists(os.path.join(model, "config.json")):
        raise click.UsageError(f"{model!r} is a Run, and was given as a model; did you mean --run {model}?")
    given = _given(options)
    if isinstance(given, Path):
        _refuse_what_no_run_takes()
        check_writable(out)
        _of_run(given, model if _was_given("model") else None, out)
        return
    methods, files = _others(options["others"])
    places = _numbers("--canonical", options["canonical"].split(","), 2) if ":" in options["canonical"] else None
    if places is None and options["canonical"] not in ("auto", "all", "none"):
        raise click.BadParameter("give auto, all, none, or layer:head", param_hint="--canonical")
    chosen = {
        "layers": options["layers"],
        "attention": options["attention"],
        "canonical": places or options["canonical"],
        "intervals": _numbers("--intervals", options["rows"], 3),
        "with_verdict": not options["no_verdict"],
        "methods": methods,
        "outcome": options["outcome"],
    }
    paths = [out] if len(given) < 2 else [out.with_stem(f"{out.stem}-{place + 1}") for place in range(len(given))]
    for path in paths:
        check_writable(path)
    _of_texts(model, given, paths, chosen, options | {"files": files})


def _given(options: Mapping[str, Any]) -> Path | list[str]:
    """The directory of a Run, or texts; none of them for the passage that is built in."""
    from identiscope.corpus.lines import whole_text

    texts, words, file, run = (options[name] for name in ("texts", "words", "file", "run_directory"))
    if sum(map(bool, (texts, words, file, run))) > 1:
        raise click.UsageError("give texts (TEXT or --text), --file or --run, not both.")
    if len(texts) == 1 and os.path.isdir(texts[0]):
        run = Path(texts[0])
    if run is not None:
        return Path(run)
    for text in texts:
        ask_about_paths(text)
    if len(texts) == 1:
        ask_about_runs(texts[0])
    return [whole_text(file)] if file is not None else [*texts, *words]


def _others(given: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Methods by name, and files of results."""
    names = {name: one.name for one in METHODS.values() for name in (one.name, *one.aliases)}
    methods, files = [], []
    for one in given:
        parts = [part.strip() for part in one.split(",")]
        if all(part in names for part in parts):
            methods += [names[part] for part in parts]
        elif os.path.isfile(one):
            files.append(Path(one))
        else:
            raise click.BadParameter(
                f"{one!r} is no method, and no file of a result; there are {', '.join(METHODS)}.", param_hint="--with"
            )
    return methods, files


def _of_texts(model: str, given: list[Any], paths: list[Path], chosen: dict[str, Any], options: dict[str, Any]) -> None:
    from identiscope.capture import load, trace
    from identiscope.capture.samples import PASSAGE, sample_input
    from identiscope.files import printable
    from identiscope.reports.reporting import ask_beside, shown_attention
    from identiscope.reports.reporting import report as write
    from identiscope.results import load_result
    from identiscope.views.progress import progress_bar

    loaded = load(model, **loading(options))
    results = [load_result(file) for file in options["files"]]
    for text, path in zip(given or [PASSAGE if loaded.tokenizer else sample_input(loaded)[0]], paths, strict=True):
        traced = trace(loaded, text, target=options["target"], truncate=options["truncate"])
        if isinstance(traced, list):
            raise InputError("one text at a time, please.")
        own = list(results)
        if options["attribution"]:
            shown = shown_attention(traced, options["layers"], options["attention"])
            asked = {"mode": "estimate", "probes": options["attribution"]}
            with progress_bar("attribution") as moved:
                own.append(ask_beside("hidden_token_attribution", traced, (0, 0), shown, moved, **asked))
        with progress_bar("report") as moved:
            write(traced, path=path, results=own, progress=moved, **chosen)
        click.echo(f"{printable(path)} ({path.stat().st_size / 1e6:.1f} MB, {len(traced.main)} tokens)")


def _was_given(name: str) -> bool:
    """Whether a parameter of this command was written on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _refuse_what_no_run_takes() -> None:
    """The options of a page of a text say nothing of a Run, whose numbers are there already."""
    options = [one for one in click.get_current_context().command.params if isinstance(one, click.Option)]
    idle = [one.opts[-1] for one in options if one.name and one.name not in OF_RUNS and _was_given(one.name)]
    if idle:
        raise click.UsageError(
            f"{', '.join(idle)} cannot be asked of a Run: its page shows the numbers that are in it. Leave that out, or"
            " give a text."
        )


def _of_run(directory: Path, model: str | None, out: Path) -> None:
    from identiscope.files import printable
    from identiscope.reports.reporting_run import report_run
    from identiscope.runs.format.opened_run import open_run

    if model is not None:
        own = str(open_run(directory).manifest["names"]["model"])
        if os.path.basename(os.path.normpath(model)) != os.path.basename(os.path.normpath(own)):
            raise InputError(f"the Run in {printable(directory)} is of {own}, and {printable(model)} was given.")
    path = report_run(directory, out)
    click.echo(f"{printable(path)} ({path.stat().st_size / 1e6:.1f} MB)")


def _numbers(option: str, given: Any, count: int) -> list[tuple[int, ...]]:
    places = []
    for one in given:
        parts = one.strip().split(":")
        if len(parts) != count or not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
            expected = ":".join(("layer", "head", "row")[:count])
            raise click.BadParameter(
                f"{one!r} is not {expected}, such as {'3:7:12' if count == 3 else '3:7'}", param_hint=option
            )
        places.append(tuple(int(part) for part in parts))
    return places
