"""What a page holds, read back by another program, is what the library computes, within the error the page states."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import families
import identiscope
import reference_page
from heard import Heard
from identiscope.capture.samples import PASSAGE
from identiscope.errors import IdentiscopeError, InputError
from identiscope.reports.reporting import report, report_page, view_page
from identiscope.results import make_result
from identiscope.views.page import bundle, packing
from identiscope.views.page.data import Page, empty_page
from identiscope.views.page.matrices import structure_section
from identiscope.views.page.packing import from_levels, levels_for, to_levels
from identiscope.views.page.report import page_html, to_text, write_report
from identiscope.views.page.results import result_page
from views.shape_check import heads, plain

IDS = [(7 * place) % 90 + 5 for place in range(60)]


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float64])
@pytest.mark.parametrize("count", [0, 6, 7, 8, 29])
def test_whole_numbers_are_coded_a_part_at_a_time(count: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_AT_ONCE", 7)
    most = packing.LARGEST
    values = np.random.default_rng(count).integers(-most, most, (count, 3), endpoint=True).astype(dtype)
    values[:1] = [-most, 0, most]
    chunk = packing.Chunk()
    chunk.numbers(np.ones(3))
    # Of a view, too, whose numbers do not lie one behind the other.
    described: Any = chunk.whole(values.T)
    read = reference_page.array(gzip.decompress(chunk.compressed()), described)
    np.testing.assert_array_equal(read, values.T)


def check(trace: identiscope.Trace, page: Page, kind: str) -> list[str]:
    """Every cell of every head against the library; returns how the raw maps are stored."""
    stored = []
    for layer in heads(page)["layers"]:
        site = trace.site(layer["layer"], kind)
        projected = identiscope.factored_attention(trace, layer["layer"], "effective_simplex_span", attention=kind)
        kept = projected.dense().numpy()
        tokens = heads(page)["tokens"]["keys"] or heads(page)["tokens"]["queries"]
        together = np.array([[float(token == word) for word in sorted(set(tokens))] for token in tokens])
        for place, head in enumerate(layer["heads"]):
            found = reference_page.maps(layer, page.chunks[f"attention.{layer['chunk']}"], place)
            raw = site.attention(head).numpy()
            truth = {"raw": raw, "effective_simplex_span": kept[place], "simplex_null": raw - kept[place]}
            assert truth.keys() == found.keys() - {"canonical"}
            for name, cells in truth.items():
                error = np.abs(found[name] - cells).max()
                assert error <= layer["error"][name], f"{name} of layer {layer['layer']}, head {head}"
            assert layer["error"]["raw"] < 1.2e-3
            share = ((raw - kept[place]) ** 2).sum() / (raw**2).sum()
            assert layer["simplex_null_share"][place] == pytest.approx(share, abs=1e-9)
            merged = (((raw - kept[place]) @ together) ** 2).sum() / ((raw @ together) ** 2).sum()
            assert layer["merged_null_share"][place] == pytest.approx(merged, abs=1e-9)
            allowed = site.allowed_keys(head).numpy()
            correlation = np.corrcoef(raw[allowed], kept[place][allowed])[0, 1]
            assert layer["simplex_correlation"][place] == pytest.approx(correlation, abs=1e-9)
            points = (site.value_of(head).double() @ site.projection[head].double()).numpy()
            rows = reference_page.output_rows(layer, page.chunks[f"attention.{layer['chunk']}"], place)
            # Up to a rotation: the same inner products, within the error stated for a row.
            spare = layer["output"]["row_error"][place]
            size = np.linalg.norm(points, axis=1).max()
            assert np.abs(rows @ rows.T - points @ points.T).max() <= 2 * size * spare + spare**2
        stored.append("factors" if layer["raw"]["factors"] else "cells")
    return stored


@pytest.mark.parametrize(
    ("name", "kind", "stored"),
    [
        ("BERT", "encoder-self", "factors"),
        ("Llama", "decoder-self", "factors"),  # causal, grouped
        ("Mistral", "decoder-self", None),  # sliding window
        ("Gemma-2", "decoder-self", None),  # soft-capped logits
        ("GPT-OSS", "decoder-self", None),  # sinks: rows sum to less than one
        ("Bloom", "decoder-self", "factors"),  # a position bias, by key
        ("T5", "cross", None),
        ("T5", "encoder-self", "cells"),
    ],
)
def test_every_cell_is_within_the_stated_error(name: str, kind: str, stored: str | None) -> None:
    family = families.ALL[name]
    given = IDS if family.arguments is None else family.inputs()
    trace = identiscope.trace(family.model(), given)
    page = report_page(trace, attention=kind, with_verdict=False, canonical="none")
    found = check(trace, page, kind)
    assert stored is None or set(found) == {stored}


@pytest.mark.parametrize(
    ("name", "options", "derived"),
    [
        ("Llama", {"head_dim": 8}, True),  # heads share values
        ("Llama", {"head_dim": 32, "num_key_value_heads": 4}, True),  # so many channels that cells take less room
        ("GptOss", {"head_dim": 8, "sliding_window": 40, "num_local_experts": 4}, False),  # and sinks
    ],
)
def test_a_long_causal_text_is_stored_without_left_factors(name: str, options: dict[str, Any], derived: bool) -> None:
    trace = identiscope.trace(*families.long_causal(name, **options))
    page = report_page(trace, with_verdict=False, canonical="none")
    assert check(trace, page, "decoder-self") == ["cells" if options["head_dim"] == 32 else "factors"]
    (layer,) = heads(page)["layers"]
    assert max(layer["error"].values()) <= 1.2e-3
    assert (layer["effective_simplex_span"]["factors"]["left"] is None) is derived


@pytest.mark.parametrize("name", ["BERT", "Llama"])
@pytest.mark.parametrize("length", [6, 24])  # eight channels: all rows are identifiable, or not all
def test_null_attention_that_is_rounding_is_zero(name: str, length: int) -> None:
    trace = identiscope.trace(families.ALL[name].model(), IDS[:length])
    dimension = identiscope.attention_identifiability(trace)["simplex_null_dimension"]
    page = report_page(trace, with_verdict=False)
    check(trace, page, trace.kinds[0])
    for layer in heads(page)["layers"]:
        for place, head in enumerate(layer["heads"]):
            found = reference_page.maps(layer, page.chunks[f"attention.{layer['chunk']}"], place)
            free = dimension.sel(layer=layer["layer"], head=head).values > 0
            assert np.array_equal(found["simplex_null"].any(1), free)
            # And not because the page's raw and projected weights are the same there.
            assert free.all() or (found["raw"] != found["effective_simplex_span"])[~free].any()
        assert length == 24 or layer["error"]["simplex_null"] < 1e-5


def test_a_choice_of_heads_is_packed_as_it_was_captured() -> None:
    trace = identiscope.trace(families.ALL["Llama"].model(), IDS, heads=[1, 2])
    page = report_page(trace, with_verdict=False, canonical=[(1, 2)])
    assert heads(page)["layers"][0]["heads"] == [1, 2]
    check(trace, page, trace.kinds[0])
    layer = heads(page)["layers"][1]
    found = reference_page.maps(layer, page.chunks[f"attention.{layer['chunk']}"], 1)["canonical"]
    true = identiscope.attention_maps(trace, 1, 2, ("canonical",))["canonical"].values
    assert np.abs(found - true).max() <= layer["error"]["canonical"]


def test_arrays_with_a_mask_of_any_shape() -> None:
    torch.manual_seed(0)
    mask = torch.rand(9, 7) > 0.4
    mask[:, 0] = True
    attention = torch.softmax(torch.randn(2, 3, 9, 7).masked_fill(~mask, -torch.inf), -1)
    trace = identiscope.from_arrays(attention, torch.randn(2, 3, 7, 4), mask=mask)
    page = report_page(trace, with_verdict=False)
    check(trace, page, trace.kinds[0])
    assert heads(page)["layers"][0]["mask"].keys() == {"matrix"}
    assert len(heads(page)["tokens"]["queries"]) == 9 and len(heads(page)["tokens"]["keys"]) == 7


def test_sizes(minilm: identiscope.Model) -> None:
    """At 128 tokens at most 2 MB and at 512 at most 15 MB, with raw, projected and null attention of all 72 heads."""
    assert minilm.tokenizer is not None
    ids = minilm.tokenizer(PASSAGE * 4, truncation=True, max_length=512)["input_ids"]
    short = report_page(identiscope.trace(minilm, ids[:128]))
    assert heads(short)["start"] and heads(short)["intervals"] and len(short.header["verdict"]) == 6
    assert len(page_html(short)) < 2e6
    long = report_page(identiscope.trace(minilm, ids), with_verdict=False)
    assert len(heads(long)["tokens"]["queries"]) == 512
    assert len(page_html(long)) < 15e6
    assert max(layer["error"]["simplex_null"] for layer in heads(long)["layers"]) < 1.5e-3


def test_a_verdict_chooses_what_is_shown_first(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, PASSAGE[:260])
    told = Heard()
    page = report_page(trace, intervals=[(2, 3, 4)], progress=told)
    start = heads(page)["start"]
    own = [one for one in heads(page)["intervals"] if (one["layer"], one["head"], one["query"]) == (2, 3, 4)]
    assert len(own) == len(trace.tokens)
    known = identiscope.attention_intervals(trace, 2, 3, cells=[(4, 7)])
    (one,) = (one for one in own if one["key"] == 7)
    assert one["lower"] == pytest.approx(float(known["lower"][0]), abs=1e-9)
    for part in ("copies", "merged_weight", "merged_lower", "merged_upper"):
        assert one[part] == pytest.approx(float(known[part][0]), abs=1e-9)
    first = [one for one in heads(page)["intervals"] if one["query"] == start["row"] and one["head"] == start["head"]]
    assert len(first) >= 12
    chosen = {
        (layer["layer"], head)
        for layer in heads(page)["layers"]
        for head in (layer["canonical"] or {"heads": []})["heads"]
    }
    assert (start["layer"], start["head"]) in chosen and len(chosen) <= 3
    assert {"intervals", "canonical maps", "maps"} <= {what for what, _, _ in told.steps}
    # What takes longest says how far it is: six layers, then 24 weights and 8 rows.
    assert [step for step in told.steps if step[0] == "layers"] == [("layers", done, 6) for done in range(7)]
    assert [step for step in told.steps if step[0] == "verdict"] == [("verdict", done, 32) for done in range(1, 33)]


def test_text_form_of_bytes() -> None:
    generator = np.random.default_rng(0)
    for size in (0, 1, 3, 4, 5, 1000):
        data = generator.integers(0, 256, size, dtype=np.uint8).tobytes()
        assert reference_page.from_text(to_text(data)) == data
    assert not set(reference_page.LETTERS) & set("<>&\"'\\")


def test_levels_keep_their_error() -> None:
    cells = np.linspace(-1, 1, 20001)
    for error in (1e-3, 2.5e-4):
        levels = levels_for(error)
        assert np.abs(from_levels(to_levels(cells, levels), levels) - cells).max() <= error


def test_the_page_allows_nothing_but_itself(minilm: identiscope.Model) -> None:
    trace = identiscope.from_arrays(
        torch.full((1, 1, 2, 2), 0.5), torch.eye(2)[None, None], tokens=["</script><b>", "{script}"]
    )
    text = page_html(report_page(trace, with_verdict=False, title="<i>&\u2028"))
    assert text.count("</script>") == text.count("<script") == 3
    assert "<b>" not in text and "<i>" not in text and "://" not in text.replace("http://www.w3.org/2000/svg", "")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy and "unsafe" not in policy and "connect-src" not in policy
    header = json.loads(re.search(r'id="header">(.*?)</script>', text, flags=re.DOTALL).group(1))  # type: ignore[union-attr]
    assert heads(header)["tokens"]["queries"] == ["</script><b>", "{script}"]


def test_modules_become_one_script() -> None:
    for made in (bundle.report_script(), bundle.worker_script(), bundle.widget_script()):
        assert not re.search(r"^\s*import ", made, flags=re.MULTILINE) and "</" not in made
    assert bundle.widget_script().count("export ") == 1


def test_lines_of_the_modules_may_be_joined() -> None:
    """No comment ends a line of code, and no text goes over several: then a bundle may leave ends of lines out."""
    for path in (Path(bundle.__file__).parents[1] / "static").glob("*.js"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.lstrip().startswith(("//", "/*", "*")):
                assert " //" not in line, f"{path.name}:{number}"
                # A backtick may also be one of the letters of a text.
                assert 0 in (line.count("`") % 2, re.sub('"[^"]*"', "", line).count("`") % 2), f"{path.name}:{number}"


def test_a_name_may_be_defined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"a.js": 'import { x } from "./b.js";\nconst y = x;\n', "b.js": "export const x = 1;\nconst y = 2;\n"}
    monkeypatch.setattr(bundle, "static", sources.__getitem__)
    with pytest.raises(IdentiscopeError, match=r"y is defined in b\.js and in a\.js"):
        bundle.bundle.__wrapped__("a")


def attribution(tokens: list[str]) -> Any:
    shares = np.random.default_rng(0).dirichlet(np.ones(len(tokens)), (3, len(tokens))).transpose(0, 2, 1)
    axes = ("layer", "input", "output")
    return make_result(
        "hidden_token_attribution",
        {"contribution": (axes, shares), "contribution_error": (axes, 0 * shares)},
        coordinates={"layer": [0, 1, 2], "input_token": ("input", tokens), "output_token": ("output", tokens)},
        provenance={"mode": "exact", "norm": "frobenius"},
    )


def test_other_results_have_their_views() -> None:
    (shown,) = result_page(attribution(["a", "b", "c"])).header["sections"]
    data: Any = shown["data"]
    assert data["columns"] == ["a", "b", "c"] and data["variables"][0]["error"] is None
    rates = make_result(
        "token_identifiability_same_layer",
        {"rate": (("probe", "layer"), [[1.0, np.nan]]), "random_guess": (("layer",), [0.1, 0.1])},
        coordinates={"probe": ["naive cosine"], "layer": [0, 1]},
    )
    curve: Any = result_page(rates).section("token-identifiability-same-layer")["data"]
    assert curve["rate"] == [[1.0, None]] and curve["guess"] == pytest.approx(0.1)
    data = structure_section(np.eye(3), ["a", "b", "c"]).data
    assert data["columns"] == ["a", "b", "c"]
    with pytest.raises(InputError, match="2 and 2 labels"):
        structure_section(np.eye(3), ["a", "b"])


def test_any_result_can_be_shown(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, PASSAGE[:200])
    found = plain(result_page(identiscope.attention_identifiability(trace)))
    assert found["image"].startswith("data:image/png;base64,")
    maps = identiscope.attention_maps(trace, 2, 3)
    page = result_page(maps)
    layer = heads(page)["layers"][0]
    assert (layer["layer"], layer["heads"]) == (2, [3])
    cells = reference_page.maps(layer, page.chunks[f"attention-maps.{layer['chunk']}"], 0)
    for name in ("raw", "effective_simplex_span", "canonical", "effective"):
        assert np.abs(cells[name] - maps[name].values).max() <= layer["error"][name]
    left = (maps["raw"] - maps["effective_simplex_span"]).values
    assert np.abs(cells["simplex_null"] - left).max() <= layer["error"]["simplex_null"]
    assert [one["name"] for one in heads(page)["maps"]] == [
        "raw", "effective_simplex_span", "simplex_null", "canonical", "effective",
    ]  # fmt: skip
    intervals = result_page(identiscope.attention_intervals(trace, 2, 3, top=4))
    table = plain(intervals)["tables"][0]
    assert len(table["rows"]) == 4 and "lower" in table["columns"]


def test_attentions_as_bertviz_takes_them() -> None:
    torch.manual_seed(0)
    attentions = tuple(torch.softmax(torch.randn(1, 2, 5, 5), -1) for _ in range(3))
    tokens = ["[CLS]", "a", "b", "c", "[SEP]"]
    page = view_page(None, attentions, tokens, [2, 0])
    assert [layer["layer"] for layer in heads(page)["layers"]] == [2, 0]
    layer = heads(page)["layers"][1]
    found = reference_page.maps(layer, page.chunks[f"attention.{layer['chunk']}"], 1)
    assert np.abs(found["raw"] - attentions[0][0, 1].numpy()).max() <= layer["error"]["raw"]
    assert found.keys() == {"raw"}
    for wrong, words in (
        (((), tokens, None), "no attentions"),
        ((attentions, tokens[:3], None), "3 tokens"),
        ((attentions, tokens, [3]), r"layers \[3\]"),
        (((torch.randn(2, 2, 5, 5),), tokens, None), "shape"),
        (((torch.randn(1, 2, 5, 5) * 9,), tokens, None), "softmax"),
        ((None, tokens, None), "give a Trace"),
    ):
        with pytest.raises(InputError, match=words):
            view_page(None, *wrong)


def test_a_report_that_cannot_be_written_is_refused(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_report(empty_page("x"), tmp_path / "nowhere" / "x.html")
    assert write_report(empty_page("x"), tmp_path / "x.html").stat().st_size > 1000
    path = report(attribution(["a", "b"]), path=tmp_path / "a.html")
    assert '"columns":["a","b"]' in path.read_text(encoding="utf-8")
    with pytest.raises(InputError, match="no text was given"):
        report("minilm", path=tmp_path / "y.html")


def test_unknown_heads_are_refused(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, "One two three.")
    for canonical in ([(9, 9)], "some"):
        with pytest.raises(InputError, match="were asked for"):
            report_page(trace, with_verdict=False, canonical=canonical)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def translating() -> identiscope.Trace:
    family = families.ALL["T5"]
    return identiscope.trace(family.model(), family.inputs())


@pytest.mark.parametrize(
    ("kind", "name", "stream"),
    [
        ("encoder-self", "rollout", "encoder"),
        ("encoder-self", "token_identifiability", "encoder"),
        ("cross", "rollout", "decoder"),
        ("encoder-self", "gradient_input", "decoder"),  # the outcome is read from there
    ],
)
def test_a_method_is_asked_of_the_stream_that_the_page_shows(
    translating: identiscope.Trace, kind: str, name: str, stream: str
) -> None:
    page = report_page(translating, attention=kind, with_verdict=False, canonical="none", methods=[name])
    section = page.section(name.replace("_", "-"))
    assert section["says"].endswith(f". Of the {stream}.")
    drawn: Any = section["data"]
    # What a decoder comes to is made of what its encoder read, too.
    streams = ("encoder", "decoder") if stream == "decoder" and name != "rollout" else (stream,)
    assert drawn["columns"] == [token for one in streams for token in translating.streams[one].tokens]


def test_layers_of_a_page_are_those_of_methods_beside_it(translating: identiscope.Trace) -> None:
    names = ["rollout", "effective_simplex_span", "received_attention"]
    page = report_page(translating, layers=[1], with_verdict=False, canonical="none", methods=names)
    mixture, maps, score = (page.section(name.replace("_", "-")) for name in names)
    drawn: list[Any] = [mixture["data"], maps["data"]]
    assert drawn[0]["rows"] == [1]
    assert [layer["layer"] for layer in drawn[1]["layers"]] == [1]
    unmoved = "The choice of layers makes no difference to it."
    assert [unmoved in one["says"] for one in (mixture, maps, score)] == [False, False, True]
