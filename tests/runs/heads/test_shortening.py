"""Shortened texts: what is kept in plain loops, and the outcome against the model run on the tokens that are left."""

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import identiscope
from identiscope.cli import main
from identiscope.runs.heads.shortening import SHARES, Shortening, kept_tokens
from tiny_text_model import save_tiny, words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shortened")
    save_tiny(made / "model")
    (made / "texts.txt").write_text("\n".join(words(9, seed=number) for number in range(3)) + "\n")
    return made


def test_the_tokens_that_receive_most_are_kept_and_the_model_is_run_on_these(folder: Path) -> None:
    model = identiscope.load(folder / "model")
    text, other = words(9, seed=1), words(5, seed=2)

    def state(ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            found = model.module(torch.tensor([ids])).last_hidden_state[0].double().numpy()
        mean: np.ndarray = found.mean(0)
        return mean

    traced = identiscope.trace(model, text)
    ids = model.tokenizer(text)["input_ids"]
    goal = state(model.tokenizer(other)["input_ids"])

    def outcome(kept: list[int]) -> float:
        own = state([ids[place] for place in kept])
        return float(own @ goal / np.sqrt((own @ own) * (goal @ goal)))

    study = Shortening(lambda number: f"similarity:{other}")
    study.add(traced, 0)
    assert study.failed == []
    found = study.result()
    maps = traced.sites[0].attentions().numpy()
    received = [maps[:, :, key].sum() for key in range(len(ids))]
    inner = range(1, len(ids) - 1)  # all but [CLS] and [SEP]
    for share in SHARES:
        best = sorted(inner, key=lambda key: -received[key])[: round(share * len(inner))]
        expected = abs(outcome([0, *sorted(best), len(ids) - 1]) - outcome(list(range(len(ids)))))
        assert float(found["moved"].sel(ranking="attention", share=share)) == pytest.approx(expected, abs=1e-5)
    assert bool(found["same"].isnull().all())  # there is no answer to keep
    assert bool((found["speed"] > 0).all())


def test_right_answers_are_those_of_the_model_on_the_tokens_that_are_left(tmp_path: Path) -> None:
    """A classifier of three classes; a label that is none is counted, and its text left out."""
    save_tiny(tmp_path, "BertForSequenceClassification", num_labels=3)
    model = identiscope.load(tmp_path)
    texts = [words(7 + number, seed=number) for number in range(5)]
    labels = ["0", "LABEL_1", "2", "0", "none"]
    study = Shortening(lambda number: None, label=lambda number: labels[number])
    expected: dict[float, list[float]] = {share: [] for share in (1.0, *SHARES)}
    for number, text in enumerate(texts):
        traced = identiscope.trace(model, text)
        study.add(traced, number)
        if labels[number] == "none":
            continue
        ids = model.tokenizer(text)["input_ids"]
        received = traced.sites[0].attentions().sum((0, 1)).numpy()
        inner = range(1, len(ids) - 1)
        for share, right in expected.items():
            best = sorted(inner, key=lambda key: -received[key])[: round(share * len(inner))]
            with torch.no_grad():
                logits = model.module(torch.tensor([[ids[place] for place in (0, *sorted(best), len(ids) - 1)]])).logits
            right.append(float(int(logits.argmax()) == int(labels[number][-1])))
    found = study.result()
    (failed,) = study.failed
    assert failed.startswith("text 4: the label 'none' was given") and failed.endswith("are LABEL_0, LABEL_1, LABEL_2.")
    assert float(found["right_whole"]) == np.mean(expected.pop(1.0))
    for share, right in expected.items():
        assert float(found["right"].sel(ranking="attention", share=share)) == np.mean(right)


def test_what_is_read_and_what_is_special_stays() -> None:
    movable = torch.tensor([False, True, True, True, False])
    for share, count in ((0.01, 1), (0.5, 2), (1.0, 3)):
        kept = kept_tokens(torch.tensor([9.0, 1.0, 1.0, 5.0, 0.0]), movable, share)
        assert kept[0] and kept[4] and int(kept[1:4].sum()) == count and kept[3]


def test_the_command_writes_a_table(folder: Path) -> None:
    given = ["heads", str(folder / "model"), str(folder / "texts.txt"), "-o", str(folder / "out"), "--without", "none"]
    done = CliRunner().invoke(main, [*given, "--intervals", "0", "--texts", "2", "--shorten"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "half of the tokens: the outcome moves by attention" in done.output
    assert len((folder / "out" / "shortened.csv").read_text().splitlines()) == 1 + 3 * len(SHARES)
    assert "Shortened texts" in (folder / "out" / "index.html").read_text(encoding="utf-8")
    assert "left as they were" not in done.output
    # Asked again without: a table of another command, or the user's own, stands beside the new page, and is said to.
    (folder / "out" / "pairs.csv").write_text("of the user\n")
    done = CliRunner().invoke(main, [*given, "--intervals", "0", "--texts", "2"], catch_exceptions=False)
    assert "not of this command, and left as they were: pairs.csv, shortened.csv" in done.output
    assert (folder / "out" / "pairs.csv").read_text() == "of the user\n"
    assert "Shortened texts" not in (folder / "out" / "index.html").read_text(encoding="utf-8")
