"""Life of learners: they join, leave, are lost or dismissed, and their processes are replaced."""

from __future__ import annotations

import signal
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from arena.learners.versions import Differences, differences, pip_command, told
from arena.types import Digest, LearnerId
from arena.wire.messages import Hello, Refuse, Stop, Welcome
from populations.config.run_config import RunConfig
from populations.controller.assignments import failures
from populations.controller.assignments.jobs import forget_learner
from populations.controller.monitoring import alerts
from populations.controller.state import pauses
from populations.controller.state.epoch import Phase, Settings
from populations.controller.state.events import (
    HeartbeatReceived,
    KillLearner,
    LearnerJoined,
    StartLearner,
    Ticked,
)
from populations.controller.state.leases import (
    Crew,
    Fault,
    Learner,
    Pause,
    forgive,
    overdue,
    slot_place,
)
from populations.controller.state.ledger import OWN_PLACE, STORAGE, Ledger
from populations.controller.state.pauses import Blame
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.hooks.findings import Finding
from populations.records.tables import Tables

MAX_CHARGES = 2
"""Charges in a row after which a learner is at fault, if other places finish assignments."""

MAX_GONE = 4096
REFUSED_EVERY_S = 1.0
"""Seconds between two events about refused learners, which bounds the commits that a flood of
Hellos makes."""


def place_of(learner_id: LearnerId, hello: Hello, *, slot: int | None) -> str:
    """Return the place of a learner: its slot, else the name of its key, else its host."""
    if slot is not None:
        return slot_place(slot)
    holder, has_key, _ = learner_id.partition(".")
    return holder if has_key else f"host {hello.host}"


def staff(phase: Phase, tx: Transaction) -> None:
    """Start a process in each empty slot whose start time has come."""
    if phase.name not in ("training", "evaluating"):
        return
    for index, slot in enumerate(phase.crew.slots):
        if slot.started_s is None and tx.now.monotonic_s >= slot.start_at_s:
            slot.started_s = tx.now.monotonic_s
            tx.commands.append(StartLearner(slot=index, populations=slot.populations))


def join(state: ControllerState, tx: Transaction, event: LearnerJoined) -> None:
    """Accept a learner that has sent a Hello, or send it the reason why it is refused."""
    crew, hello, now_s = state.crew, event.hello, tx.now.monotonic_s
    if event.learner in crew.gone:
        fence(state.phase, state.blame, tx, event.learner)
        return
    # A learner sends its Hello again if the Welcome was lost, so its leases stay.
    known = crew.learners.get(event.learner)
    if known is None:
        waits = _time_out(crew, event, now_s=now_s)
        refusal = waits or _refusal(state.settings, state.tables, hello)
        if refusal is not None:
            if now_s - crew.refused_at_s >= REFUSED_EVERY_S:
                crew.refused_at_s = now_s
                tx.add_event("learner_refused", event.learner, reason=refusal)
            tx.send(event.learner, Refuse(reason=refusal, again=waits is not None))
            return
        place = place_of(event.learner, hello, slot=event.slot)
        crew.learners[event.learner] = Learner(
            hello=hello, slot=event.slot, place=place, last_heard_s=now_s
        )
        # A Hello shows that processes can start, so the count of failed starts in a row ends.
        crew.failed_starts = 0
        if event.slot is not None:
            crew.slots[event.slot].learner = event.learner
        record_group(state.settings.config, tx, hello.proof)
        record_device(state.tables, tx, event.learner, hello)
        versions = other_versions(state.settings.versions, hello)
        tx.add_event(
            "learner_joined",
            event.learner,
            pid=hello.pid,
            host=hello.host,
            device=hello.device,
            populations=list(hello.populations),
            proof=hello.proof,
            versions={name: list(pair) for name, pair in versions.items()},
        )
    else:
        known.last_heard_s = now_s
    heartbeat_s = crew.patience.heartbeat_among_s(len(crew.learners))
    tx.send(event.learner, Welcome(heartbeat_s=heartbeat_s))
    if state.phase.name == "stopping":
        tx.send(event.learner, Stop(grace_s=crew.patience.grace_s))


DEVICES = frozenset({"cpu", "cuda", "mps"})
"""Kinds of devices that the run records; all others are recorded as ``other``."""


def other_versions(versions: Mapping[str, str], hello: Hello) -> Differences:
    """Return the packages that a learner has in other versions than the run records."""
    # Learners report versions only in runs that other machines can join.
    return {} if hello.versions is None else differences(versions, hello.versions)


def advice(settings: Settings, hello: Hello) -> str:
    """Return the end of a refusal: which versions differ, and the command that installs them."""
    different = other_versions(settings.versions, hello)
    if different:
        versions = told(different, place="the learner has")
        return f"; packages of other versions: {versions}: {pip_command(different)}"
    return "" if hello.versions is None else "; its packages have the versions of the run"


def group_refusal(settings: Settings, tables: Tables, hello: Hello) -> str | None:
    """Return why a learner's results would differ from the run's, in words; None: they agree."""
    group = tables.run.proof
    # Only deterministic runs have a proof (`record_group`).
    if not group or hello.proof == group:
        return None
    theirs = "this one has none" if hello.proof is None else f"this one's has {hello.proof[:8]}"
    return (
        f"results differ: the proof of the run's learners has digest {group[:8]}, {theirs}, and "
        "where deterministic is true all must agree bit by bit; usually the CPU type or the "
        f"version of torch differs, or the environment ignores its seed{advice(settings, hello)}"
    )


def record_group(config: RunConfig, tx: Transaction, proof: Digest | None) -> None:
    """Record the first learner's proof in a deterministic run, with which all others must agree."""
    if config.deterministic and proof is not None and not tx.tables.run.proof:
        tx.put(replace(tx.tables.run, proof=proof))


def record_device(tables: Tables, tx: Transaction, learner: LearnerId, hello: Hello) -> None:
    """Record the kind of a learner's device, with an event if it is new after a resume."""
    # The number of a GPU is left out, because it does not influence results.
    kind, run = hello.device.partition(":")[0], tables.run
    # Unknown names become ``other``, as a faulty learner could fill the journal with new ones.
    kind = kind if kind in DEVICES else "other"
    if kind in run.devices:
        return
    tx.put(replace(run, devices=(*run.devices, kind)))
    # Without a recorded kind there is nothing to compare with: no learner has joined before.
    if run.epoch > 1 and run.devices:
        tx.add_event("device_differs", learner, device=kind, before=list(run.devices))


def fence(phase: Phase, blame: Blame, tx: Transaction, learner_id: LearnerId) -> None:
    """Refuse a learner that was given up: its assignments have been given to other learners."""
    blamed = phase.crew.gone.get(learner_id)
    if blamed is not None:
        phase.crew.gone[learner_id] = None
        # Its message shows that only its connection was cut, so its loss is held against nobody.
        blame.ledger.withdraw(blamed)
        pauses.follow(phase, blame, tx)
    reason = "fenced: this learner was given up, or is of another epoch"
    tx.send(learner_id, Refuse(reason=reason, again=True))


def hear(phase: Phase, tx: Transaction, event: HeartbeatReceived) -> None:
    """Record a learner's heartbeat: it is alive, and how far it is."""
    learner = phase.crew.learners.get(event.learner)
    if learner is None:
        return
    learner.hear(event.heartbeat, now_s=tx.now.monotonic_s)
    if phase.name == "stopping":
        # The learner may have missed the first Stop, and the run's end waits for it.
        tx.send(event.learner, Stop(grace_s=phase.crew.patience.grace_s))


def _time_out(crew: Crew, event: LearnerJoined, *, now_s: float) -> str | None:
    """Return why a learner that the run did not start has to wait; None if it need not."""
    fault = crew.faults.get(place_of(event.learner, event.hello, slot=event.slot))
    # Processes of the launcher wait by the backoff of their slot instead.
    if fault is not None and event.slot is None and now_s < fault.until_s:
        return fault.reason
    return None


def _refusal(settings: Settings, tables: Tables, hello: Hello) -> str | None:
    setup = settings.setup
    for what, ours, theirs in (
        ("environment", setup.spec.digest, hello.environment_digest),
        ("configuration", setup.digest, hello.config_digest),
    ):
        if theirs != ours:
            return (
                f"{what} differs: the run's has digest {ours[:8]}, the learner's {theirs[:8]}"
                f"{advice(settings, hello)}"
            )
    # A learner without a store downloads checkpoints, if the run serves them.
    is_remote = hello.store is None and settings.config.serves_store
    if settings.store is not None and hello.store != settings.store and not is_remote:
        return (
            "this learner does not see the run's checkpoints: set remote_learners, so that they "
            f"are served, or mount the directory {setup.root} of the controller's machine "
            "on this one, and give arena learner the run.yaml in it, not a copy"
        )
    if unknown := set(hello.populations) - set(setup.populations):
        return f"unknown populations {sorted(unknown)}: the run has {sorted(setup.populations)}"
    # Results are compared last: other packages or another environment change them, too, and are
    # the more useful reason.
    return group_refusal(settings, tables, hello)


def lose(
    state: ControllerState,
    tx: Transaction,
    learner_id: LearnerId,
    *,
    reason: str,
    crash: bool = False,
    unreachable: bool = False,
    with_node: bool = False,
    dump_stacks: bool = False,
) -> None:
    """Remove a learner; its assignments are given out again with the next attempt number.

    Args:
        state: State of the controller.
        tx: Transaction that takes the changes.
        learner_id: Learner that is lost.
        reason: Reason, in words.
        crash: Whether it did not leave by itself: then it is killed, and its running assignment
            counts as failed.
        unreachable: Whether only its network connection may be cut.
        with_node: Whether it was lost with its machine, for which no assignment is to blame.
        dump_stacks: Whether it is to write its stacks to the log before the kill.
    """
    crew = state.crew
    if learner_id not in crew.learners:
        return
    forget_learner(state.indexes.retention, crew, learner_id)
    learner = crew.learners.pop(learner_id)
    # The rows stay open: without a holder, `fill` gives them out again.
    for held in learner.held:
        del crew.holders[held.assignment_id]
    crew.gone[learner_id] = None
    # Dictionaries are in order of insertion, so the learner that left first is forgotten.
    if len(crew.gone) > MAX_GONE:
        del crew.gone[next(iter(crew.gone))]
    tx.add_event(
        "learner_lost" if crash or with_node else "learner_left",
        learner_id,
        reason=reason,
        assignments=[held.assignment_id for held in learner.held],
    )
    # The crash is held against the first assignment only, as the queued one was not running.
    if crash and learner.held:
        assignment = state.tables.assignments.get(learner.held[0].assignment_id)
        if assignment is not None:
            lost = f"its learner was lost: {reason}"
            blamed = failures.lose_row(
                state, tx, learner, assignment, reason=lost, unreachable=unreachable
            )
            # A process of the launcher is killed, so only one from elsewhere may be heard again.
            if unreachable and learner.slot is None:
                crew.gone[learner_id] = blamed
    if learner.slot is None or with_node:
        return
    # If a newer process has joined from the slot meanwhile, it must not be killed.
    if crew.slots[learner.slot].learner == learner_id:
        if crash:
            tx.commands.append(KillLearner(slot=learner.slot, dump_stacks=dump_stacks))
        _plan_restart(crew, tx, learner.slot)


def give_up_unreachable(state: ControllerState, tx: Transaction, learner_id: LearnerId) -> None:
    """Remove a learner to which an assignment could not be sent, unless the launcher started it."""
    learner = state.crew.learners.get(learner_id)
    # The launcher reports when its processes end; those that hang are found by their silence.
    if learner is not None and learner.slot is None:
        reason = "an assignment could not be sent to it"
        lose(state, tx, learner_id, reason=reason, crash=True, unreachable=True)


def renew(state: ControllerState, tx: Transaction, learner_id: LearnerId) -> None:
    """Replace a learner's process, to find whether a failure is of the process or of a policy."""
    slot = state.crew.learners[learner_id].slot
    assert slot is not None, "only the launcher's processes can be started"
    tx.commands.append(KillLearner(slot=slot))
    lose(state, tx, learner_id, reason="started anew, to see if another process fails alike")


def _is_at_fault(ledger: Ledger, learner: Learner) -> bool:
    """Return whether a learner is to blame for its failures in a row.

    It is if other places have finished assignments meanwhile, or if several policies failed on it.
    """
    charges = ledger.charges_of(learner.hello.learner)
    if len(charges) < MAX_CHARGES:
        return False
    # These failures are of its own disk or network, for which a pause before the next try may help.
    if sum(charge.kind == OWN_PLACE for charge in charges) >= MAX_CHARGES:
        return True
    # A full disk affects all policies alike, so failures of storage are left out.
    about = {charge.suspects for charge in charges if charge.kind != STORAGE}
    return len(about) > 1 or ledger.has_finished_elsewhere(charges[0])


def dismiss_if_at_fault(state: ControllerState, tx: Transaction, learner_id: LearnerId) -> None:
    """Dismiss a learner if it is at fault.

    A process of the launcher is started again after growing pauses; a learner from elsewhere is
    sent the reason, and refused for a while.
    """
    crew, ledger = state.crew, state.blame.ledger
    learner = crew.learners[learner_id]
    if not _is_at_fault(ledger, learner):
        return
    place, charges = learner.place, ledger.charges_of(learner_id)
    times = 1 + (crew.faults[place].times if place in crew.faults else 0)
    reason = (
        f"{len(charges)} assignments in a row failed on this learner and not on others; the last: "
        f"{charges[-1].reason}"
    )
    if learner.slot is None:
        reason += f". Mend that and join again in {crew.patience.refused_s:.0f} s or later"
    until_s = tx.now.monotonic_s + crew.patience.refused_s
    crew.faults[place] = Fault(times=times, reason=reason, until_s=until_s)
    tx.add_event(
        "learner_dismissed",
        learner_id,
        place=place,
        times=times,
        reason=reason,
        failures=[charge.kind for charge in charges],
        assignments=[charge.assignment_id for charge in charges],
    )
    what = f"{learner_id} ({place}) was sent away {times} times: {reason}"
    alerts.record(state.measured, tx, Finding("learner_failing", "", place, what))
    if learner.slot is None:
        tx.send(learner_id, Refuse(reason=reason, again=True))
    else:
        tx.commands.append(KillLearner(slot=learner.slot))
    # This is not a crash, so the running assignment is not counted as failed.
    lose(state, tx, learner_id, reason="sent away, for it was at fault")


def exit_slot(
    state: ControllerState, tx: Transaction, *, slot_index: int, code: int | None
) -> None:
    """Record that the process in a slot has ended; ``code`` None: it was lost with its machine."""
    slot = state.crew.slots[slot_index]
    if code is None:
        if slot.learner is not None:
            lose(state, tx, slot.learner, reason="its node was lost", with_node=True)
        # The loss of a machine is neither a crash nor a failed start, so there is no backoff.
        slot.vacate(start_at_s=tx.now.monotonic_s)
    elif slot.learner is not None:
        how = f"killed by signal {-code}" if code < 0 else f"exited with code {code}"
        learner = state.crew.learners.get(slot.learner)
        growth = learner.memory_growth() if learner is not None else None
        # The out-of-memory killer sends SIGKILL and leaves no message, so growth must hint at it.
        if code == -signal.SIGKILL and growth is not None:
            how += f", probably out of memory: {growth}"
        lose(state, tx, slot.learner, reason=how, crash=True)
    elif slot.started_s is not None:
        reason = f"ended with code {code} before its Hello"
        _count_failed_start(state.phase, tx, slot_index, reason=reason)


def forgive_gap(phase: Phase, pause: Pause | None, tx: Transaction) -> None:
    """Extend all timeouts by a long gap in the controller's own loop, before any is checked."""
    gap_s = tx.now.monotonic_s - phase.last_event_s
    phase.last_event_s = tx.now.monotonic_s
    # Ticks are frequent, so a long time without any event means that the controller stood still.
    if gap_s > phase.crew.patience.liveness_s / 2:
        forgive(phase.crew.learners.values(), phase.crew.slots, pause, gap_s=gap_s)
        # The time that learners have to stop counts only while the controller can hear them.
        phase.stopping_s += gap_s


def check(state: ControllerState, tx: Transaction, event: Ticked) -> None:
    """Find by the clock learners that are lost, stuck or did not start, and lost assignments."""
    # Silence counts up to the last moment when no message waited: unread ones may be a learner's.
    now_s, patience = tx.now.monotonic_s - event.deaf_s, state.crew.patience
    # Iterate over a copy, because `lose` removes learners.
    for learner_id, learner in list(state.crew.learners.items()):
        reason = overdue(learner, now_s=now_s, patience=patience)
        if reason is not None:
            if learner.slot is not None:
                reason += "; its stacks are in the run's logs directory"
            silent = now_s - learner.last_heard_s > patience.liveness_s
            lose(
                state,
                tx,
                learner_id,
                reason=reason,
                crash=True,
                unreachable=silent,
                dump_stacks=True,
            )
        elif learner.is_to_be_told_again(now_s=now_s, patience=patience):
            row = state.tables.assignments.get(learner.held[0].assignment_id)
            if row is not None:
                tx.send(learner_id, row.message)
    for index, slot in enumerate(state.crew.slots):
        is_starting = slot.learner is None and slot.started_s is not None
        slot.is_waiting = is_starting and index in event.waiting
        if slot.is_waiting:
            # The time until its Hello counts from when its process has a machine.
            slot.started_s = tx.now.monotonic_s
        elif is_starting and now_s - (slot.started_s or 0.0) > patience.start_s:
            tx.commands.append(KillLearner(slot=index))
            reason = f"no Hello within {patience.start_s:.0f} s"
            _count_failed_start(state.phase, tx, index, reason=reason)


def _count_failed_start(phase: Phase, tx: Transaction, slot_index: int, *, reason: str) -> None:
    # Failed starts are counted over all slots: if no process can start, the run must end after a
    # few of them instead of trying for ever.
    crew = phase.crew
    crew.failed_starts += 1
    tx.add_event("learner_start_failed", f"slot-{slot_index}", reason=reason)
    _plan_restart(crew, tx, slot_index)
    if crew.failed_starts >= crew.patience.max_failed_starts:
        phase.fail(
            tx,
            reason=f"{crew.failed_starts} learner processes in a row ended before they could "
            f"work; the last one {reason}. Their output is in the run's logs directory.",
        )


def _plan_restart(crew: Crew, tx: Transaction, slot_index: int) -> None:
    # The jitter only spreads restarts in time, so it takes no decision number.
    seed = np.random.SeedSequence([tx.seed, 2, tx.tables.num_events, slot_index])
    jitter = float(np.random.default_rng(seed).random())
    slot = crew.slots[slot_index]
    slot.backoff(now_s=tx.now.monotonic_s, patience=crew.patience, jitter=jitter)
