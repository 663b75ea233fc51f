"""Attention statistics of batches against the analyses of one text at a time, cell by cell."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import identiscope
import reference
from identiscope.linalg.rank.full_rank import full_column_rank, head_products, independent_rows
from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.methods.heads.attention_rank import attention_rank
from identiscope.runs.compute import attention_from_gram
from identiscope.runs.compute.batch import Worker, compute_batch, model_shape
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.methods import RUN_METHODS
from identiscope.runs.compute.options import RunOptions
from identiscope.token_text import is_punctuation
from tiny_text_model import save_tiny, words

PASSAGE = (
    "The lighthouse keeper wrote a letter to his sister every Sunday, although no ship had come to the island since the"
    " storm. He told her about the birds that nested under the lamp, and about the bread he had burnt."
)


def merged_null_share(tokens: Any, raw: np.ndarray, kept: np.ndarray) -> float:
    """Literally: columns of equal tokens added up, in all rows or in 160 from the first to the last."""
    together = np.array([[float(token == word) for word in sorted(set(tokens))] for token in tokens])
    rows = np.unique(np.round(np.linspace(0, len(raw) - 1, min(len(raw), 160))).astype(int))
    return reference.null_share(raw[rows] @ together, kept[rows] @ together)


def expected(model: identiscope.Model, text: Any, layer: int, head: int) -> dict[str, float]:
    """The same columns, literally: from whole maps of one text."""
    trace = identiscope.trace(model, text)
    found = identiscope.attention_identifiability(trace).sel(layer=layer, head=head)
    maps = identiscope.attention_maps(trace, layer, head, ["raw", "effective", "effective_simplex_span"])
    tokens, special = trace.tokens, np.array(trace.main.special)
    point = np.array([is_punctuation(token) for token in tokens]) & ~special
    types = {
        "special": special,
        "cls": np.array([token == model.tokenizer.cls_token for token in tokens]),
        "sep": np.array([token == model.tokenizer.sep_token for token in tokens]),
        "punctuation": point,
        "other": ~special & ~point,
    }
    raw = maps.raw.values
    values = {
        "rank": float(found["rank"][-1]),
        "null_dimension": float(found.null_dimension[-1]),
        "simplex_null_dimension": float(found.simplex_null_dimension[-1]),
        "free_rows": float(found.free_rows),
        "simplex_null_share": float(found.simplex_null_share),
        "simplex_correlation": float(found.simplex_correlation),
        "merged_null_share": merged_null_share(tokens, raw, maps.effective_simplex_span.values),
        "null_share": float(found.null_share),
        "correlation": float(found.correlation),
        "entropy": float(-(raw * np.log2(np.where(raw > 0, raw, 1))).sum(1).mean()),
    }
    for kind, map_name in (("raw", "raw"), ("simplex", "effective_simplex_span"), ("effective", "effective")):
        cells = maps[map_name].values
        for name, flags in types.items():
            values[f"{kind}_to_{name}"] = float(cells[:, flags].sum(1).mean()) if flags.any() else np.nan
        values[f"{kind}_to_self"] = float(np.diagonal(cells).mean())
    return values


def check(model: identiscope.Model, texts: list[Any], cells: list[tuple[int, int]]) -> None:
    options = RunOptions()
    found = compute_batch(Worker(model, options, model_shape(model, options)), texts).tables[
        "attention_identifiability"
    ]
    assert set(found) == {column.name for column in RUN_METHODS["attention_identifiability"].columns}
    for number, text in enumerate(texts):
        for layer, head in cells:
            for name, value in expected(model, text, layer, head).items():
                got = found[name][number, layer, head]
                assert got == pytest.approx(value, abs=2e-5, nan_ok=True), (number, layer, head, name)


def test_padded_batches_of_short_and_long_texts(minilm: identiscope.Model) -> None:
    """Fewer tokens than d_v = 32, about as many, and more; a pair; one word."""
    sentences = PASSAGE.split(". ")
    texts = ["Yes", sentences[0], (sentences[0], sentences[1]), PASSAGE]
    check(minilm, texts, [(0, 3), (3, 7), (5, 11)])


@pytest.mark.filterwarnings("ignore:the rank of heads")
def test_as_many_tokens_as_channels_are_taken_together(
    minilm: identiscope.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A square T of full rank leaves nothing null, which the bound proves in most layers: those need no spectrum."""
    words_of = PASSAGE.split(" ")
    text = next(
        text
        for text in (" ".join(words_of[:count]) for count in range(len(words_of)))
        if len(minilm.tokenizer(text)["input_ids"]) == 32
    )
    alone: list[int] = []
    factorised = attention_from_gram._from_spectrum

    def counted(part: Any, texts: torch.Tensor, *given: Any) -> None:
        alone.extend(set(texts.tolist()))
        factorised(part, texts, *given)

    monkeypatch.setattr(attention_from_gram, "_from_spectrum", counted)
    check(minilm, [text, "Yes"], [(0, 3), (5, 11)])
    assert len(alone) < 3  # of six layers


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("BertModel", {}),
        ("BertModel", {"num_attention_heads": 2, "hidden_size": 8}),
        ("LlamaForCausalLM", {"num_key_value_heads": 2}),
        ("MistralForCausalLM", {"num_key_value_heads": 2, "sliding_window": 5}),
        ("T5EncoderModel", {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 48}),
        ("DistilBertModel", {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}),
        ("Gemma2ForCausalLM", {"num_key_value_heads": 2, "head_dim": 8}),
    ],
)
def test_masks_groups_and_position_biases(tmp_path: Path, architecture: str, options: dict[str, Any]) -> None:
    model = identiscope.load(save_tiny(tmp_path, architecture, **options))
    check(model, [words(4), words(7), words(20), (words(9), words(12))], [(0, 0), (1, 1)])


@pytest.mark.parametrize(
    ("architecture", "options"),
    [("BertModel", {}), ("LlamaForCausalLM", {}), ("MistralForCausalLM", {"num_key_value_heads": 2})],
)
def test_of_long_texts_some_rows_stand_for_all_where_equal_tokens_are_added_up(
    tmp_path: Path, architecture: str, options: dict[str, Any]
) -> None:
    model = identiscope.load(save_tiny(tmp_path, architecture, max_position_embeddings=256, **options))
    check(model, [words(12), " ".join([words(30)] * 7)], [(1, 1)])


def test_a_repeated_token_has_a_rank_that_no_bound_proves(tmp_path: Path) -> None:
    """Equal rows without positions: T has rank far below both sides, and the slow way must see it."""
    model = identiscope.load(save_tiny(tmp_path, "LlamaModel", num_key_value_heads=4, is_causal=False))
    check(model, ["w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1", "w1 w2"], [(0, 0), (1, 3)])


def test_only_some_layers_and_heads(minilm: identiscope.Model) -> None:
    whole, part = (
        RunOptions(methods=("attention_identifiability", "tokens")),
        RunOptions(methods=("attention_identifiability", "tokens"), layers=(2, 5), heads=(1, 7)),
    )
    every = compute_batch(Worker(minilm, whole, model_shape(minilm, whole)), [PASSAGE, "Two words"]).tables
    some = compute_batch(Worker(minilm, part, model_shape(minilm, part)), [PASSAGE, "Two words"]).tables
    for name, values in some["attention_identifiability"].items():
        np.testing.assert_allclose(
            values, every["attention_identifiability"][name][:, [2, 5]][:, :, [1, 7]], atol=1e-12
        )
    np.testing.assert_array_equal(
        some["token_identifiability"]["identified_l2"], every["token_identifiability"]["identified_l2"][:, [2, 5]]
    )


def test_bounds_prove_only_what_a_spectrum_shows() -> None:
    """Over random values of falling rank and scale, what is proven is what the singular values say."""
    generator = torch.Generator().manual_seed(0)
    proven = 0
    for trial in range(60):
        channels, keys = 6, int(torch.randint(2, 14, (), generator=generator))
        rank = int(torch.randint(1, channels + 1, (), generator=generator))
        value = torch.randn(2, keys, rank, generator=generator) @ torch.randn(2, rank, channels, generator=generator)
        value = (value * 10.0 ** torch.randint(-3, 4, (), generator=generator)).double()
        projection = torch.randn(4, channels, 10, generator=generator)
        if trial % 5 == 0:
            projection[1, 0] = projection[1, 1]
        heads = head_products(projection_factor(projection))
        found = attention_rank(value, projection, precision=torch.float32)
        lengths = torch.tensor([keys])
        if keys >= channels:
            sums = value.sum(1)[None]
            bound = full_column_rank((value.mT @ value)[None], sums, lengths, heads, torch.float32)
            for head in bound.proven[0].nonzero()[:, 0].tolist():
                assert int(found.spectrum.rank[head]) == channels
                assert int(found.simplex_spectrum.rank[head]) == int(bound.simplex_rank[0, head])
                proven += 1
        else:
            for head in independent_rows(value[None], lengths, heads, torch.float32)[0].nonzero()[:, 0].tolist():
                assert int(found.spectrum.rank[head]) == int(found.simplex_spectrum.rank[head]) == keys
                proven += 1
    assert proven > 40


def test_types_of_tokens() -> None:
    assert BatchTokens.TYPES[0] == "special"
    assert [is_punctuation(token) for token in (",", "Ġ.", "▁«", "##'", "##s", "a.", "", "Ġ")] == [
        True, True, True, True, False, False, False, False,
    ]  # fmt: skip
