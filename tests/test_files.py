"""The one way to write a file. Special files are made in a temporary directory; the system's own are never touched."""

import ast
import errno
import os
import stat
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

import identiscope
from identiscope.cli import main
from identiscope.errors import InputError
from identiscope.files import check_writable, filling, make_directory, replacing, saying, write_file
from identiscope.results import load_result, make_result, save_result

RESULT = make_result("method", {"number": (("layer",), [1.0, 2.0])})


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def umask():
    """A umask that is neither the usual one nor that of a temporary file."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_a_new_file_has_the_mode_of_the_umask_and_an_old_one_keeps_its_own(tmp_path: Path, umask: int) -> None:
    new, old = tmp_path / "new.safetensors", tmp_path / "old.safetensors"
    old.write_bytes(b"before")
    old.chmod(0o600)
    for path in (new, old):
        save_result(RESULT, path)
        assert load_result(path).equals(RESULT)
    assert stat.S_IMODE(new.stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    assert names(tmp_path) == ["new.safetensors", "old.safetensors"]


def test_a_symbolic_link_stays_one_and_leads_to_the_new_content(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link, dangling = tmp_path / "elsewhere" / "file", tmp_path / "link", tmp_path / "dangling"
    target.write_bytes(b"before")
    link.symlink_to(target)
    dangling.symlink_to(tmp_path / "elsewhere" / "new")
    for path in (link, dangling):
        write_file(path, b"after")
        assert path.is_symlink() and path.read_bytes() == b"after"
    assert names(tmp_path / "elsewhere") == ["file", "new"]
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    with pytest.raises(InputError, match="circle"):
        write_file(circle, b"after")


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="nobody reads"):
        write_file(pipe, b"after")
    read: list[bytes] = []

    def take() -> None:
        # Opened for both, so that it waits for no writer.
        with os.fdopen(handle, "rb") as file:
            read.append(file.read(len(data)))

    data = os.urandom(300_000)
    handle = os.open(pipe, os.O_RDWR)
    reader = threading.Thread(target=take)
    reader.start()
    write_file(pipe, data)
    reader.join(10)
    assert read == [data]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a device")
def test_a_device_is_written_to_and_stays_a_device(tmp_path: Path) -> None:
    device, block = tmp_path / "null", tmp_path / "block"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(block, stat.S_IFBLK | 0o600, os.makedev(7, 250))
    except OSError as error:
        pytest.skip(f"this machine lets nobody make devices: {error}")
    try:
        save_result(RESULT, device)
    except InputError as error:
        pytest.skip(f"devices may be made here, and not opened: {error}")
    assert stat.S_ISCHR(device.stat().st_mode)
    with pytest.raises(InputError, match="block device"):
        save_result(RESULT, block)
    assert names(tmp_path) == ["block", "null"]


def test_the_command_line_leaves_a_pipe_and_a_link_as_they_are(tmp_path: Path, minilm: identiscope.Model) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "target")
    for node, code in ((pipe, 1), (link, 0)):
        done = CliRunner().invoke(main, ["attention", "minilm", "The cat sat.", "--out", str(node)])
        assert done.exit_code == code
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink() and load_result(link).attrs["method"] == "attention_identifiability"


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def fill() -> None:
        with replacing(path) as aside:
            aside.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match="disk is full"):
        fill()
    assert path.read_bytes() == b"before"
    assert names(tmp_path) == ["file"]


def test_several_files_that_somebody_else_writes(tmp_path: Path, umask: int) -> None:
    """As a checkpoint is by transformers, in files that nobody else may read."""
    with filling(tmp_path) as aside:
        (aside / "inside").mkdir()
        for path in (aside / "one", aside / "inside" / "two"):
            path.touch(0o600)
        assert len(names(tmp_path)) == 1
    assert names(tmp_path) == ["inside", "one"]
    for path in (tmp_path / "one", tmp_path / "inside" / "two"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask

    def fill() -> None:
        with filling(tmp_path) as aside:
            (aside / "three").write_bytes(b"half")
            raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")

    with pytest.raises(InputError, match="disk is full"):
        fill()
    assert names(tmp_path) == ["inside", "one"]


def test_a_directory_that_was_not_there_is_whole_or_is_not_there(tmp_path: Path, umask: int) -> None:
    place = tmp_path / "on" / "the way" / "new"

    def fill(error: BaseException | None) -> None:
        with filling(place) as aside:
            (aside / "one").write_bytes(b"half")
            assert not place.exists()
            if error is not None:
                raise error

    for error in (OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), RuntimeError("a mistake")):
        with pytest.raises((InputError, KeyboardInterrupt, RuntimeError)):
            fill(error)
        assert names(tmp_path) == []
    (tmp_path / "on").mkdir()
    with pytest.raises(RuntimeError):
        fill(RuntimeError("a mistake"))
    assert names(tmp_path) == ["on"] and names(tmp_path / "on") == []
    fill(None)
    assert names(place.parent) == ["new"] and names(place) == ["one"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o777 & ~umask
    with pytest.raises(InputError, match="is a file; give a directory"), filling(place / "one"):
        pass
    with pytest.raises(InputError, match="is a file; give a directory"), filling(place / "one" / "inside"):
        pass
    assert names(place) == ["one"]


def test_what_is_no_matter_of_the_system_is_passed_on(tmp_path: Path) -> None:
    for error in (RuntimeError("a mistake"), ValueError("a mistake"), KeyboardInterrupt()):
        with pytest.raises(type(error)), saying(tmp_path):
            raise error


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        path = disk / "file"
        write_file(path, b"before")
        with pytest.raises(InputError, match="disk is full"):
            write_file(path, bytes(1_000_000))
        assert path.read_bytes() == b"before"
        assert names(disk) == ["file"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 300, "longer than the file system takes"),
        ("ä" * 200, "longer than the file system takes"),
        ("nowhere/file", "no directory"),
        ("file/inside", "is a file and no directory|no directory"),
        ("zero\0byte", "no name of a file"),
        ("directory", "is a directory"),
        ("lone\ud800", "no name of a file"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_beforehand(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    for function in (check_writable, lambda path: write_file(path, b"")):
        with pytest.raises(InputError, match=words) as raised:
            function(f"{tmp_path}/{name}")
        str(raised.value).encode("utf-8")
    assert names(tmp_path) == ["directory", "file"]


def test_a_name_in_bytes_that_are_no_utf8_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9")
    write_file(path, b"after")
    assert os.listdir(os.fsencode(tmp_path)) == [b"caf\xe9"]


def test_a_directory_is_not_made_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        make_directory(tmp_path / "file")
    with pytest.raises(InputError, match="no directory"):
        make_directory(tmp_path / "file" / "inside")
    assert make_directory(tmp_path / "one" / "two").is_dir()


def test_all_of_the_package_writes_in_this_way() -> None:
    """No other module opens a file to write it: what is listed has a reason."""
    root = Path(identiscope.__file__).parent
    writers = {"write_text", "write_bytes", "savefig", "print_png", "save_file", "to_csv", "to_parquet", "mkdir",
               "save_pretrained"}  # fmt: skip
    # Arrays that grow while a corpus is read, and are no cache before their manifest is there; shards, which are
    # directories and are renamed as a whole; pictures that stay in memory; savefig inside `replacing`; a
    # checkpoint and a rewritten model inside `filling`, whose own method is as that of transformers.
    reasons = {"files.py", "corpus/hidden_state_cache.py", "runs/format/shards.py",
               "views/page/plain.py", "views/plots/plotting.py", "papers/brunner2020/fine_tune.py",
               "capture/rewriting/rewriting.py", "commands/rewrite.py"}  # fmt: skip
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writers:
                found.add(str(path.relative_to(root)))
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "open":
                modes = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                found |= {str(path.relative_to(root))} if any(set(mode) & set("wax+") for mode in modes) else set()
    assert found == reasons


@pytest.mark.parametrize("folder", ["/proc/self/fd", "/dev/fd"])
def test_a_pipe_without_a_name_is_written_to(folder: str) -> None:
    """As a shell gives it for `--out >(cat)`: a link to `pipe:[NUMBER]`, which is no path."""
    if not Path(folder).is_dir():
        pytest.skip(f"this system has no {folder}")
    reads, writes = os.pipe()
    try:
        path = Path(folder) / str(writes)
        assert check_writable(path) == path
        write_file(path, b"all of it")
        assert os.read(reads, 100) == b"all of it"
    finally:
        os.close(reads)
        os.close(writes)


def test_a_pipe_without_a_name_whose_reader_has_gone_is_an_error() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        with pytest.raises(InputError, match=r"could not be written: (it is a pipe that nobody reads|whoever read)"):
            write_file(f"/proc/self/fd/{writes}", b"x")
    finally:
        os.close(writes)


def test_a_deleted_file_is_not_written_to_through_its_handle(tmp_path: Path) -> None:
    with (tmp_path / "gone").open("wb") as file:
        (tmp_path / "gone").unlink()
        write_file(f"/proc/self/fd/{file.fileno()}", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["gone (deleted)"]
