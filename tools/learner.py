"""`arena learner`: join a run from another process.

Tests: `tests/integration/test_joining.py`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .terminal.options import Code, optional

RunFilePath = Annotated[
    Path, typer.Argument(metavar="RUN.yaml", help="Path of the run's run.yaml.")
]
Connect = Annotated[
    str,
    typer.Option(
        metavar="ENDPOINT", help="Address of the controller: see `arena league RUN status`."
    ),
]
Keys = Annotated[
    Path | None,
    optional(
        "FILE", "Key of this learner (keys/remote-0.key of the run); required by tcp endpoints."
    ),
]
Populations = Annotated[
    str, typer.Option(metavar="NAMES", help="Populations to train, as a,b. Default: all.")
]
Store = Annotated[
    str | None,
    optional("ENDPOINT", "Address of checkpoints. Default: the controller's, with the next port."),
]
Cache = Annotated[
    Path | None,
    optional("DIR", "Directory for copies of checkpoints. Default: ~/.cache/arena."),
]
CacheMb = Annotated[int, typer.Option("--cache-mb", min=1, help="Bound of these copies, in MB.")]


def learner(
    run: RunFilePath,
    connect: Connect,
    keys: Keys = None,
    code: Code = None,
    populations: Populations = "",
    store: Store = None,
    cache: Cache = None,
    cache_mb: CacheMb = 2048,
) -> None:
    """Join a run as one more learner; its environment and configuration must match.

    Without the run's directory beside run.yaml, checkpoints come from the controller's machine.
    """
    from arena.checkpoints.files import store_digest
    from arena.learners.process import serve
    from arena.processes.log import begin_log
    from arena.resolve import given_code
    from arena.transfer.remote_store import Remote
    from arena.wire.address import next_port
    from populations.config.run_file import RunFile, learner_setup

    begin_log()
    # A run's directory is accepted too, because other commands take one.
    path = run / "run.yaml" if run.is_dir() else run
    # The store is the directory of the file, independent of the working directory.
    root = path.resolve().parent
    run_file = RunFile.load(path)
    # The user who joins a run trusts its file; its code is in the launch directory, or at --code.
    run_file = replace(run_file, launch_directory=given_code() or run_file.launched_in)
    setup = learner_setup(run_file, root=root)
    names = tuple(name for name in populations.split(",") if name)
    remote = None
    # A Unix socket is only reachable on the controller's machine, which has the run directory.
    if store_digest(root) is None and connect.startswith("tcp://"):
        remote = Remote(
            endpoint=store or next_port(connect),
            cache=cache or default_cache(),
            cache_mb=cache_mb,
        )
    raise typer.Exit(serve(setup, endpoint=connect, populations=names, keys=keys, remote=remote))


def default_cache() -> Path:
    """Return the directory for copies of checkpoints where none is named (XDG base directories)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "arena"
