"""`identiscope judge`: which explanation survives, by every test there is."""

import json
import shlex
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import COUNT, analysis_options, corpus_options, loading, outcome_option, seed_option
from identiscope.commands.sections import listed
from identiscope.judge.registry import TESTS


@listed("corpus", 20)
@click.command("judge")
@click.argument("model")
@corpus_options
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Directory of what is found.")
@click.option("--methods", default="fast", show_default=True, metavar="all|fast|NAME,…", help="Which methods.")
@click.option("--tests", default="all", show_default=True, metavar="all|NAME,…", help=f"Some of {', '.join(TESTS)}.")
@outcome_option("What is explained, as for explain; similarity: of the first part of a pair with the second.",
                "the most likely word or class; similarity for models without logits")  # fmt: skip
@click.option("--budget", type=COUNT, metavar="PASSES", help="At most so many passes for a text in each test.")
@click.option("--scores", type=click.Path(path_type=Path), metavar="FILE", help="Judge scores of other tools, too.")
@click.option("--limit", type=COUNT, help="The first so many texts.")
@click.option("--max-tokens", type=COUNT, help="Leave longer texts out.")
@click.option("--planted", type=COUNT, default=8, show_default=True, help="Inputs of each planted model.")
@click.option("--trained/--no-trained", default=True, show_default=True,
              help="Planted models that are trained, too; the first time that takes minutes.")  # fmt: skip
@click.option("--columns", help="Columns of the texts, such as sentence1,sentence2.")
@seed_option("what is drawn")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--workers", type=COUNT, default=1, show_default=True, help="Processes with a model each.")
@click.option("--address", help="Of a Ray cluster; without it a local one is started.")
@click.option("--plan", "plan_only", is_flag=True, help="Say what it would take, and stop.")
@analysis_options
@click.option("--json", "as_json", is_flag=True, help="Print all as JSON.")
def judge(model: str, corpus: str, out: Path, **options: Any) -> None:
    """Which explanation survives? Methods under tests on CORPUS with MODEL, and on models whose mechanism is known.

    Every table has its controls: a random scorer, which must land at chance, and the best there is, which nothing may
    beat. Stopped at any point, the same command goes on. What is found is in DIR: index.html, judge.json, judge.csv.

    \b
    identiscope judge minilm pairs -o judged
    identiscope judge smollm2 texts.txt --tests erasure --methods attention,gradient_input --budget 400 -o judged
    """
    from identiscope.capture.models import load
    from identiscope.corpus.readers import Corpus
    from identiscope.files import write_file
    from identiscope.judge.arena.arena import arena, arena_plan, arena_settings
    from identiscope.views.page.arena import arena_csv, write_arena_page
    from identiscope.views.progress import run_progress
    from identiscope.views.tables.arena import print_arena, print_plan

    names: Any = options["methods"]
    names = names if names in ("all", "fast") else [name.replace("-", "_") for name in names.split(",")]
    columns = options["columns"].split(",") if options["columns"] else None
    source = Corpus(corpus, columns, None, options["limit"])
    loaded = load(model, **loading(options))
    same = {name: options[name] for name in ("outcome", "budget", "scores")}
    settings = arena_settings(loaded, names, options["tests"], **same)
    plan = arena_plan(
        loaded, source, settings, len(settings["methods"]) + 1, options["max_tokens"], options["planted"],
        options["trained"],
    )  # fmt: skip
    if not options["as_json"]:
        print_plan(plan)
    if options["plan_only"]:
        return
    elsewhere = options["engine"] != "local" or options["workers"] > 1
    with run_progress(model, as_json=False) as moved:
        said = arena(
            model if elsewhere else loaded, source, out, methods=names, tests=options["tests"], **same,
            max_tokens=options["max_tokens"], seed=options["seed"], planted=options["planted"],
            trained=options["trained"],
            loading=loading(options) if elsewhere else None, engine=options["engine"], workers=options["workers"],
            address=options["address"], progress=moved,
        )  # fmt: skip
    write_file(out / "judge.csv", arena_csv(said).encode())
    context = click.get_current_context()
    write_arena_page(said, out, f"identiscope judge {shlex.join(_words(context, model, corpus))}")
    if options["as_json"]:
        click.echo(json.dumps(said))
    else:
        print_arena(said, str(out))


def _words(context: click.Context, model: str, corpus: str) -> list[str]:
    """The command as it was given, but for where it wrote."""
    words = [model, corpus]
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if isinstance(parameter, click.Option) and source is click.core.ParameterSource.COMMANDLINE:
            value, names = context.params[parameter.name or ""], parameter.opts
            if parameter.name in ("out", "as_json", "file"):
                continue
            if parameter.is_flag:
                words.append((names if value else parameter.secondary_opts)[-1])
            else:
                words += [names[-1], str(value)]
    return [*words, "-o", "DIR"]
