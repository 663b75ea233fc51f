"""`identiscope serve` as a process: it prints its address, answers, stops at Ctrl-C; and says what is wrong."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tiny_text_model import save_tiny, words

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from identiscope.commands.serve import serve
from identiscope.errors import InputError

CODE = "from identiscope.commands.serve import serve; serve()"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


@contextmanager
def process(*arguments: Any) -> Iterator[tuple[Any, str]]:
    command = [sys.executable, "-u", "-c", CODE, *map(str, arguments), "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert running.stdout is not None
        yield running, running.stdout.readline()
    finally:
        running.kill()
        running.communicate()


def ask(address: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=30)
    sent = None if body is None else json.dumps(body)
    connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_it_serves_and_stops_at_control_c(tiny: Path) -> None:
    with process(tiny, tiny) as (running, line):
        found = re.fullmatch(r"serving on http://(127\.0\.0\.1:\d+)/  \(Ctrl-C stops\)\n", line)
        assert found, line + running.stderr.read()
        address = found.group(1)
        status, body = ask(address, "POST", "/api/pages", {"model": 1, "text": words(20)})
        assert status == 200 and b"event: done" in body
        # Another, which is being computed as the server is stopped.
        connection = http.client.HTTPConnection(address, timeout=30)
        long = {"model": 0, "text": words(40), "methods": ["verdict", "canonical", "attribution"], "directions": 64}
        connection.request("POST", "/api/pages", json.dumps(long), {"Content-Type": "application/json"})
        connection.getresponse().readline()
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=20)
        connection.close()
        assert (running.returncode, out, err) == (0, "stopped\n", "")
        assert time.monotonic() - began < 15


def test_beyond_the_loopback_a_token_is_made(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("identiscope.views.server.application.make_app", lambda served, rules: given.append(rules))

    def stop(app: Any, listening: socket.socket, jobs: Any) -> bool:
        listening.close()
        return True

    monkeypatch.setattr("identiscope.views.server.running.run_server", stop)
    for host in ("0.0.0.0", "127.0.0.1"):
        done = CliRunner().invoke(serve, [str(tiny), "--host", host, "--port", "0", "--allow-name", "Box.lan"])
        assert done.exit_code == 0, done.output
        rules = given.pop()
        token = re.search(r"serving on http://127\.0\.0\.1:\d+/\?token=([\w-]{32,})  ", done.output)
        if host == "0.0.0.0":
            assert token and rules.token == token.group(1) and rules.any_address and "tunnel" in done.output
        else:
            assert token is None and rules.token is None and not rules.any_address
        assert {"localhost", "127.0.0.1", "box.lan", host} <= rules.names


def test_a_port_that_is_taken_is_told_before_a_model_is_read(tiny: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = CliRunner().invoke(serve, ["no-such-model", "--port", str(taken.getsockname()[1])])
    assert isinstance(done.exception, InputError) and "--port 0" in str(done.exception)


def test_a_token_that_can_be_guessed_is_refused(tiny: Path) -> None:
    done = CliRunner().invoke(serve, [str(tiny), "--token", "secret"])
    assert done.exit_code == 2 and "16 or more" in done.output


def test_without_the_extra_it_says_what_to_install(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "identiscope.views.server.running", None)
    for name in ("uvicorn", "starlette"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "identiscope.views.server.running")
    done = CliRunner().invoke(serve, [str(tiny)])
    assert isinstance(done.exception, InputError) and 'pip install "identiscope[serve]"' in str(done.exception)
