"""`arena learner`: join a run from another process.

Tests: `tests/integration/test_joining.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def learner(
    run: Annotated[Path, typer.Argument(metavar="RUN.yaml", help="Path of the run's run.yaml.")],
    connect: Annotated[
        str,
        typer.Option(
            metavar="ENDPOINT", help="Address of the controller: see `arena league RUN status`."
        ),
    ],
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Key of this learner (keys/remote-0.key of the run); required by tcp endpoints.",
        ),
    ] = None,
    populations: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Populations to train, as a,b. Default: all."),
    ] = "",
) -> None:
    """Join a run as one more learner; its environment and configuration must match."""
    from arena.learners.process import serve
    from populations.config.run_file import RunFile, learner_setup

    # Other commands take a run's directory, so it is typed here, too.
    path = run / "run.yaml" if run.is_dir() else run
    # The file's own directory is the store, wherever the command runs.
    setup = learner_setup(RunFile.load(path), root=path.resolve().parent)
    names = tuple(name for name in populations.split(",") if name)
    raise typer.Exit(serve(setup, endpoint=connect, populations=names, keys=keys))
