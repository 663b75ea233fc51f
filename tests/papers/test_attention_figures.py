"""The attention figures: every number against a loop over cells."""

from typing import Any

import numpy as np
import pytest
import torch

import identiscope
import reference
from identiscope.papers.brunner2020.attention_figures import TYPES, token_types

TEXTS = [
    ("The cat, who was old, sat on the mat.", "It slept there all day, and dreamt."),
    "A very short one.",
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, and so on it went,"
    " until nobody could say any more where it had begun, or why.",
]


def effective_map(site: identiscope.Site, head: int) -> np.ndarray:
    transformed = site.value_of(head).double().numpy() @ site.projection[head].double().numpy()
    raw = site.attention(head).numpy()
    return reference.effective(raw, transformed, np.ones(raw.shape, dtype=bool), relative=1e-6)


def test_correlation_by_length(minilm: identiscope.Model) -> None:
    steps: list[tuple[int, int]] = []
    result = identiscope.correlation_by_length(minilm, TEXTS, progress=lambda *step: steps.append(step))
    assert steps == [(1, 3), (2, 3), (3, 3)]
    traces = [identiscope.trace(minilm, text) for text in TEXTS]
    assert result.length.values.tolist() == [len(trace.main) for trace in traces]
    for number, trace in enumerate(traces):
        site = trace.site(2)
        expected = reference.pearson(site.attention(4).numpy().ravel(), effective_map(site, 4).ravel())
        assert np.isclose(result.correlation[number, 2, 4], expected, atol=1e-4)
    assert np.allclose(result.correlation[1], 1, atol=1e-6)  # 7 tokens: identifiable
    assert (result.correlation[2] < 0.99).any()


def test_token_types(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, TEXTS[0])
    masks = token_types(minilm, trace.main)
    assert masks.sum(0).tolist() == [1] * len(trace.main)
    named = {
        kind: [token for token, flag in zip(trace.tokens, mask, strict=True) if flag]
        for kind, mask in zip(TYPES, masks, strict=True)
    }
    assert named["[CLS]"] == ["[CLS]"]
    assert named["[SEP]"] == ["[SEP]", "[SEP]"]
    assert sorted(named[". or ,"]) == [",", ",", ",", ".", "."]


def test_attention_between_types(minilm: identiscope.Model) -> None:
    result = identiscope.attention_between_types(minilm, TEXTS)
    layer, head = 3, 5
    for source in ("all", "other", "[SEP]"):
        for goal in TYPES:
            sums = {"raw": 0.0, "effective": 0.0}
            count = 0
            for text in TEXTS:
                trace = identiscope.trace(minilm, text)
                masks = dict(zip(TYPES, token_types(minilm, trace.main).numpy(), strict=True))
                site = trace.site(layer)
                maps = {"raw": site.attention(head).numpy(), "effective": effective_map(site, head)}
                for query in range(len(trace.main)):
                    if source == "all" or masks[source][query]:
                        count += 1
                        for kind, weights in maps.items():
                            sums[kind] += sum(weights[query, key] for key in range(len(trace.main)) if masks[goal][key])
            for kind, total in sums.items():
                ours = float(result[kind].sel({"from": source, "to": goal})[layer, head])
                assert np.isclose(ours, total / count, atol=1e-4)
    assert np.allclose(result.raw.sel({"from": "all"}).sum("to"), 1, atol=1e-6)


def test_a_type_that_no_token_has_is_not_a_number(minilm: identiscope.Model) -> None:
    result = identiscope.attention_between_types(minilm, ["No stop here"])
    assert bool(np.isnan(result.raw.sel({"from": ". or ,"})).all())
    assert bool((result.raw.sel({"from": "all", "to": ". or ,"}) == 0).all())


def test_passage_maps_mark_the_strongest_effective_cell(minilm: identiscope.Model) -> None:
    result = identiscope.passage_maps(minilm, TEXTS[2], 4, 2)
    values = result.effective.values.copy()
    np.fill_diagonal(values, -np.inf)
    assert values[result.attrs["strongest_query"], result.attrs["strongest_key"]] == values.max()
    assert torch.allclose(
        torch.from_numpy(result.raw.values), torch.from_numpy((result.effective + result.null).values)
    )


def test_one_text_is_not_a_list(minilm: identiscope.Model) -> None:
    wrong: list[Any] = ["one text", ("a", "pair"), []]
    for texts in wrong:
        with pytest.raises(identiscope.InputError, match=r"expected a list|list of texts"):
            identiscope.correlation_by_length(minilm, texts)
