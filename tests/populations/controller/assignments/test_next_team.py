"""Who trains next: alone, or with which rival."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from arena.types import AssignmentId, LearnerId, PolicyId, population_of
from arena.wire.messages import Train
from populations.controller.assignments.placement import _is_left_to_faster, team_with
from populations.controller.indexes.teams import team_of
from populations.controller.state.events import LearnerLeft, Ticked
from populations.controller.state.leases import CarriedEpisodes
from populations.records.rows import AssignmentRow
from tests.populations.controller.eager import transaction
from tests.populations.controller.rivals import RIVALS, policy, rivals_world, trained
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    World,
    duet_spec,
    make_world,
    tag_spec,
)


def begun() -> World:
    """Six policies with a checkpoint each, and nobody who trains them."""
    world = rivals_world(num_learners=1, evaluation={"share": 0.0})
    while not trained(world):
        world.step()
    (learner,) = world.state.crew.learners
    world.handle(LearnerLeft(learner=learner, reason="signal"))
    for left in list(world.state.tables.assignments.values()):
        transaction(world).put(replace(left, status="failed"))
    for row in list(world.state.tables.policies.values()):
        transaction(world).put(replace(row, agent_steps=1000))
    assert not world.state.tables.assignments
    return world


def teams(world: World, name: str, *, max_lead: int = 500, serves: str = "") -> list[str]:
    team = team_with(
        world.state,
        policy(world, name),
        held_up=set(),
        may_train=lambda population: serves in ("", population),
        max_lead=max_lead,
    )
    return [row.policy for row in team]


def put(world: World, name: str, **changes: object) -> None:
    transaction(world).put(replace(policy(world, name), **changes))


def lease(world: World, *names: str) -> AssignmentRow:
    """Open an assignment of some policies, as if a learner had it."""
    given = trained(world)[0]
    trainees = tuple(
        replace(given.trainees[0], policy=PolicyId(name), generation=0) for name in names
    )
    number = AssignmentId(world.state.tables.run.next_assignment)
    tx = transaction(world)
    tx.put(replace(world.state.tables.run, next_assignment=number + 1))
    message = replace(given, assignment_id=number, trainees=trainees)
    row = AssignmentRow(assignment_id=number, kind="train", message=message, metrics={})
    tx.put(row)
    return row


def test_the_rival_is_the_free_policy_that_has_trained_least() -> None:
    world = begun()
    assert teams(world, "prey/p000") == ["predator/p000", "prey/p000"]
    # Members are in the order of the populations, each the first in its queue.
    assert teams(world, "predator/p001") == ["predator/p001", "prey/p000"]
    put(world, "predator/p000", agent_steps=1400)
    put(world, "predator/p001", agent_steps=1300)
    put(world, "predator/p002", agent_steps=1300)
    assert teams(world, "prey/p000") == ["predator/p001", "prey/p000"]
    lease(world, "predator/p001", "prey/p002")
    assert teams(world, "prey/p000") == ["predator/p002", "prey/p000"]
    put(world, "predator/p002", pending={"kind": "explore"})
    assert teams(world, "prey/p000") == ["predator/p000", "prey/p000"]
    put(world, "predator/p000", state="quarantined")
    assert teams(world, "prey/p000") == ["prey/p000"]
    # The policy has reached its limit of 6,000 steps.
    put(world, "predator/p000", state="active", agent_steps=6000)
    put(world, "prey/p000", agent_steps=5900)
    assert teams(world, "prey/p000") == ["prey/p000"]


def test_a_rival_that_is_far_ahead_waits_until_the_other_one_has_caught_up() -> None:
    world = begun()
    for name in ("predator/p000", "predator/p001", "predator/p002"):
        put(world, name, agent_steps=1500)
    assert teams(world, "prey/p000", max_lead=500) == ["predator/p000", "prey/p000"]
    assert teams(world, "prey/p000", max_lead=499) == ["prey/p000"]
    for name in ("prey/p000", "prey/p001", "prey/p002"):
        lease(world, name)
    # The possible partners train alone and will be free soon.
    assert teams(world, "predator/p000", max_lead=499) == []
    # The policy is so far ahead that no partner is worth waiting for.
    for name in ("prey/p000", "prey/p001", "prey/p002"):
        put(world, name, agent_steps=2000)
    assert teams(world, "predator/p000", max_lead=500) == []
    assert teams(world, "predator/p000", max_lead=499) == ["predator/p000"]


def test_one_without_a_free_rival_trains_alone_unless_one_trains_alone_too() -> None:
    world = begun()
    for name in ("prey/p000", "prey/p001"):
        lease(world, name.replace("prey", "predator"), name)
    put(world, "prey/p002", state="quarantined")
    assert teams(world, "predator/p002") == ["predator/p002"]
    put(world, "prey/p002", state="active")
    row = lease(world, "prey/p002")
    assert teams(world, "predator/p002") == []
    transaction(world).put(replace(row, status="failed"))
    assert teams(world, "predator/p002") == ["predator/p002", "prey/p002"]


def test_a_learner_of_one_population_and_first_weights_have_no_rival() -> None:
    world = begun()
    assert teams(world, "prey/p000", serves="prey") == ["prey/p000"]
    assert teams(world, "predator/p000", serves="predator") == ["predator/p000"]
    put(world, "prey/p000", checkpoint=None)
    assert teams(world, "prey/p000") == ["prey/p000"]
    assert teams(world, "predator/p000") == ["predator/p000", "prey/p001"]


def test_frozen_rivals_are_as_ever() -> None:
    world = make_world({**RIVALS, "matchmaking": {}}, tag_spec())
    for name in ("prey/p000", "predator/p002"):
        assert teams(world, name) == [name]


@pytest.mark.parametrize("rival", ["free", "leased", "far ahead"])
def test_a_learner_goes_on_with_the_pair_that_it_holds_if_both_are_free(rival: str) -> None:
    world = begun()
    state = world.state
    own, first = ("predator/p000", "prey/p000"), ("predator/p001", "prey/p001")
    put(world, own[0], agent_steps=1200)
    put(world, own[1], agent_steps=1701 if rival == "far ahead" else 1700)
    put(world, "prey/p002", state="quarantined")
    # Another learner holds the pair that is first in the queue.
    state.phase.name = "stopping"
    here, elsewhere = world.join(), world.join()
    state.phase.name = "training"
    row = lease(world, "predator/p002", *(("prey/p000",) if rival == "leased" else ()))
    # A third learner holds the assignment.
    state.crew.holders[row.assignment_id] = LearnerId("third")
    for learner, names in ((here, own), (elsewhere, first)):
        team = [policy(world, name) for name in names]
        episodes = CarriedEpisodes(
            learner=learner,
            team=tuple(mate.policy for mate in team),
            checkpoints=tuple(str(mate.checkpoint) for mate in team),
            seatings=(),
            lesson=0,
        )
        for mate in team:
            state.crew.episodes[mate.policy] = episodes
    world.handle(Ticked())
    given = {
        learner: [
            tuple(trainee.policy for trainee in message.trainees)
            for message in queue
            if isinstance(message, Train)
        ]
        for learner, queue in world.given.items()
    }
    assert (own in given[here]) == (rival == "free")
    assert own not in given[elsewhere]
    assert first in [*given[here], *given[elsewhere]]
    trained_now = Counter(
        trainee.policy
        for row in state.tables.assignments.values()
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    )
    assert set(trained_now.values()) == {1}, trained_now


@pytest.mark.parametrize("num_learners", [1, 3, 5])
def test_both_populations_learn_in_pairs_and_come_to_the_same_steps(num_learners: int) -> None:
    world = rivals_world(num_learners, pbt={"exploit": "none", "explore": "none"})
    for learner in list(world.state.crew.learners):
        world.beat(learner)
    while not world.over:
        world.step()
        tables = world.state.tables
        leases = Counter(
            trainee.policy
            for row in tables.assignments.values()
            if isinstance(row.message, Train)
            for trainee in row.message.trainees
        )
        assert set(leases.values()) <= {1}
        least: dict[str, int] = {}
        for row in tables.policies.values():
            least[row.population] = min(row.agent_steps, least.get(row.population, 6000))
        # An assignment of a single policy has 500 steps, that of a pair 750.
        assert abs(least["predator"] - least["prey"]) <= 1500
    for message in trained(world):
        names = [population_of(trainee.policy) for trainee in message.trainees]
        assert names in (["predator", "prey"], ["predator"], ["prey"])
    # Two predators decide for each prey, so half of a prey's steps are made alone.
    sizes = Counter(len(message.trainees) for message in trained(world))
    assert sizes[2] > sizes[1] > 0
    assert {row.agent_steps for row in world.state.tables.policies.values()} == {6000}
    assert {len(message.trainees) for message in trained(world)[:3]} == {2}, "nobody is ahead yet"


def test_rivals_of_equal_sides_hardly_ever_train_alone() -> None:
    populations = {
        "white": {"agents": ["player_0"], "size": 2},
        "black": {"agents": ["player_1"], "size": 2},
    }
    world = make_world(
        {**DUEL, "populations": populations, "matchmaking": {"rivals": "learning"}, "learners": 1},
        joined=1,
    )
    world.run()
    sizes = Counter(len(message.trainees) for message in trained(world))
    # Single training only happens while a PBT decision about a partner is pending.
    assert sizes[2] > 8 * sizes[1]


def test_what_is_far_behind_is_left_to_a_faster_learner() -> None:
    world = make_world({**DUEL, "learners": 2, "assignment": {"agent_steps": 100}})
    slow, fast = world.join(), world.join()
    first, *others = world.state.tables.policies.values()
    for row in others:
        transaction(world).put(replace(row, agent_steps=1401, ghost_at=0, ready_at=10**6))
    for behind, speeds, deterministic, left in [
        (1000, (10.0, 100.0), False, True),
        # The lead is at most four assignments.
        (1001, (10.0, 100.0), False, False),
        # The speeds are equal, or both are unknown.
        (0, (95.0, 100.0), False, False),
        (0, (0.0, 0.0), False, False),
        (0, (10.0, 100.0), True, False),
    ]:
        world.state.settings.config = world.state.settings.config.model_copy(
            update={"deterministic": deterministic}
        )
        for learner, speed in zip((slow, fast), speeds, strict=True):
            world.state.crew.learners[learner].speeds = {first.population: speed}
        row = replace(first, agent_steps=behind, ghost_at=0, ready_at=10**6)
        transaction(world).put(row)
        for learner, is_left in ((slow, left), (fast, False)):
            known = world.state.crew.learners[learner]
            assert _is_left_to_faster(world.state, transaction(world), known, (row,)) == is_left


def test_a_team_is_not_left_to_a_learner_that_may_not_train_all_of_it() -> None:
    sizes = {"speaker": {"size": 2}, "listener": {"size": 2}}
    world = make_world({**DUET, "populations": sizes, "learners": 2}, duet_spec())
    slow, fast = world.join(), world.join()
    rows = list(world.state.tables.policies.values())
    first, *others = [row for row in rows if row.population == "speaker"]
    for row in others:
        transaction(world).put(replace(row, agent_steps=10**6, ghost_at=0, ready_at=10**7))
    transaction(world).put(replace(first, ghost_at=0, ready_at=10**7))
    for learner, speed in ((slow, 10.0), (fast, 100.0)):
        world.state.crew.learners[learner].speeds = {"speaker": speed, "listener": speed}
    team = team_of(world.state.league, world.state.tables.policies[first.policy])
    known = world.state.crew.learners
    assert _is_left_to_faster(world.state, transaction(world), known[slow], team)
    known[fast].hello = replace(known[fast].hello, populations=("speaker",))
    assert not _is_left_to_faster(world.state, transaction(world), known[slow], team)


def test_who_joins_first_makes_the_weights_of_all_populations() -> None:
    world = make_world(TAG, tag_spec())
    learner = world.join(slot=1, populations=("prey",))
    made: set[PolicyId] = set()
    while made != set(world.state.tables.policies):
        for message in world.given[learner]:
            if isinstance(message, Train) and message.agent_steps == 0:
                made |= {trainee.policy for trainee in message.trainees}
        world.step()
