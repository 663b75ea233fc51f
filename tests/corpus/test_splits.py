"""Splits: by sentence, never straddling, fair to every sentence, and the same for the same seed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.corpus.splits import part_of_training, split_sentences
from identiscope.errors import InputError
from identiscope.methods.token_sentences import Sentences


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
    with pytest.raises(InputError, match="at least one"):
        split_sentences(2)
