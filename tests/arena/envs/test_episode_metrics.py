"""Figures that environments report: taken at each agent's end, whatever they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
import torch

from arena.config import EnvironmentConfig
from arena.environment_spec import EnvironmentRequest
from arena.envs.base import BatchedEnv
from arena.envs.describe import environment_facts
from arena.envs.episode_metrics import MAX_NAMES, EpisodeFigures, Report
from arena.envs.make import make_batched_env
from arena.envs.one_by_one.steppers import EnvsRequest

Make = Callable[..., BatchedEnv]


@pytest.fixture
def make_env(assets: str) -> Iterator[Make]:
    made: list[BatchedEnv] = []

    def make(name: str, *, num_envs: int = 2, **kwargs: object) -> BatchedEnv:
        environment_id = f"own_figures:{name}"
        spec = environment_facts(
            EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=assets)
        )
        made.append(
            make_batched_env(
                EnvsRequest(
                    EnvironmentConfig(id=environment_id),
                    spec=spec,
                    sides={agent: (agent,) for agent in spec.agents},
                    populations={"player": spec.agents},
                    num_envs=num_envs,
                    launch_directory=assets,
                )
            )
        )
        return made[-1]

    yield make
    for env in made:
        env.close()


def play_an_episode(env: BatchedEnv) -> list[Report]:
    """Agent ``a`` always does 1, agent ``b`` does so in its first decision."""
    turn = env.reset([3] * env.num_envs)
    assert list(turn.figures) == [], "what a reset shows is of no episode"
    decided = 0
    while True:
        agents = turn.groups["player"].agent_index
        turn = env.step({"player": ((agents == 0) | (decided < 2)).long()})
        decided += agents.shape[1]
        if bool(turn.episode_over.any()):
            return list(turn.figures)
        assert list(turn.figures) == [], "the episode is not over"


def test_each_agent_reports_once_where_its_episode_ends(make_env: Make) -> None:
    for name, sums in (("FiguresInTurns", (2.0, 1.0)), ("FiguresAtOnce", (4.0, 1.0))):
        reports = play_an_episode(make_env(name))
        assert [(one.environment, one.agent) for one in reports] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert [one.figures["sum"] for one in reports] == [*sums, *sums]
        assert {type(one.figures["sum"]) for one in reports} == {float}
        assert {one.num_ignored for one in reports} == {0}


def test_a_step_later_nothing_is_reported_any_more(make_env: Make) -> None:
    env = make_env("FiguresAtOnce")
    assert len(play_an_episode(env)) == 4
    assert list(env.step({"player": torch.zeros(2, 2, dtype=torch.int64)}).figures) == []


def test_what_is_no_finite_number_is_left_out_and_noted_once(
    make_env: Make, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_env("FiguresInTurns", bad=True)
    with caplog.at_level(logging.WARNING):
        first, *_ = play_an_episode(env)
        again, *_ = play_an_episode(env)
    assert first.figures == again.figures == {"sum": 2.0, "lucky": 1.0}
    assert first.num_ignored == 7
    assert len(caplog.records) == 6, "two of the names are wrong in the same way"
    assert "'no_number' must be a finite number, got 'far'" in caplog.text
    assert "too_large" in caplog.text


@pytest.mark.parametrize("reported", [3.0, "far", [("sum", 1.0)]])
def test_what_is_no_mapping_is_left_out(make_env: Make, reported: object) -> None:
    reports = play_an_episode(make_env("FiguresAtOnce", reported=reported))
    assert [(one.figures, one.num_ignored) for one in reports] == [({}, 1)] * 4


def test_the_number_of_names_is_bounded(make_env: Make) -> None:
    reports = play_an_episode(make_env("FiguresInTurns", crowd=MAX_NAMES + 8))
    names = {name for one in reports for name in one.figures}
    assert len(names) == MAX_NAMES
    assert {one.num_ignored for one in reports} == {10}, "those two and eight more"


def test_a_void_episode_has_reported_nothing() -> None:
    figures = EpisodeFigures()
    for environment in (0, 1, 0):
        figures.take(environment, 0, {"sum": 1.0})
    figures.void(0)
    assert [one.environment for one in figures.reports] == [1]
