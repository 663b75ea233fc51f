"""Who may speak to the server: the names it answers to, the pages that may ask, the token; and how much may be sent."""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "img-src 'self' blob: data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

#: Seconds that a client may take to take the next piece of an answer.
SLOWEST_SEND = 60.0


@dataclass(frozen=True)
class Rules:
    """names: those the server is reached by, without port; any_address: any IP address, too (DNS has no part in it).

    token: what a client has to show, in a header or in the cookie it is given for it; None on the loopback.
    """

    names: frozenset[str] = LOOPBACK
    any_address: bool = False
    token: str | None = None
    cookie: str = "identiscope"


class Refused(Exception):
    """A request that is not answered, with its status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def guarded(application: Application, rules: Rules) -> Application:
    """The application behind the rules: no byte of a refused request reaches it; every answer has safe headers."""

    async def guard(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = [(name.encode(), text.encode()) for name, text in HEADERS.items() if name.encode() not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            # A client that stops reading holds its own connection, and not for ever.
            await asyncio.wait_for(send(message), SLOWEST_SEND)

        try:
            headers = _headers(scope["headers"])
            check_host(headers, rules)
            check_origin(scope, headers)
            if rules.token is not None and not _has_token(headers, rules):
                cookie = _entering(scope, rules)
                if cookie is not None:
                    await _redirect(careful, cookie)
                    return
                raise Refused(401, "a token is needed: open the address that the server printed, with ?token=...")
        except Refused as refused:
            await answer_error(careful, refused.status, str(refused))
            return
        await application(scope, receive, careful)

    return guard


def check_host(headers: dict[str, list[str]], rules: Rules) -> None:
    """Refuse a Host that is not ours: a page elsewhere may have made its own name point here (DNS rebinding)."""
    given = headers.get("host", [])
    if len(given) != 1:
        raise Refused(400, "one Host header is needed.")
    name = host_name(given[0])
    if name is None or not (name in rules.names or (rules.any_address and _is_address(name))):
        raise Refused(421, "this server does not answer to that name; see --allow-name.")


def check_origin(scope: MutableMapping[str, Any], headers: dict[str, list[str]]) -> None:
    """Refuse what the page of another site asks for. Whoever is no browser sends none of these headers."""
    own = {f"{scheme}://{headers['host'][0].lower()}" for scheme in ("http", "https")}
    for origin in headers.get("origin", []):
        if origin.lower() not in own:
            raise Refused(403, "another site's page may not ask this server.")
    site, mode = headers.get("sec-fetch-site", ["none"])[0], headers.get("sec-fetch-mode", [""])[0]
    link = scope["method"] == "GET" and scope["path"] == "/" and mode == "navigate"
    if site not in ("same-origin", "none") and not link:
        raise Refused(403, "another site's page may not ask this server.")


def host_name(host: str) -> str | None:
    """The name in a Host header, in lower case, without its port; None if it is none.

    >>> host_name("LocalHost:8000"), host_name("[::1]:80"), host_name("a@b")
    ('localhost', '[::1]', None)
    """
    match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?", host.lower())
    return match.group(1) if match else None


def names_of(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """The names a server bound to a host answers to."""
    own = f"[{host}]" if ":" in host else host
    return LOOPBACK | {own.lower()} | {name.lower() for name in more}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server bound to a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in raw:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return values


def same_secret(given: str, secret: str) -> bool:
    """Whether two secrets are one, in a time that tells nothing of how much of them is."""
    digests = [hashlib.sha256(one.encode("utf-8", "replace")).digest() for one in (given, secret)]
    return hmac.compare_digest(*digests)


def _has_token(headers: dict[str, list[str]], rules: Rules) -> bool:
    assert rules.token is not None
    shown = [value[7:] for value in headers.get("authorization", []) if value.lower().startswith("bearer ")]
    try:
        cookies = SimpleCookie("; ".join(headers.get("cookie", [])))
        shown += [cookies[rules.cookie].value] if rules.cookie in cookies else []
    except CookieError:
        pass
    return any(same_secret(one, rules.token) for one in shown)


def _entering(scope: MutableMapping[str, Any], rules: Rules) -> str | None:
    """The cookie for whoever comes with the right token in the address, once."""
    if scope["method"] != "GET" or scope["path"] != "/" or rules.token is None:
        return None
    try:
        given = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8).get("token", [])
    except ValueError:
        return None
    if not any(same_secret(one, rules.token) for one in given):
        return None
    return f"{rules.cookie}={rules.token}; Path=/; HttpOnly; SameSite=Lax"


async def _redirect(send: Send, cookie: str) -> None:
    headers = [(b"location", b"/"), (b"set-cookie", cookie.encode("latin-1")), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def answer_error(send: Send, status: int, reason: str) -> None:
    """An error as JSON."""
    body = json.dumps({"error": reason}).encode()
    # What the client is still sending is not read: the connection ends here.
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
               (b"connection", b"close")]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
