"""Guard of the page: refuses every request that is not a reader's own.

A page in the same browser may send requests to any port of this machine, and a name of another host
may resolve to it (DNS rebinding). So a token is needed, and the headers that a browser sets by
itself (Host, Origin, Sec-Fetch-Site) must be those of this page.

Tests: `tests/tools/web/test_security.py`.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from .render import CONFINED

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL = ("localhost", "127.0.0.1", "::1")
WILDCARDS = ("0.0.0.0", "::")

POLICY = f"{CONFINED}; frame-ancestors 'none'"
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ADVICE = "open the address that the command printed: it has the token\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Rules of who may read.

    Attributes:
        token: Secret that every request needs.
        cookie: Name of the cookie with it. Browsers share cookies between ports, so it has the
            port.
        hosts: Names by which the server may be addressed, beside those of this machine itself.
        any_address: Whether every numeric address may be, as for a server on all interfaces. A
            name of another host that resolves to this machine is no numeric address.
        root_path: Path below which a proxy shows the page, such as ``/arena``.
        methods: Methods of requests. One that changes something says that its body is JSON, which
            a page of another origin cannot say unasked.
    """

    token: str
    cookie: str
    hosts: frozenset[str] = frozenset()
    any_address: bool = False
    root_path: str = ""
    methods: tuple[str, ...] = ("GET", "HEAD")

    @classmethod
    def to(
        cls,
        host: str,
        port: int,
        *,
        token: str | None,
        root_path: str = "",
        methods: tuple[str, ...] = ("GET", "HEAD"),
    ) -> Access:
        """Return the rules of a server that listens on a host and port."""
        return cls(
            token=token or secrets.token_urlsafe(24),
            cookie=f"arena_{port}",
            hosts=frozenset({host.lower()}) - set(WILDCARDS),
            any_address=host in WILDCARDS,
            root_path=root_path.rstrip("/"),
            methods=methods,
        )

    def knows_host(self, netloc: str) -> bool:
        """Return whether a request's host is one of this server, on any port.

        Any port, so that an ssh tunnel from another one works.
        """
        try:
            parts = urlsplit(f"//{netloc}")
            name, _ = parts.hostname, parts.port
        except ValueError:
            return False
        if name is None or parts.username is not None or parts.path or parts.query:
            return False
        if name in LOCAL or name in self.hosts:
            return True
        return self.any_address and _is_address(name)

    def knows_origin(self, origin: str) -> bool:
        """Return whether a page of this origin is one of this server."""
        scheme, separator, netloc = origin.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.knows_host(netloc)

    def is_token(self, given: str | None) -> bool:
        """Return whether a text is the token, in a time that says nothing about it."""
        # The token is compared as bytes, because the comparison refuses characters beyond ASCII.
        return given is not None and hmac.compare_digest(
            given.encode(errors="replace"), self.token.encode()
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """ASGI application that answers only a reader's own requests, with headers that confine them.

    Args:
        app: Application behind it.
        access: Rules.
    """

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._refusal(scope) or self._admission(scope)
        # The path may contain the proxy's prefix, because only some proxies remove it.
        inner = {**scope, "path": self._inner(scope["path"])}
        await (answer or self._app)(inner, receive, confined)

    def _inner(self, path: str) -> str:
        """Return a request's path without the path prefix of the proxy."""
        root = self._access.root_path
        return path[len(root) :] if root and path.startswith(f"{root}/") else path

    def _refusal(self, scope: Scope) -> Response | None:
        """Return why a request is refused whoever sends it; None: it is not."""
        headers = Headers(scope=scope)
        methods = self._access.methods
        if scope["method"] not in methods:
            return _refused(405, f"only {' and '.join(methods)}", {"allow": ", ".join(methods)})
        if scope["method"] == "POST" and headers.get("content-type") != "application/json":
            return _refused(415, "the body must be application/json")
        # Exactly one Host header is allowed, because a proxy may have checked the other one.
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._access.knows_host(hosts[0]):
            return _refused(403, "this host is not one of this server's: arena web --host NAME")
        if not all(map(self._access.knows_origin, headers.getlist("origin"))):
            return _refused(403, "a page of another origin asks")
        if any(site not in ("same-origin", "none") for site in headers.getlist("sec-fetch-site")):
            return _refused(403, "a page of another site asks: open the address directly")
        if _climbs(scope):
            return _refused(404, "there is no such page")
        return None

    def _admission(self, scope: Scope) -> Response | None:
        """Return the answer to a request without a cookie or header that has the token."""
        access, headers = self._access, Headers(scope=scope)
        query = QueryParams(scope["query_string"])
        if access.is_token(query.get("token")):
            return self._with_cookie(scope, query)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and access.is_token(given.strip()):
            return None
        if any(map(access.is_token, _cookies(headers.getlist("cookie"), access.cookie))):
            return None
        return _refused(401, f"no token: {ADVICE}", {"www-authenticate": "Bearer"})

    def _with_cookie(self, scope: Scope, query: QueryParams) -> Response:
        """Return a redirect to the same page without the token, which then stays in no history."""
        rest = QueryParams([(k, v) for k, v in query.multi_items() if k != "token"])
        # The path has exactly one leading slash, because // would name another host.
        path = "/" + self._inner(scope["path"]).lstrip("/")
        target = f"{self._access.root_path}{path}" + (f"?{rest}" if rest else "")
        response = RedirectResponse(target, status_code=303, headers={"cache-control": "no-store"})
        response.set_cookie(
            self._access.cookie,
            self._access.token,
            path=f"{self._access.root_path}/",
            httponly=True,
            samesite="strict",
        )
        return response


def _climbs(scope: Scope) -> bool:
    """Return whether a path tries to leave its folder. No path reaches the disk in any case."""
    path = scope["path"] + scope.get("raw_path", b"").decode("ascii", "replace")
    return any(part in path for part in ("..", "\\", "\0", "%2e", "%2E", "%2f", "%2F", "%5c"))


def _cookies(headers: Iterable[str], name: str) -> Iterable[str]:
    for header in headers:
        try:
            morsel = SimpleCookie(header).get(name)
        except CookieError:
            continue
        if morsel is not None:
            yield morsel.value


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(
        why, status_code=status, headers={"cache-control": "no-store", **(headers or {})}
    )
