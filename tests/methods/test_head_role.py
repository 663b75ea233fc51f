"""Entropy, confidence and where the strongest key is, against the definitions in plain NumPy."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_heads as reference
from identiscope.methods.heads.head_role import OFFSETS, head_role


@settings(max_examples=40)
@given(st.integers(0, 2**20), st.lists(st.booleans(), min_size=1, max_size=8), st.booleans())
def test_it_is_the_definition(seed: int, special: list[bool], causal: bool) -> None:
    count = len(special)
    allowed = torch.ones(count, count, dtype=torch.bool).tril(0 if causal else count)
    logits = torch.randn(2, count, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    attention = (3 * logits).masked_fill(~allowed, -torch.inf).softmax(-1)
    value, projection = reference.made_values(seed, count)
    found = head_role(attention, value, projection, torch.tensor(special), "causal" if causal else None).numbers
    for head, own in enumerate(attention.numpy()):
        real = reference.projected(own, value[head].numpy(), projection[head].numpy(), allowed.numpy())
        expected: dict[str, float] = {
            "entropy": float(np.mean([reference.entropy(row) for row in own])),
            "entropy_first": reference.entropy(own[0]) if special[0] else np.nan,
        }
        for kind, rows in (("", own), ("simplex_", real)):
            expected[f"{kind}confidence"] = reference.confidence(rows, special, allowed.numpy())
            for name, by in OFFSETS.items():
                expected[f"{kind}peak_{name}"] = reference.peak(rows, by, special, allowed.numpy())
        for name, number in expected.items():
            np.testing.assert_allclose(found[name][head], number, atol=1e-9, err_msg=name)
