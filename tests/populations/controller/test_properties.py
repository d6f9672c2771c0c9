"""The controller under random interleavings: whatever happens, nothing is lost or counted twice."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arena.types import LearnerId
from arena.wire.messages import Train
from populations.audit.verify import check_evolution
from populations.choices import is_known
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    LearnerExited,
    LearnerLeft,
    Ticked,
)
from populations.records.rows import AssignmentRow, PolicyRow
from populations.search_space import Choices, parse_search_space
from tests.populations.controller.simulated import (
    AT_ONCE,
    DUEL,
    DUET,
    TAG,
    World,
    duet_spec,
    fold,
    make_world,
    tag_spec,
)
from tests.populations.rows import make_failed

PICK = st.integers(min_value=0, max_value=10**6)

EAGER: dict[str, object] = {
    **DUEL,
    "learners": 3,
    "pbt": {**AT_ONCE, "immigration": {"probability": 0.3}},
}
"""Everybody who is behind copies somebody at the first opportunity."""

SIDES = {"predator": {"agents": ["adversary_*"]}, "prey": {"agents": ["agent_*"]}}


class Controller(RuleBasedStateMachine):
    """Learners join, work, fail, vanish and repeat themselves; the controller is killed."""

    world: World
    sent: list[AssignmentFinished]
    slots: dict[LearnerId, int]

    def make_world(self, sections: dict[str, object]) -> World:
        """Of four policies, not yet begun."""
        return make_world({**EAGER, **sections})

    @initialize(deterministic=st.booleans(), share=st.sampled_from(["even", "halving"]))
    def start(self, deterministic: bool, share: str) -> None:
        pbt = {**EAGER["pbt"], "share": share}  # type: ignore[dict-item]
        self.world = self.make_world({"deterministic": deterministic, "pbt": pbt})
        self.sent = []
        self.slots = {}

    @rule(slot=st.integers(min_value=0, max_value=2))
    def join(self, slot: int) -> None:
        if (
            slot < len(self.world.state.crew.slots)
            and self.world.state.crew.slots[slot].learner is None
        ):
            learner = self.world.join(slot=slot)
            self.slots[learner] = slot

    def _learner(self, pick: int) -> LearnerId | None:
        learners = sorted(self.world.state.crew.learners)
        return learners[pick % len(learners)] if learners else None

    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        learner = self._learner(pick)
        event = self.world.work(learner) if learner is not None else None
        if event is not None:
            self.sent.append(event)
            self.world.handle(event)

    @rule(pick=PICK, kind=st.sampled_from(["error", "non_finite", "environment", "stopped"]))
    def fail(self, pick: int, kind: str) -> None:
        learner = self._learner(pick)
        if learner is None or not self.world.given.get(learner):
            return
        message = self.world.given[learner].pop(0)
        names = [t.policy for t in message.trainees] if isinstance(message, Train) else []
        policy = names[pick % len(names)] if names else None
        failed = make_failed(message, kind=kind, policy=policy)
        self.world.handle(AssignmentFailed(learner=learner, failed=failed))

    @precondition(lambda self: self.sent)
    @rule(pick=PICK)
    def repeat(self, pick: int) -> None:
        before = self.world.state.tables.run
        self.world.handle(self.sent[pick % len(self.sent)])
        after = self.world.state.tables.run
        assert (after.agent_steps, after.matches) == (before.agent_steps, before.matches)

    @rule(pick=PICK)
    def vanish(self, pick: int) -> None:
        learner = self._learner(pick)
        if learner is not None and learner in self.slots:
            self.world.given.pop(learner, None)
            self.world.handle(LearnerExited(slot=self.slots[learner], code=-9))

    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        learner = self._learner(pick)
        if learner is not None:
            self.world.given.pop(learner, None)
            self.world.handle(LearnerLeft(learner=learner, reason="signal"))

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 20.0, 500.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.world.handle(Ticked())

    @rule()
    def fit(self) -> None:
        self.world.fit()

    @rule(rounds=st.integers(min_value=1, max_value=12))
    def everybody_works(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.now_s += 1.0
            for learner in sorted(self.world.state.crew.learners):
                known = self.world.state.crew.learners.get(learner)
                event = self.world.work(learner) if known is not None else None
                if known is not None:
                    known.last_heard_s = self.world.now_s
                if event is not None:
                    self.world.handle(event)
            self.world.fit()

    @rule()
    def explore(self) -> None:
        self.world.explore()

    @rule()
    def kill_the_controller(self) -> None:
        if self.world.over:
            return
        self.world.restart()

    @invariant()
    def memory_equals_the_journal(self) -> None:
        if hasattr(self, "world"):
            assert fold(self.world.committed) == self.world.state.tables

    @invariant()
    def every_match_and_step_is_counted_once(self) -> None:
        if not hasattr(self, "world"):
            return
        finished = [
            row
            for row in self.world.committed
            if isinstance(row, AssignmentRow) and row.status == "finished"
        ]
        assert max(Counter(row.assignment_id for row in finished).values(), default=1) == 1
        run = self.world.state.tables.run
        assert run.matches == sum(row.matches for row in finished)
        assert run.agent_steps == sum(row.agent_steps for row in finished)
        assert run.assignments_finished == len(finished)

    @invariant()
    def leases_and_numbers_are_sound(self) -> None:
        if not hasattr(self, "world"):
            return
        tables = self.world.state.tables
        trained = Counter(
            trainee.policy
            for row in tables.assignments.values()
            if isinstance(row.message, Train)
            for trainee in row.message.trainees
        )
        assert max(trained.values(), default=1) == 1
        assert len(tables.policies) == 4
        for policy in tables.policies.values():
            assert all(is_known(value) for value in policy.hyperparameters.values())
            if policy.checkpoint is not None and policy.state == "active":
                assert tables.checkpoints[policy.checkpoint].state == "present"

    @invariant()
    def nobody_copies_itself_and_generations_have_no_gaps(self) -> None:
        if not hasattr(self, "world"):
            return
        tables = self.world.state.tables
        assert list(check_evolution(tables)) == []
        for event in self.world.events("exploited", "immigrated"):
            other = event.data.get("donor") or event.data["instead_of"]
            assert other != event.subject
            assert other in tables.policies
        assert not self.world.events("exploit_failed", "explore_failed")
        for policy in tables.policies.values():
            space = self.world.state.settings.config.populations[policy.population].search_space
            dimensions = parse_search_space(space, start=policy.hyperparameters)
            for name, dimension in dimensions.items():
                assert not isinstance(dimension, Choices)
                assert dimension.fit(policy.hyperparameters[name]) == policy.hyperparameters[name]

    @invariant()
    def enough_train_and_retired_ones_do_not(self) -> None:
        if not hasattr(self, "world"):
            return
        state = self.world.state
        rows = state.tables.policies
        retired = {name for name, row in rows.items() if row.state == "retired"}
        assert rows.by("inactive").get("retired", {}).keys() == retired
        for row in state.tables.assignments.values():
            if isinstance(row.message, Train):
                assert not retired & {trainee.policy for trainee in row.message.trainees}
        for population in state.settings.setup.populations:
            trained = [row for row in rows.values() if row.population == population]
            # A policy that broke may leave fewer.
            kept = sum(row.state != "retired" for row in trained)
            assert kept >= min(2, len(trained))

    @invariant()
    def counters_never_fall(self) -> None:
        if not hasattr(self, "world"):
            return
        steps: dict[str, int] = {}
        for row in self.world.committed:
            if isinstance(row, PolicyRow):
                assert row.agent_steps >= steps.get(row.policy, 0)
                steps[row.policy] = row.agent_steps


TestController = Controller.TestCase
TestController.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class Teams(Controller):
    """The same where two populations cooperate: teams of two."""

    def make_world(self, sections: dict[str, object]) -> World:
        sections = {**sections, "environment": DUET["environment"]}
        populations = {"speaker": {"size": 2}, "listener": {"size": 2}}
        return make_world({**EAGER, **sections, "populations": populations}, duet_spec())

    @invariant()
    def teams_are_whole(self) -> None:
        if not hasattr(self, "world"):
            return
        tables = self.world.state.tables
        for row in tables.assignments.values():
            if isinstance(row.message, Train):
                learned = Counter(trainee.policy.split("/")[1] for trainee in row.message.trainees)
                assert set(learned.values()) == {2}
        for index in range(2):
            team = [policy for policy in tables.policies.values() if policy.index == index]
            waiting = [bool(policy.pending) for policy in team]
            if not any(waiting):
                assert len({(policy.state, policy.generation) for policy in team}) == 1
                assert len({policy.checkpoint is None for policy in team}) == 1


TestTeams = Teams.TestCase
TestTeams.settings = settings(TestController.settings, max_examples=40)


class Rivals(Controller):
    """The same where two populations learn against each other: pairs, or one alone."""

    def make_world(self, sections: dict[str, object]) -> World:
        sections = {**sections, "environment": TAG["environment"]}
        populations = {name: {**section, "size": 2} for name, section in SIDES.items()}
        matchmaking = {"rivals": "learning", "opponents": 2}
        document = {**EAGER, **sections, "populations": populations, "matchmaking": matchmaking}
        return make_world(document, tag_spec())

    @invariant()
    def pairs_are_of_two_populations_and_all_have_seats(self) -> None:
        if not hasattr(self, "world"):
            return
        for row in self.world.state.tables.assignments.values():
            if not isinstance(row.message, Train):
                continue
            names: list[str] = [trainee.policy for trainee in row.message.trainees]
            populations = [name.split("/")[0] for name in names]
            assert populations in (["predator", "prey"], ["predator"], ["prey"])
            live: set[str] = {
                player.player
                for seating in row.message.opponents
                for player in seating.players
                if player.weights is None and "/" in player.player
            }
            assert live == (set(names) if row.message.agent_steps else set())
            assert len(row.message.opponents) <= self.world.setup.num_envs

    @invariant()
    def all_of_a_team_have_one_record_of_episodes_on_a_learner_that_is_there(self) -> None:
        if not hasattr(self, "world"):
            return
        known = self.world.state.crew.episodes
        for policy, episodes in known.items():
            assert policy in episodes.team
            assert episodes.learner in self.world.state.crew.learners
            assert all(known[mate] is episodes for mate in episodes.team)


TestRivals = Rivals.TestCase
TestRivals.settings = settings(TestController.settings, max_examples=40)
