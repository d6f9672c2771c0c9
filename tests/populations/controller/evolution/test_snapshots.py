"""Ghosts: when a policy leaves one, and what is in it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from populations.controller.evolution.snapshots import steps_to_next
from populations.controller.state.events import LinkGhosts
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import DUEL, World, made_once, make_world


@made_once
def played(steps: int = 40) -> World:
    return make_world({**DUEL, "pbt": {"exploit": "none"}}, joined=1, steps=steps)


def test_every_policy_leaves_its_first_checkpoint_and_then_one_each_phase() -> None:
    world = played()
    every = world.state.settings.config.ghosts.every_agent_steps
    for policy in world.state.tables.policies.values():
        marks = [
            ghost.agent_steps
            for ghost in world.state.tables.ghosts.values()
            if ghost.policy == policy.policy
        ]
        assert marks[0] == 0
        assert len(marks) >= 2
        assert all(after - before >= every for before, after in pairwise(marks))
        assert policy.ghost_at == marks[-1]


def test_a_ghost_has_the_weights_of_its_checkpoint_and_is_linked() -> None:
    world = played()
    tables = world.state.tables
    for ghost in tables.ghosts.values():
        checkpoint = tables.checkpoints[ghost.checkpoint]
        assert ghost.weights_digest == checkpoint.weights_digest
        assert ghost.agent_steps == checkpoint.agent_steps
        assert ghost.linked
    reasons = {str(event.data["reason"]) for event in world.events("ghost_created")}
    assert "its first checkpoint" in reasons
    assert any("agent steps since the last one" in reason for reason in reasons)
    assert set(world.linked) == set(tables.ghosts)


@pytest.mark.parametrize(("agent_steps", "expected"), [(0, 1000), (400, 600), (1300, -300)])
def test_steps_to_the_next_one(agent_steps: int, expected: int) -> None:
    world = make_world()
    row = next(iter(world.state.tables.policies.values()))
    row = replace(row, ghost_at=0, agent_steps=agent_steps)
    transaction(world).put(row)
    assert steps_to_next(world.state.settings.config, row) == expected


def test_links_are_asked_for_after_the_commit() -> None:
    world = make_world()
    learner = world.join()
    event = world.work(learner)
    assert event is not None
    tx = world.handle(event)
    assert [len(one.ghosts) for one in tx.commands if isinstance(one, LinkGhosts)] == [1]


def exporting_world(every: int | None, *, keep: int | None = None) -> World:
    section = {"keep": 1, "export_every_agent_steps": every, "keep_exports": keep}
    world = make_world({**DUEL, "checkpoints": section, "pbt": {"exploit": "none"}}, joined=1)
    world.run()
    return world


def test_each_interval_is_marked_once_at_the_first_checkpoint_in_it() -> None:
    world = exporting_world(1200)
    for policy in world.state.tables.policies.values():
        own = [row for row in world.events("export_due") if row.subject == policy.policy]
        steps = [int(str(row.data["agent_steps"])) for row in own]
        assert [count // 1200 for count in steps] == list(range(1, policy.agent_steps // 1200 + 1))
        assert [row.data["player"] for row in own] == [f"{policy.policy}@{n}" for n in steps]
        assert [row.data["to"] for row in own] == [f"{policy.policy}/{n:012d}" for n in steps]


@pytest.mark.parametrize("keep", [None, 2])
def test_what_is_exported_and_kept_stays_however_long_that_takes(keep: int | None) -> None:
    world = exporting_world(1200, keep=keep)
    present = {
        f"{row.policy}@{row.agent_steps}"
        for row in world.state.tables.checkpoints.values()
        if row.state == "present"
    }
    for policy in world.state.tables.policies.values():
        marked = [str(row.data["player"]) for row in world.events("export_due")]
        own = [player for player in marked if player.startswith(policy.policy)]
        assert len(own) > 3
        # One more snapshot is kept than configured, because it may be in export when the next is
        # due.
        exported = own if keep is None else own[-keep - 1 :]
        assert present & set(own) == set(exported)
    assert len(present) < len(world.state.tables.checkpoints), "others are removed"


@pytest.mark.parametrize("every", [None, 0])
def test_without_an_interval_nothing_is_exported(every: int | None) -> None:
    assert not exporting_world(every).events("export_due")
