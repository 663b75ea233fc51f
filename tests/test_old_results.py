"""Results and probes in the formats before are opened with the labels that they would have now.

The files in `old_results/` were written by identiscope when it numbered hidden states, the input being 0, and called
the attention of a model its `kind`: of a BERT of two layers with random weights, and texts of a few words.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from safetensors import safe_open
from safetensors.numpy import load_file

import identiscope
from identiscope.errors import InputError
from identiscope.papers.brunner2020.probe_files import load_probes
from identiscope.results import load_result, save_result
from tiny_text_model import save_tiny, words

OLD = Path(__file__).parent / "old_results"


def format_of(path: Path) -> str:
    with safe_open(path, framework="numpy") as file:
        return str(file.metadata()["format"])


@pytest.mark.parametrize("name", ["attribution-1", "tokens-1", "tokens-across-1"])
def test_layers_are_blocks_from_0(name: str, tmp_path: Path) -> None:
    path = OLD / f"{name}.safetensors"
    stored = load_file(path)
    assert format_of(path) == "identiscope-result-1" and stored["layer"].tolist() == [1, 2]
    found = load_result(path)
    assert found["layer"].values.tolist() == [0, 1]
    for part, values in stored.items():
        if part not in ("layer", "trained_on"):
            np.testing.assert_array_equal(found[part].values, values)
    # Once is enough: what is written again is of the new format.
    again = save_result(found, tmp_path / "again.safetensors")
    assert format_of(again) == "identiscope-result-2"
    xr.testing.assert_identical(load_result(again), found)


def test_the_words_are_those_of_now() -> None:
    attention = load_result(OLD / "attention-1.safetensors")
    assert attention["layer"].values.tolist() == [1], "layers of attention were blocks already"
    assert attention.attrs["attention"] == "encoder-self" and "kind" not in attention.attrs
    attribution = load_result(OLD / "attribution-1.safetensors")
    assert attribution.attrs["options"]["layers"] == [0, 1]
    across = load_result(OLD / "tokens-across-1.safetensors")
    assert across["trained_on"].values.tolist() == [0, 1]
    # A result of one text has that name now.
    rates = load_result(OLD / "tokens-1.safetensors")
    assert rates.attrs["method"] == "token_identifiability_same_layer"
    assert identiscope.plot(rates).has_data()


def test_an_old_estimate_is_gone_on_with(tmp_path: Path) -> None:
    trace: Any = identiscope.trace(identiscope.load(save_tiny(tmp_path / "tiny")), words(4, seed=1))
    old = load_result(OLD / "attribution-1.safetensors")
    if old.attrs["model_digest"] != identiscope.token_identifiability(trace).attrs["model_digest"]:
        pytest.skip("torch draws the weights of the model with other bits on this processor")
    options: dict[str, Any] = {"mode": "estimate", "layers": [0, 1]}
    on = identiscope.hidden_token_attribution(trace, probes=8, resume=old, **options)
    # It was begun without the exact norms of the first layer, as an estimate by plain replay is.
    straight = identiscope.hidden_token_attribution(trace, probes=8, fast=False, **options)
    np.testing.assert_allclose(on["contribution"], straight["contribution"], rtol=1e-4)
    other = identiscope.trace(trace.model, words(4, seed=2))
    with pytest.raises(InputError, match="another text"):
        identiscope.hidden_token_attribution(other, probes=8, resume=old, **options)


def test_old_probes_belong_to_the_same_layers() -> None:
    path = OLD / "probes-1.safetensors"
    assert format_of(path) == "identiscope-probes-1"
    probes, about = load_probes(path)
    assert about["layers"] == [0, 1] and list(probes) == ["linear l2"]
