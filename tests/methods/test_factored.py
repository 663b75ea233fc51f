"""The factored form reads the same numbers as the dense map, and never builds it."""

from typing import Any

import numpy as np
import pytest
import torch

import reference
from identiscope.errors import InputError
from identiscope.linalg.allowed import sliding
from identiscope.methods.maps import factored
from identiscope.methods.maps.canonical import canonical
from identiscope.methods.maps.effective import effective
from identiscope.methods.maps.factored import rows_of


def build(kind, monkeypatch, block=37):
    monkeypatch.setattr(factored, "_BLOCK_NUMBERS", block)
    generator = np.random.default_rng(0)
    value = torch.from_numpy(generator.standard_normal((2, 24, 3)))
    projection = torch.from_numpy(generator.standard_normal((4, 3, 8)))
    allowed: Any = {"all": None, "causal": "causal", "sliding": sliding(24, 24, 3)}.get(kind)
    matrix = reference.allowed_matrix(kind, 24, 24)
    attention = torch.from_numpy(reference.softmax_rows(generator, 4, matrix))
    raw = rows_of(attention)
    yield effective(value, projection, attention @ value.repeat_interleave(2, 0), allowed=allowed, raw=raw), attention
    yield canonical(value, projection, raw, allowed=allowed), attention


@pytest.mark.parametrize("kind", ["all", "causal", "sliding"])
def test_every_reading_agrees_with_dense(kind, monkeypatch):
    matrix = torch.from_numpy(reference.allowed_matrix(kind, 24, 24))
    mask = torch.arange(24) % 3 == 0
    for found, attention in build(kind, monkeypatch):
        dense = found.dense()
        assert float((found.row(5) - dense[:, 5]).abs().max()) < 1e-14
        assert float((found.cell(7, 6) - dense[:, 7, 6]).abs().max()) < 1e-14
        assert float((found.cell(-1, -1) - dense[:, -1, -1]).abs().max()) < 1e-14
        assert float((found.column_mean() - dense.mean(1)).abs().max()) < 1e-14
        for given in (mask, mask.numpy(), mask.tolist(), tuple(mask.tolist()), mask.flip(0).numpy()[::-1]):
            assert float((found.column_mean(given) - dense[:, mask].mean(1)).abs().max()) < 1e-14
        top = found.top(5)
        for head in range(4):
            inside = dense[head][matrix]
            assert float((top.weight[head] - inside.sort(descending=True).values[:5]).abs().max()) < 1e-14
            assert float((dense[head, top.query[head], top.key[head]] - top.weight[head]).abs().max()) < 1e-14
            expected = reference.pearson(attention[head][matrix].numpy(), inside.numpy())
            assert abs(float(found.correlation_with_raw()[head]) - expected) < 1e-10


def test_only_dense_builds_the_map(monkeypatch):
    """Every other reading asks for raw rows in blocks and keeps none."""
    monkeypatch.setattr(factored, "_BLOCK_NUMBERS", 4 * 24 * 2)
    asked = []
    for found, attention in build("all", monkeypatch, block=4 * 24 * 2):

        def raw(rows, attention=attention):
            asked.append(rows.stop - rows.start)
            return attention[:, rows]

        object.__setattr__(found, "raw", raw)
        found.correlation_with_raw()
    assert max(asked) == 2


def test_raw_is_asked_for_by_name():
    found = effective(torch.ones(1, 3, 1), torch.ones(1, 1, 1), torch.ones(1, 3, 1))
    with pytest.raises(InputError, match="raw="):
        found.correlation_with_raw()
    with pytest.raises(InputError, match="query 3"):
        found.row(3)
    with pytest.raises(InputError, match="top 10"):
        found.top(10)
    wrong: list[tuple[Any, str]] = [
        (
            torch.zeros(3, dtype=torch.bool),
            r"shape \[3\], 0 of it true, was given; expected one true or false for each of 3",
        ),
        ([True, False], r"shape \[2\], 1 of it true"),
        ([0, 2], "mask of int64 was given.*positions are no mask"),
        (["a", "b", "c"], "query mask .*'b'.* was given; expected one true or false"),
        ([[True], [True, False]], "query mask .* was given; expected one true or false"),
    ]
    for mask, words in wrong:
        with pytest.raises(InputError, match=words):
            found.column_mean(mask)


def test_top_with_fewer_allowed_cells_than_asked_for():
    found = effective(
        torch.ones(1, 2, 1), torch.ones(1, 1, 1), torch.ones(1, 2, 1), allowed="causal"
    ).top(4)  # fmt: skip
    assert found.weight.tolist()[0][:3] == pytest.approx([1.0, 0.5, 0.5])
    assert float(found.weight[0, 3]) == 0
