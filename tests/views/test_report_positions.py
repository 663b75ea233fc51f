"""A page of a model with a position bias: few numbers instead of every cell, within the same error."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import identiscope
import reference_page
from identiscope.linalg.thin_position import thin_position
from identiscope.reports.reporting import report_page

LENGTH = 160


def t5(heads: int = 2) -> transformers.T5Model:
    torch.manual_seed(0)
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=heads, vocab_size=50, decoder_start_token_id=0
    )
    return transformers.T5Model(config).eval()


def bloom() -> transformers.BloomModel:
    torch.manual_seed(0)
    return transformers.BloomModel(transformers.BloomConfig(hidden_size=16, n_layer=2, n_head=2, vocab_size=50)).eval()


def page_of(model: torch.nn.Module, kind: str) -> tuple[identiscope.Trace, Any, dict[str, bytes]]:
    ids = torch.randint(3, 50, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    given = {"input_ids": ids} | ({"decoder_input_ids": ids} if hasattr(model, "decoder") else {})
    trace = identiscope.trace(model, given)
    page = report_page(trace, attention=kind, with_verdict=False, canonical="none")
    return trace, page.section("attention")["data"], page.chunks


@pytest.mark.parametrize(
    ("model", "kind", "by"),
    [(t5, "encoder-self", "distance"), (t5, "decoder-self", "distance"), (bloom, "decoder-self", "key")],
)
def test_a_thin_bias_takes_thin_factors(model, kind: str, by: str) -> None:
    trace, shown, chunks = page_of(model(), kind)
    for layer in shown["layers"]:
        site = trace.site(layer["layer"], kind)
        assert site.bias.position is not None
        assert layer["raw"]["factors"] and layer["raw"]["position"]["by"] == by
        for place, head in enumerate(layer["heads"]):
            maps = reference_page.maps(layer, chunks[f"attention.{layer['chunk']}"], place)
            off = np.abs(maps["raw"] - site.attention(head).numpy()).max()
            assert off <= layer["error"]["raw"] < 1.2e-3


def test_a_bias_that_is_of_neither_is_stored_cell_by_cell() -> None:
    generator = np.random.default_rng(0)
    assert thin_position(generator.standard_normal((2, 4, 5)), None, 2, 4, 5) is None
    found = thin_position(generator.standard_normal((1, 1, 5)), None, 2, 4, 5)
    assert found is not None and found.by == "key" and found.values.shape == (2, 5)


def test_what_is_masked_need_not_follow_the_distance() -> None:
    allowed = np.tril(np.ones((4, 4), dtype=bool))
    cells = np.array([[float(key - query) for key in range(4)] for query in range(4)])
    spoilt = np.where(allowed, cells, np.random.default_rng(0).standard_normal((4, 4)))[None]
    assert thin_position(spoilt, None, 3, 4, 4) is None
    found = thin_position(spoilt, allowed, 3, 4, 4)
    assert found is not None and found.values.shape == (3, 7)
    assert np.array_equal(found.of_head(2, 4, 4)[allowed], cells[allowed])
