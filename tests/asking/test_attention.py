"""Attention identifiability of a Trace, against the literal NumPy way, on tiny models and on the built-in ones."""

from typing import Any

import numpy as np
import pytest
import torch

import families
import identiscope
import reference
from identiscope.capture.samples import PASSAGE
from identiscope.methods.registry import map_names, method, of_kind
from identiscope.methods.signatures import factored_maps, signature
from identiscope.results import load_result, save_result

LONG = (families.TEXT * 2)[:20]  # 20 tokens, 8 channels a head: free rows, and for causal models identifiable ones too

# All keys, causal with groups, sliding, sinks, soft-cap, relative bias, ALiBi: and each row over its own keys.
CASES = ["BERT", "GPT-2", "Llama", "Mistral", "GPT-OSS", "Gemma-2", "DeBERTa-v2", "Bloom", "DeepSeek-V3"]


def literal(site: Any, head: int, *, simplex: bool = False, bias: bool = True) -> Any:
    """Raw and effective attention, and T, by a full SVD for every row."""
    value = site.value_of(head).double().numpy()
    if not bias:
        value = value - site.value_bias[site.key_value_heads[head]].double().numpy()
    transformed = value @ site.projection[head].double().numpy()
    raw = site.attention(head).numpy()
    return raw, reference.effective(raw, transformed, site.allowed_keys(head).numpy(), simplex=simplex), transformed


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bias", [True, False])
def test_shares_ranks_and_correlations(name: str, bias: bool) -> None:
    trace = identiscope.trace(families.ALL[name].model(), LONG)
    site = trace.site(1)
    if not bias and site.value_bias is None:
        with pytest.raises(identiscope.InputError, match="could not be told"):
            identiscope.attention_identifiability(trace, value_bias=False)
        return
    result = identiscope.attention_identifiability(trace, value_bias=bias)
    for head in site.heads:
        raw, effective, transformed = literal(site, head, bias=bias)
        one = result.sel(layer=1, head=head)
        tolerance = 1e-9 if families.ALL[name].precision == "float64" else 1e-6
        allowed = site.allowed_keys(head).numpy()
        assert np.isclose(one.null_share, reference.null_share(raw, effective), atol=tolerance)
        _, kept, _ = literal(site, head, simplex=True)
        together = np.array([[float(token == word) for word in sorted(set(trace.tokens))] for token in trace.tokens])
        assert together.sum(0).max() > 1
        merged = reference.null_share(raw @ together, kept @ together)
        assert np.isclose(one.merged_null_share, merged, atol=tolerance)
        assert np.isclose(one.correlation, reference.pearson(raw[allowed], effective[allowed]), atol=tolerance)
        for row in range(len(raw)):
            keys = np.flatnonzero(allowed[row])
            rank = reference.rank_of(transformed[keys], 1e-9)
            assert one.isel(query=row)["rank"] == rank
            assert one.isel(query=row).null_dimension == len(keys) - rank
            simplex_rank = reference.rank_of(reference.with_ones(transformed[keys]), 1e-9)
            assert one.isel(query=row).simplex_null_dimension == len(keys) - simplex_rank
            share = reference.null_share(raw[row], effective[row])
            assert np.isclose(one.isel(query=row).row_null_share, share, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_maps(name: str) -> None:
    trace = identiscope.trace(families.ALL[name].model(), LONG)
    site = trace.site(1)
    tolerance = 1e-9 if families.ALL[name].precision == "float64" else 1e-5
    maps = identiscope.attention_maps(trace, 1, 2)
    raw, effective, transformed = literal(site, 2)
    _, span, _ = literal(site, 2, simplex=True)
    assert np.allclose(maps.raw, raw, atol=1e-14)
    assert np.allclose(maps.effective, effective, atol=tolerance)
    assert np.allclose(maps.null, raw - effective, atol=tolerance)
    assert np.allclose(maps.effective_simplex_span, span, atol=tolerance)
    assert np.allclose(maps.effective_simplex_span.sum("key"), raw.sum(1), atol=tolerance)
    for row in range(len(raw)):
        keys = np.flatnonzero(site.allowed_keys(2).numpy()[row])
        shortest = reference.minimum_norm(raw[row, keys], transformed[keys])
        assert np.allclose(maps.canonical.values[row, keys], shortest, atol=1e-7)
        forbidden = np.setdiff1d(np.arange(raw.shape[1]), keys)
        for kind in map_names("weights"):
            assert not maps[kind].values[row, forbidden].any()


def test_maps_in_another_unit_stand_beside_no_weights() -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), LONG)
    assert list(identiscope.attention_maps(trace, 1, 3).data_vars) == list(map_names("weights"))
    assert map_names("weights")[:3] == ("raw", "effective_simplex_span", "canonical")
    assert "weighted_norm" in map_names()


def test_factored_forms_agree_with_the_maps() -> None:
    trace = identiscope.trace(families.ALL["Llama"].model(), LONG)
    maps = identiscope.attention_maps(trace, 1, 3)
    for kind in (one.name for one in factored_maps()):
        factored = identiscope.factored_attention(trace, 1, kind)
        assert np.allclose(factored.dense()[3], maps[kind].values, atol=1e-9)
        assert np.allclose(factored.row(15)[3], maps[kind].values[15], atol=1e-9)
        assert np.isclose(float(factored.cell(15, 4)[3]), maps[kind].values[15, 4], atol=1e-9)
    with pytest.raises(identiscope.InputError, match="factored forms are effective"):
        identiscope.factored_attention(trace, 1, "raw")


def test_maps_of_any_shape_and_of_an_outcome_stand_side_by_side() -> None:
    trace = identiscope.trace(families.ALL["Llama"].model(), LONG)

    def outcome(run: identiscope.Rerun) -> torch.Tensor:
        return run.hidden_states[-1][0, :3].double().sum()

    names = [one.name for one in of_kind("map")]
    maps = identiscope.attention_maps(trace, 1, 3, names, outcome=outcome)
    assert set(maps.data_vars) == set(names) and maps.attrs["options"]["outcome"] == "outcome"
    for name in names:
        needs = any(option.name == "outcome" for option in signature(method(name)).options)
        options: dict[str, Any] = {"outcome": outcome} if needs else {}
        alone = identiscope.ask(name, trace, layers=[1], heads=[3], **options)[name]
        np.testing.assert_allclose(maps[name], alone[0, 0], atol=1e-12)
    factored = ", ".join(one.name for one in factored_maps())
    with pytest.raises(identiscope.InputError, match=rf"factored forms are {factored}\.$"):
        identiscope.factored_attention(trace, 1, "weighted_norm")


def test_a_choice_of_heads_gives_the_same_numbers() -> None:
    model = families.ALL["Llama"].model()
    whole = identiscope.attention_identifiability(identiscope.trace(model, LONG))
    some = identiscope.attention_identifiability(identiscope.trace(model, LONG, heads=[1, 2]))
    assert np.allclose(some.null_share, whole.null_share.sel(head=[1, 2]), atol=1e-12)
    assert np.array_equal(some["rank"], whole["rank"].sel(head=[1, 2]))


def test_shares_by_type_of_token(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, PASSAGE, layers=[3])
    flags = {
        "stop": [token == "." for token in trace.tokens],
        "first": [place == 0 for place in range(len(trace.main))],
    }
    result = identiscope.attention_identifiability(trace, token_types=flags)
    raw, effective, _ = literal(trace.site(3), 7)
    for name, mask in flags.items():
        chosen = np.array(mask)
        expected = reference.null_share(raw[:, chosen], effective[:, chosen])
        one = result.sel(layer=3, head=7, type=name)
        assert np.isclose(one.type_null_share, expected, atol=1e-3)
        expected = reference.pearson(raw[:, chosen].ravel(), effective[:, chosen].ravel())
        assert np.isclose(one.type_correlation, expected, atol=1e-3)
    assert list(identiscope.attention_identifiability(trace).type.values) == ["special", "ordinary"]
    with pytest.raises(identiscope.InputError, match="one flag for each of the 138 keys"):
        identiscope.attention_identifiability(trace, token_types={"short": [True]})


def test_cross_attention_and_the_need_to_say_which() -> None:
    family = families.ALL["BART"]
    trace = identiscope.trace(family.model(), family.inputs())
    with pytest.raises(identiscope.InputError, match=r"say which \(attention or stream"):
        identiscope.attention_identifiability(trace)
    result = identiscope.attention_identifiability(trace, attention="cross")
    assert result.sizes["query"] == 7
    assert (result.null_dimension == 4).all()  # 12 keys, 8 channels
    with pytest.raises(identiscope.InputError, match="no captured layers"):
        identiscope.attention_identifiability(trace, attention="cross", layers=[5])


def test_intervals_contain_the_weight_and_are_attained() -> None:
    trace = identiscope.trace(families.ALL["GPT-2"].model(), LONG)
    site = trace.site(0)
    moved: list[tuple[int, int]] = []
    result = identiscope.attention_intervals(trace, 0, 1, row=18, progress=lambda *step: moved.append(step))
    raw, _, transformed = literal(site, 1)
    assert moved[-1] == (19, 19)
    assert np.allclose(result.weight, raw[18, :19])
    assert (result.lower <= result.weight + 1e-9).all() and (result.weight <= result.upper + 1e-9).all()
    for rows, bounds in ((result.lower_row, result.lower), (result.upper_row, result.upper)):
        assert (rows.values >= -1e-9).all()
        assert np.allclose(rows.values @ transformed, raw[18] @ transformed, atol=1e-9)
        assert np.allclose(rows.values[range(19), result.key.values], bounds.values)
        assert not rows.values[:, 19:].any()
    identifiable = identiscope.attention_intervals(trace, 0, 1, row=5)
    assert np.allclose(identifiable.lower, identifiable.upper)


def test_intervals_come_in_the_order_asked_for() -> None:
    trace = identiscope.trace(families.ALL["GPT-2"].model(), LONG)
    cells = [(18, 2), (4, 1), (18, 0)]
    result = identiscope.attention_intervals(trace, 0, 1, cells=cells)
    assert list(zip(result["query"].values, result["key"].values, strict=True)) == cells
    assert list(result.key_token.values) == [trace.tokens[key] for _, key in cells]
    strongest = identiscope.attention_intervals(trace, 0, 1, top=6).weight.values
    largest = sorted(trace.site(0).attention(1).flatten().tolist(), reverse=True)[:6]
    assert np.allclose(strongest, largest, atol=1e-14)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": []}, "no cells were given"),
        ({"cells": [3]}, r"cells=\[3\] was given; expected a list of tuples of 2 whole numbers"),
        ({"row": 1.5}, r"row=1\.5 was given; expected a whole number or None"),
        ({"row": 20}, "query 20 was asked for, expected one of 0 to 19"),
        ({"top": 0}, "expected between 1 and 400"),
    ],
)
def test_intervals_that_cannot_be_asked_for(options: Any, message: str) -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), LONG)
    with pytest.raises(identiscope.InputError, match=message):
        identiscope.attention_intervals(trace, 0, 1, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama", "GPT-OSS"])
@pytest.mark.filterwarnings("ignore:the rank of heads")
def test_maps_are_those_of_the_map_shown_whatever_the_precision(name: str, dtype: torch.dtype) -> None:
    model: Any = families.ALL[name].model()
    trace = identiscope.trace(model.to(dtype), LONG)
    maps = identiscope.attention_maps(trace, 1, 2, ("raw", "effective", "null", "effective_simplex_span"))
    raw, _, transformed = literal(trace.site(1), 2)
    assert np.array_equal(maps.raw, raw)
    allowed = trace.site(1).allowed_keys(2).numpy()
    found = identiscope.attention_identifiability(trace, layers=[1]).sel(layer=1, head=2)
    for kind, dimension, with_ones in (
        ("effective", found.null_dimension, False),
        ("effective_simplex_span", found.simplex_null_dimension, True),
    ):
        # A direction that the precision of the pass cannot tell from noise is left out: a matter of rank.
        points = [reference.with_ones(transformed[keys]) if with_ones else transformed[keys] for keys in allowed]
        whole = [len(part) - reference.rank_of(part, 1e-9) == int(dimension[row]) for row, part in enumerate(points)]
        assert sum(whole) >= 18
        cells = maps[kind].values
        assert np.allclose((cells @ transformed)[whole], (raw @ transformed)[whole], atol=1e-10)
        if with_ones:
            assert np.allclose(cells.sum(1)[whole], raw.sum(1)[whole], atol=1e-10)
    assert np.allclose(maps.null, maps.raw - maps.effective, atol=1e-14)


def test_results_are_saved_with_what_made_them(tmp_path: Any) -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), LONG)
    result = identiscope.attention_identifiability(trace, layers=[1])
    again = load_result(save_result(result, tmp_path / "result"))
    assert again.identical(result)
    assert again.attrs["options"] == {
        "layers": [1], "heads": None, "attention": None, "stream": None, "value_bias": True, "token_types": None,
        "layer_level": True,
    }  # fmt: skip
    assert again.attrs["model"] == "BertModel"
    assert list(again.query_token.values) == list(trace.tokens)


def test_arrays_are_enough() -> None:
    trace = identiscope.trace(families.ALL["BERT"].model(), LONG)
    site = trace.site(1)
    given = identiscope.from_arrays(site.attentions(), site.value, projection=site.projection)
    ours = identiscope.attention_identifiability(given).null_share.values
    assert np.allclose(ours, identiscope.attention_identifiability(trace, layers=[1]).null_share.values, atol=1e-9)


def test_minilm_on_real_text(minilm: identiscope.Model) -> None:
    """138 tokens, 32 channels: nothing is identifiable, and the numbers are those of the literal way."""
    trace = identiscope.trace(minilm, PASSAGE)
    result = identiscope.attention_identifiability(trace)
    assert (result["rank"] == 32).all()
    assert (result.null_dimension == len(trace.main) - 32).all()
    assert (result.simplex_null_dimension == len(trace.main) - 33).all()
    assert not result.rank_is_uncertain.any()
    raw, effective, _ = literal(trace.site(3), 7)
    assert np.isclose(result.null_share.sel(layer=3, head=7), reference.null_share(raw, effective), atol=1e-4)
    short = identiscope.attention_identifiability(identiscope.trace(minilm, "The cat sat on the mat."))
    assert (short.free_rows == 0).all() and np.allclose(short.null_share, 0, atol=1e-8)
    assert np.allclose(short.correlation, 1, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rank_is_decided_at_the_precision_of_the_pass(dtype: torch.dtype) -> None:
    """The same model in lower precision has the same ranks, though its values are rounded."""
    model: Any = families.ALL["BERT"].model()
    exact = identiscope.attention_identifiability(identiscope.trace(model, LONG))
    rounded = identiscope.attention_identifiability(identiscope.trace(model.to(dtype), LONG))
    assert np.array_equal(exact["rank"], rounded["rank"])


def test_models_that_mix_full_and_sliding_layers() -> None:
    trace = identiscope.trace(families.ALL["ModernBERT"].model(), LONG)
    assert [site.mask for site in trace.sites] == ["none", "other"]
    result = identiscope.attention_identifiability(trace)
    assert result.singular_values.shape == (2, 4, 8)
    assert (result["rank"].sel(layer=0) == 8).all() and (result["rank"].sel(layer=1) <= 8).all()


def test_the_layer_s_null_space_is_that_of_all_heads_over_the_keys_of_the_last_row() -> None:
    model = families.ALL["Mistral"].model()
    result = identiscope.attention_identifiability(identiscope.trace(model, LONG))
    assert (result.layer_null_dimension == 0).all()  # five keys in the window, four heads of eight channels
    full = identiscope.attention_identifiability(identiscope.trace(families.ALL["BERT"].model(), LONG))
    assert (full.layer_null_dimension == 4 * 20 - 32).all()
    some = identiscope.trace(families.ALL["BERT"].model(), LONG, heads=[0])
    assert "layer_null_dimension" not in identiscope.attention_identifiability(some)
    without = identiscope.attention_identifiability(
        identiscope.trace(families.ALL["BERT"].model(), LONG), layer_level=False
    )
    assert set(full.data_vars) - set(without.data_vars) == {
        f"{which}_dimension" for which in ("layer_null", "layer_simplex_null", "separate_null", "separate_simplex_null")
    }
