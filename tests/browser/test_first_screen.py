"""The first screen: the text itself, what of it is certain, and a slider that moves something; and how it is shown."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import identiscope
from browser.conftest import saved, until
from identiscope.views.page.data import Page

#: Of every word: its text, its label, and its colours.
WORDS = """[...document.querySelectorAll('.reading .word')].map((one) =>
  [one.textContent, one.getAttribute('aria-label'), one.style.background])"""

SOUGHT = "!document.querySelector('#attention_text .legend').textContent.includes('finding')"


@pytest.fixture(scope="module")
def place(page: Page) -> dict[str, int]:
    data: Any = page.section("attention")["data"]
    return dict(data["start"])


def test_the_text_is_there_word_by_word(open_page: Any, report: Path, trace: identiscope.Trace, place: Any) -> None:
    tab = open_page(report)
    words = tab.evaluate(WORDS)
    plain = [token.removeprefix("##") for token in trace.tokens]
    assert [text for text, _, _ in words] == plain
    assert tab.inner_text(".reading").split()[:4] == ["[CLS]", *plain[1:4]]
    assert tab.locator(".reading .word.reads").text_content() == plain[place["row"]]
    assert f"layer {place['layer']}, head {place['head']}" in tab.inner_text("#attention_text_title")
    box = tab.locator("#attention_text .moving").bounding_box()
    assert box["y"] + box["height"] < 900


def test_words_say_their_weight_and_stripes_mean_that_it_may_be_otherwise(
    open_page: Any, report: Path, trace: identiscope.Trace, place: Any
) -> None:
    tab = open_page(report)
    until(tab, SOUGHT)
    raw = trace.site(place["layer"]).attention(place["head"], [place["row"]])[0].numpy()
    striped = 0
    for at, (_, label, background) in enumerate(tab.evaluate(WORDS)):
        said = float(re.search(r"has (\d\.\d\d)", label)[1])  # type: ignore[index]
        assert said == pytest.approx(raw[at], abs=0.0062)
        if "could be anything" in label:
            low, high = map(float, re.search(r"from (\S+) to (\d\.\d\d)", label).groups())  # type: ignore[union-attr]
            assert high - low > 0.03 and background.startswith("repeating-linear-gradient")
            # Copies of a word with hardly any weight of their own are striped so that one sees it.
            assert len(set(re.findall(r"rgba?\([^)]*\)", background))) == 2
            striped += 1
    assert striped
    # One that is certain, elsewhere: most of the weight of this row is on itself.
    tab.evaluate("identiscope.choose({layer: 3, head: 5, row: 20})")
    until(tab, "[...document.querySelectorAll('.word')].some((one) => /; certain/.test(one.ariaLabel))")


def test_bounds_that_the_browser_finds_are_those_of_the_library(
    open_page: Any, report: Path, trace: identiscope.Trace
) -> None:
    """But for the rounding of T in the page."""
    tab = open_page(report, place="#layer=3&head=11&row=38")
    until(tab, SOUGHT)
    exact = identiscope.attention_intervals(trace, 3, 11, row=38)
    table = list(csv.DictReader(io.StringIO(saved(tab, "#attention_text [data-save=csv]")[1].decode())))
    assert len(table) == len(trace.tokens) and not any(one["exact"] == "true" for one in table)
    words = tab.evaluate(WORDS)
    assert tab.locator(".reading .unsought").count() == 0
    for place, one in enumerate(table):
        true = exact.isel(cell=int(np.flatnonzero(exact.key.values == place)[0]))
        assert float(one["lower"]) == pytest.approx(float(true.merged_lower), abs=0.005)
        assert float(one["upper"]) == pytest.approx(float(true.merged_upper), abs=0.005)
        width = float(one["upper"]) - float(one["lower"])
        # Also of words with next to no weight: plain is what was looked into and is certain.
        assert words[place][2].startswith("repeating") == (width >= 0.05)
        assert ("; certain" in words[place][1]) == (width < 0.05)
    assert any(float(one["weight"]) < 0.001 and float(one["upper"]) > 0.05 for one in table)


def test_words_that_were_not_looked_into_are_not_called_certain(open_page: Any, report: Path) -> None:
    tab = open_page(report)
    # A clock by which the time for looking is over at once.
    tab.evaluate("let time = 0; performance.now = () => (time += 1e5);")
    tab.evaluate("identiscope.choose({layer: 3, head: 11, row: 38})")
    until(tab, "document.querySelector('#attention_text_title').textContent.includes('layer 3, head 11')")
    until(tab, SOUGHT)
    words = tab.evaluate(WORDS)
    assert tab.locator(".reading .unsought").count() == len(words)
    assert all("certain" not in label and "was not looked into" in label for _, label, _ in words)
    assert "not looked into" in tab.inner_text("#attention_text .legend")
    assert "was not looked into" in tab.inner_text("#attention_text .answer")
    assert "stroke-dasharray" in saved(tab, "#attention_text [data-save=svg]")[1].decode()


def test_the_text_is_on_the_first_screen_of_a_telephone(open_page: Any, report: Path) -> None:
    tab = open_page(report, width=390)
    box = tab.locator(".reading").bounding_box()
    slider = tab.locator("#attention_text .moving").bounding_box()
    assert box["y"] < 600 and slider["y"] > box["y"]
    assert tab.evaluate("document.documentElement.scrollWidth") == 390


def test_the_slider_moves_the_text_and_not_the_output(open_page: Any, report: Path) -> None:
    tab = open_page(report)
    until(tab, SOUGHT)
    before = tab.evaluate(WORDS)
    tab.locator("#attention_text_slider").fill("100")
    assert tab.input_value("#attention_slider") == "100"
    after = tab.evaluate(WORDS)
    assert sum(one[2] != other[2] for one, other in zip(before, after, strict=True)) > 5
    moved = float(tab.inner_text("#attention_text [data-fact=moved]").split()[0])
    change = float(tab.inner_text("#attention_text [data-fact=difference]").split()[0])
    assert moved > 5 and change < 0.01


def test_the_slider_moves_by_itself_once_and_rests(chromium: Any, report: Path) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="no-preference")
    tab = context.new_page()
    tab.goto(f"file://{report}")
    until(tab, "!!window.identiscope")
    tab.evaluate("identiscope.ready")
    until(tab, "Number(document.querySelector('#attention_text_slider').value) > 50")
    # Whoever touches it has it.
    tab.locator("#attention_text_slider").fill("30")
    tab.wait_for_timeout(300)
    assert tab.input_value("#attention_text_slider") == "30"
    context.close()


def test_by_keyboard_from_word_to_word(open_page: Any, report: Path) -> None:
    tab = open_page(report)
    before = tab.evaluate("identiscope.place()")
    tab.focus(".reading .word.reads")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("identiscope.place()") == before
    assert tab.evaluate("document.activeElement.dataset.unit") == str(before["row"] + 1)
    tab.keyboard.press("Enter")
    until(tab, f"identiscope.place().row === {before['row'] + 1}")


def test_jargon_is_behind_a_question(open_page: Any, report: Path) -> None:
    tab = open_page(report)
    seen = tab.inner_text("main")
    assert not re.search(r"LN\(|col\(|‖A|eq\. \d|null space|simplex_|identifiable", seen.split("Layer\n")[0])
    tab.click("#attention_text .what summary")
    assert "a′·T = a·T" in tab.inner_text("#attention_text .what")


def joined(tokens: list[str]) -> list[list[int]]:
    """WordPiece's words, by hand."""
    words: list[list[int]] = []
    for place, token in enumerate(tokens):
        if token.startswith("##"):
            words[-1].append(place)
        else:
            words.append([place])
    return words


def shown_cells(tab: Any, name: str) -> np.ndarray:
    """What the tooltip says of the first cells of a map."""
    cells = []
    for column in range(6):
        point = tab.evaluate(f"identiscope.pointOf('{name}', 4, {column})")
        tab.mouse.move(point["x"], point["y"])
        cells.append(float(tab.inner_text(".tip b >> nth=0").replace("−", "-")))
    return np.array(cells)


def test_whole_words_copies_and_order(open_page: Any, report: Path, trace: identiscope.Trace) -> None:
    tab = open_page(report, place="#layer=2&head=3&row=4")
    raw = trace.site(2).attention(3).numpy()
    tokens = list(trace.tokens)
    words = joined(tokens)
    assert len(words) < len(tokens)
    tab.locator("[data-map=raw]").scroll_into_view_if_needed()
    np.testing.assert_allclose(shown_cells(tab, "raw"), raw[4, :6], atol=1.2e-3)
    tab.check("[data-choice=words]")
    expected = [np.mean([raw[query, keys].sum() for query in words[4]]) for keys in words[:6]]
    np.testing.assert_allclose(shown_cells(tab, "raw"), expected, atol=4e-3)
    assert tab.locator(".reading .word").count() == len(words)
    tab.uncheck("[data-choice=words]")
    tab.check("[data-choice=copies]")
    groups = {token: [at for at, other in enumerate(tokens) if other == token] for token in tokens}
    merged = [raw[4, keys].sum() for keys in list(groups.values())]
    np.testing.assert_allclose(shown_cells(tab, "raw"), merged[:6], atol=1e-2)
    tab.select_option("[data-choice=order]", "weight")
    totals = sorted(groups.values(), key=lambda keys: -raw[:, keys].sum())
    np.testing.assert_allclose(shown_cells(tab, "raw"), [raw[4, keys].sum() for keys in totals[:6]], atol=1e-2)


def test_colours_in_other_scales(open_page: Any, report: Path) -> None:
    tab = open_page(report, place="#layer=2&head=3&row=4")
    inks = """[...document.querySelector('[data-map=raw] canvas').getContext('2d').getImageData(70, 10, 200, 200).data]
        .filter((_, at) => at % 4 === 2).reduce((sum, blue) => sum + 255 - blue, 0)"""
    ink = {}
    for mode in ("auto", "linear", "root", "rank"):
        tab.select_option("[data-choice=mode]", mode)
        ink[mode] = tab.evaluate(inks)
    assert ink["linear"] < ink["root"] < ink["rank"] and len(set(ink.values())) == 4


def test_thumbnails_of_all_heads(open_page: Any, report: Path, page: Page) -> None:
    tab = open_page(report)
    assert tab.locator("#attention_heads canvas").count() == 0
    tab.select_option("[data-choice=thumbnails]", "raw")
    until(tab, "document.querySelectorAll('#attention_heads canvas').length === 72", 40)
    tab.select_option("[data-choice=heads-order]", "simplex_null_share")
    names = tab.locator("#attention_heads .at").all_inner_texts()
    shares = [float(name.split("·")[1]) for name in names]
    assert len(shares) == 72 and shares == sorted(shares, reverse=True)
    data: Any = page.section("attention")["data"]
    layer, head = map(int, names[0].split("·")[0].split(":"))
    assert data["layers"][layer]["simplex_null_share"][head] == pytest.approx(shares[0], abs=0.006)
    tab.select_option("[data-choice=heads-order]", "first")
    until(tab, "[...document.querySelectorAll('#attention_heads .at')].every((one) => !one.textContent.includes('–'))")
    tab.locator("#attention_heads button[title] >> nth=3").click()
    until(tab, "document.querySelectorAll('#attention_heads [aria-pressed=true]').length === 1")


def test_a_thumbnail_opens_where_it_stands(open_page: Any, report: Path, trace: identiscope.Trace) -> None:
    tab = open_page(report)
    tab.select_option("[data-choice=thumbnails]", "raw")
    tab.click('[aria-label^="Layer 2, head 3,"]')
    until(tab, "document.querySelector('.opened h3')?.textContent === 'Raw attention of layer 2, head 3'")
    assert tab.evaluate("document.querySelector('.opened').closest('tr').previousSibling.firstChild.textContent") == "2"
    name, content = saved(tab, ".opened [data-save=csv]")
    assert name == "raw-layer-2-head-3.csv"
    lines = list(csv.DictReader(io.StringIO(content.decode())))
    raw = trace.site(2).attention(3).numpy()
    np.testing.assert_allclose([float(line["raw"]) for line in lines], raw.ravel(), atol=1.2e-3)
    # Another map of it, and another head by an arrow; then none.
    tab.select_option("[data-choice=thumbnails]", "simplex_null")
    until(tab, "document.querySelector('.opened h3').textContent.startsWith('Null attention')")
    tab.focus(".opened canvas")
    tab.keyboard.press("ArrowRight")
    until(tab, "document.querySelector('.opened h3').textContent.endsWith('layer 2, head 4')")
    tab.keyboard.press("Escape")
    assert tab.locator(".opened").count() == 0
    assert tab.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Layer 2, head 4,")


def test_on_paper_it_is_light_and_every_card_is_whole(open_page: Any, report: Path) -> None:
    tab = open_page(report, theme="dark")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("document.querySelector('.identiscope').dataset.theme") == "light"
    tab.emulate_media(media="print")
    # A4 between a browser's margins, in pixels of 96 to an inch.
    tab.set_viewport_size({"width": 718, "height": 1047})
    tab.wait_for_timeout(300)
    heights = tab.evaluate("[...document.querySelectorAll('.attention section')].map((one) => one.offsetHeight)")
    assert len(heights) == 6 and max(heights) <= 1047
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.emulate_media(media="screen")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate("document.querySelector('.identiscope').dataset.theme") == "dark"
