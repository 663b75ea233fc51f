"""The viewer as a widget: what a notebook is sent."""

import json
import re
import sys
import types

import numpy as np
import pytest
import torch

import identiscope
from identiscope.errors import InputError
from identiscope.reports.reporting import view
from identiscope.views.page.data import empty_page
from identiscope.views.page.notebook import widget
from identiscope.views.page.results import result_page
from identiscope.views.page.still import still_html
from views.shape_check import heads


def test_view_sends_header_chunks_and_code() -> None:
    pytest.importorskip("anywidget", reason="the extra notebook is not installed")
    attentions = (torch.full((1, 2, 3, 3), 1 / 3),)
    shown = view(attentions, tokens=["a", "b", "</script>"])
    header = json.loads(shown.header)
    assert heads(header)["tokens"]["queries"][2] == "</script>" and shown.chunks["attention.layer-0"][:2] == b"\x1f\x8b"
    assert "export default" in shown._esm and ".identiscope" in shown._css and "onmessage" in shown.worker
    state = shown.get_state()
    assert isinstance(state["chunks"]["attention.layer-0"], bytes)  # beside the message, not inside its JSON


def test_without_anywidget_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(InputError, match=r"identiscope\[notebook\]"):
        widget(empty_page("x"))


def test_a_trace_and_results_have_a_rich_form() -> None:
    trace = identiscope.from_arrays(torch.full((1, 1, 2, 2), 0.5), torch.eye(2)[None, None], tokens=["<b>", "a"])
    assert "&lt;b&gt;" in trace._repr_html_() and "<b><" not in trace._repr_html_()
    result = identiscope.attention_maps(trace, 0, 0)
    assert "<svg" in result._repr_html_()


def test_an_exported_notebook_has_a_picture_and_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget", reason="the extra notebook is not installed")
    torch.manual_seed(0)
    maps = torch.softmax(torch.randn(2, 3, 6, 6), -1)
    trace = identiscope.from_arrays(maps, torch.randn(2, 3, 6, 4), tokens=[*"abcde", "<img src=x onerror=alert(1)>"])
    shown = view(trace)
    outputs: list[dict[str, str]] = []
    fake = types.ModuleType("IPython.display")
    fake.display = lambda data, raw: outputs.append(data)  # type: ignore[attr-defined]
    package = types.ModuleType("IPython")
    package.display = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    shown._ipython_display_()
    live, still = outputs
    assert "application/vnd.jupyter.widget-view+json" in live and set(still) == {"text/html", "text/plain"}
    text = still["text/html"]
    assert f'data-identiscope-still="{shown.still}"' in text and text.count("<rect") == 6 and "<table>" in text
    assert "<img" not in text and "&lt;img" in text
    share = 1 - heads(json.loads(shown.header))["layers"][1]["simplex_null_share"][2]
    assert f"<td>{share:.3g}</td>" in text


@pytest.mark.parametrize(("name", "rows"), [("rollout", 2), ("effective_simplex_span", 6)])
def test_numbers_of_results_are_exported_too(name: str, rows: int) -> None:
    torch.manual_seed(0)
    maps = torch.softmax(torch.randn(2, 3, 6, 6, dtype=torch.float64), -1)
    value = torch.randn(2, 3, 6, 4, dtype=torch.float64)
    trace = identiscope.from_arrays(maps, value, tokens=[*"abcde", "<img src=x onerror=alert(1)>"])
    result = getattr(identiscope, name)(trace)
    text = still_html(result_page(result), "name")
    assert text.count("<rect") == 6 * rows and "<img" not in text and "&lt;img" in text
    cells = re.findall(r"<td>(-?[\d.]+(?:e-\d+)?)</td>", text)
    # Of the first word in each layer, or of each word in the first head; rounded as pages are.
    numbers = result[name]
    true = numbers.isel(output=0) if name == "rollout" else numbers.isel(layer=0, head=0)
    found = np.array([float(cell) for cell in cells if "." in cell or cell in "01"])[-6 * rows :]
    np.testing.assert_allclose(found[-6:], true.values[-1], rtol=6e-3, atol=1.1e-3)
