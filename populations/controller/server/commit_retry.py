"""Commits that wait for space, and what must not be committed at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from arena.wire.messages import Evaluate, Train
from populations.config.message_sizes import check_sendable
from populations.controller.state.commands import Command, SendMessage
from populations.errors import StorageUnavailable
from populations.records.aggregates import Row
from populations.storage.journal import Journal

logger = logging.getLogger(__name__)

STORAGE_GRACE_S = 60.0
"""How long a journal without room is waited for before the run ends."""

RETRY_S = 0.5


def commit_patiently(
    journal: Journal,
    rows: Sequence[Row],
    *,
    should_end: Callable[[], bool],
    tell: Callable[[str], None],
    clock: Callable[[], float],
    wait: Callable[[float], None],
) -> None:
    """Commit rows, and while the disk is full or read-only try these very rows again.

    Args:
        journal: Journal that takes the rows.
        rows: Rows of one event.
        should_end: Whether nobody wants to wait any longer.
        tell: Told why at each failure.
        clock: Monotonic, in seconds.
        wait: Sleeps for some seconds.

    Raises:
        StorageUnavailable: If that lasts longer than `STORAGE_GRACE_S`; nothing was committed.
        StorageError: At once, if the disk fails otherwise: a failed fsync is never tried again.
    """
    began_s: float | None = None
    # Nothing else is handled meanwhile: the state in memory is ahead of the journal until the rows
    # are in it, and what they acknowledge or send has to wait.
    while True:
        try:
            journal.commit(rows)
        except StorageUnavailable as error:
            now_s = clock()
            # The time without room counts from the first refusal.
            began_s = now_s if began_s is None else began_s
            if should_end() or now_s - began_s >= STORAGE_GRACE_S:
                raise StorageUnavailable(
                    f"{error}, for {now_s - began_s:.0f} s. Nothing that was acknowledged is lost: "
                    "make room and go on with --resume"
                ) from error
            logger.error("the journal waits for room: %s", error)
            tell(str(error))
            wait(RETRY_S)
        else:
            if began_s is not None:
                logger.warning("the journal has room again after %.1f s", clock() - began_s)
            return


def check_commands(commands: Iterable[Command]) -> None:
    """Refuse assignments that cannot be sent, before they are journaled.

    Raises:
        WireError: Saying why.
    """
    # A journaled one would be sent again by each resume.
    for command in commands:
        if isinstance(command, SendMessage) and isinstance(command.message, Train | Evaluate):
            check_sendable(command.message)
