"""The verdict of a proof: an alternative passes in every precision, and what is no alternative does not."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import families
import identiscope
from identiscope.judge.certificate import MapCertificate
from identiscope.judge.proof import judge
from identiscope.linalg.simplex.polytope import Certificate

LONG = (families.TEXT * 2)[:20]
# Kernels that are seen at the interface, at their softmax, by an einsum, with sinks, and in torch's own module.
NAMES = ["BERT", "GPT-2", "Bloom", "XLNet", "GPT-J", "GPT-OSS", "TransformerEncoder"]


def made(name: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """A model and what it is given."""
    if name != "TransformerEncoder":
        return families.ALL[name].model().to(dtype), LONG
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, dtype=dtype)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(20, 32, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_alternative_is_the_same_and_a_rolled_row_is_not(name: str, dtype: torch.dtype) -> None:
    model, given = made(name, dtype)
    trace = identiscope.trace(model, given)
    other = identiscope.attention_alternative(trace, 1, 2, rows=[15, 19])
    proof = identiscope.prove(model, given, 1, 2, other)
    assert bool(proof.same) and "yes" in proof.attrs["verdict"]
    assert np.isfinite(proof.ratio) and float(proof.ratio) > (3 if dtype == torch.bfloat16 else 1000)
    assert float(proof.total_variation.sel(map="raw")) == 0
    wrong = trace.site(1).attention(2).clone()
    wrong[19] = wrong[19].roll(1)
    with pytest.raises(identiscope.InputError, match="no alternative to layer 1, head 2: a row of the head's output"):
        identiscope.prove(model, given, 1, 2, wrong)
    judged = identiscope.prove(model, given, 1, 2, wrong, check=False)
    assert not bool(judged.same) and "rounding: no" in judged.attrs["verdict"] and np.isfinite(judged.ratio)


def test_the_raw_map_put_back_goes_through_arithmetic() -> None:
    """A float32 run computes the head's context anew, so that rounding shows: a floor of zero would be none."""
    model, given = made("BERT", torch.float32)
    trace = identiscope.trace(model, given)
    proof = identiscope.prove(model, given, 1, 2, identiscope.attention_alternative(trace, 1, 2))
    floor = proof.sel(map="raw")
    for measured in (floor.head_output, floor.hidden_states):
        assert 0 < float(measured) < 1e-5


def test_a_context_computed_whole_is_the_map_times_the_values() -> None:
    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixed, self.output = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.mixed(x)
            return self.output(nn.functional.scaled_dot_product_attention(y, y, y))

    torch.manual_seed(0)
    module, x, other = SelfAttention(), torch.randn(9, 6), torch.rand(9, 9, dtype=torch.float64)
    found = identiscope.substitute(module, x, {(0, 0): other}, whole=True).logits
    w, b, u, c = (part.detach().double().numpy() for part in module.parameters())
    expected = (other.numpy() @ (x.double().numpy() @ w.T + b)) @ u.T + c
    assert found is not None and np.allclose(found.detach().numpy(), expected, atol=1e-6)


def spoilt(raw: torch.Tensor, how: str) -> torch.Tensor:
    wrong = raw.clone()
    if how == "negative":
        wrong[19, :2] += torch.tensor([-1.0, 1.0]) * 2 * raw[19, :2].max()
    elif how == "sum":
        wrong[19] *= 1.01
    elif how == "masked":
        wrong[3, 10] = 1e-9
    elif how == "nan":
        wrong[5, 1] = torch.nan
    return wrong


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("negative", "its least weight is -"),
        ("sum", "a row sum changes by 0.01 "),
        ("masked", "a key that its query may not see gets a weight of 1e-09"),
        ("nan", "has NaN or infinite entries"),
    ],
)
def test_what_is_no_alternative_is_refused_with_what_it_breaks(how: str, message: str) -> None:
    model = families.ALL["GPT-2"].model()
    wrong = spoilt(identiscope.trace(model, LONG).site(0).attention(1), how)
    with pytest.raises(identiscope.InputError, match=message):
        identiscope.prove(model, LONG, 0, 1, wrong)


def test_a_certificate_in_a_result_is_not_taken_on_trust() -> None:
    model = families.ALL["BERT"].model()
    other = identiscope.attention_alternative(identiscope.trace(model, LONG), 1, 2)
    other["alternative"][19] = np.roll(other["alternative"].values[19], 1)
    assert other.attrs["output_error_relative"] < 1e-8
    with pytest.raises(identiscope.InputError, match="is no alternative"):
        identiscope.prove(model, LONG, 1, 2, other)


def test_effective_attention_gives_the_same_output_and_is_no_attention() -> None:
    model = families.ALL["BERT"].model()
    trace = identiscope.trace(model, LONG)
    effective = torch.from_numpy(identiscope.attention_maps(trace, 1, 2).effective.values)
    proof = identiscope.prove(model, LONG, 1, 2, effective, check=False)
    assert bool(proof.same) and "It is no alternative: a row sum changes by 0.0373" in proof.attrs["verdict"]


def changes(alternative: float, raw: float, random: float) -> dict[str, dict[str, float]]:
    return {
        name: {"head_output": value, "hidden_states": value, "logits": float("nan")}
        for name, value in (("alternative", alternative), ("raw", raw), ("random", random))
    }


def certificate(output_error: float) -> MapCertificate:
    return MapCertificate(Certificate(0.0, 0.0, output_error, output_error), 0.0, 1e-6)


@pytest.mark.parametrize(
    ("rows", "output_error", "same", "ratio"),
    [
        (changes(3e-7, 3e-7, 0.03), 1e-12, True, 1e5),
        (changes(1e-6, 3e-7, 0.03), 1e-12, True, 3e4),  # within four times the floor
        (changes(2e-6, 3e-7, 0.03), 1e-12, False, 1.5e4),  # not so
        (changes(0.0, 0.0, 0.03), 1e-12, True, 0.03 / 2**-23),  # nothing was rounded: still finite
        (changes(3e-7, 3e-7, 3e-7), 0.3, False, 1.0),  # a change too small to be seen is no proof
        (changes(float("inf"), 3e-7, 0.03), 1e-12, False, 0.0),  # what came out is no number
    ],
)
def test_the_rule(rows: Any, output_error: float, same: bool, ratio: float) -> None:
    judged = judge(rows, certificate(output_error), torch.float32)
    assert judged.same is same
    assert judged.ratio == pytest.approx(ratio)
    assert ("this run tells nothing" in judged.sentence) == (rows["random"]["hidden_states"] < 1e-6)
