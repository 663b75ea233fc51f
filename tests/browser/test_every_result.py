"""Every result that the library can make opens in a real browser: something is seen, and nothing is thrown."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from every_result import every_result, method_names, unusual_results
from identiscope.reports.reporting import report
from identiscope.views.page import plain
from identiscope.views.page.data import Page, empty_page
from identiscope.views.page.results import result_page, with_result

pytestmark = pytest.mark.long

# What a reader sees beside the heading: how many parts with something in them, and whether the page gave up.
SEEN = """() => ({
  parts: Array.from(document.querySelectorAll("main section"))
    .filter((part) => part.getBoundingClientRect().height > 40)
    .filter((part) => part.textContent.trim() || part.querySelector("img, svg, canvas")).length,
  cells: Array.from(document.querySelectorAll("table.plain td"), (cell) => cell.textContent),
  alerts: document.querySelectorAll("[role=alert]").length,
})"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[xr.Dataset]:
    return list(every_result(tmp_path_factory.mktemp("results")))


def check(tab: Any, least: int = 1) -> dict[str, Any]:
    seen: dict[str, Any] = tab.evaluate(SEEN)
    assert seen["parts"] >= least and seen["alerts"] == 0, (tab.url, seen["parts"], seen["alerts"])
    assert not {"undefined", "NaN", "[object Object]"} & set(seen["cells"])
    return seen


def test_no_kind_of_result_is_left_out(results: list[xr.Dataset]) -> None:
    assert {str(result.attrs["method"]) for result in results} == method_names()


def test_pages_of_one_result_open(
    results: list[xr.Dataset], open_page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each make of page: which sections it has, and whether a verdict leads. Below, each result is in the
    browser, many to a page, since opening one takes longer than what is on it."""
    with monkeypatch.context() as patched:
        # Which sections there are does not depend on what is drawn in them, and that takes most of the time.
        patched.setattr(plain, "_picture", lambda result: None)
        headers = [result_page(result).header for result in results]
    tab, seen = None, set()
    for number, (result, header) in enumerate(zip(results, headers, strict=True)):
        make = (*(section["kind"] for section in header["sections"]), bool(header["verdict"]))
        if make not in seen:
            seen.add(make)
            tab = open_page(report(result, path=tmp_path / f"result-{number}.html"), tab=tab)
            check(tab)


@pytest.mark.parametrize("name", unusual_results())
def test_unusual_results_open(open_page: Any, name: str) -> None:
    check(open_page(result_page(unusual_results()[name])))


def test_cells_say_what_the_numbers_are(open_page: Any) -> None:
    made = unusual_results()
    numbers = check(open_page(result_page(made["numbers that are none"])))["cells"]
    for shown in ("1.500", "–", "∞", "−∞", "1.0·10⁻⁹", "−1.2·10⁶"):
        assert shown in numbers
    single = check(open_page(result_page(made["no axis"])))["cells"]
    assert single[:10] == ["ratio", "0.250", "same", "yes", "word", "yes", "count", "3", "nothing", "–"]
    tab = open_page(result_page(made["nothing but attributes"]))
    assert tab.inner_text("#verdict .lead") == "So it is."


def filled(value: float) -> Callable[[xr.Dataset], xr.Dataset]:
    def fill(result: xr.Dataset) -> xr.Dataset:
        numbers = {
            name: (part.dims, np.full(part.shape, value))
            for name, part in result.data_vars.items()
            if part.dtype.kind == "f"
        }
        return result.assign(numbers)

    return fill


VARIANTS: dict[str, Callable[[xr.Dataset], xr.Dataset]] = {
    "as it is": lambda result: result,
    "not a number": filled(np.nan),
    "infinite": filled(np.inf),
    "one of the first axis": lambda result: result.isel({next(iter(result.sizes)): 0}),
    "one of the last axis": lambda result: result.isel({list(result.sizes)[-1]: 0}),
    "none of the first axis": lambda result: result.isel({next(iter(result.sizes)): slice(0, 0)}),
    "none of the last axis": lambda result: result.isel({list(result.sizes)[-1]: slice(0, 0)}),
}


def together(results: list[xr.Dataset], variant: Callable[[xr.Dataset], xr.Dataset]) -> Iterator[tuple[Page, int]]:
    """A few to a page, and how many."""
    for start in range(0, len(results), 28):
        few = results[start : start + 28]
        page = empty_page("Several")
        for result in few:
            page = with_result(page, variant(result))
        yield page, len(few)


@pytest.mark.parametrize("name", VARIANTS)
def test_each_opens_whole_without_numbers_and_in_part(results: list[xr.Dataset], open_page: Any, name: str) -> None:
    tab = None
    for page, count in together(results, VARIANTS[name]):
        tab = open_page(page, tab=tab)
        check(tab, least=count)
