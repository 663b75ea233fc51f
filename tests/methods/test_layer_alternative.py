"""Attention that moves between heads, proven in the running model; and none where no head can stand in for another."""

import numpy as np
import pytest
import torch
import transformers

import identiscope
import reference
from identiscope.errors import InputError
from identiscope.methods.layers.layer_alternative import layer_alternative
from identiscope.methods.maps.factored import rows_of

IDS = [5, 17, 42, 8, 63, 23, 31, 77, 12]


def wide() -> transformers.PreTrainedModel:
    """Qwen3's shape: heads that are together wider than the model."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=99, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).double().eval()


def test_heads_stand_in_for_each_other_and_the_model_does_not_notice() -> None:
    model = wide()
    trace = identiscope.trace(model, IDS)
    ranks = identiscope.layer_rank(trace)
    # Nine tokens and heads of twelve channels: no head can move alone.
    assert not identiscope.attention_identifiability(trace).free_rows.values.any()
    assert (ranks.between_heads.values > 0).all() and np.isinf(ranks.projection_condition.values).all()
    found = identiscope.layer_alternative(trace)
    assert found.between_heads.values.tolist() == ranks.between_heads.values.tolist()
    assert np.isinf(found.projection_condition.values).all()
    for layer in (0, 1):
        moved = np.abs(found.layer_alternative.sel(layer=layer) - trace.site(layer).attentions().numpy())
        assert float(moved.sum("key").max()) > 0.2
        proof = identiscope.prove(model, IDS, layer, None, found)
        assert bool(proof.same) and float(proof.ratio) > 1e6
        assert proof.attrs["output_error_relative"] < 1e-10
    # One head of them alone is no alternative to that head.
    alone = torch.from_numpy(found.layer_alternative.values[1, 2])
    with pytest.raises(InputError, match="no alternative to layer 1, head 2"):
        identiscope.prove(model, IDS, 1, 2, alone)
    wrong = torch.from_numpy(found.layer_alternative.values[1]).roll(1, 0)
    with pytest.raises(InputError, match="no alternative to layer 1:"):
        identiscope.prove(model, IDS, 1, None, wrong)
    judged = identiscope.prove(model, IDS, 1, None, wrong, check=False)
    assert not bool(judged.same)
    with pytest.raises(InputError, match="was made for"):
        identiscope.prove(model, IDS, 1, None, identiscope.layer_alternative(trace, layers=[0]))
    with pytest.raises(InputError, match="holds no alternative of a layer"):
        identiscope.prove(model, IDS, 1, None, identiscope.attention_alternative(trace, 1, 0))


def test_none_where_the_projection_is_square_and_invertible(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, "The cat sat on the mat, and it was happy.")
    found = identiscope.layer_alternative(trace, layers=[2])
    assert found.between_heads.values.tolist() == [0]
    assert np.array_equal(found.layer_alternative.values[0], trace.site(2).attentions().numpy())
    ranks = identiscope.layer_rank(trace)
    assert (ranks.between_heads.values == 0).all()
    weights = trace.site(2).projection.double().flatten(0, 1).numpy()
    for condition in (ranks.projection_condition[2], found.projection_condition[0]):
        assert float(condition) == pytest.approx(np.linalg.cond(weights), rel=1e-9)


def test_a_singular_projection_lets_heads_trade() -> None:
    """Two heads that write to one direction: literally, every corner of both rows together."""
    generator = np.random.default_rng(0)
    value = generator.standard_normal((2, 3, 1))
    projection = np.concatenate([np.ones((1, 1, 4)), 2 * np.ones((1, 1, 4))])
    attention = reference.softmax_rows(generator, 2, np.ones((1, 3), dtype=bool))
    found = layer_alternative(
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)), 1
    )
    stacked = np.concatenate([value[0] @ projection[0], value[1] @ projection[1]])
    # The sum of each head is kept, so that one more column tells them apart.
    apart = np.column_stack([stacked, np.repeat([1.0, 0.0], 3)])
    row = attention[:, 0].ravel()
    corners = reference.vertices(row, apart)
    farthest = np.abs(corners - row).sum(1).max()
    moved = found.maps[:, 0].flatten().numpy()
    # Six weights, of which the layer sees the output and two sums, and the heads alone two of each.
    assert found.between_heads == (6 - 3) - (6 - 4) and found.projection_condition == np.inf
    assert np.abs((moved - row) @ apart).max() < 1e-12 and moved.min() >= 0
    assert 0.9 * farthest <= np.abs(moved - row).sum() <= farthest + 1e-9
    same = layer_alternative(
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)), 1, rows=0
    )
    assert torch.equal(same.maps, found.maps)
    with pytest.raises(InputError, match="rows=3 was given; the text has query rows 0 to 0"):
        layer_alternative(
            torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)), 1, rows=3
        )
