"""A full pool of ghosts is thinned: never too large, and what is needed stays."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import PlayerId
from populations.controller import ghost_thinning
from populations.controller.ghost_thinning import thin
from populations.controller.machine import handle
from populations.controller.state.events import (
    CheckpointsRemoved,
    ControllerStarted,
    Now,
    RemoveCheckpoints,
)
from populations.controller.state.state import make_state
from populations.core import ThinningRequest
from populations.records.rows import GhostRow
from populations.thinning.make import Oldest
from tests.populations.controller.simulated import DUEL, World, made_once, make_world

KEEP = 16
FEW: dict[str, object] = {
    **DUEL,
    "ghosts": {"every_agent_steps": 500, "keep": KEEP},
    "evaluation": {"share": 0.18},
    "stop": {"agent_steps_per_policy": 8000},
}


def present(world: World) -> list[GhostRow]:
    return [ghost for ghost in world.state.tables.ghosts.values() if ghost.is_present]


def check(world: World) -> None:
    """No pool is too large, and all that something names is there."""
    tables = world.state.tables
    assert len(present(world)) <= KEEP
    for assignment in tables.assignments.values():
        message = assignment.message
        seatings = getattr(message, "opponents", ()) or ()
        for seating in (*seatings, *getattr(message, "carried", ())):
            for player in seating.players:
                if "@" in player.player:
                    assert tables.ghosts[player.player].is_present


@pytest.fixture(scope="module")
def thinned() -> World:
    world = make_world(FEW, joined=2)
    while not world.over and world.now_s < 1e6:
        world.step()
        check(world)
        if world.state.phase.name != "training":
            break
    return world


def test_a_pool_is_never_too_large_and_what_is_needed_stays(thinned: World) -> None:
    events = thinned.events("ghosts_thinned")
    assert len(events) > 4
    created = {event.subject for event in thinned.events("ghost_created")}
    gone = [player for event in events for player in event.data["ghosts"]]  # type: ignore[union-attr]
    assert len(created) > 2 * KEEP
    assert len(gone) == len(set(gone))
    assert {ghost.player for ghost in present(thinned)} == created - set(gone)
    for event in events:
        assert event.data["rule"] == "spread"
        assert event.data["before"] == KEEP + 1
        assert len(event.data["ghosts"]) == 1 + KEEP // 16  # type: ignore[arg-type]


def test_history_keeps_its_beginning(thinned: World) -> None:
    assert min(ghost.agent_steps for ghost in present(thinned)) == 0


@made_once
def world_with_many(keep: int | None) -> World:
    """A world whose ghosts were left under no bound."""
    world = make_world(
        {**FEW, "ghosts": {"every_agent_steps": 500, "keep": None}}, joined=1, steps=40
    )
    assert len(present(world)) > KEEP + 4
    config = world.state.settings.config
    ghosts = config.ghosts.model_copy(update={"keep": keep})
    world.state = make_state(
        config.model_copy(update={"ghosts": ghosts}), world.setup, world.state.tables
    )
    return world


def test_a_run_of_before_is_thinned_at_once() -> None:
    world = world_with_many(KEEP)
    world.handle(ControllerStarted())
    assert len(present(world)) == KEEP - KEEP // 16


def test_without_a_bound_all_stay() -> None:
    world = world_with_many(None)
    before = present(world)
    world.handle(ControllerStarted())
    assert present(world) == before


def test_what_was_not_removed_is_removed_by_the_next_epoch() -> None:
    world = world_with_many(KEEP)
    tx = world.state.begin(Now(monotonic_s=0.0, utc=""))
    thin(world.state, tx)
    doomed = [ghost for ghost in world.state.tables.ghosts.values() if ghost.doomed]
    (command,) = [one for one in tx.commands if isinstance(one, RemoveCheckpoints)]
    assert set(command.keys) == {ghost.key for ghost in doomed}
    # The controller crashes here: the next epoch decides again, and forgets the ghosts when they
    # are removed.
    world.state = make_state(world.state.settings.config, world.setup, world.state.tables)
    now = Now(monotonic_s=0.0, utc="")
    commands = handle(world.state, ControllerStarted(), now).commands
    (again,) = [one for one in commands if isinstance(one, RemoveCheckpoints)]
    assert set(command.keys) <= set(again.keys)
    assert all(world.state.tables.ghosts[ghost.player].doomed for ghost in doomed)
    handle(world.state, CheckpointsRemoved(keys=again.keys), now)
    assert not any(ghost.player in world.state.tables.ghosts for ghost in doomed)


@pytest.mark.parametrize("reason", ["unlinked", "pinned", "exploiter", "named"])
def test_what_something_needs_stays(reason: str) -> None:
    world = world_with_many(KEEP)
    tables, state = world.state.tables, world.state
    # By age alone the second ghost of a policy would be removed first.
    ghosts = [ghost for ghost in present(world) if 0 < ghost.agent_steps < 2000]
    for ghost in ghosts:
        if reason == "unlinked":
            tables.ghosts[ghost.player] = replace(ghost, linked=False)
        elif reason == "pinned":
            tables.ghosts[ghost.player] = replace(ghost, pinned=True)
        elif reason == "exploiter":
            tables.ghosts[ghost.player] = replace(ghost, role="main_exploiter", agent_steps=0)
    if reason == "named":
        ghosts = ghosts[:1]
        roles = state.settings.config.roles.model_copy(update={"reset": ghosts[0].player})
        state.settings.config = state.settings.config.model_copy(update={"roles": roles})
    thin(state, state.begin(Now(monotonic_s=0.0, utc="")))
    for ghost in ghosts[: KEEP - 1]:
        assert tables.ghosts[PlayerId(ghost.player)].is_present


def test_the_champion_stays_though_it_tells_least(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world_with_many(KEEP), world_with_many(KEEP)
    thin(first.state, first.state.begin(Now(monotonic_s=0.0, utc="")))
    gone = next(ghost for ghost in first.state.tables.ghosts.values() if ghost.doomed)
    monkeypatch.setattr(ghost_thinning, "leading_entrant", lambda *_: gone.weights_digest)
    thin(second.state, second.state.begin(Now(monotonic_s=0.0, utc="")))
    assert second.state.tables.ghosts[gone.player].is_present
    assert any(ghost.doomed for ghost in second.state.tables.ghosts.values())


class Broken:
    """A rule of a user's own that fails as often as it is told."""

    def __init__(self, times: int) -> None:
        self.times = times

    def choose(self, request: ThinningRequest) -> tuple[int, ...]:
        self.times -= 1
        if self.times >= 0:
            raise ZeroDivisionError("no neighbours")
        return Oldest().choose(request)


def test_where_a_users_rule_fails_the_pool_is_thinned_all_the_same() -> None:
    world = make_world(FEW, joined=1)
    world.state.settings.thinning = Broken(times=2)
    while len(world.events("ghosts_thinned")) < 4:
        world.step()
        check(world)
    failed = world.events("thinning_failed")
    assert len(failed) == 2
    assert failed[0].subject == "player"
    assert "ZeroDivisionError: no neighbours" in str(failed[0].data["reason"])
    assert [event.data["rule"] for event in world.events("ghosts_thinned")[:3]] == [
        *("spread", "spread"),
        world.state.settings.config.ghosts.thinning,
    ]
    (alert,) = world.events("alert")
    assert alert.data["name"] == "thinning_fell_back"
    (cleared,) = world.events("alert_cleared")
    assert cleared.data["name"] == "thinning_fell_back"
