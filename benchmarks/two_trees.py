"""What the main jobs cost in two states of the source, one beside the other: has a change made anything slower?

    python benchmarks/two_trees.py [BEFORE [AFTER]] [--jobs NAME …] [--repeats 5] [--markdown FILE]

BEFORE and AFTER are each a folder with `src/identiscope` in it, or a commit of this repository, which is unpacked
aside. Without them, the state before the spine was built is held against the one at hand. Each has a process of its
own, on one thread, that holds its model; every job is done in one and then in the other, in turn, and the least CPU
time of each counts, so that a busy machine disturbs both alike. What a job gives in AFTER and did not in BEFORE is
named beside it: that is work that was not done before, and such a row claims nothing. Jobs are in words that both
states understand.
"""

import argparse
import inspect
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from claims import claim

HERE = Path(__file__).resolve()
PROJECT = HERE.parents[1]
#: The last commit before the house was rebuilt, by the words of its message.
BEFORE = ":/^Files are written in one way"
#: Nothing may be slower by more than this.
SLOWER = 1.05
#: Seconds that one measurement takes at least: what is quicker is done several times in it.
LEAST = 0.2
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
SENTENCE = "The nurse told the doctor that she had found the keys."


def jobs(folder: Path) -> Mapping[str, Callable[[], Any]]:
    """What is done, by name; each gives what it computed. It is called in the process of one state."""
    import torch
    import transformers

    import identiscope
    from identiscope.capture.samples import PASSAGE

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = identiscope.load("minilm")
    passage, sentence = identiscope.trace(model, PASSAGE), identiscope.trace(model, SENTENCE)
    few = identiscope.trace(model, "The keys.")
    every_head = [(layer, head) for layer in range(6) for head in range(12)]
    statistics = identiscope.attention_identifiability(passage)
    sentences = [line for line in PASSAGE.replace(". ", ".\n").splitlines() if line]
    corpus = folder / "texts.txt"
    # No two texts are equal: such ones stand on one side of every split, and five do not make three sides.
    texts = [f"{opening} {line}" for opening in ("First:", "Then:", "Last:") for line in sentences]
    corpus.write_text("\n".join(texts), encoding="utf-8")
    done = identiscope.run_corpus(model, corpus, folder / "done").directory

    def fresh(name: str) -> Path:
        return Path(tempfile.mkdtemp(dir=folder)) / name

    def maps(*names: str) -> Any:
        *_, last = (identiscope.attention_maps(passage, layer, head, names) for layer, head in every_head)
        return last

    def run(method: str) -> Any:
        options = identiscope.RunOptions(methods=(method,))
        return identiscope.run_corpus(model, corpus, fresh("run"), options=options).to_pandas()

    def read() -> Any:
        opened = identiscope.open_run(done)
        opened.verify()
        opened.means()
        return opened.to_xarray()

    shown = identiscope.open_run(done).to_xarray()

    def report_of_a_run() -> Any:
        identiscope.report_run(done, fresh("page.html"))
        # What the page is of.
        return shown

    # The trace came second once.
    first = next(iter(inspect.signature(identiscope.hidden_token_attribution).parameters))
    before = (model,) if first == "model" else ()
    attribution = identiscope.hidden_token_attribution
    return {
        "load a model": lambda: identiscope.load("minilm"),
        "trace a passage": lambda: identiscope.trace(model, PASSAGE),
        "trace a sentence": lambda: identiscope.trace(model, SENTENCE),
        "verify a trace": passage.verify,
        "attention_identifiability": lambda: identiscope.attention_identifiability(passage),
        "effective maps of all heads": lambda: maps("effective"),
        "null maps of all heads": lambda: maps("null"),
        "simplex-span maps of all heads": lambda: maps("effective_simplex_span"),
        "factored maps of all layers": lambda: [identiscope.factored_attention(passage, layer) for layer in range(6)],
        "canonical map of a head": lambda: identiscope.attention_maps(passage, 0, 4, ["canonical"]),
        "intervals of ten weights": lambda: identiscope.attention_intervals(passage, 0, 4, top=10),
        "intervals of a row": lambda: identiscope.attention_intervals(passage, 0, 4, row=20),
        "an alternative of a row": lambda: identiscope.attention_alternative(passage, 0, 4, rows=[20]),
        "attribution of five tokens, exact": lambda: attribution(*before, few, mode="exact"),
        "attribution of a sentence, estimated": lambda: attribution(*before, sentence, mode="estimate", probes=4),
        "run of a corpus: attention": lambda: identiscope.run_corpus(model, corpus, fresh("run")).to_pandas(),
        "run of a corpus: tokens": lambda: run("tokens"),
        "run of a corpus: patterns of heads": lambda: run("structure"),
        "open, verify and read a Run": read,
        "report of a sentence": lambda: identiscope.report(model, SENTENCE, fresh("page.html")),
        "report of a Run": report_of_a_run,
        "save and load a result": lambda: identiscope.load_result(
            identiscope.save_result(statistics, fresh("result.safetensors"))
        ),
        "tokens of a corpus: linear probes": lambda: command(
            "tokens", "minilm", corpus, "--out", fresh("tokens"), "--folds", 1, "--experiment", "same-layer"
        ),
        "structure of a corpus": lambda: identiscope.corpus_structure(model, sentences[:4], layers=[0, 3]),
    }


def command(*words: object) -> None:
    """A command line, in this process."""
    from click.testing import CliRunner

    from identiscope.cli import main

    done = CliRunner().invoke(main, list(map(str, words)), catch_exceptions=False)
    if done.exit_code:
        raise RuntimeError(done.output)


def names_in(result: Any) -> list[str]:
    """The arrays or columns of what a job gave, where it has such."""
    return sorted(map(str, getattr(result, "data_vars", getattr(result, "columns", ()))))


def work() -> None:
    """The process of one state: a line says a job and how often; the answer is its CPU time and what it gave.

    What goes wrong is told to the process that asks.
    """
    answers, sys.stdout = sys.stdout, sys.stderr
    try:
        with tempfile.TemporaryDirectory() as folder:
            known = jobs(Path(folder))
            print(json.dumps(list(known)), file=answers, flush=True)
            for line in sys.stdin:
                name, times = json.loads(line)
                begin = time.process_time()
                for _ in range(times):
                    result = known[name]()
                used = (time.process_time() - begin) / times
                print(json.dumps([used, names_in(result)]), file=answers, flush=True)
    except Exception:
        print(json.dumps({"error": traceback.format_exc()}), file=answers, flush=True)


class State:
    """A state of the source, at work in a process of its own."""

    def __init__(self, tree: Path) -> None:
        if not (tree / "src" / "identiscope").is_dir():
            sys.exit(f"{tree} has no src/identiscope in it; give a folder that has, or a commit of this repository.")
        self.tree = tree
        one = dict.fromkeys(THREADS, "1") | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(tree / "src")}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE), "--work"], env=os.environ | one, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.jobs: list[str] = self._answer()

    def do(self, name: str, times: int = 1) -> tuple[float, list[str]]:
        """CPU seconds of a job, the mean of so many, and what it gave."""
        assert self.process.stdin is not None
        print(json.dumps([name, times]), file=self.process.stdin, flush=True)
        seconds, given = self._answer()
        return seconds, given

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"a state of the source ended by itself, with status {self.process.wait()}.")
        answer = json.loads(line)
        if isinstance(answer, dict):
            sys.exit(f"{self.tree} could not do it:\n{answer['error']}")
        return answer

    def end(self) -> None:
        """No more jobs."""
        self.process.communicate()


def compare(name: str, before: State, after: State, repeats: int) -> dict[str, Any]:
    """One job in both, in turn."""
    # Of the first call, compilation and caches are a part; it says how many make a measurement.
    (first, given_before), (_, given_after) = before.do(name), after.do(name)
    times = max(1, min(50, math.ceil(LEAST / max(first, 1e-4))))
    pairs = [(before.do(name, times)[0], after.do(name, times)[0]) for _ in range(repeats)]
    old, new = (min(one) for one in zip(*pairs, strict=True))
    more = [array for array in given_after if array not in given_before]
    return {"job": name, "before": old, "after": new, "ratio": new / old, "more": more}


def said(row: Mapping[str, Any]) -> None:
    """A row as a claim; as a line alone where more is computed than was."""
    measured = f"{row['before'] * 1e3:,.1f} ms → {row['after'] * 1e3:,.1f} ms, {row['ratio']:.2f}×"
    if row["more"]:
        print(f"{row['job']}: {measured}; computed in addition: {', '.join(row['more'])}", flush=True)
    else:
        claim(f"{row['job']}, against before", measured, f"at most {SLOWER:g}×", row["ratio"] <= SLOWER)


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of all jobs."""
    lines = ["| job | before | after | ratio | computed in addition |", "|---|---:|---:|---:|---|"]
    for row in rows:
        added = ", ".join(f"`{name}`" for name in row["more"])
        times = f"{row['before'] * 1e3:,.1f} ms | {row['after'] * 1e3:,.1f} ms"
        lines.append(f"| {row['job']} | {times} | {row['ratio']:.2f} | {added} |")
    return "\n".join(lines) + "\n"


@contextmanager
def tree_of(given: str) -> Iterator[Path]:
    """A folder as it is; a commit, unpacked."""
    if Path(given).is_dir():
        yield Path(given).resolve()
        return
    asked = ["git", "-C", str(PROJECT), "archive", "--format=tar", given, "src"]
    packed = subprocess.run(asked, capture_output=True, check=False)
    if packed.returncode:
        sys.exit(f"{given!r} is no folder, and no commit of this repository: {packed.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", nargs="?", default=BEFORE)
    parser.add_argument("after", nargs="?", default=str(PROJECT))
    parser.add_argument("--jobs", nargs="*", help="only those whose name has one of these words in it")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    asked = parser.parse_args()
    with tree_of(asked.before) as one, tree_of(asked.after) as other:
        before, after = State(one), State(other)
        chosen = [job for job in before.jobs if not asked.jobs or any(word in job for word in asked.jobs)]
        rows = []
        for name in chosen:
            rows.append(compare(name, before, after, asked.repeats))
            said(rows[-1])
        before.end()
        after.end()
    if asked.markdown:
        asked.markdown.write_text(markdown(rows), encoding="utf-8")


if __name__ == "__main__":
    work() if "--work" in sys.argv[1:] else main()
