"""Structure of traces: W of heads, shared subspaces by length, and equivalence under two texts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import families
import identiscope
import reference_structure as reference
from identiscope.asking.structure.equivalence import equivalence_under_texts
from identiscope.asking.structure.extracting import extract_structure, structure_cells, structure_weights
from identiscope.asking.structure.subspaces import SharedSubspaces, structural_maps
from identiscope.errors import InputError
from identiscope.results import load_result, save_result

TEXTS = [("A cat sat on the mat.", "It slept."), ("Dogs bark.", "Nobody knows why they do so."), ("One.", "Two words.")]
SAME = ["a b c d e", "f g h i j", "k l m n o"]


@pytest.fixture(scope="module")
def traces(minilm: identiscope.Model) -> list[identiscope.Trace]:
    return [identiscope.trace(minilm, text) for text in TEXTS]


@pytest.fixture(scope="module")
def same(minilm: identiscope.Model) -> list[identiscope.Trace]:
    return [identiscope.trace(minilm, text, layers=[0, 3]) for text in SAME]


def test_absolute_structure_is_the_literal_one(same: list[identiscope.Trace]) -> None:
    result = extract_structure(same, layout="absolute")
    assert result.structure.dims == ("layer", "head", "query", "key") and result.attrs["texts"] == 3
    for layer in (0, 3):
        for head in (0, 7):
            maps = [one.site(layer).attention(head).numpy() for one in same]
            one = result.sel(layer=layer, head=head)
            assert np.allclose(one["mean"], sum(maps) / 3, atol=1e-12)
            assert np.allclose(one.structure, reference.extraction(maps, float(one.threshold)), atol=1e-12)
            mean = np.mean(maps, 0)
            on_it = mean[mean >= float(one.threshold)].sum() / mean.sum()
            assert float(one.weight_on_structure) == pytest.approx(on_it, rel=1e-9)
            assert np.allclose(structure_weights(result, same[1], layer, head), one.structure, atol=1e-12)
            assert np.array_equal(structure_cells(result, same[1], layer, head), one.structure.values > 0)


def test_relative_structure_is_the_literal_one(traces: list[identiscope.Trace]) -> None:
    result = extract_structure(traces, layout="relative", layers=[0])
    maps = [one.site(0).attention(2).numpy() for one in traces]
    expected = reference.relative_extraction(maps)
    one = result.sel(layer=0, head=2)
    query, key = np.indices(one["mean"].shape)
    literal = np.vectorize(expected.get)(key - query)
    assert np.allclose(one["mean"], literal, atol=1e-12)
    assert np.allclose(
        one.structure,
        reference.normalise_rows(reference.cut(literal, float(one.threshold), lambda value: 0.0)),
        atol=1e-12,
    )
    # The head of the built-in model that looks at the token before.
    assert str(one.pattern.values) == "previous" and float(one.pattern_score.sel(kind_of_pattern="previous")) > 0.9


def test_weights_fit_a_text_of_any_length(minilm: identiscope.Model, traces: list[identiscope.Trace]) -> None:
    result = extract_structure(traces, layers=[2])
    other = identiscope.trace(minilm, ("Quite another text, longer than the others.", "And more of it."))
    weights = structure_weights(result, other, 2, 4)
    assert weights.shape == (len(other.tokens), len(other.tokens))
    assert bool((weights.sum(1) <= 1 + 1e-12).all()) and float(weights.max()) > 0
    positive = structure_weights(result, other, 2, 4, epsilon=0.01)
    assert float(positive.min()) == pytest.approx(0.01) and torch.allclose(positive - 0.01, weights)
    everything = structure_weights(result, traces[0], 2, 4, threshold=0.0)
    assert float(everything.min()) > 0


def test_penalty_and_threshold_are_used(same: list[identiscope.Trace]) -> None:
    plain = extract_structure(same, layout="absolute", layers=[0], threshold=0.2)
    soft = extract_structure(same, layout="absolute", layers=[0], threshold=0.2, penalty=0.5)
    assert set(np.unique(plain.threshold)) == {0.2} and not np.allclose(plain.recommended, 0.2)
    mean = plain["mean"].sel(layer=0, head=1).values
    expected = reference.normalise_rows(reference.cut(mean, 0.2, lambda value: 0.5 * value))
    assert np.allclose(soft.structure.sel(layer=0, head=1), expected, atol=1e-12)
    assert float(soft.zero_weights.max()) == 0 < float(plain.zero_weights.min())
    assert np.array_equal(structure_cells(soft, same[0], 0, 1), mean >= 0.2)


def test_causal_maps_and_saved_results(tmp_path: Path) -> None:
    model = families.ALL["GPT-2"].model()
    traces = [identiscope.trace(model, families.TEXT[:length]) for length in (12, 7)]
    result = extract_structure(traces)
    upper = np.triu(np.ones((result.sizes["query"],) * 2, dtype=bool), 1)
    assert not result.structure.values[..., upper].any()
    kept = load_result(save_result(result, tmp_path / "structure.safetensors"))
    assert np.array_equal(kept.pattern.values.astype(str), result.pattern.values.astype(str))
    assert torch.equal(structure_weights(kept, traces[0], 1, 2), structure_weights(result, traces[0], 1, 2))


def test_extraction_refuses_what_it_cannot_do(traces: list[identiscope.Trace], same: list[identiscope.Trace]) -> None:
    with pytest.raises(InputError, match="cannot be averaged cell by cell"):
        extract_structure(traces, layout="absolute")
    with pytest.raises(InputError, match="at least one text"):
        extract_structure([])
    with pytest.raises(InputError, match="0 ≤ penalty < 1"):
        extract_structure(traces, penalty=1.0)
    result = extract_structure(same, layout="absolute")
    with pytest.raises(InputError, match="is not in this result"):
        structure_weights(result, same[0], 1, 0)
    with pytest.raises(InputError, match="the text's are"):
        structure_weights(result, traces[0], 0, 0)
    with pytest.raises(InputError, match="expected one of extract_structure"):
        structure_weights(result.assign_attrs(method="other"), same[0], 0, 0)
    with pytest.raises(InputError, match="epsilon"):
        structure_weights(result, same[0], 0, 0, epsilon=-1.0)
    with pytest.raises(InputError, match="different layers or heads"):
        extract_structure([same[0], traces[0]], layout="aligned")


@pytest.fixture(scope="module")
def tiny() -> list[identiscope.Trace]:
    """Six texts of 12 tokens and two of 9, of a tiny model with heads of width 8."""
    model = families.ALL["BERT"].model()
    generator = torch.Generator().manual_seed(0)
    texts = [
        torch.randint(3, families.VOCABULARY, (12 if n < 6 else 9,), generator=generator).tolist() for n in range(8)
    ]
    return [identiscope.trace(model, text) for text in texts]


def gathered(traces: list[identiscope.Trace], **options: object) -> SharedSubspaces:
    found = SharedSubspaces(**options)  # type: ignore[arg-type]
    for one in traces:
        found = found.add(one)
    return found


def test_each_length_has_a_space_of_its_own(tiny: list[identiscope.Trace]) -> None:
    found = gathered(tiny)
    assert found.lengths() == [12, 9] and found.used == 8
    assert repr(found).startswith("SharedSubspaces(8 texts, keys 9, 12, ")
    summary = found.summary()
    assert summary.samples.values.tolist() == [2, 6]
    # Twelve keys and values of width 8: two texts fill the space.
    assert bool((summary.filled_at.sel(length=12) == 2).all() and (summary.dimension.sel(length=12) == 12).all())
    for layer in (0, 1):
        for head in (0, 3):
            samples = []
            for one in tiny[:6]:
                site = one.site(layer)
                samples.append((site.value_of(head) @ site.projection[head]).numpy())
            values = np.linalg.eigvalsh(reference.mean_projector(samples))[::-1]
            assert np.allclose(summary.eigenvalue.sel(length=12, layer=layer, head=head), values, atol=1e-10)
            assert float(summary.mean_rank.sel(length=12, layer=layer, head=head)) == pytest.approx(8)
    assert bool(np.isnan(summary.eigenvalue.sel(length=9).values[..., 9:]).all())


def test_a_common_length_counts_what_it_leaves_out(tiny: list[identiscope.Trace]) -> None:
    skipped = gathered(tiny, length=9)
    assert (skipped.used, skipped.shorter, skipped.longer) == (2, 0, 6)
    assert (gathered(tiny, length=12).used, gathered(tiny, length=12).shorter) == (6, 2)
    first = gathered(tiny, length=9, when_longer="first_keys")
    assert (first.used, first.longer) == (8, 6) and first.summary().samples.item() == 8
    site = tiny[0].site(1)
    sample = (site.value_of(2)[:9] @ site.projection[2]).numpy()
    alone = gathered(tiny[:1], length=9, when_longer="first_keys")
    assert np.allclose(alone.of(1, 9).mean_projector[2], reference.projector(sample), atol=1e-10)
    with pytest.raises(InputError, match="no length has 2 texts"):
        gathered(tiny, length=7).summary()


def test_shards_merge_to_the_whole_also_through_arrays(tiny: list[identiscope.Trace]) -> None:
    whole, parts = gathered(tiny), [gathered(tiny[:3]), gathered(tiny[3:7]), gathered(tiny[7:])]
    merged = SharedSubspaces()
    for part in parts:
        merged = merged.merge(SharedSubspaces().with_arrays(part.arrays()))
    for name, values in whole.summary().data_vars.items():
        assert np.allclose(values, merged.summary()[name], atol=1e-10, equal_nan=True), name
    assert (merged.used, merged.heads) == (8, whole.heads)
    with pytest.raises(InputError, match="different length cannot be merged"):
        whole.merge(SharedSubspaces(length=9))


def test_structural_maps_lie_between_effective_and_raw(tiny: list[identiscope.Trace]) -> None:
    found = gathered(tiny[:1])
    maps = structural_maps(tiny[0], 1, 2, found)
    # R of this text alone is its own column space: nothing is ignored.
    assert np.allclose(maps.effective_structural, maps.effective, atol=1e-9)
    assert maps.attrs["ignored_dimension"] == 0 and maps.attrs["ignored_attention"] == 0
    more = structural_maps(tiny[0], 1, 2, gathered(tiny))
    assert np.allclose(more.effective_structural, more.raw, atol=1e-9)  # R is the whole space
    assert more.attrs["ignored_dimension"] == 4
    null = more.raw.values - more.effective.values
    assert more.attrs["ignored_attention"] == pytest.approx((null**2).sum() / (more.raw.values**2).sum(), rel=1e-6)
    soft = structural_maps(tiny[0], 1, 2, gathered(tiny), cut=0.7)
    assert 0 < soft.attrs["dimension"] < 12 and soft.ignored_share.shape == (soft.attrs["dimension"],)
    with pytest.raises(InputError, match="no text of 9 keys"):
        structural_maps(tiny[6], 1, 2, gathered(tiny[:2]))
    with pytest.raises(InputError, match="head 9"):
        structural_maps(tiny[0], 1, 9, found)


def test_values_without_their_bias(tiny: list[identiscope.Trace]) -> None:
    plain, without = gathered(tiny[:2]), gathered(tiny[:2], value_bias=False)
    sites: list[Any] = [one.site(0) for one in tiny[:2]]
    samples = [((one.value_of(1) - one.value_bias[1]) @ one.projection[1]).numpy() for one in sites]
    assert np.allclose(without.of(0, 12).mean_projector[1], reference.mean_projector(samples), atol=1e-9)
    assert not np.allclose(plain.of(0, 12).mean_projector[1], without.of(0, 12).mean_projector[1], atol=1e-3)


def test_equivalent_under_one_text_and_not_under_another(minilm: identiscope.Model) -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    first, second = (identiscope.trace(minilm, " ".join(order * 5), layers=[2]) for order in (words, words[::-1]))
    other = identiscope.attention_alternative(first, 2, 3, rows=[4, 9])
    found = equivalence_under_texts(first, second, 2, 3, other)
    assert found.holds.sel(input="first").values.all() and not found.holds.sel(input="second").values.any()
    assert float(found.output_difference.sel(input="second")) > 1e3 * float(found.output_difference.sel(input="first"))
    short = identiscope.trace(minilm, "one two", layers=[2])
    with pytest.raises(InputError, match="the same number of tokens"):
        equivalence_under_texts(first, short, 2, 3, other)
