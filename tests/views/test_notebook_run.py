"""A notebook that was run and exported to HTML shows a picture and a table in place of the viewer."""

import os
import sys
from pathlib import Path

import pytest

CELL = """
import torch, identiscope
torch.manual_seed(0)
maps = torch.softmax(torch.randn(1, 2, 5, 5), -1)
trace = identiscope.from_arrays(maps, torch.randn(1, 2, 5, 3), tokens=[*"abcd", "<img src=x onerror=alert(1)>"])
identiscope.view(trace)
"""


def test_a_notebook_that_was_run_and_exported_has_no_empty_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("anywidget", "nbformat", "nbclient", "nbconvert", "ipykernel"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    import nbformat
    from ipykernel.kernelspec import install
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    # The kernel is this Python, wherever another of the same name may be installed.
    install(prefix=str(tmp_path), kernel_name="this")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(notebook, timeout=300, kernel_name="this").execute()
    outputs = [output["data"] for output in notebook.cells[0].outputs if "data" in output]
    assert any("application/vnd.jupyter.widget-view+json" in data for data in outputs)
    exported, _ = HTMLExporter(template_name="classic").from_notebook_node(notebook)
    still = exported[exported.index("data-identiscope-still") :]
    assert still.count("<rect") == 2 and "<table>" in still
    assert "&lt;img src=x" in still and "<img src=x" not in still
