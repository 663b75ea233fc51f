"""The Ray engine on real clusters: the same bytes, whatever is killed; nobody is let in, nothing is left behind."""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from identiscope.errors import InputError
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.engines import ray as ray_engine
from identiscope.runs.engines import ray_cluster
from identiscope.runs.engines.ray_cluster import check_ray
from tiny_text_model import contents, save_tiny, words

pytestmark = pytest.mark.long

pytest.importorskip("ray", reason="the Ray engine is an extra: identiscope[ray]")

OPTIONS = RunOptions(shard_size=2, batch_size=2)
ENVIRONMENT = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
KEEPER = Path(__file__).with_name("ray_cluster_keeper.py")

# In a process of its own: Ray starts threads and children that outlive a test. What is killed is a descendant of it.
DRIVER = """
import json, os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
sys.path.append(sys.argv[4])
from runs.test_ray import below, command, listening
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.compute.options import RunOptions

model, corpus, out = sys.argv[1:4]
seen = []

def look(done, total):
    if done and not seen:
        # A shard has arrived: once both workers are there, kill one in the middle of the others.
        workers = []
        while len(workers) < 2:
            time.sleep(0.1)
            workers = [number for number in below(os.getpid()) if command(number).startswith("ray::ShardActor")]
        seen.append({"places": sorted(listening(below(os.getpid()))), "workers": workers})
        os.kill(workers[0], signal.SIGKILL)

run_corpus(model, corpus, out, options=RunOptions(shard_size=2, batch_size=2), engine="ray", workers=2, progress=look)
print(json.dumps(seen[0]))
"""


def command(process: int) -> str:
    """The command line of a process; empty if there is none."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def below(process: int) -> list[int]:
    """A process and all that it started, and they."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def listening(processes: list[int]) -> set[str]:
    """The addresses, in hexadecimal as the system shows them, at which processes listen."""
    sockets: set[str] = set()
    for process in processes:
        try:
            handles = list(Path(f"/proc/{process}/fd").iterdir())
        except OSError:
            continue
        for handle in handles:
            try:
                sockets.add(os.readlink(handle))
            except OSError:
                continue
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, place, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                found.add(place.partition(":")[0])
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    base = tmp_path_factory.mktemp("ray")
    corpus = base / "texts.txt"
    corpus.write_text("\n".join(words(4 + number % 7, number) for number in range(60)) + "\n", encoding="utf-8")
    return save_tiny(base / "model"), corpus, base


@pytest.fixture(scope="module")
def expected(prepared: tuple[Path, Path, Path]) -> dict[str, bytes]:
    model, corpus, base = prepared
    return contents(run_corpus(str(model), corpus, base / "local", options=OPTIONS).directory)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, since sockets are in it."""
    made = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def gone(here: Callable[[], object]) -> bool:
    """Whether something is gone after a while; Ray's own agents take some time to see that all is over."""
    for _ in range(600):
        if not here():
            return True
        time.sleep(0.1)
    return False


def mentioning(folder: Path) -> list[str]:
    """The processes in whose command line a folder is."""
    numbers = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    return [found for found in map(command, numbers) if str(folder) in found]


def test_two_workers_of_this_machine_though_one_is_killed(
    prepared: tuple[Path, Path, Path], expected: dict[str, bytes], folder: Path
) -> None:
    model, corpus, base = prepared
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(model), str(corpus), str(base / "ray"), str(Path(__file__).parents[1])],
        capture_output=True, text=True, check=False, timeout=900, env=ENVIRONMENT | {"TMPDIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert len(seen["workers"]) == 2 and contents(base / "ray") == expected
    # 127.0.0.1, or the same as IPv6 has it: nobody outside this machine is let in.
    assert seen["places"] and set(seen["places"]) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert gone(lambda: mentioning(folder)) and list(folder.iterdir()) == []


class Keeper:
    """A cluster in a process of its own."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(KEEPER), str(nodes), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT,
        )  # fmt: skip
        self.address, self.client = self._answer().split()

    def ask(self, what: str) -> None:
        """Have something done, and wait for it."""
        assert self.process.stdin is not None
        print(what, file=self.process.stdin, flush=True)
        assert self._answer().split()[0] == "done"

    def actors(self) -> list[str]:
        """Workers of ours on the cluster."""
        return [said for said in map(command, below(self.process.pid)) if said.startswith("ray::ShardActor")]

    def end(self) -> None:
        """All is over."""
        self.process.communicate(timeout=300)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the cluster did not start, or ended by itself"
        return line


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    made = Keeper(folder, 2)
    try:
        yield made
    finally:
        made.end()
        assert gone(lambda: mentioning(folder))
        shutil.rmtree(folder, ignore_errors=True)


def command_line(
    prepared: tuple[Path, Path, Path],
    out: str,
    address: str,
    meanwhile: Callable[[], object] | None = None,
    workers: int = 1,
) -> tuple[int, str]:
    """`identiscope run` on a cluster, and something done meanwhile, once two shards are there; how it ended.

    A worker imports torch, which is most of what it costs: there are several where it matters.
    """
    model, corpus, base = prepared
    asked = [
        sys.executable, "-m", "identiscope", "run", str(model), str(corpus), "-o", str(base / out), "--json",
        "--shard-size", "2", "--batch-size", "2", "--engine", "ray", "--workers", str(workers), "--address", address,
    ]  # fmt: skip
    with (
        ThreadPoolExecutor(1) as reader,
        subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as driver,
    ):
        assert driver.stdout is not None and driver.stderr is not None
        said = reader.submit(driver.stderr.read)
        for line in driver.stdout:
            if meanwhile is not None and json.loads(line).get("texts", 0) >= 4:
                # It stands still meanwhile: most is left to be done on what is there then.
                driver.send_signal(signal.SIGSTOP)
                try:
                    assert not (base / out / "seal.json").exists()
                    meanwhile()
                finally:
                    driver.send_signal(signal.SIGCONT)
                meanwhile = None
        return driver.wait(timeout=900), said.result()


def test_a_node_is_killed_and_another_joins(
    prepared: tuple[Path, Path, Path], expected: dict[str, bytes], keeper: Keeper
) -> None:
    def change() -> None:
        keeper.ask("kill")
        keeper.ask("add")

    # One for each CPU of the cluster, and so one on the node that is killed.
    code, said = command_line(prepared, "killed", keeper.address, change, workers=3)
    assert (code, said) == (0, "")
    assert contents(prepared[2] / "killed") == expected and gone(keeper.actors)


def test_through_the_client(prepared: tuple[Path, Path, Path], expected: dict[str, bytes], keeper: Keeper) -> None:
    assert command_line(prepared, "client", keeper.client, workers=2) == (0, "")
    assert contents(prepared[2] / "client") == expected and gone(keeper.actors)


def test_the_head_is_started_anew(
    prepared: tuple[Path, Path, Path], expected: dict[str, bytes], keeper: Keeper
) -> None:
    code, said = command_line(prepared, "anew", keeper.address, lambda: keeper.ask("restart"))
    assert code == 2 and said.startswith("error: the Ray cluster at ") and "the same command goes on" in said
    assert len(said.splitlines()) == 1, said
    assert command_line(prepared, "anew", keeper.address) == (0, "")
    assert contents(prepared[2] / "anew") == expected and gone(keeper.actors)


def test_the_head_is_started_anew_behind_the_client(
    prepared: tuple[Path, Path, Path], expected: dict[str, bytes], keeper: Keeper
) -> None:
    code, said = command_line(prepared, "client-anew", keeper.client, lambda: keeper.ask("restart"))
    assert code == 2 and said.startswith(f"error: the Ray cluster at {keeper.client} "), said
    assert "the same command goes on" in said and len(said.splitlines()) == 1, said
    assert command_line(prepared, "client-anew", keeper.client) == (0, "")
    assert contents(prepared[2] / "client-anew") == expected and gone(keeper.actors)


@pytest.mark.parametrize(
    "address", ["nonsense", "", "ray://", "host:", ":6379", "host:0", "host:99999", "a b:1", "h:x"]
)
def test_addresses_that_cannot_be(prepared: tuple[Path, Path, Path], address: str) -> None:
    model, corpus, base = prepared
    with pytest.raises(InputError, match=r"expected auto .*, HOST:PORT, or ray://HOST:PORT"):
        run_corpus(str(model), corpus, base / "nowhere", engine="ray", address=address)
    assert not (base / "nowhere").exists()


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def foreign() -> Iterator[int]:
    """The port of a server of gRPC that is not Ray."""
    grpc = pytest.importorskip("grpc")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


@pytest.mark.parametrize("start", ["", "ray://"])
def test_where_no_cluster_is(start: str, silent: int, foreign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "PATIENCE", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for place in (f"127.0.0.1:{port}", f"127.0.0.1:{silent}", f"127.0.0.1:{foreign}", "no-such-host.invalid:6379"):
        with pytest.raises(InputError, match=f"no Ray cluster answers at {start}{place}"):
            check_ray(start + place)


def test_the_client_is_an_extra(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(InputError, match=r"identiscope\[ray\]"):
        check_ray(f"ray://127.0.0.1:{silent}")


def test_folders_of_killed_runs_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    names = ("identiscope-ray-abcdefgh", "identiscope-ray-locked00", "identiscope-ray-new00000", "identiscope-ray-mine")
    for name in names:
        (folder / name / "session").mkdir(parents=True)
        if "new" not in name:
            os.utime(folder / name, (1, 1))
    os.symlink(folder / "identiscope-ray-mine", folder / "identiscope-ray-link0000")
    lock = ray_cluster._lock(str(folder / names[1]))
    assert lock is not None
    try:
        ray_cluster._remove_left()
    finally:
        os.close(lock)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names[1:], "identiscope-ray-link0000"])


def test_long_names_of_temporary_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 80)
    assert ray_cluster._temporary() == "/tmp"


def test_a_head_that_is_gone_is_seen_while_its_workers_go_on(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would end the program, without a word of what is left, when it finds out after a minute."""
    now = [0.0]
    monkeypatch.setattr(ray_cluster, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    monkeypatch.setattr(ray_cluster, "_cluster_id", lambda _: "the same")
    monkeypatch.setattr(ray_cluster, "PATIENCE", -1.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    well, gone = ray_cluster.Health(f"127.0.0.1:{silent}"), ray_cluster.Health(f"127.0.0.1:{port}")
    gone.look()
    assert not gone.lost, "not every time: it takes some"
    now[0] += 11.0
    well.look()
    with pytest.raises(ray_cluster.LostCluster, match=r"does not answer any more.*the same command goes on"):
        gone.look()
    assert gone.lost and not well.lost


def test_what_grpc_says_of_a_lost_head_is_said_in_our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's client lets it through as it is when the head was started anew."""
    grpc = pytest.importorskip("grpc")

    class Inactive(grpc.RpcError):  # type: ignore[misc, name-defined]
        def details(self) -> str:
            return "Failed to serialize response!\nand more"

    def fails(*_: object, **__: object) -> None:
        raise Inactive

    actor = SimpleNamespace(load=SimpleNamespace(remote=lambda: "asked"))
    stand_in = SimpleNamespace(
        remote=lambda **_: lambda _: SimpleNamespace(remote=lambda _: actor), wait=fails, is_initialized=lambda: True,
        kill=fails, exceptions=SimpleNamespace(RayTaskError=ZeroDivisionError, RayError=ZeroDivisionError),
    )  # fmt: skip
    monkeypatch.setattr(ray_engine, "import_ray", lambda: stand_in)
    work = SimpleNamespace(manifest={"model": {}})
    health = ray_cluster.Health(None)
    tasks = iter([SimpleNamespace(number=0)])
    with pytest.raises(ray_cluster.LostCluster, match=r"started anew \(Failed to serialize response!\).*same command"):
        list(ray_engine._results(work, tasks, 1, health))  # type: ignore[arg-type]
    assert health.lost


def test_threads_of_rays_client_are_silent_when_a_cluster_was_lost() -> None:
    client = logging.getLogger("ray.util.client")
    before = client.level
    try:
        with ray_cluster._quiet():
            assert not logging.getLogger("ray.util.client.dataclient").isEnabledFor(logging.ERROR)
        assert client.level == before
        with pytest.raises(ray_cluster.LostCluster), ray_cluster._quiet():
            ray_cluster.Health(None).give_up("is gone")
        for name in ("dataclient", "logsclient"):
            assert not logging.getLogger(f"ray.util.client.{name}").isEnabledFor(logging.ERROR)
    finally:
        client.setLevel(before)
        logging.getLogger("ray.util.client.logsclient").disabled = False
