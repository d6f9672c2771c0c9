"""Environments are told who plays, and whether anybody learns, before their episodes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.config import NetworkConfig
from arena.environment_spec import EnvironmentSpec
from arena.envs.base import Phase
from arena.envs.one_by_one.envs import OneByOne, ToleratedFaults, find_set_phase
from arena.envs.pettingzoo.buffers import Buffers
from arena.envs.phase import players_of_agents
from arena.types import Seat
from arena.wire.messages import Failed
from tests.arena.learners.conftest import evaluate, finished, frozen
from tests.arena.learners.work.test_worker_on_pettingzoo import (
    RANDOM,
    live,
    make_worker,
    start,
    train,
)
from tests.arena.samples import ASSETS

Call = tuple[object, ...]


def calls() -> list[Call]:
    """Return what was told since the last call of this function."""
    told: list[Call] = sys.modules["told"].CALLS
    taken = list(told)
    told.clear()
    return taken


@pytest.mark.parametrize(
    ("name", "agent_id"),
    [("at_once", False), ("at_once", True), ("in_turns", False), ("converted", False)],
)
def test_an_environment_is_told_before_its_episodes(
    tmp_path: Path, name: str, agent_id: bool
) -> None:
    worker = make_worker(
        tmp_path,
        f"told:{name}",
        num_envs=2,
        launch_directory=ASSETS,
        population={"network": NetworkConfig(agent_id=agent_id)},
    )
    first = start(worker, "player/p000")
    me, ghost = live("player/p000"), frozen(tmp_path, first, "player/p000@000000000000")
    message = train(("player/p000", first), seatings=[(me, RANDOM), (ghost, me)], agent_steps=8)
    message = replace(message, trainees=(replace(message.trainees[0], agent_steps=0),))
    finished(worker.carry_out(message))
    seen = calls()
    told = [call for call in seen if call[0] == "set_phase"]
    # Each of the two environments is called once, with the players of its block.
    assert told == [
        ("set_phase", "training", 0, {"a": "player/p000", "b": "bot:random"}),
        ("set_phase", "training", 0, {"a": "player/p000@000000000000", "b": "player/p000"}),
    ]
    assert seen.index(("reset",)) == seen.index(told[0]) + 1
    finished(worker.carry_out(evaluate((ghost, RANDOM, 4))))
    seen = calls()
    assert seen[0] == (
        "set_phase",
        "evaluation",
        None,
        {"a": "player/p000@000000000000", "b": "bot:random"},
    )
    # Matches have environments of their own, each called once before all of its matches.
    assert [call[0] for call in seen].count("set_phase") == 2
    assert [call[0] for call in seen].count("reset") >= 4
    worker.close()


def test_the_next_assignment_is_told_with_its_agent_steps(tmp_path: Path) -> None:
    worker = make_worker(tmp_path, "told:at_once", num_envs=1, launch_directory=ASSETS)
    first = start(worker, "player/p000")
    me = live("player/p000")
    message = train(("player/p000", first), seatings=[(me, RANDOM)], agent_steps=8)
    answer = finished(worker.carry_out(message))
    published = answer.checkpoints[0].checkpoint
    calls()
    again = replace(
        message,
        trainees=(replace(message.trainees[0], checkpoint=published, agent_steps=16),),
        opponents=(replace(message.opponents[0], players=(RANDOM, me)),),
    )
    finished(worker.carry_out(again))
    told = [call for call in calls() if call[0] == "set_phase"]
    assert told == [("set_phase", "training", 16, {"a": "bot:random", "b": "player/p000"})]
    worker.close()


def test_an_environment_that_refuses_a_phase_is_at_fault(tmp_path: Path) -> None:
    worker = make_worker(tmp_path, "told:refuses", num_envs=1, launch_directory=ASSETS)
    first = start(worker, "player/p000")
    message = train(("player/p000", first), seatings=[(live("player/p000"), RANDOM)], agent_steps=8)
    answer = worker.carry_out(message)
    assert isinstance(answer, Failed)
    assert answer.kind == "environment"
    assert "told:refuses" in answer.reason
    assert "set_phase raised ValueError: no training here" in answer.reason
    worker.close()


def test_without_the_method_nothing_is_called() -> None:
    class Plain:
        pass

    class Around:
        def __init__(self) -> None:
            self.env = self

    assert find_set_phase(Plain()) is None
    # The search also ends for a wrapper that contains itself.
    assert find_set_phase(Around()) is None


def test_home_is_named_where_two_teams_share_agents() -> None:
    def seat(name: str) -> Seat:
        return Seat(name=name, side="all", population="player", agents=("a", "b"))

    assert players_of_agents([seat("home"), seat("away")], ["x", "y"]) == {"a": "x", "b": "x"}


def test_an_episode_in_flight_is_told_nothing_and_one_not_begun_is_told_again() -> None:
    seen: list[object] = []

    class Logged:
        on_turn = "nobody"

        def set_phase(self, phase: str, agent_steps: int | None, players: dict[str, str]) -> None:
            seen.append(agent_steps)

        def start(self, seed: int) -> None:
            seen.append("start")

        def step(self, actions: object) -> bool:
            seen.append("step")
            return False

        def close(self) -> None:
            pass

    def phase(agent_steps: int) -> Phase:
        return Phase(name="training", agent_steps=agent_steps, players={})

    spec = EnvironmentSpec(id="logged", kwargs={}, api="aec", agents=(), agent_specs={})
    game = Logged()
    envs = OneByOne(
        spec.id,
        buffers=Buffers(spec, populations={}, num_envs=1, num_sides=0),
        num_envs=1,
        make=lambda b: (game, game),
        faults=ToleratedFaults(None),
        on_step=None,
    )
    envs.tell([phase(1)])
    envs.reset([0])
    # The episode was reset by one assignment and begins in the next one.
    envs.tell([phase(2)])
    envs.step({})
    # The episode is in flight, so the third assignment is announced with its next episode.
    envs.tell([phase(3)])
    envs.step({})
    envs.reset([1])
    assert seen == [1, "start", 2, "step", "step", 3, "start"]
