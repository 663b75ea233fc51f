"""A tiny model, a small corpus, and Runs over it, for the trials."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.opened_run import Run
from tiny_text_model import save_tiny, words

#: So many words have the texts; seven words make the nine tokens whose projectors are summed.
_LENGTHS = (7, 3, 11, 7, 14, 2, 9)
OPTIONS = RunOptions(methods=("attention_identifiability", "tokens"), shard_size=2, batch_size=2)
EVERYTHING = RunOptions(
    methods=("attention_identifiability", "tokens"), shard_size=2, batch_size=2, hidden_states=True, subspace_length=9
)


def prepare(base: Path, texts: int = 7, other: bool = False) -> tuple[Path, Path]:
    """A model and a corpus in a directory."""
    corpus = base / ("other.tsv" if other else "texts.tsv")
    rows = [f"{words(_LENGTHS[number % 7], number + 100 * other)}\t{number % 2}" for number in range(texts)]
    corpus.write_text("\n".join(["sentence\tlabel", *rows, ""]), encoding="utf-8")
    model = base / "model"
    return model if model.is_dir() else save_tiny(model), corpus


def tiny_run(base: Path, name: str = "run", options: RunOptions = EVERYTHING, other: bool = False) -> Run:
    """A finished Run of four shards, with every kind of file."""
    model, corpus = prepare(base, other=other)
    return run_corpus(str(model), corpus, base / name, options=options, label_column="label")
