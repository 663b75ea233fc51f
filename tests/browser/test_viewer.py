"""The report in a real browser: what it shows is what the library computes, and every way to look at it works."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import families
import identiscope
from browser.conftest import saved, until
from identiscope.reports.reporting import report_page, view_page
from identiscope.views.page.data import Page, empty_page
from identiscope.views.page.matrices import structure_section
from identiscope.views.page.results import with_results
from views.shape_check import heads

pytestmark = pytest.mark.long

IDS = [(7 * place) % 90 + 5 for place in range(60)]

READ = """async ([layer, head]) => {
  const maps = await identiscope.maps(layer, head);
  const plain = {};
  for (const name of ["raw", "effective_simplex_span", "simplex_null", "canonical", "effective"])
    plain[name] = maps[name] && Array.from(maps[name]);
  return plain;
}"""

SLIDE = "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }"


def shown(tab: Any, layer: int, head: int, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    found = tab.evaluate(READ, [layer, head])
    return {name: np.array(cells).reshape(shape) for name, cells in found.items() if cells is not None}


def true_maps(trace: Any, layer: int, head: int, *others: str, attention: str | None = None) -> dict[str, np.ndarray]:
    """What the page shows of a head, by the library."""
    maps = identiscope.attention_maps(
        trace, layer, head, ("raw", "effective_simplex_span", *others), attention=attention
    )
    found = {str(name): cells.values for name, cells in maps.data_vars.items()}
    return found | {"simplex_null": found["raw"] - found["effective_simplex_span"]}


def test_cells_are_the_library_s_within_the_stated_error(open_page: Any, report: Path, trace: Any, page: Page) -> None:
    tab = open_page(report)
    for layer, head in ((0, 0), (2, 3), (5, 11)):
        true = true_maps(trace, layer, head, "canonical")
        stated = heads(page)["layers"][layer]["error"]
        found = shown(tab, layer, head, true["raw"].shape)
        assert ("canonical" in found) == ((layer, head) == (2, 3))
        for name, cells in found.items():
            assert np.abs(cells - true[name]).max() <= stated[name], f"{name} of layer {layer}, head {head}"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Llama", "decoder-self"), ("Mistral", "decoder-self"), ("Gemma-2", "decoder-self"), ("GPT-OSS", "decoder-self"),
     ("T5", "cross"), ("Bloom", "decoder-self")],
)  # fmt: skip
def test_cells_of_other_kinds_of_attention(open_page: Any, name: str, kind: str) -> None:
    family = families.ALL[name]
    trace = identiscope.trace(family.model(), IDS if family.arguments is None else family.inputs())
    made = report_page(trace, attention=kind, with_verdict=False)
    tab = open_page(made)
    layer = heads(made)["layers"][1]
    true = true_maps(trace, 1, 2, attention=kind)
    found = shown(tab, 1, 2, true["raw"].shape)
    for map_name, cells in true.items():
        assert np.abs(found[map_name] - cells).max() <= layer["error"][map_name]


@pytest.mark.parametrize("channels", [8, 32])  # raw attention by factors, or by its cells
def test_cells_of_a_long_causal_text(open_page: Any, channels: int) -> None:
    trace = identiscope.trace(*families.long_causal("Llama", head_dim=channels))
    made = report_page(trace, with_verdict=False)
    (layer,) = heads(made)["layers"]
    assert layer["effective_simplex_span"]["factors"]["left"] is None
    assert (layer["raw"]["factors"] is None) == (channels == 32)
    true = true_maps(trace, 0, 3)
    found = shown(open_page(made), 0, 3, true["raw"].shape)
    for name, cells in true.items():
        assert np.abs(found[name] - cells).max() <= layer["error"][name]


@pytest.mark.parametrize("kind", ["encoder-self", "decoder-self"])
def test_cells_of_a_bias_by_distance(open_page: Any, kind: str) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(d_model=16, d_kv=8, num_layers=2, num_heads=2, vocab_size=99)
    ids = torch.tensor([IDS * 3])
    trace = identiscope.trace(transformers.T5Model(config).eval(), {"input_ids": ids, "decoder_input_ids": ids})
    made = report_page(trace, attention=kind, with_verdict=False)
    layer = heads(made)["layers"][1]
    assert layer["raw"]["position"]["by"] == "distance"
    true = true_maps(trace, 1, 1, attention=kind)
    found = shown(open_page(made), 1, 1, true["raw"].shape)
    for name, cells in true.items():
        assert np.abs(found[name] - cells).max() <= layer["error"][name]


def test_the_first_screen(open_page: Any, report: Path, page: Page) -> None:
    tab = open_page(report)
    assert tab.inner_text("#verdict .lead") == page.header["verdict"][0]
    assert tab.locator(".grid button").count() == 72
    start = heads(page)["start"]
    pressed = tab.locator('.grid [aria-pressed="true"]')
    assert pressed.get_attribute("aria-label").startswith(
        f"Layer {start['layer']}, head {start['head']}, null share 0."
    )
    layer = heads(page)["layers"][start["layer"]]
    share, merged = (layer[name][start["head"]] for name in ("simplex_null_share", "merged_null_share"))
    said = tab.inner_text(".stats")
    assert f"null share {share:.3f}, {merged:.3f} with equal tokens added up" in said
    maps = tab.text_content("#attention_maps .what")
    assert "The paper's effective attention (eq. 9) is not: it changes with where the value bias is kept" in maps
    assert re.search(r"rounding error .* raw \d", tab.inner_text(".stats"))
    assert tab.evaluate("identiscope.timing.threaded")


def test_choosing(open_page: Any, report: Path) -> None:
    tab = open_page(report)
    tab.click('[aria-label^="Layer 3, head 7,"]')
    until(tab, "document.querySelector('#attention_maps_title').textContent.includes('layer 3, head 7')")
    assert (
        tab.evaluate("location.hash")
        == f"#section=attention&layer=3&head=7&row={tab.evaluate('identiscope.place().row')}"
    )
    tab.select_option(".places select >> nth=1", "2")
    until(tab, "identiscope.place().head === 2")
    spot = tab.evaluate(
        "(document.querySelector('[data-map=raw]').scrollIntoView(), identiscope.pointOf('raw', 20, 6))"
    )
    tab.mouse.click(spot["x"], spot["y"])
    until(tab, "identiscope.place().row === 20")
    assert tab.inner_text("#attention_row_title").startswith("Row 20:")


def test_hovering_tells_each_map_and_the_interval(open_page: Any, report: Path, trace: Any) -> None:
    tab = open_page(report, place="#layer=2&head=3&row=4")
    spot = tab.evaluate(
        "(document.querySelector('[data-map=simplex_null]').scrollIntoView(),"
        " identiscope.pointOf('simplex_null', 4, 7))"
    )
    tab.mouse.move(spot["x"], spot["y"])
    said = tab.inner_text(".tip")
    true = true_maps(trace, 2, 3, "canonical")
    assert trace.tokens[4] in said and trace.tokens[7] in said
    titles = {"simplex_null": "null", "effective_simplex_span": "simplex span"}
    for name, cells in true.items():
        found = re.search(rf"{titles.get(name, name)}\s+(−?[\d.]+)", said)
        assert found is not None
        assert float(found.group(1).replace("−", "-")) == pytest.approx(float(cells[4, 7]), abs=1.2e-3)
    (bounds,) = re.findall(r"may be\s+([\d.]+) … ([\d.]+)", said)
    known = identiscope.attention_intervals(trace, 2, 3, cells=[(4, 7)])
    assert float(bounds[0]) == pytest.approx(float(known["lower"][0]), abs=6e-4)
    assert float(bounds[1]) == pytest.approx(float(known["upper"][0]), abs=6e-4)
    tab.mouse.move(2, 2)
    assert tab.is_hidden(".tip")
    tab.evaluate("identiscope.choose({head: 5})")
    spot = tab.evaluate("identiscope.pointOf('simplex_null', 4, 7)")
    tab.mouse.move(spot["x"], spot["y"])
    assert tab.inner_text(".tip").count("not computed") == 2


@pytest.mark.parametrize("wish", ["away", "least", "most"])
def test_sliding_changes_weights_and_not_the_output(
    open_page: Any, report: Path, trace: Any, page: Page, wish: str
) -> None:
    """The alternative found in the browser is held against the true T, by the bound that the page states."""
    layer, head, row, key = 2, 3, 4, 9
    tab = open_page(report, place=f"#layer={layer}&head={head}&row={row}")
    tab.select_option("#attention_row .tools select >> nth=1", wish)
    if wish != "away":
        tab.select_option("#attention_row .tools select >> nth=2", str(key))
    until(tab, "!!identiscope.row()")
    before = tab.evaluate("Array.from(identiscope.row().now)")
    tab.eval_on_selector("#attention_slider", SLIDE, 100)
    after = np.array(tab.evaluate("Array.from(identiscope.row().now)"))
    fact = {name: tab.inner_text(f'[data-fact="{name}"]') for name in ("moved", "difference", "random")}
    assert fact["difference"] == "0.00 %"
    assert float(fact["moved"].split()[0]) > 1 and float(fact["random"].split()[0]) > 1
    assert after.min() >= 0 and after.sum() == pytest.approx(sum(before), abs=1e-9)
    site = trace.site(layer)
    points = (site.value_of(head).double() @ site.projection[head].double()).numpy()
    change = after - np.array(before)
    allowed = heads(page)["layers"][layer]["output"]["row_error"][head] * np.abs(change).sum()
    assert np.linalg.norm(change @ points) <= allowed + 1e-9
    assert np.linalg.norm(change @ points) < 0.05 * np.linalg.norm(before @ points)
    if wish != "away":
        bounds = identiscope.attention_intervals(trace, layer, head, cells=[(row, key)])
        low, high = float(bounds["lower"][0]) - 0.02, float(bounds["upper"][0]) + 0.02
        assert low <= after[key] <= high
        assert (after[key] <= before[key]) == (wish == "least")


def test_a_row_that_cannot_move_says_so(open_page: Any, minilm: identiscope.Model) -> None:
    tab = open_page(report_page(identiscope.trace(minilm, "A short text."), with_verdict=False))
    until(tab, "!!identiscope.row()")
    assert "All of it is certain" in tab.inner_text("#attention_row .said") and tab.is_disabled("#attention_slider")


def test_bars_have_whiskers_where_intervals_are_known(open_page: Any, report: Path, trace: Any) -> None:
    tab = open_page(report, place="#layer=2&head=3&row=4")
    exact = tab.locator(".whisker:not(.found)")
    assert exact.count() == len(trace.tokens)
    tab.evaluate("identiscope.choose({row: 5})")
    assert exact.count() == 0
    # Others are sought in the page, one after the other, and are not called exact.
    until(tab, "!!document.querySelector('.whisker.found')")
    assert exact.count() == 0
    assert "not computed for this row" in tab.inner_text("#attention_row .legend")
    tab.click("#attention_row >> text=Show all")
    assert tab.locator("#attention_row .bars g[data-key]").count() == len(trace.tokens)


def test_keyboard(open_page: Any, report: Path) -> None:
    tab = open_page(report, place="#layer=2&head=3&row=4")
    for key, expected in (
        ("ArrowRight", (2, 4, 4)),
        ("ArrowDown", (3, 4, 4)),
        ("ArrowLeft", (3, 3, 4)),
        ("ArrowUp", (2, 3, 4)),
        ("Shift+ArrowDown", (2, 3, 5)),
    ):
        tab.keyboard.press(key)
        place = tab.evaluate("identiscope.place()")
        assert (place["layer"], place["head"], place["row"]) == expected, key
    tab.focus('.grid [aria-pressed="true"]')
    tab.keyboard.press("ArrowRight")
    until(tab, "document.activeElement.getAttribute('aria-label').startsWith('Layer 2, head 4')")
    tab.focus("#attention_slider")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("identiscope.place().head") == 4 and tab.input_value("#attention_slider") == "1"
    tab.focus("[data-map=raw] canvas")
    tab.keyboard.press("+")
    near = tab.evaluate("identiscope.pointOf('raw', 40, 40)")
    tab.keyboard.press("0")
    assert tab.evaluate("identiscope.pointOf('raw', 40, 40)") != near


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("#layer=3&head=7&row=12", (3, 7, 12)),
        ("#layer=99&head=99&row=9999", None),
        ("#layer=-1&head=<img>&row=1e3", None),
    ],
)
def test_deep_links(open_page: Any, report: Path, page: Page, place: str, expected: Any) -> None:
    tab = open_page(report, place=place)
    found = tab.evaluate("identiscope.place()")
    if expected is not None:
        assert (found["layer"], found["head"], found["row"]) == expected
        tab.evaluate("location.hash = '#layer=1&head=2&row=3'")
        until(tab, "identiscope.place().row === 3 && identiscope.place().layer === 1")
    else:
        layer = heads(page)["layers"][found["layer"]]
        assert found["head"] in layer["heads"] and 0 <= found["row"] < layer["queries"]


def is_text(element: ElementTree.Element) -> bool:
    return element.tag.endswith("}text")


def letters(stored: bytes) -> list[str]:
    """What a compressed stream of drawing operators writes in the usual encoding."""
    stream = zlib.decompressobj().decompress(stored.split(b"stream\n", 1)[1]).decode()
    written = re.findall(r"/(?:Helvetica|Times)\S* [\d.]+ Tf .*? <([0-9a-f]*)> Tj", stream)
    return [sign for sign in bytes.fromhex("".join(written)).decode("cp1252") if sign.isascii() and sign != " "]


def test_each_view_can_be_saved(open_page: Any, report: Path, trace: Any) -> None:
    tab = open_page(report, place="#layer=2&head=3&row=4")
    count = len(trace.tokens)
    for view, lines in (
        ("#attention_heads", 72),
        ("#attention_maps .top", count**2),
        ("[data-map=effective_simplex_span]", count**2),
        ("#attention_row", count),
        ("#attention_lines", None),
    ):
        name, png = saved(tab, f"{view} [data-save=png]")
        assert name.endswith(".png") and png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) > 5000, view
        name, drawn = saved(tab, f"{view} [data-save=svg]")
        assert name.endswith(".svg") and ElementTree.fromstring(drawn).tag.endswith("svg")
        name, pdf = saved(tab, f"{view} [data-save=pdf]")
        assert name.endswith(".pdf") and pdf.startswith(b"%PDF-1.4") and pdf.endswith(b"%%EOF\n")
        # Every object is where the table of them says.
        begin = int(pdf.rsplit(b"startxref\n", 1)[1].split()[0])
        places = [int(line.split()[0]) for line in pdf[begin:].split(b"trailer")[0].split(b"\n")[3:-1]]
        assert pdf[begin : begin + 4] == b"xref" and len(places) >= 9
        assert all(pdf[place:].startswith(b"%d 0 obj" % number) for number, place in enumerate(places, 1))
        # Letters are letters: those of the page's picture, word by word.
        said = "".join(
            "".join(element.itertext()) for element in ElementTree.fromstring(drawn).iter() if is_text(element)
        )
        assert letters(pdf[places[3] :]) == [sign for sign in said if sign.isascii() and sign != " "], view
        name, table = saved(tab, f"{view} [data-save=csv]")
        rows = list(csv.DictReader(io.StringIO(table.decode("utf-8"))))
        assert name.endswith(".csv") and (lines is None or len(rows) == lines), view
        if view == "[data-map=effective_simplex_span]":
            true = true_maps(trace, 2, 3)["effective_simplex_span"]
            cells = np.array([float(one["effective_simplex_span"]) for one in rows]).reshape(true.shape)
            assert np.abs(cells - true).max() < 1.2e-3
            assert rows[5]["key_token"] == trace.tokens[5]


def test_a_table_is_behind_each_picture(open_page: Any, report: Path, trace: Any) -> None:
    tab = open_page(report, place="#layer=2&head=3&row=4")
    pictures = tab.locator("[data-save=svg]").count()
    assert pictures == tab.locator("[data-table]").count() == 9
    tab.click("#attention_row [data-table]")
    until(tab, "document.querySelectorAll('#attention_row .behind tbody tr').length > 0")
    assert tab.locator("#attention_row .behind tbody tr").count() == len(trace.tokens)
    tab.click("#attention_maps .top [data-table]")
    until(tab, "!!document.querySelector('#attention_maps .behind')")
    assert f"and {len(trace.tokens) ** 2 - 300} more rows" in tab.inner_text("#attention_maps .behind")
    tab.click("#attention_row [data-table]")
    assert tab.locator("#attention_row .behind").count() == 0


def test_figures_for_a_paper_and_cards_on_paper(open_page: Any, report: Path) -> None:
    tab = open_page(report, theme="dark")
    tab.select_option("[data-choice=figures]", "paper")
    # All maps of a head are one picture of several, with the same letters in all.
    maps = saved(tab, "#attention_maps > .top [data-save=svg]")[1].decode()
    assert "Raw attention" in maps and re.findall(r'font-family="([^",]*)', maps) == ["STIX Two Text"]
    assert tab.evaluate("document.querySelector('.identiscope').dataset.theme") == "light"
    drawn = saved(tab, "#attention_row [data-save=svg]")[1]
    picture = ElementTree.fromstring(drawn)
    assert picture.get("width") == "84mm" and "serif" in str(picture.get("font-family"))
    assert picture.find(".//{http://www.w3.org/2000/svg}text") is not None
    tab.select_option("[data-choice=figures]", "screen")
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.querySelector('#attention_row')).breakInside") == "avoid"
    assert not tab.locator(".saving").first.is_visible()
    tab.emulate_media(media="screen")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("HTMLCanvasElement.prototype.toDataURL = () => 'data:,'", "larger than this browser can make"),
        ("Object.defineProperty(Image.prototype, 'src', { set() { this.onerror(); } })", "could not draw the picture"),
        (
            "{ const wait = setTimeout; window.setTimeout = (act, time) => wait(act, time / 100);"
            " Object.defineProperty(Image.prototype, 'src', { set() {} }) }",
            "has not drawn the picture in 20 seconds",
        ),
    ],
)
@pytest.mark.parametrize("view", ["#attention_heads", "[data-map=effective_simplex_span]"])
def test_a_view_that_cannot_be_saved_says_so(chromium: Any, report: Path, view: str, broken: str, reason: str) -> None:
    tab = chromium.new_page()
    thrown: list[str] = []
    tab.on("pageerror", lambda error: thrown.append(str(error)))
    tab.goto(f"file://{report}#layer=2&head=3&row=4")
    tab.evaluate("identiscope.ready")
    tab.evaluate(f"() => {{ {broken}; }}")
    # The alert stands before the browser tells of what was thrown: both are waited for.
    with tab.expect_event("pageerror"):
        tab.click(f"{view} [data-save=png]")
    tab.wait_for_selector(f"{view} [role=alert]")
    said = tab.inner_text(f"{view} [role=alert]")
    assert said.startswith("This view could not be saved as PNG: ") and reason in said
    assert said.endswith("Try again, or save it in another form.")
    assert len(thrown) == 1 and reason in thrown[0]
    saved(tab, f"{view} [data-save=csv]")
    assert tab.locator("[role=alert]").count() == 0
    tab.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_widths_and_themes(open_page: Any, report: Path, width: int, theme: str) -> None:
    tab = open_page(report, width=width, theme=theme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.get_attribute("#viewer", "data-theme") == theme
    ratio = tab.evaluate(CONTRAST)
    assert min(ratio.values()) >= 4.5, ratio
    columns = len(
        {
            box["x"]
            for box in tab.evaluate(
                "[...document.querySelectorAll('.panel')].map((p) => p.getBoundingClientRect().toJSON())"
            )
        }
    )
    assert columns == (4 if width == 1280 else 1)
    sizes = tab.evaluate(
        "[...document.querySelectorAll('text')].map((one) => parseFloat(getComputedStyle(one).fontSize))"
    )
    assert min(sizes) >= 10
    tab.click("header button")
    assert tab.get_attribute("#viewer", "data-theme") != theme


CONTRAST = """() => {
  const light = (text) => {
    const [red, green, blue] = text.match(/[\\d.]+/g).slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!colour.endsWith(", 0)")) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = {};
  for (const element of document.querySelectorAll("h1, h2, h3, p, span, b, button, label, th, td, output")) {
    if (!element.textContent.trim() || !element.getClientRects().length || element.matches(".dot")) continue;
    const [one, other] = [light(getComputedStyle(element).color), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const name = `${element.tagName} ${element.className}`;
    found[name] = Math.min(found[name] ?? 21, ratio);
  }
  return found;
}"""


def test_accessible(open_page: Any, report: Path) -> None:
    tab = open_page(report)
    levels = tab.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    nameless = tab.evaluate(
        """[...document.querySelectorAll('button, select, input, canvas')].filter((one) =>
             !(one.textContent.trim() || one.getAttribute('aria-label') || one.labels?.length)).length"""
    )
    assert nameless == 0
    order = []
    for _ in range(12):
        tab.keyboard.press("Tab")
        order.append(tab.evaluate("document.activeElement.getBoundingClientRect().top + scrollY"))
    assert order == sorted(order) or max(np.diff(order)) >= 0
    # One stop for 72 heads.
    stops = tab.evaluate("[...document.querySelectorAll('.grid button')].filter((one) => one.tabIndex === 0).length")
    assert stops == 1
    assert tab.get_attribute("html", "lang") == "en"


HOSTILE = [
    "</script><script>window.harmed = 1</script>",
    "<img src=x onerror=window.harmed=1>",
    "\x00\x07\x1b[31m\n",
    "\u202eevil\u2066",
    "مرحبا",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "x" * 10_000,
    "=cmd()",
    "{header}",
    "\ud800",
    "<!--",
    "\u2028",
]


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_text_is_text(open_page: Any, width: int) -> None:
    count = len(HOSTILE)
    torch.manual_seed(0)
    attention = torch.softmax(torch.randn(1, 2, count, count, dtype=torch.float64), -1)
    trace = identiscope.from_arrays(attention, torch.randn(1, 2, count, 3, dtype=torch.float64), tokens=HOSTILE)
    tab = open_page(report_page(trace, title=HOSTILE[0], with_verdict=False), width=width)
    assert tab.evaluate("window.harmed") is None
    assert tab.inner_text("h1") == HOSTILE[0]
    assert tab.evaluate("document.querySelectorAll('img, b > img').length") == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    for row in range(count):
        tab.evaluate(f"identiscope.choose({{row: {row}}})")
        title = tab.inner_text("#attention_row_title")
        assert len(title) < 60 and not re.search("[\x00-\x09\x0b-\x1f\u202e\u2066]", title)
    _, table = saved(tab, "#attention_row [data-save=csv]")
    tokens = [one["key_token"] for one in csv.DictReader(io.StringIO(table.decode("utf-8"), newline=""))]
    assert tokens[0] == HOSTILE[0] and len(tokens[6]) == 10_000 and tokens[7] == "'=cmd()"
    _, drawn = saved(tab, "#attention_lines [data-save=svg]")
    ElementTree.fromstring(drawn)
    box = tab.locator("#attention_lines svg").bounding_box()
    assert box["width"] <= width


def test_other_results_are_drawn(open_page: Any) -> None:
    from identiscope.results import make_result

    generator = np.random.default_rng(0)
    tokens = [f"word{place}" for place in range(14)]
    shares = generator.dirichlet(np.ones(14), (3, 14)).transpose(0, 2, 1)
    axes = ("layer", "input", "output")
    attribution = make_result(
        "hidden_token_attribution",
        {"contribution": (axes, shares), "contribution_error": (axes, 0.1 * shares)},
        coordinates={"layer": [0, 1, 2], "input_token": ("input", tokens), "output_token": ("output", tokens)},
    )
    rates = make_result(
        "token_identifiability_same_layer",
        {"rate": (("probe", "layer"), [[0.9, 0.8], [0.7, 0.6]]), "random_guess": (("layer",), [0.1, 0.1])},
        coordinates={"probe": ["naive cosine", "linear l2"], "layer": [0, 1]},
    )
    made = with_results(empty_page("Results"), [attribution, rates]).with_section(structure_section(np.eye(4)))
    tab = open_page(made)
    tab.wait_for_selector("#hidden-token-attribution .said")
    tab.select_option("#hidden-token-attribution select", "3")
    own = re.search(r"layer 1: ([\d.]+)", tab.inner_text("#hidden-token-attribution .said"))
    assert own is not None and float(own.group(1)) == pytest.approx(shares[1, 3, 3], abs=6e-3)
    rated = "#token-identifiability-same-layer"
    assert tab.locator(f"{rated} polyline").count() == 2 and "random guess" in tab.inner_text(rated)
    for view in ("#hidden-token-attribution", rated, "#structure"):
        assert saved(tab, f"{view} [data-save=png]")[1][:4] == b"\x89PNG"
    rows = list(csv.DictReader(io.StringIO(saved(tab, "#structure [data-save=csv]")[1].decode())))
    assert [float(one["weight"]) for one in rows] == np.eye(4).ravel().tolist()


def test_attentions_alone(open_page: Any) -> None:
    torch.manual_seed(0)
    attentions = tuple(torch.softmax(torch.randn(1, 2, 6, 6), -1) for _ in range(2))
    tab = open_page(view_page(None, attentions, list("abcdef"), None))
    found = shown(tab, 1, 1, (6, 6))
    assert np.abs(found["raw"] - attentions[1][0, 1].numpy()).max() < 1.2e-3 and set(found) == {"raw"}
    assert "were not given" in tab.inner_text("[data-map=effective_simplex_span]")
    assert tab.is_disabled("#attention_slider")


def test_a_long_text_can_be_moved_and_zoomed(open_page: Any) -> None:
    torch.manual_seed(0)
    count = 2048
    attention = torch.softmax(torch.randn(1, 1, count, count) * 2, -1)
    trace = identiscope.from_arrays(attention, torch.randn(1, 1, count, 8))
    tab = open_page(report_page(trace, with_verdict=False), place="#row=2000")
    assert tab.evaluate("identiscope.place().row") == 2000
    tab.evaluate("document.querySelector('[data-map=raw]').scrollIntoView()")
    for _ in range(5):
        tab.click('[aria-label="Zoom in"]')
    before = tab.evaluate("identiscope.pointOf('raw', 1024, 1024)")
    step = tab.evaluate("identiscope.pointOf('raw', 1024, 1025).x") - before["x"]
    assert step > 3
    tab.evaluate("document.querySelector('[data-map=raw]').scrollIntoView()")
    before = tab.evaluate("identiscope.pointOf('raw', 1024, 1024)")
    tab.mouse.move(before["x"], before["y"])
    tab.mouse.down()
    tab.mouse.move(before["x"] - 40, before["y"] - 30, steps=4)
    tab.mouse.up()
    after = tab.evaluate("identiscope.pointOf('raw', 1024, 1024)")
    assert after["x"] - before["x"] == pytest.approx(-40, abs=2) and after["y"] - before["y"] == pytest.approx(
        -30, abs=2
    )
    tab.click('[aria-label="Show the whole map"]')
    assert tab.evaluate("identiscope.pointOf('raw', 0, 1).x - identiscope.pointOf('raw', 0, 0).x") < 1


def test_a_damaged_page_says_so(chromium: Any, report: Path, tmp_path: Path) -> None:
    text = report.read_text(encoding="utf-8")
    place = text.index('id="chunk-attention.layer-0">') + 400
    broken = tmp_path / "broken.html"
    broken.write_text(text[:place] + "0" * 400 + text[place + 400 :], encoding="utf-8")
    tab = chromium.new_page()
    tab.goto(f"file://{broken}#layer=0&head=0&row=0")
    tab.wait_for_selector("[role=alert]")
    assert "could not be read" in tab.inner_text("[role=alert]")
    tab.close()


def test_header_is_documented_json(page: Page) -> None:
    assert json.loads(json.dumps(page.header))["format"] == "identiscope-page-2"


def test_a_corpus_is_drawn(open_page: Any) -> None:
    from identiscope.results import make_result
    from identiscope.views.page.numbers import means_section

    axes = ("column", "layer", "head")
    means = np.linspace(0, 1, 12).reshape(2, 2, 3)
    by_head = make_result(
        "run_attention_means",
        {"mean": (axes, means), "deviation": (axes, 0 * means)},
        coordinates={"column": ["rank", "simplex_null_share"], "layer": [0, 1], "head": [0, 1, 2]},
    )
    by_layer = by_head.isel(head=0, drop=True)
    made = empty_page("Corpus")
    for result, title in ((by_head, "By head"), (by_layer, "By layer")):
        section = means_section(result, title, {})
        assert section is not None
        made = made.with_section(section)
    tab = open_page(made, width=390)
    values = tab.evaluate("[...document.querySelectorAll('#head td')].map((one) => one.textContent)")
    assert values == [f"{value:.2f}" for value in means[1].ravel()]
    tab.select_option("#head select", "rank")
    assert tab.inner_text("#head td >> nth=0") == "0.00"
    assert tab.locator("#curve polyline").count() == 2
    assert saved(tab, "#head [data-save=png]")[1][:4] == b"\x89PNG"


def test_many_layers_fit_on_the_first_screen(open_page: Any) -> None:
    torch.manual_seed(0)
    attention = torch.softmax(3 * torch.randn(30, 9, 12, 12), -1)
    trace = identiscope.from_arrays(attention, torch.randn(30, 9, 12, 4))
    tab = open_page(report_page(trace))
    lead, grid = (tab.locator(name).bounding_box() for name in ("#verdict .lead", ".grid"))
    assert lead["y"] < 200
    assert grid["y"] + grid["height"] < 900
    tab.evaluate("identiscope.choose({layer: 29, head: 8})")
    until(
        tab,
        "document.querySelector('.grid [aria-pressed=true]').getAttribute('aria-label').startsWith('Layer 29, head 8')",
    )


def test_more_layers_scroll_in_a_box_of_their_own(open_page: Any) -> None:
    attention = torch.softmax(torch.randn(60, 2, 8, 8, generator=torch.Generator().manual_seed(0)), -1)
    tab = open_page(report_page(identiscope.from_arrays(attention, torch.randn(60, 2, 8, 3)), with_verdict=False))
    tab.evaluate("identiscope.choose({layer: 59, head: 1})")
    seen = tab.evaluate(
        """() => {
          const place = (name) => document.querySelector(name).getBoundingClientRect();
          const [box, cell] = [".tall", ".grid [aria-pressed=true]"].map(place);
          return cell.top >= box.top && cell.bottom <= box.bottom && scrollY === 0;
        }"""
    )
    assert seen


BARS = """() => Array.from(document.querySelectorAll("#attention_row .bars g[data-key]"), (bar) => [
  Number(bar.dataset.key), Number(bar.querySelectorAll("text")[1].textContent)])"""


@pytest.mark.parametrize("slid", [0, 50, 100])
def test_bars_by_weight_are_in_the_order_of_what_they_show(open_page: Any, report: Path, slid: int) -> None:
    tab = open_page(report, place="#layer=2&head=3&row=4")
    until(tab, "!!identiscope.row()")
    tab.eval_on_selector("#attention_slider", SLIDE, slid)
    now = np.array(tab.evaluate("Array.from(identiscope.row().now)"))
    bars = tab.evaluate(BARS)
    shown_weights = [weight for _, weight in bars]
    assert shown_weights == sorted(shown_weights, reverse=True) and len(bars) >= 24
    assert np.allclose([now[key] for key, _ in bars], shown_weights, atol=6e-4)
    tab.select_option("#attention_row .tools select >> nth=3", "position")
    keys = [key for key, _ in tab.evaluate(BARS)]
    assert keys == sorted(keys)


PIXELS = """async (name) => {
  const maps = await identiscope.maps(0, 0);
  const canvas = document.querySelector(`[data-map=${name}] canvas`);
  const box = canvas.getBoundingClientRect();
  const context = canvas.getContext("2d");
  const found = [];
  for (let row = 0; row < maps.queries; row++)
    for (let column = 0; column < maps.keys; column++) {
      const spot = identiscope.pointOf(name, row, column);
      const [x, y] = [spot.x - box.left, spot.y - box.top].map((value) => Math.round(value * devicePixelRatio));
      found.push([maps[name][row * maps.keys + column], ...context.getImageData(x, y, 1, 1).data.slice(0, 3)]);
    }
  return {cells: found, scale: maps.scale};
}"""


def test_colours_grow_with_the_weight_and_noise_fades(open_page: Any) -> None:
    """Signed: blue below zero, orange above; small weights near the paper's colour, the largest few alike."""
    generator = torch.Generator().manual_seed(0)
    attention = torch.softmax(2 * torch.randn(1, 1, 60, 60, generator=generator), -1)
    trace = identiscope.from_arrays(attention, torch.randn(1, 1, 60, 5, generator=generator))
    tab = open_page(report_page(trace, with_verdict=False), place="#section=attention&layer=0&row=0")
    paper = np.array([0xFB, 0xFA, 0xF7])
    for name in ("raw", "effective_simplex_span"):
        found = tab.evaluate(PIXELS, name)
        cells = np.array(found["cells"])[180:]  # but the rows beside the line that marks the chosen one
        values, colours, scale = cells[:, 0], cells[:, 1:], found["scale"]
        assert scale["noise"] == pytest.approx(1 / 60) and scale["limit"] <= scale["most"]
        distance = np.abs(colours - paper).sum(1)
        quiet = np.abs(values) < 0.5 / 60
        strong = np.abs(values) > 0.5 * scale["limit"]
        assert quiet.any() and distance[quiet].max() < 40
        assert not strong.any() or distance[strong].min() > 250
        # Stronger is never paler, by more than the rounding of colours.
        for sign in (1, -1):
            own = values * sign > 0
            order = np.argsort(np.abs(values[own]))
            dark = colours[own].sum(1)[order]
            assert (np.diff(dark) <= 4).all()
        assert (colours[values < -0.03, 2] > colours[values < -0.03, 0]).all()  # blue
        assert (colours[values > 0.03, 0] > colours[values > 0.03, 2]).all()  # orange
