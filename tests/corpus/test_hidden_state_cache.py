"""The cache: what the model computed, captured once, and never mixed with another model or text."""

import copy
import errno
import json
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

import identiscope
from heard import Heard
from identiscope.capture.digests import model_hash
from identiscope.corpus import hidden_state_cache
from identiscope.corpus.hidden_state_cache import capture_hidden_states, open_hidden_states
from identiscope.corpus.readers import Text, Word
from identiscope.errors import InputError

TEXTS = [
    Text(("The cat sat on the mat.",), None, (Word(0, 4, 7, "NN"),)),
    Text(("A dog.",)),
    Text(("It rained all day", "so nobody went out of the house.")),
]


def test_states_are_those_of_a_trace(minilm: identiscope.Model, tmp_path: Path) -> None:
    cache = capture_hidden_states(minilm, TEXTS, tmp_path / "states", batch_size=2)
    assert cache.layers == 6 and cache.manifest["embedding_norm"] is True
    start = 0
    for text, length in zip(TEXTS, cache.lengths.tolist(), strict=True):
        trace = identiscope.trace(minilm, text.given)
        rows = slice(start, start + length)
        assert tuple(cache.tokens[rows]) == trace.tokens
        assert tuple(cache.special[rows].tolist()) == trace.main.special
        for kept, state in zip([cache.embeddings, *cache.states], trace.hidden_states, strict=True):
            torch.testing.assert_close(kept[rows], state, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(cache.layer(2)[rows], trace.hidden_states[3], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(cache.embedding_sum[rows], trace.main.embedding_sum, atol=1e-6, rtol=1e-5)
        start += length
    assert start == cache.embeddings.shape[0]
    assert [token for token, tag in zip(cache.tokens, cache.tags, strict=True) if tag == "NN"] == ["cat"]


def test_it_is_captured_once(minilm: identiscope.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Heard()
    capture_hidden_states(minilm, TEXTS, tmp_path / "states", batch_size=1, progress=seen)
    assert seen.steps == [("capturing hidden states", done, 3) for done in (1, 2, 3)]
    monkeypatch.setattr(hidden_state_cache, "_capture", lambda *_: pytest.fail("captured again"))
    again = capture_hidden_states(minilm, TEXTS, tmp_path / "states")
    assert again.manifest == open_hidden_states(tmp_path / "states").manifest


def test_other_models_texts_and_options_are_refused(minilm: identiscope.Model, tmp_path: Path) -> None:
    where = tmp_path / "states"
    capture_hidden_states(minilm, TEXTS, where)
    with pytest.raises(InputError, match="another text"):
        capture_hidden_states(minilm, [*TEXTS[:2], Text(("Something else.",))], where)
    with pytest.raises(InputError, match="another choice of truncation"):
        capture_hidden_states(minilm, TEXTS, where, truncate=True)
    module = copy.deepcopy(minilm.module)
    with torch.no_grad():
        next(module.parameters())[0, 0] += 1e-3
    with pytest.raises(InputError, match="another model"):
        capture_hidden_states(identiscope.load(module, minilm.tokenizer), TEXTS, where)


def test_the_hash_is_of_the_weights(minilm: identiscope.Model) -> None:
    assert model_hash(minilm) == model_hash(identiscope.load(copy.deepcopy(minilm.module), minilm.tokenizer))


def test_an_interrupted_capture_is_no_cache(
    minilm: identiscope.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "states"
    real = hidden_state_cache._capture

    def stops(model, texts, truncate, writer):
        if writer.rows:
            raise KeyboardInterrupt
        real(model, texts, truncate, writer)

    monkeypatch.setattr(hidden_state_cache, "_capture", stops)
    with pytest.raises(KeyboardInterrupt):
        capture_hidden_states(minilm, TEXTS, where, batch_size=1)
    with pytest.raises(InputError, match="did not end"):
        open_hidden_states(where)
    monkeypatch.undo()
    assert capture_hidden_states(minilm, TEXTS, where).lengths.numel() == 3


def test_damage_is_noticed(minilm: identiscope.Model, tmp_path: Path) -> None:
    where = tmp_path / "states"
    cache = capture_hidden_states(minilm, TEXTS, where)
    with pytest.raises(InputError, match="layers 0 to 5"):
        cache.layer(6)
    (where / "layer_03.npy").write_bytes((where / "layer_03.npy").read_bytes()[:200])
    with pytest.raises(InputError, match="capture again"):
        open_hidden_states(where).layer(2)
    (where / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        open_hidden_states(where)
    (where / "manifest.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(InputError, match="not the manifest"):
        open_hidden_states(where)


ANY_BYTES: list[Any] = [b"", b"{", b"3", b"[1]", b"{}", b"[" * 100_000, b"\xff\xfe"]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("manifest.json", [*ANY_BYTES, {"tokens": 5}, {"tokens": [1]}, {"layers": -1}, {"model_name": 3}]),
        ("tokens.json", [*ANY_BYTES, {"tokens": ["a"]}, {"lengths": [10**30]}, {"special": [0]}, {"tags": 3}]),
    ],
)
def test_whatever_its_bytes_are(minilm: identiscope.Model, tmp_path: Path, name: str, changes: list[Any]) -> None:
    where = tmp_path / "states"
    capture_hidden_states(minilm, TEXTS, where)
    whole = json.loads((where / name).read_bytes())
    for change in changes:
        (where / name).write_bytes(change if isinstance(change, bytes) else json.dumps(whole | change).encode())
        with pytest.raises(InputError, match=r"damaged|not the manifest"):
            capture_hidden_states(minilm, TEXTS, where).tokens_by_text  # noqa: B018  (it is read)


def test_nothing_is_left_of_a_capture_that_fails(
    minilm: identiscope.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: BinaryIO, *rest: Any) -> None:
        real(file, *rest)
        if rest[1] and file.name.endswith("layer_03.npy"):
            raise OSError(errno.ENOSPC, "No space left on device")

    real = hidden_state_cache._header
    monkeypatch.setattr(hidden_state_cache, "_header", full)
    with pytest.raises(InputError, match="the disk is full"):
        capture_hidden_states(minilm, TEXTS, tmp_path / "states")
    assert list((tmp_path / "states").iterdir()) == []


def test_other_peoples_files_are_left_alone(minilm: identiscope.Model, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(InputError, match="other files"):
        capture_hidden_states(minilm, TEXTS, tmp_path)
    with pytest.raises(InputError, match="no texts"):
        capture_hidden_states(minilm, [], tmp_path / "states")


def test_reading_states_does_not_change_the_disk(minilm: identiscope.Model, tmp_path: Path) -> None:
    cache = capture_hidden_states(minilm, TEXTS, tmp_path / "states")
    before = (tmp_path / "states" / "layer_02.npy").read_bytes()
    cache.layer(1).add_(1)
    assert (tmp_path / "states" / "layer_02.npy").read_bytes() == before
