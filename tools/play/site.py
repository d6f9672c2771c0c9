"""Page of a person's games: a new game at ``/``, each at an address of its own.

Two tabs at the first address are two games; the same game's address in two tabs is one game.

Tests: `tests/tools/play/test_browser.py`, `tests/tools/play/test_tables.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from arena.errors import ArenaError
from populations.views.texts import one_line

from ..web.app import static
from ..web.render import Content, Frame, render
from ..web.security import Guard
from .tables import Full

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

    # A plain function runs in a thread, so waiting for a game does not block the event loop.
    def new(_request: Request) -> Response:
        return RedirectResponse(f"games/{tables.new()}", status_code=303, headers=NOT_KEPT)

    async def do(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY_BYTES:
                return PlainTextResponse("too long\n", status_code=413)
        try:
            wanted = dict(json.loads(body))
        except (TypeError, ValueError):
            return PlainTextResponse("the body must be an object of JSON\n", status_code=400)
        document = await run_in_threadpool(tables.ask, request.path_params["game"], wanted)
        return JSONResponse(document, headers=NOT_KEPT)

    def file(request: Request) -> Response:
        game = request.path_params["game"]
        document = tables.ask(game, {"do": "save"})
        if "file" not in document:
            return PlainTextResponse(f"{document['refusal']}\n", status_code=409, headers=NOT_KEPT)
        headers = {**NOT_KEPT, "content-disposition": f'attachment; filename="game-{game}.json"'}
        return Response(document["file"], media_type="application/json", headers=headers)

    routes = [
        Route("/", new),
        # The page's title links to this address, which starts a new game.
        Route("/index.html", new),
        Route("/static/{name}", static),
        Route("/games/{game}", _page),
        Route("/games/{game}/game.json", file),
        Route("/games/{game}/do", do, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={ArenaError: _refused})
    return Guard(app, access=access)


def _page(_request: Request) -> Response:
    """Send the page, which asks for the game itself."""
    content = Content(title="Play", blocks=())
    frame = Frame(root="../", page="", navigation={"New game": "../"})
    html = render(content, frame, scripts=("play.js",))
    return Response(html, media_type="text/html", headers=NOT_KEPT)


def _refused(_request: Request, error: Exception) -> Response:
    said = one_line(str(error), max_chars=1000)
    status = 503 if isinstance(error, Full) else 410
    return PlainTextResponse(f"{said}\n", status_code=status, headers=NOT_KEPT)
