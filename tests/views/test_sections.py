"""Sections: one for each result, two of one kind on one page, and one declaration of what is in them."""

import gzip
import re
from typing import Any, get_args

import numpy as np
import pytest
import xarray as xr

import reference_page
from identiscope.errors import InputError
from identiscope.reports.reporting import report, view_page
from identiscope.results import make_result
from identiscope.views.page import typedefs
from identiscope.views.page.bundle import static
from identiscope.views.page.data import Section, empty_page, plain_name
from identiscope.views.page.results import result_page, with_results
from identiscope.views.page.sections import KINDS, section_of
from identiscope.views.page.shapes import SHAPES, SectionData, SectionKind
from views.shape_check import check_page, mismatch

TOKENS = ["[CLS]", "a", "b", "</script>"]
COUNT = len(TOKENS)


def result_of(kind: str, arrays: dict[str, Any], method: str = "new_method", **attributes: Any) -> xr.Dataset:
    """As a method gives it that no module of the views has heard of."""
    names = {
        f"{axis}_token": (axis, TOKENS)
        for axis in ("query", "key", "token", "input")
        if any(axis in axes for axes, _ in arrays.values())
    }
    return make_result(method, arrays, coordinates=names, provenance={"kind": kind, **attributes})


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(shape[-1]), shape[:-1])


RESULTS: dict[str, dict[str, Any]] = {
    "map": {"new_method": (("layer", "head", "query", "key"), 3 * drawn(2, 3, COUNT, COUNT) - 1)},
    "mixture": {"share": (("layer", "token", "input"), drawn(3, COUNT, COUNT))},
    "token": {
        "rank": (("layer", "token"), np.arange(3 * COUNT).reshape(3, COUNT)),
        "rate": (("layer", "token"), drawn(3, COUNT)),
    },
    "score": {"score": (("input",), drawn(COUNT) - 0.5)},
    "explanation": {"share": (("method", "input"), drawn(3, COUNT) - 0.5)},
    "head": {"one": (("layer", "head"), drawn(2, 3)), "holds": (("layer", "head"), drawn(2, 3) > 0.3)},
    "layer": {"new_method": (("layer", "head", "query", "key"), drawn(2, 3, COUNT, COUNT))},
    "freedom": {
        "query": (("cell",), [1, 2]),
        "key": (("cell",), [0, 3]),
        "weight": (("cell",), [0.2, 0.3]),
        "lower": (("cell",), [0.1, 0.0]),
        "upper": (("cell",), [0.2, 0.9]),
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_how_a_result_is_shown(kind: str) -> None:
    result = result_of(kind, RESULTS[kind], says="What it says.")
    section = section_of(result)
    assert section.kind == KINDS[kind].drawn and section.says == "What it says."
    assert section.title == (KINDS[kind].title or "New method")
    page = empty_page("x").with_section(section)
    assert page.names == ["new-method"]
    check_page(page)
    assert section_of(result.drop_attrs().assign_attrs(kind=kind)).says == KINDS[kind].says


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_cannot_be_drawn_is_shown_plainly(kind: str, value: float) -> None:
    arrays = {name: (axes, np.full(np.shape(numbers), value)) for name, (axes, numbers) in RESULTS[kind].items()}
    assert section_of(result_of(kind, arrays)).kind == "plain"
    assert section_of(result_of(kind, {"other": (("strange",), [1.0])})).kind == "plain"


def test_numbers_are_those_of_the_result() -> None:
    """Read back by another program: a map with negative weights and cells without a number, a mixture, a score."""
    cells = 3 * drawn(2, 3, COUNT, COUNT) - 1
    cells[1, 2, 0, 1] = np.nan
    made: Any = section_of(result_of("map", {"new_method": (("layer", "head", "query", "key"), cells)}))
    for place, layer in enumerate(made.data["layers"]):
        codes = reference_page.array(gzip.decompress(made.chunks[layer["chunk"]]), layer["cells"])
        found = np.where(
            codes == -32768, np.nan, np.sign(codes) * (codes / made.data["levels"]) ** 2 * made.data["peak"]
        )
        assert np.array_equal(np.isnan(found), np.isnan(cells[place]))
        assert np.nanmax(np.abs(found - cells[place])) <= made.data["error"] * (1 + 1e-9) < 2e-3
    for kind, order in (("mixture", (1, 0, 2)), ("score", (0,))):
        strip: Any = section_of(result_of(kind, RESULTS[kind]))
        (variable,) = strip.data["variables"]
        values = reference_page.array(gzip.decompress(strip.chunks["values"]), variable["values"])
        true = next(iter(RESULTS[kind].values()))[1].transpose(order)
        assert np.allclose(values, true, atol=1e-7)


def test_names_of_axes_are_enough() -> None:
    """Axes in any order, a head that was selected, layers with names."""
    result = result_of("map", RESULTS["map"])
    turned = result.transpose("key", "head", "query", "layer")
    one, other = section_of(result), section_of(turned)
    assert other.data["axes"] == ["key", "query"] and one.data["axes"] == ["query", "key"]  # type: ignore[typeddict-item]
    part: Any = section_of(result.assign_coords(head=[4, 5, 6]).sel(head=5)).data
    assert [layer["heads"] for layer in part["layers"]] == [[5], [5]]
    named = result_of("mixture", RESULTS["mixture"]).assign_coords(layer=["input", "0", "1"])
    strip: Any = section_of(named).data
    assert (
        strip["rows"] == ["input", "0", "1"]
        and strip["words"] == TOKENS
        and strip["axes"] == ["layer", "input", "token"]
    )


def test_two_results_of_one_kind_keep_apart() -> None:
    """A second attribution does not replace the first: two names, two chunks, titles that tell them apart."""
    one = result_of("mixture", RESULTS["mixture"], options={"residual": 0.5})
    other = result_of(
        "mixture", {"share": (("layer", "token", "input"), drawn(3, COUNT, COUNT)[::-1])}, options={"residual": 0.9}
    )
    page = result_page(one, other, result_of("mixture", RESULTS["mixture"], method="another"))
    check_page(page)
    assert page.names == ["new-method", "new-method-2", "another"]
    titles = [section["title"] for section in page.header["sections"]]
    assert titles == ["New method: residual 0.5", "New method: residual 0.9", "Another"]
    assert page.chunks["new-method.values"] != page.chunks["new-method-2.values"]
    assert page.chunks["new-method.values"] == page.chunks["another.values"]


def test_several_results_make_a_report(tmp_path: Any) -> None:
    results = [result_of(kind, arrays, method=f"of_{kind}") for kind, arrays in RESULTS.items()]
    text = report(results, path=tmp_path / "all.html").read_text(encoding="utf-8")
    assert all(f'"name":"of-{kind}"' in text for kind in RESULTS)
    assert view_page(results, None, None, None).names == [f"of-{kind}" for kind in RESULTS]
    with pytest.raises(InputError, match="no result"):
        result_page()


def test_names_are_harmless_and_never_those_of_the_page() -> None:
    assert (
        plain_name("</script> É_x") == "script-x" and plain_name("…") == "section" and len(plain_name("x" * 99)) == 60
    )
    page = empty_page("x")
    for name in ("header", "verdict", "verdict", "<b>"):
        page = page.with_section(Section("plain", name, "", {"image": None, "tables": []}, name=name))
    assert page.names == ["header-2", "verdict-2", "verdict-3", "b"]
    assert with_results(page, []) is page


def test_the_shapes_are_declared_once() -> None:
    """data.js says what shapes.py does, and both tables of kinds have all of them."""
    assert f"{typedefs.BEGIN}\n{typedefs.typedefs()}\n{typedefs.END}" in static("data.js"), (
        "run python -m identiscope.views.page.typedefs"
    )
    assert list(SHAPES) == list(get_args(SectionKind))
    assert set(SHAPES.values()) == set(get_args(SectionData))
    (table,) = re.findall(r"^const SECTIONS = \{\n(.*?)^\};", static("sections.js"), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^  (\w+): \{ draw", table, flags=re.MULTILINE) == list(SHAPES)
    assert {kind.drawn for kind in KINDS.values()} <= set(SHAPES)


def test_another_shape_is_noticed() -> None:
    page = empty_page("x").with_section(section_of(result_of("head", RESULTS["head"])))
    data: Any = page.header["sections"][0]["data"]
    for wrong in (data | {"more": 1}, {"layers": [0]}, data | {"heads": [True]}, data | {"layers": [1.5]}, None):
        assert mismatch(wrong, SHAPES["head"], "data")
    assert mismatch(data, SHAPES["head"], "data") is None


def test_no_method_is_known_to_the_viewer() -> None:
    """Its modules name kinds, axes and parts of the page: no method of the library."""
    from identiscope.methods.registry import METHODS
    from identiscope.views.plots.plotting import drawings

    for name in (
        "sections",
        "viewer",
        "strips",
        "matrices",
        "head_grid",
        "curves",
        "freedom",
        "plain",
        "attention_view",
    ):
        words = set(re.findall(r"\w+", static(f"{name}.js")))
        assert not words & {*METHODS, *drawings()} - {"attention", "null"}, name


def test_numbers_of_other_axes_follow_in_tables() -> None:
    more = {"by_row": (("layer", "head", "query"), drawn(2, 3, COUNT))}
    page = result_page(result_of("head", RESULTS["head"] | more))
    assert [section["kind"] for section in page.header["sections"]] == ["head", "plain"]
    assert page.header["sections"][1]["title"] == "New method: all numbers"
    assert len(result_page(result_of("head", RESULTS["head"])).names) == 1
