"""Fixed inputs, and what the library computes on them: each case gives a flat mapping from a name to its numbers.

All calls of the library that the recorded numbers come from are in this file, so that a new shape of a call, or a new
place of a function, changes this file alone. Names of arrays say nothing of modules, and no layer is stored by its
label: only the order of layers counts.
"""

import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import xarray as xr
from click.testing import CliRunner

import identiscope
import reference_page
from families import FAMILIES
from golden.stored import Tolerance, entry_of
from identiscope.asking.attribution_intervals import attribution_intervals
from identiscope.asking.maps import mean_attention_maps
from identiscope.capture.samples import PASSAGE
from identiscope.cli import main
from identiscope.corpus.hidden_state_cache import HiddenStates, capture_hidden_states
from identiscope.corpus.readers import Text, Word
from identiscope.judge.verdict import verdict
from identiscope.methods.freedom.intervals import intervals
from identiscope.methods.freedom.null_space_basis import null_space_basis as basis_of
from identiscope.methods.freedom.realisable_alternative import realisable_alternative
from identiscope.methods.heads.attention_rank import attention_rank
from identiscope.methods.heads.head_pattern import map_pattern
from identiscope.methods.heads.head_summary import map_summary
from identiscope.methods.heads.layer_rank import layer_rank
from identiscope.methods.heads.null_share import null_share
from identiscope.methods.heads.row_rank import row_rank
from identiscope.methods.heads.structure_norm import structure_norm
from identiscope.methods.maps.canonical import canonical
from identiscope.methods.maps.effective import effective
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span
from identiscope.methods.maps.factored import FactoredAttention
from identiscope.methods.maps.null import null
from identiscope.methods.structure.shared_subspace import shared_subspace
from identiscope.methods.tokens.probes import Recipe
from identiscope.papers.bhardwaj2021.comparison import compare_attention
from identiscope.papers.bhardwaj2021.training import TrainingRecipe
from identiscope.papers.brunner2020 import attribution_figures as figures
from identiscope.papers.brunner2020.fine_tune import fine_tune
from identiscope.papers.brunner2020.probe_files import load_probes, save_probes, score_new_text
from identiscope.papers.brunner2020.reproduce import reproduce_brunner2020
from identiscope.papers.brunner2020.setup import Budget, Data
from identiscope.papers.brunner2020.tokens import studies as tokens
from identiscope.papers.brunner2020.tokens.losses import (
    identifiability_against_contribution,
    look_up_layers,
    lost_tokens,
)
from identiscope.papers.brunner2020.tokens.setup import LINEAR, NAIVE, Setup
from identiscope.papers.brunner2020.tokens.tags import token_tags
from identiscope.papers.structure_draft.reproduce import StructureBudget, reproduce_structure
from identiscope.papers.structure_draft.reversal import reversal_damage, reversal_perturbations, reversal_structure
from identiscope.papers.structure_draft.reversal_model import ReversalConfig, reversal_accuracy, train_reversal
from identiscope.reports.reporting import report_page
from identiscope.views.plots.figures import Figure
from tiny_text_model import save_tiny, words

SENTENCE = "The nurse told the doctor that she had found the keys."
Numbers = dict[str, Any]

DOUBLE = Tolerance(1e-9, 1e-12, "float64 throughout; CPUs round sums in another order")
SINGLE = Tolerance(2e-5, 2e-6, "the model computes in float32")
ROUNDED = Tolerance(2e-5, 2e-6, "the command prints six decimals")
PERTURBED = Tolerance(1e-6, 1e-9, "noise is drawn by torch, whose last bits depend on the CPU, and scaled by a search")
TRAINED = Tolerance(1e-3, 1e-3, "steps of training in float32 carry rounding on, and make it larger")


# Inputs: made once, shared by all cases.


@dataclass(frozen=True)
class Inputs:
    """What cases share. load: from the name of a built-in model to the model."""

    directory: Path
    load: Callable[[str], identiscope.Model]

    @cached_property
    def path(self) -> Path:
        """A BERT of two layers and four heads, with a tokenizer, in a directory."""
        folder = save_tiny(self.directory / "tiny")
        model = transformers.BertModel.from_pretrained(folder)
        with_portable_weights(model)
        model.save_pretrained(folder)
        return folder

    @cached_property
    def tiny(self) -> identiscope.Model:
        return identiscope.load(self.path, dtype="float64")

    @cached_property
    def texts(self) -> list[str]:
        return [words(length, seed=number) for number, length in enumerate((30, 9, 14, 30, 22, 7, 12, 18))]

    @cached_property
    def traces(self) -> list[identiscope.Trace]:
        return [identiscope.trace(self.tiny, text) for text in self.texts]

    @cached_property
    def _families(self) -> dict[str, identiscope.Trace]:
        return {}

    def family(self, name: str) -> identiscope.Trace:
        """A tiny model of a family on its input."""
        if name not in self._families:
            model = FAMILIES[name].model()
            with_portable_weights(model)
            self._families[name] = identiscope.trace(identiscope.load(model), FAMILIES[name].inputs())
        return self._families[name]

    @cached_property
    def alternative(self) -> xr.Dataset:
        return identiscope.attention_alternative(self.traces[0], 0, 1, rows=[20, 25])

    @cached_property
    def attributions(self) -> list[xr.Dataset]:
        return [attributed(trace, mode="exact") for trace in self.traces[1:6:2]]

    @cached_property
    def labelled(self) -> list[Text]:
        return [
            Text((words(6 + number % 5, seed=number),), str(number % 2), (Word(0, 0, 3, "DT"),)) for number in range(16)
        ]

    @cached_property
    def cache(self) -> HiddenStates:
        return capture_hidden_states(self.tiny, self.labelled, self.directory / "states")

    @cached_property
    def corpus(self) -> Path:
        path = self.directory / "texts.txt"
        path.write_text("\n".join(words(length, seed=length) for length in (12, 5, 9, 9)), encoding="utf-8")
        return path

    @cached_property
    def run(self) -> identiscope.Run:
        options = identiscope.RunOptions(
            methods=("attention_identifiability", "attribution", "tokens", "structure"),
            shard_size=2,
            subspace_length=11,
        )
        identiscope.run_corpus(self.tiny, self.corpus, self.directory / "run", options=options)
        return identiscope.open_run(self.directory / "run")

    @cached_property
    def passage(self) -> identiscope.Trace:
        return identiscope.trace(self.load("minilm"), PASSAGE)

    @cached_property
    def sentence(self) -> identiscope.Trace:
        return identiscope.trace(self.load("minilm"), SENTENCE)

    @cached_property
    def causal_sentence(self) -> identiscope.Trace:
        return identiscope.trace(self.load("smollm2"), SENTENCE)

    def new(self, name: str) -> Path:
        """A path at which nothing is yet."""
        taken = sum(1 for _ in self.directory.glob(f"{name}*"))
        return self.directory / f"{name}-{taken}"


def with_portable_weights(model: torch.nn.Module) -> None:
    """Weights from a generator that gives the same bits on every CPU, which torch's normal one does not."""
    generator = np.random.default_rng(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            size = 0.5 if "bias" in name or "sinks" in name else 0.2
            # The weight of a norm is one.
            if size == 0.5 or not bool((parameter == 1).all()):
                drawn = generator.uniform(-size, size, tuple(parameter.shape)).astype(np.float32)
                parameter.copy_(torch.from_numpy(drawn))


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, shape))


# What the library returns, as flat mappings.

# Labels of layers; digests, paths and settings, which are no results; numbers that are rounding errors divided.
LEFT_OUT = re.compile(
    r"layer|layers|head|version|method|model|.*digest|.*_name|run|corpus|seed|memory|options|setup|recipe|configs|"
    r"text|fitted_on|directory|title|tokenizer|published|rule|why_replay|verdict|module|name|path|device|analysis_device|versions|says|paper"
)


def of_result(result: xr.Dataset, prefix: str = "", *, without: Sequence[str] = ()) -> Numbers:
    """All variables of a result, the labels of its axes but for layers, and the numbers in its attributes."""
    found: Numbers = {}
    for name, variable in result.variables.items():
        if name in result.coords and "layer" in str(name):
            continue
        if name == "key_special":
            # A label that there was not.
            continue
        # Tokens of queries alone were called just that.
        alone = name == "query_token" and "key_token" not in result.coords
        found["token" if alone else str(name)] = variable.values
    for name, value in result.attrs.items():
        plain = isinstance(value, (bool, int, float)) or (
            isinstance(value, list) and value and all(isinstance(one, (bool, int, float)) for one in value)
        )
        if plain and not LEFT_OUT.fullmatch(name):
            found[f"about.{name}"] = value
    if "trained_on" in found:
        # Recorded when layers were counted from 1.
        found["trained_on"] = found["trained_on"] + 1
    if "gap" in found:
        # Between a singular value and one that is rounding, the gap is rounding too.
        found["gap"] = np.minimum(found["gap"], 1e3)
    for name in ("contribution", "norm"):
        if f"{name}_freedom" in found:
            # Where an estimate is exact, its error is rounding, and so are the degrees of freedom of that.
            exact = np.abs(found[f"{name}_error"]).max((1, 2)) < 1e-9 * np.abs(found[name]).max((1, 2))
            found[f"{name}_freedom"] = np.where(exact, np.nan, found[f"{name}_freedom"])
    return {prefix + name: value for name, value in found.items() if name not in without}


def of_results(results: Mapping[str, xr.Dataset]) -> Numbers:
    return {key: value for name, one in results.items() for key, value in of_result(one, f"{name}.").items()}


def without_ranks(found: Numbers) -> Numbers:
    """Ranks of a few perturbations of a trained model change with its last bits: what they are ranks of is kept."""
    ranked = re.compile(r".*perturb.*\.(agreement|correlation|difference|low|high|here|holds).*")
    return {name: value for name, value in found.items() if not ranked.fullmatch(name)}


def of_trace(trace: identiscope.Trace) -> Numbers:
    """Tokens, hidden states and logits, and of each attention call the map and what it is made from."""
    check = trace.verify()
    found: Numbers = {
        "tokens": list(trace.tokens), "kinds": list(trace.kinds), "recorded": check.recorded,
        "expected": check.expected, "verified": check.verified, "precision": check.precision,
        "masks": [site.mask for site in check.sites],
        "sizes": [[one.heads, one.key_value_heads, one.queries, one.keys, one.d_k, one.d_v] for one in check.sites],
    }  # fmt: skip
    if trace.logits is not None:
        found["logits"] = trace.logits
    for name, one in trace.streams.items():
        found[f"{name}.special"] = list(one.special)
        if one.ids is not None:
            found[f"{name}.ids"] = list(one.ids)
        for number, state in enumerate(one.hidden_states):
            found[f"{name}.state {number}"] = state
        if one.embedding_sum is not None:
            found[f"{name}.embedding_sum"] = one.embedding_sum
    for number, site in enumerate(trace.sites):
        parts = {
            "attention": site.attentions(), "value": site.value, "context": site.context,
            "projection": site.projection, "projection_bias": site.projection_bias, "value_bias": site.value_bias,
            "output": site.output, "row_sums": site.row_sums(), "allowed": site.allowed_keys(site.heads[0]),
        }  # fmt: skip
        found |= {f"site {number}.{name}": value for name, value in parts.items() if value is not None}
    return found


def of_factored(found: FactoredAttention, prefix: str) -> Numbers:
    every: dict[str, Any] = {
        "dense": found.dense(), "row": found.row(3), "cell": found.cell(3, 2), "column_mean": found.column_mean(),
        "rank": found.rank,
    }  # fmt: skip
    if float(every["dense"].abs().max()) > 1e-9:  # not rounding alone
        top = found.top(5)
        every |= {"correlation": found.correlation_with_raw(), "top": top.weight, "top_query": top.query,
                  "top_key": top.key}  # fmt: skip
    return {prefix + name: value for name, value in every.items() if value is not None}


def of_object(value: Any, prefix: str) -> Numbers:
    """Every number and tensor in whatever a method on tensors returns; attention in factored form as its map."""
    if isinstance(value, FactoredAttention):
        return {f"{prefix}.map": value.dense()}
    if is_dataclass(value):
        return {
            key: part
            for field in fields(value)
            for key, part in of_object(getattr(value, field.name), f"{prefix}.{field.name}").items()
        }
    if isinstance(value, (torch.Tensor, np.ndarray, str, bool, int, float)):
        return {prefix: value}
    return {}


def of_json(value: Any, prefix: str = "") -> Numbers:
    """The numbers and texts in JSON; a list of objects by column, a sentence as the numbers in it."""
    if isinstance(value, Mapping):
        return {
            key: part
            for name, one in value.items()
            if not LEFT_OUT.fullmatch(str(name)) or name == "verdict"
            for key, part in of_json(one, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    if isinstance(value, str):
        return {prefix: numbers_in(value)} if " " in value else {prefix: value}
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
        columns = [name for name in value[0] if all(name in one for one in value)]
        return of_json({name: [one[name] for one in value] for name in columns}, prefix)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], str) and " " in value[0]:
        return {prefix: [number for one in value for number in numbers_in(one)]}
    if isinstance(value, (list, tuple)) and any(isinstance(one, Mapping) for one in value):
        return {}
    array = np.array(value, dtype=object)
    if array.size and all(one is None or isinstance(one, (int, float)) for one in array.ravel()):
        whole = all(isinstance(one, int) for one in array.ravel())
        return {prefix: array.astype(np.int64 if whole else np.float64)}
    return {prefix: value} if array.size and all(isinstance(one, str) for one in array.ravel()) else {}


def numbers_in(sentence: str) -> list[float]:
    return [float(one) for one in re.findall(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", sentence)]


def of_figures(made: Iterable[Any]) -> Numbers:
    """What the panels of a reproduction show, and the numbers and answers of its claims."""
    found: Numbers = {}
    for figure in made:
        if isinstance(figure, Figure):
            for number, panel in enumerate(figure.panels):
                found |= of_result(panel.result, f"{figure.number}.{number}.")
            found[f"{figure.number}.holds"] = [str(claim.holds) for claim in figure.claims]
            found[f"{figure.number}.here"] = [one for claim in figure.claims for one in numbers_in(claim.here)]
    return found


def of_page(page: Any) -> Numbers:
    """The maps that a page shows, read back from it."""
    found: Numbers = {}
    for number, layer in enumerate(page.section("attention")["data"]["layers"]):
        chunk = page.chunks[f"attention.{layer['chunk']}"]
        every = [reference_page.maps(layer, chunk, place) for place in range(len(layer["heads"]))]
        for name in every[0]:
            found[f"{number}.{name}"] = np.stack([maps[name] for maps in every])
        for name in ("simplex_null_share", "merged_null_share", "simplex_correlation"):
            found[f"{number}.{name}"] = layer[name]
    return found


# Commands.


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def in_json(*arguments: object) -> Numbers:
    return of_json(json.loads(invoke(*arguments, "--json")))


def files_of(folder: Path) -> Numbers:
    """The results that a command left."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            found[path.stem] = identiscope.load_result(path)
        except identiscope.InputError:  # a model, or probes
            continue
    assert found
    return of_results(found)


# Cases.


@dataclass(frozen=True)
class Case:
    compute: Callable[[Inputs], Numbers]
    tolerance: Tolerance


CASES: dict[str, Case] = {}


def case(tolerance: Tolerance) -> Callable[[Callable[[Inputs], Numbers]], Callable[[Inputs], Numbers]]:
    def add(compute: Callable[[Inputs], Numbers]) -> Callable[[Inputs], Numbers]:
        CASES[compute.__name__] = Case(compute, tolerance)
        return compute

    return add


def numbers_of(name: str, inputs: Inputs) -> dict[str, Any]:
    """What is stored of a case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = CASES[name].compute(inputs)
    return {part: entry_of(_numpy(value)) for part, value in found.items()}


def _numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


# Families: capture, and identifiability of every kind of attention.


def _of_family(name: str) -> Callable[[Inputs], Numbers]:
    def compute(inputs: Inputs) -> Numbers:
        trace = inputs.family(name)
        found = of_trace(trace)
        chosen = dict.fromkeys((site.kind, site.query_stream) for site in trace.sites)
        for kind, stream in chosen:
            result = identiscope.attention_identifiability(trace, attention=kind, stream=stream)
            found |= of_result(result, f"{kind}, {stream}.")
        return found

    return compute


for _name, _family in FAMILIES.items():
    # DeepSeek-V3 adds up its experts in float32.
    _single = _family.precision == "float32" or _name == "DeepSeek-V3"
    CASES[f"family {_name}"] = Case(_of_family(_name), SINGLE if _single else DOUBLE)


# Capture.


@case(DOUBLE)
def trace_of_text(inputs: Inputs) -> Numbers:
    batch = identiscope.trace(inputs.tiny, inputs.texts[:3], batch_size=2)
    found = of_trace(inputs.traces[0]) | {f"batch.{number}": one.hidden_states[-1] for number, one in enumerate(batch)}
    chosen = identiscope.trace(inputs.tiny, inputs.texts[1], layers=[1], heads=[2, 0])
    rows = chosen.site(1).attention(2, rows=[3, 1])
    return found | {"chosen.attention": chosen.site(1).attentions(), "chosen.rows": rows,
                    "offsets": inputs.traces[0].main.offsets}  # fmt: skip


@case(DOUBLE)
def trace_of_arrays(inputs: Inputs) -> Numbers:
    attention = drawn(1, 2, 4, 9, 9).exp().tril()
    attention /= attention.sum(-1, keepdim=True)
    trace = identiscope.from_arrays(
        attention, drawn(2, 2, 2, 9, 3), projection=drawn(3, 2, 4, 3, 12), value_bias=drawn(4, 2, 2, 3),
        mask=torch.ones(9, 9, dtype=torch.bool).tril(),
    )  # fmt: skip
    found = of_result(identiscope.attention_identifiability(trace), "identifiability.")
    found |= of_result(identiscope.attention_identifiability(trace, value_bias=False), "without bias.")
    return found | of_result(identiscope.attention_maps(trace, 1, 3), "maps.")


@case(DOUBLE)
def replay(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    for name, trace in (("bert", inputs.traces[1]), ("t5", inputs.family("T5"))):
        given = {stream: one.embeddings * 0.9 for stream, one in trace.streams.items()}
        for stream, states in trace.replay(given).items():
            found |= {f"{name}.{stream}.{number}": state for number, state in enumerate(states)}
    trace = inputs.traces[1]
    assert trace.main.embedding_sum is not None
    for number, state in enumerate(trace.replay(trace.main.embedding_sum * 0.9, summed=True)):
        found[f"summed.{number}"] = state
    x = trace.embeddings
    moved = torch.func.jvp(trace.replay, (x,), (drawn(5, *x.shape),))[1]
    return found | {f"derivative.{number}": state for number, state in enumerate(moved)}


@case(DOUBLE)
def substitute(inputs: Inputs) -> Numbers:
    def flipped(attention: torch.Tensor) -> torch.Tensor:
        return attention.flip(-1)

    found: Numbers = {}
    outcomes = {
        "flipped": identiscope.substitute(inputs.tiny, inputs.texts[1], {(0, 2): flipped}),
        "whole": identiscope.substitute(inputs.tiny, inputs.texts[1], {(1, 0): flipped, (0, 1): flipped}, whole=True),
        "given": identiscope.substitute(inputs.tiny, inputs.texts[1], {(0, 0): torch.full((11, 11), 1 / 11)}),
        "crossed": identiscope.substitute(
            inputs.family("BART").model, FAMILIES["BART"].inputs(), {(1, 2): flipped}, attention="cross"
        ),
    }
    for name, outcome in outcomes.items():
        for stream, states in outcome.streams.items():
            found |= {f"{name}.{stream}.{number}": state for number, state in enumerate(states)}
        if outcome.logits is not None:
            found[f"{name}.logits"] = outcome.logits
    return found


@case(DOUBLE)
def stream_and_watching(inputs: Inputs) -> Numbers:
    seen: list[torch.Tensor] = []
    identiscope.stream(inputs.tiny, inputs.texts[1], lambda site: seen.append(site.attentions()), heads=[1, 3])
    found: Numbers = {f"streamed.{number}": one for number, one in enumerate(seen)}
    module = inputs.tiny.module
    changes = {(0, 1): lambda attention: attention.flip(-1)}
    for name, given in (("watched", {}), ("changed", changes)):
        with torch.no_grad(), identiscope.watching(module, changes=given) as watcher:
            output = module(torch.tensor([[2, 17, 42, 8, 63, 3]])).last_hidden_state
        found |= {f"{name}.{number}": call.weights() for number, call in enumerate(watcher.calls)}
        found |= {f"{name}.context {number}": call.context for number, call in enumerate(watcher.calls)}
        found[f"{name}.output"] = output
    return found


# Attention.


@case(DOUBLE)
def attention_identifiability(inputs: Inputs) -> Numbers:
    trace = inputs.traces[0]
    types = {"early": [place < 10 for place in range(32)], "late": [place >= 10 for place in range(32)]}
    found = of_result(identiscope.attention_identifiability(trace), "default.")
    found |= of_result(identiscope.attention_identifiability(trace, value_bias=False), "without bias.")
    return found | of_result(identiscope.attention_identifiability(trace, layers=[1], token_types=types), "types.")


def _places(inputs: Inputs) -> dict[str, tuple[identiscope.Trace, int, int, dict[str, Any]]]:
    return {
        "bert": (inputs.traces[0], 0, 1, {}),
        "causal": (inputs.family("Llama"), 1, 3, {}),
        "cross": (inputs.family("T5"), 1, 2, {"kind": "cross"}),
        "decoder": (inputs.family("BART"), 0, 1, {"kind": "decoder-self"}),
        "encoder": (inputs.family("BART"), 1, 0, {"kind": "encoder-self"}),
    }


@case(DOUBLE)
def attention_maps(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    for name, (trace, layer, head, which) in _places(inputs).items():
        found |= of_result(identiscope.attention_maps(trace, layer, head, **which), f"{name}.")
        without = identiscope.attention_maps(trace, layer, head, ("effective", "null"), value_bias=False, **which)
        found |= of_result(without, f"{name} without bias.")
    return found


# Rows at which an extreme is reached: where several do, which of them is found is the solver's choice.
CHOSEN = ("lower_row", "upper_row")


@case(DOUBLE)
def attention_intervals(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    for name, (trace, layer, head, which) in _places(inputs).items():
        for how in ({"top": 6}, {"row": 4}):
            result = identiscope.attention_intervals(trace, layer, head, **how, **which)
            found |= of_result(result, f"{name} {next(iter(how))}.", without=CHOSEN)
    cells = identiscope.attention_intervals(inputs.traces[0], 1, 2, cells=[(3, 4), (9, 1)])
    return found | of_result(cells, "cells.", without=CHOSEN)


@case(Tolerance(1e-7, 1e-9, "solvers stop within their own tolerance"))
def attention_alternatives(inputs: Inputs) -> Numbers:
    trace = inputs.traces[0]
    asked: dict[str, dict[str, Any]] = {
        "farthest": {}, "jensen_shannon": {"measure": "jensen_shannon"}, "avoid": {"how": "avoid", "token": 3},
        "favour": {"how": "favour", "token": [3, 5]}, "along": {"how": "along", "direction": drawn(6, 32)},
        "realisable": {"how": "realisable", "rows": None},
    }  # fmt: skip
    found: Numbers = {}
    for name, options in asked.items():
        result = identiscope.attention_alternative(trace, 0, 1, **{"rows": [20, 25]} | options)
        # Queries and keys are determined by the map up to a change of their coordinates.
        found |= of_result(result, f"{name}.", without=["logit_query", "logit_key"])
    causal = identiscope.attention_alternative(inputs.family("Llama"), 1, 3, rows=11)
    crossed = identiscope.attention_alternative(inputs.family("T5"), 1, 2, attention="cross", rows=[2, 4])
    return found | of_result(causal, "causal.") | of_result(crossed, "cross.")


@case(Tolerance(1e-7, 1e-9, "the alternative comes from a solver that stops within its own tolerance"))
def prove_and_equivalence(inputs: Inputs) -> Numbers:
    proof = identiscope.prove(inputs.tiny, inputs.texts[0], 0, 1, inputs.alternative)
    equal = identiscope.equivalence_under_texts(inputs.traces[0], inputs.traces[3], 0, 1, inputs.alternative)
    # A ratio to a change that is rounding alone.
    return of_result(proof, "proof.", without=["ratio"]) | of_result(equal, "equivalence.")


@case(DOUBLE)
def attention_figures(inputs: Inputs) -> Numbers:
    return of_results({
        "types": identiscope.attention_between_types(inputs.tiny, inputs.texts),
        "lengths": identiscope.correlation_by_length(inputs.tiny, inputs.texts),
        "passage": identiscope.passage_maps(inputs.tiny, inputs.texts[0], 1, 2),
    })  # fmt: skip


@case(DOUBLE)
def factored_attention(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    for name, (trace, layer, _, which) in _places(inputs).items():
        for how in ("effective", "null", "effective_simplex_span", "canonical"):
            found |= of_factored(identiscope.factored_attention(trace, layer, how, **which), f"{name} {how}.")
    without = identiscope.factored_attention(inputs.traces[0], 0, value_bias=False)
    return found | of_factored(without, "without bias.")


@case(DOUBLE)
def null_space_basis(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    for name, number, query in (("bert", 1, None), ("causal", 0, 9)):
        trace = inputs.traces[0] if name == "bert" else inputs.family("Llama")
        for simplex in (True, False):
            result = identiscope.null_space_basis(trace, number, 3, query=query, simplex=simplex, value_bias=False)
            basis = torch.from_numpy(result.null_space_basis.values)
            # The space alone is determined, not the directions that span it.
            found |= {f"{name} {simplex}.projector": basis.mT @ basis, f"{name} {simplex}.shape": basis.shape}
    return found


@case(DOUBLE)
def identifiable_self_attention(inputs: Inputs) -> Numbers:
    x, found = drawn(7, 2, 9, 16), dict[str, Any]()
    mask = torch.ones(9, 9, dtype=torch.bool).triu(1)
    made: dict[str, Any] = {
        "regular": identiscope.IdentifiableSelfAttention(16, 4),
        "small": identiscope.IdentifiableSelfAttention(16, 4, key_width=2),
        "added": identiscope.IdentifiableSelfAttention(16, 4, combine="add"),
        "taken over": torch.nn.MultiheadAttention(16, 4, batch_first=True),
    }
    for name, module in made.items():
        module.double().eval()
        with_portable_weights(module)
        if isinstance(module, torch.nn.MultiheadAttention):
            module = identiscope.IdentifiableSelfAttention.from_multihead(module)
        for masked in (None, mask):
            output, weights = module(x, attn_mask=masked, average_attn_weights=False)
            found |= {f"{name} {masked is None}.output": output, f"{name} {masked is None}.weights": weights}
        found |= {f"{name}.values": module.head_values(x), f"{name}.projection": module.head_projection()}
    return found


ON_TENSORS: dict[str, Callable[..., Any]] = {
    "attention_rank": attention_rank, "canonical": canonical, "effective": effective,
    "effective_simplex_span": effective_simplex_span, "head_pattern": map_pattern, "head_summary": map_summary,
    "intervals": intervals, "layer_rank": layer_rank, "null": null, "null_share": null_share,
    "null_space_basis": basis_of, "realisable_alternative": realisable_alternative, "row_rank": row_rank,
    "shared_subspace": shared_subspace, "structure_norm": structure_norm,
}  # fmt: skip


@case(DOUBLE)
def methods_on_tensors(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    for count, causal in ((3, False), (11, False), (11, True)):
        value, projection, logits = drawn(1, 1, count, 4), drawn(2, 2, 4, 6), drawn(3, 2, count, count)
        if causal:
            logits = logits.masked_fill(torch.ones(count, count, dtype=torch.bool).triu(1), -torch.inf)
        attention = (logits * 3).softmax(-1)
        given: dict[str, Any] = {
            "value": value, "projection": projection, "context": attention @ value, "attention": attention[0],
            "raw": lambda rows, attention=attention: attention[:, rows], "special": torch.arange(count) == 0, "head": 1,
            "query": count - 1, "key_channels": 4, "allowed": "causal" if causal else None,
        }  # fmt: skip
        for name, function in ON_TENSORS.items():
            asked = {
                key: given[key]
                for key, one in inspect.signature(function).parameters.items()
                if one.default is inspect.Parameter.empty or key == "head" or (causal and key in ("allowed", "query"))
            }
            result: Any = function(**asked)
            if name == "null_space_basis":
                result = result.mT @ result
            found |= of_object(result, f"{name} {count} {causal}")
            if name == "null_share":
                names = {"head": "correlation", "row": "row_correlation", "key_type": "key_type_correlation"}
                for old, new in names.items():
                    found[f"raw_correlation {count} {causal}.{old}"] = found.pop(f"null_share {count} {causal}.{new}")
    # Which of several bases is found is not determined, and the spread of dropped values is rounding.
    unfixed = re.compile(r".*(basis|vectors|right|left|gap|residual|span\..*)|realisable_alternative.*(query|key)")
    return {name: value for name, value in found.items() if not unfixed.fullmatch(name)}


# Structure.


@case(DOUBLE)
def structure(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    same = [inputs.traces[0], inputs.traces[3]]
    for layout in ("absolute", "relative", "roles", "aligned"):
        given = same if layout == "absolute" else inputs.traces
        result = identiscope.extract_structure(given, layout=layout)
        found |= of_result(result, f"{layout}.", without=["reason"])
        weights = identiscope.structure_weights(result, inputs.traces[0], 0, 1, epsilon=0.01)
        found[f"{layout}.weights"] = weights
    chosen = identiscope.corpus_structure(inputs.tiny, inputs.texts, clusters=3, layers=[1], penalty=0.2)
    every = identiscope.corpus_structure(inputs.tiny, inputs.texts, heads=[0, 2], threshold=0.1, representatives=False)
    causal = identiscope.extract_structure([inputs.family("Llama")])
    for name, result in (("chosen", chosen), ("every", every), ("causal", causal)):
        found |= of_result(result, f"{name}.", without=["reason"])
    return found


@case(DOUBLE)
def shared_subspaces(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    subspaces = identiscope.shared_subspaces(inputs.tiny, inputs.texts, length=9, when_longer="first_keys")
    exact = identiscope.shared_subspaces(inputs.tiny, inputs.texts, layers=[1], heads=[0, 3])
    found |= of_result(subspaces.summary(), "first keys.") | of_result(exact.summary(), "exact.")
    found |= {f"projector {layer}": subspaces.of(layer, 9).mean_projector for layer in (0, 1)}
    found |= of_result(identiscope.structural_maps(inputs.traces[5], 0, 1, subspaces), "maps.")
    return found | of_result(identiscope.structural_maps(inputs.traces[5], 0, 1, subspaces, cut=0.5), "cut.")


@case(PERTURBED)
def perturbation_effects(inputs: Inputs) -> Numbers:
    plain = identiscope.perturbation_effects(inputs.tiny, inputs.texts[1:3], 0, 1, sets=3, resamples=20)
    given = identiscope.extract_structure(inputs.traces[3:])
    other = identiscope.perturbation_effects(
        inputs.tiny, inputs.texts[5:6], 1, 2, structure=given, sets=2, resamples=20, seed=3
    )
    return of_result(plain, "plain.") | of_result(other, "given.")


# Attribution.


def attributed(trace: identiscope.Trace, **options: Any) -> xr.Dataset:
    """Without a label that results did not have when the numbers were recorded; it says nothing new."""
    return identiscope.hidden_token_attribution(trace, **options).drop_vars("input_special")


@case(DOUBLE)
def attribution_exact(inputs: Inputs) -> Numbers:
    asked: dict[str, dict[str, Any]] = {
        "frobenius": {}, "spectral": {"norm": "spectral"}, "ones": {"norm": "ones"},
        "sum": {"input": "embedding_sum"}, "slow": {"fast": False}, "last": {"layers": [1]},
    }  # fmt: skip
    found: Numbers = {}
    for name, options in asked.items():
        found |= of_result(attributed(inputs.traces[1], **options), f"{name}.")
    for family in ("Llama", "T5"):
        found |= of_result(attributed(inputs.family(family)), f"{family}.")
    result = attributed(inputs.family("BART"), stream="encoder")
    return found | of_result(result, "encoder.")


@case(DOUBLE)
def attribution_estimate(inputs: Inputs) -> Numbers:
    trace = inputs.traces[1]
    first = attributed(trace, mode="estimate", probes=4)
    more = attributed(trace, mode="estimate", probes=8, resume=first)
    close = attributed(trace, mode="estimate", tolerance=0.2, seed=1)
    found = of_result(first, "first.") | of_result(more, "more.") | of_result(close, "tolerance.")
    return found | of_result(attribution_intervals(first), "intervals.")


@case(DOUBLE)
def attribution_figures(inputs: Inputs) -> Numbers:
    given, trace = inputs.attributions, inputs.traces[1]
    tags = [["NN", *["DT"] * (one.sizes["output"] - 1)] for one in given]
    first = str(given[0]["output_token"].values[0])
    found = of_results({
        "self": figures.self_contributions(given),
        "self without special": figures.self_contributions(given, special=False),
        "distance": figures.contributions_by_distance(given),
        "offset": figures.contributions_by_offset(given),
        "offset of others": figures.contributions_by_offset(given, own=False),
        "token": figures.contributions_to_token(given, first),
        "word": figures.contributions_of_word(given[0], 2),
        "tag": figures.contributions_by_tag(given, tags),
        "attention": figures.comparison_with_attention(given[0], mean_attention_maps(trace, [0, 1])),
    })  # fmt: skip
    return found | {"tags": [str(one) for one in token_tags(trace, [[(0, 3, "DT"), (3, 6, "NN")]])]}


def _by_place(claims: Mapping[str, Any]) -> dict[str, Any]:
    """What claims say by layer as it was recorded, when layers were counted from 1."""
    return {
        name: {
            word: {place + 1: number for place, number in enumerate(said.values())} if isinstance(said, dict) else said
            for word, said in claim.items()
        }
        for name, claim in claims.items()
    }


# Tokens.

SETUP = Setup(folds=2, resamples=20)


@case(DOUBLE)
def token_experiments(inputs: Inputs) -> Numbers:
    cache = inputs.cache
    rates, fitted = tokens.same_layer(cache, setup=SETUP, probes=(*NAIVE, *LINEAR))
    looked_up = look_up_layers(cache, None, setup=SETUP)
    own = drawn(8, cache.layers, int(cache.lengths.sum())).abs()
    probes, about = load_probes(save_probes(fitted, rates, inputs.new("probes")))
    found = of_results({
        "same layer": rates,
        "across layers": tokens.across_layers(cache, fitted, setup=SETUP),
        "previous layer": tokens.previous_layer(cache, setup=SETUP),
        "checkpoints": tokens.compare_checkpoints({"before": cache, "after": cache}, setup=SETUP),
        "neighbours": tokens.neighbours(cache, setup=SETUP, offsets=(-1, 1)),
        "fractions": tokens.data_fractions(cache, 0, setup=SETUP, probe=("linear", "l2")),
        "losses": lost_tokens(cache, looked_up),
        "contribution": identifiability_against_contribution(cache, looked_up, own, bins=3),
        "new text": score_new_text(cache, probes, about, resamples=20),
    })  # fmt: skip
    for number, state in enumerate([cache.embeddings, *cache.states]):
        found[f"state {number}"] = state
    return found | {"embedding_sum": cache.embedding_sum, "tokens": cache.tokens}


@case(TRAINED)
def token_probes_trained(inputs: Inputs) -> Numbers:
    recipe = Recipe(learning_rates=(1e-2,), batch_size=32, patience=2, maximum_epochs=4, hidden_width=8)
    setup = Setup(folds=1, resamples=20, solver="adam", inputs="sum", recipe=recipe)
    # Trained in float32, which is the precision of the states that it asks for.
    cache = capture_hidden_states(identiscope.load(inputs.path), inputs.labelled, inputs.new("states"))
    rates, fitted = tokens.same_layer(cache, setup=setup, probes=(("linear", "l2"), ("mlp", "cosine")))
    found = of_result(rates)
    for name, probes in fitted.items():
        assert probes is not None
        weights = probes.probe(0, 0).weights
        found |= {f"{name}.{part}": tensor for part, tensor in weights.items()}
    return found


# Runs over a corpus.


@case(DOUBLE)
def corpus_run(inputs: Inputs) -> Numbers:
    run, found = inputs.run, dict[str, Any]()
    for name in FORMER_TABLES:
        found |= of_result(run.to_xarray(name), f"{name}.") | of_result(run.means(name), f"{name} means.")
    found |= {f"projector {number}": one.mean_projector for number, one in enumerate(run.subspaces().values())}
    found |= by_former_name(of_json(run.summary, "summary"))
    lengths = run.to_pandas("texts")["tokens"].to_numpy()
    return found | {"tokens": lengths, "queried": len(run.query("correlation < 0.5"))}


# Pages.


FORMER_TABLES = ("attention", "attribution", "tokens", "structure")


def by_former_name(found: Numbers) -> Numbers:
    """Tables were called otherwise when the numbers were recorded."""
    now = ("attention_identifiability", "hidden_token_attribution", "token_identifiability", "head_pattern")
    names = dict(zip(now, FORMER_TABLES, strict=True))
    return {".".join(names.get(part, part) for part in key.split(".")): value for key, value in found.items()}


@case(Tolerance(1e-9, 1e-3, "a page stores rounded numbers, whose last step may go either way"))
def pages(inputs: Inputs) -> Numbers:
    found: Numbers = {}
    for name, trace in (("bert", inputs.traces[0]), ("causal", inputs.family("Llama"))):
        page = report_page(trace, canonical=[(0, 1)], with_verdict=name == "bert")
        found |= {f"{name}.{part}": value for part, value in of_page(page).items()}
    written = identiscope.report(inputs.traces[1], path=inputs.new("page").with_suffix(".html"), with_verdict=False)
    assert written.stat().st_size > 10_000
    return found


# Training.


@case(TRAINED)
def reversal(inputs: Inputs) -> Numbers:
    model = train_reversal(ReversalConfig(length=5, vocabulary=5, width=16), steps=20)
    found = of_results({
        "structure": reversal_structure(model, samples=4),
        "damage": reversal_damage(model, samples=4, texts=2, shares=(0.5, 1.0)),
        "perturbations": reversal_perturbations(model, samples=4, texts=2, sets=2),
    })  # fmt: skip
    return without_ranks(found) | of_object(reversal_accuracy(model, samples=50, seed=1), "accuracy")


@case(TRAINED)
def identifiable_comparison(inputs: Inputs) -> Numbers:
    labelled = [(words(5, seed=number), str(number % 2)) for number in range(24)]
    return of_result(compare_attention(labelled, seeds=(0, 1), recipe=TrainingRecipe(epochs=1), per_length=1))


@case(TRAINED)
def fine_tuned(inputs: Inputs) -> Numbers:
    done = fine_tune(inputs.tiny, inputs.labelled, inputs.new("tuned"), epochs=2, learning_rate=1e-3, batch_size=4)
    tuned = identiscope.trace(identiscope.load(done.directory), inputs.texts[1])
    return {"losses": done.losses, "accuracy": done.accuracy, "held_out": done.held_out,
            "labels": list(done.labels), "state": tuned.hidden_states[-1]}  # fmt: skip


@case(TRAINED)
def reproduced_paper(inputs: Inputs) -> Numbers:
    pairs = [Text((words(6, seed=number), words(7, seed=number + 50)), str(number % 2)) for number in range(10)]
    data = Data(
        mrpc=pairs, wiki=[Text((text,)) for text in inputs.texts[:3]], pos=inputs.labelled[:2], names={"MRPC": "pairs"}
    )
    budget = Budget(wiki=3, pairs=10, attributed=2, probes=2, folds=1, mlp=False, offsets=(-1, 1), epochs=1)
    return of_figures(reproduce_brunner2020(inputs.tiny, data, inputs.new("work"), budget=budget))


@case(TRAINED)
def reproduced_draft(inputs: Inputs) -> Numbers:
    labelled = [(words(5, seed=number), str(number % 2)) for number in range(24)]
    budget = StructureBudget(steps=20, texts=2, sets=2, perturbed=2, seeds=1, epochs=1,
                             config=ReversalConfig(length=5, vocabulary=5, width=16))  # fmt: skip
    made = reproduce_structure(inputs.tiny, inputs.texts, labelled, head=(1, 2), budget=budget)
    return without_ranks(of_figures(made))


# The built-in models.


@case(SINGLE)
def minilm_passage(inputs: Inputs) -> Numbers:
    trace = inputs.passage
    result = identiscope.attention_identifiability(trace)
    found = of_result(result, "identifiability.") | of_result(identiscope.attention_maps(trace, 3, 7), "maps.")
    found |= {f"state {number}": state for number, state in enumerate(trace.hidden_states)}
    intervals = identiscope.attention_intervals(trace, 3, 7, top=3)
    return found | of_result(intervals, "intervals.", without=CHOSEN)


@case(SINGLE)
def minilm_sentence(inputs: Inputs) -> Numbers:
    trace = inputs.sentence
    found = of_trace(trace) | of_result(identiscope.attention_identifiability(trace), "identifiability.")
    found |= of_result(identiscope.attention_maps(trace, 2, 5), "maps.")
    estimate = attributed(trace, mode="estimate", probes=4)
    return found | of_result(estimate, "attribution.")


@case(SINGLE)
def minilm_verdict(inputs: Inputs) -> Numbers:
    trace = inputs.passage
    said = verdict(trace, identiscope.attention_identifiability(trace))
    plain = {"heads": said.heads, "free_heads": said.free_heads, "median_null_share": said.median_null_share,
             "median_reach": said.median_reach, "drawn_from": said.drawn_from}  # fmt: skip
    return plain | {"sentences": [number for one in said.sentences for number in numbers_in(one)]}


@case(SINGLE)
def smollm2_sentence(inputs: Inputs) -> Numbers:
    trace = inputs.causal_sentence
    found = of_result(identiscope.attention_identifiability(trace), "identifiability.")
    return found | of_result(identiscope.attention_maps(trace, 12, 4), "maps.")


# Commands.


@case(DOUBLE)
def command_check(inputs: Inputs) -> Numbers:
    return in_json("check", inputs.path, "--text", inputs.texts[1], "--dtype", "float64")


@case(DOUBLE)
def command_trace(inputs: Inputs) -> Numbers:
    return in_json("trace", inputs.path, inputs.texts[1], "--dtype", "float64")


@case(DOUBLE)
def command_attention(inputs: Inputs) -> Numbers:
    given = ("attention", inputs.path, inputs.texts[0], "--dtype", "float64")
    found = {f"heads.{name}": value for name, value in in_json(*given).items()}
    head = in_json(*given, "--layer", 0, "--head", 1, "--top", 4, "--method", "effective")
    row = in_json(*given, "--layer", 1, "--head", 2, "--row", 3, "--without-value-bias")
    found |= {f"head.{name}": value for name, value in head.items()}
    found |= {f"row.{name}": value for name, value in row.items()}
    # The attention of a model that is meant was called its kind.
    return {name.replace(".attention", ".kind"): value for name, value in found.items()}


@case(ROUNDED)
def command_attribution(inputs: Inputs) -> Numbers:
    given = ("attribution", inputs.path, inputs.texts[1], "--dtype", "float64")
    path = inputs.new("saved")
    asked = {"exact": ("--exact", "--compare"), "estimate": ("--probes", 4, "--out", path)}
    # All but what is said of where the numbers come from, which became more.
    new = re.compile(r"device|analysis_device|precision|versions\..*|kind|says|paper")
    found = {
        f"{name}.{part}": value
        for name, options in asked.items()
        for part, value in in_json(*given, *options).items()
        if not new.fullmatch(part)
    }
    return found | of_result(identiscope.load_result(path).drop_vars("input_special"), "saved.")


def _labelled_file(inputs: Inputs) -> Path:
    path = inputs.directory / "labelled.tsv"
    rows = [f"{text.label}\t{text.parts[0]}" for text in inputs.labelled]
    path.write_text("\n".join(["label\tsentence", *rows]), encoding="utf-8")
    return path


@case(DOUBLE)
def command_tokens(inputs: Inputs) -> Numbers:
    out = inputs.new("tokens")
    chosen = [f"--experiment={name}" for name in ("same-layer", "across-layers", "losses", "neighbours")]
    invoke("tokens", inputs.path, _labelled_file(inputs), "--out", out, "--folds", 2, "--dtype", "float64", *chosen)
    return files_of(out)


@case(TRAINED)
def command_fine_tune(inputs: Inputs) -> Numbers:
    out = inputs.new("tuned")
    said = invoke("fine-tune", inputs.path, _labelled_file(inputs), "--out", out, "--epochs", 1, "--batch-size", 4)
    return {"said": numbers_in(said.replace(str(out), ""))}


@case(PERTURBED)
def command_structure(inputs: Inputs) -> Numbers:
    out = inputs.new("structure")
    invoke("structure", inputs.path, inputs.corpus, "--out", out, "--length", 7, "--first-keys", "--perturb", "0.2",
           "--sets", 2, "--clusters", 2, "--dtype", "float64")  # fmt: skip
    return {name: value for name, value in files_of(out).items() if not name.endswith(".reason")}


@case(DOUBLE)
def command_run(inputs: Inputs) -> Numbers:
    out = inputs.new("run")
    methods = "attention_identifiability,tokens"
    said = invoke("run", inputs.path, inputs.corpus, "-o", out, "--methods", methods, "--dtype", "float64", "--json")
    found = by_former_name(of_json(json.loads(said.splitlines()[-1]), "done"))
    run = identiscope.open_run(out)
    return found | of_result(run.to_xarray("attention"), "attention.") | of_result(run.to_xarray("tokens"), "tokens.")


@case(TRAINED)
def command_reverse_demo(inputs: Inputs) -> Numbers:
    out = inputs.new("reverse")
    said = invoke("reverse-demo", "--out", out, "--length=5", "--vocabulary=5", "--width=16", "--steps=20",
                  "--batch-size=32", "--samples=4", "--texts=2", "--sets=2")  # fmt: skip
    return without_ranks(files_of(out)) | {"accuracy": numbers_in(said.splitlines()[0])}


@case(TRAINED)
def command_train_identifiable(inputs: Inputs) -> Numbers:
    out = inputs.new("identifiable")
    invoke("train-identifiable", _labelled_file(inputs), "--out", out, "--epochs=1", "--width=16", "--heads=4",
           "--seeds=2", "--per-length=1")  # fmt: skip
    return files_of(out)
