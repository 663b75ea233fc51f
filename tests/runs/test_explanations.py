"""Explanations in a Run: a row for each token, words over the corpus, agreement; against one text at a time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import identiscope
from identiscope import InputError
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.opened_run import Run, open_run
from tiny_text_model import save_tiny, words

METHODS = ("gradient_input", "occlusion", "rollout")
TEXTS = [words(3 + number % 4, number) for number in range(9)]
LABELS = [f"class {number % 2}" for number in range(9)]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    return save_tiny(tmp_path_factory.mktemp("explained") / "model", "BertForSequenceClassification", **names)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "texts.tsv"
    lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in zip(TEXTS, LABELS, strict=True))]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def options(*settings: str) -> RunOptions:
    chosen = (f"explain.methods={','.join(METHODS)}", *settings)
    return RunOptions(methods=("explain", "attention_rank"), settings=chosen, shard_size=4)


@pytest.fixture(scope="module")
def run(classifier: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("runs") / "run"
    chosen = options("explain.outcome=good")
    return run_corpus(str(classifier), corpus, directory, options=chosen, text_columns=["text"], label_column="label")


def test_every_token_has_the_score_of_its_text_alone(run: Run, classifier: Path) -> None:
    rows = run.to_pandas("explain")
    model = identiscope.load(classifier)
    for number, text in enumerate(TEXTS):
        own = rows[rows["text"] == number]
        alone = identiscope.explain(identiscope.trace(model, text), "good", methods=list(METHODS))
        assert own["token"].tolist() == alone["input_token"].values.tolist()
        assert own["special"].tolist() == alone["input_special"].values.tolist()
        assert own["input"].tolist() == list(range(len(own))) and set(own["failed"]) == {""}
        assert set(own["outcome"]) == {alone.attrs["outcome"]}
        for name in METHODS:
            np.testing.assert_allclose(own[name], alone["score"].loc[name], rtol=1e-5, atol=1e-7)
    assert run.complete and not run.verify().problems
    assert run.summary["means"]["explain"].keys() == set(METHODS)
    assert run.summary["means"]["explain"]["rollout"] == pytest.approx(rows["rollout"].mean(), rel=1e-6)


def test_words_are_the_means_of_shares(run: Run) -> None:
    """By hand: the share that a word has of the scores of each text that has it."""
    rows = run.to_pandas("explain")
    label = dict(enumerate(LABELS))
    shares: dict[tuple[str, str, str], list[float]] = {}
    for number, own in rows.groupby("text"):
        for name in METHODS:
            of_text: dict[str, float] = {}
            for token, special, score in zip(own["token"], own["special"], own[name], strict=True):
                if not special:
                    of_text[token] = of_text.get(token, 0.0) + score / own[name].abs().sum()
            for word, share in of_text.items():
                shares.setdefault((label[int(str(number))], name, word), []).append(share)
    table = run.words("label", least=1)
    assert len(table) == len(shares)
    for _, line in table.iterrows():
        values = shares[line["label"], line["method"], line["word"]]
        assert line["count"] == len(values) and line["mean_share"] == pytest.approx(np.mean(values), rel=1e-6)
        error = scipy.stats.sem(values) if len(values) > 1 else np.nan
        assert line["standard_error"] == pytest.approx(error, rel=1e-5, abs=1e-7, nan_ok=True)
    for _, part in table.groupby(["label", "method"]):
        assert part["mean_share"].is_monotonic_decreasing
    assert set(run.words("label", least=2)["count"]) <= set(range(2, 10))
    assert set(run.words(methods=["rollout"], least=1)["method"]) == {"rollout"}
    assert "outcome" in run.words(least=1) and "label" not in run.words(None, least=1)


def test_agreement_is_the_mean_over_texts(run: Run) -> None:
    rows, table = run.to_pandas("explain"), run.agreement()
    values = []
    for _, own in rows.groupby("text"):
        kept = own[~own["special"]]
        values.append(scipy.stats.spearmanr(kept["gradient_input"].abs(), kept["occlusion"].abs()).statistic)
    cell = table.sel({"method": "gradient_input", "other": "occlusion"})
    assert float(cell["mean"]) == pytest.approx(np.nanmean(values)) and int(cell["texts"]) == len(values)
    assert float(cell["standard_error"]) == pytest.approx(scipy.stats.sem(values))
    assert np.allclose(np.diagonal(table["mean"]), 1)


def test_what_is_explained_may_differ_from_text_to_text(classifier: Path, corpus: Path, tmp_path: Path) -> None:
    run = run_corpus(str(classifier), corpus, tmp_path / "run", options=options(), text_columns=["text"], limit=5)
    model = identiscope.load(classifier)
    rows = run.to_pandas("explain")
    for number, text in enumerate(TEXTS[:5]):
        alone = identiscope.explain(identiscope.trace(model, text), methods=["rollout"])
        assert set(rows[rows["text"] == number]["outcome"]) == {alone.attrs["outcome"]}


def test_a_method_that_cannot_be_asked_says_so_and_has_no_numbers(classifier: Path, tmp_path: Path) -> None:
    """The outcome has no mask token where a baseline needs one: the other method is asked all the same."""
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:2]), encoding="utf-8")
    chosen = RunOptions(methods=("explain",), settings=("explain.methods=occlusion,rollout", "explain.budget=1"))
    rows = run_corpus(str(classifier), tmp_path / "texts.txt", tmp_path / "run", options=chosen).to_pandas("explain")
    lacking = rows["occlusion"].isna()
    assert lacking.equals(rows["failed"].str.startswith("occlusion: ")) and not rows["rollout"].isna().any()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("explain.methods=attention_rank",), "expected all, fast, or some of"),
        (("explain.budget=none",), "of the settings of explain, budget"),
        (("explain.words=true",), "explain.words was set; in a Run there are methods, outcome"),
    ],
)
def test_bad_settings_are_refused_before_any_work(settings: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        RunOptions(methods=("explain",), settings=settings)


def test_a_run_without_explanations_says_so(classifier: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "texts.txt").write_text(TEXTS[0], encoding="utf-8")
    chosen = RunOptions(methods=("attention_rank",))
    other = run_corpus(str(classifier), tmp_path / "texts.txt", tmp_path / "run", options=chosen)
    with pytest.raises(InputError, match="has no explanations; ask for the method explain"):
        other.words()
    with pytest.raises(InputError, match="row for each token"):
        run.to_xarray("explain")
    with pytest.raises(InputError, match="by='colour' was given"):
        run.words("colour")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="methods colour were asked for"):
        run.words(methods=["colour"])


def test_a_killed_run_ends_with_the_same_bytes(run: Run, classifier: Path, corpus: Path, tmp_path: Path) -> None:
    """Killed as its second shard begins."""
    directory = tmp_path / "again"
    code = (
        "import os, sys\n"
        "from identiscope.runs.compute import shard\n"
        "from identiscope.runs.engines import local\n"
        "import identiscope.commands.run, identiscope.cli\n"
        "def killed(worker, task, *rest, own=shard.compute_shard):\n"
        "    if task.number: os.kill(os.getpid(), 9)\n"
        "    return own(worker, task, *rest)\n"
        "assert local.compute_shard is shard.compute_shard\n"
        "local.compute_shard = killed\n"
        "identiscope.cli.main(sys.argv[1:])\n"
    )
    methods = ["--methods", "explain,attention_rank", "--explain", ",".join(METHODS), "--outcome", "good"]
    given = ["run", str(classifier), str(corpus), "-o", str(directory), "--shard-size", "4", "--columns", "text"]
    command = [*given, "--label", "label", *methods]
    killed = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, env=os.environ)
    assert killed.returncode == -signal.SIGKILL and not open_run(directory).complete
    again = subprocess.run([sys.executable, "-m", "identiscope", *command], capture_output=True, text=True)
    assert again.returncode == 0 and "Words that" in again.stdout and "Do they agree?" in again.stdout
    names = [path.relative_to(run.directory) for path in sorted(run.directory.rglob("*.parquet"))]
    assert len(names) == 9
    for name in names:
        assert (directory / name).read_bytes() == (run.directory / name).read_bytes(), name


def test_a_damaged_table_of_tokens_is_noticed(run: Run, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run.directory, copy)
    path = copy / "shards" / "000001" / "explain.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(identiscope.IdentiscopeError, match="explain"):
        open_run(copy).to_pandas("explain")


def test_agreement_is_drawn_and_a_page_has_the_words(run: Run, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    axes = identiscope.plot(run.agreement(), Figure().add_subplot())
    assert [label.get_text() for label in axes.get_yticklabels()] == [name.replace("_", " ") for name in METHODS]
    written = [text.get_text() for text in axes.texts]
    assert written.count("1.00") == len(METHODS) and len(written) == len(METHODS) ** 2
    page = identiscope.report_run(run.directory, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Do they agree?" in page and "Words that" in page
