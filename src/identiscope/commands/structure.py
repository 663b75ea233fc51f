"""`identiscope structure`: what the attention maps of a corpus have in common, and whether that is what matters."""

import re
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import (
    AT_LEAST_TWO,
    COUNT,
    Finite,
    analysis_options,
    attention_option,
    corpus_options,
    heads_option,
    layers_option,
    loading,
    out_option,
    seed_option,
)
from identiscope.commands.sections import listed

LAYOUTS = ("absolute", "relative", "roles", "aligned")

# Texts that perturbations are tried on, where there are so many.
MOST_PERTURBED = 8


class Head(click.ParamType[tuple[int, int]]):
    """A head, as layer.head: `3.5`. (A base class of click's.)"""

    name = "layer.head"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """The two numbers named."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([0-9]{1,6})\.([0-9]{1,6})", str(value))
        if match is None:
            self.fail(f"{value!r} is not a head such as 3.5 (layer 3, head 5, counted from 0)", param, ctx)
        return int(match[1]), int(match[2])


@listed("corpus", 20)
@click.command()
@click.argument("model")
@corpus_options
@out_option("Directory for results and plots.", default=Path("structure"), show_default=True)
@click.option("--columns", help="Columns with the text: one, or two for pairs, as sentence1,sentence2.")
@click.option("--limit", type=COUNT, help="Use only so many texts.")
@layers_option
@heads_option
@attention_option
@click.option("--layout", type=click.Choice(LAYOUTS),
              help="Which cells of texts are the same.  [default: absolute for one length, else aligned]")  # fmt: skip
@click.option("--clusters", type=COUNT, help="So many representatives, instead of a number chosen by silhouette.")
@click.option("--all-texts", is_flag=True, help="Average all texts, without choosing representatives.")
@click.option("--threshold", type=Finite(0, 1), help="l of Cut_l for every head, instead of one recommended for each.")
@click.option(
    "--penalty", type=Finite(0, 1), default=0.0, show_default=True, help="h(x) = penalty · x for weights below l."
)
@click.option("--length", type=COUNT, help="Shared subspace of texts of so many tokens.  [default: each length alone]")
@click.option("--first-keys", is_flag=True, help="With --length: take the first keys of longer texts too.")
@click.option("--perturb", type=Head(), multiple=True,
              help="Perturb a head (layer.head): which distance predicts the effect? May be repeated.")  # fmt: skip
@click.option(
    "--sets",
    type=AT_LEAST_TWO,
    default=20,
    show_default=True,
    help="Sets of three perturbations a text.",
)
@click.option(
    "--epsilon", type=Finite(min=0), default=0.01, show_default=True, help="Added to W, so that it gives a norm."
)
@seed_option("clusters, perturbations and resampling")
@click.option("--truncate", is_flag=True, help="Cut texts that are too long for the model.")
@analysis_options
def structure(model: str, corpus: str, **options: Any) -> None:
    """Show what MODEL's attention maps on CORPUS have in common: W, pattern and shared subspace of every head.

    CORPUS is a .txt (a text a line), .tsv, .csv, .jsonl or .conllu file.
    """
    from identiscope.capture import load
    from identiscope.corpus.readers import read_corpus
    from identiscope.files import make_directory, printable
    from identiscope.papers.structure_draft.corpus_structure import corpus_structure, shared_subspaces
    from identiscope.results import save_result
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables import structure as tables
    from identiscope.views.tables.terminal import console

    if options["first_keys"] and options["length"] is None:
        raise click.UsageError("--first-keys needs --length: how many keys are to be taken?")
    columns = options["columns"].split(",") if options["columns"] else None
    texts = [text.given for text in read_corpus(corpus, text_columns=columns, limit=options["limit"])]
    loaded = load(model, **loading(options))
    chosen = {name: options[name] for name in ("layers", "heads", "attention", "truncate")}
    out: Path = options["out"]
    make_directory(out)
    screen = console()
    with progress_bar("structure") as moved:
        result = corpus_structure(
            loaded, texts, layout=options["layout"], representatives=not options["all_texts"],
            clusters=options["clusters"], threshold=options["threshold"], penalty=options["penalty"],
            seed=options["seed"], progress=moved, **chosen,
        )  # fmt: skip
    missing = [place for place in options["perturb"] if not _has(result, place)]
    if missing:
        raise click.BadParameter(
            f"{missing[0][0]}.{missing[0][1]} is not among the heads looked at", param_hint="--perturb"
        )
    tables.print_structure(result, screen, heads=options["perturb"])
    paths = [save_result(result, out / "structure.safetensors")]
    paths += tables.save_structure_plots(result, out, heads=list(options["perturb"]))
    with progress_bar("shared subspace") as moved:
        longer: Any = "first_keys" if options["first_keys"] else "skip"
        subspaces = shared_subspaces(
            loaded, texts, length=options["length"], when_longer=longer, progress=moved, **chosen
        )
    if subspaces.lengths(least=2):
        summary = subspaces.summary()
        tables.print_subspaces(summary, screen)
        paths += [save_result(summary, out / "subspaces.safetensors"), *tables.save_subspace_plots(summary, out)]
    else:
        screen.print("Shared subspace: no two texts have the same length; --length N --first-keys compares them.\n")
    for place in options["perturb"]:
        paths += _perturb(loaded, texts, place, result, options, out, screen)
    screen.print(f"saved {', '.join(map(printable, paths))}", markup=False, style="dim")


def _has(result: Any, place: tuple[int, int]) -> bool:
    return place[0] in result["layer"].values and place[1] in result["head"].values


def _perturb(
    model: Any, texts: list[Any], place: tuple[int, int], result: Any, options: dict[str, Any], out: Path, screen: Any
) -> list[Path]:
    """Perturbations on texts that W was not made from, as far as there are any."""
    from identiscope.papers.structure_draft.perturbation import perturbation_effects
    from identiscope.results import save_result
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables import structure as tables

    used = set(result["representative"].values.tolist()) if "representative" in result else set(range(len(texts)))
    others = [text for number, text in enumerate(texts) if number not in used]
    if not others:
        screen.print(
            "W was taken from the texts that are perturbed, which favours what keeps it; leave --all-texts out, or give"
            " more texts, to have W from others.\n", markup=False,
        )  # fmt: skip
    with progress_bar(f"perturbing {place[0]}.{place[1]}") as moved:
        effects = perturbation_effects(
            model, (others or texts)[:MOST_PERTURBED], *place, structure=result, sets=options["sets"],
            epsilon=options["epsilon"], attention=options["attention"], truncate=options["truncate"],
            seed=options["seed"],
            progress=moved,
        )  # fmt: skip
    tables.print_effects(effects, screen)
    path = save_result(effects, out / f"effects-{place[0]}-{place[1]}.safetensors")
    return [path, *tables.save_effect_plots(effects, out)]
