"""The next assignment of a free learner."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from arena.errors import CheckpointError, ConfigError
from arena.transfer.terms import check_granted
from arena.wire.keys import holder_of
from arena.wire.messages import Train
from populations.controller.assignments.jobs import assignment_seed, budget
from populations.controller.assignments.placement import population_in_turn
from populations.controller.assignments.validation import open_grants, open_leases
from populations.controller.state.events import LearnerLeft, Now
from populations.controller.state.leases import QUEUED_PER_LEARNER
from populations.records.rows import AssignmentRow
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    duet_spec,
    make_world,
    stranger,
    tag_spec,
)


def test_seeds_are_functions_of_the_run_and_the_assignment() -> None:
    first, again = make_world(), make_world()
    other = make_world({**DUEL, "seed": 2})
    seeds = [assignment_seed(first.state.settings.config, number) for number in range(100)]
    assert seeds == [assignment_seed(again.state.settings.config, number) for number in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert not set(seeds) & {
        assignment_seed(other.state.settings.config, number) for number in range(100)
    }


def test_initial_checkpoints_come_before_any_training() -> None:
    world = make_world()
    learner = world.join()
    kinds: list[bool] = []
    while len(kinds) < 8:
        message = world.given[learner][0]
        kinds.append(isinstance(message, Train) and message.agent_steps == 0)
        event = world.work(learner)
        assert event is not None
        world.handle(event)
    assert kinds[:4] == [True] * 4
    assert not any(kinds[4:])


def test_a_learner_has_its_slots_and_one_queued_of_another_policy() -> None:
    world = make_world()
    learner = world.join()
    for _ in range(30):
        world.step()
        held = world.state.crew.learners[learner].held
        assert len(held) <= 1 + QUEUED_PER_LEARNER
        trained = [
            trainee.policy
            for one in held
            if (row := world.state.tables.assignments.get(one.assignment_id)) is not None
            and isinstance(row.message, Train)
            for trainee in row.message.trainees
        ]
        assert len(set(trained)) == len(trained)


@pytest.mark.parametrize("episodes", [None, 3])
def test_an_assignment_has_the_whole_episodes_that_were_asked_for(episodes: int | None) -> None:
    world = make_world({**DUEL, "assignment": {"episodes": episodes}}, joined=1, steps=10)
    trained = [message for message in world.messages(Train) if message.agent_steps]
    assert trained
    assert {message.episodes for message in trained} == {episodes}


def test_every_honest_checkpoint_is_granted_until_its_assignment_ends() -> None:
    world = make_world()
    learner = world.join()
    num_published = 0
    for _ in range(40):
        held = open_leases(world.state.crew.learners)
        before = open_grants(
            world.state.settings.setup, world.state.tables, world.state.crew.learners
        )
        event = world.work(learner)
        assert event is not None
        for manifest in event.manifests.values():
            check_granted(manifest, before[holder_of(learner)])
            num_published += 1
        world.handle(event)
        assert open_leases(world.state.crew.learners) != held
        for manifest in event.manifests.values():
            # The next assignment continues from there; granting the same checkpoint again is
            # outdated.
            with pytest.raises(CheckpointError):
                check_granted(
                    manifest,
                    open_grants(
                        world.state.settings.setup, world.state.tables, world.state.crew.learners
                    ).get(holder_of(learner), ()),
                )
    assert num_published > 20


def test_a_learner_that_is_lost_may_publish_nothing() -> None:
    world = make_world()
    learner = world.join()
    assert open_grants(world.state.settings.setup, world.state.tables, world.state.crew.learners)[
        holder_of(learner)
    ]
    world.handle(LearnerLeft(learner=learner, reason=""))
    assert learner not in world.state.crew.learners
    assert (
        open_grants(world.state.settings.setup, world.state.tables, world.state.crew.learners) == {}
    )


TURNS: dict[str, object] = {"learning_side_turns": {"every_agent_steps": 2000}}
TURNING: dict[str, object] = {**TAG, "matchmaking": TURNS, "learners": 2}


def test_the_population_with_fewer_whole_turns_is_next_by_hand() -> None:
    world = make_world(TURNING, tag_spec())
    state = world.state
    tx = state.begin(Now(monotonic_s=1.0, utc="now"))

    def has_done(population: str, *steps: int) -> None:
        rows = [row for row in state.tables.policies.values() if row.population == population]
        for row, agent_steps in zip(rows, steps, strict=True):
            tx.put(replace(row, agent_steps=agent_steps))

    assert population_in_turn(state.settings, state.tables) == "predator"
    has_done("predator", 2000, 2500, 1999)
    assert population_in_turn(state.settings, state.tables) == "predator"
    has_done("predator", 2000, 2500, 2000)
    assert population_in_turn(state.settings, state.tables) == "prey"
    has_done("prey", 2000, 2000, 2000)
    assert population_in_turn(state.settings, state.tables) == "predator"
    has_done("predator", 6000, 6000, 6000)
    has_done("prey", 4100, 6000, 6000)
    assert population_in_turn(state.settings, state.tables) == "prey"
    rows = [row for row in state.tables.policies.values() if row.population == "prey"]
    # At the limit of 6000 agent steps only the last policy still trains.
    has_done("prey", 6000, 6000, 6000)
    assert population_in_turn(state.settings, state.tables) is None
    tx.put(replace(rows[0], agent_steps=10, state="quarantined"))
    assert population_in_turn(state.settings, state.tables) is None


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_turns_go_round_to_the_end_of_the_run(deterministic: bool) -> None:
    document = {**TURNING, "deterministic": deterministic}
    world = make_world(document, tag_spec(), joined=2)
    world.run()
    trained = [
        row.message.trainees[0].policy.split("/")[0]
        for row in world.committed
        if isinstance(row, AssignmentRow) and row.status == "queued"
        if isinstance(row.message, Train) and row.message.agent_steps
    ]
    changes = [trained[0], *(b for a, b in pairwise(trained) if a != b)]
    # Two populations have three turns of 2000 steps each.
    assert changes == ["predator", "prey"] * 3
    assert {row.agent_steps for row in world.state.tables.policies.values()} == {6000}


def test_without_turns_all_may_learn() -> None:
    world = make_world(TAG, tag_spec())
    assert population_in_turn(world.state.settings, world.state.tables) is None


@pytest.mark.parametrize(("section", "expected"), [(TURNS, 1900), ({}, 5000)])
def test_a_budget_ends_with_the_turn(section: dict[str, object], expected: int) -> None:
    far: dict[str, object] = {
        **TAG,
        "matchmaking": section,
        "ghosts": {"every_agent_steps": 10**9},
        "pbt": {"exploit": "none", "ready_agent_steps": 10**9, "warm_up_agent_steps": 10**9},
        "assignment": {"agent_steps": 5000},
        "stop": {"agent_steps_per_policy": 10**9},
    }
    world = make_world(far, tag_spec())
    tx = world.state.begin(Now(monotonic_s=1.0, utc="now"))
    (first, *_) = world.state.tables.policies.values()
    row = replace(first, agent_steps=4100, ghost_at=0)
    tx.put(row)
    assert budget(world.state, tx, row, learner=stranger(world)) == expected


def test_turns_need_somebody_who_stands_still() -> None:
    with pytest.raises(ConfigError, match="must be null with one population or one side"):
        make_world({**DUEL, "matchmaking": TURNS})
    with pytest.raises(ConfigError, match=r"populations speaker, listener and 1 side$"):
        make_world({**DUET, "matchmaking": TURNS}, duet_spec())
