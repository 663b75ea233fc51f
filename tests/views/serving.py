"""A real server on a free port, in a thread; and a client that says just what it is told to."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from identiscope.views.server.application import Served, make_app
from identiscope.views.server.running import bind, make_server, serve
from identiscope.views.server.security import Rules

TOKEN = "0123456789abcdefXYZ"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    """Speaks to a server; `events` reads the stream of a computation."""

    port: int
    served: Served

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            given = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(sent))}
            given |= {"Content-Type": "application/json"} if body is not None else {}
            for name, value in (given | {name.replace("_", "-"): value for name, value in headers.items()}).items():
                connection.putheader(name, value)
            connection.endheaders(sent)
            found = connection.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, self._read(found))
        finally:
            connection.close()

    @staticmethod
    def _read(found: http.client.HTTPResponse) -> bytes:
        return found.read()

    @contextmanager
    def computing(self, question: Any, path: str = "/api/pages", client: str = "") -> Iterator[Iterator[Any]]:
        """The events of a computation as they come; leaving the block before they end is hanging up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/json", "X-Identiscope-Client": client}
        connection.request("POST", path, json.dumps(question), headers)
        found = connection.getresponse()
        assert found.status == 200, found.read()
        try:
            yield read_events(found)
        finally:
            # The response holds the connection, too.
            found.close()
            connection.close()

    def compute(self, question: Any, path: str = "/api/pages", client: str = "") -> list[Any]:
        with self.computing(question, path, client) as events:
            return list(events)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


def read_events(stream: Any) -> Iterator[Any]:
    name = ""
    for line in stream:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text[7:]
        elif text.startswith("data: "):
            yield name, json.loads(text[6:])


@contextmanager
def serving(served: Served, rules: Rules | None = None) -> Iterator[Client]:
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    server = make_server(make_app(served, rules))
    thread = threading.Thread(target=lambda: asyncio.run(serve(server, listening, served.jobs)))
    thread.start()
    try:
        until(lambda: server.started)
        yield Client(port, served)
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the server did not stop"
        assert served.jobs.end(5), "a computation did not stop"


def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)
