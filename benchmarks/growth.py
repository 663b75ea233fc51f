"""How CPU time and memory of every public analysis grow with tokens, heads, layers and d_v: exponents, one thread.

    OMP_NUM_THREADS=1 python benchmarks/growth.py [METHOD …] [--axes tokens heads] [--limit 2] [--largest 8192] [--docs]

A small random causal model (2 layers of 4 heads on 2 value heads, d_v 16), one size doubled at a time. An analysis
goes to the next size until a call takes more than --limit seconds or `MOST` MB. The exponent is the slope of
a line through the logarithms of the last `FITTED` sizes, two at least. --docs writes docs/growth.md and its picture.
"""

import argparse
import ctypes
import gc
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from claims import claim
from timing import one_thread

import identiscope
from identiscope.capture.inputs import TokenRow
from identiscope.methods.registry import METHODS, Method
from identiscope.methods.signatures import signature
from identiscope.runs.compute.batch import Worker, compute_batch, model_shape
from identiscope.runs.compute.options import RunOptions

DOCS = Path(__file__).parents[1] / "docs"
#: What is doubled, from where to where; everything else stays as it is.
USUAL = {"tokens": 128, "heads": 4, "layers": 2, "d_v": 16}
FIRST = {"tokens": 64, "heads": 4, "layers": 1, "d_v": 8}
LAST = {"tokens": 8192, "heads": 32, "layers": 8, "d_v": 64}
#: MB above which the next size is not tried, sizes that an exponent is fitted to, and how far it may be above its
#: bound: what caches and a few sizes make of a slope.
MOST, FITTED, SLACK = 500, 3, 0.35
#: Calls shorter than this are made of overhead: they say nothing of growth.
LEAST_SECONDS = 2e-3

#: What an analysis has to do at least, as exponents of each size. All read attention, which has a cell for each pair of
#: tokens in each head of each layer, and project on d_v directions.
USUAL_BOUND = {"tokens": 2.0, "heads": 1.0, "layers": 1.0, "d_v": 2.0}
#: What some have to do beyond, and why.
BEYOND: dict[str, tuple[dict[str, float], str]] = {
    "occlusion": ({"tokens": 3}, "a pass for each token"),
    "shapley": ({"tokens": 3}, "a pass for each token of an order"),
    "kernel_shap": ({"tokens": 3}, "passes in number of the tokens, and a regression on these"),
    "value_zeroing": ({"tokens": 3}, "a layer anew for each token"),
    "interval_map": ({"tokens": 3}, "a program of n weights for each of n² cells"),
    "attention_flow": ({"tokens": 4, "layers": 2}, "n² flows through n² edges a layer, from every layer"),
    "hidden_token_attribution": ({"layers": 2}, "a Jacobian from every layer down to the first"),
    "attention_attribution": ({"layers": 2}, "passes and their gradients for every layer"),
    "head_output_gradient": ({"tokens": 3, "layers": 2}, "a Jacobian for each token, from every layer down"),
    "layer_rank": ({"heads": 3, "d_v": 3}, "one matrix of heads·d_v rows, factorised"),
    "attention_identifiability": ({"heads": 3, "d_v": 3}, "the layer's rank is in it"),
    "layer_alternative": ({"heads": 3, "d_v": 3}, "programs over the weights of all heads together"),
}

#: The methods that those compare and audit which take some.
AUDITED = ("attention", "effective_simplex_span")

#: An analysis of a trace, ready to be called.
Asked = Callable[[identiscope.Trace], Callable[[], object]]


@dataclass(frozen=True)
class Growth:
    """Of one analysis along one axis: the sizes that were tried, CPU seconds, peak MB, and why it ended early."""

    sizes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    refused: str = ""

    def exponent(self, of: Sequence[float], least: float) -> float | None:
        """The slope through the last sizes; None where what is measured is too small to grow."""
        kept = [(math.log(size), math.log(one)) for size, one in zip(self.sizes, of, strict=True) if one >= least]
        kept = kept[-FITTED:]
        if len(kept) < 2:
            return None
        mean = [sum(column) / len(kept) for column in zip(*kept, strict=True)]
        return sum((x - mean[0]) * (y - mean[1]) for x, y in kept) / sum((x - mean[0]) ** 2 for x, _ in kept)


def traced(tokens: int, heads: int, layers: int, d_v: int) -> identiscope.Trace:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=heads * d_v,
        intermediate_size=2 * heads * d_v,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        vocab_size=1000,
        max_position_embeddings=max(2048, tokens),
    )
    ids = torch.randint(3, 1000, (tokens,), generator=torch.Generator().manual_seed(1))
    return identiscope.trace(transformers.LlamaForCausalLM(config).eval(), ids.tolist())


def outcome(run: identiscope.Rerun) -> torch.Tensor:
    """A number that depends on every token."""
    last = run.hidden_states[-1].double()
    return (last * torch.linspace(-1, 1, last.shape[1], dtype=last.dtype)).sum(-1).tanh().sum()


def asked(one: Method, trace: identiscope.Trace) -> Callable[[], object]:
    """A method of the registry, briefly: one layer's head or row where it must be told which."""
    chosen: dict[str, Any] = dict(one.brief)
    for option in signature(one).options:
        if option.name in ("layer", "head") and option.default is None:
            chosen[option.name] = 0
        elif option.name == "query":
            chosen["query"] = trace.sites[0].queries - 1
        elif option.name == "outcome":
            chosen["outcome"] = outcome
        elif option.name == "budget" and one.name in ("shapley", "kernel_shap"):
            # As many passes as tell the tokens apart.
            chosen["budget"] = 8 * trace.sites[0].queries
    return lambda: identiscope.ask(one.name, trace, **chosen)


def ids_of(trace: identiscope.Trace) -> list[int]:
    assert trace.main.ids is not None
    return list(trace.main.ids)


def raw_of(trace: identiscope.Trace) -> np.ndarray:
    """Raw attention of one head: what is proved to be an alternative of itself."""
    found: np.ndarray = identiscope.attention_maps(trace, 0, 0, ("raw",))["raw"].values
    return found


def batch_of_a_run(trace: identiscope.Trace) -> object:
    """What a worker of `run_corpus` computes of a text."""
    options, ids = RunOptions(), ids_of(trace)
    assert trace.model is not None
    worker = Worker(trace.model, options, model_shape(trace.model, options))
    return compute_batch(worker, [TokenRow(ids, None, None, [False] * len(ids), 0)])


def analyses(folder: Path) -> dict[str, Asked]:
    """Every method of the registry, and what else is asked of a trace."""
    found: dict[str, Asked] = {
        "trace": lambda trace: lambda: identiscope.trace(trace.model, ids_of(trace)),
        "verify": lambda trace: lambda: trace.verify(),
        "substitute": lambda trace: (
            lambda: identiscope.substitute(trace.model, ids_of(trace), {(0, 0): lambda attention: attention})
        ),
        "attention_maps": lambda trace: lambda: identiscope.attention_maps(trace, 0, 0),
        "factored_attention": lambda trace: lambda: identiscope.factored_attention(trace, 0),
        "extract_structure": lambda trace: lambda: identiscope.extract_structure([trace]),
        "shared_subspaces": lambda trace: lambda: identiscope.shared_subspaces(trace.model, [ids_of(trace)]),
        "prove": lambda trace: (
            lambda: identiscope.prove(trace.model, ids_of(trace), 0, 0, torch.from_numpy(raw_of(trace)))
        ),
        "explain": lambda trace: lambda: identiscope.explain(trace, outcome),
        "compare": lambda trace: lambda: identiscope.compare(trace, AUDITED),
        "null_audit": lambda trace: lambda: identiscope.null_audit(trace, AUDITED),
        "gauge_audit": lambda trace: lambda: identiscope.gauge_audit(trace.model, [ids_of(trace)], AUDITED),
        "randomisation": lambda trace: lambda: identiscope.randomisation(trace.model, ids_of(trace), AUDITED, draws=1),
        "freedom_ladder": lambda trace: lambda: identiscope.freedom_ladder(trace, outcome),
        "batch of a Run": lambda trace: lambda: batch_of_a_run(trace),
        "report": lambda trace: (
            lambda: identiscope.report(trace, path=folder / "page.html", with_verdict=False, canonical="none")
        ),
    }
    for one in METHODS.values():
        found[one.name] = lambda trace, one=one: asked(one, trace)  # type: ignore[misc]
    return found


def status(name: str) -> float:
    """A line of the process's own account, in MB: VmRSS is what it holds, VmHWM the most it has held."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def measured(make: Asked, trace: identiscope.Trace) -> tuple[float, float]:
    """CPU seconds of a call, the least of three where it is short, and its peak above what was held before.

    Each is of a trace that nothing was asked of, so that what is found once for a trace counts at every size.
    """
    function = make(replace(trace))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    held = status("VmRSS")
    begin = time.process_time()
    function()
    seconds, peak = time.process_time() - begin, status("VmHWM") - held
    for _ in range(2 if seconds < 0.5 else 0):
        function = make(replace(trace))
        begin = time.process_time()
        function()
        seconds = min(seconds, time.process_time() - begin)
    return seconds, max(peak, 0.0)


def grown(make: Asked, axis: str, traces: "Traces", limit: float) -> Growth:
    found = Growth()
    size = FIRST[axis]
    while size <= traces.last[axis]:
        try:
            trace = traces.of(axis, size)
            if not found.sizes:
                make(replace(trace))()  # Code is compiled at its first use.
            seconds, peak = measured(make, trace)
        except identiscope.IdentiscopeError as error:
            return Growth(found.sizes, found.seconds, found.memory, str(error).splitlines()[0])
        found.sizes.append(size)
        found.seconds.append(seconds)
        found.memory.append(peak)
        # One size has no exponent.
        if len(found.sizes) > 1 and (seconds > limit or peak > MOST):
            break
        size *= 2
    return found


class Traces:
    """Made when they are first asked for, and kept."""

    def __init__(self, largest: int) -> None:
        self.last = LAST | {"tokens": largest}
        self._kept: dict[tuple[str, int], identiscope.Trace] = {}

    def of(self, axis: str, size: int) -> identiscope.Trace:
        """With one size other than usual."""
        if (axis, size) not in self._kept:
            self._kept[axis, size] = traced(**(USUAL | {axis: size}))
        return self._kept[axis, size]


def bound(name: str, axis: str) -> float:
    return float(BEYOND.get(name, ({}, ""))[0].get(axis, USUAL_BOUND[axis]))


def exponents(found: dict[str, dict[str, Growth]], axis: str) -> Iterator[tuple[str, float]]:
    for name, by_axis in found.items():
        if axis not in by_axis:
            continue
        slope = by_axis[axis].exponent(by_axis[axis].seconds, LEAST_SECONDS)
        if slope is not None:
            yield name, slope


def judge(found: dict[str, dict[str, Growth]]) -> None:
    """The analysis that is farthest above what it must do, for time along each axis and for memory along tokens."""
    for axis in USUAL:
        over = [(slope - bound(name, axis), name, slope) for name, slope in exponents(found, axis)]
        if not over:
            continue
        above, name, slope = max(over)
        claim(
            f"CPU time by {axis} of {len(over)} analyses, the one farthest above its bound",
            f"{name}: exponent {slope:.2f}, bound {bound(name, axis):g}",
            f"at most {SLACK:g} above",
            above <= SLACK,
        )
    along = {name: one["tokens"] for name, one in found.items() if "tokens" in one}
    peaks = {name: one.exponent(one.memory, 10) for name, one in along.items()}
    known = {name: slope for name, slope in peaks.items() if slope is not None}
    if known:
        name = max(known, key=lambda one: known[one])
        claim(
            f"peak memory by tokens of {len(known)} analyses, the one that grows fastest",
            f"{name}: exponent {known[name]:.2f}",
            f"at most {SLACK:g} above 2, the cells of a map",
            known[name] <= 2 + SLACK,
        )


def table(found: dict[str, dict[str, Growth]]) -> str:
    """As Markdown: exponents by axis, the largest text that was tried, its time and memory."""
    axes = list(USUAL)
    rows = [
        f"| analysis | {' | '.join(axes)} | bound | memory, by tokens | largest text | s | MB |",
        f"|---|{'---:|' * len(axes)}---:|---:|---:|---:|---:|",
    ]
    for name, by_axis in found.items():
        cells = []
        for axis in axes:
            one = by_axis.get(axis, Growth())
            slope = one.exponent(one.seconds, LEAST_SECONDS)
            cells.append("–" if slope is None else f"{slope:.1f}")
        tokens = by_axis.get("tokens", Growth())
        memory = tokens.exponent(tokens.memory, 10)
        bounds = ", ".join(f"{bound(name, axis):g}" for axis in axes)
        last = (
            (f"{tokens.sizes[-1]:,}", f"{tokens.seconds[-1]:.2f}", f"{tokens.memory[-1]:,.0f}")
            if tokens.sizes
            else None
        )
        cells += [bounds, "–" if memory is None else f"{memory:.1f}", *(last or ("–", "–", "–"))]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def write(found: dict[str, dict[str, Growth]], limit: float) -> None:
    """docs/growth.md and its picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kinds: dict[str, list[str]] = {}
    for name in found:
        kinds.setdefault(METHODS[name].kind if name in METHODS else "other", []).append(name)
    figure, panels = pyplot.subplots(
        math.ceil(len(kinds) / 3), 3, figsize=(15, 12), sharex=True, sharey=True, layout="constrained"
    )
    for panel, (kind, names) in zip(panels.flat, kinds.items(), strict=False):
        for place, name in enumerate(names):
            one = found[name]["tokens"]
            style = ("-", "--", ":")[place // 10]
            panel.plot(one.sizes, one.seconds, style, marker="o", markersize=3, linewidth=1.2, label=name)
        panel.set(title=kind, xscale="log", yscale="log")
        panel.set_xticks([64, 256, 1024, 4096], ["64", "256", "1,024", "4,096"], minor=False)
        panel.set_xticks([], minor=True)
        panel.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    for panel in list(panels.flat)[len(kinds) :]:
        panel.axis("off")
    figure.supxlabel("tokens")
    figure.supylabel("CPU seconds of a call, one thread")
    figure.savefig(DOCS / "images" / "growth.png", dpi=80)
    why = "\n".join(f"- `{name}`: {reason}." for name, (_, reason) in BEYOND.items())
    refused = [f"- `{name}` {one['tokens'].refused}" for name, one in found.items() if one["tokens"].refused]
    above = [
        f"- `{name}` along {axis}: {slope:.1f}, bound {bound(name, axis):g}."
        for axis in USUAL
        for name, slope in exponents(found, axis)
        if slope > bound(name, axis) + SLACK
    ]
    partly = [f"`{name}`" for name, by_axis in found.items() if len(by_axis) < len(USUAL)]
    missing = [f"`{name}`" for name in analyses(DOCS) if name not in found]
    parts = [
        f"""# How time and memory grow

Written by `benchmarks/growth.py --docs`. A random causal model of 2 layers of 4 heads on 2 value heads, d_v 16, at 128
tokens; one size is doubled at a time, until a call takes {limit:g} s or {MOST} MB, or as far as was asked for, at least
once. An exponent is the slope through the last {FITTED} sizes (log–log), or of two where there are no more, of CPU time
on one thread; “–” where none or one took {LEAST_SECONDS * 1e3:g} ms or more. Short calls are mostly overhead, which
does not grow, so that their exponents are below those of long ones.

*Bound* is what the analysis has to do, for tokens, heads, layers and d_v: a cell for each pair of tokens in each head,
projected on d_v directions. An exponent may be {SLACK:g} above its bound, which is what caches and a few sizes make of
a slope; memory along tokens may be {SLACK:g} above 2.

{table(found)}

What has a higher bound, and why:

{why}
""",
        _listed("Above its bound by more:", above),
        _listed("Where it ended early:", refused),
        f"Along tokens alone: {', '.join(partly)}.\n" if partly else "",
        f"Not measured: {', '.join(missing)}.\n" if missing else "",
        "![CPU time against tokens](images/growth.png)\n",
    ]
    (DOCS / "growth.md").write_text("\n".join(filter(None, parts)), encoding="utf-8")


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, "", *lines, ""]) if lines else ""


def main(names: Sequence[str], axes: Sequence[str], limit: float, largest: int, docs: bool) -> None:
    traces = Traces(largest)
    found: dict[str, dict[str, Growth]] = {}
    with tempfile.TemporaryDirectory() as folder:
        every = analyses(Path(folder))
        for name in names or every:
            found[name] = {axis: grown(every[name], axis, traces, limit) for axis in axes}
            along = found[name][axes[0]]
            said = [f"{size}: {one:.3f} s" for size, one in zip(along.sizes, along.seconds, strict=True)]
            print(f"{name}, {axes[0]}: {', '.join(filter(None, [*said, along.refused]))}", flush=True)
    print(table(found), flush=True)
    judge(found)
    if docs:
        write(found, limit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="these analyses only")
    parser.add_argument("--axes", nargs="+", choices=list(USUAL), default=list(USUAL), help="what grows")
    parser.add_argument("--limit", type=float, default=2.0, help="CPU seconds of a call that end the doubling")
    parser.add_argument("--largest", type=int, default=LAST["tokens"], help="tokens of the longest text")
    parser.add_argument("--docs", action="store_true", help="write docs/growth.md and its picture")
    given = parser.parse_args()
    one_thread()
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", message="the rank of heads")
    if given.docs and (given.names or given.axes != list(USUAL)):
        parser.error("the docs have all analyses along all axes")
    main(given.names, given.axes, given.limit, given.largest, given.docs)
