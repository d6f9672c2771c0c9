"""A pause while the disk refuses checkpoints or ghosts, and the tries that end it.

It is nobody's fault, so nobody is blamed for it: assignments stay open and are done again as they
were. While the pause lasts nothing is given out. When its wait is over, ghosts are linked again and
one assignment is given out to see whether there is room; if not, the next wait is twice as long.
"""

from __future__ import annotations

from arena.types import PlayerId
from populations.controller.state.commands import LinkGhosts, RemoveCheckpoints
from populations.controller.state.events import GhostsLinked
from populations.controller.state.leases import Pause
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction


def refuse(
    state: ControllerState, tx: Transaction, *, reason: str, ghosts: tuple[PlayerId, ...] = ()
) -> None:
    """Give nothing out for a while after the disk refused something that was to last.

    Args:
        state: State of the controller.
        tx: Takes the event.
        reason: Words of the disk.
        ghosts: Those that could not be linked.
    """
    now_s, pause = tx.now.monotonic_s, state.pause
    first_s, last_s = state.patience.storage_s
    if pause is None:
        pause = state.pause = Pause(
            reason=reason, since_s=now_s, wait_s=first_s, retry_at_s=now_s + first_s
        )
    elif pause.is_trying:
        # Only a failed try makes the wait longer: work under way when the pause began is refused,
        # too.
        pause.wait_s = min(2.0 * pause.wait_s, last_s)
        pause.retry_at_s = now_s + pause.wait_s
        pause.tried_at_s = None
        pause.reason = reason
    pause.unlinked.update(ghosts)
    pause.num_refusals += 1
    tx.add_event(
        "storage_full",
        reason=reason,
        refusals=pause.num_refusals,
        retry_in_s=round(pause.retry_at_s - now_s, 3),
        paused_s=round(now_s - pause.since_s, 3),
    )


def accept(state: ControllerState, tx: Transaction) -> None:
    """End the pause if it was a try and a checkpoint or ghost could be written."""
    pause = state.pause
    # While ghosts are not linked, assignments that name them would fail.
    if pause is None or not pause.is_trying or pause.unlinked:
        return
    state.pause = None
    tx.add_event(
        "storage_recovered",
        refusals=pause.num_refusals,
        paused_s=round(tx.now.monotonic_s - pause.since_s, 3),
    )
    # Some of these may have been refused too.
    doomed = tuple(row.key for row in state.tables.checkpoints.values() if row.state == "doomed")
    if doomed:
        tx.commands.append(RemoveCheckpoints(keys=doomed))


def take_links(state: ControllerState, tx: Transaction, event: GhostsLinked) -> None:
    """Note which ghosts the disk took, and which not."""
    pause = state.pause
    if pause is not None:
        pause.unlinked.difference_update(event.players)
    if event.refused:
        refuse(state, tx, reason=event.reason, ghosts=event.refused)
    elif event.players:
        accept(state, tx)


def retry(state: ControllerState, tx: Transaction) -> None:
    """Try again where it is time."""
    pause, now_s = state.pause, tx.now.monotonic_s
    if pause is None or pause.is_trying or now_s < pause.retry_at_s:
        return
    pause.tried_at_s = now_s
    # Sorted, for a set has no order.
    ghosts = tuple(state.tables.ghosts[player] for player in sorted(pause.unlinked))
    if ghosts:
        tx.commands.append(LinkGhosts(ghosts=ghosts))


def may_give(state: ControllerState) -> bool:
    """Return whether an assignment may be given out now: always, or one at a time for a try."""
    pause = state.pause
    if pause is None:
        return True
    if pause.tried_at_s is None or pause.unlinked:
        return False
    # An assignment that was given since the try began is the try.
    tried_at_s = pause.tried_at_s
    learners = state.learners.values()
    return all(held.given_s < tried_at_s for learner in learners for held in learner.held)


def is_unlinked(state: ControllerState, key: str) -> bool:
    """Return whether a missing directory is that of a ghost that the disk refused."""
    pause = state.pause
    return pause is not None and any(
        state.tables.ghosts[player].key == key for player in pause.unlinked
    )
