"""Alternatives of a Trace, and their proof in the running model."""

from typing import Any

import numpy as np
import pytest
import torch

import families
import identiscope
from identiscope.capture.samples import PASSAGE
from identiscope.linalg.random_rows import random_rows

LONG = (families.TEXT * 2)[:20]


def check(trace: identiscope.Trace, layer: int, head: int, other: Any, rows: list[int] | None = None) -> None:
    """What makes a map an alternative, computed here from the site alone."""
    site = trace.site(layer)
    transformed = site.value_of(head).double() @ site.projection[head].double()
    raw, changed = site.attention(head), torch.from_numpy(other.alternative.values)
    assert float(changed.min()) >= -1e-9
    assert torch.allclose(changed.sum(-1), raw.sum(-1), atol=1e-9)
    assert torch.allclose(changed @ transformed, raw @ transformed, atol=1e-9 * float(transformed.abs().max()))
    assert not bool(changed[~site.allowed_keys(head)].any())
    assert np.allclose(other.total_variation, 0.5 * (changed - raw).abs().sum(-1).numpy(), atol=1e-9)
    if rows is not None:
        still = [row for row in range(site.queries) if row not in rows]
        assert torch.equal(changed[still], raw[still])
    assert other.attrs["output_error_relative"] < 1e-8


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama", "Mistral", "GPT-OSS"])
@pytest.mark.parametrize("how", ["farthest", "avoid", "favour", "along"])
def test_every_kind_of_alternative(name: str, how: Any) -> None:
    trace = identiscope.trace(families.ALL[name].model(), LONG)
    rows = [15, 19]
    options: dict[str, Any] = {}
    if how in ("avoid", "favour"):
        options["token"] = 15
        rows = [16, 19]
    if how == "along":
        options["direction"] = torch.linspace(-1, 1, 20)
    if how == "along" and name == "Mistral":
        with pytest.raises(identiscope.MathError, match="dimension is 0"):  # five keys in the window, eight channels
            identiscope.attention_alternative(trace, 1, 2, how=how, rows=rows, **options)
        return
    other = identiscope.attention_alternative(trace, 1, 2, how=how, rows=rows, **options)
    check(trace, 1, 2, other, rows)
    moved = other.total_variation.values[rows]
    if name != "Mistral":
        assert (moved > 1e-3).all()
    weight = other.alternative.values[19, 15] - other.raw.values[19, 15]
    if how == "avoid":
        assert weight <= 1e-12
    if how == "favour":
        assert weight >= -1e-12


def test_a_row_that_may_not_see_the_token_is_left_alone() -> None:
    trace = identiscope.trace(families.ALL["GPT-2"].model(), LONG)
    other = identiscope.attention_alternative(trace, 0, 0, how="avoid", token=18)
    check(trace, 0, 0, other)
    assert not other.total_variation.values[:18].any()
    assert other.attrs["rows_left_alone"] == list(range(18))
    some = identiscope.attention_alternative(trace, 0, 0, how="favour", token=18, rows=[3, 19])
    assert some.attrs["rows_left_alone"] == [3]
    assert identiscope.attention_alternative(trace, 0, 0, rows=[19]).attrs["rows_left_alone"] == []


@pytest.mark.parametrize("how", ["avoid", "favour"])
def test_rows_that_see_none_of_the_token_are_refused(how: Any) -> None:
    trace = identiscope.trace(families.ALL["GPT-2"].model(), LONG)
    with pytest.raises(identiscope.InputError, match="none of these rows may look at it; rows 18 to 19"):
        identiscope.attention_alternative(trace, 1, 2, how=how, token=18, rows=[12, 15])


def test_of_several_tokens_a_row_avoids_those_it_sees() -> None:
    trace = identiscope.trace(families.ALL["GPT-2"].model(), LONG)
    both = identiscope.attention_alternative(trace, 1, 2, how="avoid", token=[0, 18], rows=[15, 19])
    check(trace, 1, 2, both, [15, 19])
    first = identiscope.attention_alternative(trace, 1, 2, how="avoid", token=0, rows=15)
    assert both.alternative.values[15, 0] == pytest.approx(first.alternative.values[15, 0], abs=1e-9)
    assert both.alternative.values[15, 0] < both.raw.values[15, 0] - 1e-3
    assert both.attrs["rows_left_alone"] == []


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_along_takes_any_numbers_and_tells_the_largest_step(kind: Any) -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), LONG)
    direction = kind([float(place % 3) for place in range(20)])
    other = identiscope.attention_alternative(trace, 1, 2, how="along", rows=np.array([4, 7]), direction=direction)
    check(trace, 1, 2, other, [4, 7])
    step = np.linalg.norm(other.alternative.values - other.raw.values, axis=1)
    assert np.allclose(other.lambda_max.values[[4, 7]], step[[4, 7]], atol=1e-9) and (step[[4, 7]] > 1e-3).all()
    assert np.isnan(np.delete(other.lambda_max.values, [4, 7])).all()


def test_a_realisable_map_is_a_softmax_of_low_rank_logits() -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), LONG)
    other = identiscope.attention_alternative(trace, 1, 2, how="realisable")
    check(trace, 1, 2, other)
    logits = np.log(other.alternative.values)
    centred = logits - logits.mean(1, keepdims=True)
    values = np.linalg.svd(centred, compute_uv=False)
    assert values[8] < 1e-8 * values[0]  # d_k = 8
    assert float(other.total_variation.max()) > 1e-3


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "GPT-OSS"])
def test_realisability_can_be_checked_from_the_result(name: str, tmp_path: Any) -> None:
    trace = identiscope.trace(families.ALL[name].model(), LONG)
    other = identiscope.attention_alternative(trace, 1, 2, how="realisable")
    assert other.logit_query.shape[1] == other.logit_key.shape[1] <= 8
    logits = other.logit_query.values @ other.logit_key.values.T
    allowed = trace.site(1).allowed_keys(2).numpy()
    weights = np.where(allowed, np.exp(logits - np.where(allowed, logits, -np.inf).max(1, keepdims=True)), 0)
    weights *= other.raw.values.sum(1, keepdims=True) / weights.sum(1, keepdims=True)
    assert np.allclose(weights, other.alternative, atol=1e-12)
    assert other.solved.dtype == bool and other.solved.shape == (20,)
    again = identiscope.load_result(identiscope.save_result(other, tmp_path / "realisable"))
    assert again.identical(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "nearest"}, "how='nearest' was given; expected 'farthest', 'avoid'"),
        ({"how": "avoid"}, "needs token="),
        ({"how": "along"}, "needs a direction"),
        ({"rows": [20]}, "rows 0 to 19"),
        ({"rows": 20}, "rows=20 was given; the text has query rows 0 to 19"),
        ({"rows": []}, r"rows=\[\] was given, expected query rows"),
        ({"rows": [1.5]}, r"rows=\[1\.5\] was given; expected a whole number, a list of whole numbers or None"),
        ({"how": "avoid", "token": 9999}, "token=9999 was given; the text has key positions 0 to 19"),
        (
            {"how": "avoid", "token": "x"},
            "token='x' was given; expected a whole number, a list of whole numbers or None",
        ),
        ({"how": "favour", "token": [-1]}, "key positions 0 to 19"),
        (
            {"how": "along", "direction": "north"},
            "direction='north' was given; expected a torch.Tensor, a numpy.ndarray, a list of numbers",
        ),
        ({"how": "along", "direction": [1.0, 2.0]}, r"direction of shape \[2\]"),
        ({"how": "along", "direction": [float("nan")] + [1.0] * 19}, "NaN or infinite"),
        ({"how": "realisable", "rows": [1]}, "leave rows out"),
    ],
)
def test_what_cannot_be_asked(options: Any, message: str) -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), LONG)
    with pytest.raises(identiscope.InputError, match=message):
        identiscope.attention_alternative(trace, 0, 0, **options)


def test_random_perturbation_moves_each_row_as_far_as_asked() -> None:
    generator = torch.Generator().manual_seed(0)
    allowed = torch.ones(30, 30, dtype=torch.bool).tril()
    logits = torch.randn(30, 30, generator=generator, dtype=torch.float64).masked_fill(~allowed, -torch.inf)
    raw = torch.softmax(3 * logits, -1)
    distance = torch.rand(30, generator=generator, dtype=torch.float64) * 0.5
    distance[0] = 0.0
    moved = random_rows(raw, allowed, distance, seed=1)
    assert float(moved.min()) >= 0
    assert torch.allclose(moved.sum(-1), torch.ones(30, dtype=torch.float64))
    assert not bool(moved[~allowed].any())
    reachable = 1 - torch.where(allowed, raw, torch.inf).min(-1).values
    expected = torch.minimum(distance, reachable)
    assert torch.allclose(0.5 * (moved - raw).abs().sum(-1), expected, atol=1e-12)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (2, 9), (5, 11)])
def test_proof_on_minilm(minilm: identiscope.Model, layer: int, head: int) -> None:
    trace = identiscope.trace(minilm, PASSAGE)
    other = identiscope.attention_alternative(trace, layer, head, rows=range(40, 52), starts=1)
    assert float(other.total_variation.max()) >= 0.1
    proof = identiscope.prove(minilm, PASSAGE, layer, head, other)
    same, random = proof.sel(map="alternative"), proof.sel(map="random")
    assert np.isclose(same.total_variation, random.total_variation)
    assert float(same.hidden_states) <= 1e-5
    assert float(random.hidden_states) >= 1000 * float(same.hidden_states)
    assert float(random.head_output) >= 1000 * float(same.head_output)
    assert 1000 <= float(proof.ratio) < np.inf and bool(proof.same)
    assert np.isnan(same.logits)


@pytest.mark.parametrize(("layer", "head"), [(0, 3), (15, 4)])
def test_proof_on_smollm2(smollm2: identiscope.Model, layer: int, head: int) -> None:
    """Causal, grouped queries, a language model's logits; rows beyond the 65th are free."""
    text = PASSAGE[:400]
    trace = identiscope.trace(smollm2, text, layers=[layer])
    other = identiscope.attention_alternative(trace, layer, head, rows=range(75, len(trace.tokens)), starts=1)
    assert float(other.total_variation.max()) >= 0.1
    proof = identiscope.prove(smollm2, text, layer, head, other)
    same, random = proof.sel(map="alternative"), proof.sel(map="random")
    assert float(same.logits) <= 1e-5
    assert float(random.logits) >= 1000 * float(same.logits)
    assert 1000 <= float(proof.ratio) < np.inf and bool(proof.same)


def test_a_map_of_the_wrong_shape_proves_nothing(minilm: identiscope.Model) -> None:
    with pytest.raises(identiscope.InputError, match=r"shape \(3, 3\); expected \(9, 9\)"):
        identiscope.prove(minilm, "The cat sat on the mat.", 0, 0, torch.eye(3))


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_proof_of_a_padded_text(name: str, side: str) -> None:
    model = families.ALL[name].model()
    text = torch.tensor([LONG])
    gap = torch.zeros(1, 10, dtype=torch.long)
    order = (gap, text) if side == "left" else (text, gap)
    mask = torch.cat([torch.full_like(part, int(part is text)) for part in order], 1)
    padded = {"input_ids": torch.cat(order, 1), "attention_mask": mask}
    if name != "BERT":
        padded["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    trace = identiscope.trace(model, padded)
    other = identiscope.attention_alternative(trace, 0, 1, rows=[15, 19])
    proof = identiscope.prove(model, padded, 0, 1, other)
    same, random = proof.sel(map="alternative"), proof.sel(map="random")
    assert float(same.total_variation) == pytest.approx(float(other.total_variation.max()))
    assert float(same.hidden_states) < 1e-9
    assert float(random.hidden_states) > 1e-3
    if side == "right":
        # What stands behind the text changes nothing: the same numbers as of the text alone.
        alone = identiscope.prove(model, LONG, 0, 1, other)
        for value in ("head_output", "hidden_states", "logits", "total_variation"):
            one, other = (found[value].sel(map="random") for found in (proof, alone))
            assert np.isclose(one, other, rtol=1e-6, equal_nan=True)


def test_a_proof_compares_the_logits_of_a_padded_text() -> None:
    family = families.ALL["BART"]
    model, given = family.model(), dict(family.inputs())
    gap = torch.ones_like(given["decoder_input_ids"][:, :3])
    given["decoder_input_ids"] = torch.cat([given["decoder_input_ids"], 0 * gap], 1)
    given["decoder_attention_mask"] = torch.cat([torch.ones_like(family.inputs()["decoder_input_ids"]), 0 * gap], 1)
    trace = identiscope.trace(model, given)
    other = identiscope.attention_alternative(trace, 1, 2, attention="cross")
    proof = identiscope.prove(model, given, 1, 2, other, attention="cross")
    for value in (proof.hidden_states, proof.logits):
        assert float(value.sel(map="alternative")) < 1e-9
        assert float(value.sel(map="random")) > 1e-4


def test_a_proof_of_another_kind_of_attention_is_refused() -> None:
    family = families.ALL["BART"]
    model, given = family.model(), dict(family.inputs())
    given["decoder_input_ids"] = given["input_ids"]
    trace = identiscope.trace(model, given)
    other = identiscope.attention_alternative(trace, 1, 2, attention="encoder-self", rows=[3])
    assert other.alternative.shape == trace.site(1, "cross").attention(2).shape
    with pytest.raises(identiscope.InputError, match=r"made for .*'encoder-self'.* not for .*'cross'"):
        identiscope.prove(model, given, 1, 2, other, attention="cross")


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda trace: identiscope.attention_maps(trace, 0, 0), "result of 'attention_maps' was given"),
        (lambda trace: "a map", "alternative='a map' was given; expected an xarray.Dataset or a torch.Tensor"),
    ],
)
def test_what_holds_no_alternative_proves_nothing(give: Any, message: str) -> None:
    model = families.ALL["BERT"].model()
    with pytest.raises(identiscope.InputError, match=message):
        identiscope.prove(model, LONG, 0, 0, give(identiscope.trace(model, LONG)))


def test_a_proof_is_of_one_text() -> None:
    with pytest.raises(identiscope.InputError, match="2 texts were given"):
        identiscope.prove(families.ALL["BERT"].model(), [LONG, LONG], 0, 0, torch.eye(20))


def test_proofs_say_nothing_where_nothing_moved(minilm: identiscope.Model) -> None:
    text = "The cat sat on the mat."
    trace = identiscope.trace(minilm, text)
    proof = identiscope.prove(minilm, text, 1, 2, trace.site(1).attention(2))
    assert float(proof.ratio) == 1
    assert "this run tells nothing" in proof.attrs["verdict"]


def test_a_proof_looks_where_the_change_would_show() -> None:
    """A map that does change the text tower is not judged by the vision tower."""
    family = families.ALL["CLIP"]
    model = family.model()
    site = identiscope.trace(model, family.inputs()).site(0, stream="text")
    other = torch.zeros(site.queries, site.keys)
    other[:, 0] = 1
    proof = identiscope.prove(model, family.inputs(), 0, 1, other, stream="text", check=False)
    assert float(proof.hidden_states.sel(map="alternative")) > 1e-6 and not bool(proof.same)


def test_a_proof_of_another_head_is_refused_and_a_proof_can_be_saved(minilm: identiscope.Model, tmp_path: Any) -> None:
    trace = identiscope.trace(minilm, PASSAGE, layers=[3])
    other = identiscope.attention_alternative(trace, 3, 5, rows=range(2))
    with pytest.raises(identiscope.InputError, match="made for"):
        identiscope.prove(minilm, PASSAGE, 2, 1, other)
    proof = identiscope.prove(minilm, PASSAGE, 3, 5, other)
    for result in (other, proof):
        path = identiscope.save_result(result, tmp_path / str(result.attrs["method"]))
        assert identiscope.load_result(path).identical(result)
