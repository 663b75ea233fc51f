"""A real Chromium, headless, without a network; reports to open in it."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import identiscope
from identiscope.capture.samples import PASSAGE
from identiscope.experiments.reporting import report_page
from identiscope.views.report import page_html
from identiscope.views.report_data import Page

playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: the package playwright is missing")


def until(tab: Any, condition: str, seconds: float = 20) -> None:
    """Wait for a condition. Playwright's own way evaluates a string in the page, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not tab.evaluate(condition):
        assert time.monotonic() < end, f"never came true: {condition}"
        tab.wait_for_timeout(20)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no browser tests: there is no chromium here (apt-get install chromium, or set CHROMIUM)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


Open = Callable[..., Any]


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a page of data, or a file; at the end, nothing may have been fetched, forbidden or thrown."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def opened(page: Page | Path, *, width: int = 1280, theme: str = "light", place: str = "") -> Any:
        path = page if isinstance(page, Path) else tmp_path / f"{len(contexts)}.html"
        if isinstance(page, Page):
            path.write_text(page_html(page), encoding="utf-8")
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        tab.on("console", lambda said: troubles.append(f"console: {said.text}") if said.type == "error" else None)
        tab.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith(("file://", "blob:", "data:"))
                else troubles.append(f"network: {asked.url}")
            ),
        )
        tab.goto(f"file://{path}{place}")
        until(tab, "!!window.identiscope")
        tab.evaluate("identiscope.ready")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(scope="session")
def trace(minilm: identiscope.Model) -> identiscope.Trace:
    return identiscope.trace(minilm, PASSAGE[:300])


@pytest.fixture(scope="session")
def page(trace: identiscope.Trace) -> Page:
    return report_page(trace, canonical=[(2, 3)], intervals=[(2, 3, 4)])


@pytest.fixture(scope="session")
def report(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page_html(page), encoding="utf-8")
    return path
