"""The LSTM that reverses: against LSTM equations in NumPy, through Trace and substitution, trained and saved."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import identiscope
from heard import Heard
from identiscope.errors import InputError
from identiscope.papers.structure_draft.reversal_model import (
    ReversalConfig,
    ReversalModel,
    load_reversal,
    reversal_accuracy,
    reversal_inputs,
    reversal_samples,
    save_reversal,
    train_reversal,
    write_reversed,
)

SMALL = ReversalConfig(length=6, vocabulary=12, width=32)


@pytest.fixture(scope="module")
def trained() -> ReversalModel:
    return train_reversal(SMALL, steps=600, batch_size=32, learning_rate=1e-2)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


State = tuple[np.ndarray, np.ndarray]


def lstm(inputs: np.ndarray, weights: dict[str, np.ndarray], name: str, state: State) -> tuple[np.ndarray, State]:
    """Hochreiter's equations with forget gates, one step after the other; torch's order of gates: i, f, g, o."""
    hidden, cell = state
    outputs = []
    for x in inputs:
        gates = weights[f"{name}.weight_ih_l0"] @ x + weights[f"{name}.bias_ih_l0"]
        gates = gates + weights[f"{name}.weight_hh_l0"] @ hidden + weights[f"{name}.bias_hh_l0"]
        i, f, g, o = np.split(gates, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        outputs.append(hidden)
    return np.array(outputs), (hidden, cell)


def test_every_number_against_numpy(trained: ReversalModel) -> None:
    """Free writing, attention and logits, written again from the equations in float64."""
    model = load_reversal_like(trained)
    ids = reversal_samples(SMALL, 3, seed=5)
    traces = identiscope.trace(model, reversal_inputs(model, ids))
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    width, start = SMALL.width, SMALL.vocabulary
    for row, trace in zip(ids.numpy(), traces, strict=True):
        zero = (np.zeros(width), np.zeros(width))
        encoded, state = lstm(np.eye(start)[row], weights, "encoder", zero)
        read, maps, logits = start, [], []
        for _ in range(SMALL.length):
            decoded, state = lstm(np.eye(start + 1)[[read]], weights, "decoder", state)
            scores = encoded @ weights["cross_attention.query.weight"] @ decoded[0] / np.sqrt(width)
            attention = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
            output = weights["output_of_context.weight"] @ (attention @ encoded) + weights["output_of_context.bias"]
            output = output + weights["output_of_decoder.weight"] @ decoded[0]
            maps.append(attention)
            logits.append(output)
            read = int(output.argmax())
        assert trace.logits is not None
        np.testing.assert_allclose(trace.site(0).attention(0).numpy(), maps, atol=1e-12)
        np.testing.assert_allclose(trace.logits.numpy(), logits, atol=1e-11)
        np.testing.assert_array_equal(write_reversed(model, torch.tensor(row)[None])[0], np.argmax(logits, 1))


def load_reversal_like(model: ReversalModel) -> ReversalModel:
    """The same weights in float64."""
    made = ReversalModel(model.config).double().eval()
    made.load_state_dict(model.state_dict())
    return made


def test_it_learns_to_reverse_and_its_map_is_antidiagonal(trained: ReversalModel) -> None:
    accuracy = reversal_accuracy(trained, seed=1)
    assert accuracy.tokens >= 0.99 and accuracy.sequences >= 0.97 and accuracy.samples == 1000
    traces = identiscope.trace(trained, reversal_inputs(trained, reversal_samples(SMALL, 50, seed=2)))
    mean = torch.stack([trace.site(0).attention(0) for trace in traces]).mean(0)
    assert mean.argmax(1).tolist() == [5, 4, 3, 2, 1, 0]
    assert float(mean.flip(1).diagonal().mean()) > 0.7
    untrained = ReversalModel(SMALL).eval()
    assert reversal_accuracy(untrained, samples=200, seed=1).tokens < 0.3


def test_its_attention_goes_through_the_same_trace(trained: ReversalModel) -> None:
    ids = reversal_samples(SMALL, 1, seed=3)[0]
    trace = identiscope.trace(trained, reversal_inputs(trained, ids))
    assert trace.verify().verified
    assert trace.kinds == ("cross",)
    site = trace.site(0)
    assert (site.query_stream, site.key_stream, site.head_count) == ("decoder", "encoder", 1)
    assert trace.streams["encoder"].tokens == tuple(str(token) for token in ids.tolist())
    result = identiscope.attention_identifiability(trace)
    assert (result["rank"].values == 6).all()  # six keys, twelve output tokens
    maps = identiscope.attention_maps(trace, 0, 0)
    np.testing.assert_allclose(maps.effective.values, maps.raw.values, atol=1e-6)


def test_few_tokens_leave_a_null_space() -> None:
    """rank(T) is at most the number of tokens that can be written: T = V·H ends in their logits."""
    model = ReversalModel(ReversalConfig(length=9, vocabulary=4, width=16)).eval()
    trace = identiscope.trace(model, reversal_inputs(model, reversal_samples(model.config, 1, seed=0)))
    result = identiscope.attention_identifiability(trace)
    assert (result.null_dimension.values == 5).all() and (result.simplex_null_dimension.values == 4).all()
    other = identiscope.attention_alternative(trace, 0, 0)
    assert float(other.total_variation.max()) > 0.1
    inputs = reversal_inputs(model, reversal_samples(model.config, 1, seed=0))
    changed = identiscope.substitute(model, inputs, {(0, 0): torch.from_numpy(other.alternative.values)})
    assert changed.logits is not None and trace.logits is not None
    torch.testing.assert_close(changed.logits, trace.logits, rtol=0, atol=1e-5)


def test_substitution_runs_in_the_model(trained: ReversalModel) -> None:
    ids = reversal_samples(SMALL, 1, seed=4)[0]
    inputs = reversal_inputs(trained, ids)
    trace = identiscope.trace(trained, inputs)
    same = identiscope.substitute(trained, inputs, {(0, 0): lambda attention: attention})
    turned = identiscope.substitute(trained, inputs, {(0, 0): lambda attention: attention.flip(1)})
    assert same.logits is not None and trace.logits is not None and turned.logits is not None
    assert torch.equal(same.logits, trace.logits)
    assert (trace.logits.argmax(-1) == ids.flip(0)).all()
    # Looking at the tokens from the front writes the sequence as it was, where it writes anything right.
    assert float((turned.logits.argmax(-1) == ids.flip(0)).double().mean()) < 0.5


def test_the_same_seed_gives_the_same_model_and_leaves_the_global_one_alone() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    said = Heard()
    one = train_reversal(SMALL, steps=3, progress=said)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(8)
    two, three = train_reversal(SMALL, steps=3), train_reversal(SMALL, steps=3, seed=1)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])
    assert not torch.equal(*(model.get_parameter("encoder.weight_ih_l0") for model in (one, three)))
    assert [step[1:] for step in said.steps] == [(1, 3), (2, 3), (3, 3)] and said.words.startswith("loss ")


def test_saved_and_loaded(trained: ReversalModel, tmp_path: Path) -> None:
    path = save_reversal(trained, tmp_path / "model.safetensors")
    again = load_reversal(path)
    assert again.config == SMALL and not again.training
    inputs = reversal_inputs(trained, reversal_samples(SMALL, 2, seed=0))
    assert torch.equal(again(**inputs), trained(**inputs))
    with pytest.raises(InputError, match="there is no file"):
        load_reversal(tmp_path / "nothing")
    (tmp_path / "broken").write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="damaged"):
        load_reversal(tmp_path / "broken")
    save_file({"weight": torch.zeros(1)}, str(tmp_path / "other"))
    with pytest.raises(InputError, match="not a reversal model"):
        load_reversal(tmp_path / "other")
    state = {name: value.contiguous() for name, value in trained.state_dict().items()}
    header = {"format": "identiscope-reversal-1", "config": '{"length": 6, "vocabulary": 5, "width": 32}'}
    save_file(state, str(tmp_path / "mismatched"), metadata=header)
    with pytest.raises(InputError, match="damaged, or not a reversal model"):
        load_reversal(tmp_path / "mismatched")


def test_refusals(trained: ReversalModel) -> None:
    with pytest.raises(InputError, match="two positions"):
        ReversalConfig(length=1)
    with pytest.raises(InputError, match="0 steps"):
        train_reversal(SMALL, steps=0)
    with pytest.raises(InputError, match="this model knows 0 to 11"):
        reversal_inputs(trained, torch.tensor([3, 12, 1, 1, 1, 1]))
