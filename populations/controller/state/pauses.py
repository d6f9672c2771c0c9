"""Pauses of a run while the disk refuses checkpoints or ghosts, or while no assignment finishes.

Neither learners nor policies are blamed for the cause: assignments stay open and are given out
again. During a pause nothing is given out. After a wait comes a try: ghosts are linked again and
one assignment is given out; if it fails, the next wait is twice as long. A disk is tried without
end. If nothing finishes, the run ends after some tries, but not before three assignments could have
been done, nor while a learner has joined or is expected that has not failed.
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
        least_s: Least seconds that an assignment takes; 0: not known.
        ledger: Failures, and whose fault they are.
        pause: Pause while the disk refuses checkpoints or ghosts, or nothing finishes; else None.
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
    """Begin or extend a pause after the disk refused a checkpoint or ghosts.

    Args:
        blame: Failures, and whose fault they are.
        tx: Transaction that takes the event.
        reason: Error message of the disk.
        ghosts: Ghosts that could not be linked.
    """
    # A disk that refuses explains why nothing finishes, so its pause replaces the other kind.
    if blame.pause is not None and not blame.pause.is_storage:
        blame.pause = None
    pause = _wait(blame, tx, reason=reason, is_storage=True)
    pause.unlinked.update(ghosts)
    pause.num_refusals += 1
    tx.add_event("storage_full", **_told(pause, tx, reason=reason))


def _wait(blame: Blame, tx: Transaction, *, reason: str, is_storage: bool) -> Pause:
    """Begin a pause, or extend the present one after a failed try."""
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
        # Refusals of work that was under way when the pause began do not double the wait; only a
        # failed try does.
        pause.wait_s = min(2.0 * pause.wait_s, last_s)
        pause.retry_at_s = now_s + pause.wait_s
        pause.tried_at_s = None
        pause.reason = reason
    return pause


def _told(pause: Pause, tx: Transaction, *, reason: str) -> dict[str, Json]:
    """Return the data of an event about a pause."""
    now_s = tx.now.monotonic_s
    return {
        "reason": reason,
        "refusals": pause.num_refusals,
        "retry_in_s": round(pause.retry_at_s - now_s, 3),
        "paused_s": round(now_s - pause.since_s, 3),
    }


def follow(phase: Phase, blame: Blame, tx: Transaction) -> None:
    """Pause the run if nothing finishes any more, fail it after some tries, or end the pause."""
    failures = blame.ledger.stall()
    pause = blame.pause
    if pause is not None and pause.is_storage:
        return
    if not failures:
        if pause is not None:
            blame.pause = None
            tx.add_event("continued", **_told_at_end(pause, tx))
        return
    # A learner whose place has not failed yet may still finish its assignment, so wait for it.
    places = {failure.place for failure in failures}
    others = [learner for learner in phase.crew.learners.values() if learner.place not in places]
    if any(learner.held for learner in others):
        return
    if pause is not None and not pause.is_trying:
        return
    reason = _reason(tx.tables, failures)
    pause = _wait(blame, tx, reason=reason, is_storage=False)
    is_long = tx.now.monotonic_s - failures[0].at_s >= STALLED_FAILURES * blame.least_s
    # A learner that serves only populations without an active policy may get nothing to do, so it
    # is no reason to wait.
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
    """Return why nothing finishes, in words."""
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
    """End a pause for the disk if a try is under way; call it after something was written."""
    pause = blame.pause
    # The pause goes on until all ghosts are linked, as assignments that name them would fail.
    if pause is None or not pause.is_storage or not pause.is_trying or pause.unlinked:
        return
    blame.pause = None
    tx.add_event("storage_recovered", **_told_at_end(pause, tx))
    # The disk may have refused removals during the pause, too, so they are repeated.
    doomed = tuple(row.key for row in tx.tables.checkpoints.values() if row.state == "doomed")
    if doomed:
        tx.commands.append(RemoveCheckpoints(keys=doomed))


def _told_at_end(pause: Pause, tx: Transaction) -> dict[str, Json]:
    """Return the data of an event about the end of a pause."""
    paused_s = round(tx.now.monotonic_s - pause.since_s, 3)
    return {"refusals": pause.num_refusals, "paused_s": paused_s}


def take_links(blame: Blame, tx: Transaction, event: GhostsLinked) -> None:
    """Record which ghosts were linked and which the disk refused."""
    pause = blame.pause
    if pause is not None:
        pause.unlinked.difference_update(event.players)
    if event.refused:
        refuse(blame, tx, reason=event.reason, ghosts=event.refused)
    elif event.players:
        accept(blame, tx)


def retry(pause: Pause | None, tx: Transaction) -> None:
    """Begin the next try of a pause if its wait is over."""
    now_s = tx.now.monotonic_s
    if pause is None or pause.is_trying or now_s < pause.retry_at_s:
        return
    pause.tried_at_s = now_s
    # A set has no order, so the ghosts are sorted.
    ghosts = tuple(tx.tables.ghosts[player] for player in sorted(pause.unlinked))
    if ghosts:
        tx.commands.append(LinkGhosts(ghosts=ghosts))


def may_give(learners: Mapping[LearnerId, Learner], pause: Pause | None) -> bool:
    """Return whether an assignment may be given out: without a pause any, in a try only one."""
    if pause is None:
        return True
    if pause.tried_at_s is None or pause.unlinked:
        return False
    # A try is one assignment, so none is given out while one that was given since it began is open.
    tried_at_s = pause.tried_at_s
    return all(held.given_s < tried_at_s for learner in learners.values() for held in learner.held)


def is_unlinked(tables: Tables, pause: Pause | None, key: str) -> bool:
    """Return whether ``key`` is the directory of a ghost that the disk has refused to link."""
    return pause is not None and any(tables.ghosts[player].key == key for player in pause.unlinked)
