"""Attention identifiability of causal texts, taken in sums, against every row written out in NumPy float64."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import families
import identiscope
import reference
import reference_attention
import reference_prefixes
from identiscope.runs.compute.batch import Worker, compute_batch, model_shape
from identiscope.runs.compute.options import RunOptions
from tiny_text_model import save_tiny, words

LONG = (families.TEXT * 5)[:47]  # 8 channels a head; many tokens come again
TYPES = {
    "some": np.arange(47) % 5 == 1,
    "most": np.arange(47) % 5 != 1,
    "first": np.arange(47) == 0,
    "all": np.ones(47, bool),
    "none": np.zeros(47, bool),
}


def literal(site: Any, head: int) -> tuple[np.ndarray, Any, np.ndarray]:
    """Raw attention, what each prefix says of T, and the rank of [T,1] by row."""
    value = site.value_of(head).double().numpy()
    projection = site.projection[head].double().numpy()
    raw, precision = reference_attention.attention(site, head), str(site.value.dtype).removeprefix("torch.")
    found = reference_prefixes.prefixes(value, projection, raw, precision)
    scale = reference_prefixes.scale_of_ones(value, projection)
    simplex = reference_prefixes.prefixes(value, projection, raw, precision, ones=scale)
    assert not found.undecided.any() and not simplex.undecided.any()
    return raw, found, simplex.rank


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["GPT-2", "Llama", "GPT-OSS", "Gemma-2", "Bloom"])
@pytest.mark.filterwarnings("ignore:the rank of heads")
def test_all_rows_of_a_causal_text(name: str, dtype: torch.dtype) -> None:
    model: Any = families.ALL[name].model().to(dtype)
    trace = identiscope.trace(model, LONG)
    result = identiscope.attention_identifiability(
        trace, token_types={kind: flags.tolist() for kind, flags in TYPES.items()}
    )
    sites = [site for site in trace.sites if site.mask == "causal"]
    assert sites
    lengths, inside = np.arange(1, 48), np.tril(np.ones((47, 47), bool))
    for site in sites:
        for head in site.heads:
            raw, found, simplex = literal(site, head)
            one, effective = result.sel(layer=site.layer, head=head), found.effective
            assert np.array_equal(one["rank"], found.rank)
            assert np.array_equal(one.null_dimension, lengths - found.rank)
            assert np.array_equal(one.simplex_null_dimension, lengths - simplex)
            assert float(one.free_rows) == np.mean(lengths > simplex)
            tolerance = 1e-9 + found.rounding.max()
            assert np.isclose(one.null_share, reference.null_share(raw, effective), rtol=0, atol=tolerance)
            assert np.isclose(one.correlation, reference.pearson(raw[inside], effective[inside]), atol=tolerance)
            shares = [reference.null_share(a, e) for a, e in zip(raw, effective, strict=True)]
            assert np.allclose(one.row_null_share, shares, rtol=0, atol=tolerance)
            for kind, flags in TYPES.items():
                cells = inside & flags
                of_type = one.sel(type=kind)
                if not cells.any():
                    assert np.isnan(of_type.type_null_share)
                    continue
                share = reference.null_share(raw[cells], effective[cells])
                assert np.isclose(of_type.type_null_share, share, rtol=0, atol=10 * tolerance)
                correlation = reference.pearson(raw[cells], effective[cells])
                assert np.isclose(of_type.type_correlation, correlation, atol=10 * tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [5, 40])
def test_statistics_of_a_causal_text(tmp_path: Path, dtype: torch.dtype, count: int) -> None:
    folder = save_tiny(tmp_path, "LlamaForCausalLM", num_key_value_heads=2)
    model = identiscope.load(folder)
    model.module.to(dtype)
    text = f"{words(count)} w1 w1 {words(4)}"
    options = RunOptions()
    table = compute_batch(Worker(model, options, model_shape(model, options)), [text]).tables[
        "attention_identifiability"
    ]
    trace = identiscope.trace(model, text)
    assert all(site.mask == "causal" for site in trace.sites)
    tokens = len(trace.tokens)
    for site in trace.sites:
        for head in site.heads:
            raw, found, simplex = literal(site, head)
            effective = found.effective
            got = {name: values[0, site.layer, head] for name, values in table.items()}
            assert got["rank"] == found.rank[-1] and got["null_dimension"] == tokens - found.rank[-1]
            assert got["simplex_null_dimension"] == tokens - simplex[-1]
            assert got["free_rows"] == np.mean(np.arange(1, tokens + 1) > simplex)
            expected = {
                "null_share": reference.null_share(raw, effective),
                "correlation": reference.pearson(raw[np.tril_indices(tokens)], effective[np.tril_indices(tokens)]),
                "entropy": float(-(raw * np.log2(np.where(raw > 0, raw, 1))).sum(1).mean()),
                "raw_to_self": np.diagonal(raw).mean(),
                "effective_to_self": np.diagonal(effective).mean(),
                "raw_to_special": raw[:, np.array(trace.main.special)].sum(1).mean(),
                "effective_to_special": effective[:, np.array(trace.main.special)].sum(1).mean(),
            }
            for name, value in expected.items():
                assert got[name] == pytest.approx(value, abs=2e-5), (site.layer, head, name)
