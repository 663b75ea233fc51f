"""How much of the attention does a prediction rest on? The numbers of docs/freedom.md, written to docs/freedom.json.

    OMP_NUM_THREADS=1 python docs/freedom_run.py
    python docs/freedom_run.py tables

smollm2 on 30 to 60 tokens of built-in passages (its next word), minilm on built-in pairs (the cosine of the two
sentences). What is done for a text is kept, so that it can be gone on with. Some forty minutes on one core.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
import xarray as xr
from scipy.stats import spearmanr

import identiscope
from identiscope.corpus.readers import read_corpus
from identiscope.stats.text_bootstrap import interval_of, sentence_resamples

HERE = Path(__file__).parent
FILE = HERE / "freedom.json"
PAIRS = 10
#: Layers that are asked, all of minilm's and some of smollm2's thirty; those whose attention is replaced as in the
#: published experiments, and those whose heads move by themselves.
LAYERS = {"smollm2": [0, 7, 14, 21, 29], "minilm": None}
REPLACED = {"smollm2": [14], "minilm": [0, 3, 5]}
BY_HEAD = {"minilm": [1, 5]}
ROWS = 3
OF_LADDER = (
    "merged_exact_width", "merged_epsilon_width", "merged_epsilon_kept", "exactly_free", "reach_within",
    "merged_reach_within", "moved_within", "control_moved", "control_same_choice", "all_reach_within",
    "all_merged_reach_within", "all_moved_within", "all_control_moved", "load", "bearing_rows", "layer_of_cell",
    "merged_weight", "merged_lower", "end_lower", "lower_moved", "removed_moved", "held_lower",
    "effect",
)  # fmt: skip
OF_REPLACED = (
    "exact_width", "epsilon_width",
    "permuted_moved", "permuted_same", "permuted_distance", "uniform_moved", "uniform_same", "uniform_distance",
    "adversarial_reach", "adversarial_moved", "erased_moved", "erased_same", "ranked_erased_share",
)  # fmt: skip


def numbers_of(result: xr.Dataset, names: tuple[str, ...]) -> dict[str, Any]:
    """Arrays as lists, to six digits; what is no number as null."""
    return {name: plain(result[name].values.tolist()) for name in names if name in result}


def plain(value: Any) -> Any:
    """A number, or lists of such, for JSON."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if value != value else round(value, 6)


def of_trace(model: str, trace: identiscope.Trace, outcome: str | None) -> dict[str, Any]:
    """All rungs of one text."""
    ladder = identiscope.freedom_ladder(trace, outcome, layers=LAYERS[model], most_rows=ROWS)
    others = identiscope.replaced_attention(trace, outcome=outcome, layers=REPLACED[model], most_rows=ROWS)
    answer = {
        "tokens": len(trace.main), "outcome": ladder.attrs["outcome"], "passes": ladder.attrs["passes"],
        "criteria": ladder["criterion"].values.tolist(), "layers": ladder["layer"].values.tolist(),
        "ladder": numbers_of(ladder, OF_LADDER), "replaced": numbers_of(others, OF_REPLACED),
    }  # fmt: skip
    return answer | ({"heads": of_heads(trace, outcome, BY_HEAD[model])} if model in BY_HEAD else {})


def of_heads(trace: identiscope.Trace, outcome: str | None, layers: list[int]) -> dict[str, Any]:
    """Heads by themselves: how far their strongest tokens may go by ε, and how far they moved with the same outcome."""
    alone = identiscope.prediction_freedom(
        trace, outcome=outcome, layers=layers, by="head", all_at_once=False, tolerance=0.05, merged=True
    )
    near = identiscope.epsilon_freedom(trace, layers=layers, epsilon=0.05, most_rows=ROWS)
    return {
        "layers": layers,
        "merged_width": plain(near["merged_width"].values.tolist()),
        "merged_reach": plain(alone["head_merged_reach_within"].values[..., 0].tolist()),
        "moved": plain(alone["head_moved_within"].values[..., 0].tolist()),
        "control_moved": plain(alone["head_control_moved"].values.tolist()),
    }


def main() -> None:
    """All texts that are not done yet."""
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    known: dict[str, list[dict[str, Any]]] = {"smollm2": [], "minilm": []}
    if FILE.is_file():
        known = json.loads(FILE.read_text(encoding="utf-8"))
    minilm, smollm2 = identiscope.load("minilm"), identiscope.load("smollm2")
    passages = [*(one.parts[0] for one in read_corpus("passages")), identiscope.PASSAGE]
    pairs = list(read_corpus("pairs", limit=PAIRS))
    # One of each in turn, so that what is done by any time is of both.
    for number in range(max(len(passages), PAIRS)):
        if len(known["smollm2"]) <= number < len(passages):
            count = 30 + 30 * number // (len(passages) - 1)
            ids = smollm2.tokenizer(passages[number])["input_ids"][:count]
            known["smollm2"].append(of_trace("smollm2", identiscope.trace(smollm2, ids), None))
            print("passage", number, flush=True)
        if len(known["minilm"]) <= number < PAIRS:
            first, second = pairs[number].parts
            known["minilm"].append(of_trace("minilm", identiscope.trace(minilm, first), f"similarity:{second}"))
            print("pair", number, flush=True)
        FILE.write_text(json.dumps(known, allow_nan=False) + "\n", encoding="utf-8")


def interval(values: list[float | None], digits: int = 2) -> str:
    """A mean over texts with its 95 % bootstrap interval."""
    known = torch.tensor([value for value in values if value is not None and value == value], dtype=torch.float64)
    if not len(known):
        return "–"
    bounds = interval_of(sentence_resamples(known, torch.ones(len(known))))
    numbers = f"{float(known.mean()):.{digits}f} [{bounds.low:.{digits}f}, {bounds.high:.{digits}f}]"
    return numbers.replace("-", "−")


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of Markdown."""
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def rungs(texts: list[dict[str, Any]]) -> list[str]:
    """By layer, and all at once."""
    criteria, known = texts[0]["criteria"], [one["ladder"] for one in texts]
    main = max(place for place, one in enumerate(criteria) if one != "same choice")
    heads = ["layer", "same output", "ε 0.01", "ε 0.05", "kept at ε 0.01", *(f"prediction: {one}" for one in criteria)]
    rows = []
    for place, layer in enumerate(texts[0]["layers"]):
        rows.append([str(layer), interval([one["merged_exact_width"][place] for one in known])])
        for name, number in (("merged_epsilon_width", 0), ("merged_epsilon_width", 1), ("merged_epsilon_kept", 0)):
            rows[-1].append(interval([one[name][place][number] for one in known]))
        for number in range(len(criteria)):
            rows[-1].append(interval([one["merged_reach_within"][place][number] for one in known]))
        rows[-1].append(interval([one["moved_within"][place][main] for one in known], 3))
        rows[-1].append(interval([one["control_moved"][place] for one in known], 3))
    rows.append(["all at once", *["–"] * 4])
    rows[-1] += [interval([one["all_merged_reach_within"][number] for one in known]) for number in range(len(criteria))]
    rows[-1].append(interval([one["all_moved_within"][main] for one in known], 3))
    rows[-1].append(interval([one["all_control_moved"] for one in known], 3))
    return table([*heads, "moved", "control"], rows)


def single_weights(texts: list[dict[str, Any]]) -> str:
    """What taking away single weights does, to first order and in the running model."""
    known = [one["ladder"] for one in texts]
    loads = interval([100 * sum(one["load"]) / len(one["load"]) for one in known], 3)
    gone = [value for one in known for value in one["removed_moved"]]
    beyond = [sum(value > 0.05 for value in one["removed_moved"]) / len(one["removed_moved"]) for one in known]
    held = [
        held / weight for one in known
        for held, weight, moved in zip(one["held_lower"], one["merged_weight"], one["removed_moved"], strict=True)
        if moved > 0.05
    ]  # fmt: skip
    kept = (
        f"; of these {len(held)} the least that held was {sum(held) / len(held):.2f} of the weight in the mean"
        if held
        else ""
    )
    return (
        f"Load to first order, in % of the weight: {loads}. Of {len(gone)} weights that were taken away in the running"
        f" model the share {interval(beyond)} moved the outcome by more than 0.05, the most {max(gone):.2f}{kept}."
    )


def beside_chance(texts: list[dict[str, Any]]) -> str:
    """In how many layers random maps that are as far away as what was found keep the outcome as well."""
    kept = [[value <= 0.05 for value in one["ladder"]["control_moved"] if value is not None] for one in texts]
    shares = interval([sum(one) / len(one) for one in kept])
    return f"Random maps as far away kept the outcome within 0.05, too, in the share {shares} of the layers."


def agreement(texts: list[dict[str, Any]]) -> list[str]:
    """Whether what ε leaves free is what the prediction leaves free: rank correlations, a text at a time."""
    lines = []
    criteria = texts[0]["criteria"]
    main = max(place for place, one in enumerate(criteria) if one != "same choice")
    layers = [
        spearman([row[1] for row in one["ladder"]["merged_epsilon_width"]],
                 [row[main] for row in one["ladder"]["merged_reach_within"]])
        for one in texts
    ]  # fmt: skip
    lines.append(f"Over layers, ε 0.05 and prediction 0.05: rank correlation {interval(layers)}.")
    for place, layer in enumerate(texts[0].get("heads", {}).get("layers", [])):
        heads = [spearman(one["heads"]["merged_width"][place], one["heads"]["merged_reach"][place]) for one in texts]
        lines.append(f"Over heads of layer {layer}: rank correlation {interval(heads)}.")
    return lines


def spearman(first: list[float], second: list[float]) -> float:
    """Of ranks, equal ones sharing theirs."""
    value = spearmanr(first, second).statistic
    return float(value)


def experiments(model: str, texts: list[dict[str, Any]]) -> list[str]:
    """What replacing the attention of a layer does."""
    names = {
        "permuted_moved": "permuted: moved", "permuted_same": "same answer", "uniform_moved": "uniform: moved",
        "uniform_same": "same answer", "adversarial_reach": "adversary: reach", "adversarial_moved": "moved",
        "exact_width": "same output", "epsilon_width": "ε 0.01",
    }  # fmt: skip
    rows = [
        [str(layer), *(interval([one["replaced"][name][place] for one in texts]) for name in names)]
        for place, layer in enumerate(REPLACED[model])
    ]
    return table(["layer", *names.values()], rows)


def tables() -> str:
    """What came out, as Markdown."""
    lines = []
    for model, texts in json.loads(FILE.read_text(encoding="utf-8")).items():
        sizes = [one["tokens"] for one in texts]
        lines += ["", f"### `{model}`: {len(texts)} texts of {min(sizes)} to {max(sizes)} tokens", "", *rungs(texts)]
        lines += ["", beside_chance(texts), single_weights(texts), *agreement(texts), "", *experiments(model, texts)]
        passes = [one["passes"] for one in texts]
        lines += ["", f"Passes for a text: {min(passes):.0f} to {max(passes):.0f}."]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] != ["tables"]:
        main()
    print(tables())
