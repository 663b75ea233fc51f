"""Models that are not on the CPU: everything works where the tensors are, and gives the CPU's numbers."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map_only

import contract
import identiscope
import second_device
from families import FAMILIES, Family
from identiscope.capture import placement
from identiscope.errors import CaptureError, InputError, ModelError
from identiscope.linalg.devices import has_float64, wide, working_device
from identiscope.methods.registry import METHODS
from identiscope.methods.signatures import factored_maps
from second_device import ONE, ZERO
from tiny_text_model import save_tiny, words

pytestmark = pytest.mark.long

# More keys than the eight channels of a head, so that there is something that is not identified.
IDS = [5, 17, 42, 8, 63, 23, 31, 77, 12, 50, 9, 88, 33, 64, 71, 18]
OTHER = [7, 29, 55, 90, 14, 61, 38, 82, 27, 46, 19, 74, 93, 11, 52, 66]


@pytest.fixture(autouse=True)
def in_use() -> Iterator[None]:
    # Torch has a fused attention for the CPU and none for a device it does not know: let both compute the same.
    with second_device.in_use(), sdpa_kernel(SDPBackend.MATH):
        yield


def numbers(value: Any) -> list[Any]:
    """All that a result says, tensors of any device as arrays."""
    if isinstance(value, xr.Dataset):
        return [(str(name), variable.values) for name, variable in sorted(value.variables.items())]
    # NumPy knows no bfloat16, and float32 knows all its numbers.
    leaves = [leaf.float() if getattr(leaf, "dtype", None) == torch.bfloat16 else leaf for leaf in tree_leaves(value)]
    return [leaf.detach().cpu().numpy() if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def assert_same(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """The same numbers, to the last bit unless a tolerance is given."""
    left, right = numbers(found), numbers(expected)
    assert len(left) == len(right) > 0
    for one, other in zip(left, right, strict=True):
        if isinstance(one, tuple):
            assert one[0] == other[0]
            one, other = one[1], other[1]
        if getattr(one, "dtype", None) is not None and one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(one, other)


#: Attention is summed by loops compiled for the CPU, and cell by cell on other devices: the same but for rounding.
SUMMED = 1e-9
TOLERANCES = {
    "attention_identifiability": SUMMED, "without the bias": SUMMED,
    # Runs take most rows from the context of the pass, of which these are float32.
    "attention": 1e-5,
    # Equal tokens are added up in a compiled loop on the CPU, and by products elsewhere.
    "arrays": SUMMED,
}  # fmt: skip


def moved(value: Any, device: Any) -> Any:
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), value)


def traced(model: Any, ids: list[int] = IDS) -> identiscope.Trace:
    return identiscope.trace(model, ids)


@dataclass(frozen=True, eq=False)
class Asked:
    """A model, and what many questions about it share."""

    model: Any

    @cached_property
    def trace(self) -> identiscope.Trace:
        return traced(self.model)

    @cached_property
    def other(self) -> identiscope.Trace:
        return traced(self.model, OTHER)

    @cached_property
    def alternative(self) -> xr.Dataset:
        return identiscope.attention_alternative(self.trace, 1, 2, rows=[15])

    @cached_property
    def structure(self) -> xr.Dataset:
        return identiscope.extract_structure([self.trace, self.other])

    @cached_property
    def subspaces(self) -> identiscope.SharedSubspaces:
        return identiscope.shared_subspaces(self.model, [IDS, OTHER])


def attribution(asked: Asked, **options: Any) -> xr.Dataset:
    return identiscope.hidden_token_attribution(asked.trace, **options)


def on(device: torch.device | str, name: str) -> Any:
    return FAMILIES[name].model().to(device)


@cache
def here(name: str, dtype: torch.dtype = torch.float64) -> Asked:
    return Asked(FAMILIES[name].model().to(dtype))


@cache
def there(name: str) -> Asked:
    return Asked(on(ONE, name))


@cache
def on_the_cpu(name: str, question: str, dtype: torch.dtype = torch.float64) -> Any:
    return QUESTIONS[question](here(name, dtype))


FACTORED = [one.name for one in factored_maps()]

# What is asked of a model and a text. Each gives results, or tensors where the model is.
QUESTIONS: dict[str, Callable[[Asked], Any]] = {
    "trace": lambda asked: [
        (site.query, site.key, site.value, site.context, site.attentions(), site.output, site.projection)
        for site in asked.trace.sites
    ],
    "stream": lambda asked: _streamed(asked.model),
    "hidden states": lambda asked: (asked.trace.hidden_states, asked.trace.logits),
    "verify": lambda asked: [(site.error, site.verified, site.mask) for site in asked.trace.verify().sites],
    "attention_identifiability": lambda asked: identiscope.attention_identifiability(asked.trace),
    "without the bias": lambda asked: identiscope.attention_identifiability(asked.trace, value_bias=False),
    "attention_maps": lambda asked: identiscope.attention_maps(asked.trace, 1, 2),
    "factored_attention": lambda asked: [
        (found.dense(), found.row(9), found.cell(9, 4), found.column_mean(), found.top(3).key)
        for found in (identiscope.factored_attention(asked.trace, 1, method) for method in FACTORED)
    ],
    "attention_intervals": lambda asked: identiscope.attention_intervals(asked.trace, 1, 2, row=13),
    "strongest intervals": lambda asked: identiscope.attention_intervals(asked.trace, 1, 2, top=2),
    "farthest": lambda asked: identiscope.attention_alternative(asked.trace, 1, 2, rows=[14, 15]),
    "avoid": lambda asked: identiscope.attention_alternative(asked.trace, 1, 2, how="avoid", token=14, rows=[15]),
    "favour": lambda asked: identiscope.attention_alternative(asked.trace, 1, 2, how="favour", token=14, rows=[15]),
    "realisable": lambda asked: identiscope.attention_alternative(asked.trace, 1, 2, how="realisable"),
    "prove": lambda asked: identiscope.prove(asked.model, IDS, 1, 2, asked.alternative),
    "prove with a tensor": lambda asked: identiscope.prove(
        asked.model, IDS, 1, 2, asked.trace.site(1).attention(3), check=False
    ),
    "substitute": lambda asked: (
        identiscope.substitute(asked.model, IDS, {(0, 1): lambda attention: attention.flip(0)}).streams,
        identiscope.substitute(asked.model, IDS, {(0, 1): torch.eye(len(IDS))}).logits,
    ),
    "replay": lambda asked: [asked.trace.replay(asked.trace.embeddings * scale) for scale in (1.0, 0.5)],
    "equivalence": lambda asked: identiscope.equivalence_under_texts(asked.trace, asked.other, 1, 2, asked.alternative),
    "extract_structure": lambda asked: asked.structure,
    "structure_weights": lambda asked: identiscope.structure_weights(
        identiscope.extract_structure([asked.other]), asked.trace, 1, 2, epsilon=0.1
    ),
    "shared_subspaces": lambda asked: asked.subspaces.summary(),
    "structural_maps": lambda asked: identiscope.structural_maps(asked.trace, 1, 2, asked.subspaces),
    "corpus_structure": lambda asked: identiscope.corpus_structure(
        asked.model, [IDS, OTHER, IDS[:9], OTHER[:8]], clusters=2
    ),
    "perturbation_effects": lambda asked: identiscope.perturbation_effects(asked.model, [IDS, OTHER], 1, 2, sets=2),
    "attribution": lambda asked: attribution(asked),
    "attribution by replay": lambda asked: attribution(asked, fast=False, norm="ones"),
    "spectral attribution": lambda asked: attribution(asked, norm="spectral", layers=[1]),
    "estimate": lambda asked: attribution(asked, mode="estimate", probes=6),
    "resumed estimate": lambda asked: attribution(
        asked, mode="estimate", probes=9, resume=attribution(asked, mode="estimate", probes=5)
    ),
    "correlation_by_length": lambda asked: identiscope.correlation_by_length(asked.model, [IDS, OTHER[:9]]),
    "attention_between_types": lambda asked: identiscope.attention_between_types(asked.model, [IDS, OTHER[:9]]),
    "passage_maps": lambda asked: identiscope.passage_maps(asked.model, IDS, 1, 2),
    "arrays": lambda asked: identiscope.attention_identifiability(_as_arrays(asked.trace.site(1))),
}  # fmt: skip


def _streamed(model: nn.Module) -> list[Tensor]:
    sites: list[identiscope.Site] = []
    identiscope.stream(model, IDS, sites.append)
    return [site.attentions() for site in sites]


def _as_arrays(site: identiscope.Site) -> identiscope.Trace:
    """A site given as arrays, of which only the values are on the device."""
    return identiscope.from_arrays(
        site.attentions().cpu(), site.value[list(site.key_value_heads)], projection=site.projection.cpu().numpy(),
        mask=site.allowed_keys(0).cpu(),
    )  # fmt: skip


# All tokens see each other; each sees those before it; those just before it; and some weight goes to a sink.
KINDS = ("BERT", "Llama", "Mistral", "GPT-OSS")
# What depends on who sees whom.
MASKED = (
    "trace", "attention_identifiability", "without the bias", "attention_maps", "factored_attention", "farthest",
    "attention_intervals", "realisable", "extract_structure", "structural_maps", "attribution",
    "attribution by replay", "estimate", "arrays",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "question"),
    [("BERT", question) for question in QUESTIONS] + [(name, question) for name in KINDS[1:] for question in MASKED],
)
def test_every_answer_on_the_device_is_the_cpu_s(name: str, question: str) -> None:
    found = QUESTIONS[question](there(name))
    assert_same(found, on_the_cpu(name, question), TOLERANCES.get(question, 0.0))
    tensors = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
    assert {tensor.device for tensor in tensors} <= {ONE}, "tensors stay where the model is"


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_on_the_device_says_what_it_does_on_the_cpu(name: str, family: str) -> None:
    contract.check_device(METHODS[name], family, ONE)


@pytest.mark.parametrize("name", [
    "ALBERT", "ModernBERT", "DeBERTa-v2", "XLNet", "GPT", "GPT-Neo", "GPT-J", "Bloom", "Gemma-2", "DeepSeek-V3",
    "T5", "BART", "Whisper", "ViT", "CLIP",
])  # fmt: skip
def test_families_are_captured_where_they_are(name: str) -> None:
    family: Family = FAMILIES[name]
    expected, found = (identiscope.trace(model, family.inputs()) for model in (family.model(), on(ZERO, name)))
    assert found.verify().verified and len(found.sites) == family.sites
    assert {site.value.device for site in found.sites} == {ZERO}
    assert_same([site.attentions() for site in found.sites], [site.attentions() for site in expected.sites])
    assert_same([site.value_bias for site in found.sites], [site.value_bias for site in expected.sites])


@pytest.mark.parametrize("tensors_on", ["cpu", "second:0"])
def test_plain_modules_and_batches(tensors_on: str) -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24, batch_first=True), 2).double().eval()
    there = copy.deepcopy(encoder).to(ZERO)
    x = torch.randn(12, 16, dtype=torch.float64)
    for change in ({}, {(1, 2): lambda attention: attention.flip(0)}):
        expected, found = (
            identiscope.substitute(model, given, change).streams
            if change
            else identiscope.trace(model, given).hidden_states
            for model, given in ((encoder, x), (there, x.to(tensors_on)))
        )
        assert_same(found, expected)
    model = FAMILIES["BERT"].model()
    texts = [IDS, OTHER[:5], OTHER]
    expected_traces, traces = identiscope.trace(model, texts), identiscope.trace(model.to(ZERO), texts)
    for one, other in zip(traces, expected_traces, strict=True):
        assert one.sites[1].value.device == ZERO
        assert_same(identiscope.attention_identifiability(one), identiscope.attention_identifiability(other), SUMMED)
        assert_same(one.hidden_states, other.hidden_states)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    asked = Asked(FAMILIES["Llama"].model().to(dtype).to(ZERO))
    assert asked.trace.verify().verified
    for question in (
        "trace", "verify", "attention_identifiability", "attention_maps", "attention_intervals", "farthest", "prove",
        "extract_structure", "shared_subspaces", "spectral attribution", "estimate",
    ):  # fmt: skip
        assert_same(QUESTIONS[question](asked), on_the_cpu("Llama", question, dtype), TOLERANCES.get(question, 0.0))
    found, fine = (attribution(one, mode="estimate", probes=6) for one in (asked, here("Llama")))
    # Squares would not fit into half precision, and are not kept in it.
    assert found["sum_grouped"].dtype == np.float32
    assert float(abs(found["contribution"] - fine["contribution"]).max()) < 20 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["BERT", "Llama", "GPT", "T5"])
def test_autocast(name: str, dtype: torch.dtype) -> None:
    """The weights are float32, and the products are not: what was captured knows what it was computed in."""
    family = FAMILIES[name]
    model = family.model().float()
    with torch.autocast("cpu", dtype=dtype):
        found = identiscope.trace(model, family.inputs())
        inside = identiscope.attention_identifiability(found, attention=found.kinds[0])
    checked = found.verify()
    assert checked.verified and {site.precision for site in checked.sites} == {str(dtype).removeprefix("torch.")}
    # Our own products are in float64, which autocast leaves alone.
    assert_same(inside, identiscope.attention_identifiability(found, attention=found.kinds[0]))
    plain = identiscope.attention_identifiability(identiscope.trace(model, family.inputs()), attention=found.kinds[0])
    assert inside.attrs["dtype"] != plain.attrs["dtype"] == "float32"
    if name == "BERT":
        with torch.autocast("cpu", dtype=dtype), pytest.raises(CaptureError, match="Autocast rounds inside its layers"):
            identiscope.hidden_token_attribution(identiscope.trace(model, IDS), fast=False)


def test_a_page_of_a_model_on_the_device(tmp_path: Path) -> None:
    paths = [
        identiscope.report(model, IDS, tmp_path / f"{number}.html", canonical="all")
        for number, model in enumerate((FAMILIES["BERT"].model(), on(ONE, "BERT")))
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("architecture", ["BertModel", "GPT2LMHeadModel"])
def test_a_run_of_a_model_in_memory(architecture: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", architecture)
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(words(count, count) for count in (20, 3, 20, 14, 6)), encoding="utf-8")
    options = identiscope.RunOptions(
        methods=("attention", "attribution", "tokens", "structure"), batch_size=2, hidden_states=True,
        subspace_length=22, probes=4,
    )  # fmt: skip
    model = identiscope.load(folder)
    here = identiscope.run_corpus(model, str(corpus), tmp_path / "here", options=options)
    model.module.to(ONE)
    there = identiscope.run_corpus(model, str(corpus), tmp_path / "there", options=options)
    for method in options.methods:
        assert_same(there.to_xarray(method), here.to_xarray(method), TOLERANCES.get(method, 0.0))
    found, expected = ([one.arrays() for one in run.subspaces().values()] for run in (there, here))
    assert_same(found, expected)
    one, other = (next((tmp_path / run).rglob("hidden_states.safetensors")) for run in ("here", "there"))
    assert one.read_bytes() == other.read_bytes()
    # The last bits of a number depend on the device, so a Run does not change it half-way.
    with pytest.raises(InputError, match=r"model device \(there: all, now: second\)"):
        identiscope.run_corpus(model, str(corpus), tmp_path / "here", options=options)


def test_minilm_on_the_device(minilm: identiscope.Model) -> None:
    text = "The cat sat on the mat, and nobody knew whose cat it was; but the mat was ours, and so was the milk." * 2
    there = identiscope.load(copy.deepcopy(minilm.module).to(ZERO), minilm.tokenizer)
    expected, found = identiscope.trace(minilm, text), identiscope.trace(there, text)
    assert len(expected.tokens) > 40 and repr(there).endswith("float32, second:0)")
    assert_same(identiscope.attention_identifiability(found), identiscope.attention_identifiability(expected), SUMMED)
    assert_same(identiscope.attention_maps(found, 3, 5), identiscope.attention_maps(expected, 3, 5))


# A model spread over two devices.


def spread(model: nn.Module, second: list[nn.Module]) -> nn.Module:
    """All on the first device but these modules, which take what they are given to theirs, and leave it there."""
    model.to(ZERO)
    for module in second:
        module.to(ONE)
        module.register_forward_pre_hook(lambda _, args, kwargs: moved((args, kwargs), ONE), with_kwargs=True)
    return model


SPREAD: dict[str, Callable[[Any], list[nn.Module]]] = {
    "BERT": lambda model: [model.encoder.layer[1], model.pooler],
    "Llama": lambda model: [model.model.layers[1], model.model.norm, model.lm_head],
}


@pytest.mark.parametrize("name", SPREAD)
def test_a_model_spread_over_two_devices(name: str) -> None:
    model = FAMILIES[name].model()
    asked = Asked(spread(model, SPREAD[name](model)))
    found = asked.trace
    assert found.verify().verified
    assert [site.value.device for site in found.sites] == [ZERO, ONE]
    assert [state.device for state in found.hidden_states] == [ZERO, ZERO, ONE]
    assert [site.attention(0).device for site in found.sites] == [ZERO, ONE]
    assert "second:0 and second:1" in repr(identiscope.load(model))
    for question in (
        "trace", "hidden states", "attention_identifiability", "factored_attention", "farthest", "prove",
        "extract_structure", "structure_weights", "shared_subspaces", "attention_between_types",
        "attribution by replay",
    ):  # fmt: skip
        assert_same(QUESTIONS[question](asked), on_the_cpu(name, question), TOLERANCES.get(question, 0.0))
    states = found.replay(found.embeddings)
    assert {state.device for state in states} == {ZERO}, "a replay answers where it was asked"
    assert attribution(asked, layers=[1]).attrs["path"] == "replay"


def test_a_page_and_a_run_of_a_spread_model(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(words(count, count) for count in (20, 3, 14)), encoding="utf-8")
    options = identiscope.RunOptions(methods=("attention", "tokens", "structure"), hidden_states=True)
    model = identiscope.load(folder)
    here = identiscope.run_corpus(model, str(corpus), tmp_path / "here", options=options)
    page = identiscope.report(model, words(20), tmp_path / "here.html")
    spread(model.module, SPREAD["BERT"](model.module))
    there = identiscope.run_corpus(model, str(corpus), tmp_path / "there", options=options)
    for method in options.methods:
        assert_same(there.to_xarray(method), here.to_xarray(method), TOLERANCES.get(method, 0.0))
    assert identiscope.report(model, words(20), tmp_path / "there.html").read_bytes() == page.read_bytes()


def test_a_device_map_of_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate", reason="device maps are accelerate's")
    places = {
        "model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0, "model.layers.1": 1, "model.norm": 1,
        "lm_head": 1,
    }  # fmt: skip
    model = accelerate.dispatch_model(
        FAMILIES["Llama"].model(),
        device_map={name: f"second:{number}" for name, number in places.items()},
        main_device="second:0",
        force_hooks=True,
    )
    asked = Asked(model)
    assert asked.trace.verify().verified and [site.value.device for site in asked.trace.sites] == [ZERO, ONE]
    for question in (
        "trace",
        "attention_identifiability",
        "attention_maps",
        "prove",
        "replay",
        "attribution by replay",
    ):
        assert_same(QUESTIONS[question](asked), on_the_cpu("Llama", question), TOLERANCES.get(question, 0.0))


# A device without float64.


def test_where_work_happens() -> None:
    assert has_float64(torch.device("cpu")) and has_float64(ZERO) and working_device(ZERO) == ZERO
    assert wide(torch.ones(2, device=ZERO)).device == ZERO
    with second_device.in_use(float64=False):
        assert not has_float64(ZERO) and working_device(ZERO).type == "cpu"
        assert wide(torch.ones(2, device=ZERO)).device.type == "cpu"
        assert wide(torch.ones(2, device=ZERO)).dtype == torch.float64


@pytest.mark.parametrize("name", ["BERT", "GPT-OSS", "Bloom"])
def test_without_float64_the_model_runs_there_and_the_rest_is_done_on_the_cpu(name: str) -> None:
    questions = ["trace", "verify", "hidden states", "attention_identifiability", "attribution by replay", "substitute"]
    if name == "BERT":
        questions += ["attention_maps", "prove", "extract_structure", "perturbation_effects", "replay"]
    expected = {question: on_the_cpu(name, question, torch.float32) for question in questions}
    with second_device.in_use(float64=False):
        asked = Asked(FAMILIES[name].model().float().to(ZERO))
        with second_device.counted() as traffic:
            assert {site.value.device.type for site in asked.trace.sites} == {"cpu"}
        assert traffic.waits > 0
        for question in questions:
            assert_same(QUESTIONS[question](asked), expected[question], TOLERANCES.get(question, 0.0))
        assert attribution(asked, layers=[1]).attrs["path"] == "replay"


def test_a_run_without_float64(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(words(count, count) for count in (20, 3, 14)), encoding="utf-8")
    options = identiscope.RunOptions(methods=("attention", "tokens", "structure", "attribution"), subspace_length=22)
    model = identiscope.load(folder)
    here = identiscope.run_corpus(model, str(corpus), tmp_path / "here", options=options)
    with second_device.in_use(float64=False):
        model.module.to(ZERO)
        there = identiscope.run_corpus(model, str(corpus), tmp_path / "there", options=options)
    for method in ("attention", "tokens", "structure"):
        assert_same(there.to_xarray(method), here.to_xarray(method), TOLERANCES.get(method, 0.0))
    # Followed through the model itself and not through its blocks: another estimate of the same.
    one, other = there.to_xarray("attribution"), here.to_xarray("attribution")
    errors = (one["standard_error"] + other["standard_error"]).values
    assert (np.abs((one["self_contribution"] - other["self_contribution"]).values) < 3 * errors).all()


# A model on the device, and the analysis on the CPU, or on the other device.


def test_analysis_elsewhere_than_the_model() -> None:
    model = identiscope.load(on(ZERO, "BERT"), analysis_device="cpu")
    assert repr(model).endswith("float64, second:0, analysed on cpu, no tokenizer)")
    asked = Asked(model)
    for question in (
        "trace", "stream", "hidden states", "verify", "attention_identifiability", "attention_maps", "prove",
        "substitute", "replay", "attribution by replay", "extract_structure", "shared_subspaces",
        "perturbation_effects", "attention_between_types",
    ):  # fmt: skip
        found = QUESTIONS[question](asked)
        assert_same(found, on_the_cpu("BERT", question))
        assert {leaf.device.type for leaf in tree_leaves(found) if isinstance(leaf, Tensor)} <= {"cpu"}
    assert waits(lambda: identiscope.attention_identifiability(asked.trace)) == 0
    elsewhere = Asked(identiscope.load(model, analysis_device="second:1"))
    assert {site.value.device for site in elsewhere.trace.sites} == {ONE}
    for question in ("trace", "attention_maps", "prove", "attribution by replay"):
        assert_same(QUESTIONS[question](elsewhere), on_the_cpu("BERT", question))
    with pytest.raises(ModelError, match=r"device='cuda:17' was given, which is not here"):
        identiscope.load(model, analysis_device="cuda:17")
    with second_device.in_use(float64=False), pytest.raises(ModelError, match=r"analysis_device='second:0'.*give cpu"):
        identiscope.load(model, analysis_device="second:0")


def test_results_say_where_they_were_computed_and_what_was_moved() -> None:
    def said(result: xr.Dataset) -> list[str | None]:
        return [result.attrs.get(name) for name in ("device", "analysis_device", "on_cpu")]

    questions = {
        "attention_identifiability": None, "attention_maps": "canonical rows", "attention_intervals": "linear programs",
        "farthest": "linear programs", "realisable": "least squares", "attribution": None, "estimate": None,
        "corpus_structure": None, "correlation_by_length": None, "prove": None,
    }  # fmt: skip
    for question, step in questions.items():
        assert said(on_the_cpu("BERT", question)) == ["cpu", "cpu", None]
        assert said(QUESTIONS[question](there("BERT"))) == ["second:1", "second:1", step], question
    aside = Asked(identiscope.load(on(ONE, "BERT"), analysis_device="cpu"))
    for question in ("attention_identifiability", "attention_maps", "farthest", "corpus_structure"):
        assert said(QUESTIONS[question](aside)) == ["second:1", "cpu", None]
    with second_device.in_use(float64=False):
        narrow = Asked(FAMILIES["BERT"].model().float().to(ZERO))
        assert said(QUESTIONS["attention_maps"](narrow)) == ["second:0", "cpu", None]
    model = FAMILIES["BERT"].model()
    parted = Asked(spread(model, SPREAD["BERT"](model)))
    assert said(QUESTIONS["attention_identifiability"](parted))[0] == "second:0 and second:1"


# How often the CPU waits.


def waits(work: Callable[[], Any]) -> int:
    with second_device.counted() as traffic:
        work()
    return traffic.waits


def test_waiting_does_not_grow_with_the_text() -> None:
    model = identiscope.load(on(ZERO, "BERT"))
    short, long = traced(model, IDS), traced(model, IDS * 3)
    assert waits(lambda: traced(model, IDS)) == waits(lambda: traced(model, IDS * 3)) <= 24
    for work in (
        identiscope.attention_identifiability,
        lambda trace: identiscope.factored_attention(trace, 1),
        lambda trace: identiscope.attention_maps(trace, 1, 2, ["raw", "effective", "null"]),
        lambda trace: trace.replay(trace.embeddings),
        lambda trace: trace.verify(),
        lambda trace: identiscope.factored_attention(trace, 1, "canonical"),
    ):
        first, second = waits(lambda: work(short)), waits(lambda: work(long))  # noqa: B023
        assert 0 < second <= first
    layers = len(long.sites)
    assert waits(lambda: identiscope.attention_identifiability(long)) <= 50 * layers
    assert waits(lambda: identiscope.factored_attention(long, 1).dense()) <= 8


def test_waiting_for_causal_rows_grows_with_the_logarithm_of_the_text() -> None:
    model = identiscope.load(on(ZERO, "Llama"))
    counts = [
        waits(partial(identiscope.factored_attention, trace, 1))
        for trace in (traced(model, IDS * times) for times in (1, 3))
    ]
    assert counts[1] <= counts[0] + 20


def test_one_wait_for_each_piece_of_an_attribution() -> None:
    """Beside those of the model's own passes: for what is checked before, and two for each piece."""
    asked = Asked(on(ZERO, "Llama"))
    passes = [0]
    asked.model.register_forward_hook(lambda *_: passes.append(passes.pop() + 1))
    # The replay is made once, and the weights are read for the provenance once.
    attribution(asked, mode="estimate", probes=8, fast=False)
    own = waits(lambda: asked.model(torch.tensor([IDS], device=ZERO), use_cache=False))

    def ours(**options: Any) -> int:
        passes[0] = 0
        return waits(lambda: attribution(asked, fast=False, **options)) - own * passes[0]

    assert ours() <= 4
    counts = [ours(mode="estimate", probes=probes) for probes in (8, 16, 24)]
    assert counts[0] <= 4 and counts[1] - counts[0] <= 2 and counts[2] - counts[1] <= 2


def test_one_move_for_all_columns_of_a_layer_of_a_run(tmp_path: Path) -> None:
    model = identiscope.load(save_tiny(tmp_path / "model"))
    model.module.to(ZERO)
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(words(count, count) for count in (20, 22, 24, 18)), encoding="utf-8")

    def run(name: str, batch_size: int) -> int:
        options = identiscope.RunOptions(batch_size=batch_size)
        return waits(lambda: identiscope.run_corpus(model, str(corpus), tmp_path / name, options=options))

    one, four = run("one", 4), run("four", 1)
    per_batch = (four - one) / 3
    assert per_batch <= 40, "two layers, and one check of what was captured"


# Audits write the model anew and draw its layers again.


@pytest.mark.parametrize("how", ["value_output", "head_order", "residual_rotation"])
def test_a_model_is_rewritten_where_it_is(how: str) -> None:
    found, expected = (identiscope.rewrite(on(device, "Llama"), how) for device in (ONE, "cpu"))
    assert {weight.device for weight in found.module.parameters()} == {ONE}
    assert_same(
        identiscope.attention_identifiability(traced(found)),
        identiscope.attention_identifiability(traced(expected)), SUMMED,
    )  # fmt: skip


def test_an_audit_of_rewritings_on_the_device() -> None:
    found, expected = (
        identiscope.gauge_audit(on(device, "Llama"), [IDS], ["rollout", "canonical"]) for device in (ONE, "cpu")
    )
    assert_same(found, expected, SUMMED)


def test_hooks_behind_a_projection_on_the_device() -> None:
    model = on(ONE, "BERT")
    place = model.get_submodule("encoder.layer.1.attention.output.dropout")
    place.register_forward_hook(lambda module, args, output: output * 2 + 1)
    trace = traced(model)
    assert trace.verify().error < 1e-12 and trace.site(1).projection.device == ONE
    assert torch.allclose(trace.site(1).projection, 2 * there("BERT").trace.site(1).projection)


# Loading to a device.


def test_loading_to_a_device(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    for device in ("second:1", ONE):
        model = identiscope.load(folder, device=device)
        assert model.device == ONE and {weight.device for weight in model.module.parameters()} == {ONE}
    assert identiscope.load(folder).device.type == "cpu"
    half = identiscope.load(folder, device="second", dtype=torch.float16)
    assert (half.device, half.dtype) == (ZERO, torch.float16)
    assert_same(
        identiscope.attention_maps(identiscope.trace(model, words(14)), 1, 2),
        identiscope.attention_maps(identiscope.trace(identiscope.load(folder), words(14)), 1, 2),
    )


@pytest.mark.parametrize("device", ["cuda:17", "mps:3", "second:2", "banana", "meta", "cuda:-2", "cpu:3"])
def test_a_device_that_is_not_there(device: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    with pytest.raises(ModelError, match=rf"device='{device}' was given, which is not here; there are cpu.*auto"):
        identiscope.load(folder, device=device)


def test_a_model_in_memory_stays_where_it_is() -> None:
    model = on(ZERO, "BERT")
    with pytest.raises(ModelError, match="device cannot be set for a model that is already in memory"):
        identiscope.load(model, device="cpu")
    assert identiscope.load(model).device == ZERO


def test_a_dtype_that_the_device_does_not_know(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    double = FAMILIES["BERT"].model()
    double.save_pretrained(tmp_path / "double")
    with second_device.in_use(float64=False):
        with pytest.raises(ModelError, match=r"second:0 does not compute in float64.*dtype=torch\.float32"):
            identiscope.load(folder, device="second:0", dtype=torch.float64)
        with pytest.raises(ModelError, match="does not compute in float64"):
            identiscope.load(tmp_path / "double", device="second:0")
        assert identiscope.load(tmp_path / "double", device="second:0", dtype=torch.float32).device == ZERO


def test_a_device_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore advice.")

    folder = save_tiny(tmp_path / "model")
    monkeypatch.setattr(nn.Module, "to", too_large)
    with pytest.raises(ModelError, match=r"cannot be moved to second:0: CUDA out of memory.*device='cpu'"):
        identiscope.load(folder, device="second:0")


def test_auto_is_the_best_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert placement.available_devices() == ["cpu", "cuda:0", "cuda:1", "mps"]
    assert placement.find_device("auto") == torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert placement.find_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert placement.find_device("auto") == torch.device("cpu")


def test_weights_that_are_not_in_memory(tmp_path: Path) -> None:
    with torch.device("meta"):
        empty = FAMILIES["BERT"].build()
    with pytest.raises(ModelError, match=r"weight embeddings\..* of BertModel is on the meta device: .* no numbers"):
        identiscope.trace(empty, IDS)
    accelerate = pytest.importorskip("accelerate", reason="offloading is accelerate's")
    offloaded = accelerate.disk_offload(FAMILIES["BERT"].model(), str(tmp_path))
    with pytest.raises(ModelError, match=r"is offloaded, to disk or to the CPU.*all weights in memory"):
        identiscope.trace(offloaded, IDS)


# Devices of this machine.

REAL = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(name, marks=pytest.mark.skipif(not there, reason=f"this machine has no {name}"))
        for name, there in REAL.items()
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_a_real_device(device: str, name: str) -> None:
    """The same numbers up to rounding, which differs between processors; ranks are decided alike."""
    asked = Asked(FAMILIES[name].model().float().to(device))
    assert asked.trace.verify().verified
    for question in (
        "hidden states", "attention_maps", "factored_attention", "attention_intervals", "substitute", "replay",
        "attribution", "estimate", "extract_structure",
    ):  # fmt: skip
        assert_same(QUESTIONS[question](asked), on_the_cpu(name, question, torch.float32), 1e-2)
    left, right = (identiscope.attention_identifiability(one.trace) for one in (asked, here(name, torch.float32)))
    np.testing.assert_array_equal(left["rank"].values, right["rank"].values)
    np.testing.assert_allclose(left["null_share"].values, right["null_share"].values, atol=1e-3)
