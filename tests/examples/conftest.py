"""Examples, each copied to a directory of its own and launched from there, as its README says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ARENA, LOOKING, run_here
from tests.support import run_process

ROOT = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Example:
    """A copy of an example, and its run."""

    directory: Path

    @property
    def run(self) -> Path:
        return self.directory / "runs" / "example"

    def arena(self, *arguments: str | Path) -> str:
        """Run a command in the example's directory, and return its standard output."""
        texts = [str(argument) for argument in arguments]
        if texts[0] in LOOKING:
            done = run_here(texts)
        else:
            done = run_process([*ARENA, *texts], cwd=self.directory, timeout_s=500.0)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def launch(self, config: str, *overrides: str, agent_steps: int = 8_000) -> None:
        """Launch it with a budget of steps in the place of one of time, so that load is no luck."""
        budget = f"stop.agent_steps_per_policy={agent_steps}"
        more = ("stop.duration_s=null", budget, "launcher=inline", "seed=3", *overrides)
        self.arena("launch", config, "--run-dir", self.run, *more)
        assert self.document("status")["state"] == "finished"
        self.arena("verify", self.run)

    def document(self, *view: str) -> dict[str, Any]:
        """Return a view of the league as JSON."""
        return dict(json.loads(self.arena("league", self.run, *view, "--json")))

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return all events of a kind."""
        return [e for e in self.document("events")["events"] if e["kind"] == kind]

    def rated(self, kind: str = "policy", *, population: str = "player") -> list[str]:
        """Return the rated players of a kind, best first."""
        lines = self.document("standings")["populations"][population]
        return [line["player"] for line in lines if line["kind"] == kind and line["rating"]]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Example]:
    """Copy an example and make its directory the current one, first on the path."""

    def copy(name: str) -> Example:
        directory = tmp_path / name
        shutil.copytree(ROOT / name, directory, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.syspath_prepend(str(directory))
        monkeypatch.chdir(directory)
        return Example(directory)

    return copy
