"""Bind, print nothing, serve until told to stop; close connections that only hold on."""

import asyncio
import socket
import time
from contextlib import suppress
from typing import Any

import uvicorn

from identiscope.errors import InputError
from identiscope.views.server.jobs import Jobs
from identiscope.views.server.security import Application

#: Seconds that a connection may wait before its request is there, and an answer before it is taken.
SLOWEST_REQUEST, SLOWEST_ANSWER = 15.0, 120.0

#: Connections at a time; beyond them the answer is 503.
CONNECTIONS = 256

#: Seconds that computations have to stop in at the end.
LAST_SECONDS = 3.0


def bind(host: str, port: int) -> socket.socket:
    """A socket with its address, which will listen when it is served; or an error that says what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise InputError(
            f"port {port} of {host} cannot be had ({error}): another server may have it. Give another with --port, or"
            " --port 0 for any that is free."
        ) from error
    return made


def run_server(app: Application, listening: socket.socket, jobs: Jobs) -> bool:
    """Serve until Ctrl-C; whether every computation has ended, too."""
    # uvicorn closes everything at Ctrl-C, and then passes it on.
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(make_server(app), listening, jobs))
    return jobs.end(LAST_SECONDS)


def make_server(app: Application) -> uvicorn.Server:
    """A quiet server that trusts no header of a proxy."""
    options: dict[str, Any] = {"http": "h11", "ws": "none", "lifespan": "off", "proxy_headers": False}
    quiet: dict[str, Any] = {"log_level": "critical", "access_log": False, "server_header": False}
    limits: dict[str, Any] = {
        "limit_concurrency": CONNECTIONS,
        "timeout_keep_alive": 10,
        "timeout_graceful_shutdown": 2,
    }
    return uvicorn.Server(uvicorn.Config(app, **options, **quiet, **limits))


async def serve(server: uvicorn.Server, listening: socket.socket, jobs: Jobs) -> None:
    """Serve until the server is told to stop, then stop what is being computed."""
    watching = asyncio.create_task(_watch(server, jobs))
    try:
        await server.serve(sockets=[listening])
    finally:
        watching.cancel()
        jobs.cancel_all()


async def _watch(server: uvicorn.Server, jobs: Jobs) -> None:
    """Close connections that send no whole request (slow loris); end all streams once the server is to stop."""
    since: dict[tuple[Any, Any], float] = {}
    while True:
        await asyncio.sleep(0.25)
        if server.should_exit:
            jobs.cancel_all()
        now = time.monotonic()
        # By connection and last request, so that one that goes on asking is not taken for one that waits.
        idle = [(one, getattr(one, "cycle", None)) for one in server.server_state.connections if _idle(one)]
        since = {place: since.get(place, now) for place in idle}
        for (one, _), began in since.items():
            if now - began > SLOWEST_ANSWER:
                one.transport.abort()
            elif now - began > SLOWEST_REQUEST:
                # What is still to be sent is sent first.
                one.transport.close()


def _idle(connection: Any) -> bool:
    """Whether no request is being answered: none has come, or its answer is complete."""
    cycle = getattr(connection, "cycle", None)
    return cycle is None or bool(cycle.response_complete)
