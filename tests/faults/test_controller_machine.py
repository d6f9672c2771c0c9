"""The pure controller under everything that messages, learners, clocks and crashes can do.

On top of what `tests.populations.controller.test_properties` does to it: heartbeats of any age,
messages that come late or again, lies, silence, suspended machines, learners that come back.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from msgspec import structs

from arena.types import Entrant, LearnerId
from arena.wire.messages import Failed, Finished, Heartbeat, Train
from populations.audit.tally_checks import differences, refold
from populations.choices import is_known
from populations.controller.assignments.learner_lifecycle import place_of
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    Event,
    HeartbeatReceived,
    LearnerJoined,
    LearnerLeft,
    LearnerUnreachable,
    StrangerSpoke,
    Ticked,
)
from populations.records.rows import AssignmentRow, EventRow, TallyRow
from tests.populations.controller.facts import assert_facts_are_what_events_tell
from tests.populations.controller.simulated import World, fold, make_world
from tests.populations.controller.test_properties import EAGER, PICK, Controller

pytestmark = pytest.mark.timeout(300)

LIES = ("fallen", "more matches", "somebody else", "nothing")
SILENT_S = 15


class Faulty(Controller):
    """Learners, messages and clocks that do what they should not."""

    late: list[Event]

    def make_world(self, sections: dict[str, object]) -> World:
        self.late = []
        return make_world({**EAGER, **sections})

    def deliver(self, event: Event) -> None:
        """What the server makes of a message: who is not known is a stranger."""
        learner = getattr(event, "learner", None)
        # The result may have been in verification when its learner was given up.
        is_heard = isinstance(event, LearnerJoined | AssignmentFinished)
        if learner not in self.world.state.crew.learners and not is_heard:
            event = StrangerSpoke(learner=LearnerId(str(learner)))
        if isinstance(event, AssignmentFinished):
            self.sent.append(event)
        self.world.handle(event)

    def counted(self) -> tuple[int, int, int]:
        run = self.world.state.tables.run
        return run.agent_steps, run.matches, run.assignments_finished

    @rule(pick=PICK, progress=st.integers(0, 3), attempts=st.integers(0, 2), waits=st.booleans())
    def beat(self, pick: int, progress: int, attempts: int, waits: bool) -> None:
        """A heartbeat, perhaps about an older attempt, now or later."""
        learner = self._learner(pick)
        if learner is None:
            return
        queue = self.world.given.get(learner)
        message = queue[0] if queue else None
        heartbeat = Heartbeat(
            assignment_id=message.assignment_id if message is not None else None,
            attempt=max(message.attempt - attempts, 0) if message is not None else 0,
            progress=progress,
            agent_steps=progress,
            rss_bytes=1,
        )
        event = HeartbeatReceived(learner=learner, heartbeat=heartbeat)
        if waits:
            self.late.append(event)
        else:
            self.deliver(event)

    @rule(pick=PICK)
    def finish_late(self, pick: int) -> None:
        """Work is done, and its message is on its way for long."""
        learner = self._learner(pick)
        event = self.world.work(learner) if learner is not None else None
        if event is not None:
            self.late.append(event)

    @rule(pick=PICK)
    def leave_late(self, pick: int) -> None:
        learner = self._learner(pick)
        if learner is not None:
            self.late.append(LearnerLeft(learner=learner, reason="signal"))

    @precondition(lambda self: self.late)
    @rule(pick=PICK)
    def arrive(self, pick: int) -> None:
        """One of the late messages comes, in any order."""
        self.deliver(self.late.pop(pick % len(self.late)))

    @rule(pick=PICK)
    def say_hello_again(self, pick: int) -> None:
        """Learners of the past: one that was given up stays so (I4), one at fault has to wait."""
        if not self.world.num_learners:
            return
        learner = LearnerId(f"learner-{1 + pick % self.world.num_learners}")
        state = self.world.state
        was_gone = learner in state.crew.gone
        hello = self.world.hello(learner)
        before = len(self.world.refused)
        fault = state.crew.faults.get(place_of(learner, hello, slot=None))
        is_at_fault = fault is not None and self.world.now_s < fault.until_s
        is_refused = was_gone or (is_at_fault and learner not in state.crew.learners)
        self.world.handle(LearnerJoined(learner=learner, hello=hello, slot=None))
        assert (learner in state.crew.learners) != is_refused
        if is_refused:
            ((refused, reason),) = self.world.refused[before:]
            assert refused == learner
            assert reason.startswith("fenced") == was_gone

    @rule(pick=PICK, lie=st.sampled_from(LIES))
    def lie(self, pick: int, lie: str) -> None:
        """A result that cannot be what was asked for counts for nothing."""
        learner = self._learner(pick)
        event = self.world.work(learner) if learner is not None else None
        if event is None:
            return
        told = _lie(event, lie)
        before = self.counted()
        if told is not None:
            self.world.handle(told)
            assert self.counted() == before
        else:
            self.world.handle(event)

    @rule(pick=PICK)
    def lose_a_checkpoint(self, pick: int) -> None:
        """A learner finds that what it should go on from is corrupt."""
        learner = self._learner(pick)
        queue = self.world.given.get(learner) if learner is not None else None
        message = queue[0] if queue else None
        if learner is None or not isinstance(message, Train) or not message.agent_steps:
            return
        trainee = message.trainees[0]
        tables = self.world.state.tables
        present = [
            row
            for row in tables.checkpoints.values()
            if row.policy == trainee.policy and row.state == "present"
        ]
        if trainee.checkpoint is None or len(present) < 2:
            return
        self.world.given[learner].pop(0)
        failed = Failed(
            assignment_id=message.assignment_id,
            attempt=message.attempt,
            kind="checkpoint",
            reason="a bit has flipped",
            policy=trainee.policy,
            key=trainee.checkpoint.key,
        )
        damage = "a bit has flipped"
        self.world.handle(AssignmentFailed(learner=learner, failed=failed, damage=damage))

    @rule(pick=PICK)
    def become_unreachable(self, pick: int) -> None:
        learner = self._learner(pick)
        if learner is not None:
            is_launched = self.world.state.crew.learners[learner].slot is not None
            self.world.handle(LearnerUnreachable(learner=learner))
            assert (learner in self.world.state.crew.learners) == is_launched

    @rule(pick=PICK)
    def fall_silent(self, pick: int) -> None:
        """One says nothing any more; it is lost, and nobody else is for that (I10)."""
        silent = self._learner(pick)
        if silent is None:
            return
        self.world.handle(Ticked())  # the first gap is forgiven, once
        first = len(self.world.committed)
        for _ in range(SILENT_S):
            self.world.now_s += 1.0
            for learner in list(self.world.state.crew.learners):
                if learner != silent:
                    self.world.beat(learner)
            self.world.handle(Ticked())
        if self.world.over:
            return  # no learner is judged any more
        assert silent not in self.world.state.crew.learners
        lost = [
            row for row in self.world.events("learner_lost") if row in self.world.committed[first:]
        ]
        others = [row for row in lost if row.subject != silent]
        assert not [row for row in others if str(row.data["reason"]).startswith("silent")]

    @rule(hours=st.sampled_from([0.1, 8.0, 24.0]))
    def suspend(self, hours: float) -> None:
        """The machine sleeps: nobody could be heard, so nobody is lost by it."""
        self.world.handle(Ticked())
        before = set(self.world.state.crew.learners)
        self.world.now_s += 3600.0 * hours
        self.world.handle(Ticked())
        assert set(self.world.state.crew.learners) == before

    @invariant()
    def nobodys_lease_is_somebody_elses(self) -> None:
        """An attempt is given to one learner, and who was given up holds nothing (I4)."""
        if not hasattr(self, "world"):
            return
        owners: dict[tuple[int, int], set[LearnerId]] = defaultdict(set)
        for learner, assignment, attempt in self.world.leases:
            owners[assignment, attempt].add(learner)
        assert all(len(learners) == 1 for learners in owners.values())
        state = self.world.state
        assert not set(state.crew.learners) & set(state.crew.gone)
        held = [
            (held.assignment_id, name)
            for name, learner in state.crew.learners.items()
            for held in learner.held
        ]
        assert len(held) == len(state.crew.holders)
        assert dict(held) == state.crew.holders
        assert set(state.crew.holders) <= set(state.tables.assignments) | self._closed()
        attempts: dict[int, int] = {}
        for row in self.world.committed:
            if isinstance(row, AssignmentRow):
                assert row.attempt >= attempts.get(row.assignment_id, 0)
                attempts[row.assignment_id] = row.attempt

    def _closed(self) -> set[object]:
        """Assignments that have ended while a learner may still be at them."""
        rows = (row for row in self.world.committed if isinstance(row, AssignmentRow))
        return {row.assignment_id for row in rows if row.status == "failed"}

    @invariant()
    def every_number_is_finite(self) -> None:
        """I9."""
        if not hasattr(self, "world"):
            return
        tables = self.world.state.tables
        for ratings in tables.ratings.values():
            assert all(math.isfinite(value) for value in ratings.ratings)
        for generation in tables.generations.values():
            assert all(is_known(value) for value in generation.hyperparameters.values())

    @invariant()
    def an_exploit_is_whole(self) -> None:
        """I2: weights, hyperparameters and lineage change together, or not at all."""
        if not hasattr(self, "world"):
            return
        tables = self.world.state.tables
        newest = {row.policy: row for row in tables.generations.values()}
        for policy in tables.policies.values():
            generation = newest[policy.policy]
            assert generation.generation == policy.generation
            assert generation.hyperparameters == policy.hyperparameters
            if policy.checkpoint is None:
                continue
            checkpoint = tables.checkpoints[policy.checkpoint]
            if checkpoint.policy != policy.policy:
                assert generation.cause in ("exploit", "quarantine")
                copied = self.world.events("exploited")
                copy = next(row for row in reversed(copied) if row.subject == policy.policy)
                # The donor may have copied its weights itself and not trained them yet.
                assert copy.data["donor"] == policy.parent
                assert copy.data["checkpoint"] == policy.checkpoint
                if generation.cause == "exploit":
                    assert (generation.parent or "").split("#")[0] == policy.parent

    def teardown(self) -> None:
        """What was committed is what there is; records and payoffs are what the tallies add up to
        (I3), and facts what events tell.
        """
        if not hasattr(self, "world"):
            return
        assert fold(self.world.committed) == self.world.state.tables
        tallies = [row for row in self.world.committed if isinstance(row, TallyRow)]
        half_life = self.world.state.settings.config.payoffs.half_life_matches
        folded = refold(tallies, seats=self.world.setup.seats, half_life_matches=half_life)
        assert list(differences(self.world.state.tables, folded)) == []
        events = [row for row in self.world.committed if isinstance(row, EventRow)]
        assert_facts_are_what_events_tell(self.world.state.tables, events)


def _lie(event: AssignmentFinished, lie: str) -> AssignmentFinished | None:
    """The same result, so changed that it cannot be right; None if there is nothing to change."""
    finished = event.finished
    match lie:
        case "fallen" if any(manifest.agent_steps for manifest in event.manifests.values()):
            manifests = {
                key: structs.replace(manifest, agent_steps=0)
                for key, manifest in event.manifests.items()
            }
            return structs.replace(event, manifests=manifests)
        case "more matches" if finished.tallies:
            return _with_tally(event, matches=finished.tallies[0].matches + 1)
        case "somebody else" if finished.tallies:
            entrants = finished.tallies[0].entrants
            return _with_tally(event, entrants=(*entrants[:-1], Entrant("nobody")))
        case "nothing" if finished.checkpoints:
            return structs.replace(event, finished=structs.replace(finished, checkpoints=()))
    return None


def _with_tally(event: AssignmentFinished, **changes: object) -> AssignmentFinished:
    finished: Finished = event.finished
    first, *others = finished.tallies
    changed = structs.replace(first, **changes)
    return structs.replace(event, finished=structs.replace(finished, tallies=(changed, *others)))


TestFaulty = Faulty.TestCase
TestFaulty.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
