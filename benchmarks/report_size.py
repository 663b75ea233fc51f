"""Sizes of reports of causal models and of models with a position bias, of all layers and heads, at 512 tokens.

    OMP_NUM_THREADS=1 python benchmarks/report_size.py [--browser] [--smoke]

smollm2 (30 layers of 9 heads on 3 value heads, causal), and a random T5 of the size of t5-small (6 layers of 8 heads in
the encoder). --browser opens the pages, too; --smoke only sees whether all of it runs, on 24 tokens.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers
from claims import at_most
from report import browse
from timing import one_thread

import identiscope
from identiscope.reports.reporting import report_page
from identiscope.views.page.report import page_html

TOKENS = 512


def causal(tokens: int = TOKENS) -> identiscope.Trace:
    model = identiscope.load("smollm2")
    text = (Path(__file__).parent.parent / "LICENSE").read_text()
    return identiscope.trace(model, model.tokenizer(text, truncation=True, max_length=tokens)["input_ids"])


def biased(tokens: int = TOKENS) -> identiscope.Trace:
    torch.manual_seed(0)
    config = transformers.T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)
    ids = torch.randint(3, 32000, (1, tokens), generator=torch.Generator().manual_seed(1))
    given = {"input_ids": ids, "decoder_input_ids": ids[:, :8]}
    return identiscope.trace(transformers.T5Model(config).eval(), given)


def weigh(name: str, trace: identiscope.Trace, limit: float, folder: Path) -> Path:
    """Make the page, and say its size and its largest error."""
    begin = time.process_time()
    kind = trace.kinds[0]
    page = report_page(trace, attention=kind, with_verdict=False, canonical="none")
    text = page_html(page)
    layers = page.section("attention")["data"]["layers"]
    error = {key: max(layer["error"][key] for layer in layers) for key in layers[0]["error"]}
    cells = sum(2 * len(layer["heads"]) * layer["queries"] * layer["keys"] for layer in layers)
    stored = sum(layer["raw"]["factors"] is None for layer in layers)
    seconds, size = time.process_time() - begin, len(text) / 1e6
    print(f"{name}: {size:.1f} MB in {seconds:.1f} s CPU, {len(text) / cells * 8:.1f} bits a cell", flush=True)
    largest = ", ".join(f"{value:g} ({key})" for key, value in error.items())
    print(f"errors at most {largest}; {stored} layers by their cells")
    at_most(f"size of a report of {name}, {len(trace.main)} tokens", size, limit, " MB")
    at_most(f"largest error of a raw weight in a report of {name}", max(error.values()), 1.2e-3, "", 5)
    path = folder / f"{name.split()[0]}.html"
    path.write_text(text, encoding="utf-8")
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--browser", action="store_true", help="open the pages and say how long that takes")
    parser.add_argument("--smoke", action="store_true", help="on few tokens: does all of it run?")
    given = parser.parse_args(sys.argv[1:])
    tokens = 24 if given.smoke else TOKENS
    one_thread()
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as name:
        paths = [
            weigh("T5-small-sized encoder", biased(tokens), 15, Path(name)),
            weigh("smollm2", causal(tokens), 20, Path(name)),
        ]
        for path in paths if given.browser else []:
            browse(path)
