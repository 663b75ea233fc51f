"""Attention permuted, uniform and erased: against plain loops, and against the model run by substitution."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import contract
import identiscope
from identiscope.methods.attention_runs import LayerMaps
from identiscope.methods.predictions.replaced_attention import erased_rows, permuted_rows

CAUSAL = contract.CASES["causal, grouped queries"]


def layer_of(seed: int, count: int) -> LayerMaps:
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.ones(count, count, dtype=torch.bool).tril()
    logits = torch.randn(2, count, count, generator=generator, dtype=torch.float64)
    raw = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
    return LayerMaps(0, (0, 1), raw, allowed, torch.arange(count))


@settings(max_examples=20)
@given(st.integers(0, 2**20), st.integers(1, 7), st.sampled_from([0.1, 0.5, 0.9]))
def test_rows_are_permuted_and_erased_as_said(seed: int, count: int, share: float) -> None:
    layer = layer_of(seed, count)
    permuted = permuted_rows(layer, torch.Generator().manual_seed(seed)).numpy()
    erased = erased_rows(layer, layer.raw, share).numpy()
    raw = layer.raw.numpy()
    for head in range(2):
        for query in range(count):
            seen = query + 1
            np.testing.assert_allclose(np.sort(permuted[head, query, :seen]), np.sort(raw[head, query, :seen]))
            assert not permuted[head, query, seen:].any()
            lost = min(max(round(share * seen), 1), seen - 1)
            expected = raw[head, query].copy()
            expected[np.argsort(-expected, kind="stable")[:lost]] = 0.0
            np.testing.assert_allclose(erased[head, query], expected / expected.sum(), atol=1e-12)


def test_the_runs_are_those_of_substitution() -> None:
    traced = contract.trace(CAUSAL)
    found = identiscope.replaced_attention(traced, layers=[0], permutations=2)
    count = len(traced.main)
    even = torch.ones(count, count, dtype=torch.float64).tril()
    even = even / even.sum(-1, keepdim=True)
    model, text = contract.model("Llama"), list(CAUSAL.text)

    def moved(change: Any) -> tuple[float, bool]:
        run = identiscope.substitute(model, text, {(0, head): change for head in range(4)})
        assert run.logits is not None and traced.logits is not None
        one, other = (logits[-1].double().softmax(-1) for logits in (run.logits, traced.logits))
        return 0.5 * float((one - other).abs().sum()), int(one.argmax()) == int(other.argmax())

    expected, same = moved(even)
    np.testing.assert_allclose(found["uniform_moved"], [expected], atol=1e-10)
    assert bool(found["uniform_same"][0]) == same

    def without_the_strongest(attention: torch.Tensor) -> torch.Tensor:
        new = attention.clone()
        for query in range(1, count):
            for key in new[query].argsort(descending=True)[: max(round(0.1 * (query + 1)), 1)]:
                new[query, key] = 0.0
            new[query] /= new[query].sum()
        return new

    expected, _ = moved(without_the_strongest)
    np.testing.assert_allclose(found["erased_moved"].sel(ranking="attention", share=0.1), [expected], atol=1e-10)
    assert found["permuted_moved"].values[0] > 0 and 0 <= found["adversarial_moved"].values[0] <= 0.05


def test_where_there_is_no_answer_none_can_change() -> None:
    found = identiscope.replaced_attention(contract.trace(CAUSAL), outcome=contract.some_outcome, permutations=1)
    assert bool(found["erased_share"].isnull().all()) and bool(found["uniform_same"].isnull().all())


def test_bad_input_is_refused() -> None:
    for options, words in (({"permutations": 0}, "at least 1"), ({"layers": [7]}, "there are 0 to 1")):
        with pytest.raises(identiscope.InputError, match=words):
            identiscope.replaced_attention(contract.trace(CAUSAL), **options)
