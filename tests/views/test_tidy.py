"""Tidy tables: a row for each head, cell, token or layer, as the kind demands."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import identiscope
from contract import asked
from identiscope.methods.registry import METHODS, Method
from identiscope.results import make_result
from identiscope.views.tables.tidy import main_variable, tidy
from tiny_text_model import save_tiny, words

OF_SITES = [one for one in METHODS.values() if one.family.scope in ("layer", "head")]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> identiscope.Trace:
    return identiscope.trace(str(save_tiny(tmp_path_factory.mktemp("tiny") / "model")), words(12))


@pytest.mark.parametrize("method", OF_SITES, ids=lambda method: method.name)
def test_every_number_is_where_its_labels_say(trace: identiscope.Trace, method: Method) -> None:
    result = asked(method, trace)
    table = tidy(result)
    axes = table.attrs["axes"]
    assert not table.duplicated(list(axes)).any()
    assert len(table) == table.attrs["rows"] == np.prod([result.sizes[axis] for axis in axes])
    shown = [name for name in result.data_vars if name in table and result[name].dims]
    assert shown and set(table.attrs["left_out"]).isdisjoint(table.columns)
    for _, row in table.sample(min(len(table), 40), random_state=0).iterrows():
        for name in shown:
            # An axis may have positions alone.
            one = result[name].isel({a: int(row[a]) for a in result[name].dims if a not in result.coords})
            cell = one.sel({a: row[a] for a in one.dims}).item()
            assert row[name] == cell or (row[name] != row[name] and cell != cell)


def test_a_map_has_a_row_for_each_cell_with_its_tokens(trace: identiscope.Trace) -> None:
    table = identiscope.attention(trace).identiscope.table()
    tokens = trace.main.tokens
    places = ["query", "query_token", "key", "key_token", "key_special"]
    assert list(table.columns) == ["layer", "head", *places, "attention"]
    assert len(table) == 2 * 4 * len(tokens) ** 2
    assert table["query_token"].tolist() == [tokens[place] for place in table["query"]]
    assert table.groupby(["layer", "head", "query"])["attention"].sum().to_numpy() == pytest.approx(1)


def test_a_few_types_become_columns_and_spectra_are_left_out(trace: identiscope.Trace) -> None:
    result = identiscope.attention_identifiability(trace)
    table = result.identiscope.table()
    assert len(table) == 8
    first = str(result["type"].values[0])
    assert table[f"type_null_share_{first}"].tolist() == result["type_null_share"].isel(type=0).values.ravel().tolist()
    assert {"singular_values", "row_null_share"} <= set(table.attrs["left_out"])
    by_layer = result["layer_null_dimension"].values
    assert table["layer_null_dimension"].tolist() == [by_layer[layer] for layer in table["layer"]]


def test_one_row_a_layer_where_all_is_of_layers(trace: identiscope.Trace) -> None:
    assert len(tidy(identiscope.layer_rank(trace))) == 2


def test_the_largest_are_those_of_the_whole_table(trace: identiscope.Trace) -> None:
    result = identiscope.null(trace)
    whole, largest = tidy(result), tidy(result, largest=7)
    expected = whole.reindex(whole["null"].abs().sort_values(ascending=False, kind="stable").index)[:7]
    pd.testing.assert_frame_equal(largest.reset_index(drop=True), expected.reset_index(drop=True))
    assert largest.attrs["rows"] == len(whole)
    assert len(tidy(result, largest=10**6)) == len(whole)


def test_equals_and_what_is_not_a_number() -> None:
    values = np.array([[1.0, np.nan, -3.0], [3.0, 1.0, np.nan]])
    result = make_result("x", {"size": (("layer", "head"), values)}, provenance={"kind": "head"})
    table = tidy(result, largest=5)
    assert table["size"].tolist()[:4] == [-3.0, 3.0, 1.0, 1.0] and np.isnan(table["size"].iloc[4])
    assert table["layer"].tolist() == [0, 1, 0, 1, 0]


def test_what_is_measured_has_a_size_and_a_position_has_none(trace: identiscope.Trace) -> None:
    result = identiscope.token_identifiability(trace)
    assert len(tidy(result)) == 2 * len(trace.main)
    assert main_variable(result) == "cosine_to_input"
    assert main_variable(identiscope.row_rank(trace)) == "rank"


def test_a_mixture_has_a_row_for_each_input_of_each_output(trace: identiscope.Trace) -> None:
    table = tidy(identiscope.rollout(trace))
    assert len(table) == 2 * len(trace.main) ** 2
    assert table.groupby(["layer", "output"])["rollout"].sum().to_numpy() == pytest.approx(1)
    assert table["input_token"].tolist() == [trace.main.tokens[place] for place in table["input"]]


def test_sizes_of_which_there_are_few_are_columns_and_places_are_not() -> None:
    arrays = {"size": (("layer",), np.ones(2)), "width": (("layer", "epsilon"), np.eye(2)),
              "cell": (("layer", "key"), np.eye(2))}  # fmt: skip
    labels = {"layer": [3, 7], "epsilon": [0.01, 0.05], "key": [0, 1]}
    table = tidy(make_result("x", arrays, coordinates=labels, provenance={"kind": "none"}))
    assert table["width_0.01"].tolist() == [1, 0] and table["width_0.05"].tolist() == [0, 1]
    assert table.attrs["left_out"] == {"cell": ("layer", "key")}


def test_results_of_no_kind_and_of_no_axes(tmp_path: Path) -> None:
    result = xr.Dataset({"loss": (("epoch",), [3.0, 1.0]), "best": ((), 7)})
    assert tidy(result).to_dict("list") == {"epoch": [0, 1], "loss": [3.0, 1.0], "best": [7, 7]}
    assert main_variable(result) == "loss"
    assert tidy(xr.Dataset({"best": ((), 7)})).to_dict("list") == {"best": [7]}
    assert len(tidy(xr.Dataset())) == 0


def test_what_was_saved_has_the_same_table(trace: identiscope.Trace, tmp_path: Path) -> None:
    result = identiscope.head_pattern(trace)
    opened = identiscope.load_result(result.identiscope.save(tmp_path / "saved.safetensors"))
    pd.testing.assert_frame_equal(tidy(opened), tidy(result), check_dtype=False)
