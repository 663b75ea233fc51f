"""The notebook's module, drawn into a bare page by a stand-in for the kernel."""

import base64
from typing import Any

import pytest
import torch

from browser.conftest import until
from identiscope.reports.reporting import view

DRAW = """async ([esm, header, worker, chunks]) => {
  const url = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  const module = await import(url);
  const bytes = {};
  for (const [name, text] of Object.entries(chunks))
    bytes[name] = new DataView(Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)).buffer);
  const fields = { header, worker, chunks: bytes };
  const el = document.createElement("div");
  document.body.append(el);
  window.close_widget = module.default.render({ model: { get: (name) => fields[name] }, el });
}"""


@pytest.mark.parametrize("forbidden", [False, True])
def test_the_widget_draws(chromium: Any, forbidden: bool) -> None:
    """With a worker, and where none may be made."""
    pytest.importorskip("anywidget", reason="the extra notebook is not installed")
    torch.manual_seed(0)
    attentions = tuple(torch.softmax(torch.randn(1, 3, 6, 6), -1) for _ in range(2))
    shown = view(attentions=attentions, tokens=list("abcdef"))
    tab = chromium.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto("about:blank")
    if forbidden:
        tab.evaluate("() => { window.Worker = function () { throw new Error('forbidden'); }; }")
    chunks = {name: base64.b64encode(data).decode() for name, data in shown.chunks.items()}
    tab.evaluate(DRAW, [shown._esm, shown.header, shown.worker, chunks])
    until(tab, "document.querySelector('#attention_maps_title')?.textContent === 'Attention of layer 1, head 0'")
    # Arrows belong to the notebook unless the viewer has the focus.
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#attention_maps_title") == "Attention of layer 1, head 0"
    tab.focus('.grid [aria-pressed="true"]')
    tab.keyboard.press("ArrowRight")
    until(tab, "document.querySelector('#attention_maps_title').textContent === 'Attention of layer 1, head 1'")
    tab.evaluate("close_widget()")
    assert errors == []
    tab.close()
