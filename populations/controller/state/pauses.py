"""A pause while the disk refuses checkpoints or ghosts or nothing finishes, and its tries to end.

It is nobody's fault, so nobody is blamed for it: assignments stay open and are done again as they
were. While the pause lasts nothing is given out. When its wait is over, ghosts are linked again and
one assignment is given out to see whether it can go on; if not, the next wait is twice as long. A
disk is tried without end. Where nothing finishes the run ends after some tries, but not before
three assignments could have been done, nor while a learner is there or coming that has not failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from arena.types import LearnerId, PlayerId, PolicyId
from populations.controller.state.epoch import Phase
from populations.controller.state.events import GhostsLinked, LinkGhosts, RemoveCheckpoints
from populations.controller.state.leases import Learner, Patience, Pause
from populations.controller.state.ledger import (
    NO_POLICYS,
    PLACES,
    STALLED_FAILURES,
    Ledger,
    Outcome,
)
from populations.controller.state.transaction import Transaction
from populations.records.rows import Json
from populations.records.tables import Tables


class Blame(Struct, kw_only=True):
    """Failures, whose fault they are, and the pause that they lead to. An epoch begins with none.

    Attributes:
        patience: How long a pause waits.
        least_s: Seconds that an assignment takes at least; 0: no time is known.
        ledger: Failures, and whose fault they are.
        pause: While the disk refuses checkpoints or ghosts, or nothing finishes.
        doublings: Doublings of a policy's budget, one for each assignment without an ended episode.
    """

    patience: Patience
    least_s: float
    ledger: Ledger = field(default_factory=Ledger)
    pause: Pause | None = None
    doublings: Counter[PolicyId] = field(default_factory=Counter)


def refuse(
    blame: Blame, tx: Transaction, *, reason: str, ghosts: tuple[PlayerId, ...] = ()
) -> None:
    """Give nothing out for a while after the disk refused something that was to last.

    Args:
        blame: Failures, and whose fault they are.
        tx: Takes the event.
        reason: Words of the disk.
        ghosts: Those that could not be linked.
    """
    # The disk is the better explanation of a run in which nothing finishes.
    if blame.pause is not None and not blame.pause.is_storage:
        blame.pause = None
    pause = _wait(blame, tx, reason=reason, is_storage=True)
    pause.unlinked.update(ghosts)
    pause.num_refusals += 1
    tx.add_event("storage_full", **_told(pause, tx, reason=reason))


def _wait(blame: Blame, tx: Transaction, *, reason: str, is_storage: bool) -> Pause:
    """Begin a pause, or wait for longer after a try that failed."""
    now_s, pause = tx.now.monotonic_s, blame.pause
    first_s, last_s = blame.patience.storage_s
    if pause is None:
        pause = blame.pause = Pause(
            reason=reason,
            since_s=now_s,
            wait_s=first_s,
            retry_at_s=now_s + first_s,
            is_storage=is_storage,
            failed_s=blame.ledger.failing_places(),
        )
    elif pause.is_trying:
        # Only a failed try makes the wait longer: work under way when the pause began is refused,
        # too.
        pause.wait_s = min(2.0 * pause.wait_s, last_s)
        pause.retry_at_s = now_s + pause.wait_s
        pause.tried_at_s = None
        pause.reason = reason
    return pause


def _told(pause: Pause, tx: Transaction, *, reason: str) -> dict[str, Json]:
    """Return the data of an event that tells of a pause."""
    now_s = tx.now.monotonic_s
    return {
        "reason": reason,
        "refusals": pause.num_refusals,
        "retry_in_s": round(pause.retry_at_s - now_s, 3),
        "paused_s": round(now_s - pause.since_s, 3),
    }


def follow(phase: Phase, blame: Blame, tx: Transaction) -> None:
    """Pause the run if nothing finishes any more, fail it after some tries, or let it go on."""
    failures = blame.ledger.stall()
    pause = blame.pause
    if pause is not None and pause.is_storage:
        return
    if not failures:
        if pause is not None:
            blame.pause = None
            tx.add_event("continued", **_told_at_end(pause, tx))
        return
    # Whoever has not failed yet may finish what it is at.
    places = {failure.place for failure in failures}
    others = [learner for learner in phase.crew.learners.values() if learner.place not in places]
    if any(learner.held for learner in others):
        return
    if pause is not None and not pause.is_trying:
        return
    reason = _reason(tx.tables, failures)
    pause = _wait(blame, tx, reason=reason, is_storage=False)
    is_long = tx.now.monotonic_s - failures[0].at_s >= STALLED_FAILURES * blame.least_s
    # Who serves only populations in which nobody trains any more may have nothing to do.
    trained = {row.population for row in tx.tables.policies.values() if row.state == "active"}
    served = (set(learner.hello.populations) for learner in others)
    others_may = any(not own or own & trained for own in served) or any(
        place not in places for place, _ in phase.crew.coming()
    )
    if pause.num_refusals >= blame.patience.max_tries and is_long and not others_may:
        phase.fail(tx, reason=reason)
        return
    pause.num_refusals += 1
    tx.add_event("paused", **_told(pause, tx, reason=reason))


def _reason(tables: Tables, failures: Sequence[Outcome]) -> str:
    """Say what is wrong where nothing finishes."""
    last = failures[-1]
    what = PLACES.get(last.kind, PLACES["error"])
    text = f"{what}: nothing has finished since {len(failures)} assignments failed in a row"
    active = [row for row in tables.policies.values() if row.state == "active"]
    suspects = {name for failure in failures for name in failure.suspects}
    if last.kind not in NO_POLICYS and len(active) == 1 and suspects:
        text += (
            f" (with {active[0].policy} alone nothing shows whether its weights and "
            "hyperparameters are to blame, or the environment and other code)"
        )
    return f"{text}; the last: {last.reason}"


def accept(blame: Blame, tx: Transaction) -> None:
    """End a pause for the disk if it was a try and a checkpoint or ghost could be written."""
    pause = blame.pause
    # While ghosts are not linked, assignments that name them would fail.
    if pause is None or not pause.is_storage or not pause.is_trying or pause.unlinked:
        return
    blame.pause = None
    tx.add_event("storage_recovered", **_told_at_end(pause, tx))
    # Some of these may have been refused too.
    doomed = tuple(row.key for row in tx.tables.checkpoints.values() if row.state == "doomed")
    if doomed:
        tx.commands.append(RemoveCheckpoints(keys=doomed))


def _told_at_end(pause: Pause, tx: Transaction) -> dict[str, Json]:
    """Return the data of an event that tells of a pause's end."""
    paused_s = round(tx.now.monotonic_s - pause.since_s, 3)
    return {"refusals": pause.num_refusals, "paused_s": paused_s}


def take_links(blame: Blame, tx: Transaction, event: GhostsLinked) -> None:
    """Note which ghosts the disk took, and which not."""
    pause = blame.pause
    if pause is not None:
        pause.unlinked.difference_update(event.players)
    if event.refused:
        refuse(blame, tx, reason=event.reason, ghosts=event.refused)
    elif event.players:
        accept(blame, tx)


def retry(pause: Pause | None, tx: Transaction) -> None:
    """Try again where it is time."""
    now_s = tx.now.monotonic_s
    if pause is None or pause.is_trying or now_s < pause.retry_at_s:
        return
    pause.tried_at_s = now_s
    # Sorted, for a set has no order.
    ghosts = tuple(tx.tables.ghosts[player] for player in sorted(pause.unlinked))
    if ghosts:
        tx.commands.append(LinkGhosts(ghosts=ghosts))


def may_give(learners: Mapping[LearnerId, Learner], pause: Pause | None) -> bool:
    """Return whether an assignment may be given out now: always, or one at a time for a try."""
    if pause is None:
        return True
    if pause.tried_at_s is None or pause.unlinked:
        return False
    # An assignment that was given since the try began is the try.
    tried_at_s = pause.tried_at_s
    return all(held.given_s < tried_at_s for learner in learners.values() for held in learner.held)


def is_unlinked(tables: Tables, pause: Pause | None, key: str) -> bool:
    """Return whether a missing directory is that of a ghost that the disk refused."""
    return pause is not None and any(tables.ghosts[player].key == key for player in pause.unlinked)
