"""Try every architecture of the installed transformers, tiny: `python docs/families_run.py`, some twenty minutes.

Writes docs/families.json, from which `make docs` makes the page; `tests/test_docs.py` tries a sample of it anew. Models
run in a process of their own, which is started again if one of them kills it or takes too long.

    python docs/families_run.py [TYPE …]
"""

import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
SECONDS = 300


def start() -> "subprocess.Popen[str]":
    """A process that tries the model types it reads, one a line, and writes a line of JSON for each."""
    return subprocess.Popen(
        [sys.executable, __file__, "--worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        text=True,
    )


def work() -> None:
    """Try what stdin says, until it ends."""
    sys.path.insert(0, str(DOCS.parent / "tests"))
    import warnings

    import torch
    import transformers

    import every_family

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    answers, sys.stdout = sys.stdout, sys.stderr  # some models print
    for line in sys.stdin:
        name = line.strip()
        try:
            row = asdict(every_family.outcome(name))
        except Exception as error:
            row = {"model_type": name, "result": "FAILED", "reason": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(row), file=answers, flush=True)


def answer(worker: "subprocess.Popen[str]", seconds: float) -> dict[str, Any] | None:
    """The next line of a worker; None if it died or took too long."""
    assert worker.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(worker.stdout, selectors.EVENT_READ)
        line = worker.stdout.readline() if selector.select(seconds) else ""
    return json.loads(line) if line else None


def main(chosen: list[str]) -> None:
    """Try the chosen types, or all, and write what became of them."""
    sys.path.insert(0, str(DOCS.parent / "tests"))
    import transformers
    from generate import bound

    import every_family

    path = DOCS / "families.json"
    classes = every_family.model_classes()
    before = json.loads(path.read_text(encoding="utf-8"))["families"] if chosen else []
    rows = {row["model_type"]: row for row in before}
    worker, begin = start(), time.monotonic()
    for number, name in enumerate(chosen or classes):
        assert worker.stdin is not None
        worker.stdin.write(name + "\n")
        worker.stdin.flush()
        row = answer(worker, SECONDS)
        if row is None:
            worker.kill()
            worker = start()
            row = {"model_type": name, "result": "not built", "reason": f"died, or took more than {SECONDS} s"}
        if row["result"] == "verified":
            row |= {key: None if row[key] is None else bound(row[key]) for key in ("error", "maps")}
            del row["reason"]
        else:
            row = {key: row[key] for key in ("model_type", "result", "reason")} | {"architecture": classes[name]}
        rows[name] = row
        print(
            f"{number + 1} {time.monotonic() - begin:.0f} s {name}: {row['result']} {row.get('error', '')}", flush=True
        )
    worker.kill()
    lines = ",\n".join(json.dumps(rows[name], ensure_ascii=False) for name in classes if name in rows)
    text = f'{{"transformers": {json.dumps(transformers.__version__)}, "families": [\n{lines}\n]}}\n'
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        work()
    else:
        main(sys.argv[1:])
