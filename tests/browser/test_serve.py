"""The live viewer in a real browser: texts in, maps out, two side by side, more on demand, a Cancel that cancels."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

import identiscope
from browser.conftest import Visit, until
from identiscope.methods.registry import METHODS
from identiscope.reports.live import live, served_model
from identiscope.views.page.data import empty_page
from identiscope.views.page.plain import table_section
from identiscope.views.server.application import Served
from identiscope.views.server.jobs import Jobs
from identiscope.views.server.questions import ServedModel
from identiscope.views.server.security import Rules
from tiny_text_model import save_tiny
from views.serving import TOKEN, Client, serving
from views.serving import until as until_here
from views.shape_check import heads

TEXT = "The lighthouse keeper wrote a letter to his sister every Sunday, and the sea took it. " * 2
MAPS = """async ([side, layer, head]) => {
  const maps = await identiscope.sides[side].pane.viewer().maps(layer, head);
  return [Array.from(maps.raw), Array.from(maps.effective_simplex_span)];
}"""
SHOWN = "(side) => !!identiscope.sides[side].pane.viewer() && !identiscope.sides[side].busy()"
THEMES = "identiscope.sides.map((side) => side.pane.element.shadowRoot.querySelector('div').dataset.theme)"
PLACE = "(side) => identiscope.sides[side].pane.viewer().place()"


@pytest.fixture(scope="module")
def client(minilm: identiscope.Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    tiny = identiscope.load(save_tiny(tmp_path_factory.mktemp("models") / "tiny"))
    run = empty_page("A corpus", "three texts", verdict=["So it is."])
    run = run.with_section(table_section("Means", ["column"], [[0.5]]))
    models = [minilm, tiny]
    served = Served([served_model(one) for one in models], live(models, 200), run, sample=TEXT, jobs=Jobs())
    with serving(served) as found:
        yield found


@pytest.fixture
def opened(visit: Visit, client: Client) -> Callable[..., Any]:
    """Open the page of the server, which nobody else may be asked for."""
    address = f"http://127.0.0.1:{client.port}/"
    visit.own = (address, "blob:", "data:")

    def open_page(width: int = 1280, theme: str = "light", place: str = "") -> Any:
        tab = visit.tab(width, theme)
        tab.goto(f"{address}{place}")
        until(tab, "!!window.identiscope")
        return tab

    return open_page


def shown(tab: Any, side: int = 0) -> None:
    until(tab, f"({SHOWN})({side})", 60)


def choose(tab: Any, *methods: str) -> None:
    for box in tab.locator(".method:not(.other) input[type=checkbox]").all():
        box.set_checked(box.get_attribute("name") in methods)


def fits(tab: Any) -> bool:
    return bool(tab.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_a_text_is_computed_and_shown(opened: Any, minilm: identiscope.Model) -> None:
    tab = opened()
    assert tab.input_value("textarea >> nth=0") == TEXT
    text = "A short text, typed here, of a keeper and the sea and the letters that he wrote to it."
    tab.fill("textarea >> nth=0", text)
    choose(tab, "attribution")
    tab.fill('input[type="number"]', "2")
    tab.press("textarea >> nth=0", "Control+Enter")
    shown(tab)
    assert tab.inner_text(".pane h1") == "minilm" and tab.locator("#verdict").count() == 0
    assert tab.locator("#attribution").count() == 1
    trace = identiscope.trace(minilm, text)
    for layer, head in ((0, 0), (4, 7)):
        true = identiscope.attention_maps(trace, layer, head, ("raw", "effective_simplex_span"))
        raw, kept = (np.array(cells).reshape(true["raw"].shape) for cells in tab.evaluate(MAPS, [0, layer, head]))
        stated = heads(tab.evaluate("identiscope.sides[0].header()"))["layers"][layer]["error"]
        assert np.abs(raw - true["raw"].values).max() <= stated["raw"]
        span = "effective_simplex_span"
        assert np.abs(kept - true[span].values).max() <= stated[span]
    assert tab.evaluate("identiscope.sides[0].pane.viewer().timing.threaded")


def test_every_method_is_offered(opened: Any) -> None:
    tab = opened()
    offered = {box.get_attribute("name") for box in tab.locator(".other input").all()}
    assert offered == {*METHODS} - {"canonical", "hidden_token_attribution"}
    tab.fill("textarea >> nth=0", "A short text.")
    choose(tab)
    tab.click(".others summary")
    tab.check(".other input[name=head_role]")
    assert fits(tab)
    tab.click("button.main")
    shown(tab)
    assert tab.locator("#head-role").count() == 1
    # Of an encoder there is no usual outcome; what is explained can be said, and is there again after a reload.
    tab.check(".other input[name=saliency]")
    tab.click("button.main")
    until(tab, "document.querySelector('.trouble:not([hidden])')?.textContent.includes('similarity:')", 60)
    tab.get_by_label("What is explained").fill("similarity:Another <b>text</b>.")
    assert fits(tab)
    before = tab.evaluate("identiscope.sides[0].page()")
    tab.click("button.main")
    until(tab, f"identiscope.sides[0].page() !== {before!r} && ({SHOWN})(0)", 60)
    assert tab.locator("#saliency canvas").count() == 1
    sections = tab.evaluate("identiscope.sides[0].header().sections")
    (saliency,) = (one["data"] for one in sections if one["name"] == "saliency")
    assert "Another <b>text</b>." in str(saliency["rows"])
    tab.reload()
    until(tab, "!!window.identiscope")
    tab.evaluate("identiscope.reopened")
    tab.click(".others summary")
    assert tab.get_by_label("What is explained").input_value() == "similarity:Another <b>text</b>."


def test_more_is_computed_for_what_is_looked_at(opened: Any) -> None:
    tab = opened(place="#layer=3&head=5&row=4")
    choose(tab)
    tab.click("button.main")
    shown(tab)
    assert tab.evaluate(PLACE, 0) == {"layer": 3, "head": 5, "row": 4}
    assert "Layer 3, head 5, row 4" in tab.inner_text(".more")
    assert "the button above" in tab.inner_text("#attention_row .legend")
    before = tab.evaluate("identiscope.sides[0].page()")
    for button in ("Canonical map of this head", "Intervals of this row"):
        tab.click(f".more >> text={button}")
        until(tab, f"identiscope.sides[0].page() !== {before!r} && ({SHOWN})(0)", 60)
        before = tab.evaluate("identiscope.sides[0].page()")
        assert tab.evaluate(PLACE, 0) == {"layer": 3, "head": 5, "row": 4}
        until(tab, f"[...document.querySelectorAll('.more button')].find((b) => b.innerText === {button!r}).disabled")
    now = heads(tab.evaluate("identiscope.sides[0].header()"))
    assert now["layers"][3]["canonical"]["heads"] == [5]
    assert len(now["intervals"]) == now["layers"][3]["keys"]
    tab.locator(".grid button").nth(8).click()
    until(tab, "document.querySelector('.more').innerText.includes('Layer 0, head 8')")
    assert tab.locator(".more button[disabled]").count() == 0


def test_two_side_by_side(opened: Any) -> None:
    tab = opened()
    choose(tab)
    tab.click("text=Compare with another")
    tab.fill('[aria-label="Text B"]', "w1 w2 w3 , w4 .")
    assert tab.locator(".side select >> nth=0").input_value() == "0"
    tab.press('[aria-label="Text B"]', "Control+Enter")
    shown(tab, 0)
    shown(tab, 1)
    titles = tab.locator(".pane h1").all_inner_texts()
    assert titles == ["minilm", "tiny"]
    left, right = (tab.locator(".pane").nth(place).bounding_box() for place in (0, 1))
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"] and fits(tab)
    assert "heads less than half real" in tab.inner_text(".compared") and tab.locator(".compared tbody tr").count() == 2
    # The second follows the first, as far as it can.
    tab.evaluate("identiscope.sides[0].pane.viewer().choose({row: 3})")
    tab.locator(".pane").nth(0).locator(".grid button").nth(12 + 2).click()
    until(tab, f"JSON.stringify(({PLACE})(1)) === JSON.stringify({{layer: 1, head: 2, row: 3}})")
    until(tab, "[...document.querySelectorAll('.more')].every((one) => one.innerText.includes('Layer 1, head 2'))")
    tab.uncheck("text=same head in both")
    tab.locator(".pane").nth(0).locator(".grid button").nth(0).click()
    tab.wait_for_timeout(200)
    assert tab.evaluate(PLACE, 1)["layer"] == 1
    # Both are there again after a reload.
    tab.reload()
    until(tab, f"!!window.identiscope && ({SHOWN})(0) && ({SHOWN})(1)", 60)
    assert tab.locator(".pane h1").all_inner_texts() == titles
    assert tab.input_value('[aria-label="Text B"]') == "w1 w2 w3 , w4 ."
    tab.click("text=One only")
    assert "beside" not in tab.evaluate("location.hash")
    assert tab.locator(".pane").count() == 1 and not tab.locator(".compared").is_visible()


def test_cancel(opened: Any, client: Client) -> None:
    tab = opened()
    tab.fill("textarea >> nth=0", TEXT * 3)
    choose(tab, "verdict", "canonical", "attribution")
    tab.fill('input[type="number"]', "64")
    tab.click("button.main")
    until_here(lambda: client.served.jobs.running)
    until(tab, "/verdict|reading|attribution/.test(document.querySelector('.status').innerText)")
    tab.click("text=Cancel")
    until(tab, "document.querySelector('.trouble').innerText === 'Cancelled.'")
    until_here(lambda: not client.served.jobs.running, 10)
    assert tab.locator("button:text-is('Cancel')").is_hidden()
    # A tab that is closed cancels, too.
    tab.click("button.main")
    until_here(lambda: client.served.jobs.running)
    tab.goto("about:blank")
    until_here(lambda: not client.served.jobs.running, 10)


def test_trouble_is_told_and_hostile_text_is_text(opened: Any) -> None:
    tab = opened()
    choose(tab)
    tab.fill("textarea >> nth=0", "word " * 300)
    tab.click("button.main")
    until(tab, "document.querySelector('.trouble').innerText.includes('302 tokens; at most 200')")
    tab.fill("textarea >> nth=0", "<script>window.bad = 1</script> \u202e \U0001f600 <img src=x onerror=alert(1)>")
    tab.click("button.main")
    shown(tab)
    assert tab.locator(".trouble").first.is_hidden()
    assert tab.evaluate("window.bad") is None and tab.locator(".pane img").count() == 0


def test_the_history_of_long_texts_fits_a_narrow_screen(opened: Any) -> None:
    tab = opened(width=390)
    for text in ("A keeper and an " + "extra" * 60 + "ordinary word.", "The light and the sea. " * 3):
        tab.fill("textarea >> nth=0", text)
        tab.click("button.main >> nth=0")
        until(tab, f"JSON.parse(localStorage.getItem('identiscope-asked') ?? '[]')[0]?.text === {text!r}", 60)
        shown(tab)
    tab.click(".history summary")
    assert tab.locator(".history button").count() >= 2 and fits(tab)


def test_a_reload_keeps_text_and_result_and_history_has_them(opened: Any) -> None:
    tab = opened()
    choose(tab)
    texts = ["The first text of two, of a keeper and the sea.", "<b>Another</b> text, asked for later."]
    for text in texts:
        tab.fill("textarea >> nth=0", text)
        tab.click("button.main")
        until(tab, f"identiscope.sides[0].header()?.title && ({SHOWN})(0)", 60)
        until(tab, "location.hash.includes('page=' + identiscope.sides[0].page())")
    tab.evaluate("identiscope.sides[0].pane.viewer().choose({layer: 2, head: 4, row: 3})")
    until(tab, "location.hash.includes('head=4')")
    page = tab.evaluate("identiscope.sides[0].page()")
    tab.reload()
    until(tab, "!!window.identiscope")
    tab.evaluate("identiscope.reopened")
    shown(tab)
    assert tab.input_value("textarea >> nth=0") == texts[1]
    assert tab.evaluate("identiscope.sides[0].page()") == page
    assert tab.evaluate(PLACE, 0) == {"layer": 2, "head": 4, "row": 3}
    assert "(cpu, float32)" in tab.inner_text(".controls")
    # What was typed and not asked yet is there, too.
    tab.fill("textarea >> nth=0", "Not asked yet.")
    tab.reload()
    until(tab, "!!window.identiscope")
    tab.evaluate("identiscope.reopened")
    shown(tab)
    assert tab.input_value("textarea >> nth=0") == "Not asked yet."
    tab.click(".history summary")
    assert tab.locator(".history bdi").all_inner_texts()[:2] == texts[::-1] and tab.locator(".history b").count() == 0
    tab.click(".history button >> nth=1")
    until(tab, f"identiscope.sides[0].page() !== {page!r}")
    assert tab.input_value("textarea >> nth=0") == texts[0]


def test_an_address_whose_page_is_gone_says_so(opened: Any, visit: Visit) -> None:
    tab = opened(place="#page=nothing-of-this-name")
    tab.evaluate("identiscope.reopened")
    assert "no longer has the page" in tab.inner_text(".trouble >> nth=0")
    # The browser's console says that it was not found, too.
    visit.troubles = [one for one in visit.troubles if "404" not in one]


def test_a_file_is_read_into_the_text(opened: Any, tmp_path: Path) -> None:
    tab = opened()
    for name, content, expected in (
        ("text.txt", "Words of a file, é.".encode(), ""),
        ("picture.txt", b"\xff\xfe\x00\x01", "picture.txt is not a text file in UTF-8"),
        ("long.txt", b"a" * 30_000, "long.txt has 30000 characters; at most 20000"),
    ):
        (tmp_path / name).write_bytes(content)
        tab.set_input_files("input[type=file] >> nth=0", tmp_path / name)
        until(tab, f"document.querySelector('.trouble').textContent.includes({expected!r})")
        assert tab.input_value("textarea >> nth=0") == ("Words of a file, é.")


def test_the_corpus_run(opened: Any) -> None:
    tab = opened()
    tab.click("text=Corpus run")
    until(tab, "!!document.querySelector('.corpus .pane')?.shadowRoot.querySelector('h1')")
    assert tab.inner_text(".corpus h1") == "A corpus" and tab.locator(".live").is_hidden()
    tab.click("text=A text")
    assert tab.locator(".live").is_visible() and tab.locator(".corpus").is_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone(opened: Any, theme: str) -> None:
    tab = opened(390, theme)
    choose(tab)
    tab.click("text=Compare with another")
    tab.click("button.main")
    shown(tab, 0)
    shown(tab, 1)
    upper, lower = (tab.locator(".pane").nth(place).bounding_box() for place in (0, 1))
    assert upper["y"] + upper["height"] <= lower["y"] and fits(tab)
    assert tab.evaluate(THEMES) == [theme] * 2
    tab.click("header >> text=/Dark|Light/")
    assert tab.evaluate(THEMES) == [{"light": "dark", "dark": "light"}[theme]] * 2


def test_the_token_in_the_address_opens_the_page(chromium: Any) -> None:
    page = empty_page("Only for those who know", verdict=["It is said."])
    served = Served([ServedModel("one")], lambda question, progress: page)
    with serving(served, Rules(token=TOKEN, cookie="identiscope-test")) as found:
        address = f"http://127.0.0.1:{found.port}/"
        context = chromium.new_context()
        tab = context.new_page()
        assert tab.goto(address).status == 401
        assert tab.goto(f"{address}?token={TOKEN}").status == 200
        # It is gone from the address, and the cookie is not for scripts.
        assert tab.url == address and tab.evaluate("document.cookie") == ""
        until(tab, "!!window.identiscope")
        tab.fill("textarea >> nth=0", "words")
        tab.click("button.main")
        shown(tab)
        assert tab.inner_text(".pane h1") == "Only for those who know"
        context.close()
