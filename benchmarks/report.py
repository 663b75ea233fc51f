"""A report against BertViz: time to make it, its size, and how quickly a browser shows it.

    python benchmarks/report.py [--tokens 128 512] [--long 2048] [--browser]

The model is `minilm` (6 layers, 12 heads). BertViz is `bertviz.head_view(..., html_action="return")`. Ours starts
from the trace and includes computing raw and effective attention and comparing every cell of the page with them;
BertViz is given its maps. CPU seconds of one thread. Times in the browser are wall-clock, so they depend on what else
the machine does, and nothing is claimed of them. --long shows a random BERT of that many positions, for which BertViz
would need gigabytes.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from claims import at_most, need
from timing import faster, least_seconds, one_thread

import identiscope
from identiscope.capture.samples import PASSAGE
from identiscope.reports.reporting import report_page
from identiscope.views.page.report import page_html

LIMITS = {128: 2.0, 512: 15.0}


def bertviz_way(trace: identiscope.Trace) -> Callable[[], int]:
    """What BertViz does with these maps, as a function that returns the number of characters it made."""
    from bertviz import head_view

    maps = tuple(site.attentions().float()[None] for site in trace.sites)
    tokens = list(trace.tokens)
    return lambda: len(head_view(maps, tokens, html_action="return").data)


def compare(trace: identiscope.Trace, folder: Path) -> Path:
    """Time and size of both; the page is left in a file."""
    other = bertviz_way(trace)
    count = len(trace.tokens)
    made: dict[str, Any] = {}

    def ours() -> None:
        made["html"] = page_html(report_page(trace, with_verdict=False, canonical="none"))

    def whole() -> None:
        made["whole"] = page_html(report_page(trace))

    ours()
    size = other()
    fast = least_seconds(ours, 3)
    wanted = 20 if count >= 512 else 1
    bertviz = least_seconds(other)
    faster(f"report of {count} tokens, against bertviz.head_view", bertviz, fast, wanted)
    with_verdict = least_seconds(whole, 3)
    if count >= 512:
        faster(f"report of {count} tokens with its verdict, against bertviz.head_view", bertviz, with_verdict, 12)
    limit = LIMITS.get(count)
    print(
        f"{count} tokens: {len(made['html']) / 1e6:.2f} MB against {size / 1e6:.0f} MB;"
        f" with verdict, first canonical maps and intervals"
        f" {len(made['whole']) / 1e6:.2f} MB in {with_verdict:.1f} s CPU"
    )
    if limit:
        at_most(f"size of a report of {count} tokens", len(made["html"]) / 1e6, limit, " MB")
    path = folder / f"{count}.html"
    path.write_text(made["whole"], encoding="utf-8")
    return path


def browse(path: Path) -> None:
    """First view and change of head, as the page itself measures them."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("no browser here: times in it were not measured")
        return
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        begin = time.monotonic()
        tab.goto(f"file://{path}")
        while not tab.evaluate("!!window.identiscope"):
            time.sleep(0.01)
        grid = time.monotonic() - begin
        tab.evaluate("identiscope.ready")
        ready = time.monotonic() - begin
        # Heads in an order that the page does not expect, so that none was computed ahead; layers opened before.
        tab.evaluate("void (window.layers = identiscope.header.sections[0].data.layers)")
        layers, heads = tab.evaluate("[layers.length, layers[0].heads.length]")
        for layer in range(min(layers, 3)):
            tab.evaluate(f"identiscope.choose({{layer: layers[{layer}].layer}})")
        times = []
        for turn in range(12):
            head = (turn * 5 + 2) % heads
            place = f"{{layer: layers[{turn % min(layers, 3)}].layer, head: {head}}}"
            times.append(tab.evaluate(f"identiscope.choose({place}).then(() => identiscope.timing.change)"))
        browser.close()
    print(
        f"{path.stem} tokens in Chromium: verdict and grid after {grid:.2f} s, all after {ready:.2f} s (goal 1 s);"
        f" change of head {statistics.median(times):.0f} ms in the median, {min(times):.0f} at best (goal 100 ms)"
    )


def long_page(count: int, folder: Path) -> Path:
    """A page on a random BERT of 6 layers and 12 heads with so many positions."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        max_position_embeddings=count, hidden_size=384, num_hidden_layers=6, intermediate_size=768
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    trace = identiscope.trace(model, torch.randint(0, 30000, (count,)).tolist())
    begin = time.process_time()
    text = page_html(report_page(trace, with_verdict=False))
    print(f"{count} tokens: {len(text) / 1e6:.1f} MB in {time.process_time() - begin:.1f} s CPU")
    path = folder / f"{count}.html"
    path.write_text(text, encoding="utf-8")
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, nargs="*", default=[128, 512])
    parser.add_argument("--long", type=int, default=0)
    parser.add_argument("--browser", action="store_true", help="open the pages and say how long that takes")
    given = parser.parse_args()
    one_thread()
    need("bertviz")
    transformers.logging.set_verbosity_error()
    minilm = identiscope.load("minilm")
    assert minilm.tokenizer is not None
    ids = minilm.tokenizer(PASSAGE * 4, truncation=True, max_length=512)["input_ids"]
    with tempfile.TemporaryDirectory() as name:
        paths = [compare(identiscope.trace(minilm, ids[:count]), Path(name)) for count in given.tokens]
        if given.long:
            paths.append(long_page(given.long, Path(name)))
        for path in paths if given.browser else []:
            browse(path)
