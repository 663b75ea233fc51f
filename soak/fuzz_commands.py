"""Random command lines: each ends with an answer, with a refusal in words, or with what click says of its usage."""

import os
import random
import warnings
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from identiscope.errors import IdentiscopeError
from soak.outcome import Outcome

# Whatever is written, is written below the folder that the trial runs in: every path here is relative to it, and none
# leads out of it or names a device.
PATHS = [
    "new", "new/deeper", "file.txt", "table.tsv", "rows.jsonl", "words.conllu", "binary", "latin.txt", "empty.txt",
    "long.txt", "folder", "closed", "pipe", "nowhere/at/all", "n" * 300, "ü" * 200, os.fsdecode(b"\xff\xfe.txt"),
    "a b", "-dash", "result.safetensors", "run", "causal", "model", "broken-model", "x.parquet", ".",
]  # fmt: skip
WORDS = [
    "", " ", "w1 w2 w3", "w1", "é", "\u202e", "🙂", "x" * 3000, "a\nb", "--help", "-1", "0", "1", "2", "3", "1.5",
    "nan", "inf", "-inf", "1e400", "9" * 30, "9" * 5000, "²", "٣", "0x10", "True", "None", "null", "[]", "{}", "0-1",
    "1-0", "0-99999999", "0,1,1", "0:0", "0:0:0", "9:9:9", "0.0", "9.9", "a.b", ",", ":", "%s", "$HOME", "~", "*",
    "minilmm", "all", "none", "auto", "owner/name", "sentence1,sentence2", "text", "label", "words",
]  # fmt: skip

#: The words of each command that work, and how often it is tried, since some that work take seconds. Commands of a
#: group are named with it; those that only ask a method have words made for them. All that the table of commands has
#: must be here: `tried` sees to it. Options are those that the commands themselves have.
COMMANDS: dict[str, tuple[str, int]] = {
    "check": ("model", 8),
    "trace": ("model w1 --truncate", 8),
    "attention": ("model w1", 8),
    "statistic": ("model w1 --layers 0 --sample 2", 4),
    "compare": ("model w1 --methods effective,null --layers 0", 4),
    "explain": ("causal w1 --methods gradient_input,weighted_norm --budget 4", 4),
    "freedom": ("causal w1 --layers 0 --top 2 --rows 2", 2),
    "heads": ("model file.txt -o new-heads --limit 2 --texts 2 --intervals 0 --without none", 2),
    "rewrite": ("model value_bias -o new-rewritten", 2),
    "attribution": ("model w1 --probes 2", 8),
    "report": ("model w1 --no-verdict -o new.html", 8),
    "methods": ("", 1),
    "run": ("model file.txt --out new-run --limit 2", 4),
    "tokens": ("model file.txt --probe naive --folds 2 --out new-tokens --experiment same-layer", 1),
    "fine-tune": ("model table.tsv --out new-tuned --epochs 1 --limit 6", 1),
    "structure": ("model file.txt --limit 2 --layers 0 --heads 0 --out new-structure --all-texts", 1),
    "reverse-demo": (
        "--out new-reverse --length 3 --vocabulary 2 --width 2 --steps 1 --samples 2 --texts 1 --sets 2 --batch-size 2",
        1,
    ),
    "train-identifiable": (
        "table.tsv --out new-trained --seeds 1 --epochs 1 --width 8 --heads 2 --per-length 1", 1,
    ),
    # What these do when they are asked rightly takes minutes, or does not end: they are asked wrongly, of a
    # place that is not among `PATHS`, where others may write a model.
    "reproduce structure": ("--model never/written/to", 2),
    "reproduce brunner2020": ("--model never/written/to", 2),
    "judge": ("never/written/to file.txt -o new-judged", 2),
    "serve": ("never/written/to --port 0", 3),
    "nonsense": ("", 1),
}  # fmt: skip
#: Given a value that is too large these go on for hours, as they should: they get small ones.
LONG = {
    "--epochs", "--steps", "--sets", "--texts", "--seeds", "--per-length", "--samples", "--probes", "--attribution",
    "--budget", "--patience", "--folds", "--mlp-folds", "--batch-size", "--sample",
}  # fmt: skip
#: Not tried here, where a thousand command lines share a process: to start a cluster, and to change how torch works.
NOT_TRIED = {"--engine", "--address", "--workers", "--threads"}


@cache
def table() -> dict[str, click.Command]:
    """Every command there is, those of groups by both names."""
    from identiscope.cli import main

    found: dict[str, click.Command] = {}
    for name, command in main.commands.items():
        if not isinstance(command, click.Group):
            found[name] = command
            continue
        context = click.Context(command, info_name=name)
        for inner in command.list_commands(context):
            one = command.get_command(context, inner)
            assert one is not None
            found[f"{name} {inner}"] = one
    return found


@cache
def tried() -> dict[str, tuple[str, int]]:
    """What is tried of every command of the table: `COMMANDS`, and methods with a model, a text, and what they need."""
    found = dict(COMMANDS)
    for name, command in table().items():
        if name.startswith("method "):
            needed = {option for one in command.params if one.required for option in one.opts}
            good = {"--layer": "0", "--head": "1"}
            words = " ".join(f"{option} {value}" for option, value in good.items() if option in needed)
            explains = any("--outcome" in one.opts for one in command.params)
            found[name] = (f"{'causal' if explains else 'model'} w1 {words}", 1)
    missing = table().keys() - found.keys()
    if missing:
        raise LookupError(f"soak/fuzz_commands.py has no words that work for {', '.join(sorted(missing))}.")
    return found


def prepare(folder: Path) -> None:
    """A model and files to read, some of them not what they seem."""
    from soak.tiny import save_tiny, words

    save_tiny(folder / "model")
    save_tiny(folder / "causal", "OPTForCausalLM", ffn_dim=48)
    save_tiny(folder / "broken-model")
    (folder / "broken-model" / "tokenizer.json").write_text("{")
    texts = [words(4 + number % 3, number) for number in range(14)]
    (folder / "file.txt").write_text("\n".join(texts) + "\n")
    rows = [f"{text}\t{'ab'[number % 2]}" for number, text in enumerate(texts)]
    (folder / "table.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    (folder / "rows.jsonl").write_text('{"text": "w1 w2", "words": 5}\n')
    (folder / "words.conllu").write_text("one\ttwo\n")
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "latin.txt").write_bytes("é\n".encode("latin-1"))
    (folder / "empty.txt").write_text("")
    (folder / "long.txt").write_text("x" * 2_000_000)
    (folder / "x.parquet").write_bytes(b"PAR1 and no more")
    (folder / "result.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    (folder / "folder").mkdir()
    (folder / "closed").mkdir(mode=0)
    os.mkfifo(folder / "pipe")


def lines(count: int, seed: int) -> Iterator[list[str]]:
    """So many command lines: what works, with some of it exchanged, left out or added."""
    chance, known = random.Random(seed), tried()
    for number in range(count):
        name = chance.choices(list(known), [often for _, often in known.values()])[0]
        good = known[name][0].split()
        options = [one.opts[-1] for one in _parameters(name) if isinstance(one, click.Option)]
        options = [option for option in options if option not in NOT_TRIED and not _asks_rightly(name, option)]
        # What was written before would be in the way of some.
        line = ["w1 w2 w3" if word == "w1" else word.replace("new", f"new-{number}") for word in good]
        for _ in range(chance.choice([0, 1, 1, 2, 2, 3])):
            kind = chance.random()
            if kind < 0.7 and options:
                line += _option(chance, name, chance.choice(options))
            elif kind < 0.9 and line:
                place = chance.randrange(len(line))
                if not line[place].startswith("--") and not _costly(name, line, place):
                    line[place] = _any(chance, line[place - 1] if place else "")
            elif line and not _asked_wrongly(name):
                line.pop(chance.randrange(len(line)))
        yield [*name.split(), *line]


def _asked_wrongly(name: str) -> bool:
    return name in ("judge", "serve") or name.startswith("reproduce ")


def _asks_rightly(name: str, option: str) -> bool:
    """Whether an option, given anew, could put right what is asked wrongly."""
    return _asked_wrongly(name) and option in COMMANDS[name][0].split()


def _costly(name: str, line: list[str], place: int) -> bool:
    """Whether to exchange this word could start what takes minutes, or never ends."""
    return _asked_wrongly(name) or (place > 0 and line[place - 1] in LONG)


def _is_long(command: str, option: str) -> bool:
    """Whether a large value would take long: what a method counts, it does so often."""
    return option in LONG or (command.startswith("method ") and option not in ("--layer", "--head"))


def _option(chance: random.Random, command: str, option: str) -> list[str]:
    """An option with a value; two times in three one of the kind that it takes."""
    known = {name: one for one in _parameters(command) for name in one.opts}
    if chance.random() < 0.33 or option not in known:
        return [option, *([_any(chance, option, _is_long(command, option))] if chance.random() < 0.9 else [])]
    kind = known[option].type
    if getattr(known[option], "is_flag", False):
        return [option]
    if isinstance(kind, click.Choice):
        return [option, chance.choice(list(kind.choices))]
    if isinstance(kind, click.Path):
        return [option, chance.choice(PATHS)]
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        large = [] if _is_long(command, option) else ["7", "64", "1e9", "99999999"]
        return [option, chance.choice(["0", "1", "2", "3", "0.5", "1e-3", "-1", *large])]
    return [option, _any(chance, option, _is_long(command, option))]


def _parameters(command: str) -> list[click.Parameter]:
    return table()[command].params if command in table() else [click.Option(["--help"])]


def _any(chance: random.Random, option: str, long: bool = False) -> str:
    if long or option in LONG:
        return chance.choice(["-1", "0", "1", "2", "x", "nan", ""])
    return chance.choice(PATHS if chance.random() < 0.4 else WORDS)


def commands(count: int, folder: Path, seed: int = 0) -> Outcome:
    """So many command lines, in this process."""
    from identiscope.cli import main

    failures: list[str] = []
    answered = 0
    prepare(folder)
    runner = CliRunner()
    with chdir(folder):
        for line in lines(count, seed):
            with warnings.catch_warnings():
                # What is computed with numbers that are none is a mistake; what libraries say of themselves is theirs.
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", RuntimeWarning)
                done = runner.invoke(main, line)
            answered += done.exit_code == 0
            if not isinstance(done.exception, (SystemExit, IdentiscopeError, type(None))):
                shown = " ".join(one if len(one) < 50 else f"{one[:20]}…" for one in line)
                failures.append(
                    f"identiscope {shown!r} raised {type(done.exception).__name__}: {_short(done.exception)}"
                )
    return Outcome(
        "random command lines end with an answer or a refusal in words", count, tuple(failures),
        f"{answered} of {count} were answered, the others refused",
    )  # fmt: skip


def _short(error: Any) -> str:
    return " ".join(str(error).split())[:200]
