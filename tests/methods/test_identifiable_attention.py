"""Identifiable attention: a literal loop over heads, torch's own attention, masks, rank, capture, and training."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import identiscope
from identiscope.errors import InputError
from identiscope.methods.heads.attention_rank import attention_rank
from identiscope.methods.structure.identifiable_attention import Combine, IdentifiableSelfAttention

COMBINES: tuple[Combine, ...] = ("concatenate", "add")


def literal(module: IdentifiableSelfAttention, x: np.ndarray, seen: np.ndarray, added: np.ndarray) -> tuple[Any, Any]:
    """One text, head by head and row by row, in float64: softmax(q·k/√d_k + added) over the keys seen, times V·H."""
    weights = {name: value.detach().double().numpy() for name, value in module.state_dict().items()}
    heads, d_k, d_v, n = module.num_heads, module.key_width, module.value_width, len(x)
    output = np.tile(weights["output.bias"], (n, 1))
    maps = np.zeros((heads, n, n))
    for head in range(heads):
        rows_k, rows_v = slice(head * d_k, (head + 1) * d_k), slice(head * d_v, (head + 1) * d_v)
        q, k = (x @ weights[f"{name}.weight"][rows_k].T + weights[f"{name}.bias"][rows_k] for name in ("query", "key"))
        v = x @ weights["value.weight"][rows_v].T + weights["value.bias"][rows_v]
        columns = rows_v if module.combine == "concatenate" else slice(None)
        projection = weights["output.weight"][:, columns].T
        for i in range(n):
            numerators = [np.exp(q[i] @ k[j] / np.sqrt(d_k) + added[i, j]) if seen[i, j] else 0.0 for j in range(n)]
            total = sum(numerators)
            maps[head, i] = [one / total if total else 0.0 for one in numerators]
        output = output + maps[head] @ v @ projection
    return output, maps


def random_module(seed: int, **options: Any) -> IdentifiableSelfAttention:
    torch.manual_seed(seed)
    module = IdentifiableSelfAttention(**options).double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)  # biases too, which begin at zero
    return module


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 7), st.integers(1, 3), st.integers(1, 5), st.integers(1, 6), st.sampled_from(COMBINES),
    st.sampled_from(["none", "causal", "boolean", "additive"]), st.booleans(), st.integers(0, 2**16),
)  # fmt: skip
def test_equals_a_loop_over_heads(
    n: int, heads: int, d_k: int, d_v: int, combine: Combine, masked: str, padded: bool, seed: int
) -> None:
    module = random_module(seed, embed_dim=6, num_heads=heads, key_width=d_k, value_width=d_v, combine=combine)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, n, 6, generator=generator, dtype=torch.float64)
    hidden = torch.rand(n, n, generator=generator) < 0.4
    bias = torch.randn(n, n, generator=generator, dtype=torch.float64)
    padding = torch.zeros(2, n, dtype=torch.bool)
    if padded:
        padding[1, n // 2 :] = True
    options: dict[str, Any] = {"key_padding_mask": padding if padded else None}
    seen, added = torch.ones(n, n, dtype=torch.bool), torch.zeros(n, n, dtype=torch.float64)
    if masked == "causal":
        options["is_causal"], seen = True, seen.tril()
    elif masked == "boolean":
        options["attn_mask"], seen = hidden, ~hidden
    elif masked == "additive":
        options["attn_mask"], added = bias.masked_fill(hidden, -torch.inf), bias
        seen = ~hidden
    output, weights = module(x, average_attn_weights=False, **options)
    for text in range(2):
        expected, maps = literal(module, x[text].numpy(), (seen & ~padding[text]).numpy(), added.numpy())
        np.testing.assert_allclose(output[text].detach().numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(weights[text].detach().numpy(), maps, atol=1e-13)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masks", ["none", "padding", "boolean", "additive", "each head", "causal and padding"])
def test_matches_torch_s_own(bias: bool, masks: str) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).double()
    if bias:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    ours = IdentifiableSelfAttention.from_multihead(theirs)
    x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    corner = torch.ones(5, 5, dtype=torch.bool).triu(3)
    every: dict[str, dict[str, Any]] = {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "boolean": {"attn_mask": corner},
        "additive": {"attn_mask": torch.randn(5, 5, dtype=torch.float64).masked_fill(corner, -torch.inf)},
        "each head": {"attn_mask": (torch.rand(6, 5, 5) < 0.3) & ~torch.eye(5, dtype=torch.bool)},
        "causal and padding": {
            "attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1), "key_padding_mask": padding, "is_causal": True,
        },
    }  # fmt: skip
    options = every[masks]
    for average in (True, False):
        expected, their_weights = theirs(x, x, x, average_attn_weights=average, **options)
        output, weights = ours(x, x, x, average_attn_weights=average, **options)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-13)
        torch.testing.assert_close(weights, their_weights, rtol=0, atol=1e-13)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), x)
    (gradient,) = torch.autograd.grad(output.square().sum(), x)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-11)
    alone, _ = ours(x[0], need_weights=False)
    torch.testing.assert_close(alone, theirs(x[0], x[0], x[0])[0], rtol=0, atol=1e-13)


def test_only_usual_multihead_attention_can_be_copied() -> None:
    for options in ({"kdim": 4, "vdim": 4}, {"add_bias_kv": True}, {"add_zero_attn": True}):
        with pytest.raises(InputError, match="no self-attention of this kind"):
            IdentifiableSelfAttention.from_multihead(nn.MultiheadAttention(8, 2, **options))


def test_a_masked_key_has_no_say_and_a_seen_one_has() -> None:
    """The direction of the mask: True is a key that is not seen."""
    module = random_module(1, embed_dim=6, num_heads=2)
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    padding = torch.tensor([[False, False, True, False]])
    before, _ = module(x, key_padding_mask=padding)
    for place, has_a_say in ((2, False), (3, True)):
        moved = x.clone()
        moved[0, place] += 1
        after, _ = module(moved, key_padding_mask=padding)
        assert torch.equal(after[0, :2], before[0, :2]) is not has_a_say


def test_a_row_that_sees_nothing_is_the_bias_alone() -> None:
    module = random_module(2, embed_dim=6, num_heads=2, combine="add")
    x = torch.randn(1, 3, 6, dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(3, 3, dtype=torch.bool)
    nothing[1] = True
    for mask in (nothing, torch.zeros(3, 3, dtype=torch.float64).masked_fill(nothing, -torch.inf)):
        output, weights = module(x, attn_mask=mask)
        assert weights is not None
        torch.testing.assert_close(output[0, 1], module.output.bias, rtol=0, atol=1e-14)
        assert not weights[0, 1].any()
        (gradient,) = torch.autograd.grad(output.sum(), x)
        assert bool(torch.isfinite(gradient).all())


def ranks(module: IdentifiableSelfAttention, x: Tensor) -> list[int]:
    return attention_rank(module.head_values(x), module.head_projection()).spectrum.rank.tolist()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 9), st.sampled_from(COMBINES), st.integers(0, 2**16))
def test_the_promised_rank(n: int, heads: int, d_v: int, combine: Combine, seed: int) -> None:
    """On generic inputs rank(T) = min(n, d_v, d) at every head, also by NumPy on T itself."""
    module = random_module(seed, embed_dim=8, num_heads=heads, key_width=1, value_width=d_v, combine=combine)
    x = torch.randn(n, 8, dtype=torch.float64)
    assert ranks(module, x) == [min(n, d_v, 8)] * heads
    maps = (module.head_values(x) @ module.head_projection()).detach().numpy()
    assert [int(np.linalg.matrix_rank(one)) for one in maps] == [min(n, d_v, 8)] * heads


def test_added_heads_have_the_rank_of_the_model_from_the_first_step() -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 32)
    usual, added = IdentifiableSelfAttention(32, 8), IdentifiableSelfAttention(32, 8, combine="add")
    assert ranks(usual, x) == [4] * 8
    assert ranks(added, x) == [30] * 8
    assert ranks(added, torch.randn(50, 32)) == [32] * 8
    with torch.no_grad():
        sizes = [module(torch.randn(64, 10, 32))[0].std() for module in (usual, added)]
    assert 0.7 < float(sizes[1] / sizes[0]) < 1.4


@pytest.mark.parametrize("combine", COMBINES)
def test_capture_sees_and_verifies_it(combine: Combine) -> None:
    module = random_module(3, embed_dim=12, num_heads=3, key_width=2, combine=combine)
    trace = identiscope.trace(module, torch.randn(9, 12, dtype=torch.float64))
    assert trace.verify().verified
    assert trace.verify().error < 1e-13
    site = trace.site(0)
    assert (site.head_count, site.value.shape[-1]) == (3, 12 if combine == "add" else 4)
    result = identiscope.attention_identifiability(trace)
    expected = 0 if combine == "add" else 4
    assert (result.simplex_null_dimension.values == expected).all()
    without = identiscope.attention_identifiability(trace, value_bias=False)  # the bias in the values was found
    assert (without["rank"].values == (9 if combine == "add" else 4)).all()


@pytest.mark.parametrize("causal", [False, True])
def test_in_place_of_torch_s_in_an_encoder_layer(causal: bool) -> None:
    """Equal weights, equal output; the layer's fused path, which would pass it by, is not taken."""
    torch.manual_seed(0)
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(12, 4, 16, batch_first=True), 2, enable_nested_tensor=False
    )
    theirs = theirs.double().eval()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1) if causal else None
    with torch.no_grad():
        expected = theirs(x, mask=mask, src_key_padding_mask=padding)
        for layer in theirs.layers:
            layer.self_attn = IdentifiableSelfAttention.from_multihead(layer.self_attn)
        output = theirs(x, mask=mask, src_key_padding_mask=padding)
    torch.testing.assert_close(output[~padding], expected[~padding], rtol=0, atol=1e-12)
    trace = identiscope.trace(theirs, x[0])
    assert trace.verify().verified and len(trace.hidden_states) == 3


@pytest.mark.parametrize("combine", COMBINES)
def test_it_trains(combine: Combine) -> None:
    """Each position must give what stands at the position named by its own first numbers: attention is needed."""
    torch.manual_seed(0)
    n, module = 6, IdentifiableSelfAttention(16, 2, key_width=6, combine=combine)
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(300):
        goals, content = torch.randint(n, (32, n)), torch.randn(32, n, 4)
        x = torch.cat([nn.functional.one_hot(goals, n), torch.eye(n).expand(32, n, n), content], -1)
        wanted = content.gather(1, goals[..., None].expand(32, n, 4))
        loss = (module(x, need_weights=False)[0][..., :4] - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 0.9
    assert losses[-1] < 0.1


def test_dropout_is_of_training_alone_and_follows_the_seed() -> None:
    module = IdentifiableSelfAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    outputs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outputs.append(module(x)[0])
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
    module.eval()
    assert torch.equal(module(x)[0], module(x)[0])
    assert "combine='concatenate', dropout=0.5" in repr(module)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: IdentifiableSelfAttention(8, 3), "3 heads do not divide the width 8; give key_width and value_width"),
        (lambda: IdentifiableSelfAttention(8, 3, combine="add"), "give key_width."),
        (lambda: IdentifiableSelfAttention(8, 2, combine="sum"), "expected .?concatenate.? or .?add"),  # type: ignore[arg-type]
        (lambda: IdentifiableSelfAttention(8, 2, dropout=1.0), "below 1"),
        (lambda: IdentifiableSelfAttention(8, 2, key_width=0), "1 at least"),
        (lambda: IdentifiableSelfAttention(8, 2)(torch.randn(1, 4, 6)), r"expected \[batch, n, 8\]"),
        (lambda: IdentifiableSelfAttention(8, 2)(torch.randn(4, 8), torch.randn(4, 8)), "self-attention"),
        (
            lambda: IdentifiableSelfAttention(8, 2)(torch.randn(1, 4, 8), key_padding_mask=torch.zeros(1, 5).bool()),
            "batch=1, n=4",
        ),
        (lambda: IdentifiableSelfAttention(8, 2)(torch.randn(1, 4, 8), attn_mask=torch.zeros(1, 4)), "must be one of"),
    ],
)
def test_refusals(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()
