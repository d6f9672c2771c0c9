"""Make the golden run of this release: `python -m tests.assets.golden_runs.make`.

A golden run is a small real run as its release left it: rock-paper-scissors, two policies with a
tiny network, ghosts, evaluation, population-based training. Every later release must verify it, go
on with it, or refuse it with a clear message (`tests/faults/test_golden_runs.py`). So a directory
is made once, when a release is made, under the release's version, and never again.

What is of this machine or this moment is left out: logs, figures, the lock, the backup, the host's
name; the directory that user code was looked for in becomes the one that the test runs in.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from populations.config.run_file import RUN_FILE, RunFile
from populations.records.tables import seal_rows
from populations.storage.database import JOURNAL

HERE = Path(__file__).parent
KEPT = (RUN_FILE, JOURNAL, "populations")
MAX_BYTES = 500_000
HOST = "host"
SETTINGS = (
    "environment.num_envs=8",
    "environment.random_openings.share=0",
    "populations.player.size=2",
    "populations.player.network.hidden_sizes=[8]",
    "populations.player.hyperparameters.rollout_length=8",
    "populations.player.hyperparameters.num_minibatches=2",
    "pbt.fraction=0.5",
    "pbt.reference=false",
    "pbt.ready_agent_steps=512",
    "pbt.warm_up_agent_steps=512",
    "pbt.min_matches=8",
    "pbt.min_rating_gap=0",
    "pbt.confidence=0",
    "ghosts.every_agent_steps=512",
    "assignment.agent_steps=256",
    "evaluation.share=0.3",
    "checkpoints.keep=2",
    "metrics.sinks=[]",
    "stop.agent_steps_per_policy=1280",
    "stop.duration_s=null",
    "deterministic=true",
    "device=cpu",
    "seed=4",
)


def main() -> None:
    """Make the run in a temporary directory, then take over what is kept."""
    target = HERE / version("arena-league")
    if target.exists():
        sys.exit(f"{target} is there already: a golden run is never made anew")
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        command = [sys.executable, "-m", "populations.commands.main", "launch"]
        arguments = ["rock_paper_scissors", *SETTINGS, "--learners", "1", "--run-dir", str(run)]
        subprocess.run([*command, *arguments], check=True)
        for path in run.iterdir():
            if path.name not in KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        replace(RunFile.load(run / RUN_FILE), launched_in=".").save(run / RUN_FILE)
        forget_host(run / JOURNAL, socket.gethostname())
        if (total := size_bytes(run)) > MAX_BYTES:
            sys.exit(f"the run has {total} bytes, more than {MAX_BYTES}")
        shutil.copytree(run, target)


def forget_host(journal: Path, host: str) -> None:
    """Call the machine ``host`` wherever it is named."""
    places = (("assignments", "learner"), ("events", "subject"), ("events", "data"))
    with contextlib.closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        for table, column in places:
            for before, after in ((f"{host}-", f"{HOST}-"), (f'"{host}"', f'"{HOST}"')):
                connection.execute(
                    f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (before, after)
                )
        seal_rows(connection)
        connection.execute("VACUUM")


def size_bytes(run: Path) -> int:
    """Of all its files."""
    return sum(path.stat().st_size for path in run.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
