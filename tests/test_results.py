"""Results: labelled, with provenance, saved and loaded without loss."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from safetensors.numpy import save, save_file

import identiscope
from identiscope.results import load_result, make_result, save_result


def example() -> xr.Dataset:
    return make_result(
        "null_share",
        {"share": (("layer", "token"), torch.rand(2, 3, dtype=torch.float64)), "rank": (("layer",), [3, 4])},
        coordinates={"layer": range(2), "token": ["a", "[SEP]", "é"]},
        provenance={"model": "minilm", "options": {"bias": True}},
    )


def test_a_saved_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    result = example()
    again = load_result(save_result(result, tmp_path / "result.safetensors"))
    assert again.identical(result)
    assert again.attrs["method"] == "null_share"
    assert again.attrs["version"] == identiscope.__version__
    assert list(again.token.values) == ["a", "[SEP]", "é"]


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(identiscope.InputError, match="no file"):
        load_result(tmp_path / "nothing")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x00" * 40)
    with pytest.raises(identiscope.InputError, match="damaged"):
        load_result(damaged)
    foreign = tmp_path / "foreign.safetensors"
    save_file({"x": np.zeros(2)}, str(foreign))
    with pytest.raises(identiscope.InputError, match="not a result of identiscope"):
        load_result(foreign)


def test_any_result_draws_saves_and_shows_itself(tmp_path: Path) -> None:
    result = identiscope.attention_maps(identiscope.trace("minilm", "The cat sat."), 0, 0)
    assert result.identiscope.plot().get_title() == "effective_simplex_span"
    assert load_result(result.identiscope.save(tmp_path / "result.safetensors")).identical(result)
    page = result.identiscope.to_html(tmp_path / "result.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "http-equiv" in page


def test_half_a_surrogate_pair_is_shown_saved_and_loaded_as_its_escape(tmp_path: Path) -> None:
    torch.manual_seed(0)
    attention = torch.softmax(torch.randn(1, 1, 3, 3, dtype=torch.float64), -1)
    trace = identiscope.from_arrays(
        attention, torch.randn(1, 1, 3, 1, dtype=torch.float64), tokens=["a", "\ud800", "é"]
    )
    result = identiscope.attention_maps(trace, 0, 0)
    assert list(result.key_token.values) == ["a", r"\ud800", "é"]
    assert load_result(save_result(result, tmp_path / "result.safetensors")).identical(result)
    result.to_dataframe().reset_index().to_parquet(tmp_path / "result.parquet")
    assert r"\ud800" in pd.read_parquet(tmp_path / "result.parquet")["query_token"].tolist()
    result.identiscope.plot().figure.canvas.draw()
    # A directory may be named in bytes that are no UTF-8, and a text may be a value as well as a label.
    other = make_result("any", {"text": (("place",), ["\udcff", "b"])}, provenance={"model": "dir/\udcff"})
    assert r"\udcff" in other.to_dataframe()["text"].tolist()
    str(other).encode("utf-8")
    assert load_result(save_result(other, tmp_path / "other.safetensors")).attrs["model"] == r"dir/\udcff"


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path / "pipe", "is a pipe; give a regular file"),
        (tmp_path, "is a directory; give a file"),
        (tmp_path / "none", "there is no file"),
        (tmp_path / ("n" * 300), "File name too long"),
        (tmp_path / "a\0b", "is no name of a file"),
    ):
        with pytest.raises(identiscope.InputError, match=said):
            identiscope.load_result(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"variables": "[" * 100_000}, "nested too deeply"),
        ({"variables": "[]"}, "does not describe a result"),
        ({"attributes": "5"}, "the attributes are no object"),
        ({"variables": None}, "what should be JSON is not"),
        ({"variables": '{"x": {"axes": ["a", "a"], "coordinate": false}}'}, r"x has the axes \['a', 'a'\]"),
        ({"variables": '{"x": {"axes": ["a"], "coordinate": false}}'}, "2 dimensions"),
        ({"variables": '{"t": {"axes": ["a"], "coordinate": false, "values": [1], "shape": [1]}}'}, "is none"),
        ({"variables": '{"t": {"axes": ["a"], "coordinate": false, "values": ["1"], "shape": [9]}}'}, "reshape"),
    ],
)
def test_a_header_that_describes_no_result(tmp_path: Path, changes: dict[str, str | None], said: str) -> None:
    header = {"format": "identiscope-result-1", "variables": "{}", "attributes": "{}", **changes}
    kept = {name: value for name, value in header.items() if value is not None}
    (tmp_path / "made").write_bytes(save({"x": np.zeros((2, 3))}, metadata=kept))
    with pytest.raises(identiscope.InputError, match=said):
        identiscope.load_result(tmp_path / "made")
