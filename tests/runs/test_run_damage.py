"""Damage to a Run: every kind is seen, nothing hangs, and nothing of a user's is lost."""

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import identiscope
from identiscope.careful_reading import DamagedRun, facts_of, read_bounded
from identiscope.errors import InputError
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.opened_run import Run, open_run
from identiscope.runs.format.verification import verify_run
from soak.damage_kinds import DAMAGES, Damage, edited, resealed, trial
from soak.prepared import EVERYTHING, prepare, tiny_run
from tiny_text_model import contents

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def whole(base: Path) -> Path:
    return tiny_run(base).directory


@pytest.fixture(scope="module")
def other(base: Path, whole: Path) -> Path:
    return tiny_run(base, "other", other=True).directory


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def again(base: Path, directory: Path, **more: Any) -> Run:
    model, corpus = prepare(base)
    return run_corpus(str(model), corpus, directory, options=EVERYTHING, label_column="label", **more)


def test_a_whole_run_has_nothing_wrong_with_it(whole: Path) -> None:
    found = open_run(whole).verify()
    assert found.problems == found.notes == () and found.shards == 4
    assert open_run(whole).complete
    # Every file is one that a hash covers, or the seal or a record, which have their own.
    names = {"manifest.json", "seal.json", "summary.json", "statistics.safetensors", "subspaces.safetensors"}
    assert {name for name in contents(whole) if "/" not in name} == names


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_every_kind_of_damage_is_seen(damage: Damage, whole: Path, other: Path, base: Path) -> None:
    assert trial(damage, whole, other, base, repair=False).failures == []


def test_there_are_many_kinds() -> None:
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES) >= 40


def test_all_that_is_wrong_is_said_at_once(copy: Path) -> None:
    for name in ("shards/000000/texts.parquet", "shards/000002/shard.json", "statistics.safetensors", "summary.json"):
        data = bytearray((copy / name).read_bytes())
        data[len(data) // 3] ^= 1
        (copy / name).write_bytes(data)
    shutil.rmtree(copy / "shards" / "000003")
    problems = verify_run(copy).problems
    for said in ("000000/texts.parquet", "shard 000002", "statistics.safetensors", "summary.json", "1 of 4 shards"):
        assert sum(said in problem for problem in problems) == 1, said
    with pytest.raises(DamagedRun) as raised:
        open_run(copy).verify()
    assert all(problem in str(raised.value) for problem in problems)


def test_what_is_read_is_compared(copy: Path) -> None:
    """Not only by verify: a number that is not the Run's never comes out."""
    for name, ask in (
        ("summary.json", lambda run: run.summary),
        ("statistics.safetensors", lambda run: run.statistics),
        ("statistics.safetensors", lambda run: run.means()),
        ("subspaces.safetensors", lambda run: run.subspaces()),
    ):
        data = bytearray((copy / name).read_bytes())
        data[-3] ^= 1
        (copy / name).write_bytes(data)
        with pytest.raises(DamagedRun, match=name):
            ask(open_run(copy))
        data[-3] ^= 1
        (copy / name).write_bytes(data)
        ask(open_run(copy))


def test_a_table_with_a_shard_less_is_refused(copy: Path) -> None:
    run = open_run(copy)
    rows = len(run.to_pandas())
    shutil.rmtree(copy / "shards" / "000002")
    for ask in (run.to_pandas, run.to_xarray, lambda: run.query("tokens > 0"), lambda: list(run.iterate("texts"))):
        with pytest.raises(DamagedRun, match="1 of the 4 shards"):
            ask()
    assert not run.complete
    # Of a Run that had not come to its end, what is there can be read.
    for name in ("seal.json", "summary.json", "statistics.safetensors", "subspaces.safetensors"):
        (copy / name).unlink()
    assert 0 < len(run.to_pandas()) < rows


@pytest.fixture
def notes(copy: Path) -> dict[Path, str]:
    """Files of a user's in places that --repair once emptied, by where they are to be found afterwards."""
    places = {
        "shards/2024-notes/thesis.tex": "2024-notes/thesis.tex",
        "shards/000009/thesis.tex": "000009/thesis.tex",
        "shards/000001/thesis.tex": "thesis.tex",
        "shards/thesis.tex": "thesis.tex.1",
        "shards/.part-mine": ".part-mine",
        "thesis.tex": "../run/thesis.tex",
    }
    for name in places:
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(f"my {name}")
    return {copy / name: to for name, to in places.items()}


def test_repair_deletes_nothing_of_a_user(base: Path, whole: Path, copy: Path, notes: dict[Path, str]) -> None:
    with pytest.raises(InputError, match="is no shard"):
        again(base, copy)
    again(base, copy, repair=True)
    found = sorted(path.read_text() for path in [*copy.parent.rglob("*thesis*"), *copy.parent.rglob("*mine*")])
    assert found == sorted(f"my {path.relative_to(copy)}" for path in notes)
    (copy / "thesis.tex").unlink()
    assert contents(copy) == contents(whole)


def test_repair_follows_and_overwrites_no_link(base: Path, whole: Path, copy: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("summary.json", "seal.json"):
        (elsewhere / name).write_text("mine")
        (copy / name).unlink()
        (copy / name).symlink_to(elsewhere / name)
    shutil.move(copy / "shards" / "000001", elsewhere / "shard")
    (copy / "shards" / "000001").symlink_to(elsewhere / "shard")
    before = contents(elsewhere)
    with pytest.raises(DamagedRun, match="symbolic link"):
        again(base, copy)
    assert contents(elsewhere) == before
    again(base, copy, repair=True)
    assert contents(elsewhere) == before and contents(copy) == contents(whole)


def test_a_lock_that_is_a_link_is_not_written_through(base: Path, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (copy / ".lock").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="symbolic link"):
        again(base, copy)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes are read from files with care."""
    read, system = [0], os.read

    def counted(handle: int, size: int) -> bytes:
        data = system(handle, size)
        read[0] += len(data)
        return data

    monkeypatch.setattr(os, "read", counted)
    return read


def test_a_record_reads_nothing_but_its_own_files(copy: Path, bounded: list[int], tmp_path: Path) -> None:
    """A device, a pipe, a file elsewhere, a huge one: named in a record whose hashes are all in step."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    os.mkfifo(copy / "shards" / "000001" / "pipe")
    os.truncate(copy / "shards" / "000001" / "token_identifiability.parquet", 2**40)
    sizes = {"/dev/zero": 2**40, "../../../secret": 6, str(secret): 6, "pipe": 6, "texts.parquet": 2**45}
    for name, size in sizes.items():
        named = {name: facts_of(b"secret") | {"bytes": size}}
        edited(copy / "shards" / "000001" / "shard.json", partial(_also, named))
        resealed(copy)
        run = open_run(copy)
        for ask in (run.to_pandas, run.verify, partial(run.to_pandas, "texts"), partial(run.to_pandas, "tokens")):
            with pytest.raises(DamagedRun):
                ask()
        assert not run.complete
    assert bounded[0] < 10_000_000


def _also(named: dict[str, Any], record: dict[str, Any]) -> None:
    record["files"] |= named


def test_only_regular_files_of_a_known_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bounded(tmp_path / "file", 5) == b"12345"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    for name, said in (("pipe", "is a pipe"), ("link", "symbolic link"), ("none", "missing"), ("", "is a directory"),
                       ("x" * 300, "cannot be read"), ("zero\0", "cannot be read")):  # fmt: skip
        with pytest.raises(DamagedRun, match=said):
            read_bounded(tmp_path / name, 5)
    with pytest.raises(DamagedRun, match="5 bytes, at most 4"):
        read_bounded(tmp_path / "file", 4)


def test_layers_in_any_order_keep_their_numbers(tmp_path: Path, base: Path, whole: Path) -> None:
    """Once they could be asked for and written in any order; labels go with the numbers, not sorted by themselves."""
    model, corpus = prepare(base)
    options = replace(EVERYTHING, subspace_length=None)
    object.__setattr__(options, "layers", (1, 0))
    made = run_corpus(str(model), corpus, tmp_path / "run", options=options, label_column="label").to_xarray()
    assert made.layer.values.tolist() == [1, 0]
    np.testing.assert_array_equal(made.entropy.sel(layer=[0, 1]), open_run(whole).to_xarray().entropy)


def test_error_kinds_are_public_ones() -> None:
    assert issubclass(DamagedRun, InputError) and issubclass(DamagedRun, identiscope.IdentiscopeError)
