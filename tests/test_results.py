"""Results: labelled, with provenance, saved and loaded without loss."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file

import identiscope
from identiscope.results import load_result, make_result, save_result


def example() -> object:
    return make_result(
        "null_share",
        {"share": (("layer", "token"), torch.rand(2, 3, dtype=torch.float64)), "rank": (("layer",), [3, 4])},
        coordinates={"layer": range(2), "token": ["a", "[SEP]", "é"]},
        provenance={"model": "minilm", "options": {"bias": True}},
    )


def test_a_saved_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    result = example()
    again = load_result(save_result(result, tmp_path / "result.safetensors"))  # type: ignore[arg-type]
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
    assert result.identiscope.plot().get_title() == "effective"
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
