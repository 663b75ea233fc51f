"""What a server computes is what a report holds; more is added to it; two threads do not disturb each other."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import contract
import families
import identiscope
from identiscope.errors import InputError
from identiscope.reports.live import live, served_model
from identiscope.reports.reporting import report_page
from identiscope.views.page.data import Page
from identiscope.views.server.jobs import Jobs
from identiscope.views.server.questions import Compute, Question, ServedModel
from tiny_text_model import save_tiny, words
from views.shape_check import check_page, heads

TEXT = words(20)


def tell(done: int, total: int) -> None:
    assert 0 <= done <= total


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> identiscope.Model:
    return identiscope.load(save_tiny(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def compute(model: identiscope.Model) -> Compute:
    return live([model], most_tokens=40)


@pytest.fixture(scope="module")
def page(compute: Compute) -> Page:
    return compute(Question(0, TEXT), tell)


def test_it_is_the_page_of_a_report(model: identiscope.Model, page: Page) -> None:
    # Of the model's directory only the last name is told.
    expected = report_page(identiscope.trace(model, TEXT), title=Path(model.name).name)
    assert page == expected and page.header["verdict"] and heads(page)["start"]


def test_methods(compute: Compute) -> None:
    page = compute(Question(0, TEXT, methods=("canonical", "attribution"), directions=2), tell)
    assert page.header["verdict"] == []
    assert [layer["canonical"]["heads"] for layer in heads(page)["layers"]] == [[0, 1, 2, 3]] * 2
    shown: Any = page.section("attribution")["data"]
    assert shown["rows"] == [0, 1] and "attribution.values" in page.chunks


def test_any_method_gets_a_section(compute: Compute, page: Page) -> None:
    made = compute(Question(0, TEXT, methods=("head_sink", "attention_alternative")), tell)
    assert {"attention", "head-sink", "attention-alternative"} <= set(made.names)
    assert "head-sink" in compute(Question(0, TEXT, methods=("head_sink",), base=page), tell).names


@pytest.mark.parametrize("attention", ["encoder-self", "decoder-self", "cross"])
def test_methods_are_asked_of_the_attention_that_the_page_is_about(attention: str) -> None:
    asked: Any = {"with_verdict": False, "canonical": "none", "methods": ["null", "attention_alternative"]}
    traced = contract.trace(contract.CASES["cross attention"])
    page = report_page(traced, attention=attention, **asked)
    shown: Any = page.section("null")["data"]
    (site, *_) = (one for one in traced.sites if one.kind == attention)
    assert (len(shown["rows"]), len(shown["columns"])) == (site.queries, site.keys)


def test_a_text_of_more_than_the_most_tokens_is_cut_where_that_was_asked_for(model: identiscope.Model) -> None:
    whole = len(identiscope.trace(model, words(50)).tokens)
    page = live([model], most_tokens=40, truncate=True)(Question(0, words(50)), tell)
    assert len(heads(page)["tokens"]["queries"]) == 40
    assert f"40 tokens, {whole - 40} cut" in page.header["subtitle"]


def test_more_is_added_and_the_rest_stays(compute: Compute, page: Page) -> None:
    # The verdict asks for some canonical maps; one that it did not ask for is added.
    had = (heads(page)["layers"][1]["canonical"] or {"heads": []})["heads"]
    head = next(head for head in range(4) if head not in had)
    more = compute(Question(0, TEXT, methods=(), canonical=((1, head),), intervals=((0, 2, 5),), base=page), tell)
    assert heads(more)["layers"][1]["canonical"]["heads"] == sorted([*had, head])
    assert more.header["verdict"] == page.header["verdict"] and heads(more)["start"] == heads(page)["start"]
    row = [one for one in heads(more)["intervals"] if (one["layer"], one["head"], one["query"]) == (0, 2, 5)]
    assert len(row) == heads(more)["layers"][0]["keys"]
    assert len(heads(more)["intervals"]) == len({tuple(one.values())[:4] for one in heads(more)["intervals"]})
    kept = [one for one in heads(page)["intervals"] if one in heads(more)["intervals"]]
    assert len(kept) >= len([one for one in heads(page)["intervals"] if one["layer"] == 1])
    check_page(more)
    last = compute(Question(0, TEXT, methods=("attribution",), directions=2, base=more), tell)
    assert last.names == ["attention", "attribution"] and heads(last)["layers"] == heads(more)["layers"]


@pytest.mark.parametrize("place", [{"canonical": ((7, 0),)}, {"canonical": ((0, 4),)}, {"intervals": ((0, 0, 99),)}])
def test_places_that_are_not_there(compute: Compute, page: Page, place: dict[str, tuple[tuple[int, ...], ...]]) -> None:
    with pytest.raises(InputError, match=r"has no head|row 99"):
        compute(Question(0, TEXT, base=page, **place), tell)  # type: ignore[arg-type]


def test_a_text_too_long_for_the_model_is_cut_only_where_that_was_asked_for(model: identiscope.Model) -> None:
    longest = model.config.max_position_embeddings
    question = Question(0, words(longest + 30), methods=())
    with pytest.raises(InputError, match="truncate"):
        live([model], most_tokens=10_000)(question, tell)
    page = live([model], most_tokens=10_000, truncate=True)(question, tell)
    assert f"{longest} tokens, " in page.header["subtitle"] and " cut" in page.header["subtitle"]


def test_too_many_tokens(compute: Compute) -> None:
    with pytest.raises(InputError, match=r"52 tokens; at most 40"):
        compute(Question(0, words(50)), tell)


def test_an_outcome_is_explained_and_no_longer_than_a_text_may_be(compute: Compute) -> None:
    asked = Question(0, TEXT, methods=("saliency", "head_sink"), outcome=f"similarity:{words(5)}")
    page: Any = compute(asked, tell)
    assert {"saliency", "head-sink"} <= set(page.names) and words(5) in str(page.section("saliency")["data"])
    with pytest.raises(InputError, match=r"the outcome has 5\d tokens; at most 40"):
        compute(Question(0, TEXT, methods=("saliency",), outcome=f"similarity:{words(50)}"), tell)


@pytest.mark.parametrize("other", ["attribution", "canonical"])
def test_two_threads_on_one_model(model: identiscope.Model, other: str) -> None:
    compute = live([model])
    kinds = ["attribution", other]
    questions = [Question(0, words(12, place), methods=(kinds[place % 2],), directions=2) for place in range(6)]
    expected = [compute(question, tell) for question in questions]
    found: list[Page | None] = [None] * len(questions)

    def work(places: range) -> None:
        for place in places:
            found[place] = compute(questions[place], tell)

    threads = [threading.Thread(target=work, args=(range(start, 6, 2),)) for start in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_a_text_is_cancelled_in_between(compute: Compute) -> None:
    seen = []

    class Stop(BaseException):
        pass

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise Stop

    with pytest.raises(Stop):
        compute(Question(0, TEXT), stop)
    assert len(seen) == 3
    # The model is as it was.
    assert compute(Question(0, TEXT), tell).header["verdict"]


def test_what_a_browser_is_told_of_a_model(model: identiscope.Model, tmp_path: Path) -> None:
    assert served_model(model) == ServedModel(Path(model.name).name, False, "cpu, float32")
    with pytest.raises(InputError, match="tokenizer"):
        served_model(identiscope.load(families.ALL["BERT"].model()))


def test_interrupted_anywhere_the_model_is_as_it_was(model: identiscope.Model) -> None:
    compute = live([model])
    question = Question(0, TEXT, methods=("verdict", "attribution"), directions=16)
    expected = compute(question, tell)

    async def interrupt() -> list[str]:
        jobs = Jobs(running=1)
        ends: list[str] = []
        for step in range(8):
            job = jobs.submit("me", partial(compute, question))
            job.watched = True
            await asyncio.sleep(0.03 + 0.11 * step)
            jobs.cancel(job)
            while jobs.running:
                await asyncio.sleep(0.01)
            ends.append(job.state)
        return ends

    # In a thread of its own: a browser's tests leave an event loop in this one.
    with ThreadPoolExecutor(1) as pool:
        assert "cancelled" in pool.submit(lambda: asyncio.run(interrupt())).result()
    assert compute(question, tell) == expected
