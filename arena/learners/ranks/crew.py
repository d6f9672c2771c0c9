"""The ranks of a learner, seen from rank 0, which speaks to the controller.

Tests: `tests/arena/learners/ranks/test_crew.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from msgspec.structs import replace

from arena.config import LearnerSetup
from arena.envs.workers.shared_arrays import anonymous_memory
from arena.learners.ranks.link import MIN_BYTES, Link, RankFailed, RankLost
from arena.learners.ranks.results import RankResult
from arena.matches.match import Progress
from arena.processes.helper import Helper
from arena.wire.messages import Train

MODULE = "arena.learners.rank"

LOAD_S = 90.0
"""Longest time that others may take to load what they need, without progress: as long as a learner
has until its Hello (`populations.controller.state.leases.Patience`)."""


class Ranks(Protocol):
    """The ranks of a learner, as one of them sees them. Owned by its working thread.

    Attributes:
        rank: Number of this one; 0 speaks to the controller.
        number: Number of ranks.
    """

    rank: int
    number: int

    def begin(self, message: Train) -> None:
        """Begin an assignment, in all ranks."""

    def exchange(self, values: torch.Tensor) -> torch.Tensor:
        """Give the others numbers and get theirs; see `arena.normalization.Exchange`."""

    def results(self, own: RankResult) -> list[RankResult]:
        """End an assignment: return the results of all ranks in rank 0, the own one elsewhere."""


class Crew:
    """Rank 0's side: it starts the others when they are needed, and they end with it.

    Args:
        setup: Setup of the learner.
        progress: Counter that the others' turns and decisions are added to.
        should_stop: Function that returns whether the learner is to stop.

    Attributes:
        is_busy: Whether an assignment was begun and has no results yet.
    """

    rank = 0

    def __init__(
        self, setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
    ) -> None:
        self.number = setup.cores
        self.is_busy = False
        self._setup = setup
        self._progress = progress
        self._should_stop = should_stop
        self._helpers: list[Helper] = []
        self._link: Link | None = None
        self._counted = 0, 0
        self._started_s = 0.0
        # At once: they take seconds to load what they need.
        self._start()

    @property
    def pids(self) -> list[int]:
        """Process ids of the others; none after a failure."""
        return [helper.process.pid for helper in self._helpers]

    def begin(self, message: Train) -> None:
        """Begin an assignment in all ranks.

        Raises:
            RankLost: If one has ended.
        """
        if self._link is None:
            self._start()
        link = self._started()
        self.is_busy = True
        link.is_told_to_stop = False
        self._counted = link.counts()
        with self._blamed():
            for rank in range(1, self.number):
                link.send(rank, message)

    def exchange(self, values: torch.Tensor) -> torch.Tensor:
        """Give the others numbers and get theirs; see `arena.normalization.Exchange`.

        Raises:
            RankLost: If one has ended.
            RankFailed: If one has failed.
        """
        # An optimizer's step is progress, too: an update may take minutes.
        self._progress.advance()
        with self._blamed():
            return self._started().exchange(values)

    def results(self, own: RankResult) -> list[RankResult]:
        """End an assignment: return the results of all ranks.

        Raises:
            RankLost: If one has ended.
            RankFailed: If one has failed.
        """
        link = self._started()
        with self._blamed():
            found = [own, *(link.receive(rank, RankResult) for rank in range(1, self.number))]
        # The rest of what they have done.
        self._wait()
        self.is_busy = False
        return found

    def should_stop(self) -> bool:
        """Return whether the learner is to stop, and tell the others."""
        is_asked = self._should_stop()
        if is_asked and self._link is not None:
            self._link.is_told_to_stop = True
        return is_asked

    def kill(self) -> None:
        """End the others at once: what they hold of an assignment that failed fits nothing."""
        self.is_busy = False
        for helper in self._helpers:
            helper.kill()
        self._helpers = []
        if self._link is not None:
            self._link.close()
            self._link = None

    def close(self) -> None:
        """End the others, which close their environments before."""
        if self._link is not None:
            self._link.close()
        for helper in self._helpers:
            helper.close()
        self.kill()

    def _started(self) -> Link:
        assert self._link is not None, "no assignment was begun"
        return self._link

    def _start(self) -> None:
        self._started_s = time.monotonic()
        try:
            with anonymous_memory(MIN_BYTES) as fd:
                for rank in range(1, self.number):
                    ranks = ("--rank", str(rank), "--ranks", str(self.number))
                    self._helpers.append(
                        Helper(MODULE, "--memory-fd", str(fd), *ranks, pass_fds=(fd,))
                    )
                self._link = Link(
                    [(rank + 1, helper.socket) for rank, helper in enumerate(self._helpers)],
                    os.dup(fd),
                    rank=0,
                    number=self.number,
                    waiting=self._wait,
                )
            for rank in range(1, self.number):
                self._link.send_bytes(rank, self._setup.model_dump_json().encode())
        except BaseException:
            self.kill()
            raise

    def _wait(self) -> None:
        """Count what the others do, and tell them to stop."""
        link = self._started()
        turns, agent_steps = link.counts()
        if turns != self._counted[0]:
            self._progress.advance(agent_steps - self._counted[1])
            self._counted = turns, agent_steps
        # A busy machine may take longer for it than a learner may stand still.
        elif not link.has_begun and time.monotonic() - self._started_s < LOAD_S:
            self._progress.advance()
        self.should_stop()

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Name the rank that has ended or failed."""
        try:
            yield
        except RankFailed as error:
            failed = error.failed
            reason = f"{failed.reason} ({self._name(error.rank)})"
            raise RankFailed(error.rank, replace(failed, reason=reason)) from None
        except RankLost as error:
            how = self._helpers[error.rank - 1].how_it_ended()
            raise RankLost(error.rank, f"{self._name(error.rank)} {how}") from None

    def _name(self, rank: int) -> str:
        return f"process {rank + 1} of {self.number} of this learner (learner_cores)"
