"""`identiscope rewrite`: the same function with other weights."""

from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import loading_options, out_option, seed_option
from identiscope.commands.sections import listed


@listed("explain", 50)
@click.command("rewrite")
@click.argument("model")
@click.argument("how")
@out_option("The directory to write the model to, as transformers does.", required=True)
@seed_option("the matrices that are drawn")
@loading_options
def rewrite(model: str, how: str, out: Path, seed: int, **loading: Any) -> None:
    """Write MODEL down with other weights that compute the same.

    HOW is value_output, value_bias, query_key, key_bias, head_order, feed_forward, residual_rotation,
    residual_permutation, or several with commas between them. What the family does not allow is refused, saying why.
    Both models are run and compared before anything is written.

    \b
    identiscope rewrite minilm value_bias -o minilm-rewritten
    identiscope attention minilm-rewritten
    """
    from identiscope.capture import load
    from identiscope.capture.rewriting.rewriting import names_of
    from identiscope.capture.rewriting.rewriting import rewrite as rewritten
    from identiscope.errors import InputError
    from identiscope.files import filling, printable, saying

    names_of(how)
    with saying(out):
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    if taken:
        raise InputError(f"{printable(out)} is there already, and not empty; name another directory.")
    made = rewritten(load(model, **loading), how, seed)
    with filling(out) as aside:
        made.save_pretrained(aside)
    elsewhere = "residual_permutation" in made.how and made.module is made.module.base_model
    click.echo(
        f"{model} rewritten by {', '.join(made.how)} (seed {seed}): what it returns moved by {made.change:.0e} of its"
        f" largest, and by {made.change_in_float64:.0e} with every step in float64."
        + elsewhere * "\nIt has no head, and its states have their coordinates in another order (rewriting.json)."
        + f"\nsaved: {printable(out)}"
    )
