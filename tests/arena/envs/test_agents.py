"""Who may appear, whatever the environment says about it, and where masks are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.base import BatchedEnv
from arena.envs.describe import agent_spec, environment_facts, named_agents, populations_of
from arena.envs.random_play import action_layouts, random_legal_actions
from arena.errors import ConfigError, EnvironmentFault
from arena.spaces import ActionLayout, ObservationLayout
from tests.arena.samples import ASSETS, make_env

GENERATED = ["type{0..9}_{0..40}"]
EXAMPLES = "pettingzoo.test.example_envs.generated_agents"


def test_ranges_are_written_out() -> None:
    assert named_agents(["boss", "walker_{1..3}"]) == ("boss", "walker_1", "walker_2", "walker_3")
    assert named_agents(["t{0..1}_{8..9}x"]) == ("t0_8x", "t0_9x", "t1_8x", "t1_9x")


@pytest.mark.parametrize(
    ("patterns", "text"),
    [
        ([], "must have agents, each once, got \\[\\]"),
        (["a", "b", "a"], "with 'a' twice"),
        (["a_{3..1}"], "must have agents, each once"),
        (["a_{0..4096}"], "must be at most 4096"),
        (["a_{0..99999999999}_{0..99999999999}"], "must be at most 4096"),
    ],
)
def test_lists_that_name_no_agents(patterns: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        named_agents(patterns)


def generated(
    name: str, possible_agents: list[str], *, num_envs: int
) -> tuple[EnvironmentSpec, BatchedEnv]:
    """Environments that make their agents as the game goes."""
    request = EnvironmentRequest(
        f"generated:{name}",
        kwargs={"max_cycles": 12},
        launch_directory=ASSETS,
        possible_agents=possible_agents,
    )
    spec = environment_facts(request)
    team = {"all": spec.agents}
    config = {"possible_agents": possible_agents}
    return spec, make_env(spec, num_envs=num_envs, sides=team, config=config)


@pytest.mark.parametrize("name", ["Turns", "AtOnce"])
def test_agents_made_as_the_game_goes(name: str) -> None:
    spec, env = generated(name, GENERATED, num_envs=2)
    assert len(spec.agents) == 410
    assert {facts.mask for facts in spec.agent_specs.values()} == {"info"}
    populations = populations_of(spec)
    (population,) = populations
    generator = torch.Generator().manual_seed(1)
    actions = action_layouts(spec, populations=populations)
    turn = env.reset([2, 1])
    starters = set(turn.groups[population].agent_index[0].tolist())
    deciders: set[int] = set()
    received = 0.0
    for _ in range(4_000):
        deciders |= set(turn.groups[population].agent_index[0].tolist())
        turn = env.step(random_legal_actions(turn, actions=actions, generator=generator))
        received += float(turn.reward[0].sum())
        if turn.episode_over[0]:
            break
    env.close()
    assert turn.episode_over[0]
    assert received > 0
    # Other agents than the first ones decide too, some of which were absent at the start.
    assert len(deciders - starters - {-1}) > (0 if name == "AtOnce" else 5)


@pytest.mark.parametrize("name", ["env_v0:raw_env", "parallel_v0:parallel_env"])
def test_spaces_that_are_drawn_anew_are_refused(name: str) -> None:
    def look(possible_agents: list[str] | None) -> None:
        environment_facts(
            EnvironmentRequest(
                f"{EXAMPLES}_{name}",
                kwargs={},
                launch_directory=ASSETS,
                possible_agents=possible_agents,
            )
        )

    with pytest.raises(ConfigError, match=r"list them as environment\.possible_agents"):
        look(None)
    with pytest.raises(ConfigError, match=r"'type3_0' must have an observation space after every"):
        look(GENERATED)
    with pytest.raises(ConfigError, match="same observation space in every episode: a network has"):
        look(["type{0..2}_{0..40}"])


def test_who_is_not_listed_must_not_appear() -> None:
    _, env = generated("AtOnce", ["type{0..9}_0"], num_envs=8)
    with pytest.raises(EnvironmentFault, match=r"'type\d_\d' acts or ends but is not in possible"):
        env.reset(range(8))


@pytest.mark.parametrize("name", ["classic/rps_v2", "batched_games:Hunt"])
def test_who_says_it_itself_needs_no_list(name: str) -> None:
    with pytest.raises(ConfigError, match=f"possible_agents must be left out: {name}"):
        environment_facts(EnvironmentRequest(name, launch_directory=ASSETS, possible_agents=["a"]))


class Spaces:
    """What is asked of an environment for an agent's facts."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self._observation, self._action = observation, action

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._observation

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._action


BOARD, MASK = spaces.Box(0, 1, (2,)), spaces.MultiBinary(3)
NESTED = spaces.Dict({"map": BOARD, "observation": BOARD})


@pytest.mark.parametrize(
    ("observation", "action", "mask", "seen"),
    [
        (BOARD, spaces.Discrete(3), None, 2),
        (
            spaces.Dict({"observation": BOARD, "action_mask": MASK}),
            spaces.Discrete(3),
            "observation",
            2,
        ),
        (
            spaces.Dict({"observation": NESTED, "action_mask": MASK}),
            spaces.Discrete(3),
            "observation",
            4,
        ),
        (spaces.Dict({**NESTED.spaces, "action_mask": MASK}), spaces.Discrete(3), "beside", 4),
        (spaces.Dict({"action_mask": MASK}), spaces.Discrete(3), "beside", 3),
        # A continuous action space has no mask, so an entry of that name is part of the
        # observation.
        (spaces.Dict({"observation": BOARD, "action_mask": MASK}), BOARD, None, 5),
    ],
    ids=["none", "wrapped", "wrapped dict", "beside", "alone", "box"],
)
def test_masks_are_found(
    observation: spaces.Space[Any], action: spaces.Space[Any], mask: str | None, seen: int
) -> None:
    facts = agent_spec(Spaces(observation, action), "a")
    assert facts.mask == mask
    assert ObservationLayout.from_json(facts.observation).size == seen


def test_what_an_environment_gets_is_its_own() -> None:
    """Two agents' rows share memory; what they are given must not."""
    facts = agent_spec(Spaces(BOARD, BOARD), "a")
    layout = ActionLayout.from_json(facts.action, continuous="clipped")
    rows = np.array([[0.25, 0.5], [0.75, 1.0]], dtype=np.float32)
    first, second = layout.actions(rows)
    first[:] = 9.0
    assert second.tolist() == [0.75, 1.0]
    assert rows.tolist() == [[0.25, 0.5], [0.75, 1.0]]
