"""Marks of exports: one for each interval that a policy has entered, at a checkpoint that stays."""

from __future__ import annotations

import pytest

from tests.populations.controller.simulated import DUEL, World, make_world


def played(every: int | None, *, keep: int | None = None) -> World:
    section = {"keep": 1, "export_every_agent_steps": every, "keep_exports": keep}
    world = make_world({**DUEL, "checkpoints": section, "pbt": {"exploit": "none"}}, joined=1)
    world.run()
    return world


def test_each_interval_is_marked_once_at_the_first_checkpoint_in_it() -> None:
    world = played(1200)
    for policy in world.state.tables.policies.values():
        own = [row for row in world.events("export_due") if row.subject == policy.policy]
        steps = [int(str(row.data["agent_steps"])) for row in own]
        assert [count // 1200 for count in steps] == list(range(1, policy.agent_steps // 1200 + 1))
        assert [row.data["player"] for row in own] == [f"{policy.policy}@{n}" for n in steps]
        assert [row.data["to"] for row in own] == [f"{policy.policy}/{n:012d}" for n in steps]


@pytest.mark.parametrize("keep", [None, 2])
def test_what_is_exported_and_kept_stays_however_long_that_takes(keep: int | None) -> None:
    world = played(1200, keep=keep)
    present = {
        f"{row.policy}@{row.agent_steps}"
        for row in world.state.tables.checkpoints.values()
        if row.state == "present"
    }
    for policy in world.state.tables.policies.values():
        marked = [str(row.data["player"]) for row in world.events("export_due")]
        own = [player for player in marked if player.startswith(policy.policy)]
        assert len(own) > 3
        # One more than is kept: it may be being exported when the next one is due.
        exported = own if keep is None else own[-keep - 1 :]
        assert present & set(own) == set(exported)
    assert len(present) < len(world.state.tables.checkpoints), "others are removed"


@pytest.mark.parametrize("every", [None, 0])
def test_without_an_interval_nothing_is_exported(every: int | None) -> None:
    assert not played(every).events("export_due")
