"""The reproduction of the paper end to end, on a few texts: every figure comes, with files and claims."""

import copy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import identiscope
from identiscope.commands.reproduce import reproduce
from identiscope.corpus.readers import Text, Word, read_corpus
from identiscope.errors import InputError
from identiscope.papers.brunner2020.reproduce import reproduce_brunner2020
from identiscope.papers.brunner2020.setup import QUICK, Budget, Data, is_bert_base
from identiscope.results import load_result
from identiscope.views.page.reproduction import write_figure, write_page
from identiscope.views.plots.figures import Claim, Figure, Missing, Panel

pytestmark = pytest.mark.long

BUDGET = Budget(wiki=3, pairs=10, attributed=2, probes=2, folds=1, mlp=False, offsets=(-1, 1), epochs=1)


@pytest.fixture(scope="module")
def shallow(minilm: identiscope.Model) -> identiscope.Model:
    """The first three layers of minilm: figures come of as many as there are, and each layer has its probes."""
    module: Any = copy.deepcopy(minilm.module)
    module.encoder.layer = module.encoder.layer[:3]
    module.config.num_hidden_layers = 3
    return replace(minilm, module=module)


@pytest.fixture(scope="module")
def made(shallow: identiscope.Model, tmp_path_factory: pytest.TempPathFactory) -> list[Figure | Missing]:
    tagged = Text(("The dog slept.",), None, (Word(0, 0, 3, "DT"), Word(0, 4, 7, "NN"), Word(0, 8, 13, "VBD")))
    data = Data(
        mrpc=list(read_corpus("pairs", label_column="label", limit=10)),
        wiki=list(read_corpus("passages", limit=3)),
        cola=[
            Text((f"The {word} slept in the {place}.",), str(number % 2))
            for number, (word, place) in enumerate(product(("dog", "cat"), ("house", "tree", "car", "sun", "grass")))
        ],
        pos=[tagged, tagged],
        names={"MRPC": "our pairs"},
    )
    return list(reproduce_brunner2020(shallow, data, tmp_path_factory.mktemp("work"), budget=BUDGET))


def test_every_figure_that_the_data_allow_is_made(made: list[Figure | Missing]) -> None:
    figures = [one.number for one in made if isinstance(one, Figure)]
    assert figures == [
        "1a", "1b, 1c", "5", "6", "2a", "7", "2b", "8", "11", "14, 15", "38", "12", "13",
        "3a, 3b", "4a, 4b", "18", "19–25", "40", "41", "26–37",
    ]  # fmt: skip
    assert [one.number for one in made if isinstance(one, Missing)] == [
        "9", "10", "16, 17", "B.2", "39", "42, 43",
    ]  # fmt: skip
    claims = [claim for one in made if isinstance(one, Figure) for claim in one.claims]
    for claim in claims:
        assert all((claim.statement, claim.source, claim.published, claim.rule, claim.here))
    # Two texts, three passages and a test set of two sentences decide next to nothing.
    assert sum(claim.holds is None for claim in claims) > len(claims) / 2
    assert {one.number for one in made if isinstance(one, Figure) and not one.claims} == {"19–25"}


def test_data_that_are_not_the_paper_s_are_not_called_so(made: list[Figure | Missing]) -> None:
    figures = [one for one in made if isinstance(one, Figure)]
    assert not any("MRPC" in figure.title or "MRPC" in figure.data for figure in figures)
    assert sum("our pairs" in figure.data for figure in figures) > 5


def test_numbers_of_another_model_are_not_called_reproduced(
    made: list[Figure | Missing], minilm: identiscope.Model
) -> None:
    assert not is_bert_base(minilm)
    claims = [claim for one in made if isinstance(one, Figure) for claim in one.claims]
    published = [claim for claim in claims if claim.published == "93.0 %"]
    assert [claim.holds for claim in published] == [None] and "not judged" in published[0].here


def test_figures_are_pictures_and_data(made: list[Figure | Missing], tmp_path: Path) -> None:
    for number in ("1b, 1c", "12", "26–37"):
        figure = next(one for one in made if isinstance(one, Figure) and one.number == number)
        stems = write_figure(figure, tmp_path)
        assert len(stems) == len(set(stems)) == len(figure.panels)
        for stem in stems:
            assert (tmp_path / f"{stem}.png").read_bytes()[:4] == b"\x89PNG"
            assert b"<svg" in (tmp_path / f"{stem}.svg").read_bytes()[:2000]
        assert load_result(tmp_path / f"{stems[0]}.safetensors").identical(figure.panels[0].result)


def test_the_page_says_claim_by_claim_what_came_out(made: list[Figure | Missing], tmp_path: Path) -> None:
    result = next(one for one in made if isinstance(one, Figure)).panels[0].result
    claims = tuple(
        Claim(statement=words, source="§9", published="1", rule="<i>rule</i>", here="2", holds=holds)
        for words, holds in (("<b>bold</b>", False), ("other", True), ("third", None))
    )
    figure = Figure("1a", "<script>", "a & b", (Panel("one", result),), claims)
    page = write_page(tmp_path, "Title", [("model", "<m>")], [(figure, ["stem"])], [("9", "--mnli")]).read_text()
    assert "1 of 3 claims hold, 1 do not, 1 cannot be decided" in page
    assert page.count("§9") == 3 and page.count("&lt;i&gt;rule") == 3
    assert "&lt;b&gt;bold" in page and "<script>" not in page and "&lt;m&gt;" in page and "needs --mnli" in page


def test_no_data_is_an_error(minilm: identiscope.Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data were given"):
        list(reproduce_brunner2020(minilm, Data(), tmp_path, budget=QUICK))


def test_the_command_names_what_it_cannot_read(tmp_path: Path) -> None:
    given = ["brunner2020", "--mrpc", str(tmp_path / "none.tsv"), "-o", str(tmp_path / "out")]
    found = CliRunner().invoke(reproduce, given)
    assert isinstance(found.exception, InputError) and "none.tsv" in str(found.exception)
    assert not (tmp_path / "out").exists()
