"""A real Chromium, headless, without a network; reports to open in it."""

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import identiscope
from identiscope.capture.samples import PASSAGE
from identiscope.reports.reporting import report_page
from identiscope.views.page.data import Page
from identiscope.views.page.report import page_html
from views.shape_check import check_page

try:
    from playwright import sync_api as playwright
except ImportError:
    playwright = None  # type: ignore[assignment]


def until(tab: Any, condition: str, seconds: float = 20) -> None:
    """Wait for a condition. Playwright's own way evaluates a string in the page, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not tab.evaluate(condition):
        assert time.monotonic() < end, f"never came true: {condition}"
        tab.wait_for_timeout(20)


# Every button that was pressed and every link that a save then followed, in order.
PRESSED = """() => {
  if (window.pressed) return;
  window.pressed = [];
  addEventListener("click", ({ target }) => window.pressed.push(target.cloneNode().outerHTML), true);
}"""


def saved(tab: Any, selector: str) -> tuple[str, bytes]:
    tab.evaluate(PRESSED)
    # Chromium drops, without a word, what a page saves beyond ten files in a second: a fast machine gets there.
    tab.wait_for_timeout(120)
    try:
        with tab.expect_download() as waiting:
            tab.click(selector)
    except playwright.TimeoutError as error:
        # How far it came: no press, a press without a link, what the page says of it, or a link without a file.
        error.add_note(f"{selector}: the page says {tab.locator('[role=alert]').all_inner_texts()}")
        error.add_note(f"pressed: {tab.evaluate('window.pressed')}")
        raise
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if playwright is None:
        pytest.skip("no browser tests: the package playwright is missing")
    if path is None:
        pytest.skip("no browser tests: there is no chromium here (apt-get install chromium, or set CHROMIUM)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


Open = Callable[..., Any]


class Tabs:
    """Tabs that tests open pages in one after the other: a new one, with its process, costs more than most pages."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.free: dict[tuple[int, str], list[Any]] = {}

    def take(self, width: int, theme: str) -> Any:
        free = self.free.setdefault((width, theme), [])
        if free:
            return free.pop()
        # Nothing moves by itself, but for the test that looks at it.
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
        return context.new_page()

    def give_back(self, tab: Any, width: int, theme: str) -> None:
        """Without the page that it showed, and with the pointer where it was at first."""
        tab.mouse.move(0, 0)
        tab.goto("about:blank")
        self.free[width, theme].append(tab)


@pytest.fixture(scope="session")
def tabs(chromium: Any) -> Tabs:
    return Tabs(chromium)


class Visit:
    """The tabs of one test, and what went wrong in them: what was thrown, what the console said, who else was asked."""

    def __init__(self, tabs: Tabs) -> None:
        self.tabs = tabs
        self.taken: list[tuple[Any, int, str]] = []
        self.troubles: list[str] = []
        self.own: tuple[str, ...] = ("file://", "blob:", "data:")
        self.heard = {"pageerror": self._threw, "console": self._said, "request": self._asked}

    def tab(self, width: int, theme: str) -> Any:
        tab = self.tabs.take(width, theme)
        self.taken.append((tab, width, theme))
        for event, hear in self.heard.items():
            tab.on(event, hear)
        return tab

    def end(self) -> None:
        for tab, width, theme in self.taken:
            for event, hear in self.heard.items():
                tab.remove_listener(event, hear)
            self.tabs.give_back(tab, width, theme)
        assert self.troubles == []

    def _threw(self, error: Any) -> None:
        self.troubles.append(f"error: {error}")

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.own):
            self.troubles.append(f"network: {request.url}")


@pytest.fixture
def visit(tabs: Tabs) -> Iterator[Visit]:
    """At the end, nothing may have been fetched, forbidden or thrown."""
    made = Visit(tabs)
    yield made
    made.end()


@pytest.fixture
def open_page(visit: Visit, tmp_path: Path) -> Open:
    """Open a page of data, or a file. tab: one that this test has opened, to show it in place of what that showed."""
    made = itertools.count()

    def opened(
        page: Page | Path, *, width: int = 1280, theme: str = "light", place: str = "", tab: Any | None = None
    ) -> Any:
        path = page if isinstance(page, Path) else tmp_path / f"{next(made)}.html"
        if isinstance(page, Page):
            check_page(page)
            path.write_text(page_html(page), encoding="utf-8")
        tab = visit.tab(width, theme) if tab is None else tab
        tab.goto(f"file://{path}{place}")
        until(tab, "!!window.identiscope")
        tab.evaluate("identiscope.ready")
        return tab

    return opened


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
