"""The Tracker Protocol: a tool in which users keep their runs, configured by name as a sink.

A tracker has a process of its own (`populations.tracking`), which reads what the run has
written: points from ``metrics.jsonl``, notes from the journal. So it may block, raise or be killed.
What a tracker holds already is asked of the tracker itself, so that nothing is there twice or left
out after a kill.

Tests: `tests/integration/test_trackers.py`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from arena.errors import ConfigError

TRACKERS = ("wandb", "mlflow", "trackio")
"""Names: each is also the module that it imports, and the extra that has it."""

PROJECT = "arena"
"""Project or experiment of a run, unless the tool's own environment variable names one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A run as its trackers get to know it.

    Attributes:
        id: Run's UUID, which outlasts its resumes.
        name: Run's name.
        directory: Run directory.
        facts: Settings that runs are compared by; none of them is a secret.
    """

    id: str
    name: str
    directory: Path
    facts: Mapping[str, object]


class Point(NamedTuple):
    """A line of ``metrics.jsonl``.

    Attributes:
        number: Number that no other point of the run has, and that rises; see
            `arena.metrics.jsonl.numbered_lines`.
        policy: Policy's id, or ``run``.
        agent_steps: Step of the figures.
        metrics: Figures by name.
    """

    number: int
    policy: str
    agent_steps: int
    metrics: Mapping[str, float]

    def named(self) -> dict[str, float]:
        """Return the figures by the names of their curves: ``player/p003/loss/policy``."""
        return {f"{self.policy}/{name}": value for name, value in self.metrics.items()}


class Note(NamedTuple):
    """An event that is told in words.

    Attributes:
        sequence: Event's sequence, from 1.
        kind: ``alert``, ``alert_cleared``, ``champion`` or ``exploited``.
        subject: Population whose champion it is, policy that has copied, or what an alert is about.
        text: The event as a sentence.
    """

    sequence: int
    kind: Literal["alert", "alert_cleared", "champion", "exploited"]
    subject: str
    text: str


class Reached(NamedTuple):
    """Place that a tracker has reached.

    Attributes:
        number: Number of its last point; -1: it has none.
        sequence: Sequence of its last note; 0: it has none.
        games: Ids of the games that it has.
    """

    number: int = -1
    sequence: int = 0
    games: frozenset[str] = frozenset()


class Tracker(Protocol):
    """A run in a tool, made with a `TrackedRun`; continues the run with that id or begins it."""

    def reached(self) -> Reached:
        """Return what it holds of earlier processes, each of which may have been killed."""

    def write(self, points: Sequence[Point], notes: Sequence[Note]) -> None:
        """Add points and notes, in order, none of which it holds.

        After a kill within `write` a part of them may be there; `reached` or `write` itself sees
        to it that none gets there twice.
        """

    def show(self, game: str, page: Path) -> None:
        """Add a game that it does not hold, beside the last point of this process.

        Args:
            game: Id of the game.
            page: File in HTML that needs nothing else; it is gone afterwards.
        """

    def close(self) -> None:
        """Hand everything on and end; the tracker is not used again."""


def require_installed(name: str) -> None:
    """Require the package of a tracker.

    Raises:
        ConfigError: If it is not installed.
    """
    spec = importlib.util.find_spec(name)
    # A package without an origin is only a directory of that name, such as trackers leave behind.
    if spec is None or spec.origin is None:
        # The full mlflow package would include a server.
        package = {"mlflow": "mlflow-skinny"}.get(name, name)
        raise ConfigError(f"metrics.sinks: {name} is not installed: pip install {package}")
