"""Whose fault: every kind of trouble, in leagues of all sizes, through the whole controller.

Simulated learners meet trouble for a while, or for good. What is no policy's fault changes no
policy: it is copied, quarantined and explored nowhere, and stands on its own last finished weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from arena.types import Player, PolicyId
from arena.wire.messages import Evaluate, Failed, Train
from populations.config.run_config import validate_config
from populations.config.run_file import learner_setup, new_run_file
from populations.controller.state.state import make_state
from populations.hooks.findings import Finding
from populations.records.rows import EventRow
from populations.simulation.world import World, make_tables, start
from tests.populations.controller.simulated import SimpleLearner, SimpleTruth, duel_spec, duet_spec
from tests.populations.rows import make_failed

FROM_S, UNTIL_S = 5.0, 12.0
CHANGES = ("exploited", "explored", "quarantined", "learning_rate_halved", "reset", "immigrated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A kind of trouble, as the controller hears of it.

    Attributes:
        kind: How an attempt fails; None: it does not (what it breaks is contained).
        slots: Slots of the learners that it is on; None: all.
        evaluations: Whether it is met in evaluations.
        training: Whether it is met in training.
        words: What a run says that ends by it; empty: it does not end a run.
    """

    kind: str | None
    slots: tuple[int, ...] | None = None
    evaluations: bool = True
    training: bool = True
    words: str = ""

    def hits(self, slot: int, message: Train | Evaluate) -> bool:
        """Whether an attempt meets it; initial weights need no environment."""
        if self.slots is not None and slot not in self.slots:
            return False
        if isinstance(message, Evaluate):
            return self.evaluations
        return self.training and message.agent_steps > 0


BREAKS = "the environment breaks"
TROUBLE = {
    "cannot be made": Trouble(kind="making", words="the environment cannot be made"),
    "made on one learner only": Trouble(kind="making", slots=(0,)),
    "breaks": Trouble(kind="environment", words=BREAKS),
    "in its third hour": Trouble(kind="environment", words=BREAKS),
    "hangs": Trouble(kind="lost", words="learners crash or hang"),
    "leaks": Trouble(kind="lost", slots=(0,)),
    "changes torch": Trouble(kind="error", words="assignments fail"),
    "raises in a bot": Trouble(kind="code", training=False),
    "raises in an outcome": Trouble(kind="code", words="code of your own raises"),
    "raises in a hook": Trouble(kind=None),
    "raises in a sink": Trouble(kind=None),
    "message too large": Trouble(kind="message", training=False),
    "disk of one learner full": Trouble(kind="place", slots=(0,)),
    "device out of memory": Trouble(kind="place", words="the learners' machine fails"),
    "flipped checkpoint": Trouble(kind="checkpoint", evaluations=False),
}
"""All that a controller can hear; what becomes of each real trouble, `tests.faults` asks."""


def league(*, size: int, learners: int, cooperates: bool = False, evaluates: bool = True) -> World:
    """A simulated run that nothing but time ends, and in which PBT decides nothing."""
    document: dict[str, object] = {
        "environment": {"id": "tests.duel:env", "num_envs": 8},
        "populations": {"player": {"size": size}},
        "ghosts": {"every_agent_steps": 5000},
        "pbt": {"exploit": "none", "explore": "none"},
        "evaluation": {"share": 0.1 if evaluates else 0.0},
        "assignment": {"target_s": 1.0},
        "learners": learners,
        "stop": {"agent_steps_per_policy": 10**9},
    }
    spec = duel_spec()
    if cooperates:
        spec = duet_spec()
        document["environment"] = {
            "id": "tests.duet:env", "num_envs": 8, "sides": {"team": ["*"]}
        }  # fmt: skip
        document["populations"] = {"speaker": {"size": size}, "listener": {"size": size}}
    config = validate_config(document)
    run_file = new_run_file(config, spec, name="test", launch_directory=".")
    setup = learner_setup(run_file, root=Path("/nowhere"))
    learner = SimpleLearner(
        setup=setup,
        model=SimpleTruth(),
        landscapes={},
        agent_steps_per_s=500.0,
        episode_length=5,
        matches_per_seating=4,
    )
    state = make_state(run_file.config, setup, make_tables(run_file))
    return World(state=state, setup=setup, learner=learner)


class Watched:
    """A league, and what happened in it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: list[EventRow] = []
        world.watch = lambda rows: self.events.extend(r for r in rows if isinstance(r, EventRow))
        start(world)

    def of(self, *kinds: str) -> list[EventRow]:
        """Events of some kinds."""
        return [event for event in self.events if event.kind in kinds]

    def steps(self) -> dict[PolicyId, int]:
        """Agent steps by policy."""
        return {row.policy: row.agent_steps for row in self.world.state.tables.policies.values()}

    def assert_unchanged(self) -> None:
        """Nobody was changed, and everybody stands on its own newest valid weights."""
        assert [(event.kind, event.subject) for event in self.of(*CHANGES)] == []
        tables = self.world.state.tables
        for row in tables.policies.values():
            assert (row.state, row.generation, row.rescues, row.parent) == ("active", 0, 0, None)
            own = [
                made
                for made in tables.checkpoints.values()
                if made.policy == row.policy and made.state == "present"
            ]
            newest = max(own, key=lambda made: (made.agent_steps, made.assignment_id or 0))
            assert row.checkpoint == newest.key
        generations = tables.generations.values()
        assert all(
            tables.policies[row.policy].hyperparameters == row.hyperparameters
            for row in generations
        )


def between(trouble: Trouble, from_s: float, until_s: float) -> Callable[..., str | None]:
    """Trouble in a time; a checkpoint is damaged once."""
    met = [0]

    def fault(slot: int, message: Train | Evaluate, now_s: float) -> str | None:
        if not from_s <= now_s < until_s or not trouble.hits(slot, message):
            return None
        if trouble.kind == "checkpoint":
            # The fault hits a policy with an older checkpoint to fall back to, once.
            assert isinstance(message, Train)
            met[0] += message.trainees[0].agent_steps > 0
            return trouble.kind if met[0] == 1 and message.trainees[0].agent_steps > 0 else None
        return trouble.kind

    return fault


SETTINGS = (
    (1, 1, False), (1, 3, True), (2, 1, True), (2, 3, False), (4, 1, False), (4, 3, True)
)  # fmt: skip
"""Policies, learners, cooperation: each value of one meets each of the others."""


@pytest.mark.parametrize(("size", "learners", "cooperates"), SETTINGS)
@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_for_a_while_changes_no_policy_and_the_run_goes_on(
    name: str, size: int, learners: int, cooperates: bool
) -> None:
    trouble = TROUBLE[name]
    # Rating fits take most of the time, so most leagues have none. After three hours the evaluation
    # share would owe many seconds.
    evaluates = (size == 2 and name != "in its third hour") or not trouble.training
    watched = Watched(
        league(size=size, learners=learners, cooperates=cooperates, evaluates=evaluates)
    )
    world = watched.world
    world.fault = between(trouble, FROM_S, UNTIL_S)
    if name == "in its third hour":
        # Assignments are few and long: each takes ten minutes.
        assert isinstance(world.learner, SimpleLearner)
        world.learner.train_s = 600.0
        world.play(3 * 3600.0 - 600.0, tick_s=5.0)
        world.learner.train_s = 1.0
        done = world.state.tables.run.training_assignments
        while world.state.tables.run.training_assignments < done + 2 * learners:
            world.play(5.0, tick_s=5.0)
        world.fault = between(trouble, world.now_s + FROM_S, world.now_s + UNTIL_S)
    world.play(FROM_S + 1.0)
    if name == "raises in a hook":
        finding = Finding("hook_failed", "mine", "mine", "it raised")
        world.handle(finding)
    if name == "raises in a sink":
        finding = Finding("sink_failed", "mine", "mine", "mine raised it")
        world.handle(finding)
    world.play(UNTIL_S - FROM_S)
    before, end_s = watched.steps(), world.now_s + 90.0
    # All policies continue training, for two rounds, because late results of the trouble may still
    # come.
    while (
        world.now_s < end_s
        and not world.over
        and not all(steps > before[name] + 500 for name, steps in watched.steps().items())
    ):
        world.play(2.0)
    assert world.now_s < end_s, world.state.phase.reason
    assert world.state.phase.name == "training"
    watched.assert_unchanged()
    # An event reports the trouble if there was anything to report.
    told = watched.of("assignment_failed", "learner_lost", "alert")
    assert bool(told) == (trouble.kind is not None or name.startswith("raises in a"))


LASTING = {trouble.words: trouble for trouble in TROUBLE.values() if trouble.words}


@pytest.mark.parametrize("learners", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("words", LASTING)
def test_trouble_that_stays_pauses_the_run_then_ends_it_and_changes_no_policy(
    words: str, size: int, learners: int
) -> None:
    trouble = LASTING[words]
    watched = Watched(league(size=size, learners=learners, evaluates=size == 2))
    world = watched.world
    world.fault = between(trouble, FROM_S, float("inf"))
    world.play(FROM_S + 600.0)
    assert world.over
    assert world.state.phase.failed
    assert world.state.phase.reason.startswith(words)
    alone = size == 1 and trouble.kind in ("environment", "code", "error", "lost")
    assert ("nothing shows whether its weights" in world.state.phase.reason) == alone
    assert len(watched.of("paused")) == world.state.crew.patience.max_tries
    watched.assert_unchanged()


@pytest.mark.parametrize("start_s", [0.5, 20.0, 50.0])
@pytest.mark.parametrize("kind", ["error", "environment", "code", "message"])
def test_learners_that_all_fail_end_no_run_for_which_others_are_there_or_come(
    kind: str, start_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learners from elsewhere come first, and fail; the launcher's own start slowly, and work."""
    monkeypatch.setattr("populations.simulation.world.START_S", start_s)
    watched = Watched(league(size=4, learners=2))
    world = watched.world
    world.fault = lambda slot, message, now_s: kind if slot < 0 else None
    for _ in range(7):
        world.join()
    world.play(start_s + 100.0)
    assert world.state.phase.name == "training", world.state.phase.reason
    assert min(watched.steps().values()) > 1000
    watched.assert_unchanged()


@pytest.mark.parametrize("populations", [(), ("player",)])
def test_a_learner_that_comes_during_the_last_try_is_tried_too(
    populations: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Failures take a second, and the sixth try begins 38 s after the start.
    monkeypatch.setattr("populations.simulation.world.START_S", 38.5)
    monkeypatch.setattr(
        World, "_join", lambda self, slot, _: self.join(slot=slot, populations=populations)
    )
    watched = Watched(league(size=4, learners=2, evaluates=False))
    world = watched.world
    world.fails_after_s = 1.0
    world.fault = lambda slot, message, now_s: "error" if slot < 0 else None
    for _ in range(7):
        world.join()
    world.play(38.0)
    assert len(watched.of("paused")) == world.state.crew.patience.max_tries
    world.play(100.0)
    assert world.state.phase.name == "training", world.state.phase.reason
    assert min(watched.steps().values()) > 1000


@pytest.mark.parametrize("kind", ["non_finite", "code", "lost"])
@pytest.mark.parametrize("learners", [1, 3])
@pytest.mark.parametrize("size", [2, 4])
def test_what_follows_one_policy_is_held_against_it_alone_within_six_assignments(
    kind: str, size: int, learners: int
) -> None:
    watched = Watched(league(size=size, learners=learners, evaluates=False))
    world, guilty = watched.world, PolicyId("player/p001")
    attempts = set()

    def fault(slot: int, message: Train | Evaluate, now_s: float) -> str | None:
        # Halving the learning rates cures the fault.
        is_guilty = (
            isinstance(message, Train)
            and message.agent_steps > 0
            and message.trainees[0].policy == guilty
            and message.trainees[0].generation == 0
        )
        if now_s < FROM_S or not is_guilty:
            return None
        attempts.add(message.assignment_id)
        return kind

    world.fault = fault
    world.play(FROM_S + 50.0)
    quarantined = watched.of("quarantined")
    assert [event.subject for event in quarantined] == [guilty]
    assert len(attempts) <= 6
    others = [row for name, row in world.state.tables.policies.items() if name != guilty]
    assert {(row.state, row.generation) for row in others} == {("active", 0)}
    assert world.state.phase.name == "training"


@pytest.mark.parametrize("learners", [1, 3])
@pytest.mark.parametrize("size", [2, 4])
def test_weights_with_which_a_network_raises_are_met_by_nobody_until_their_policy_is_taken_out(
    size: int, learners: int
) -> None:
    watched = Watched(league(size=size, learners=learners))
    world, guilty = watched.world, PolicyId("player/p001")
    failed: Counter[str] = Counter()

    def is_broken(player: Player) -> bool:
        made = (
            None
            if player.weights is None
            else world.state.league.checkpoints[player.weights.digest]
        )
        return made is not None and (made.policy, made.generation) == (guilty, 0)

    def fault(slot: int, message: Train | Evaluate, now_s: float) -> Failed | None:
        if now_s < FROM_S or (isinstance(message, Train) and message.agent_steps == 0):
            return None
        how = make_failed(message, kind="code")
        trainees = message.trainees if isinstance(message, Train) else ()
        if any((one.policy, one.generation) == (guilty, 0) for one in trainees):
            failed["trained"] += 1
            return replace(how, policy=guilty)
        seatings = (
            message.opponents
            if isinstance(message, Train)
            else tuple(pairing.seating for pairing in message.pairings)
        )
        players = (player for seating in seatings for player in seating.players)
        met = next(filter(is_broken, players), None)
        if met is None or met.weights is None:
            return None
        failed["met"] += 1
        return replace(how, key=met.weights.key)

    world.fault = fault
    world.play(FROM_S + 60.0)
    assert world.state.phase.name == "training", world.state.phase.reason
    assert [event.subject for event in watched.of("quarantined")] == [guilty]
    # Each assignment fails on two learners, or on two processes of a single learner.
    assert failed["trained"] <= 2 * 6
    assert 0 < failed["met"] <= 2 * 6
    rows = world.state.tables.policies
    assert {row.state for row in rows.values()} == {"active"}
    assert [row.generation for row in rows.values()] == [int(name == guilty) for name in rows]
    began = {name: row.agent_steps for name, row in rows.items()}
    evaluated = world.state.league.tables.last_evaluation_sequence
    world.play(20.0)
    assert world.state.league.tables.last_evaluation_sequence > evaluated
    rows = world.state.tables.policies
    assert all(rows[name].agent_steps > steps for name, steps in began.items())


def test_ghosts_of_a_policy_whose_training_broke_are_met_as_before() -> None:
    watched = Watched(league(size=2, learners=1, evaluates=False))
    world, guilty = watched.world, PolicyId("player/p001")

    def fault(slot: int, message: Train | Evaluate, now_s: float) -> Failed | None:
        trainees = message.trainees if isinstance(message, Train) else ()
        if now_s < FROM_S or (guilty, 0) not in {(t.policy, t.generation) for t in trainees}:
            return None
        return make_failed(message, kind="non_finite", policy=guilty)

    world.fault = fault
    world.play(FROM_S + 30.0)
    assert [event.subject for event in watched.of("quarantined")] == [guilty]
    assert world.state.blame.ledger.shunned() == set()


def test_one_failure_of_another_does_not_hide_whose_fault_it_is_from_the_only_learner() -> None:
    watched = Watched(league(size=2, learners=1, evaluates=False))
    world, guilty = watched.world, PolicyId("player/p001")
    failed: list[PolicyId] = []

    def fault(slot: int, message: Train | Evaluate, now_s: float) -> str | None:
        if not isinstance(message, Train) or now_s < FROM_S:
            return None
        name, is_first = message.trainees[0].policy, message.trainees[0].generation == 0
        # The other policy fails once, too, after the fault has begun.
        if is_first and (name == guilty or (guilty in failed and set(failed) == {guilty})):
            failed.append(name)
            return "code"
        return None

    world.fault = fault
    world.play(FROM_S + 90.0)
    assert len(set(failed)) == 2
    assert [event.subject for event in watched.of("quarantined")] == [guilty]
    assert world.state.phase.name == "training"


@pytest.mark.parametrize(("size", "learners"), [(1, 1), (2, 3), (4, 1)])
@pytest.mark.parametrize("kind", ["lost", "environment"])
def test_a_simulator_that_dies_now_and_then_changes_no_policy(
    kind: str, size: int, learners: int
) -> None:
    watched = Watched(league(size=size, learners=learners, evaluates=False))
    world = watched.world

    def fault(slot: int, message: Train | Evaluate, now_s: float) -> str | None:
        # The failure depends on the seed, so that an assignment fails on every learner.
        return kind if np.random.default_rng([7, message.seed]).random() < 0.05 else None

    world.fault = fault
    while world.state.tables.run.assignments_finished < 300 and not world.over:
        world.play(20.0)
    assert world.state.phase.name == "training", world.state.phase.reason
    watched.assert_unchanged()
    assert any(event.data["name"] == "assignments_failing" for event in watched.of("alert"))
