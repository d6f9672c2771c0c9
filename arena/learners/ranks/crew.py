"""The ranks of a learner: rank 0, which talks to the controller, and the others.

The ranks' parts of an assignment's result are added up.

Tests: `tests/arena/learners/ranks/test_crew.py`, `tests/arena/learners/ranks/test_link.py`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from msgspec.structs import replace

from arena.config import LearnerSetup
from arena.core import Algorithm, LearnsInRanks
from arena.envs.workers.shared_arrays import anonymous_memory
from arena.errors import ConfigError
from arena.learners.ranks.link import MIN_BYTES, Link, RankFailed, RankLost
from arena.matches.play import Progress
from arena.matches.tally import merge_tallies
from arena.normalization import all_of
from arena.processes.helper import Helper
from arena.rollout.measured import Measures
from arena.types import Digest, Entrant, Finite, Part, PolicyId, Tally
from arena.wire.messages import InFlight, Train

MODULE = "arena.learners.rank"

LOAD_S = 90.0
"""Longest time in which other ranks may load without progress: as long as a learner has until its
Hello (`populations.controller.state.leases.Patience`)."""


DIGEST_BYTES = hashlib.sha256().digest_size


class Ranks(Protocol):
    """The ranks of a learner, seen by one of them. Owned by its working thread.

    Attributes:
        rank: Number of this rank; rank 0 talks to the controller.
        number: Number of ranks.
    """

    rank: int
    number: int

    def begin(self, message: Train) -> None:
        """Begin an assignment, in all ranks."""

    def exchange(self, values: torch.Tensor) -> torch.Tensor:
        """Send numbers to the other ranks and return theirs; see `arena.normalization.Exchange`."""

    def results(self, own: RankResult) -> list[RankResult]:
        """End an assignment; return the results of all ranks in rank 0, only the own one
        elsewhere.
        """


class Crew:
    """Rank 0's side: it starts the other ranks, which end with it.

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
        # The other ranks take seconds to load, so they start before the first assignment.
        self._start()

    @property
    def pids(self) -> list[int]:
        """Process ids of the others; none after a failure."""
        return [helper.pid for helper in self._helpers]

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
        """Send numbers to the other ranks and return theirs; see `arena.normalization.Exchange`.

        Raises:
            RankLost: If one has ended.
            RankFailed: If one has failed.
        """
        # An optimizer step counts as progress, too, because an update may take minutes.
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
        # This counts the steps that the ranks have taken since the last wait.
        self._wait()
        self.is_busy = False
        return found

    def should_stop(self) -> bool:
        """Return whether the learner is to stop, and pass it on to the other ranks."""
        is_asked = self._should_stop()
        if is_asked and self._link is not None:
            self._link.is_told_to_stop = True
        return is_asked

    def kill(self) -> None:
        """Kill the other ranks: their state of a failed assignment is useless."""
        self.is_busy = False
        for helper in self._helpers:
            helper.kill_group()
        self._helpers = []
        if self._link is not None:
            self._link.close()
            self._link = None

    def close(self) -> None:
        """End the other ranks; they close their environments first."""
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
        """Count the progress of the other ranks, and pass on a stop."""
        link = self._started()
        turns, agent_steps = link.counts()
        if turns != self._counted[0]:
            self._progress.advance(agent_steps - self._counted[1])
            self._counted = turns, agent_steps
        # On a busy machine loading may take longer than a learner may be without progress.
        elif not link.has_begun and time.monotonic() - self._started_s < LOAD_S:
            self._progress.advance()
        self.should_stop()

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Put the rank that has ended or failed into the error."""
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


class Member:
    """A further rank's side, an `arena.learners.ranks.crew.Ranks`; it counts progress, too.

    Args:
        link: Connection to rank 0.
    """

    def __init__(self, link: Link) -> None:
        self.rank = link.rank
        self.number = link.number
        self._link = link

    def begin(self, message: Train) -> None:
        """Do nothing: rank 0 has begun the assignment."""

    def exchange(self, values: torch.Tensor) -> torch.Tensor:
        """Send numbers to the other ranks and return theirs; see `arena.normalization.Exchange`."""
        self.advance()
        return self._link.exchange(values)

    def results(self, own: RankResult) -> list[RankResult]:
        """Send this rank's part of the result to rank 0; return that part alone."""
        self._link.send(0, own)
        return [own]

    def advance(self, agent_steps: int = 0) -> None:
        """Count one turn of the loop, for the heartbeats of rank 0."""
        self._link.count(agent_steps)


def share_state(algorithm: Algorithm, ranks: Ranks) -> None:
    """Copy the state of rank 0's algorithm to all ranks, as if each had loaded its checkpoint; they
    learn together from now on.

    Raises:
        ConfigError: If the algorithm does not support ranks.
    """
    if not isinstance(algorithm, LearnsInRanks):
        raise ConfigError(
            f"learner_cores must be 1 with algorithm {type(algorithm).__name__}, which has no "
            f"method join (arena.core.LearnsInRanks), got {ranks.number}"
        )
    weights, optimizer = algorithm.weights(), algorithm.optimizer_state()
    updates = int(all_of(ranks.exchange, algorithm.learner_updates)[0, 0])
    state = ranks.exchange(_flat(weights, optimizer))[0]
    if ranks.rank:
        sizes = [tensor.numel() for tensor in (*weights.values(), *optimizer.values())]
        parts = iter(torch.split(state, sizes))
        # The tensors follow the order of `_flat`.
        weights, optimizer = (
            {name: next(parts).view(tensor.shape) for name, tensor in tensors.items()}
            for tensors in (weights, optimizer)
        )
        algorithm.load(weights, optimizer, learner_updates=updates)
    algorithm.join(ranks.exchange)


def is_same_state(algorithm: Algorithm, ranks: Ranks) -> bool:
    """Return whether all ranks have the same state; each rank returns the same answer."""
    state = _flat(algorithm.weights(), algorithm.optimizer_state())
    digest = hashlib.sha256(state.numpy().tobytes()).digest()
    digests = ranks.exchange(torch.frombuffer(bytearray(digest), dtype=torch.uint8))
    return bool((digests == digests[0]).all())


def share_digests(own: Sequence[Digest], ranks: Ranks, *, number: int) -> tuple[Digest, ...]:
    """Return rank 0's digests in all ranks.

    Args:
        own: The digests in rank 0; not read in the others.
        ranks: The ranks.
        number: Number of digests.
    """
    sent = bytes.fromhex("".join(own)) if not ranks.rank else bytes(DIGEST_BYTES * number)
    got = ranks.exchange(torch.frombuffer(bytearray(sent), dtype=torch.uint8))[0]
    return tuple(Digest(bytes(part.tolist()).hex()) for part in got.view(number, DIGEST_BYTES))


def _flat(
    weights: Mapping[str, torch.Tensor], optimizer: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return all numbers of a state, one after the other. float32 [K]."""
    return torch.cat([tensor.flatten() for tensor in (*weights.values(), *optimizer.values())])


class RankResult(Part, frozen=True, kw_only=True):
    """A rank's part of the result of a training assignment.

    Attributes:
        tallies: Tallies of the matches.
        episodes: All episodes, matches or not.
        measures: Measurements of each trainee, in the order of the assignment.
        in_flight: Episodes that the next assignment may continue.
        dropped: Policies whose episodes in flight were dropped.
        lost: Numbers of lost episodes, as metrics: those dropped for lack of memory, and those
            whose environment broke.
    """

    tallies: tuple[Tally, ...]
    episodes: tuple[Tally, ...]
    measures: tuple[Measures, ...]
    in_flight: tuple[InFlight, ...]
    dropped: tuple[PolicyId, ...]
    lost: dict[str, Finite]


def merge_results(results: Sequence[RankResult]) -> RankResult:
    """Return the result of all ranks, as if one process had played all environments."""
    first = results[0]
    for other in results[1:]:
        for mine, theirs in zip(first.measures, other.measures, strict=True):
            mine.merge(theirs)
    lost: Counter[str] = Counter()
    for one in results:
        lost.update(one.lost)
    return RankResult(
        tallies=merge_tallies([tally for one in results for tally in one.tallies]),
        episodes=merge_tallies([tally for one in results for tally in one.episodes]),
        measures=first.measures,
        in_flight=_merge_in_flight([flight for one in results for flight in one.in_flight]),
        dropped=tuple(dict.fromkeys(name for one in results for name in one.dropped)),
        lost=dict(lost),
    )


def _merge_in_flight(parts: Sequence[InFlight]) -> tuple[InFlight, ...]:
    merged: dict[tuple[Entrant, ...], InFlight] = {}
    for part in parts:
        known = merged.get(part.entrants)
        num_envs = part.num_envs + (0 if known is None else known.num_envs)
        merged[part.entrants] = replace(part, num_envs=num_envs)
    return tuple(merged.values())
