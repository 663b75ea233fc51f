"""`identiscope reverse-demo`: train an LSTM with attention to reverse, and see what its attention is made of."""

from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import AT_LEAST_TWO, COUNT, POSITIVE, out_option, seed_option
from identiscope.commands.sections import listed


@listed("papers", 20)
@click.command("reverse-demo")
@out_option("Directory for the model, the results and the plots.", default=Path("reverse"), show_default=True)
@click.option("--length", type=AT_LEAST_TWO, default=20, show_default=True, help="Of the sequences.")
@click.option("--vocabulary", type=AT_LEAST_TWO, default=20, show_default=True, help="How many tokens.")
@click.option("--width", type=COUNT, default=64, show_default=True, help="Of both LSTM layers.")
@click.option("--steps", type=COUNT, default=1000, show_default=True, help="Of training.")
@click.option("--batch-size", type=COUNT, default=64, show_default=True)
@click.option("--learning-rate", type=POSITIVE, default=5e-3, show_default=True)
@click.option("--samples", type=COUNT, default=100, show_default=True,
              help="Sequences to extract the structure from.")  # fmt: skip
@click.option("--texts", type=COUNT, default=20, show_default=True, help="Sequences to perturb.")
@click.option("--sets", type=AT_LEAST_TWO, default=20, show_default=True,
              help="Sets of perturbations of each.")  # fmt: skip
@seed_option("weights, sequences and perturbations")
@click.option("--model", "given", type=click.Path(path_type=Path), help="Use a model trained before; train none.")
def reverse_demo(out: Path, given: Path | None, **options: Any) -> None:
    """Train an LSTM encoder–decoder to reverse sequences, and study its attention as that of any other model.

    Shows the antidiagonal map, its structure W over thresholds, and which changes of the map change what is written.
    """
    from identiscope.files import make_directory, printable
    from identiscope.papers.structure_draft import reversal
    from identiscope.papers.structure_draft.reversal_model import (
        ReversalConfig,
        load_reversal,
        reversal_accuracy,
        save_reversal,
        train_reversal,
    )
    from identiscope.results import save_result
    from identiscope.views.plots import reversal as reversal_plots
    from identiscope.views.progress import progress_bar
    from identiscope.views.tables import reversal as reversal_tables
    from identiscope.views.tables.terminal import console

    make_directory(out)
    seed = options["seed"]
    if given is None:
        config = ReversalConfig(options["length"], options["vocabulary"], options["width"])
        names = ("steps", "batch_size", "learning_rate", "seed")
        with progress_bar("training", share=True) as moved:
            model = train_reversal(config, **{name: options[name] for name in names}, progress=moved)
        paths = [save_reversal(model, out / "model.safetensors")]
    else:
        model, paths = load_reversal(given), []
    # Sequences of other seeds than those of training, whose generator began at `seed`.
    accuracy = reversal_accuracy(model, seed=seed + 10_000)
    screen = console()
    screen.print(
        f"accuracy {accuracy.tokens:.4f} of tokens, {accuracy.sequences:.4f} of sequences, {accuracy.samples} new ones;"
        f" length {model.config.length}, {model.config.vocabulary} tokens\n",
        markup=False,
    )
    counted = {"samples": options["samples"], "seed": seed + 20_000}
    results = {"structure": reversal.reversal_structure(model, **counted)}
    results["structure"].attrs |= {"accuracy": accuracy.tokens, "accuracy_of_sequences": accuracy.sequences}
    reversal_tables.print_structure(results["structure"], screen)
    with progress_bar("noise") as moved:
        results["damage"] = reversal.reversal_damage(model, texts=options["texts"], progress=moved, **counted)
    reversal_tables.print_damage(results["damage"], screen)
    with progress_bar("perturbations") as moved:
        results["perturbations"] = reversal.reversal_perturbations(
            model, texts=options["texts"], sets=options["sets"], progress=moved, **counted
        )
    reversal_tables.print_perturbations(results["perturbations"], screen)
    paths += [save_result(result, out / f"{name}.safetensors") for name, result in results.items()]
    paths += reversal_plots.save_reversal_plots(results, out)
    screen.print(f"\nsaved {', '.join(map(printable, paths))}", style="dim", markup=False)
