"""The server answers who may ask, refuses who may not, and goes on for all others whatever one of them does."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("starlette", reason="the extra serve is not installed")
from starlette.exceptions import HTTPException

from identiscope.errors import InputError
from identiscope.progress import Progress, tell
from identiscope.views.page.data import Page, empty_page
from identiscope.views.server import application as server_module
from identiscope.views.server import jobs as server_jobs
from identiscope.views.server import running as server_running
from identiscope.views.server.application import Kept, Pages, Served
from identiscope.views.server.jobs import Jobs
from identiscope.views.server.questions import Question, ServedModel
from identiscope.views.server.running import bind
from identiscope.views.server.security import HEADERS, Rules, host_name, is_loopback
from views.serving import TOKEN, Answer, Client, serving, until

BIG = 32 * 2**20
ASKED = {"model": 0, "text": "some words"}


def compute(question: Question, progress: Progress) -> Page:
    """What a text says is done."""
    word = question.text.partition(" ")[0]
    if word == "slow":
        for step in range(200):
            tell(progress, "slowly", step, 200)
            time.sleep(0.05)
    if word == "stuck":
        for _ in range(3000):
            time.sleep(0.01)
    if word == "stubborn":
        for _ in range(3000):
            try:
                time.sleep(0.01)
            except Exception:
                continue
    if word == "short":
        time.sleep(0.05)
    if word == "refuse":
        raise InputError("this text is refused.")
    if word == "fail":
        raise ValueError("a secret path")
    if question.base is not None:
        return question.base.having({"more": b"2"}, title=f"{question.base.header['title']} and more")
    return empty_page(f"{question.model} {question.text}").having({"layer-0": b"1" * (BIG if word == "big" else 10)})


def served(**limits: Any) -> Served:
    return Served([ServedModel("one"), ServedModel("two")], compute, longest_text=1000, jobs=Jobs(**limits))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(served()) as found:
        yield found


@pytest.fixture(scope="module")
def locked() -> Iterator[Client]:
    with serving(served(), Rules(token=TOKEN, any_address=True)) as found:
        yield found


def refused(answer: Answer, status: int) -> str:
    assert answer.status == status, answer.body
    return str(answer.json["error"])


# What it answers.


def test_the_page_its_parts_and_what_there_is(client: Client) -> None:
    page = client.ask("GET", "/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    for name, kind in (("serve.js", "text/javascript"), ("viewer.js", "text/javascript"), ("viewer.css", "text/css")):
        assert f"/static/{name}".encode() in page.body or name == "viewer.js"
        assert client.ask("GET", f"/static/{name}").headers["content-type"].startswith(kind)
    site = client.ask("GET", "/api/site").json
    assert [model["name"] for model in site["models"]] == ["one", "two"] and site["run"] is False


@pytest.mark.parametrize("path", ["/", "/static/serve.js", "/api/site", "/nothing", "/api/pages/none"])
def test_every_answer_has_safe_headers(client: Client, path: str) -> None:
    found = client.ask("GET", path).headers
    assert {name: found[name] for name in HEADERS if name != "cache-control"} == {
        name: value for name, value in HEADERS.items() if name != "cache-control"
    }
    assert "'unsafe" not in found["content-security-policy"] and "server" not in found


def test_a_text_becomes_a_page_and_more_is_added(client: Client) -> None:
    events = client.compute(ASKED)
    names = [name for name, _ in events]
    assert names[0] == "job" and names[-1] == "done" and set(names[1:-1]) <= {"progress"}
    name = events[-1][1]["page"]
    header = client.ask("GET", f"/api/pages/{name}").json
    assert header["title"] == "0 some words"
    assert client.ask("GET", f"/api/pages/{name}/chunks/layer-0").body == b"1" * 10
    more = client.compute({"canonical": [[0, 1]]}, f"/api/pages/{name}/more")[-1][1]["page"]
    assert client.ask("GET", f"/api/pages/{more}").json["title"] == "0 some words and more"
    assert client.ask("GET", f"/api/pages/{more}/chunks/more").body == b"2"
    # The page it came from is as it was.
    assert client.ask("GET", f"/api/pages/{name}/chunks/more").status == 404


def test_the_second_model_is_asked_by_its_number(client: Client) -> None:
    name = client.compute({"model": 1, "text": "x", "methods": ["attribution"], "directions": 4})[-1][1]["page"]
    assert client.ask("GET", f"/api/pages/{name}").json["title"] == "1 x"


def test_trouble_is_told_but_not_its_insides(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    assert client.compute({"model": 0, "text": "refuse"})[-1] == ("failed", {"error": "this text is refused."})
    name, said = client.compute({"model": 0, "text": "fail"})[-1]
    assert name == "failed" and "ValueError" in said["error"] and "secret" not in said["error"]
    assert "a secret path" in capfd.readouterr().err


def test_the_run_it_was_started_with() -> None:
    page = empty_page("corpus").having({"means": b"3"})
    with serving(Served([ServedModel("one")], compute, run=page)) as found:
        assert found.ask("GET", "/api/site").json["run"] is True
        assert found.ask("GET", "/api/run").json["title"] == "corpus"
        assert found.ask("GET", "/api/run/chunks/means").body == b"3"


def test_without_a_run_there_is_none(client: Client) -> None:
    assert "--run" in refused(client.ask("GET", "/api/run"), 404)


# Who may ask.


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", "", "a b"])
def test_another_name_is_refused(client: Client, host: str) -> None:
    for method, path in (("GET", "/"), ("GET", "/api/site"), ("POST", "/api/pages")):
        body = ASKED if method == "POST" else None
        assert client.ask(method, path, body, Host=host).status in (400, 421)


def test_own_names_are_known_at_any_port(client: Client) -> None:
    # A tunnel may have another port than the server.
    for host in ("localhost:9999", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        assert client.ask("GET", "/api/site", Host=host).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
def test_another_site_s_page_is_refused(client: Client, origin: str) -> None:
    assert "another site" in refused(client.ask("POST", "/api/pages", ASKED, Origin=origin), 403)
    assert "another site" in refused(client.ask("GET", "/api/site", Origin=origin), 403)
    assert client.ask("DELETE", "/api/jobs/x", Origin=origin).status == 403


def test_own_page_may_ask(client: Client) -> None:
    own = f"http://127.0.0.1:{client.port}"
    assert client.ask("GET", "/api/site", Origin=own, Sec_Fetch_Site="same-origin").status == 200
    assert client.ask("DELETE", "/api/jobs/x", Origin=own).status == 404


def test_another_site_may_link_here_and_no_more(client: Client) -> None:
    assert client.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert client.ask("GET", "/api/site", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert client.ask("GET", "/static/serve.js", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="no-cors").status == 403


def test_without_a_token_nothing_is_answered(locked: Client) -> None:
    for method, path in (("GET", "/"), ("GET", "/static/serve.js"), ("GET", "/api/site"), ("POST", "/api/pages")):
        assert "token" in refused(locked.ask(method, path, ASKED if method == "POST" else None), 401)


@pytest.mark.parametrize("wrong", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.lower(), "é" * 20])
def test_a_wrong_token_is_no_token(locked: Client, wrong: str) -> None:
    assert locked.ask("GET", "/api/site", Authorization=f"Bearer {wrong}").status == 401
    assert locked.ask("GET", "/api/site", Cookie=f"identiscope={wrong}").status == 401
    if wrong.isascii():
        assert locked.ask("GET", f"/?token={wrong}").status == 401


def test_the_token_opens_once_and_becomes_a_cookie(locked: Client) -> None:
    assert locked.ask("GET", "/api/site", Authorization=f"Bearer {TOKEN}").status == 200
    entered = locked.ask("GET", f"/?token={TOKEN}")
    assert entered.status == 303 and entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    assert locked.ask("GET", "/api/site", Cookie=cookie.partition(";")[0]).status == 200
    # Only at the door.
    assert locked.ask("GET", f"/api/site?token={TOKEN}").status == 401
    assert locked.ask("GET", "/?" + "&".join(f"token={n}" for n in range(50))).status == 401


def test_beyond_the_loopback_any_address_is_known_but_no_name(locked: Client) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert locked.ask("GET", "/api/site", Host="192.168.1.7:80", **bearer).status == 200
    assert locked.ask("GET", "/api/site", Host="evil.example", **bearer).status == 421


def test_names_and_loopback() -> None:
    assert [host_name(given) for given in ("A.b:1", "[::1]", "a/b", "a:b", "[x]", "a\n")] == [
        "a.b", "[::1]", None, None, None, None,
    ]  # fmt: skip
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "192.168.0.1", "box")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


# How much, and what.


def test_too_long_a_body_is_refused(client: Client) -> None:
    long = {"model": 0, "text": "x" * (server_module.LONGEST_BODY + 1)}
    assert "bytes" in refused(client.ask("POST", "/api/pages", long), 413)


def test_too_long_a_body_is_refused_without_its_length_and_before_its_end(client: Client) -> None:
    with client.raw() as sent:
        head = f"POST /api/pages HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Type: application/json\r\n"
        sent.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(server_module.LONGEST_BODY // 0x1000 + 1):
            sent.sendall(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        assert b" 413 " in sent.recv(1000)


def test_too_long_a_text_is_refused(client: Client) -> None:
    assert "at most 1000" in refused(client.ask("POST", "/api/pages", {"model": 0, "text": "x" * 1001}), 422)


@pytest.mark.parametrize("model", [-1, 2, 10**30, True, "0", "minilm", "../../etc/passwd", 0.0, None, [0], {"a": 1}])
def test_only_the_server_s_models_are_known_by_number(client: Client, model: Any) -> None:
    assert "whole number" in refused(client.ask("POST", "/api/pages", {"model": model, "text": "x"}), 422)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\xff", b"[]", b"null", b"[" * 100_000, b'{"model": 0}', b'{"model": 0, "text": ""}',
        b'{"model": 0, "text": 5}', b'{"model": 0, "text": "x", "path": "/etc/passwd"}',
        b'{"model": 0, "text": "x", "methods": "verdict"}', b'{"model": 0, "text": "x", "methods": ["eval"]}',
        b'{"model": 0, "text": "x", "methods": [[]]}', b'{"model": 0, "text": "x", "directions": 10000}',
        b'{"model": NaN, "text": "x"}', b'{"model": 0, "text": "x", "kind": ["cross"]}',
    ],
)  # fmt: skip
def test_questions_that_are_none(client: Client, body: bytes) -> None:
    assert refused(client.ask("POST", "/api/pages", body), 422)


@pytest.mark.parametrize(
    "wanted",
    [{"canonical": [[0]]}, {"canonical": 5}, {"intervals": [[0, 0]]}, {"intervals": [[0, 0, -1]]},
     {"canonical": [[0, 0]] * 65}, {"text": "x"}],
)  # fmt: skip
def test_more_that_is_nothing(client: Client, wanted: Any) -> None:
    name = client.compute(ASKED)[-1][1]["page"]
    assert refused(client.ask("POST", f"/api/pages/{name}/more", wanted), 422)
    assert client.ask("POST", "/api/pages/none/more", wanted).status == 404


def test_half_a_surrogate_pair_is_text(client: Client) -> None:
    name = client.compute({"model": 0, "text": "\ud83d"})[-1][1]["page"]
    assert client.ask("GET", f"/api/pages/{name}").json["title"] == "0 ?"


def test_forms_are_refused(client: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert client.ask("POST", "/api/pages", b'{"model": 0, "text": "x"}', Content_Type=kind).status == 415


@pytest.mark.parametrize("path", [
    "/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static/....//server.py",
    "/static//etc/passwd", "/static/%2fetc%2fpasswd", "/static/serve.html", "/static/tsconfig.json", "/static/",
    "/static/serve.js%00.css", "/static/..%5c..%5cserver.py", "/../../../../etc/passwd", "/api/pages/..%2f..%2fsite",
])  # fmt: skip
def test_no_other_file_is_ever_read(client: Client, path: str) -> None:
    found = client.ask("GET", path)
    assert found.status == 404 and b"import" not in found.body and b"root:" not in found.body


def test_other_methods_are_refused(client: Client) -> None:
    assert client.ask("POST", "/", ASKED).status == 405
    assert client.ask("OPTIONS", "/api/pages").status == 405
    assert client.ask("GET", "/api/pages").status == 405


def test_pages_that_are_too_many_or_too_large_go() -> None:
    pages = Pages(most=3, most_bytes=100)
    for name in "abcd":
        pages.keep(name, Kept(empty_page(name).having({"x": b"1" * 10}), None))
    with pytest.raises(HTTPException):
        pages.get("a")
    assert pages.get("b").page.header["title"] == "b"  # and now it is the newest
    pages.keep("e", Kept(empty_page("e").having({"x": b"1" * 81}), None))
    assert pages.get("b") and pages.get("e")
    with pytest.raises(HTTPException):
        pages.get("d")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="--port"):
        bind("127.0.0.1", taken.getsockname()[1])


# Cancelling.


@pytest.mark.parametrize("word", ["slow", "stuck", "stubborn"])
def test_cancel_stops_soon(word: str) -> None:
    with serving(served()) as found, found.computing({"model": 0, "text": word}) as events:
        job = next(events)[1]["job"]
        until(lambda: found.served.jobs.running)
        began = time.monotonic()
        assert found.ask("DELETE", f"/api/jobs/{job}").status == 204
        assert list(events)[-1] == ("cancelled", {"error": "cancelled"})
        assert time.monotonic() - began < 1
        until(lambda: not found.served.jobs.running, 3)
        assert found.ask("DELETE", f"/api/jobs/{job}").status == 404
        # What comes next is not harmed.
        assert found.compute(ASKED)[-1][0] == "done"


def test_hanging_up_cancels(client: Client) -> None:
    with client.computing({"model": 0, "text": "stuck"}) as events:
        next(events)
        until(lambda: client.served.jobs.running)
        job = client.served.jobs.running[0]
        assert job.state == "running"
    # Left alone it would go on for half a minute.
    until(lambda: not client.served.jobs.running, 5)
    assert (job.state, job.trouble) == ("cancelled", "nobody waits for it any more")


def test_a_waiting_computation_is_cancelled_at_once() -> None:
    with serving(served(running=1)) as found, found.computing({"model": 0, "text": "slow"}, client="a") as first:
        next(first)
        with found.computing({"model": 0, "text": "slow"}, client="b") as second:
            job = next(second)[1]["job"]
            assert next(second)[1]["state"] == "waiting"
            found.ask("DELETE", f"/api/jobs/{job}")
            assert list(second)[-1][0] == "cancelled"
        assert len(found.served.jobs.running) == 1


def test_there_is_a_most_time() -> None:
    with serving(served(seconds=0.3)) as found:
        assert found.compute({"model": 0, "text": "stuck"})[-1] == (
            "cancelled",
            {"error": "stopped after 0.3 seconds, the most it may take"},
        )


def test_stopping_the_server_stops_everything() -> None:
    began = time.monotonic()
    with serving(served()) as found, found.computing({"model": 0, "text": "stuck"}) as events:
        next(events)
    assert time.monotonic() - began < 8


# One does not stop the others.


def test_ten_at_a_time_beside_slow_clients() -> None:
    with serving(served()) as found:
        big = found.compute({"model": 0, "text": "big"})[-1][1]["page"]
        slow = [found.raw() for _ in range(20)]
        for place, one in enumerate(slow):
            # Half a request; a request whose body does not come; an answer that is not read.
            head = f"Host: 127.0.0.1:{found.port}\r\n"
            text = [
                f"GET / HTTP/1.1\r\n{head}X: ",
                f"POST /api/pages HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
                f"GET /api/pages/{big}/chunks/layer-0 HTTP/1.1\r\n{head}\r\n",
            ][place % 3]
            one.sendall(text.encode())
        done: list[str] = []
        titles: set[str] = set()

        def one_client(number: int) -> None:
            name, said = found.compute({"model": 0, "text": f"short {number}"}, client=str(number))[-1]
            done.append(name)
            titles.add(found.ask("GET", f"/api/pages/{said['page']}").json["title"])

        began = time.monotonic()
        threads = [threading.Thread(target=one_client, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        assert found.ask("GET", "/api/site").status == 200
        for thread in threads:
            thread.join(20)
        assert done == ["done"] * 10 and titles == {f"0 short {number}" for number in range(10)}
        assert time.monotonic() - began < 10
        for one in slow:
            one.close()


def test_one_client_with_much_to_do_leaves_a_thread_to_others() -> None:
    with serving(served(running=2)) as found:
        greedy = [found.computing({"model": 0, "text": "slow"}, client="greedy") for _ in range(5)]
        for one in greedy:
            next(one.__enter__())
        assert found.compute(ASKED, client="modest")[-1][0] == "done"
        assert len(found.served.jobs.running) == 1
        for one in greedy:
            one.__exit__(None, None, None)


def test_a_full_queue_says_so() -> None:
    with serving(served(running=1, waiting=3, each=2)) as found:
        held = []
        for who in ("a", "a", "a", "b"):
            held.append(found.computing({"model": 0, "text": "slow"}, client=who))
            next(held[-1].__enter__())
        mine = found.ask("POST", "/api/pages", ASKED, X_Identiscope_Client="a")
        assert mine.headers["retry-after"] and refused(mine, 503)
        for one in held:
            one.__exit__(None, None, None)
        until(lambda: not found.served.jobs.waiting)
        assert found.compute(ASKED, client="c")[-1][0] == "done"


def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_running, "SLOWEST_REQUEST", 0.5)
    with serving(served()) as found:
        silent, dripping = found.raw(), found.raw()
        dripping.sendall(b"GET / HTTP/1.1\r\nHost: ")
        for one in (silent, dripping):
            one.settimeout(5)
            assert one.recv(100) == b""
            one.close()


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SLOWEST_BODY", 0.3)
    with serving(served()) as found, found.raw() as sent:
        head = f"POST /api/pages HTTP/1.1\r\nHost: 127.0.0.1:{found.port}\r\nContent-Type: application/json\r\n"
        sent.sendall(head.encode() + b"Content-Length: 50\r\n\r\n{")
        assert b" 408 " in sent.recv(1000)


def test_an_answer_that_is_not_taken_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_running, "SLOWEST_REQUEST", 0.2)
    monkeypatch.setattr(server_running, "SLOWEST_ANSWER", 0.6)
    with serving(served()) as found:
        name = found.compute({"model": 0, "text": "big"})[-1][1]["page"]
        with found.raw() as sent:
            head = f"GET /api/pages/{name}/chunks/layer-0 HTTP/1.1\r\nHost: 127.0.0.1:{found.port}\r\n\r\n"
            sent.sendall(head.encode())
            time.sleep(1.5)
            taken = 0
            try:
                while part := sent.recv(2**20):
                    taken += len(part)
            except ConnectionError:
                pass  # It was cut off, and some of what was on the way is lost.
            assert taken < BIG
        assert found.ask("GET", "/api/site").status == 200


def test_a_lost_interrupt_is_not_complained_of(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raises:
        def __init__(self, error: type[BaseException]) -> None:
            self.error = error

        def __del__(self) -> None:
            raise self.error

    seen: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda given: seen.append(given.exc_type))
    for _ in range(2):
        server_jobs._swallow_where_nothing_can_be_raised()
    for error in (server_jobs.Cancelled, ValueError):
        Raises(error)
    assert seen == [ValueError]
