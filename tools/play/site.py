"""Page of a person's games: a new game at ``/``, each at an address of its own.

Two tabs at the first address are two games; the same game's address in two tabs is one game.

Tests: `tests/tools/play/test_browser.py`, `tests/tools/play/test_tables.py`.
"""

from __future__ import annotations

import json
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from populations.views.texts import one_line

from ..web.render import Content, Frame, render, static_files
from ..web.security import Guard
from .tables import Ended, Full

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from ..web.security import Access
    from .tables import Tables

METHODS = ("GET", "HEAD", "POST")
MAX_BODY_BYTES = 1 << 16
NOT_KEPT = {"cache-control": "no-store"}


def make_app(tables: Tables, access: Access) -> ASGIApp:
    """Return the application of some games, behind its guard."""
    site = _Site(tables)
    routes = [
        Route("/", site.new),
        Route("/index.html", site.new),
        Route("/static/{name}", site.static),
        Route("/games/{game}", site.page),
        Route("/games/{game}/state", site.state),
        Route("/games/{game}/game.json", site.file),
        Route("/games/{game}/do", site.do, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={Full: _full, Ended: _ended})
    return Guard(app, access=access)


def _full(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", status_code=503, headers=NOT_KEPT)


def _ended(_request: Request, error: Exception) -> Response:
    said = one_line(str(error), max_chars=1000)
    return PlainTextResponse(f"{said}\n", status_code=410, headers=NOT_KEPT)


class _Site:
    """Answers to requests. Those that wait for a game run in a thread of their own."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def new(self, _request: Request) -> Response:
        """Begin a game."""
        return RedirectResponse(f"games/{self._tables.new()}", status_code=303, headers=NOT_KEPT)

    def page(self, _request: Request) -> Response:
        """Send the page, which asks for the game itself."""
        content = Content(title="Play", blocks=())
        frame = Frame(root="../", page="", navigation={"New game": "../"})
        html = render(content, frame, scripts=("play.js",))
        return Response(html, media_type="text/html", headers=NOT_KEPT)

    def state(self, request: Request) -> Response:
        """Send what there is to see."""
        return self._asked(request, {"do": "look"})

    async def do(self, request: Request) -> Response:
        """Do what the page asks for."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY_BYTES:
                return PlainTextResponse("too long\n", status_code=413)
        try:
            wanted: Any = json.loads(body)
        except ValueError:
            wanted = None
        if not isinstance(wanted, dict):
            return PlainTextResponse("the body must be an object of JSON\n", status_code=400)
        return await run_in_threadpool(self._asked, request, wanted)

    def file(self, request: Request) -> Response:
        """Send the game as ``arena replay`` reads it."""
        game = request.path_params["game"]
        document = self._tables.ask(game, {"do": "save"})
        if "file" not in document:
            return PlainTextResponse(f"{document['refusal']}\n", status_code=409, headers=NOT_KEPT)
        headers = {**NOT_KEPT, "content-disposition": f'attachment; filename="game-{game}.json"'}
        return Response(document["file"], media_type="application/json", headers=headers)

    def static(self, request: Request) -> Response:
        """Send a script or a style sheet."""
        name = request.path_params["name"]
        content = static_files().get(name)
        if content is None:
            return PlainTextResponse("there is no such page\n", status_code=404)
        kind = guess_type(name)[0]
        return Response(content, media_type=kind, headers={"cache-control": "private, no-cache"})

    def _asked(self, request: Request, wanted: dict[str, Any]) -> Response:
        return JSONResponse(self._tables.ask(request.path_params["game"], wanted), headers=NOT_KEPT)
