"""Ask every method again under other descriptions of the same computation, and write the tables of what-survives.md.

python docs/survival_run.py            # minilm and smollm2, some minutes; writes docs/survival.json
python docs/survival_run.py --write    # the tables of the page, from that file
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

DOCS = Path(__file__).parent
FOUND = DOCS / "survival.json"


@dataclass(frozen=True)
class Setting:
    """What is asked of a model. tokens: of the built-in passage; where attention is audited, more than a head is wide.

    more: methods beside the fast ones, such as are known to move, or not to. fast: whether these are asked. how:
    rewritings, None for all.
    """

    tokens: int
    outcome: str | None
    more: tuple[str, ...] = ("effective", "alti", "alti_logit", "flow_routes", "direct_logit_attribution")
    how: tuple[str, ...] | None = None
    other_attention: bool = True
    steps: int = 3
    fast: bool = True


SETTINGS = {
    "minilm": Setting(44, "similarity:A boat came to the island."),
    "a random Llama": Setting(24, None),
    "smollm2": Setting(
        tokens=16,
        outcome=None,
        more=("attention", "rollout", "weighted_norm", "saliency", "alti", "flow_routes"),
        how=("value_output", "residual_rotation"),
        other_attention=False,
        steps=1,
        fast=False,
    ),
}


def measure(name: str) -> dict[str, Any]:
    """What is found of one model."""
    import identiscope
    from identiscope.asking.explaining import chosen_methods
    from identiscope.capture.rewriting.rewriting import openings

    asked = SETTINGS[name]
    if name == "a random Llama":
        model, text = _random_llama(), list(range(5, 5 + 2 * asked.tokens, 2))
    else:
        model = identiscope.load(name)
        ids = model.tokenizer(identiscope.PASSAGE)["input_ids"]
        special = name == "minilm"
        text = ids[: asked.tokens - special] + ids[-1:] * special
    methods = [
        one.name for one in chosen_methods("all") if one.name in asked.more or (asked.fast and "fast" in one.tags)
    ]
    found: dict[str, Any] = {"tokens": len(text), "refused": openings(model)[1]}
    gauge = identiscope.gauge_audit(model, [text], methods, asked.outcome, how=asked.how, progress=_told)
    routes = identiscope.gauge_audit(
        model, [text], ["flow_routes"], asked.outcome, how=gauge["rewriting"].values.tolist(),
        options={"flow_routes": {"norm": 2}},
    )  # fmt: skip
    names, moved = gauge["rewriting"].values.tolist(), gauge["change_in_model"].values.tolist()
    found["rewritings"] = dict(zip(names, moved, strict=True))
    found["gauge"] = _rows(gauge) | {"flow_routes, norm 2": _rows(routes)["flow_routes"]}
    able = [one for one, row in _rows(gauge).items() if row["verdict"] != "undecided"]
    found["null"] = {}
    if asked.other_attention:
        trace = identiscope.trace(model, text)
        null = identiscope.null_audit(trace, able, asked.outcome, intervals=4, starts=0, progress=_told)
        found["null"] = _rows(null)
        found["distance"] = {part: float(null[part].max()) for part in ("distance", "merged_distance")}
    left = identiscope.randomisation(model, text, able, asked.outcome, steps=asked.steps, progress=_told)
    found["redrawn"] = {
        "layers": left["redrawn"].values.tolist(),
        "rows": {
            str(one): [*left["rank_correlation"].values[at].mean(-1).tolist(), str(left["verdict"].values[at])]
            for at, one in enumerate(left["method"].values)
        },
    }
    return found


def _random_llama() -> Any:
    """Two layers in float64, large enough weights that its attention is not uniform; gains and biases are random."""
    import identiscope

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, attention_bias=True, mlp_bias=True,
    )  # fmt: skip
    module = transformers.LlamaForCausalLM(config).double().eval()
    with torch.no_grad():
        for part, weight in module.named_parameters():
            if weight.dim() > 1:
                weight.mul_(6)
            elif "bias" in part:
                weight.normal_(std=0.3)
            else:
                weight.uniform_(0.3, 1.8)
    return identiscope.load(module)


def _told(done: int, total: int) -> None:
    print(f"{done} of {total}", end="\r", file=sys.stderr, flush=True)


def _rows(audit: Any) -> dict[str, Any]:
    """Numbers of every method, by description."""
    names = [str(one) for one in audit[audit["total_variation"].dims[1]].values]
    rows = {}
    for at, method in enumerate(audit["method"].values):
        one = audit.isel(method=at)
        row: dict[str, Any] = {"verdict": str(one["verdict"].values), "failed": str(one["failed"].values)}
        for part in ("total_variation", "row_total_variation", "top_survives", "rank_correlation"):
            row[part] = dict(zip(names, one[part].values.tolist(), strict=True))
        for part in ("merged_total_variation", "merged_top_survives"):
            row[part] = dict(zip(names, one[part].values.tolist(), strict=True))
        for part in ("top_value", "top_lower", "top_upper"):
            row[part] = float(one[part]) if part in audit else None
        rows[str(method)] = row
    return rows


def page() -> str:
    """The tables, in Markdown."""
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    return "\n\n".join(part for name, one in found.items() for part in _tables(name, one))


def _tables(name: str, found: dict[str, Any]) -> list[str]:
    hows = list(found["rewritings"])
    moved = max(found["rewritings"].values())
    parts = [f"### {_heading(name)}, {found['tokens']} tokens"]
    refused = "; ".join(f"`{how}` ({_reason(why)})" for how, why in found["refused"].items())
    parts.append(
        f"Rewritten: what the model returns moved by at most {moved:.0e} of its largest. How far the scores move (total"
        f" variation of shares; · below 0.001), and in brackets the row of the answer that moves most. Not open to it:"
        f" {refused or 'none'}."
    )
    rows = [["method", *(f"`{how}`" for how in hows), "verdict"]]
    for method, row in found["gauge"].items():
        if row["verdict"] != "undecided":
            rows.append([_name(method), *(_cell(row, how) for how in hows), f"**{row['verdict']}**"])
    parts.append(_markdown(rows))
    others: list[str] = []
    if found["null"]:
        others = list(next(iter(found["null"].values()))["total_variation"])
        parts.append(
            f"Other attention of the same output: rows of attention moved by up to {found['distance']['distance']:.2f}"
            f" in the mean, by {found['distance']['merged_distance']:.2f} with equal tokens added up. In the last"
            " column, of answers that are linear in attention, the strongest token's value and its exact bounds."
        )
        rows = [["method", *others, "verdict", "strongest token"]]
        for method, row in found["null"].items():
            cells = [_cell(row, how) for how in others]
            rows.append([_name(method), *cells, f"**{row['verdict']}**", _bounds(row)])
        parts.append(_markdown(rows))
    parts.append("Layers drawn anew from the top: rank correlation with the answer, mean over three draws.")
    rows = [["method", *(f"{count} layers" for count in found["redrawn"]["layers"]), "verdict"]]
    for method, left in found["redrawn"]["rows"].items():
        rows.append([_name(method), *(_number(one) for one in left[:-1]), f"**{left[-1]}**"])
    parts.append(_markdown(rows))
    return parts


def _bounds(row: dict[str, Any]) -> str:
    if _none(row["top_lower"]):
        return ""
    value, lower, upper = (f"{row[part]:.2g}" for part in ("top_value", "top_lower", "top_upper"))
    return f"{value} in [{lower}, {upper}]"


def _heading(name: str) -> str:
    return name if " " in name else f"`{name}`"


def _reason(why: str) -> str:
    return why.partition(": ")[2].rstrip(".")


def _name(method: str) -> str:
    plain, _, option = method.partition(", ")
    return f"[`{plain}`](methods/{plain}.md)" + (f", {option}" if option else "")


def _none(number: float | None) -> bool:
    return number is None or number != number


def _number(number: float | None) -> str:
    return "–" if number is None or number != number else f"{number:.2f}"


def _cell(row: dict[str, Any], how: str) -> str:
    score, largest = row["total_variation"][how], row["row_total_variation"][how]
    if _none(score):
        return "–"
    return "·" if max(score, largest) < 1e-3 else f"{score:.3f} ({largest:.3f})"


def _markdown(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _plain(value: Any) -> Any:
    """Without what JSON has no word for."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and value != value else value


if __name__ == "__main__":
    known = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
    if "--write" not in sys.argv:
        torch.set_num_threads(1)
        for chosen in sys.argv[1:] or SETTINGS:
            known[chosen] = measure(chosen)
    FOUND.write_text(json.dumps(_plain(known), indent=1) + "\n", encoding="utf-8")
    survives = DOCS / "what-survives.md"
    written = survives.read_text(encoding="utf-8")
    between = re.compile(r"(<!-- survival_run.py -->\n).*?(<!-- end -->)", re.DOTALL)
    assert between.search(written)
    survives.write_text(between.sub(lambda mark: f"{mark[1]}\n{page()}\n\n{mark[2]}", written), encoding="utf-8")
