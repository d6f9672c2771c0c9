"""`arena web`: a league in a browser.

Tests: `tests/tools/web/`.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import quote

import typer

from arena.errors import AddressInUse, ConfigError

from ..terminal.options import optional
from ..terminal.output import say, tell

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from .runs import Run
    from .security import Access


def web(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")
    ] = 8517,
    host: Annotated[
        str, typer.Option(help="Address or name to listen on; other machines can read then, too.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        optional(None, "Secret of the address. Default: a new one."),
    ] = None,
    root_path: Annotated[
        str, typer.Option("--root-path", help="Path below which a proxy shows the page.")
    ] = "",
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
    export: Annotated[
        Path | None, optional("DIR", "Directory to write the page to, as files.")
    ] = None,
) -> None:
    """Show runs as a page in a browser: standings, payoff map, ratings, lineage, events.

    The first line on standard output is the page's address with its token. A page of a run that
    goes on follows it. The page only reads.

    With --export, the same pages become files that need no server; index.html is the first one.
    """
    require_packages("arena web")
    from .app import make_app
    from .maker import WAIT_S, Makers
    from .pages.pages import PAGES
    from .runs import named_runs
    from .site import Site

    if token is not None and not (token.isascii() and token.isprintable() and len(token) >= 8):
        raise ConfigError("--token has 8 or more printable ASCII characters")
    if token is not None and token != token.strip():
        raise ConfigError("--token has no blank at its ends: a header would lose it")
    if root_path and not root_path.startswith("/"):
        raise ConfigError(f"--root-path begins with /, not with {root_path[:1]!r}")
    if export is None:
        with Makers() as makers:
            named = named_runs(runs, make=makers.make, wait_s=WAIT_S)
            for run in named.values():
                # Documents are started while the server starts, because the first page is requested
                # soon.
                run.begin(PAGES["index"].views if len(named) == 1 else ["status"])
            serve(
                partial(make_app, Site(named)),
                host=host,
                port=port,
                token=token,
                root_path=root_path,
                opens=open_browser,
                ends="Ctrl-C ends it; the runs go on.",
            )
    else:
        _export(named_runs(runs), export, opens=open_browser)


def require_packages(command: str) -> None:
    """Check that the packages of a page are installed.

    Raises:
        ConfigError: If one is missing.
    """
    names = ("starlette", "uvicorn", "jinja2")
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{command} needs {', '.join(missing)}: pip install {' '.join(missing)}")


def _export(runs: dict[str, Run], target: Path, *, opens: bool) -> None:
    from .export import write_export

    if target.exists() and not target.is_dir():
        raise ConfigError(f"--export {target} is no directory")
    count = write_export(runs, target)
    index = (target / "index.html").resolve()
    say(f"{count} files in {target}; open {index.as_uri()} in a browser")
    if opens:
        _open(index.as_uri())


def serve(
    make: Callable[[Access], ASGIApp],
    *,
    host: str,
    port: int,
    token: str | None = None,
    root_path: str = "",
    methods: tuple[str, ...] = ("GET", "HEAD"),
    opens: bool,
    ends: str,
) -> None:
    """Listen, say where, and answer until a signal.

    Args:
        make: Maker of the application, from the rules of who may read.
        host: Address or name to listen on.
        port: Port to listen on; 0: any that is free.
        token: Secret of the address; None: a new one.
        root_path: Path below which a proxy shows the page.
        methods: Methods of requests.
        opens: Whether the page is opened in a browser.
        ends: Line that says what ends it.

    Raises:
        AddressInUse: If another program listens there.
        ConfigError: If there is no such address on this machine.
    """
    import logging
    import sys

    import uvicorn

    from arena.processes.descriptors import raise_limit
    from arena.processes.paced_log import OneASecond

    from .connections import BACKLOG, MAX_HEADER_BYTES, Room
    from .security import WILDCARDS, Access

    with _listening(host, port) as listener:
        port = listener.getsockname()[1]
        access = Access.to(host, port, token=token, root_path=root_path, methods=methods)
        shown_host = "127.0.0.1" if host in WILDCARDS else host
        name = f"[{shown_host}]" if ":" in shown_host else shown_host
        url = f"http://{name}:{port}{access.root_path}/?token={quote(access.token, safe='')}"
        # The address is the first line and is flushed at once, because a program may wait for it.
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        tell(ends)
        if opens:
            _open(url)
        config = uvicorn.Config(
            make(access),
            http=cast("type[asyncio.Protocol]", Room.within(raise_limit()).protocol()),
            backlog=BACKLOG,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            log_level="warning",
            access_log=False,
            # Proxy headers would let a client choose the address that is checked.
            proxy_headers=False,
            server_header=False,
            ws="none",
            lifespan="off",
            # A connection that hangs must not keep the process.
            timeout_graceful_shutdown=1,
        )
        # The filters come after the configuration, which sets up logging. They limit log lines that
        # strangers can cause.
        for logger in ("uvicorn.error", "asyncio"):
            logging.getLogger(logger).addFilter(OneASecond())
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """Listen on an address.

    Raises:
        AddressInUse: If another program listens there.
        ConfigError: If there is no such address on this machine.
    """
    import errno
    import socket

    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"--host {host}: {error}") from error
    # A dual-stack socket also accepts IPv4, where the system has it.
    is_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(address, family=family, backlog=128, dualstack_ipv6=is_both)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(
                f"port {port} of {host} is in use; --port 0 takes any that is free"
            ) from error
        raise ConfigError(f"{host}:{port} cannot be listened on: {error}") from error


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)
