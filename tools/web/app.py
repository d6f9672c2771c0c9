"""Application: addresses and what is sent for them. No part of an address reaches the disk.

Tests: `tests/tools/web/test_app.py`.
"""

from __future__ import annotations

from mimetypes import guess_type
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from arena.errors import ArenaError
from arena.files import without_directories
from populations.views.texts import one_line

from ..show.html import Hypertext
from ..terminal.output import document_text
from .exposition import OPENMETRICS, TEXT, exposition
from .pace import KeptPages, Pace
from .pages.log import FIELDS
from .render import static_files, static_version
from .runs import NotYet, csv_text
from .security import Access, Guard
from .site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from .runs import Run

REVALIDATED = "private, no-cache"
FOR_EVER = "private, max-age=31536000, immutable"


def make_app(site: Site, access: Access) -> ASGIApp:
    """Return the application that shows a site, behind its guard."""
    answers = Answers(site)
    routes = [
        Route("/", answers.index),
        Route("/index.html", answers.index),
        Route("/metrics", answers.metrics),
        Route("/static/{name}", static),
        Route("/{run}/{name}.html", answers.page),
        Route("/{run}/{name}.csv", answers.csv),
        Route("/{run}/{name}.json", answers.json),
    ]
    app = Starlette(routes=routes, exception_handlers={ArenaError: _explain})
    return Guard(GZipMiddleware(app, minimum_size=1000), access=access)


def _explain(_request: Request, error: Exception) -> Response:
    """Answer that a run cannot be read, and why, or that data are still being made."""
    text = one_line(without_directories(str(error)), max_chars=1000)
    later = {"retry-after": "5"} if isinstance(error, NotYet) else {}
    headers = {"cache-control": "no-store", **later}
    return PlainTextResponse(f"{text}\n", status_code=503, headers=headers)


def static(request: Request) -> Response:
    """Send a script or a style sheet."""
    name = request.path_params["name"]
    content = static_files().get(name)
    if content is None:
        return _missing()
    is_versioned = request.query_params.get("v") == static_version()
    return Response(
        content,
        media_type=guess_type(name)[0],
        headers={"cache-control": FOR_EVER if is_versioned else REVALIDATED},
    )


class Answers:
    """Answers to requests. Each runs in a thread of its own."""

    def __init__(self, site: Site) -> None:
        self._site = site
        # All runs of a server have one pace, which pages share with documents.
        self._pages = KeptPages(next((run.pace for run in site.runs.values()), Pace()))

    def index(self, request: Request) -> Response:
        """Send the first page."""
        runs = self._site.runs.values()
        # The list of several runs needs only their states.
        is_one = len(runs) == 1
        try:
            tag = "_".join(
                self._site.tag(run, "index") if is_one else run.etag(["status"]) for run in runs
            )
        except ArenaError as error:
            # An unreadable run among several is one row of the list.
            if is_one and not isinstance(error, NotYet):
                raise
            return _passing(self._site.unmade_index())
        return self._sent(request, "index", tag, self._site.index)

    def page(self, request: Request) -> Response:
        """Send a page of a run."""
        run, name = self._run(request), request.path_params["name"]
        if run is None:
            return _missing()
        try:
            tag = self._site.tag(run, name)
        except NotYet:
            return _passing(self._site.unmade(run.slug, Hypertext(page=name)))
        given = request.query_params
        query = {key: given[key] for key in FIELDS.get(name, ()) if key in given}
        address = Hypertext(page=name, number=_number(request), query=query)
        key = (run.slug, name, address.number, *query.items())
        return self._sent(request, key, tag, lambda: self._site.page(run.slug, address))

    def csv(self, request: Request) -> Response:
        """Send all rows of a view, or of a list that is drawn."""
        run, name = self._run(request), request.path_params["name"]
        text = None if run is None else csv_text(run, name)
        return _missing() if text is None else _data(text, "text/csv")

    def json(self, request: Request) -> Response:
        """Send a view's document, as `arena league RUN VIEW --json` prints it, or a player's."""
        run, name = self._run(request), request.path_params["name"]
        if run is None:
            return _missing()
        if run.view_of(name) is None:
            document = self._site.player_document(run.slug, name)
        else:
            document = run.documents([name])[name]
        if document is None:
            return _missing()
        return _data(document_text(document), "application/json")

    def metrics(self, request: Request) -> Response:
        """Send figures of all runs, for Prometheus."""
        accepted = request.headers.get("accept", "")
        kind = OPENMETRICS if "application/openmetrics-text" in accepted else TEXT
        text = exposition(list(self._site.runs.values()), openmetrics=kind is OPENMETRICS)
        return Response(text, headers={"content-type": kind, "cache-control": "no-store"})

    def _sent(
        self, request: Request, address: Hashable, tag: str, make: Callable[[], str | None]
    ) -> Response:
        # The tag is compared before the page is made, which is not needed if the reader has this
        # version.
        if (known := _unless_known(request, tag)) is not None:
            return known
        page = self._pages.page(address, tag, make)
        if page is None:
            return _missing()
        sent = Response(page.html, media_type="text/html", headers=_headers(page.tag))
        return _unless_known(request, page.tag) or sent

    def _run(self, request: Request) -> Run | None:
        return self._site.runs.get(request.path_params["run"])


def _number(request: Request) -> int:
    text = request.query_params.get("page", "1")
    # isdecimal alone accepts digits of any script, and numbers of any length.
    return max(int(text), 1) if text.isascii() and text.isdecimal() and len(text) < 9 else 1


def _unless_known(request: Request, tag: str) -> Response | None:
    """Return the answer to a reader who has this version already."""
    given = ",".join(request.headers.getlist("if-none-match")).split(",")
    # The tag includes the release, because a new one may show the same documents differently.
    if _quoted(tag) in [one.strip().removeprefix("W/") for one in given]:
        return Response(status_code=304, headers=_headers(tag))
    return None


def _quoted(tag: str) -> str:
    return f'"{static_version()}-{tag}"'


def _headers(tag: str) -> dict[str, str]:
    return {"etag": f"W/{_quoted(tag)}", "cache-control": REVALIDATED}


def _passing(text: str) -> Response:
    """Answer with a page that stands for another one meanwhile."""
    return Response(text, media_type="text/html", headers={"cache-control": "no-store"})


def _data(text: str, media_type: str) -> Response:
    return Response(text, media_type=media_type, headers={"cache-control": REVALIDATED})


def _missing() -> Response:
    return PlainTextResponse("there is no such page\n", status_code=404)
