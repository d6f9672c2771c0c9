"""Launcher of learners as actors of a Ray cluster, one per slot.

Ray places each actor on a node with enough resources; while there is none, the actor is pending. It
gets configuration, endpoints and a key as text, and connects to the controller like every other
learner. Its node needs no access to the run's directory.

Tests: `tests/contracts/test_launchers.py`, `tests/integration/test_ray.py`.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from arena.config import LearnerSetup
from arena.wire.keys import holder_of
from arena.wire.messages import Hello
from populations.config.sections import RayConfig
from populations.launchers.local import slot_name
from populations.launchers.ray_actor import LearnerActor

logger = logging.getLogger(__name__)

END_S = 10.0
"""Longest time to wait for the end of killed learners."""

_WATCH = "watch"
_NUM_STARTS = 10**6
"""Number of starts after which names of keys repeat."""

FAILED_START = 1
"""Exit code of a learner whose actor could not be made."""


@dataclass(slots=True, kw_only=True)
class _Learner:
    """Actor of a slot.

    Attributes:
        key: Name of the learner's key.
        actor: Handle of the actor.
        place: Location as JSON, once the actor is on a node.
        end: Exit code of the learner, or an exception if the actor has died.
    """

    key: str
    actor: Any
    place: Future[str]
    end: Future[int]

    @property
    def has_place(self) -> bool:
        """Return whether the actor was started on a node; it may have ended since."""
        return self.place.done() and self.place.exception() is None


class RayLauncher:
    """Launcher of learners as Ray actors. Ray must be connected as long as it is used."""

    def __init__(
        self,
        *,
        setup: LearnerSetup,
        resources: RayConfig,
        endpoint: str,
        store: str,
        logs: Path | None,
        admit: Callable[[str], str],
        forget: Callable[[str], None],
    ) -> None:
        """Store the arguments; no actor is made.

        Args:
            setup: Setup of learners.
            resources: Resources that each learner needs.
            endpoint: Address that learners connect to.
            store: Address of the store, for learners without access to the run's directory.
            logs: Directory of logs; None: nodes cannot write there, and use Ray's log directory.
            admit: Function that makes and admits a key of the given name; returns its file's text.
            forget: Function that revokes the key of the given name.
        """
        self._ray = import_module("ray")
        # `wait` blocks until the learner's end, so it has a thread of its own in the actor.
        self._make_actor = self._ray.remote(concurrency_groups={_WATCH: 1})(LearnerActor).options(
            num_cpus=resources.num_cpus,
            num_gpus=resources.num_gpus,
            resources=dict(resources.custom),
            # The controller itself plans restarts, each with a new key.
            max_restarts=0,
        )
        self._setup = setup
        self._endpoint = endpoint
        self._store = store
        self._cache_mb = resources.cache_mb
        self._logs = logs
        self._admit = admit
        self._forget = forget
        self._num_started = 0
        self._learners: dict[int, _Learner] = {}
        self._dying: list[tuple[Any, Future[None], float]] = []
        """Actors that are killing their learners, each with a future of its end and a deadline."""

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        """Request an actor for a slot, after killing its predecessor there."""
        self.kill(slot)
        # Each start has a new key, so that a disconnected predecessor cannot act for the slot.
        self._num_started = (self._num_started + 1) % _NUM_STARTS
        key = f"slot{slot}-{self._num_started}"
        actor = self._make_actor.remote(
            name=self._log_name(slot),
            setup=self._setup.model_dump_json(),
            endpoint=self._endpoint,
            store=self._store,
            cache_mb=str(self._cache_mb),
            populations=",".join(populations),
            key=self._admit(key),
            logs="" if self._logs is None else str(self._logs),
        )
        self._learners[slot] = _Learner(
            key=key,
            actor=actor,
            place=actor.place.remote().future(),
            end=actor.wait.options(concurrency_group=_WATCH).remote().future(),
        )
        self._learners[slot].place.add_done_callback(partial(_log_place, key))

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        """End a slot's actor and its learner: at once, or after the time for writing stacks."""
        # The learner is removed here, so that `exited` does not report it.
        learner = self._learners.pop(slot, None)
        if learner is None:
            return
        self._forget(learner.key)
        if learner.has_place:
            killed = learner.actor.kill.remote(dump_stacks).future()
            self._dying.append((learner.actor, killed, time.monotonic() + END_S))
        else:
            self._ray.kill(learner.actor)

    def slot_of(self, hello: Hello) -> int | None:
        """Return the slot of one of these learners, by its key."""
        holder = holder_of(hello.learner)
        found = (slot for slot, learner in self._learners.items() if learner.key == holder)
        return next(found, None)

    def waiting(self) -> Collection[int]:
        """Return slots whose actor has no node yet."""
        return [slot for slot, learner in self._learners.items() if not learner.place.done()]

    def exited(self) -> list[tuple[int, int | None]]:
        """Return slots whose learner has ended since the last call, with exit codes (-n: signal n).

        The exit code is None if the actor has died with its node, or by Ray.
        """
        self._end_dying(now_s=time.monotonic())
        ended = [(slot, one) for slot, one in self._learners.items() if one.end.done()]
        for slot, learner in ended:
            del self._learners[slot]
            self._forget(learner.key)
            # An actor does not end with its learner.
            self._ray.kill(learner.actor)
            if (error := learner.end.exception()) is not None:
                logger.warning("%s: %s", slot_name(slot), error)
        return [(slot, self._code(learner)) for slot, learner in ended]

    def close(self) -> None:
        """Kill all remaining learners, and wait for their end."""
        # The list is a copy, because `kill` removes entries.
        for slot in list(self._learners):
            self.kill(slot)
        _, left = wait([killed for _, killed, _ in self._dying], timeout=END_S)
        if left:
            logger.warning("%d learners did not end within %.0f s", len(left), END_S)
        self._end_dying(now_s=math.inf)

    def _log_name(self, slot: int) -> str:
        # Ray's log directory is shared with other runs, so a log there is named after its run.
        return slot_name(slot) if self._logs else f"arena-{self._setup.run[:8]}-{slot_name(slot)}"

    def _code(self, learner: _Learner) -> int | None:
        error = learner.end.exception()
        if error is None:
            return learner.end.result()
        errors = self._ray.exceptions
        # If a node runs out of memory, Ray kills a worker, like the kernel by SIGKILL.
        if isinstance(error, errors.OutOfMemoryError):
            return -signal.SIGKILL
        # The actor is lost if it died with its node, or the node does not answer. Otherwise its
        # constructor raised an error, for example because Arena is not installed on the node.
        is_lost = isinstance(error, errors.RayActorError) and not error.actor_init_failed
        return None if is_lost else FAILED_START

    def _end_dying(self, *, now_s: float) -> None:
        """End the actors whose learners have ended, or have taken too long to end."""
        for dying in list(self._dying):
            actor, killed, until_s = dying
            if killed.done() or now_s >= until_s:
                # Ending the actor ends its learner, even if the actor has not answered.
                self._ray.kill(actor)
                self._dying.remove(dying)


def _log_place(key: str, place: Future[str]) -> None:
    if place.exception() is None:
        logger.info("%s has a place: %s", key, place.result())
