"""The environments of a learner: a batch for matches, and one for each team whose episodes go on.

Episodes in flight are a cache: dropped ones begin anew. Only the choice of the counted matches
depends on the cache; nothing else that is committed does.

Tests: `tests/arena/learners/work/test_episodes.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from arena.core import Actor
from arena.envs.base import BatchedEnv
from arena.processes.machine_memory import machine_bytes
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import Learning
from arena.types import Digest, Entrant, PolicyId, Seat, Seating
from arena.users_code import pass_interrupt
from arena.wire.messages import Train

logger = logging.getLogger(__name__)

MIB = 2**20

Team = tuple[PolicyId, ...]
"""Policies that train together."""


@dataclass(slots=True, kw_only=True, eq=False)
class HeldEpisodes:
    """Episodes of a team between two assignments.

    Attributes:
        env: Environments that they are played in.
        collector: Collector with their state.
        seatings: Seating of each block of the collector.
        actors: Frozen players of these seatings, by population and entrant.
        checkpoints: Digests of the team's checkpoints after which they go on.
    """

    env: BatchedEnv
    collector: Collector
    seatings: tuple[Seating, ...]
    actors: Mapping[tuple[str, Entrant], Actor]
    checkpoints: tuple[Digest, ...]

    def fits(self, message: Train, *, is_share: bool = False) -> bool:
        """Return whether an assignment continues these episodes.

        It does if it starts from the very weights of these episodes, and names exactly their
        seatings. An assignment that names none begins anew.

        Args:
            message: The assignment.
            is_share: Whether other ranks hold the assignment's other episodes and seatings.
        """
        starts = (trainee.checkpoint for trainee in message.trainees)
        here, named = self.in_flight.keys(), set(map(weights_of, message.carried))
        return (
            # A controller that names no episodes does not know them, or requests a fresh start.
            bool(named)
            and self.checkpoints == tuple(ref.digest for ref in starts if ref is not None)
            # The tallies may name only seatings that the message has.
            and (here <= named if is_share else here == named)
        )

    @property
    def in_flight(self) -> dict[tuple[str, ...], int]:
        """Count environments with an unfinished episode, by the weights that play
        (`weights_of`).
        """
        counts: dict[tuple[str, ...], int] = {}
        for block, num_envs in self.collector.in_flight().items():
            weights = weights_of(self.seatings[block])
            counts[weights] = counts.get(weights, 0) + num_envs
        return counts

    def seating_of(self, weights: tuple[str, ...]) -> Seating:
        """Return a seating in which these weights play."""
        return next(seating for seating in self.seatings if weights_of(seating) == weights)


def weights_of(seating: Seating) -> tuple[str, ...]:
    """Return the weights in each seat: a digest, a bot, or a policy that learns.

    Players with equal weights are the same opponents, whatever their names.
    """
    return tuple(player.entrant for player in seating.players)


class Environments:
    """Batches of environments, kept while they may be needed again.

    At most one batch is in use at a time: the one that `matches`, `take` or `begin` returned, until
    `hold`, `release` or `discard`. Batches are made until the process reaches its memory limit;
    then the least recently continued episodes are dropped. Owned by one thread.

    Args:
        make: Function that makes a batch for a lesson's training, or with None for matches.
        max_bytes: Memory of the process above which no more batches are made.
        resident_bytes: Function that returns the memory in use. None: this process's alone.
    """

    def __init__(
        self,
        make: Callable[[int | None], BatchedEnv],
        *,
        max_bytes: int,
        resident_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._make = make
        self._lesson = 0
        self._max_bytes = max_bytes
        self._resident_bytes = resident_bytes or own_bytes
        self._held: dict[Team, HeldEpisodes] = {}
        self._spare: list[BatchedEnv] = []
        self._matches: BatchedEnv | None = None
        self._in_use: BatchedEnv | None = None
        self._first_bytes = self._kept_bytes = 0
        self._dropped: list[PolicyId] = []
        self._num_dropped = 0

    def matches(self) -> BatchedEnv:
        """Return the batch that plays matches; it is reset for each of them."""
        if self._matches is None:
            self._matches = self._make(None)
        self._in_use = self._matches
        return self._matches

    def enter(self, lesson: int) -> None:
        """Train in a lesson from now on; close batches of other lessons, which ends their
        episodes.
        """
        if lesson == self._lesson:
            return
        self._lesson = lesson
        for env in self._spare:
            _close(env)
        self._spare = []
        # Episodes that end with a lesson are not counted as dropped.
        for held in self._held.values():
            _close(held.env)
        self._held = {}

    def take(self, team: Team) -> HeldEpisodes | None:
        """Return a team's held episodes, if any, and hold them no longer.

        Episodes of its policies with other teammates are dropped, because their weights will
        change.
        """
        held = self._held.pop(team, None)
        for other in [other for other in self._held if not set(team).isdisjoint(other)]:
            self._spare.append(self._held.pop(other).env)
        if held is not None:
            self._in_use = held.env
        return held

    def begin(self) -> BatchedEnv:
        """Return a batch to reset: a spare one, a new one, or the least recently held one."""
        # A spare batch is preferred to a new one, because memory that Python frees seldom returns
        # to the system.
        if self._spare:
            env = self._spare.pop()
        # The first batch is made even above the limit, because no work is possible without one.
        elif self._held and self._is_full():
            env = self._drop(why=self._memory())
        else:
            env = self._make(self._lesson)
        self._in_use = env
        return env

    def hold(self, team: Team, held: HeldEpisodes) -> None:
        """Keep a team's episodes for its next assignment."""
        self._in_use = None
        # `take` removed the key, so it is now the last one; the first key is the least recently
        # used team.
        self._held[team] = held
        # By the first batch the process has loaded all that it loads only once.
        if not self._first_bytes:
            self._first_bytes = self._resident_bytes()
            return
        most = max(self._max_bytes, self._kept_bytes)
        if len(self._held) > 1 and self._resident_bytes() > most:
            # Environments may grow while they are played, so the limit is checked here, too.
            _close(self._drop(why=self._memory()))
            # Freed memory may stay with the process, so dropping more episodes would not help.
            self._kept_bytes = self._resident_bytes()

    def release(self) -> None:
        """Give back the batch in use; its episodes do not continue."""
        # The batch for matches is never spare, because `begin` must not return it.
        if self._in_use is not None and self._in_use is not self._matches:
            self._spare.append(self._in_use)
        self._in_use = None

    def discard(self) -> None:
        """Close the batch in use after it broke."""
        env, self._in_use = self._in_use, None
        if env is None:
            return
        # `matches` makes a new batch then.
        if env is self._matches:
            self._matches = None
        _close(env)

    def lose(self) -> None:
        """Close all batches but the one in use: the processes that stepped them have ended."""
        # They are not counted as dropped for lack of memory, because the loss has its own error.
        for team, held in self._held.items():
            self._dropped += team
            _close(held.env)
        self._held = {}
        rest, self._spare = self._spare, []
        # A batch for matches stays if it is in use. It has the environments of all ranks, so
        # training must never take it for a spare one.
        if self._matches is not None and self._matches is not self._in_use:
            rest.append(self._matches)
            self._matches = None
        for env in rest:
            if env is not self._in_use:
                _close(env)

    def take_dropped(self) -> tuple[tuple[PolicyId, ...], int]:
        """Return the teams whose episodes were dropped since the last call, and the number of
        episodes that were dropped for lack of memory.
        """
        dropped = tuple(self._dropped), self._num_dropped
        self._dropped, self._num_dropped = [], 0
        return dropped

    def close(self) -> None:
        """Close all batches."""
        self.discard()
        rest = [*self._spare, *(held.env for held in self._held.values())]
        if self._matches is not None:
            rest.append(self._matches)
        self._held, self._spare, self._matches = {}, [], None
        for env in rest:
            _close(env)

    def _is_full(self) -> bool:
        """Return whether one more batch of average size would exceed the limit."""
        # m + (m - m_1) / (n - 1) > max: memory m with n batches, m_1 with one
        resident = self._resident_bytes()
        num_later = len(self._held) - 1
        # The first batch's memory includes one-time loads, so the cost per batch is that of later
        # ones.
        per_batch = (resident - self._first_bytes) / num_later if num_later > 0 else 0.0
        return resident + max(per_batch, 0.0) > self._max_bytes

    def _memory(self) -> str:
        resident, most = self._resident_bytes() // MIB, self._max_bytes // MIB
        return f"the process has {resident} MiB of at most {most}"

    def _drop(self, *, why: str) -> BatchedEnv:
        """Drop the episodes that were held longest, and return their environments."""
        team = next(iter(self._held))
        held = self._held.pop(team)
        num_episodes = sum(held.in_flight.values())
        self._dropped += team
        self._num_dropped += num_episodes
        logger.info(
            "%d episodes in flight of %s are dropped: %s", num_episodes, ", ".join(team), why
        )
        return held.env


def actors_in(
    blocks: Sequence[TrainingBlock], *, seats: Sequence[Seat]
) -> dict[tuple[str, Entrant], Actor]:
    """Return the frozen players of some blocks, by population and entrant."""
    return {
        (seat.population, entrant): player
        for block in blocks
        for seat, entrant, player in zip(seats, block.entrants, block.players, strict=True)
        if not isinstance(player, Learning)
    }


def default_max_bytes() -> int:
    """Return half of the machine's memory divided by its cores, with one learner on each core.

    In a container, the container's limit replaces the machine's memory.
    """
    return machine_bytes() // 2 // (os.cpu_count() or 1)


def own_bytes() -> int:
    """Return the memory that this process uses, in bytes."""
    return int(psutil.Process().memory_info().rss)


def _close(env: BatchedEnv) -> None:
    try:
        env.close()
    except BaseException as error:
        pass_interrupt(error)
        # Broken environments may fail to close; a new batch is made all the same.
        logger.exception("closing the environments failed")
