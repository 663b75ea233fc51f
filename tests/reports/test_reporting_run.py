"""A page on a corpus run shows the run's own means."""

from pathlib import Path
from typing import Any

import pytest

import identiscope
from identiscope.corpus.readers import Corpus
from identiscope.reports.reporting_run import report_run, run_page
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.opened_run import open_run


@pytest.fixture(scope="module")
def directory(minilm: identiscope.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    run_corpus(
        "minilm", Corpus("pairs", limit=3), path, options=RunOptions(methods=("attention_identifiability", "tokens"))
    )
    return path


def test_means_are_those_of_the_run(directory: Path) -> None:
    run = open_run(directory)
    page = run_page(run)
    assert page.names == ["attention-identifiability", "token-identifiability", "table", "table-2"]
    grid: Any = page.section("attention-identifiability")["data"]
    shares = next(column for column in grid["columns"] if column["name"] == "merged_null_share")
    true = run.means("attention_identifiability")["mean"].sel(column="merged_null_share").values
    assert grid["columns"][0]["name"] == "simplex_null_share"
    assert shares["values"] == true.tolist() and grid["layers"] == list(range(6)) and grid["heads"] == list(range(12))
    curve: Any = page.section("token-identifiability")["data"]
    place = curve["names"].index("identified cosine")
    assert (
        curve["rate"][place]
        == run.means("token_identifiability")["mean"].sel(column="identified_cosine").values.tolist()
    )
    assert f"{int((true > 0.5).sum())} of 72 heads" in page.header["verdict"][0]
    table: Any = page.section("table")["data"]
    assert table["tables"][0]["rows"] == [["ok", 3]]


def test_it_is_written(directory: Path, tmp_path: Path) -> None:
    assert report_run(directory, tmp_path / "run.html").stat().st_size > 50_000
