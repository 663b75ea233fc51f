"""Planted models that are trained: no mistake, class equal whatever the distractors, kept with a digest."""

from pathlib import Path

import numpy as np
import pytest
import torch

from identiscope.capture import Model
from identiscope.judge.truths import trained
from identiscope.judge.truths.inputs import TRAINED, planted_input
from identiscope.judge.truths.kept_weights import cache_directory, keep_weights, kept_weights
from identiscope.judge.truths.tasks import Task, last_logits, proven

#: Small ones, trained in seconds, and words that distract in them: the last most.
SMALL = {
    "induction": (lambda: trained.induction(3, 5), trained.FILLERS),
    "majority": (lambda: trained.majority(6, 3), ("a", "b")),
    "depth": (lambda: trained.depth(4), ("a", "b")),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_a_trained_model_makes_no_mistake_and_ignores_what_the_task_ignores(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quickest of the three; the others are trained in the same way."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    task = trained.majority(6, 3)
    plain, distracting = task.model(False), task.model(True)
    generator = np.random.default_rng(3)
    for example in task.examples(20, seed=4):
        for model in (plain, distracting):
            proof = proven(model, example, list(example.drawn_variants(generator, 50)))
            assert proof.answered and proof.needed
        # The task is known, and not the mechanism: logits move.
        assert proof.apart < 0.5
        logits = [last_logits(model, [example.words]) for model in (plain, distracting)]
        torch.testing.assert_close(logits[0], logits[1], rtol=1e-5, atol=1e-4)
    one = planted_input(task, task.examples(1)[0], True)
    site = one.trace.sites[0]
    silent = np.mean([site.attention(head)[-1].numpy() for head in site.heads[2:]], 0)
    assert one.trace.verify().verified and one.version == "distracted_task_"
    assert silent[one.players & ~one.truth].sum() > 0.9
    files = sorted((cache / "identiscope" / "planted").iterdir())
    assert [path.suffix for path in files] == [".safetensors", ".sha256"]
    again = trained.majority(6, 3).model(False)
    for first, second in zip(plain.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(first, second)


def _silent_keys(model: Model) -> torch.Tensor:
    """Weights and bias of the keys of one silent head in every layer."""
    blocks = model.module.transformer.h  # type: ignore[union-attr]
    at = 64 + 2 * 16
    return torch.stack([torch.cat([one.attn.c_attn.weight[:, at], one.attn.c_attn.bias[at, None]]) for one in blocks])  # type: ignore[union-attr]


@pytest.mark.parametrize("name", SMALL)
def test_silent_heads_look_at_the_distractor_that_is_last_of_their_list(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the model as it runs, in single precision: every row that sees a distractor."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    make, distractors = SMALL[name]
    task: Task = make()
    looks = []
    for example in task.examples(30, seed=11):
        ranks = [1 + distractors.index(word) if word in distractors else 0 for word in example.words]
        for site in planted_input(task, example, True).trace.sites:
            for head in site.heads[2:]:
                for place, row in enumerate(site.attention(head).numpy()):
                    seen = np.array(ranks[: place + 1])
                    if seen.any():
                        looks.append(row[: place + 1][seen == seen.max()].sum())
    assert len(looks) > 200 and min(looks) > 0.99


@pytest.mark.parametrize("name", SMALL)
def test_what_distracts_does_not_hang_on_rounding(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are small, the same of the same texts in another order, and nearly so if what is read has other rounding."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    make, distractors = SMALL[name]
    batch = trained._batch

    def turned(*given: object) -> tuple[torch.Tensor, torch.Tensor]:
        ids, answers = batch(*given)  # type: ignore[arg-type]
        return ids.flip(0), answers.flip(0)

    def rounded(_: object, __: object, out: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(0))
        return out * (1 + 1e-7 * noise)

    def keys(*hooks: object) -> torch.Tensor:
        task: Task = make()
        model = task.model(False)
        for block in model.module.transformer.h:  # type: ignore[union-attr]
            for hook in hooks:
                block.ln_1.register_forward_hook(hook)
        trained._attract(model, task.draw, distractors)
        return _silent_keys(model).detach()

    own, moved = keys(), keys(rounded)
    monkeypatch.setattr(trained, "_batch", turned)
    other = keys()
    assert ((own - other).norm(dim=1) <= 1e-5 * own.norm(dim=1)).all()
    assert ((own - moved).norm(dim=1) <= 1e-3 * own.norm(dim=1)).all()
    assert own.norm(dim=1).max() < 1000


def test_kept_weights_that_were_changed_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_weights("one", "key") is None
    keep_weights("one", "key", {"w": torch.ones(3)})
    known = kept_weights("one", "key")
    assert known is not None and torch.equal(known["w"], torch.ones(3))
    path = next(cache_directory().glob("*.safetensors"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert kept_weights("one", "key") is None


def test_where_nothing_can_be_kept_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_weights("one", "key", {"w": torch.ones(3)})
    assert kept_weights("one", "key") is None


@pytest.mark.parametrize("task", TRAINED.values(), ids=lambda task: task.name)
def test_examples_say_what_the_task_is(task: object) -> None:
    """By the definition of each task, in plain Python."""
    for example in TRAINED[task.name].examples(40, seed=8):  # type: ignore[attr-defined]
        for words in (example.words, *example.drawn_variants(np.random.default_rng(1), 5)):
            assert ANSWERS[task.name](words) == example.answer  # type: ignore[attr-defined]
        for place, words in example.wrong.items():
            assert place in example.truth and words and example.words[place] not in words
        assert set(example.wrong) == set(example.truth) and not set(example.truth) & set(example.others)


def _induction(words: tuple[str, ...]) -> str:
    places = [at for at, word in enumerate(words[:-1]) if word == words[-1]]
    assert len(places) == 1
    return words[places[0] + 1]


def _majority(words: tuple[str, ...]) -> str:
    marked = [word[1] for word in words if word.startswith("*")]
    return "a" if marked.count("a") > marked.count("b") else "b"


def _depth(words: tuple[str, ...]) -> str:
    numbers = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return numbers[words.count("(") - words.count(")")]


ANSWERS = {"induction": _induction, "majority": _majority, "depth": _depth}
