"""`identiscope heads`: what the heads of a model do over a corpus, with intervals and importance."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from identiscope.commands.options import (
    COUNT,
    SEED,
    analysis_options,
    corpus_options,
    loading,
    out_option,
    outcome_option,
)
from identiscope.commands.sections import listed
from identiscope.files import printable

if TYPE_CHECKING:
    from identiscope.capture import Model
    from identiscope.papers.heads.gender import Template
    from identiscope.views.plots.figures import Claim


@listed("corpus", 20)
@click.command("heads")
@click.argument("model")
@corpus_options
@out_option("Directory for the page, tables and the Run.", required=True)
@click.option("--conllu", type=click.Path(path_type=Path), help="Sentences with dependencies, for syntactic heads.")
@click.option("--sentences", type=COUNT, metavar="N", help="Use only so many of them.")
@outcome_option(
    "What heads matter for, as in identiscope explain, or loss: that of the next token.",
    "the most likely word or class; for models without logits the similarity with the next text",
)
@click.option("--without", default="zero,mean,uniform,resample,null", show_default=True,
              help="What stands for a head that is left out, with commas; none: importance is not asked.")  # fmt: skip
@click.option("--texts", type=COUNT, default=16, show_default=True,
              help="So many texts, spread over the corpus, for importance and distances.")  # fmt: skip
@click.option("--intervals", type=click.IntRange(min=0), default=4, show_default=True,
              help="So many of these have intervals, by linear programs.")  # fmt: skip
@click.option("--rows", type=click.IntRange(min=2), default=4, show_default=True, help="Rows drawn for each interval.")
@click.option("--prune", type=click.IntRange(min=0), default=0, metavar="K",
              help="Say which K heads to drop, and what that costs on texts held back.")  # fmt: skip
@click.option("--pairs", type=click.IntRange(min=0), default=0, metavar="N",
              help="Leave all pairs of heads out, of N texts; of models with at most 150 heads.")  # fmt: skip
@click.option(
    "--templates",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="WinoBias (winobias.tsv) or Winogender (all_sentences.tsv): attention by gender; may be repeated.",
)
@click.option("--template-count", type=COUNT, default=100, show_default=True, help="Use only so many, evenly spread.")
@click.option("--shorten", is_flag=True, help="What the outcome loses, and the time won, when tokens that receive least"
              " attention are left out.")  # fmt: skip
@click.option("--against", metavar="MODEL_B",
              help="Another model with the same tokens: which head is which, and what changed.")  # fmt: skip
@click.option("--untrained/--no-untrained", default=True, show_default=True,
              help="Judge findings that hold of an untrained model too, on at most 12 texts.")  # fmt: skip
@click.option("--columns", help="Columns with the text: one, or two for pairs, as sentence1,sentence2.")
@click.option("--label", help="Column with the class of each text: how often shortened texts are answered right.")
@click.option("--limit", type=COUNT, help="Use only so many texts.")
@click.option("--max-tokens", type=COUNT, default=128, show_default=True, help="Longer texts are cut.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of rows and heads that are drawn.")
@analysis_options
def heads(model: str, corpus: str, out: Path, conllu: Path | None, **options: Any) -> None:
    """What every head of MODEL looks at over CORPUS, how much of that is real, and what it matters for.

    Writes DIR/index.html (a grid by any statistic, a map of heads, a card for each, published findings judged),
    heads.csv, findings.csv, relations.csv, pairs.csv, against*.csv, shortened.csv, prune.json, and the Run of
    statistics in DIR/run, which an interrupted command goes on with.

    \b
    identiscope heads minilm passages -o heads
    identiscope heads smollm2 texts.txt --outcome loss --prune 20 -o heads
    identiscope heads minilm passages --against my-fine-tuned -o heads
    identiscope heads minilm pairs --conllu en_pud-ud-test.conllu -o heads
    """
    from identiscope.capture import load
    from identiscope.corpus.readers import Corpus
    from identiscope.errors import InputError
    from identiscope.files import make_directory
    from identiscope.papers.heads.claims import head_claims
    from identiscope.papers.heads.gender import gender_claim
    from identiscope.papers.untrained import NULL_TEXTS, claims_beside, untrained
    from identiscope.results import save_result
    from identiscope.runs.format.opened_run import open_run
    from identiscope.runs.heads.options import HeadOptions
    from identiscope.runs.heads.survey import survey_heads
    from identiscope.views.page.heads import write_heads_page
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables.heads import (
        print_heads,
        write_claims_csv,
        write_distances_csv,
        write_heads_csv,
        write_json,
        write_pairs_csv,
        write_relations_csv,
        write_shortened_csv,
    )

    columns = options["columns"].split(",") if options["columns"] else None
    kinds = tuple(kind.strip() for kind in options["without"].split(",") if kind.strip() not in ("", "none"))
    own = ("outcome", "texts", "intervals", "rows", "prune", "pairs", "sentences", "max_tokens", "seed", "shorten")
    if options["label"] and not options["shorten"]:
        raise InputError("--label says how often shortened texts are answered right; give --shorten, too.")
    # Templates that cannot be read are refused before hours of work.
    templates = {path.stem: _templates(path, options["template_count"]) for path in options["templates"]}
    asked = HeadOptions(without=kinds, **{name: options[name] for name in own})
    make_directory(out)
    with progress_bar(model) as moved:
        survey = survey_heads(
            model, Corpus(corpus, columns, options["label"], options["limit"]), out, options=asked, conllu=conllu,
            against=options["against"], loading=loading(options), progress=moved,
            announce=partial(click.echo, err=True),
        )  # fmt: skip
    claims = head_claims(survey, open_run(out / "run"), causal=survey.causal)
    studies = {name: _gender(model, chosen, options, moved) for name, chosen in templates.items()}
    claims += [gender_claim(study, name) for name, study in studies.items()]

    def of_null(null: "Model") -> "list[Claim]":
        few = NULL_TEXTS if options["limit"] is None else min(NULL_TEXTS, options["limit"])
        kept = tuple(kind for kind in kinds if kind == "zero") or kinds
        less = replace(asked, without=kept, texts=min(asked.texts, few), intervals=0, pairs=0, shorten=False)
        found = survey_heads(
            null, Corpus(corpus, columns, limit=few), out / "untrained", options=less, conllu=conllu, progress=moved
        )
        judged = head_claims(found, open_run(out / "untrained" / "run"), causal=found.causal)
        less_of = options | {"intervals": 0}
        return judged + [
            gender_claim(_gender(null, chosen, less_of, moved), name) for name, chosen in templates.items()
        ]

    if options["untrained"]:
        claims = claims_beside(claims, lambda: untrained(load(model, **loading(options))), of_null)
    before = {path: path.stat().st_mtime_ns for pattern in _OF_OPTIONS for path in out.glob(pattern)}
    for name, study in studies.items():
        save_result(study, out / f"gender-{name}.safetensors")
        of_layers = [one for one in study.data_vars if str(one).startswith("states")]
        write_heads_csv(out / f"gender-{name}.csv", study.drop_vars(of_layers))
    write_claims_csv(out / "findings.csv", claims)
    write_heads_csv(out / "heads.csv", survey.heads)
    if survey.relations:
        write_relations_csv(out / "relations.csv", survey.relations)
    if survey.against is not None:
        write_heads_csv(out / "against.csv", survey.against)
    if survey.map_differences is not None:
        save_result(survey.map_differences, out / "against-maps.safetensors")
    if survey.distance_differences is not None:
        write_distances_csv(out / "against-distances.csv", survey.distance_differences)
    if survey.shortened is not None:
        write_shortened_csv(out / "shortened.csv", survey.shortened)
    if survey.pairs is not None:
        write_pairs_csv(out / "pairs.csv", survey.pairs)
    if survey.prune is not None:
        write_json(out / "prune.json", survey.prune)
    page = write_heads_page(
        out / "index.html",
        survey.heads,
        survey.labels,
        survey.facts,
        survey.relations,
        survey.prune,
        survey.pairs,
        claims,
        survey.against,
        survey.shortened,
        studies,
        survey.map_differences,
        survey.distance_differences,
    )
    print_heads(survey.heads, survey.facts, survey.relations, survey.prune, survey.against, survey.shortened)
    # Of an earlier command with other options, or the user's own: not touched, and not passed over.
    if others := sorted(path.name for path, when in before.items() if path.stat().st_mtime_ns == when):
        click.echo(f"not of this command, and left as they were: {', '.join(map(printable, others))}", err=True)
    click.echo(f"saved: {printable(page)}")


#: Files that are written where an option asks for them.
_OF_OPTIONS = ("gender-*.csv", "gender-*.safetensors", "relations.csv", "against.csv", "against-maps.safetensors",
               "against-distances.csv", "shortened.csv", "pairs.csv", "prune.json")  # fmt: skip


def _templates(path: Path, most: int) -> "list[Template]":
    """Some templates of a file, spread over it."""
    from identiscope.papers.heads.gender import read_templates
    from identiscope.runs.heads.traced import evenly

    every = read_templates(path)
    return [every[place] for place in evenly(len(every), most)]


def _gender(model: "str | Model", chosen: "list[Template]", options: dict[str, Any], progress: Any) -> Any:
    """The study of some templates."""
    from identiscope.capture import Model, load
    from identiscope.papers.heads.gender import gender_study

    loaded = model if isinstance(model, Model) else load(model, **loading(options))
    return gender_study(loaded, chosen, intervals=2 * options["intervals"], progress=progress)
