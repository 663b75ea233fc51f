"""`identiscope report`: one HTML file that shows what of the attention is real."""

import os
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import Numbers, model_options
from identiscope.errors import InputError


@click.command("report")
@click.argument("model", default="minilm")
@click.argument("texts", nargs=-1, metavar="[TEXT|RUN]...")
@click.option("--file", "text_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Read the text from this file.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("report.html"),
              show_default=True, help="The HTML file to write.")  # fmt: skip
@click.option("--layers", type=Numbers(), help="Only these layers, from 0: 3 or 0,2 or 0-3.")
@click.option("--kind", type=click.Choice(["encoder-self", "decoder-self", "cross"]), help="Which attention.")
@click.option("--canonical", default="auto", show_default=True,
              help="Heads to compute canonical maps of: auto, all, none, or layer:head as 0:4,3:7.")  # fmt: skip
@click.option("--intervals", "rows", multiple=True, metavar="LAYER:HEAD:ROW",
              help="A row to compute the intervals of all weights of; may be repeated.")  # fmt: skip
@click.option("--with", "files", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Show a saved result too: attribution, token identifiability, structure, ...")  # fmt: skip
@click.option("--attribution", type=click.IntRange(min=2), metavar="PROBES",
              help="Estimate Hidden Token Attribution with so many directions, and show it.")  # fmt: skip
@click.option("--no-verdict", is_flag=True, help="Leave out the linear programs behind the verdict: far quicker.")
@model_options
def report(model: str, texts: tuple[str, ...], text_file: Path | None, out: Path, **options: Any) -> None:
    """Write one HTML file that shows what of MODEL's attention on TEXT is real: maps, rows, alternatives.

    It holds everything and asks nothing of any network. Several TEXTs give several files, numbered. A RUN is the
    directory of a corpus run: its page shows the corpus as a whole. Without TEXT, a built-in passage is used.
    """
    from identiscope.files import check_writable

    if text_file is not None and texts:
        raise click.UsageError("give a text or --file, not both.")
    given: list[Any] = [text_file.read_text(encoding="utf-8")] if text_file is not None else list(texts)
    if len(given) == 1 and text_file is None and os.path.isdir(given[0]):
        check_writable(out)
        _of_run(Path(given[0]), out)
        return
    places = _numbers("--canonical", options["canonical"].split(","), 2) if ":" in options["canonical"] else None
    if places is None and options["canonical"] not in ("auto", "all", "none"):
        raise click.BadParameter("give auto, all, none, or layer:head", param_hint="--canonical")
    chosen = {
        "layers": options["layers"],
        "kind": options["kind"],
        "canonical": places or options["canonical"],
        "intervals": _numbers("--intervals", options["rows"], 3),
        "with_verdict": not options["no_verdict"],
    }
    paths = [out] if len(given) < 2 else [out.with_stem(f"{out.stem}-{place + 1}") for place in range(len(given))]
    for path in paths:
        check_writable(path)
    _of_texts(model, given, paths, chosen, options)


def _of_texts(model: str, given: list[Any], paths: list[Path], chosen: dict[str, Any], options: dict[str, Any]) -> None:
    from identiscope.capture import load, trace
    from identiscope.capture.samples import PASSAGE, sample_input
    from identiscope.experiments.attribution import attribution
    from identiscope.experiments.reporting import report as write
    from identiscope.results import load_result
    from identiscope.views.progress import progress_bar

    loaded = load(model, revision=options["revision"], trust_remote_code=options["trust_remote_code"])
    results = [load_result(file) for file in options["files"]]
    for text, path in zip(given or [PASSAGE if loaded.tokenizer else sample_input(loaded)[0]], paths, strict=True):
        found = trace(loaded, text, target=options["target"], truncate=options["truncate"])
        if isinstance(found, list):
            raise InputError("one text at a time, please.")
        own = list(results)
        if options["attribution"]:
            with progress_bar("attribution") as moved:
                own.append(attribution(loaded, found, mode="estimate", probes=options["attribution"], progress=moved))
        with progress_bar("report") as moved:

            def step(what: str, done: int, total: int, move: Any = moved) -> None:
                move(done, total)

            write(found, path=path, results=own, progress=step, **chosen)
        click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB, {len(found.main)} tokens)")


def _of_run(directory: Path, out: Path) -> None:
    from identiscope.experiments.reporting_run import report_run

    path = report_run(directory, out)
    click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


def _numbers(option: str, given: Any, count: int) -> list[tuple[int, ...]]:
    found = []
    for one in given:
        parts = one.strip().split(":")
        if len(parts) != count or not all(part.isdigit() for part in parts):
            expected = ":".join(("layer", "head", "row")[:count])
            raise click.BadParameter(
                f"{one!r} is not {expected}, such as {'3:7:12' if count == 3 else '3:7'}", param_hint=option
            )
        found.append(tuple(int(part) for part in parts))
    return found
