"""Results: labelled, with provenance, saved and loaded without loss."""

from pathlib import Path

import numpy as np
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
