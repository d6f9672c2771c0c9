from __future__ import annotations

import re
from dataclasses import replace

import pytest

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.probe.pace import Pace
from arena.errors import ConfigError
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, validate_config
from populations.config.sizing import (
    Load,
    check_rollout_memory,
    choose_episodes,
    choose_num_envs,
    explain,
    load_of,
    needs_pace,
    without_pace,
)

GIB = 1 << 30
KIB_OF_NUMBERS = 256
"""Observations of 1 KiB."""


def pace_of(length: float, *, step_s: float = 1e-3, **facts: object) -> Pace:
    known: dict[str, object] = {
        "is_lower_bound": False,
        "env_bytes": 0,
        "is_batched": False,
        "machine_bytes": 16 * GIB,
    }
    return Pace(episode_length=length, step_s=step_s, **(known | facts))  # type: ignore[arg-type]


def load_with(*, decisions: int = 1, agent_steps: int | None = None) -> Load:
    return Load(
        decisions=decisions,
        rollout_length=32,
        rollout_bytes=32 * 1024 * decisions,
        num_learners=2,
        agent_steps=agent_steps,
    )


def make_spec(num_agents: int = 2, *, api: str = "aec") -> EnvironmentSpec:
    facts = AgentSpec(
        observation={
            "kind": "Box",
            "shape": [KIB_OF_NUMBERS],
            "dtype": "float32",
            "low": "-inf",
            "high": "inf",
        },
        action={"kind": "Discrete", "n": 2, "start": 0},
        mask=None,
    )
    agents = tuple(f"player_{number}" for number in range(num_agents))
    return EnvironmentSpec(
        id="package.module:env",
        kwargs={},
        api=api,  # type: ignore[arg-type]
        agents=agents,
        agent_specs=dict.fromkeys(agents, facts),
    )


def resolve(
    pace: Pace | None, *, spec: EnvironmentSpec | None = None, **document: object
) -> RunConfig:
    environment: object = {"id": "package.module:env"}
    config = validate_config({"environment": environment, "learners": 2, **document})
    return resolve_config(config, spec or make_spec(), num_cores=2, pace=pace)


@pytest.mark.parametrize(
    ("game", "length", "step_ms", "decisions", "num_envs"),
    [
        # A call of step has 16 s / 300 = 53.3 ms; (53.3 ms - 1 ms) / 1.02 ms = 51.
        ("chess", 300, 1.0, 1, 32),
        # (16 s / 120 - 1 ms) / 0.42 ms = 315.
        ("go", 120, 0.4, 1, 256),
        # (16 s / 500 - 1 ms) / 5.16 ms = 6.0; eight agents decide eight times in one environment.
        ("pursuit", 500, 5.0, 8, 4),
        # (16 s / 500 - 1 ms) / 2.06 ms = 15.0.
        ("multiwalker", 500, 2.0, 3, 8),
        # (16 s / 900 - 1 ms) / 1.58 ms = 10.6.
        ("knights_archers_zombies", 900, 1.5, 4, 8),
        # (16 s / 1,000 - 1 ms) / 5.5 ms = 2.7; four at least.
        ("battle", 1000, 5.0, 25, 4),
        # (16 s / 25 - 1 ms) / 0.26 ms = 2,458; 32,768 decisions / (32 x 3) = 341.
        ("simple_spread", 25, 0.2, 3, 256),
        # (16 s / 1,000 - 1 ms) / 2.02 ms = 7.4; eight at least where one agent decides.
        ("paid at its end", 1000, 2.0, 1, 8),
        # 16 s / 20,000 is less than a call costs.
        ("long and fast", 20_000, 0.01, 1, 8),
        # 32,768 decisions / (32 x 16) = 64.
        ("many agents, fast", 10, 0.01, 16, 64),
    ],
)
def test_an_episode_of_all_takes_seconds(
    game: str, length: float, step_ms: float, decisions: int, num_envs: int
) -> None:
    pace = pace_of(length, step_s=step_ms / 1000)
    assert choose_num_envs(pace, load_with(decisions=decisions)) == num_envs, game


def test_memory_bounds_what_time_allows() -> None:
    # 16 GiB / (8 x 2 learners) = 1 GiB holds 63 environments of 16 MiB with 32 KiB of a rollout.
    pace = pace_of(25, step_s=1e-4, env_bytes=16 << 20)
    assert choose_num_envs(pace, load_with()) == 32
    # The number may be below the usual minimum, because a learner without enough memory does
    # nothing.
    assert choose_num_envs(replace(pace, env_bytes=600 << 20), load_with()) == 1
    assert choose_num_envs(replace(pace, env_bytes=60 * GIB), load_with()) == 1


def test_pictures_bound_what_a_rollout_holds() -> None:
    # 256 MiB / 27 MiB = 9.5.
    load = replace(load_with(), rollout_bytes=27 << 20)
    assert choose_num_envs(pace_of(25, step_s=1e-4), load) == 8


@pytest.mark.parametrize(
    ("num_agents", "api", "calls"), [(2, "aec", 32), (10, "aec", 160), (10, "parallel", 32)]
)
def test_where_many_take_turns_rollouts_are_longer(num_agents: int, api: str, calls: int) -> None:
    spec = make_spec(num_agents, api=api)
    config = validate_config({"environment": {"id": spec.id, "num_envs": 8}})
    load = load_of(resolve_config(config, spec, num_cores=2, pace=None), spec)
    assert load.rollout_length == calls
    at_once = num_agents if api == "parallel" else 1
    assert load.rollout_bytes == calls * at_once * 4 * KIB_OF_NUMBERS


def test_a_batched_game_steps_all_at_once_at_any_length() -> None:
    assert choose_num_envs(pace_of(5000, step_s=1.0, is_batched=True), load_with()) == 256


@pytest.mark.parametrize(
    ("length", "decisions", "num_envs", "episodes"),
    [
        (21, 1, 256, 3),  # 16,384 / (256 x 21) = 3.05
        (300, 1, 32, 2),  # 16,384 / 300 = 54.6; 16,384 / (32 x 300) = 1.7
        (1000, 1, 16, 1),
        (500, 8, 4, 1),
        (1000, 25, 4, 1),  # 100,000 decisions: still four environments
        (25, 3, 128, 2),  # 16,384 / 75 = 218; 16,384 / (128 x 75) = 1.7
    ],
)
def test_a_deterministic_run_counts_decisions(
    length: float, decisions: int, num_envs: int, episodes: int
) -> None:
    load = load_with(decisions=decisions, agent_steps=16384)
    for step_s in (1e-6, 1e-3, 10.0):
        pace = pace_of(length, step_s=step_s)
        assert choose_num_envs(pace, load) == num_envs
        assert choose_episodes(pace, load, num_envs=num_envs) == episodes


def test_noise_of_memory_decides_nothing_in_a_deterministic_run() -> None:
    load = load_with(decisions=1, agent_steps=16384)
    chosen = {
        choose_num_envs(pace_of(10, env_bytes=env_bytes, machine_bytes=machine_bytes), load)
        for env_bytes in (5 << 20, 7 << 20, 9 << 20, 15 << 20)
        for machine_bytes in (16 * GIB, 23 * GIB, 31 * GIB)
    }
    # 16 GiB / (8 x 2) = 1 GiB holds 63 environments of 16 MiB and 32 KiB.
    assert chosen == {32}


def test_auto_becomes_a_number_with_a_reason() -> None:
    pace = pace_of(1000, step_s=1 / 480, env_bytes=300_000)
    config = resolve(pace)
    assert config.environment.num_envs == 8
    assert config.assignment.episodes is None
    reason = explain(config, make_spec(), pace=pace)
    assert reason == "episodes of about 1,000 steps at 480 steps/s, 0.3 MB each"
    bound = replace(pace, is_lower_bound=True, env_bytes=1000 << 20)
    config = resolve(bound)
    assert config.environment.num_envs == 1
    assert explain(config, make_spec(), pace=bound) == (
        "no episode ended within 1,000 steps of random play at 480 steps/s, 1,048.6 MB each, "
        "as many as memory allows"
    )


def test_observations_that_no_memory_holds_are_refused_with_the_limit_and_the_value() -> None:
    spec = make_spec(200, api="parallel")
    config = resolve(
        None, spec=spec, environment={"id": "package.module:env", "num_envs": 64}, learners=2
    )
    # 200 agents * 1 KiB * 64 environments * 32 calls * 2 learners = 0.84 GB
    needed = 200 * 1024 * 64 * 32 * 2
    check_rollout_memory(config, spec, machine_bytes=needed)
    with pytest.raises(
        ConfigError,
        match=r"the observations of a rollout of 2 learners must fit this machine's memory of "
        r"0.8 GB, got 0.8 GB: 204,800 bytes in each step of environment.num_envs=64, "
        r"rollout_length=32",
    ):
        check_rollout_memory(config, spec, machine_bytes=needed - 1)
    # A game in turns stores one observation per step, and its rollouts are 100 times as long.
    in_turns = make_spec(200)
    config = resolve(
        None, spec=in_turns, environment={"id": "package.module:env", "num_envs": 64}, learners=2
    )
    check_rollout_memory(config, in_turns, machine_bytes=needed // 2)
    with pytest.raises(ConfigError, match=r"1,024 bytes in each step .* rollout_length=3200"):
        check_rollout_memory(config, in_turns, machine_bytes=needed // 2 - 1)


def test_what_is_set_stays() -> None:
    pace = pace_of(1000)
    for num_envs in (1, 100, 2048):
        config = resolve(pace, environment={"id": "package.module:env", "num_envs": num_envs})
        assert config.environment.num_envs == num_envs
    config = resolve(pace, deterministic=True, assignment={"episodes": 7})
    assert config.assignment.episodes == 7
    assert config.environment.num_envs == 16


def test_resolving_what_was_sized_changes_nothing() -> None:
    for deterministic in (False, True):
        config = resolve(pace_of(100), deterministic=deterministic)
        assert resolve_config(config, make_spec(), num_cores=2) == config
        assert resolve_config(config, make_spec(), num_cores=2, pace=pace_of(9000)) == config
        assert not needs_pace(config)


def test_nobody_needs_to_play_to_have_sizes() -> None:
    assert resolve(None).environment.num_envs == 256
    config = resolve(None, deterministic=True)
    # The length is four rollouts of 32 calls, the rule for an unknown episode length.
    assert (config.assignment.episodes, config.assignment.agent_steps) == (None, 4 * 32 * 256)


def test_a_game_that_shows_nothing_has_sizes() -> None:
    seen = {"kind": "Box", "shape": [0], "dtype": "float32", "low": 0.0, "high": 1.0}
    spec = make_spec()
    blind = {name: replace(facts, observation=seen) for name, facts in spec.agent_specs.items()}
    # Neither the observations nor the environment take any memory.
    config = resolve(pace_of(1), spec=replace(spec, agent_specs=blind))
    assert config.environment.num_envs == 256


def test_whole_episodes_come_near_the_agent_steps_that_are_wanted() -> None:
    at_once = make_spec(4, api="parallel")
    environment = {"id": "package.module:env", "num_envs": 8}
    config = resolve(
        pace_of(50),
        spec=at_once,
        environment=environment,
        deterministic=True,
        assignment={"agent_steps": 10_000},
    )
    # 10,000 / (8 environments x 50 steps x 4 agents) = 6.25.
    assert config.assignment.episodes == 6
    # The largest population decides: it has two of the three agents.
    config = resolve(
        pace_of(50),
        spec=make_spec(3, api="parallel"),
        environment=environment,
        populations={
            "one": {"agents": ["player_0"]},
            "two": {"agents": ["player_1", "player_2"]},
        },
        deterministic=True,
    )
    # 16,384 / (8 x 50 x 2) = 20.5.
    assert config.assignment.episodes == 20


def test_who_cannot_be_played_is_given_few_environments_or_refused() -> None:
    config = validate_config({"environment": {"id": "package.module:env"}})
    assert without_pace(config, why="it broke").environment.num_envs == 16
    deterministic = config.model_copy(update={"deterministic": True})
    rule = "environment.num_envs and assignment.episodes must be numbers where deterministic"
    with pytest.raises(ConfigError, match=re.escape(rule) + ".*it broke"):
        without_pace(deterministic, why="it broke")
