"""Splits: by sentence, never straddling, fair to every sentence, and the same for the same seed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.corpus.splits import part_of_training, split_sentences
from identiscope.errors import InputError
from identiscope.methods.tokens.sentences import Sentences


@settings(deadline=None, max_examples=40)
@given(count=st.integers(20, 300), folds=st.integers(1, 12), seed=st.integers(0, 999))
def test_no_sentence_straddles_and_none_is_forgotten(count: int, folds: int, seed: int) -> None:
    tested = torch.zeros(count, dtype=torch.long)
    lengths = torch.randint(1, 9, (count,), generator=torch.Generator().manual_seed(seed))
    sentences = Sentences(lengths)
    for split in split_sentences(count, folds=folds, seed=seed):
        parts = [split.train, split.validation, split.test]
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(count))
        owners = [set(sentences.sentence[sentences.rows(part)].tolist()) for part in parts]
        assert not (owners[0] & owners[1] or owners[0] & owners[2] or owners[1] & owners[2])
        assert sum(len(sentences.rows(part)) for part in parts) == sentences.tokens
        assert len(split.test) == round(0.15 * count) and len(split.validation) == round(0.15 * count)
        tested[split.test] += 1
    if folds == 10 and count >= 100:
        assert int(tested.min()) >= 1 and int(tested.max()) <= 2


@settings(deadline=None, max_examples=60)
@given(
    repeats=st.lists(st.integers(1, 6), min_size=20, max_size=80), folds=st.integers(1, 12), seed=st.integers(0, 999)
)
def test_equal_texts_stand_on_one_side(repeats: list[int], folds: int, seed: int) -> None:
    texts = [(f"text {number}",) for number, times in enumerate(repeats) for _ in range(times)]
    texts = [texts[place] for place in torch.randperm(len(texts)).tolist()]
    tested = torch.zeros(len(texts), dtype=torch.long)
    for split in split_sentences(len(texts), folds=folds, seed=seed, texts=texts):
        parts = [split.train, split.validation, split.test]
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(texts)))
        said = [{texts[place] for place in part.tolist()} for part in parts]
        assert not (said[0] & said[1] or said[0] & said[2] or said[1] & said[2])
        # Each end of a set moves by half a group at most.
        assert all(abs(len(part) - 0.15 * len(texts)) <= max(repeats) + 0.5 for part in parts[1:])
        tested[split.test] += 1
    if folds >= 10:
        assert int(tested.min()) >= 1


def test_texts_that_all_differ_change_nothing() -> None:
    plain, told = split_sentences(47, seed=3), split_sentences(47, seed=3, texts=[f"{place}" for place in range(47)])
    for one, other in zip(plain, told, strict=True):
        assert all(torch.equal(part, vars(other)[name]) for name, part in vars(one).items())


def test_texts_of_another_number_are_refused() -> None:
    with pytest.raises(InputError, match="3 texts were given for 20"):
        split_sentences(20, texts=["a", "b", "c"])


def test_too_few_different_texts_are_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        split_sentences(40, texts=["same"] * 40)


def test_seeds() -> None:
    one, same, other = (split_sentences(50, seed=seed)[3] for seed in (0, 0, 1))
    assert torch.equal(one.test, same.test) and not torch.equal(one.test, other.test)


def test_parts_of_training_are_nested_and_leave_the_rest_alone() -> None:
    split = split_sentences(100, folds=1)[0]
    half, most = part_of_training(split, 0.5), part_of_training(split, 0.9)
    assert len(half.train) == 35 and set(half.train.tolist()) < set(most.train.tolist()) < set(split.train.tolist())
    assert torch.equal(half.test, split.test)
    with pytest.raises(InputError, match="share"):
        part_of_training(split, 0.0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="sum to 1"):
        split_sentences(20, train=0.9)
    with pytest.raises(InputError, match="one for each at most"):
        split_sentences(2)


@pytest.mark.parametrize("texts", ["aabcd", "aabbc", "aaaaaaabcd", "abbbbbcc"])
@pytest.mark.parametrize("folds", [1, 2, 5])
def test_few_texts_of_which_some_are_repeated_are_split_where_they_can_be(texts: str, folds: int) -> None:
    for split in split_sentences(len(texts), folds=folds, texts=list(texts)):
        parts = [split.train, split.validation, split.test]
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(texts)))
        said = [{texts[place] for place in part.tolist()} for part in parts]
        assert all(said) and not (said[0] & said[1] or said[0] & said[2] or said[1] & said[2])
    with pytest.raises(InputError, match="Give more sentences that differ"):
        split_sentences(5, folds=1, texts=list("aabbb"))
