from typing import Any

import numpy as np
import pytest
import torch

from arena.environment_spec import EnvironmentRequest
from arena.envs.batched.rock_paper_scissors import RockPaperScissors
from arena.envs.describe import environment_facts
from arena.envs.registry import make_environment
from arena.errors import ConfigError

CPU = torch.device("cpu")
NUM_GAMES = 40
ROCK, PAPER, SCISSORS = 0, 1, 2


def started(num_games: int, **kwargs: object) -> RockPaperScissors:
    game = RockPaperScissors(num_games, device=CPU, **kwargs)
    game.reset(torch.ones(num_games, dtype=torch.bool), key=torch.zeros(num_games).long())
    return game


def one_hot(seen: object, *, size: int) -> list[float]:
    return [float(value == int(np.asarray(seen))) for value in range(size)]


@pytest.mark.parametrize(
    "kwargs", [{}, {"num_actions": 5, "max_cycles": 3}, {"num_actions": 7}, {"max_cycles": 1}]
)
def test_its_specs_are_the_originals_facts(kwargs: dict[str, int], assets: str) -> None:
    facts = environment_facts(
        EnvironmentRequest("classic/rps-v2", kwargs=kwargs, launch_directory=assets)
    )
    game = started(1, **kwargs)
    assert game.agents == facts.agents
    assert game.agent_specs == facts.agent_specs
    assert game.api == facts.api
    assert game.groups == (facts.agents,)


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"num_actions": 5, "max_cycles": 20}, {"num_actions": 7}, {"max_cycles": 0}],
)
def test_random_games_go_as_the_originals_do(kwargs: dict[str, int], assets: str) -> None:
    rng = np.random.default_rng(0)
    num_actions = kwargs.get("num_actions", 3)
    game = started(NUM_GAMES, **kwargs)
    originals: list[Any] = [
        make_environment("classic/rps-v2", kwargs=kwargs, api="parallel", launch_directory=assets)
        for _ in range(NUM_GAMES)
    ]
    seen = [original.reset(seed=0)[0] for original in originals]
    num_steps = 0
    while originals[0].agents:
        (group,) = game.decisions()
        assert group.action_mask is None
        assert group.agent_index.tolist() == [[0, 1]] * NUM_GAMES
        actions = torch.from_numpy(rng.integers(num_actions, size=(NUM_GAMES, 2)))
        told = group.observation.clone()
        result = game.step([actions])
        assert result.truncated is not None
        num_steps += 1
        for b, original in enumerate(originals):
            for s, agent in enumerate(game.agents):
                assert told[b, s].tolist() == one_hot(seen[b][agent], size=num_actions + 1)
            chosen = dict(zip(game.agents, actions[b].tolist(), strict=True))
            seen[b], rewards, terminated, truncated, _ = original.step(chosen)
            for s, agent in enumerate(game.agents):
                assert result.reward[b, s] == rewards[agent]
                assert bool(result.terminated[b, s]) == terminated[agent]
                assert bool(result.truncated[b, s]) == truncated[agent]
                last = result.final_observation[0][b, s].tolist()
                assert last == one_hot(seen[b][agent], size=num_actions + 1)
    assert num_steps == max(1, kwargs.get("max_cycles", 15))


def test_paper_beats_rock_in_either_seat() -> None:
    game = started(2)
    result = game.step([torch.tensor([[PAPER, ROCK], [ROCK, PAPER]])])
    assert result.reward.tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    # Each sees what the other did.
    assert game.decisions()[0].observation.argmax(dim=2).tolist() == [[ROCK, PAPER], [PAPER, ROCK]]


def test_only_the_games_named_begin_anew() -> None:
    game = started(2, max_cycles=2)
    scissors = [torch.full((2, 2), SCISSORS)]
    game.step(scissors)
    game.reset(torch.tensor([False, True]), key=torch.zeros(2).long())
    assert game.decisions()[0].observation.argmax(dim=2).tolist() == [[SCISSORS] * 2, [3, 3]]
    result = game.step(scissors)
    assert result.truncated is not None
    assert result.truncated.tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"num_actions": 4}, "odd integer of at least 3, got 4"),
        ({"num_actions": 1}, "odd integer of at least 3, got 1"),
        ({"num_actions": 3.0}, "odd integer of at least 3, got 3.0"),
        ({"num_actions": True}, "odd integer of at least 3, got True"),
        ({"max_cycles": None}, "max_cycles must be an integer, got None"),
        ({"max_cycle": 3}, "takes num_actions and max_cycles, got 'max_cycle'"),
        ({"render_mode": "human"}, "takes num_actions and max_cycles, got 'render_mode'"),
    ],
)
def test_wrong_kwargs_are_refused(kwargs: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RockPaperScissors(2, device=CPU, **kwargs)
