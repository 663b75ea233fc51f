"""Where a model keeps its value bias is its own affair: eq. 9 tells, and what belongs to [T,1] does not."""

import copy

import numpy as np
import pytest
import torch

import identiscope
from families import FAMILIES


@pytest.fixture(scope="module")
def both(minilm: identiscope.Model) -> tuple[identiscope.Trace, identiscope.Trace]:
    """A text in minilm, and in the same function with b_V + c and b_O − Σ c·H."""
    module = copy.deepcopy(minilm.module).double()
    other = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    for layer in other.encoder.layer:  # type: ignore[union-attr]
        value, output = layer.attention.self.value, layer.attention.output.dense
        shift = torch.randn(value.bias.shape, generator=generator, dtype=torch.float64) * value.weight.norm(dim=1) / 2
        with torch.no_grad():
            value.bias += shift
            output.bias -= output.weight @ shift
    traces = [
        identiscope.trace(identiscope.load(one, minilm.tokenizer), identiscope.PASSAGE, layers=[0, 2, 5])
        for one in (module, other)
    ]
    return traces[0], traces[1]


def test_the_function_is_the_same(both: tuple[identiscope.Trace, identiscope.Trace]) -> None:
    one, other = (trace.hidden_states[-1] for trace in both)
    assert float((one - other).abs().max()) < 1e-13 * float(one.abs().max())


def test_the_paper_s_effective_attention_moves(both: tuple[identiscope.Trace, identiscope.Trace]) -> None:
    one, other = (identiscope.effective(trace).effective.values for trace in both)
    moved = np.sqrt(np.square(one - other).sum((2, 3)) / np.square(one).sum((2, 3)))
    assert moved.min() > 0.05 and np.median(moved) > 0.3
    assert (one.argmax(-1) != other.argmax(-1)).mean() > 0.2
    shares = [identiscope.attention_identifiability(trace) for trace in both]
    assert float(abs(shares[0].null_share - shares[1].null_share).max()) > 0.05


@pytest.mark.parametrize("name", ["effective_simplex_span", "canonical"])
def test_what_keeps_row_sums_stays(both: tuple[identiscope.Trace, identiscope.Trace], name: str) -> None:
    one, other = (identiscope.ask(name, trace)[name].values for trace in both)
    moved = np.sqrt(np.square(one - other).sum((2, 3)) / np.square(one).sum((2, 3)))
    assert moved.max() < 1e-11 and np.array_equal(one.argmax(-1), other.argmax(-1))


def test_numbers_that_lead_stay(both: tuple[identiscope.Trace, identiscope.Trace]) -> None:
    one, other = (identiscope.attention_identifiability(trace) for trace in both)
    for name in ("simplex_null_share", "row_simplex_null_share", "simplex_correlation", "simplex_null_dimension"):
        np.testing.assert_allclose(one[name].values, other[name].values, atol=1e-12)
    merged = [identiscope.null_share(trace).merged_null_share.values for trace in both]
    np.testing.assert_allclose(merged[0], merged[1], atol=1e-12)
    bounds = [identiscope.attention_intervals(trace, 2, 7, row=30) for trace in both]
    for name in ("lower", "upper", "merged_lower", "merged_upper"):
        np.testing.assert_allclose(bounds[0][name].values, bounds[1][name].values, atol=1e-11)


def test_a_family_without_value_bias_has_none_to_shift() -> None:
    site = identiscope.trace(FAMILIES["Llama"].model(), list(range(5, 20))).site(1)
    assert site.value_bias is not None and not site.value_bias.any()
