"""What a Run is said to cost beforehand: the times of one batch, each method once, for all texts and workers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import identiscope
from heard import Heard
from identiscope.corpus.readers import Text
from identiscope.runs.compute import costs as module
from identiscope.runs.compute.batch import Computed, Worker, model_shape
from identiscope.runs.compute.costs import run_costs
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import RunProgress, run_corpus
from identiscope.runs.compute.shard import ShardTask
from tiny_text_model import contents, save_tiny, words

ATTENTION, ATTRIBUTION = "attention_identifiability", "hidden_token_attribution"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> identiscope.Model:
    return identiscope.load(save_tiny(tmp_path_factory.mktemp("costs") / "model"))


def worker_of(model: identiscope.Model, options: RunOptions) -> Worker:
    return Worker(model, options, model_shape(model, options))


def test_methods_are_added_up_for_all_texts_and_workers(
    model: identiscope.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: a forward pass of 1 s a batch, 2 s a batch of attention, 5 s a text of attribution; 4 texts a batch."""
    asked: list[tuple[tuple[str, ...], int]] = []

    def timed(worker: Worker, texts: Sequence[Any], traced: Any = None) -> Computed:
        asked.append((worker.options.methods, len(texts)))
        seconds = {ATTENTION: 2.0, ATTRIBUTION: 5.0 * len(texts)}
        own = {name: seconds[name] for name in worker.options.methods}
        return Computed({}, None, {}, {"forward pass": 1.0, **own})

    monkeypatch.setattr(module, "compute_batch", timed)
    options = RunOptions(methods=("attribution", "attention_identifiability"), batch_size=4)
    task = ShardTask(0, 0, tuple(Text((words(5, number),)) for number in range(8)))
    found = run_costs(worker_of(model, options), task, texts=100, workers=2)
    assert found is not None and found.texts == 4
    assert dict(found.seconds) == {"forward pass": 1.0, ATTRIBUTION: 20.0, ATTENTION: 2.0}
    assert found.total == (1 + 20 + 2) * (100 / 4) / 2
    assert asked == [((ATTENTION,), 1), ((ATTENTION,), 4), ((ATTRIBUTION,), 1)], "attribution of one text only"


def test_where_no_text_is_run_nothing_is_said(model: identiscope.Model) -> None:
    assert run_costs(worker_of(model, RunOptions()), ShardTask(0, 0, (Text(("",)),) * 3), 3, 1) is None


def test_what_is_told_changes_no_byte(model: identiscope.Model, tmp_path: Path) -> None:
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(words(3 + number % 5, number) for number in range(9)), encoding="utf-8")
    heard = Heard()
    options = RunOptions(methods=("attention_identifiability", "tokens"), shard_size=4)
    with_costs = run_corpus(model, corpus, tmp_path / "told", options=options, progress=heard)
    told: list[RunProgress] = heard.states
    assert contents(with_costs.directory) == contents(
        run_corpus(model, corpus, tmp_path / "o", options=options).directory
    )
    assert [one.texts for one in told] == [0, 4, 8, 9] and all(one.costs is not None for one in told)
    first = told[0]
    assert first.costs is not None and set(first.costs.seconds) == {
        "forward pass", "attention_identifiability", "token_identifiability",
    }  # fmt: skip
    assert first.seconds_left == first.costs.total > 0
