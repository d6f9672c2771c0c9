"""The worker of a learner that cannot read the run's directory: it downloads, works and uploads.

The worker is the ordinary one: its store is a cache on this machine.

Tests: `tests/faults/test_store_process.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from arena.config import LearnerSetup
from arena.errors import CheckpointError, DiskRefused, StoreRefused, StoreUnreachable
from arena.learners.loop import MakeWork, Progress, Work
from arena.transfer.cache import Cache, take_directory
from arena.transfer.remote_store import Remote, RemoteStore
from arena.types import LearnerId
from arena.wire.keys import LearnerKeys
from arena.wire.messages import Assignment, Failed, Finished, named_references
from arena.wire.store_sockets import StoreConnection

MIB = 1 << 20


class RemoteWork:
    """A worker with a cache: downloads an assignment's checkpoints and uploads its results."""

    def __init__(
        self,
        work: Work,
        store: RemoteStore,
        *,
        should_stop: Callable[[], bool],
        close: Callable[[], object],
    ) -> None:
        self._work = work
        self._store = store
        self._should_stop = should_stop
        self._close = close

    @property
    def device(self) -> object:
        """Device of the worker."""
        return self._work.device

    def carry_out(self, assignment: Assignment) -> Finished | Failed:
        """Carry out an assignment; an unreachable store or full disk is a fault of kind
        ``place``.
        """
        began_s = time.perf_counter()
        try:
            self._store.fetch(named_references(assignment))
            fetched_s = time.perf_counter()
            result = self._work.carry_out(assignment)
            done_s = time.perf_counter()
            if isinstance(result, Failed):
                # The disk that the worker writes to is this machine's cache, not the run's store.
                return replace(result, kind="place") if result.kind == "storage" else result
            # The store gets checkpoints before the result is sent, because the controller reads
            # the checkpoints that a result names.
            self._store.give(one.checkpoint.key for one in result.checkpoints)
        except StoreRefused as error:
            return _failed(assignment, kind="storage", reason=str(error))
        except StoreUnreachable as error:
            kind = "stopped" if self._should_stop() else "place"
            return _failed(assignment, kind=kind, reason=str(error))
        except DiskRefused as error:
            return _failed(assignment, kind="place", reason=str(error))
        except CheckpointError as error:
            return _failed(assignment, kind="error", reason=str(error))
        metrics = {
            **result.metrics,
            **self._store.take_metrics(),
            "time/fetch_s": fetched_s - began_s,
            "time/give_s": time.perf_counter() - done_s,
        }
        # The duration of an assignment includes the transfers.
        waited_s = metrics["time/fetch_s"] + metrics["time/give_s"]
        return replace(result, metrics=metrics, duration_s=result.duration_s + waited_s)

    def close(self) -> None:
        """Release everything; the cache's files stay for the next learner."""
        self._work.close()
        self._close()


def remote_work(
    remote: Remote, make_work: MakeWork, *, learner: LearnerId, keys: LearnerKeys
) -> MakeWork:
    """Return a function that makes a worker whose store is remote."""

    def make(
        setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
    ) -> RemoteWork:
        root, held = take_directory(remote.cache / setup.run)
        connection = StoreConnection(remote.endpoint, run=setup.run, learner=learner, keys=keys)
        store = RemoteStore(
            connection,
            Cache(root, max_bytes=remote.cache_mb * MIB),
            on_progress=progress.advance,
            should_stop=should_stop,
        )

        def close() -> None:
            connection.close()
            os.close(held)

        here = setup.model_copy(update={"root": str(root)})
        work = make_work(here, progress=progress, should_stop=should_stop)
        return RemoteWork(work, store, should_stop=should_stop, close=close)

    return make


def _failed(assignment: Assignment, *, kind: str, reason: str) -> Failed:
    return Failed(
        assignment_id=assignment.assignment_id,
        attempt=assignment.attempt,
        kind=kind,
        reason=reason,
    )
