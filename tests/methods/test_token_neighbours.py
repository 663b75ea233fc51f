"""Nearest neighbours inside the sentence: against the literal definition, with ties, repeats and neighbours."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_tokens as reference
from identiscope.errors import InputError, MathError
from identiscope.methods.tokens import neighbours as token_neighbours
from identiscope.methods.tokens.identification import identify_tokens, random_guess
from identiscope.methods.tokens.neighbours import Metric, nearest_in_sentence
from identiscope.methods.tokens.sentences import Sentences, Split


def arrays(lengths: list[int], width: int, seed: int, levels: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Predicted and candidate vectors; with few levels, ties and repeats are common and exact."""
    draw = np.random.default_rng(seed)
    shape = (sum(lengths), width)
    values = [draw.standard_normal(shape) if levels is None else draw.integers(0, levels, shape) for _ in range(2)]
    one, other = (torch.tensor(np.asarray(value, dtype=np.float64)) for value in values)
    return one, other


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    width=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    metric=st.sampled_from(["cosine", "l2"]),
    offset=st.integers(-3, 3),
)
def test_matches_the_definition(lengths: list[int], width: int, seed: int, metric: Metric, offset: int) -> None:
    predicted, inputs = arrays(lengths, width, seed)
    if width == 1 and metric == "cosine":
        return  # every cosine is ±1: only rounding would decide
    found = identify_tokens(predicted, inputs, torch.tensor(lengths), metric=metric, offset=offset)
    expected = reference.identified(predicted.numpy(), inputs.numpy(), lengths, metric, offset)
    answers = sorted(zip(found.rows.tolist(), found.nearest.tolist(), found.identified.tolist(), strict=True))
    assert answers == expected


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), seed=st.integers(0, 10**6))
def test_ties_and_repeats_in_exact_numbers(lengths: list[int], seed: int) -> None:
    predicted, inputs = arrays(lengths, 2, seed, levels=2)  # small whole numbers: L2 scores are exact
    found = identify_tokens(predicted, inputs, torch.tensor(lengths), metric="l2")
    expected = reference.identified(predicted.numpy(), inputs.numpy(), lengths, "l2")
    assert [row for row, _, _ in expected] == found.rows.tolist()
    assert [right for _, _, right in expected] == found.identified.tolist()
    start = 0
    ties = []
    for length in lengths:
        for place in range(length):
            away = [((predicted[start + place] - inputs[start + other]) ** 2).sum() for other in range(length)]
            ties.append(sum(value == min(away) for value in away) > 1)
        start += length
    assert found.tied.tolist() == ties


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    metric=st.sampled_from(["cosine", "l2"]),
    large=st.sampled_from([0.0, 100.0, 3000.0, 1e5]),
    everywhere=st.booleans(),
)
def test_float32_is_answered_exactly_where_one_channel_is_large(
    seed: int, metric: Metric, large: float, everywhere: bool
) -> None:
    """In all vectors, or in the first of each sentence alone: what tells the rest apart is lost in float32."""
    draw = np.random.default_rng(seed)
    lengths = [5, 12, 9]
    inputs = draw.standard_normal((sum(lengths), 24)).astype(np.float32)
    inputs[slice(None) if everywhere else [0, 5, 17], 3] += np.float32(large)
    predicted = (inputs + 0.1 * draw.standard_normal(inputs.shape)).astype(np.float32)
    found = identify_tokens(torch.from_numpy(predicted), torch.from_numpy(inputs), torch.tensor(lengths), metric=metric)
    expected = reference.identified(predicted.astype(np.float64), inputs.astype(np.float64), lengths, metric)
    answers = sorted(zip(found.rows.tolist(), found.nearest.tolist(), found.identified.tolist(), strict=True))
    assert answers == expected
    if metric == "l2":
        assert found.rate == 1.0 and not bool(found.tied.any())


def test_vectors_whose_squares_overflow_are_told_apart() -> None:
    inputs = torch.tensor([[1e20, 1.0], [-1e20, 1.0], [3e20, 0.0]])
    found = nearest_in_sentence(inputs, inputs, Sentences(torch.tensor([3])), metric="l2")
    assert found.nearest.tolist() == [0, 1, 2]


def test_a_repeated_vector_is_identified_and_counted_as_a_tie() -> None:
    inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = nearest_in_sentence(inputs, inputs, Sentences(torch.tensor([3])))
    assert found.identified.tolist() == [True, True, True]
    assert found.tied.tolist() == [True, False, True]
    assert found.nearest.tolist() == [0, 1, 0]


def test_a_tie_of_different_vectors_is_right_only_where_the_first_is() -> None:
    inputs = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    found = nearest_in_sentence(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), inputs, Sentences(torch.tensor([2])))
    assert found.identified.tolist() == [True, False]
    assert found.tied.tolist() == [True, True]


def test_a_sentence_of_one_token_is_always_identified() -> None:
    predicted, inputs = arrays([1, 1, 1], 3, 0)
    found = identify_tokens(predicted, inputs, torch.ones(3, dtype=torch.long))
    assert found.rate == 1.0
    assert random_guess(inputs, torch.ones(3, dtype=torch.long)) == 1.0


def test_one_token_has_no_neighbours() -> None:
    found = identify_tokens(torch.ones(1, 2), torch.ones(1, 2), torch.tensor([1]), offset=1)
    assert len(found.rows) == 0 and np.isnan(found.rate)


def test_sentences_do_not_see_each_other() -> None:
    inputs = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    predicted = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    found = identify_tokens(predicted, inputs, torch.tensor([2, 1]))
    assert found.nearest.tolist() == [1, 1, 2]


def test_blocks_and_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [5, 1, 9, 3, 7, 2, 8]
    predicted, inputs = arrays(lengths, 4, 3)
    whole = identify_tokens(predicted, inputs, torch.tensor(lengths))
    monkeypatch.setattr(token_neighbours, "BLOCK_TOKENS", 4)
    monkeypatch.setattr(Sentences.parts, "__defaults__", (6,))
    parts = identify_tokens(predicted, inputs, torch.tensor(lengths))
    assert torch.equal(whole.rows, parts.rows) and torch.equal(whole.nearest, parts.nearest)


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 999))
def test_random_guess_is_the_mean_of_one_over_n(lengths: list[int], seed: int) -> None:
    _, inputs = arrays(lengths, 3, seed)
    mean = np.mean([1 / length for length in lengths for _ in range(length)])
    assert random_guess(inputs, torch.tensor(lengths)) == pytest.approx(mean, abs=1e-6)


def test_random_guess_counts_repeated_vectors() -> None:
    assert random_guess(torch.ones(4, 2), torch.tensor([4])) == 1.0
    assert random_guess(torch.tensor([[1.0], [1.0], [2.0], [3.0]]), torch.tensor([4])) == pytest.approx(6 / 16)


def test_refuses_what_has_no_answer() -> None:
    lengths = torch.tensor([2])
    with pytest.raises(MathError, match="learning rate"):
        identify_tokens(torch.full((2, 2), torch.nan), torch.eye(2), lengths)
    with pytest.raises(InputError, match="metric"):
        identify_tokens(torch.eye(2), torch.eye(2), lengths, metric="manhattan")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="3, 2"):
        identify_tokens(torch.ones(3, 2), torch.eye(2), lengths)
    with pytest.raises(InputError, match="at least 1"):
        identify_tokens(torch.eye(2), torch.eye(2), torch.tensor([2, 0]))


def test_a_split_refuses_a_sentence_on_two_sides() -> None:
    with pytest.raises(InputError, match="two sets"):
        Split(torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([2]))
    with pytest.raises(InputError, match="at least one"):
        Split(torch.tensor([0, 1]), torch.tensor([], dtype=torch.long), torch.tensor([2]))
