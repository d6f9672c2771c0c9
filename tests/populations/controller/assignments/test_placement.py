"""The next assignment of a free learner."""

from __future__ import annotations

import pytest

from arena.wire.messages import Train
from populations.controller.assignments.jobs import assignment_seed
from populations.controller.state.leases import QUEUED_PER_LEARNER
from tests.populations.controller.simulated import DUEL, make_world


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
