"""Run directories of former versions: they open, give the same tables with layers as blocks, and are verified."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr

from identiscope.careful_reading import facts_of, json_bytes
from identiscope.errors import InputError
from identiscope.methods.structure.shared_subspace import from_arrays
from identiscope.runs.compute.run import merge_subspaces, run_corpus
from identiscope.runs.format.opened_run import open_run
from identiscope.runs.format.shard_files import array_bytes, read_arrays, table_bytes
from identiscope.runs.format.shards import read_shard_table, shard_path
from identiscope.runs.format.summary import summary_files
from identiscope.runs.format.verification import verify_run
from runs.old_runs import FORMATS, OF_HIDDEN_STATES, before_noise, unpacked
from soak.damage_kinds import edited
from soak.prepared import OPTIONS, prepare


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    unpacked(folder)
    return folder


@pytest.fixture(scope="module")
def expected(whole: Path) -> Any:
    return json.loads((whole / "expected.json").read_text())


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """Of the format without digests."""
    return Path(shutil.copytree(whole / "run-1", tmp_path / "run"))


@pytest.mark.parametrize("name", FORMATS)
def test_tables_are_the_same_and_layers_are_blocks(whole: Path, expected: Any, name: str) -> None:
    run = open_run(whole / name)
    assert run.manifest["format"] == f"identiscope-{name}" and run.complete
    assert run.methods == ("attention", "attribution", "tokens", "structure")
    for table, then in expected["tables"].items():
        shift = int(table in OF_HIDDEN_STATES)
        now = run.to_pandas(table)
        assert now.columns.tolist() == then["columns"]
        for number, column in enumerate(then["columns"]):
            values = [row[number] for row in then["data"]]
            if column == "layer":
                assert set(values) == {0 + shift, 2 + shift}
                values = [value - shift for value in values]
            if now[column].dtype.kind in "if":
                np.testing.assert_array_equal(now[column], np.array(values, now[column].dtype))
            else:
                assert [value if isinstance(value, str) else None for value in now[column]] == values
    for method in run.methods:
        assert run.to_xarray(method).layer.values.tolist() == [0, 2]
        means, then = run.means(method), expected["means"][method]
        assert means.layer.values.tolist() == [0, 2] and means.column.values.tolist() == then["columns"]
        np.testing.assert_array_equal(means["mean"], np.array(then["mean"], float))
        np.testing.assert_array_equal(means["edge"], then["edge"])
    assert run.summary == expected["summary"] | {"run": run.manifest["run"]}
    assert set(run.query("layer == 2", "tokens").layer) == {2} and run.query("layer == 3", "tokens").empty


@pytest.mark.parametrize("name", FORMATS)
def test_they_are_verified_and_not_gone_on_with(whole: Path, tmp_path: Path, name: str) -> None:
    found = open_run(whole / name).verify()
    said = [note for note in found.notes if "names" in note and "identiscope-run-1" in note]
    assert len(found.notes) == len(said) == (name == "run-1")
    model, corpus = prepare(tmp_path)
    run = shutil.copytree(whole / name, tmp_path / "run")
    with pytest.raises(InputError, match=f"begun otherwise: .*identiscope-{name}, now: identiscope-run-3"):
        run_corpus(str(model), corpus, run, options=OPTIONS, label_column="label")


def test_sums_of_projectors_can_be_computed_with(whole: Path) -> None:
    for name in FORMATS:
        subspaces = open_run(whole / name).subspaces()
        assert sorted(subspaces) == [0, 2] and subspaces[0].samples == 2 and subspaces[0].keys == 12
        again = from_arrays(subspaces[2].arrays())
        np.testing.assert_array_equal(again.mean_projector.numpy(), subspaces[2].mean_projector)
        assert float(again.soft.eigenvalues.max()) == pytest.approx(1)


def test_the_summary_is_made_of_the_shards_as_it_was(whole: Path) -> None:
    """By what makes the summaries of now, to the byte: what a statistic is has not changed."""
    for name in FORMATS:
        files, _ = summary_files(whole / name, open_run(whole / name).manifest, merge_subspaces)
        for file, data in files.items():
            assert file == "subspaces.safetensors" or (whole / name / file).read_bytes() == data


def test_the_first_versions_wrote_a_column_less(copy: Path, whole: Path) -> None:
    before_noise(copy)
    run, later = open_run(copy), open_run(whole / "run-1")
    expected = later.to_pandas("attribution").drop(columns="not_largest_noise")
    pd.testing.assert_frame_equal(run.to_pandas("attribution"), expected)
    xr.testing.assert_equal(run.means("attribution"), later.means("attribution").drop_sel(column="not_largest_noise"))
    assert run.verify().problems == () and run.summary["means"].keys() == later.summary["means"].keys()
    # One shard, if it is whole, says it for all; with none left there is nothing to read.
    (copy / "shards" / "000000" / "attribution.parquet").write_bytes(b"PAR1")
    assert "not_largest_noise" not in open_run(copy).tables["attribution"].names
    shutil.rmtree(copy / "shards")
    assert "not_largest_noise" in open_run(copy).tables["attribution"].names


def changed(data: bytes, array: str, place: tuple[int, ...], by: float) -> bytes:
    arrays, described = read_arrays(data)
    arrays[array] = arrays[array].copy()
    arrays[array][place] += by
    return array_bytes(arrays, described)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("summary.json", lambda data: data.replace(b'"correlation": 0.', b'"correlation": 1.')),
        ("summary.json", lambda data: data.replace(b"\n", b"\n ", 1)),
        ("statistics.safetensors", lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]),
        ("statistics.safetensors", lambda data: changed(data, "tokens.total", (0, 0, 1), 1)),
        ("statistics.safetensors", lambda data: changed(data, "attention.histogram", (0, 0, 0, 1), 1)),
        ("subspaces.safetensors", lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]),
        ("subspaces.safetensors", lambda data: changed(data, "0.projector_sum", (1, 2, 3), 1e-15)),
        ("subspaces.safetensors", lambda data: changed(data, "2.strength", (0, 3), 1e-6)),
        ("subspaces.safetensors", lambda data: changed(data, "2.basis", (0, 1, 10), 1e-6)),
        ("subspaces.safetensors", lambda data: changed(data, "2.basis", (0, 1, 0), 1e-6)),
        ("subspaces.safetensors", lambda data: changed(data, "2.origin", (0, 11), 1)),
        ("subspaces.safetensors", lambda data: changed(data, "2.gap", (3,), 1)),
        ("subspaces.safetensors", lambda data: changed(data, "0.samples", (), 1)),
    ],
)
def test_a_summary_without_digest_is_compared_with_its_shards(copy: Path, name: str, change: Any) -> None:
    data = (copy / name).read_bytes()
    assert change(data) != data
    (copy / name).write_bytes(change(data))
    assert any(name in problem for problem in verify_run(copy).problems)


def test_with_a_shard_less_it_cannot_be_compared(copy: Path) -> None:
    shutil.rmtree(copy / "shards" / "000001")
    found = verify_run(copy)
    assert "1 of 2 shards are missing" in found.problems[0] and not open_run(copy).complete
    assert any("cannot be verified" in note and "summary.json" in note for note in found.notes)


def test_other_versions_compare_it_too(copy: Path) -> None:
    """What is added up exactly does not depend on them."""
    manifest = json.loads((copy / "manifest.json").read_bytes())
    manifest["environment"] |= {"numpy": "0.1", "torch": "0.1", "processor": "NEON", "safetensors": "0.0.1"}
    rebound(copy, manifest)
    assert verify_run(copy).problems == ()
    data = (copy / "statistics.safetensors").read_bytes()
    (copy / "statistics.safetensors").write_bytes(changed(data, "attention.count", (0, 0, 0), 1))
    assert any("statistics.safetensors is not what" in problem for problem in verify_run(copy).problems)


def rebound(run: Path, manifest: dict[str, Any]) -> None:
    """Let everything be of the Run that a changed manifest describes."""
    from identiscope.runs.format.manifest import identity

    manifest["run"] = identity(manifest)
    (run / "manifest.json").write_bytes(json_bytes(manifest))
    for record in (run / "shards").glob("*/shard.json"):
        edited(record, lambda value: value.update(run=manifest["run"]))
    for name, data in summary_files(run, manifest, merge_subspaces)[0].items():
        (run / name).write_bytes(data)


def test_shards_of_other_texts_are_seen(copy: Path) -> None:
    """There is no digest of a shard's texts, but there are the texts themselves."""
    manifest = json.loads((copy / "manifest.json").read_bytes())
    record = json.loads((shard_path(copy, 1) / "shard.json").read_bytes())
    table = read_shard_table(copy, manifest, record, "texts")
    place = table.schema.get_field_index("part_1")
    data = table_bytes(table.set_column(place, "part_1", pa.array(["w9"])))
    (shard_path(copy, 1) / "texts.parquet").write_bytes(data)
    edited(shard_path(copy, 1) / "shard.json", lambda value: value["files"].update({"texts.parquet": facts_of(data)}))
    assert verify_run(copy).problems == (f"the texts in {copy} are not those that the Run was begun with.",)
