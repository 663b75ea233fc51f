"""Does non-identifiability predict unfaithfulness? Over heads and texts, the numbers of does-it-matter.md.

    OMP_NUM_THREADS=1 python docs/nonidentifiability.py              # all; writes docs/nonidentifiability.json
    OMP_NUM_THREADS=1 python docs/nonidentifiability.py minilm       # one of them; what is done is kept
    python docs/nonidentifiability.py --write                        # the tables of the page, from that file

Of every head: how free its attention is, in several ways, and how faithful maps are to what is asked of them. Texts are
the unit: numbers are found within each, and intervals draw passages, or planted models, anew.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import identiscope
from identiscope.capture.redrawing import blocks_of, redraw
from identiscope.judge.truths.inputs import COMPILED, TRAINED, planted_inputs
from identiscope.judge.truths.planted import precision
from identiscope.methods.trace_fields import runs_of
from identiscope.stats.rank_correlation import spearman

HERE = Path(__file__).parent
FILE, PAGE = HERE / "nonidentifiability.json", HERE / "does-it-matter.md"
PREDICTORS = {
    "simplex_null_share": "null share",
    "merged_null_share": "null share, equal tokens merged",
    "exact_width": "interval width",
    "merged_exact_width": "interval width, equal tokens merged",
    "width": "ε-freedom (ε = 0.05)",
    "merged_width": "ε-freedom, equal tokens merged",
}
MAPS = ("effective_simplex_span", "canonical")
YARDSTICKS = {"effect": "what a key does in the head", "input": "what the token does as an input", "truth": "the truth"}
#: Tokens of a piece, pieces of a passage, and layers. A head must have fewer channels than there are tokens to be free.
MODELS: dict[str, tuple[int, int, list[int] | None]] = {
    "minilm": (64, 1, None),
    "smollm2": (96, 1, [0, 10, 20, 29]),
    "minilm, layers drawn anew": (64, 1, None),
}
#: Rows of each head whose strongest weight is bounded, spread over the text; inputs of each planted model.
ROWS, INPUTS = 6, 3
Numbers = dict[str, Any]


def of_heads(
    trace: identiscope.Trace, outcome: Any, layers: list[int] | None, scores: Callable[[Any], dict[str, np.ndarray]],
    measure: Callable[[np.ndarray, np.ndarray], float],
) -> Numbers:  # fmt: skip
    """Of every head, [layer, head]: how free it is, and for every yardstick how faithful its maps are.

    scores: of the runs of the outcome the yardsticks [key], or [layer, head, key]; measure: a map's keys against one.
    """
    chosen = {"layers": layers} if layers else {}
    shares = identiscope.attention_identifiability(trace, layer_level=False, **chosen)
    heads: Numbers = {name: shares[name].values for name in PREDICTORS if name in shares}
    widths = identiscope.epsilon_freedom(trace, epsilon=0.05, most_rows=ROWS, **chosen)
    heads |= {name: widths[name].values for name in PREDICTORS if name in widths}
    places = layers or list(range(len(trace.sites)))
    sites = [trace.sites[layer] for layer in places]
    maps = {"raw": np.stack([site.attentions().double().numpy() for site in sites])}
    maps |= {name: getattr(identiscope, name)(trace, **chosen)[name].values for name in MAPS}
    runs = runs_of(trace, outcome)
    yardsticks = scores(runs)
    slopes = np.stack([runs.attention_gradient(site.index).double().numpy() for site in sites])
    yardsticks["effect"] = np.abs((maps["raw"] * slopes).sum(2))
    for name, values in maps.items():
        keys = np.abs(values.sum(2))
        for yardstick, wanted in yardsticks.items():
            whole = np.broadcast_to(wanted, keys.shape)
            rule = spearman_or_none if yardstick != "truth" else measure
            heads[f"{name} {yardstick}"] = np.array(
                [[rule(keys[at], whole[at]) for at in np.ndindex(keys.shape[:2])]]
            ).reshape(keys.shape[:2])
    return heads


def spearman_or_none(keys: np.ndarray, wanted: np.ndarray) -> float:
    """Rank correlation over keys; none where either does not vary."""
    return spearman(keys, wanted, floor=1e-12)


def statistics(heads: Numbers) -> Numbers:
    """What one text says: means over heads, and correlations over heads of freedom with faithfulness."""
    said: Numbers = {name: _mean(heads[name]) for name in PREDICTORS}
    for yardstick in YARDSTICKS:
        if (raw := heads.get(f"raw {yardstick}")) is None:
            continue
        said[f"raw {yardstick}"] = _mean(raw)
        for name in MAPS:
            said[f"{name} {yardstick}"] = _mean(heads[f"{name} {yardstick}"] - raw)
        for name in PREDICTORS:
            said[f"{name} | {yardstick}"] = _correlation(heads[name], raw)
            within = [_correlation(*pair) for pair in zip(heads[name], raw, strict=True)]
            said[f"{name} | {yardstick} within layers"] = _mean(np.array(within))
            gain = heads[f"{MAPS[0]} {yardstick}"] - raw
            said[f"{name} | gain {yardstick}"] = _correlation(heads[name], gain)
    return said


def texts_of(name: str) -> Iterator[tuple[str, str, Numbers]]:
    """The key of a text, the passage that it is of, and what it says."""
    model = _model(name)
    tokens, pieces, layers = MODELS[name]
    passages = [text.parts[0] for text in identiscope.read_corpus("passages")]
    known = _read().get(name, {})
    for number, passage in enumerate(passages):
        ids = model.tokenizer(passage)["input_ids"]
        special = name.startswith("minilm")
        inner, room = (ids[1:-1], tokens - 2) if special else (ids, tokens)
        for piece in range(pieces):
            part = inner[piece * room : (piece + 1) * room]
            if (key := f"{number}.{piece}") in known or len(part) < room:
                continue
            trace = identiscope.trace(model, [ids[0], *part, ids[-1]] if special else part)
            outcome = None if trace.logits is not None else f"similarity:{passages[(number + 1) % len(passages)]}"

            def inputs(runs: Any) -> dict[str, np.ndarray]:
                return {"input": _left_out(runs)}

            heads = of_heads(trace, outcome, layers, inputs, spearman_or_none)
            yield key, str(number), statistics(heads)


def _model(name: str) -> Any:
    """A built-in model, or one whose layers have learnt nothing: what is found there is no trace of training."""
    plain, _, anew = name.partition(", ")
    model = identiscope.load(plain)
    return redraw(model, blocks_of(identiscope.trace(model, "A boat came.")), 0) if anew else model


def _left_out(runs: Any) -> np.ndarray:
    """|what the outcome loses| with the text's mean embedding in each place, [key]: run, one token at a time."""
    rows, _ = runs.baseline("mean")
    own = runs.embeddings[0]
    changed = own.expand(len(own), -1, -1).clone()
    places = torch.arange(len(own))
    changed[places, places] = rows[places]
    lost = runs.values(own[None]).double() - runs.values(changed).double()
    return np.abs(lost.cpu().numpy())


def planted() -> Iterator[tuple[str, str, Numbers]]:
    """The same of planted models, where the tokens that are used are known."""
    known = _read().get("planted", {})
    for number, one in enumerate(planted_inputs({**COMPILED, **TRAINED}, INPUTS)):
        key = f"{one.task.name} {one.version or 'plain'} {number}"
        if key in known:
            continue
        players = one.players

        def truth(runs: Any, wanted: np.ndarray = one.truth) -> dict[str, np.ndarray]:
            return {"truth": wanted.astype(float)}

        def found(keys: np.ndarray, wanted: np.ndarray, players: np.ndarray = players) -> float:
            # What chance has is taken off, so that inputs with many true tokens compare with others.
            true = wanted[players] > 0
            return precision(keys[players], true) - float(true.mean())

        heads = of_heads(one.trace, one.outcome, None, truth, found)
        # Inputs of one model share its mechanism, and go together.
        yield key, one.task.name, statistics(heads)


def _read() -> Numbers:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    known = np.isfinite(one) & np.isfinite(other)
    return spearman(one[known], other[known], floor=1e-9) if known.sum() > 2 else float("nan")


def interval(texts: list[Numbers], name: str, draws: int = 5000) -> tuple[float, float, float] | None:
    """The mean over texts, and 95 % bounds that draw passages anew, all texts of one together."""
    rows = [(one["passage"], one[name]) for one in texts if one.get(name) is not None]
    groups: dict[str, list[float]] = {}
    for passage, value in rows:
        groups.setdefault(passage, []).append(value)
    if len(groups) < 2:
        return None
    sums, counts = (np.array([rule(values) for values in groups.values()], float) for rule in (sum, len))
    drawn = np.random.default_rng(0).integers(len(groups), size=(draws, len(groups)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), [0.025, 0.975])
    return float(sums.sum() / counts.sum()), float(low), float(high)


def _cell(texts: list[Numbers], name: str) -> str:
    found = interval(texts, name)
    if found is None:
        return "–"
    mean, low, high = (f"{value:.2f}".replace("-", "−") for value in found)
    return f"{mean} [{low}, {high}]"


def page() -> str:
    """The tables, in Markdown."""
    known = _read()
    parts = []
    for name in (one for one in (*MODELS, "planted") if one in known):
        by_key = known[name]
        for version in ("plain", "distracted_") if name == "planted" else ("",):
            misled = version == "distracted_"
            texts = [one for key, one in by_key.items() if not version or (" distracted_" in key) == misled]
            parts += _tables(name, version, texts)
    return "\n\n".join(parts)


def _tables(name: str, version: str, texts: list[Numbers]) -> list[str]:
    words = {"plain": "planted models", "distracted_": "planted models whose distractors attract attention"}
    passages = len({one["passage"] for one in texts})
    drawn = f"{passages} {'models' if version else 'passages'}"
    plain, _, anew = name.partition(", ")
    title = words.get(version, f"`{plain}`" + (f" with its {anew}" if anew else ""))
    parts = [f"### {title}: {len(texts)} texts of {drawn}"]
    for yardstick, says in YARDSTICKS.items():
        # Silent heads of planted models have no effect that keys could be ordered by: there the truth is asked.
        if not any(one.get(f"raw {yardstick}") is not None for one in texts) or (version and yardstick != "truth"):
            continue
        rows = [
            [
                "",
                "mean",
                "with the faithfulness of raw maps",
                "within layers",
                "with what `effective_simplex_span` gains",
            ]
        ]
        for predictor, title in PREDICTORS.items():
            names = (predictor, f"{predictor} | {yardstick}", f"{predictor} | {yardstick} within layers")
            rows.append([title, *(_cell(texts, one) for one in (*names, f"{predictor} | gain {yardstick}"))])
        gains = "; ".join(f"`{one}` {_cell(texts, f'{one} {yardstick}')} beyond that" for one in MAPS)
        parts.append(f"**Against {says}.** Raw maps have {_cell(texts, f'raw {yardstick}')}; {gains}.")
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        parts.append("\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]))
    return parts


def main() -> None:
    """Measure what is not done yet, or write the page."""
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    if "--write" not in sys.argv:
        for name in sys.argv[1:] or [*MODELS, "planted"]:
            for key, passage, said in planted() if name == "planted" else texts_of(name):
                known = _read()
                rounded = {part: None if np.isnan(value) else round(value, 4) for part, value in said.items()}
                known.setdefault(name, {})[key] = {"passage": passage, **rounded}
                FILE.write_text(json.dumps(known, indent=0) + "\n", encoding="utf-8")
                print(name, key, file=sys.stderr, flush=True)
    between = re.compile(r"(<!-- nonidentifiability.py -->\n).*?(<!-- end -->)", re.DOTALL)
    written = PAGE.read_text(encoding="utf-8")
    assert between.search(written)
    PAGE.write_text(between.sub(lambda mark: f"{mark[1]}\n{page()}\n\n{mark[2]}", written), encoding="utf-8")


if __name__ == "__main__":
    main()
