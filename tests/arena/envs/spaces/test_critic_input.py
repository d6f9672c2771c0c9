"""What a centralized critic reads: which rows, and that there is something to be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pettingzoo import ParallelEnv

from arena.config import NetworkConfig
from arena.environment_spec import EnvironmentSpec
from arena.envs.pettingzoo.states import describe_state
from arena.envs.spaces.critic_input import CriticInput, critic_input
from arena.errors import ConfigError, EnvironmentFault
from arena.spaces import is_agent_id
from tests.arena.samples import each_alone, facts_of, make_env

SPREAD, DUET = "mpe2/simple_spread_v3", "mpe2/simple_speaker_listener_v4"
JOINT, STATE = NetworkConfig(critic="joint"), NetworkConfig(critic="state")


def of(
    network: NetworkConfig,
    spec: EnvironmentSpec,
    *,
    population: str,
    populations: dict[str, tuple[str, ...]],
    sides: dict[str, tuple[str, ...]],
) -> CriticInput:
    found = critic_input(
        network, population=population, populations=populations, sides=sides, spec=spec
    )
    assert found is not None
    return found


def test_a_team_side_by_side_and_who_decides() -> None:
    pytest.importorskip("mpe2")
    spec = facts_of(SPREAD)
    agents = spec.agents
    critic = of(
        JOINT,
        spec,
        population="agent",
        populations={"agent": agents},
        sides={"team": tuple(reversed(agents))},
    )
    size = 18
    assert [leaf.offset for leaf in critic.layout.leaves] == [0, size, 2 * size, 3 * size]
    assert is_agent_id(critic.layout.leaves[-1])
    assert critic.layout.size == 3 * size + 3
    # Agents are in the environment's order, independent of the side's order.
    assert set(critic.teams.values()) == {agents}
    assert not critic.in_turn


def test_who_is_alone_in_its_population_is_not_told_who_decides() -> None:
    pytest.importorskip("mpe2")
    spec = facts_of(DUET)
    critic = of(
        JOINT,
        spec,
        population="speaker",
        populations={"speaker": ("speaker_0",), "listener": ("listener_0",)},
        sides={"team": spec.agents},
    )
    assert [leaf.size for leaf in critic.layout.leaves] == [3, 11]
    assert critic.seen == {"speaker_0": ("speaker", 3), "listener_0": ("listener", 11)}


def test_values_that_see_what_the_policy_sees_need_nothing() -> None:
    spec = facts_of("classic/rps-v2")
    agents = {"player": spec.agents}
    own = NetworkConfig()
    assert (
        critic_input(
            own, population="player", populations=agents, sides=each_alone(spec), spec=spec
        )
        is None
    )


def test_a_side_of_one_agent_has_nothing_to_join() -> None:
    spec = facts_of("classic/rps-v2")
    with pytest.raises(ConfigError, match=r"needs a side with several agents.*player_0, player_1"):
        of(
            JOINT,
            spec,
            population="player",
            populations={"player": spec.agents},
            sides=each_alone(spec),
        )


def test_sides_that_see_different_things_have_no_row_in_common() -> None:
    pytest.importorskip("mpe2")
    spec = facts_of("mpe2/simple_tag_v3")
    adversaries, good = spec.agents[:3], spec.agents[3:]
    sides = {"one": (*adversaries[:2], *good), "two": adversaries[2:]}
    with pytest.raises(ConfigError, match="sides whose agents see the same"):
        of(
            JOINT,
            spec,
            population="adversary",
            populations={"adversary": adversaries, "agent": good},
            sides=sides,
        )


def test_the_state_is_a_fact_where_it_is_read() -> None:
    pytest.importorskip("mpe2")
    spec, plain = facts_of(SPREAD, reads_state=True), facts_of(SPREAD)
    assert plain.state is None
    # Players of runs with and without a centralized critic can play each other.
    assert spec.digest == plain.digest
    agents = spec.agents
    arguments: Any = {
        "population": "agent",
        "populations": {"agent": agents},
        "sides": {"team": agents},
    }
    critic = of(STATE, spec, **arguments)
    assert critic.layout.size == 3 * 18 + 3
    assert critic.teams == {}
    with pytest.raises(ConfigError, match="was not looked at"):
        of(STATE, plain, **arguments)


@pytest.mark.parametrize(
    "environment_id",
    ["classic/rps-v2", "environments:Noisy", "batched_games:Hunt", "openspiel:kuhn_poker"],
)
def test_an_environment_without_a_state_is_refused(environment_id: str) -> None:
    if environment_id.startswith("openspiel"):
        pytest.importorskip("pyspiel")
    with pytest.raises(ConfigError, match=r"network.critic state needs an environment with state"):
        facts_of(environment_id, reads_state=True)


class Told(ParallelEnv):  # type: ignore[misc]
    """Says what it is told to."""

    def __init__(self, state: Any, space: spaces.Space[Any] | None = None) -> None:
        self.given = state
        if space is not None:
            self.state_space = space

    def state(self) -> Any:
        """See the class."""
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


@pytest.mark.parametrize(
    ("state", "space", "kind", "shape", "dtype"),
    [
        (np.zeros(3), None, "Box", [3], "float32"),
        ([1, 2], None, "Box", [2], "float32"),
        (np.zeros((9, 8, 3), np.uint8), None, "Box", [9, 8, 3], "uint8"),
        (np.zeros(3), spaces.Box(-1.0, 1.0, (3,), np.float64), "Box", [3], "float64"),
        # The declared space must match the returned state.
        (np.zeros(3), spaces.Box(-1.0, 1.0, (4,), np.float64), "Box", [3], "float32"),
    ],
)
def test_the_space_of_a_state(
    state: Any, space: spaces.Space[Any] | None, kind: str, shape: list[int], dtype: str
) -> None:
    found = describe_state(Told(state, space), environment_id="told")
    assert (found["kind"], found["shape"], found["dtype"]) == (kind, shape, dtype)


def test_a_nested_state_needs_its_space() -> None:
    space = spaces.Dict({"turn": spaces.Discrete(3), "board": spaces.MultiBinary(4)})
    state = {"turn": np.int64(1), "board": np.zeros(4, np.int8)}
    assert describe_state(Told(state, space), environment_id="told")["kind"] == "Dict"
    with pytest.raises(ConfigError, match="array of numbers, got object"):
        describe_state(Told(state), environment_id="told")


@pytest.mark.parametrize("given", [ValueError("no"), "text", np.zeros(0), [[1, 2], [3]]])
def test_what_no_network_reads_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="told has none"):
        describe_state(Told(given), environment_id="told")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_state_of_each_turn_and_at_the_end() -> None:
    """Simple Spread's state is what its agents see, side by side."""
    pytest.importorskip("mpe2")
    spec = facts_of(SPREAD, reads_state=True)
    team = {"agent": spec.agents}
    env = make_env(spec, num_envs=2, sides=team, populations=team, reads_state=True)
    turn = env.reset([1, 2])
    assert turn.state is not None
    generator = torch.Generator().manual_seed(0)
    num_over = 0
    for _ in range(52):
        assert turn.state is not None
        torch.testing.assert_close(turn.state, turn.groups["agent"].observation.flatten(1))
        actions = torch.randint(5, (2, 3), generator=generator)
        turn = env.step({"agent": actions})
        over = turn.episode_over
        num_over += int(over.sum())
        assert turn.final_state is not None
        assert turn.state is not None
        torch.testing.assert_close(
            turn.final_state[over], turn.final_observation["agent"][over].flatten(1)
        )
        assert torch.equal(turn.final_state[~over], turn.state[~over])
        assert not over.any() or not torch.equal(turn.final_state[over], turn.state[over])
    assert num_over == 4
    env.close()


def test_a_state_that_changes_its_shape_is_the_environments_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("mpe2")
    from mpe2._mpe_utils.simple_env import SimpleEnv

    spec = facts_of(SPREAD, reads_state=True)
    monkeypatch.setattr(SimpleEnv, "state", lambda _: np.zeros(5, np.float32))
    env = make_env(spec, num_envs=1, sides={"team": spec.agents}, reads_state=True)
    with pytest.raises(EnvironmentFault, match=r"state\(\)"):
        env.reset([1])
    env.close()


def test_a_batched_game_has_no_state() -> None:
    spec = facts_of("classic/tictactoe-v3")
    with pytest.raises(ConfigError, match=r"environment.backend batched"):
        make_env(spec, num_envs=1, config={"backend": "batched"}, reads_state=True)
