"""Sections in a real browser: two of one kind are both seen, each kind is drawn, addresses name sections."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import identiscope
from browser.conftest import saved, until
from identiscope.reports.reporting import report_page
from identiscope.results import make_result
from identiscope.views.page.data import Page, Section, empty_page
from identiscope.views.page.report import page_html
from identiscope.views.page.results import result_page

WORDS = [f"word{place}" for place in range(12)]
COUNT = len(WORDS)


def shares(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.3), shape[:-1])


def labelled(kind: str, method: str, arrays: dict[str, Any], tokens: list[str] = WORDS, **attributes: Any) -> Any:
    axes = {axis for names, _ in arrays.values() for axis in names}
    names = {f"{axis}_token": (axis, tokens) for axis in ("query", "key", "token", "input") if axis in axes}
    return make_result(method, arrays, coordinates=names, provenance={"kind": kind, **attributes})


def mixture(method: str, seed: int, layers: int = 3) -> Any:
    return labelled("mixture", method, {"share": (("layer", "token", "input"), shares(seed, layers, COUNT, COUNT))})


def own_shares(tab: Any, name: str) -> list[float]:
    return [float(value) for value in re.findall(r"layer \d: ([\d.]+)", tab.inner_text(f"#{name} .said"))]


def saved_table(tab: Any, name: str) -> list[dict[str, str]]:
    _, table = saved(tab, f"#{name} [data-save=csv]")
    return list(csv.DictReader(io.StringIO(table.decode("utf-8"), newline="")))


@pytest.mark.parametrize("width", [1280, 390])
def test_two_attributions_are_both_seen(open_page: Any, width: int) -> None:
    """Beside each other, or one below the other on a phone; one word and one scale for both."""
    results = [mixture("first_way", 1), mixture("second_way", 2)]
    tab = open_page(result_page(*results), width=width)
    boxes = [tab.locator(f"#{name}").bounding_box() for name in ("first-way", "second-way")]
    if width == 1280:
        assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    else:
        assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"] and boxes[0]["x"] == boxes[1]["x"]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator(".beside > .tools select").count() == tab.locator("main select").count() == 3
    tab.select_option(".beside .tools select >> nth=0", "5")
    for name, result in zip(("first-way", "second-way"), results, strict=True):
        true = result["share"].values[:, 5, 5]
        assert np.allclose(own_shares(tab, name), true, atol=6e-3)
        rows = saved_table(tab, name)
        found = np.array([float(one["share"]) for one in rows]).reshape(3, COUNT)
        assert np.allclose(found, result["share"].values[:, 5], atol=1e-6)
        assert {one["token_token"] for one in rows} == {"word5"} and rows[1]["input_token"] == "word1"
    legends = tab.evaluate("[...document.querySelectorAll('.bar')].map((bar) => bar.textContent)")
    assert legends[0] == legends[1]
    tab.select_option(".beside .tools select >> nth=2", "own")
    legends = tab.evaluate("[...document.querySelectorAll('.bar')].map((bar) => bar.textContent)")
    assert legends[0] != legends[1]


def test_pointing_at_one_tells_of_both(open_page: Any) -> None:
    results = [mixture("first_way", 1), mixture("second_way", 2, layers=2)]
    tab = open_page(result_page(*results))
    box = tab.locator("#first-way canvas").bounding_box()
    # The second row of cells, in the fourth column.
    tab.mouse.move(box["x"] + 66 + (box["width"] - 72) * 3.5 / COUNT, box["y"] + 6 + 1.5 * 26)
    for name, result in zip(("first-way", "second-way"), results, strict=True):
        said = tab.inner_text(f"#{name} .said")
        assert said == f"layer 1: word3 (3) is {result['share'].values[1, 1, 3]:.3f} of word1"


def test_addresses_name_the_section(open_page: Any) -> None:
    results = [mixture("first_way", 1), mixture("second_way", 2)]
    maps = labelled("map", "a_map", {"map": (("layer", "head", "query", "key"), shares(3, 2, 2, COUNT, COUNT))})
    made = result_page(maps, *results)
    tab = open_page(made, place="#section=second-way&word=7")
    assert np.allclose(own_shares(tab, "second-way"), results[1]["share"].values[:, 7, 7], atol=6e-3)
    until(tab, "document.querySelector('#second-way').getBoundingClientRect().top < innerHeight - 100")
    tab.select_option(".beside .tools select >> nth=0", "2")
    assert tab.evaluate("location.hash") == "#section=first-way&word=2"
    tab.evaluate("location.hash = '#section=a-map&matrix=3'")
    until(tab, "document.querySelector('#a-map select').value === '3'")
    for wrong in (
        "#section=a-map&matrix=99",
        "#section=<img>&word=1",
        "#section=second-way&word=99999",
        "#section=",
        "#%",
    ):
        tab.evaluate(f"location.hash = {wrong!r}")
        tab.wait_for_timeout(30)
    assert tab.input_value(".beside .tools select >> nth=0") == "11"


@pytest.fixture(scope="module")
def small() -> identiscope.Trace:
    generator = torch.Generator().manual_seed(0)
    attention = torch.softmax(2 * torch.randn(2, 3, COUNT, COUNT, generator=generator, dtype=torch.float64), -1)
    values = torch.randn(2, 3, COUNT, 4, generator=generator, dtype=torch.float64)
    return identiscope.from_arrays(attention, values, tokens=WORDS)


def test_maps_follow_the_head_that_is_looked_at(open_page: Any, small: identiscope.Trace) -> None:
    cells = [shares(seed, 2, 3, COUNT, COUNT) - 0.05 * seed for seed in (0, 1)]
    results = [
        labelled("map", f"map_{at}", {"map": (("layer", "head", "query", "key"), one)}) for at, one in enumerate(cells)
    ]
    tab = open_page(report_page(small, with_verdict=False, results=results), place="#layer=1&head=2&row=3")
    assert tab.evaluate("identiscope.place()") == {"layer": 1, "head": 2, "row": 3}
    for layer, head in ((1, 2), (0, 1)):
        tab.evaluate(f"identiscope.choose({{layer: {layer}, head: {head}}})")
        until(tab, f"document.querySelector('.beside select').selectedOptions[0].text === 'layer {layer}, head {head}'")
        tab.wait_for_timeout(50)
        for at, true in enumerate(cells):
            found = np.array([float(one["map"]) for one in saved_table(tab, f"map-{at}")]).reshape(COUNT, COUNT)
            assert np.abs(found - true[layer, head]).max() < 1e-3
    assert tab.evaluate("location.hash") == "#section=attention&layer=0&head=1&row=3"


def test_two_texts_have_their_own_heads(open_page: Any, small: identiscope.Trace) -> None:
    """Two sections with heads: each has its place, its keys, and elements of its own."""
    made = report_page(small, with_verdict=False)
    tab = open_page(made.with_section(made.taken("attention")), place="#section=attention-2&layer=1&head=1&row=2")
    assert tab.inner_text("#attention-2_maps_title") == "Attention of layer 1, head 1"
    # Where nothing leads elsewhere, the layer in the middle.
    assert tab.inner_text("#attention_maps_title") == "Attention of layer 1, head 0"
    tab.focus("#attention-2 .grid [aria-pressed=true]")
    tab.keyboard.press("ArrowRight")
    until(tab, "document.querySelector('#attention-2_maps_title').textContent.endsWith('layer 1, head 2')")
    assert tab.evaluate("identiscope.place().head") == 0
    assert tab.evaluate("location.hash") == "#section=attention-2&layer=1&head=2&row=2"
    ids = tab.evaluate("[...document.querySelectorAll('main [id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))


HOSTILE = [
    "</script><script>window.harmed = 1</script>",
    "<img src=x onerror=window.harmed=1>",
    "\u202eevil",
    "=cmd()",
    "\ud800",
]


@pytest.mark.parametrize("width", [1280, 390])
def test_each_kind_is_drawn_and_hostile_words_are_words(open_page: Any, width: int) -> None:
    count = len(HOSTILE)
    cells = [shares(seed, 2, 2, count, count) for seed in (0, 1)]
    cells[1][0, 0, 1, 1] = np.nan
    kinds: dict[str, dict[str, Any]] = {
        "map": {"map": (("layer", "head", "query", "key"), cells[0])},
        "layer": {"weight": (("layer", "head", "query", "key"), cells[1])},
        "mixture": {"share": (("layer", "token", "input"), shares(2, 2, count, count))},
        "token": {
            "rank": (("layer", "token"), np.arange(2 * count).reshape(2, count)),
            "gain": (("layer", "token"), -cells[0][0, 0, :2]),
        },
        "score": {"score": (("input",), shares(3, count) - 0.5)},
        "head": {"rank": (("layer", "head"), np.arange(4).reshape(2, 2))},
        "freedom": {
            "weight": (("cell",), [0.2, 0.3]),
            "lower": (("cell",), [0.0, 0.3]),
            "upper": (("cell",), [0.9, 0.4]),
        },
    }
    results = [
        labelled(kind, f"of {at} {kind}", arrays, HOSTILE, says=HOSTILE[0], note=HOSTILE[1])
        for kind, arrays in kinds.items()
        for at in (0, 1)
    ]
    tab = open_page(result_page(*results), width=width)
    assert tab.evaluate("window.harmed") is None and tab.locator("main img").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    for kind in kinds:
        for at in (0, 1):
            assert tab.locator(f"#of-{at}-{kind}").bounding_box()["height"] > 100
        rows = saved_table(tab, f"of-1-{kind}")
        assert rows and not {"NaN", "undefined"} & {cell for row in rows for cell in row.values()}, kind
    assert tab.locator("main [role=alert]").count() == 0
    tokens = {row["input_token"] for row in saved_table(tab, "of-0-score")}
    assert HOSTILE[0] in tokens and "'=cmd()" in tokens
    weights = [row["weight"] for row in saved_table(tab, "of-0-layer")]
    assert weights[count + 1] == "" and weights[0] != ""
    tab.select_option("#of-0-token >> xpath=ancestor::*[contains(@class, 'beside')] >> select >> nth=1", "gain")
    assert float(saved_table(tab, "of-0-token")[0]["gain"]) == pytest.approx(-cells[0][0, 0, 0, 0], abs=1e-6)
    tab.click("header button")


def test_the_numbers_that_differ_much_have_scales_of_their_own(open_page: Any) -> None:
    axes = ("layer", "head", "query", "key")
    results = [
        labelled("map", f"map_{size}", {"map": (axes, size * shares(0, 1, 1, COUNT, COUNT))}) for size in (1, 50)
    ]
    tab = open_page(result_page(*results))
    assert tab.input_value(".beside .tools select >> nth=1") == "own"


def test_a_section_of_another_version_says_so_and_the_others_are_drawn(open_page: Any, tmp_path: Path) -> None:
    section = Section("plain", "Later", "", {"image": None, "tables": []})
    made = empty_page("x").with_section(section)
    both = result_page(mixture("first_way", 1))
    sections = [
        *json.loads(json.dumps(made.header["sections"]).replace('"plain"', '"hologram"')),
        *both.header["sections"],
    ]
    path = tmp_path / "later.html"
    header: Any = {**both.header, "sections": sections}
    path.write_text(page_html(Page(header, both.chunks)), encoding="utf-8")
    tab = open_page(path)
    assert tab.inner_text("[role=alert]") == "Later could not be drawn: this viewer knows no section of kind hologram"
    assert len(own_shares(tab, "first-way")) == 3


@pytest.mark.parametrize("width", [1280, 390])
def test_the_rows_of_a_strip_have_room_for_whole_names(open_page: Any, width: int) -> None:
    """The cells begin behind the longest name, which the pointer finds: a cell's column is where its word is."""
    names = ["a", "hidden_token_attribution"]
    cells = shares(3, 2, COUNT)
    tokens = {"method": names, "input_token": ("input", WORDS)}
    arrays = {"share": (("method", "input"), cells)}
    result = make_result("explain", arrays, coordinates=tokens, provenance={"kind": "explanation"})
    tab = open_page(result_page(result), width=width)
    box = tab.locator("#explain canvas").bounding_box()
    needed = tab.evaluate(
        """name => { const c = document.createElement("canvas").getContext("2d");
        c.font = "11px system-ui, sans-serif"; return c.measureText(name).width }""",
        names[1],
    )
    y = box["y"] + 6 + 26 * 1.5
    said = []
    for step in range(0, 60, 4):
        tab.mouse.move(box["x"] + needed + step, y)
        said.append(tab.inner_text("#explain .said"))
    told = [one for one in said if names[1] in one]
    assert names[1] not in said[0], "the cells begin where the name still is"
    assert told[0] == f"{names[1]}: {WORDS[0]} (0) is {cells[1, 0]:.3f}"


def test_long_tables_are_folded(open_page: Any) -> None:
    """One of many rows, and all but the first of many tables; each can be opened, and saved."""
    axes = {"of_heads": ("layer", "head"), "of_queries": ("layer", "query"), "of_layers": ("layer",)}
    numbers = {name: (own, np.zeros([8] * len(own))) for name, own in axes.items()}
    tab = open_page(result_page(make_result("toy", numbers)))
    folded = tab.locator("#toy details")
    names = folded.locator("summary").all_inner_texts()
    # The first is all that there is to see.
    assert any("layer, query" in name for name in names) and not any("layer, head" in name for name in names)
    assert not folded.first.locator("table").is_visible()
    folded.first.locator("summary").click()
    assert folded.first.locator("table").is_visible()
    assert saved(tab, "#toy details [data-save=csv]")[1]


def test_the_columns_of_a_strip_have_room_for_whole_names(open_page: Any) -> None:
    """Below the cells the canvas is as high as the longest name, of up to twenty letters."""
    heights = []
    for word in ("here", "uncharacteristically", 400 * "m"):
        words = ["the", word, "."]
        tokens = {"method": ["rollout"], "input_token": ("input", words)}
        arrays = {"share": (("method", "input"), shares(3, 1, 3))}
        result = make_result("explain", arrays, coordinates=tokens, provenance={"kind": "explanation"})
        tab = open_page(result_page(result))
        heights.append(tab.locator("#explain canvas").bounding_box()["height"])
    needed = tab.evaluate(
        """name => { const c = document.createElement("canvas").getContext("2d");
        c.font = "600 11px system-ui, sans-serif"; return c.measureText(name).width }""",
        "uncharacteristically",
    )
    assert heights[1] >= heights[0] - 66 + needed + 8 > heights[0] and heights[2] < heights[0] + 200
