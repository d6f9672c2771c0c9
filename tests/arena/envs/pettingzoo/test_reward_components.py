"""Parts of rewards: they add up to the rewards, and faults name the agent and the part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
import torch

from arena.config import EnvironmentConfig
from arena.envs.base import BatchedEnv
from arena.errors import ConfigError, EnvironmentFault
from tests.arena.samples import facts_of, make_env

ALL: dict[str, dict[str, float]] = {
    "PartsAtOnce": {"near": 1.0, "win": 1.0},
    "at_once_in_turns": {"near": 1.0, "win": 1.0},
    "PartsInTurns": {"near": 1.0, "pressed": 1.0, "win": 1.0},
    "turns_at_once": {"near": 1.0, "pressed": 1.0, "win": 1.0},
}

Make = Callable[..., BatchedEnv]


@pytest.fixture
def make() -> Iterator[Make]:
    with ExitStack() as stack:

        def make(
            name: str, weights: dict[str, float], *, num_envs: int = 3, **kwargs: object
        ) -> BatchedEnv:
            environment_id = f"reward_parts:{name}" if ":" not in name and "/" not in name else name
            env = make_env(
                spec := facts_of(environment_id, kwargs),
                num_envs=num_envs,
                populations={"player": spec.agents},
                config={"reward_weights": weights},
            )
            return stack.enter_context(closing(env))

        yield make


@pytest.mark.parametrize("name", ALL)
def test_the_parts_add_up_to_the_rewards_of_every_call(make: Make, name: str) -> None:
    env = make(name, ALL[name])
    turn = env.reset([1, 2, 3])
    generator = torch.Generator().manual_seed(5)
    num_paid = num_over = 0
    for _ in range(60):
        assert turn.components is not None
        assert turn.components.shape == (3, 2, len(ALL[name]))
        assert turn.components.dtype == torch.float32
        assert torch.equal(turn.components.sum(dim=-1), turn.reward)
        num_paid += int(turn.reward.count_nonzero())
        num_over += int(turn.episode_over.sum())
        shape = turn.groups["player"].agent_index.shape
        turn = env.step({"player": torch.randint(2, shape, generator=generator)})
    assert num_paid > 50
    assert num_over >= 15


def test_parts_come_in_the_order_of_the_weights(make: Make) -> None:
    for names, expected in (
        (("near", "win"), [[0.75, 1.0], [0.0, -1.0]]),
        (("win", "near"), [[1.0, 0.75], [-1.0, 0.0]]),
    ):
        env = make("PartsAtOnce", dict.fromkeys(names, 1.0), num_envs=1)
        env.reset([1])
        received = torch.zeros(2, 2)
        # The actions are those of ``a`` in all steps but the last.
        for action in (1, 1, 1, 0):
            turn = env.step({"player": torch.tensor([[action, 0]])})
            assert turn.components is not None
            received += turn.components[0]
        assert turn.episode_over.item()
        assert received.tolist() == expected


@pytest.mark.parametrize("name", ALL)
def test_without_weights_nothing_is_told_apart(make: Make, name: str) -> None:
    assert make(name, {}).reset([1, 2, 3]).components is None


def play_an_episode(env: BatchedEnv) -> None:
    turn = env.reset(range(env.num_envs))
    while not turn.episode_over.any():
        shape = turn.groups["player"].agent_index.shape
        turn = env.step({"player": torch.ones(shape, dtype=torch.int64)})


def test_a_part_that_is_never_reported_is_a_fault_at_the_end_of_the_first_episode(
    make: Make,
) -> None:
    env = make("PartsAtOnce", {"near": 1.0, "win": 2.0}, hidden="win")
    with pytest.raises(
        EnvironmentFault,
        match=r"agent 'b' never reported the reward component 'win'.* it had: near, unlisted$",
    ):
        play_an_episode(env)
    play_an_episode(make("PartsAtOnce", {"near": 1.0}, hidden="win"))


def test_an_environment_that_reports_nothing_is_a_fault(make: Make) -> None:
    env = make("classic/rps-v2", {"win": 1.0})
    with pytest.raises(EnvironmentFault, match=r"player_0.*'win'.* it had: none$"):
        play_an_episode(env)


def test_a_part_must_be_a_finite_number(make: Make) -> None:
    with pytest.raises(EnvironmentFault, match=r"agent 'a'.*'near' must be finite.*'a lot'"):
        play_an_episode(make("PartsAtOnce", {"near": 1.0}, broken=True))
    play_an_episode(make("PartsAtOnce", {"win": 1.0}, broken=True))


def test_parts_that_are_changed_in_place_are_a_fault(make: Make) -> None:
    env = make("PartsInTurns", {"near": 1.0}, in_place=True)
    with pytest.raises(EnvironmentFault, match=r"must be a new mapping at each step, got one"):
        play_an_episode(env)


def test_batched_games_report_no_parts(make: Make) -> None:
    env = make("classic/tictactoe-v3", {"win": 1.0})
    assert env.reset([1, 2, 3]).components is not None  # stepped one by one
    with pytest.raises(ConfigError, match=r"batched_games:Hunt is a batched game, not"):
        make("batched_games:Hunt", {"win": 1.0})
    with pytest.raises(ValueError, match=r"environment\.backend must be auto or pettingzoo"):
        EnvironmentConfig(id="x", backend="batched", reward_weights={"win": 1.0})
    with pytest.raises(ValueError, match=r"environment\.reward_weights must be empty where Open"):
        EnvironmentConfig(id="openspiel:kuhn_poker", reward_weights={"win": 1.0})
    with pytest.raises(ValueError, match=r"a component's name must match .* got 'a\.b'"):
        EnvironmentConfig(id="x", reward_weights={"a.b": 1.0})
