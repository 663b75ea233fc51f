"""The viewer, live: a text goes in, pages come out. Needs `pip install "identiscope[serve]"`.

What is computed is given from outside (`compute`), with the names of the models; nothing that comes over the network is
ever a path, a file or the name of a model. docs/serve.md has the addresses and what each answers.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from identiscope.errors import InputError
from identiscope.views.page.data import Page
from identiscope.views.page.report import header_json
from identiscope.views.server.jobs import Full, Job, Jobs
from identiscope.views.server.questions import (
    DIRECTIONS,
    Compute,
    Question,
    ServedModel,
    choices,
    read_more,
    read_question,
)
from identiscope.views.server.security import Application, Rules, guarded

#: Bytes of a request.
LONGEST_BODY = 256 * 1024

#: Seconds that a request may take to arrive.
SLOWEST_BODY = 10.0

#: Seconds between signs of life in an answer that takes long; a client that has gone is noticed by them.
PULSE = 5.0

KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


@dataclass(frozen=True)
class Served:
    """What a server was started with: models in order, what computes, a page on a corpus run, and its limits."""

    models: Sequence[ServedModel]
    compute: Compute
    run: Page | None = None
    sample: str = ""
    longest_text: int = 20_000
    jobs: Jobs = field(default_factory=Jobs)


@dataclass(frozen=True, eq=False)
class Kept:
    """A page, and the question it answers."""

    page: Page
    question: Question | None

    @property
    def size(self) -> int:
        """Bytes of its chunks."""
        return sum(map(len, self.page.chunks.values()))


class Pages:
    """The pages made last, by name; the oldest go when there are too many or they are too large."""

    def __init__(self, most: int = 64, most_bytes: int = 512 * 2**20) -> None:
        self.limits = (most, most_bytes)
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def keep(self, name: str, kept: Kept) -> None:
        """Keep a page, and let go of others if there is need."""
        self._kept[name] = kept
        most, most_bytes = self.limits
        while len(self._kept) > 1 and (
            len(self._kept) > most or sum(one.size for one in self._kept.values()) > most_bytes
        ):
            self._kept.popitem(last=False)

    def get(self, name: str) -> Kept:
        """A page that is kept; one that was looked at stays longer."""
        if name not in self._kept:
            raise HTTPException(404, "there is no such page, or it has been let go of; compute it again.")
        self._kept.move_to_end(name)
        return self._kept[name]


def make_app(served: Served, rules: Rules | None = None) -> Application:
    """The server as an ASGI application."""
    pages = Pages()
    given: dict[str, Any] = {"served": served, "pages": pages}
    bound: dict[tuple[str, str], Callable[..., Any]] = {
        ("GET", "/"): shell,
        ("GET", "/static/{name}"): asset,
        ("GET", "/api/site"): partial(site, **given),
        ("GET", "/api/run"): partial(run_header, **given),
        ("GET", "/api/run/chunks/{chunk}"): partial(run_chunk, **given),
        ("POST", "/api/pages"): partial(ask, **given),
        ("POST", "/api/pages/{page}/more"): partial(ask_more, **given),
        ("GET", "/api/pages/{page}"): partial(page_header, **given),
        ("GET", "/api/pages/{page}/question"): partial(page_question, **given),
        ("GET", "/api/pages/{page}/chunks/{chunk}"): partial(page_chunk, **given),
        ("DELETE", "/api/jobs/{job}"): partial(cancel, **given),
    }
    routes = [Route(path, endpoint, methods=[method]) for (method, path), endpoint in bound.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _as_json, InputError: _refused, Full: _full})
    return guarded(app, rules or Rules())


@cache
def assets() -> dict[str, bytes]:
    """The files that may be asked for, all of them; a name that is not here is not looked for anywhere."""
    folder = files("identiscope.views") / "static"
    return {
        one.name: one.read_bytes() for one in folder.iterdir() if one.is_file() and one.name.endswith((".js", ".css"))
    }


@cache
def _shell() -> bytes:
    return (files("identiscope.views") / "static" / "serve.html").read_bytes()


async def shell(request: Request) -> Response:
    """The page that asks and shows."""
    return Response(_shell(), media_type="text/html")


async def asset(request: Request) -> Response:
    """A script or a style."""
    name = request.path_params["name"]
    content = assets().get(name)
    if content is None:
        raise HTTPException(404, "there is no such file.")
    return Response(
        content, headers={"content-type": KINDS["." + name.rpartition(".")[2]], "cache-control": "no-cache"}
    )


async def site(request: Request, *, served: Served, pages: Pages) -> Response:
    """What there is: models by number, what can be asked for, a run, limits."""
    return JSONResponse(
        {
            "models": [{"name": model.name, "target": model.target, "where": model.where} for model in served.models],
            "methods": [asdict(one) for one in choices()],
            "run": served.run is not None,
            "sample": served.sample,
            "longest_text": served.longest_text,
            "directions": list(DIRECTIONS),
        }
    )


async def run_header(request: Request, *, served: Served, pages: Pages) -> Response:
    """The page on the corpus run."""
    return _header(_run_of(served))


async def run_chunk(request: Request, *, served: Served, pages: Pages) -> Response:
    """Numbers of the page on the corpus run."""
    return _chunk(_run_of(served), request.path_params["chunk"])


async def page_header(request: Request, *, served: Served, pages: Pages) -> Response:
    """The header of a page."""
    return _header(pages.get(request.path_params["page"]).page)


async def page_question(request: Request, *, served: Served, pages: Pages) -> Response:
    """What a page was made for: for whoever opens its address again."""
    asked = pages.get(request.path_params["page"]).question
    assert asked is not None
    told = ("model", "text", "target", "attention", "outcome")
    return JSONResponse({name: getattr(asked, name) for name in told})


async def page_chunk(request: Request, *, served: Served, pages: Pages) -> Response:
    """Numbers of a page."""
    return _chunk(pages.get(request.path_params["page"]).page, request.path_params["chunk"])


async def ask(request: Request, *, served: Served, pages: Pages) -> Response:
    """Compute a page on a text; the answer is a stream of events, and ends the work when it is not read any more."""
    question = read_question(await _body(request), len(served.models), served.longest_text)
    return _computing(request, question, served, pages)


async def ask_more(request: Request, *, served: Served, pages: Pages) -> Response:
    """Compute more for a page: a new page, beside the old one."""
    kept = pages.get(request.path_params["page"])
    assert kept.question is not None
    question = read_more(await _body(request), kept.question, kept.page)
    return _computing(request, question, served, pages)


async def cancel(request: Request, *, served: Served, pages: Pages) -> Response:
    """Stop a computation."""
    job = served.jobs.find(request.path_params["job"])
    if job is None:
        raise HTTPException(404, "there is no such computation, or it is over.")
    served.jobs.cancel(job)
    return Response(status_code=204)


def _computing(request: Request, question: Question, served: Served, pages: Pages) -> Response:
    job = served.jobs.submit(_client(request), partial(served.compute, question))
    # A page keeps its question, and not the page before it.
    about = Question(question.model, question.text, question.target, question.attention, outcome=question.outcome)
    events = _events(job, about, served.jobs, pages)
    return StreamingResponse(events, media_type="text/event-stream")


async def _events(job: Job, question: Question, jobs: Jobs, pages: Pages) -> AsyncIterator[bytes]:
    job.watched = True
    try:
        yield _event("job", {"job": job.id})
        while not job.over:
            job.changed.clear()
            what, done, total = job.progress
            place = jobs.before(job)
            yield _event("progress", {"state": job.state, "before": place, "what": what, "done": done, "total": total})
            try:
                await asyncio.wait_for(job.changed.wait(), PULSE)
            except TimeoutError:
                yield b": still here\n\n"
        if job.page is not None:
            pages.keep(job.id, Kept(job.page, question))
            yield _event("done", {"page": job.id})
        else:
            yield _event(job.state, {"error": job.trouble})
    finally:
        jobs.cancel(job, "nobody waits for it any more")


def _event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _client(request: Request) -> str:
    """Who asks, for turns to be fair: the address, and the tab's own word."""
    address = request.client.host if request.client else ""
    return f"{address} {request.headers.get('x-identiscope-client', '')[:40]}"


async def _body(request: Request) -> Any:
    """The parsed JSON of a request, of limited length and in limited time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Forms and plain text may be sent by any site's page without asking first; this may not.
        raise HTTPException(415, "send application/json.")
    parts, size = [], 0
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            if int(request.headers.get("content-length", "0")) > LONGEST_BODY:
                raise _too_long()
            async for part in request.stream():
                size += len(part)
                if size > LONGEST_BODY:
                    raise _too_long()
                parts.append(part)
    except TimeoutError as error:
        raise HTTPException(408, "the request took too long to arrive.", {"connection": "close"}) from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the request ended early.") from error
    try:
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise HTTPException(422, "that is not JSON.") from error


def _too_long() -> HTTPException:
    said = f"at most {LONGEST_BODY} bytes are taken; send a shorter text."
    return HTTPException(413, said, {"connection": "close"})


def _run_of(served: Served) -> Page:
    if served.run is None:
        raise HTTPException(404, "this server was started without --run.")
    return served.run


def _header(page: Page) -> Response:
    return Response(header_json(page), media_type="application/json")


def _chunk(page: Page, name: str) -> Response:
    if name not in page.chunks:
        raise HTTPException(404, "this page has no such numbers.")
    # The viewer unpacks it; a browser that did so on the way would leave it nothing to unpack.
    return Response(page.chunks[name], media_type="application/octet-stream")


async def _as_json(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 422)


async def _full(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 503, {"retry-after": "5"})
