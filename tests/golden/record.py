"""Write the numbers that `test_golden.py` compares with: `cd tests && python -m golden.record [CASE ...]`.

Only on purpose: what is recorded is what the library computes now, right or wrong. With names of cases, only those are
recorded anew. `--check` writes nothing and says which numbers are not the stored ones to the last bit.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
import transformers

import identiscope
from golden.cases import CASES, Inputs, numbers_of
from golden.stored import FILE, read, write


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    check, names = "--check" in arguments, [one for one in arguments if one != "--check"]
    stored = read() if names or check else {}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(Path(folder), identiscope.load)
        for name in names or list(CASES):
            began = time.process_time()
            found[name] = numbers_of(name, inputs)
            print(f"{time.process_time() - began:6.1f} s  {len(found[name]):4} arrays  {name}", flush=True)
    if check:
        other = [
            f"{name}: {part}"
            for name, arrays in found.items()
            for part in {**arrays, **stored.get(name, {})}
            if _text(arrays.get(part)) != _text(stored.get(name, {}).get(part))
        ]
        print("\n".join(other) or "the same to the last bit")
        return
    write({name: (stored | found)[name] for name in CASES if name in stored | found})
    print(f"{FILE}: {FILE.stat().st_size / 1e6:.2f} MB")


def _text(entry: object) -> str:
    return json.dumps(entry, sort_keys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
