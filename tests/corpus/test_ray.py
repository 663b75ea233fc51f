"""The Ray engine on a real cluster of two workers on this machine: the same bytes, also when a worker is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from identiscope.corpus.engines.ray import _waves
from identiscope.corpus.readers import Text
from identiscope.corpus.run import run_corpus
from identiscope.corpus.run_options import RunOptions
from identiscope.corpus.run_shard import ShardTask
from identiscope.errors import InputError
from tiny_text_model import contents, save_tiny, words

pytest.importorskip("ray", reason="the Ray engine is an extra: identiscope[ray]")

# In a process of its own: Ray starts threads and children that outlive a test.
DRIVER = """
import os, signal, sys, threading, time
from pathlib import Path
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error", object_store_memory=10**8)
from identiscope.corpus.run import run_corpus
from identiscope.corpus.run_options import RunOptions

model, corpus, base = sys.argv[1], sys.argv[2], Path(sys.argv[3])
options = RunOptions(shard_size=2, batch_size=2)
arrived = threading.Event()

def parent(number):
    return int(Path(f"/proc/{number}/status").read_text().split("PPid:")[1].split()[0])

def is_ours(number):
    while number > 1:
        number = parent(number)
        if number == os.getpid():
            return True
    return False

def workers():
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().startswith(b"ray::MapWorker") and is_ours(int(entry.name)):
                    yield int(entry.name)
            except OSError:
                pass

def killer():
    # A shard has arrived, so both workers have their models: kill one of ours in the middle of the others.
    arrived.wait(120)
    for number in sorted(workers()):
        os.kill(number, signal.SIGKILL)
        print("killed", number, flush=True)
        break

thread = threading.Thread(target=killer, daemon=True)
thread.start()
run_corpus(model, corpus, base / "ray", options=options, engine="ray", workers=2, progress=lambda _: arrived.set())
thread.join()
ray.shutdown()
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    base = tmp_path_factory.mktemp("ray")
    corpus = base / "texts.txt"
    corpus.write_text("\n".join(words(4 + number % 7, number) for number in range(60)) + "\n", encoding="utf-8")
    return save_tiny(base / "model"), corpus, base


def test_two_workers_give_the_same_bytes_though_one_is_killed(prepared: tuple[Path, Path, Path]) -> None:
    model, corpus, base = prepared
    local = run_corpus(str(model), corpus, base / "local", options=RunOptions(shard_size=2, batch_size=2))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(model), str(corpus), str(base)], capture_output=True, text=True,
        check=False, timeout=300, env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "killed" in done.stdout
    assert contents(base / "ray") == contents(local.directory)


def test_no_cluster_at_an_address(prepared: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def refused(**_: object) -> None:
        raise ConnectionError("ray.init could not connect")

    monkeypatch.setattr(ray, "init", refused)
    model, corpus, base = prepared
    with pytest.raises(InputError, match="no Ray cluster answers at nowhere:1"):
        run_corpus(str(model), corpus, base / "nowhere", engine="ray", address="nowhere:1")


def test_waves_hold_no_more_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("identiscope.corpus.engines.ray.WAVE_BYTES", 10)
    tasks = [ShardTask(number, number, (Text(("12345",)),)) for number in range(5)]
    assert [[task.number for task in wave] for wave in _waves(iter(tasks))] == [[0, 1], [2, 3], [4]]
