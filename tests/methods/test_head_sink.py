"""Attention sinks, against the definition in plain NumPy."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_heads as reference
from identiscope.linalg.allowed import Allowed
from identiscope.methods.heads.head_sink import head_sink


@settings(max_examples=40)
@given(
    st.integers(0, 2**20),
    st.integers(1, 8),
    st.sampled_from(["all", "causal", "window"]),
    st.sampled_from([0.1, 0.3, 0.6]),
)
def test_it_is_the_definition(seed: int, count: int, sees: str, threshold: float) -> None:
    allowed = torch.ones(count, count, dtype=torch.bool).tril(count if sees == "all" else 0)
    if sees == "window":
        allowed = allowed.triu(-2)
    logits = torch.randn(2, count, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    attention = (2 * logits).masked_fill(~allowed, -torch.inf).softmax(-1)
    special, tokens = [place % 3 == 0 for place in range(count)], ["a", "."] * count
    mask: Allowed = {"all": None, "causal": "causal", "window": allowed}[sees]
    value, projection = reference.made_values(seed, count)
    given = torch.tensor(special), tokens[:count], mask
    found = head_sink(attention, value, projection, *given, threshold=threshold).numbers
    maps = [(head, "", own) for head, own in enumerate(attention.numpy())]
    maps += [
        (head, "simplex_", reference.projected(own, value[head].numpy(), projection[head].numpy(), allowed.numpy()))
        for head, _, own in maps
    ]
    for head, kind, own in maps:
        means = [reference.mean_received(own, key, allowed.numpy()) for key in range(count)]
        key = int(np.nanargmax(means))
        is_sink = means[key] > threshold
        expected = {
            "sink_weight": means[key],
            "sink_key": key,
            "first_weight": means[0],
            "is_sink": is_sink,
            "sink_on_first": float(key == 0) if is_sink else np.nan,
            "sink_on_special": float(special[key]) if is_sink else np.nan,
            "sink_on_punctuation": float(tokens[key] == "." and not special[key]) if is_sink else np.nan,
        }
        for name, number in expected.items():
            np.testing.assert_allclose(found[f"{kind}{name}"][head], number, atol=1e-9, err_msg=name)
