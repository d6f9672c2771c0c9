from __future__ import annotations

import math
import sys
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.config import InfoOutcome, Outcome, ThresholdOutcome
from arena.envs.base import Turn
from arena.envs.batched.batch import GameBatch
from arena.envs.batched.scoring import make_batched_score
from arena.envs.chance import episode_seed, uniform
from arena.envs.outcome import make_outcome
from arena.errors import ConfigError, EnvironmentFault
from arena.processes.settings import SETTINGS
from tests.arena.samples import ASSETS, facts_of, make_env

HUNT = "batched_games:Hunt"
TURNS = "batched_games:TakesTurns"
CPU = torch.device("cpu")
HUNTERS = {"hunter": ("hunter_0", "hunter_1"), "hare": ("hare_0",)}


def make(
    environment: str,
    populations: Mapping[str, tuple[str, ...]],
    *,
    num_envs: int = 4,
    outcome: Outcome = "return",
    kwargs: dict[str, object] | None = None,
    sides: Mapping[str, tuple[str, ...]] | None = None,
) -> GameBatch:
    env = make_env(
        facts_of(environment, kwargs),
        num_envs=num_envs,
        sides=sides,
        populations=populations,
        config={"outcome": outcome},
    )
    assert isinstance(env, GameBatch)
    return env


def hunt_actions(turn: Turn, *, hare: int = 0, hunter: int = 2) -> dict[str, torch.Tensor]:
    return {
        "hunter": torch.full_like(turn.groups["hunter"].agent_index, hunter),
        "hare": torch.full_like(turn.groups["hare"].agent_index, hare),
    }


def length_of(seed: int, episode: int) -> int:
    return 2 + int(uniform(episode_seed(seed, episode=episode), draw=0) * 4)


def test_episodes_depend_on_seed_and_number_alone_and_restart_by_themselves() -> None:
    env = make(HUNT, HUNTERS, num_envs=3)
    seeds = (5, 2**62, 7)
    turn = env.reset(seeds)
    lengths: list[list[int]] = [[], [], []]
    running = [0, 0, 0]
    for _ in range(60):
        turn = env.step(hunt_actions(turn))
        for b in range(3):
            running[b] += 1
            if turn.episode_over[b]:
                assert turn.episode is not None
                assert turn.episode[b] == len(lengths[b])
                lengths[b].append(running[b])
                running[b] = 0
    for b, seed in enumerate(seeds):
        assert lengths[b] == [length_of(seed, k) for k in range(len(lengths[b]))]
        assert len(lengths[b]) >= 10


def test_simultaneous_groups_rewards_ends_and_last_observations() -> None:
    env = make(HUNT, HUNTERS, num_envs=2)
    seeds = (1, 2)
    turn = env.reset(seeds)
    assert turn.groups["hunter"].agent_index.tolist() == [[0, 2], [0, 2]]
    assert turn.groups["hare"].agent_index.tolist() == [[1], [1]]
    assert turn.groups["hunter"].action_mask is None
    assert turn.groups["hare"].action_mask is not None
    assert turn.groups["hunter"].observation.shape == (2, 2, 3)
    assert not turn.reward.any()
    assert not turn.episode_over.any()

    turn = env.step(hunt_actions(turn))
    # A removed agent has no more decisions, and its end is reported once.
    assert turn.groups["hunter"].agent_index.tolist() == [[-1, 2], [-1, 2]]
    assert turn.reward.tolist() == [[2.0, -1.0, 2.0]] * 2
    assert turn.terminated.tolist() == [[True, False, False]] * 2
    for step in range(2, 6):
        turn = env.step(hunt_actions(turn))
        for b in range(2):
            length = length_of(seeds[b], 0)
            if step == length:
                assert turn.truncated[b].tolist() == [False, True, True]
                assert turn.episode_over[b]
                assert turn.final_observation["hunter"][b, 1].tolist() == [
                    length,
                    length,
                    length / 2,
                ]
                assert turn.final_observation["hare"][b, 0].tolist() == [length, length]
                # hunter_1 gets 2 per step, hunter_0 gets 2 in total, the hare loses 1 per step. The
                # score of each is the number of sides that it has beaten.
                assert turn.score[b].tolist() == [1.0, 0.0, 2.0]
                # The next episode has begun, so the first hunter is present again.
                assert turn.groups["hunter"].agent_index[b].tolist() == [0, 2]
            elif step < length:
                assert not turn.episode_over[b]
                assert math.isnan(float(turn.score[b, 0]))


def test_a_population_of_some_of_a_groups_agents_sees_only_these() -> None:
    populations = {"one": ("hunter_1",), "other": ("hunter_0",), "hare": ("hare_0",)}
    env = make(HUNT, populations)
    turn = env.reset(range(4))
    assert turn.groups["one"].agent_index.tolist() == [[2]] * 4
    assert turn.groups["other"].agent_index.tolist() == [[0]] * 4
    actions = {"one": torch.full((4, 1), 1), "other": torch.full((4, 1), 2)}
    turn = env.step({**actions, "hare": torch.zeros(4, 1, dtype=torch.int64)})
    assert turn.reward.tolist() == [[2.0, -1.0, 1.0]] * 4
    assert turn.groups["other"].agent_index.tolist() == [[-1]] * 4


def test_two_populations_take_turns() -> None:
    env = make(TURNS, {"a": ("a_0",), "b": ("b_0",)})
    turn = env.reset(range(4))
    zeros = torch.zeros(4, 1, dtype=torch.int64)
    for clock in range(3):
        assert turn.groups["a"].agent_index.tolist() == [[0 if clock % 2 == 0 else -1]] * 4
        assert turn.groups["b"].agent_index.tolist() == [[1 if clock % 2 else -1]] * 4
        # Actions of the other population are ignored, even illegal ones.
        noise = torch.full((4, 1), 9)
        if clock == 2:
            turn = env.step({"a": zeros + 1, "b": noise})
        else:
            turn = env.step(
                {"a": noise if clock % 2 else zeros, "b": zeros if clock % 2 else noise}
            )
    assert turn.episode_over.all()
    assert turn.reward.tolist() == [[1.0, -1.0]] * 4
    assert turn.score.tolist() == [[1.0, 0.0]] * 4


def test_halted_games_ask_for_nothing_and_say_nothing_until_the_next_reset() -> None:
    env = make(TURNS, {"all": ("a_0", "b_0")})
    env.reset(range(4))
    env.halt(torch.tensor([True, False, False, True]))
    ended = 0
    for clock in range(12):
        turn = env.step({"all": torch.full((4, 1), int(clock % 4 == 3))})
        halted = torch.tensor([0, 3])
        assert turn.groups["all"].agent_index[halted].tolist() == [[-1], [-1]]
        assert not turn.reward[halted].any()
        assert not turn.terminated[halted].any()
        assert not turn.episode_over[halted].any()
        assert turn.score[halted].isnan().all()
        ended += int(turn.episode_over.sum())
    assert ended == 6
    turn = env.reset(range(4))
    assert turn.groups["all"].agent_index.tolist() == [[0]] * 4


def test_resumed_games_begin_an_episode_and_count_from_its_start() -> None:
    env = make(TURNS, {"all": ("a_0", "b_0")})
    env.reset(range(4))
    second = torch.tensor([False, True, False, False])
    env.halt(second)
    quiet = torch.zeros(4, 1, dtype=torch.int64)
    for _ in range(5):
        env.step({"all": quiet})
    env.resume(second)
    turn = env.step({"all": quiet})
    assert turn.groups["all"].agent_index[:, 0].tolist() == [0, 0, 0, 0]
    assert turn.groups["all"].observation[:, 0, 0].tolist() == [2.0, 0.0, 2.0, 2.0]
    assert not turn.reward[1].any()
    over = torch.stack([env.step({"all": quiet}).episode_over for _ in range(4)])
    assert over.tolist() == [
        [False, False, False, False],
        [True, False, True, True],
        [False, False, False, False],
        [False, True, False, False],
    ]


@pytest.mark.parametrize("backend", ["pettingzoo", "batched"])
def test_an_episode_that_was_halted_begins_again_with_its_seed(backend: str) -> None:
    spec = facts_of("openspiel:kuhn_poker")
    everything = torch.ones(16, dtype=torch.bool)
    populations = {"player": spec.agents}
    env = make_env(spec, num_envs=16, populations=populations, config={"backend": backend})
    turn = env.reset(range(16))
    first = turn.groups["player"].observation.clone()
    env.halt(everything)
    for _ in range(9):
        turn = env.step({"player": turn.groups["player"].new_actions()})
    env.resume(everything)
    turn = env.step({"player": turn.groups["player"].new_actions()})
    assert torch.equal(turn.groups["player"].observation, first)
    assert (first != first[0]).any(), "seeds deal different cards"


def test_an_illegal_action_is_refused_with_agent_and_environment() -> None:
    env = make(TURNS, {"all": ("a_0", "b_0")})
    env.reset(range(4))
    actions = torch.zeros(4, 1, dtype=torch.int64)
    actions[2] = 1
    with pytest.raises(
        ValueError, match=r"a_0 must be legal and in \[0, 2\), got 1 in environment 2"
    ):
        env.step({"all": actions})
    actions[2] = -3
    with pytest.raises(ValueError, match="got -3 in environment 2"):
        env.step({"all": actions})
    with pytest.raises(ValueError, match=r"must be int64 \(4, 1\), got torch.int64 \(4,\)"):
        env.step({"all": torch.zeros(4, dtype=torch.int64)})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("reward", "a reward must be finite and at most 1e12 in size"),
        ("observation", "an observation must be finite and at most 1e9 in size"),
        ("mask", "an action mask is empty"),
        ("raise", "in step raised RuntimeError: the hare ran away"),
        ("untold", r"in step raised Untold: \(its text cannot be read\)"),
        ("shape", r"observation must be \[B, S, F\]"),
    ],
)
def test_a_game_that_breaks_the_rules_is_blamed(fault: str, message: str) -> None:
    env = make(HUNT, HUNTERS, kwargs={"fault": fault})

    def play() -> None:
        turn = env.reset(range(4))
        for _ in range(3):
            turn = env.step(hunt_actions(turn))

    with pytest.raises(EnvironmentFault, match=message) as caught:
        play()
    assert HUNT in str(caught.value)


@pytest.mark.parametrize("when", ["settings_in_reset", "settings_in_step"])
def test_a_users_game_has_settings_of_its_own(when: str) -> None:
    env = make(HUNT, HUNTERS, kwargs={"fault": when})
    before = torch.get_default_dtype(), sys.getrecursionlimit()
    turn = env.reset(range(4))
    for _ in range(3):
        turn = env.step(hunt_actions(turn))
        assert (torch.get_default_dtype(), sys.getrecursionlimit()) == before
    assert SETTINGS.run(torch.get_default_dtype) is torch.float64


def changes_settings(returns: Mapping[str, float], infos: object) -> dict[str, float]:
    torch.set_default_dtype(torch.float64)
    return dict.fromkeys(returns, 0.5)


def test_an_outcome_has_the_settings_of_users() -> None:
    agents = ("x", "y")
    many = make_batched_score(
        f"{__name__}:changes_settings",
        sides={agent: (agent,) for agent in agents},
        agents=agents,
        launch_directory=ASSETS,
        device=CPU,
    )
    many(torch.zeros(2, 2).double())
    assert torch.get_default_dtype() is torch.float32


def test_seeds_are_checked() -> None:
    env = make(TURNS, {"all": ("a_0", "b_0")})
    with pytest.raises(ValueError, match="4 environments need as many seeds, got 3"):
        env.reset(range(3))
    with pytest.raises(ValueError, match="a seed must be in"):
        env.reset([0, 1, 2, -1])
    with pytest.raises(RuntimeError, match="reset first"):
        env.step({"all": torch.zeros(4, 1, dtype=torch.int64)})


def by_highest(returns: Mapping[str, float], infos: object) -> dict[str, float]:
    best = max(returns.values())
    return {agent: float(value == best) for agent, value in returns.items()}


RETURNS = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.0 + 1e-12, 3.0]), min_size=3, max_size=3)


@given(rows=st.lists(RETURNS, min_size=1, max_size=6), kind=st.sampled_from(["return", "at_least"]))
def test_scores_of_many_episodes_are_those_of_each(rows: list[list[float]], kind: str) -> None:
    agents = ("x", "y", "z")
    sides = (
        {"first": ("x",), "rest": ("y", "z")} if kind == "at_least" else {a: (a,) for a in agents}
    )
    outcome: Outcome = (
        ThresholdOutcome(threshold=0.6, side="rest") if kind == "at_least" else "return"
    )
    one = make_outcome(outcome, sides=sides, agents=agents, launch_directory=ASSETS)
    many = make_batched_score(
        outcome, sides=sides, agents=agents, launch_directory=ASSETS, device=CPU
    )
    scores = many(torch.tensor(rows, dtype=torch.float64))
    expected = [one(dict(zip(agents, row, strict=True)), {}) for row in rows]
    assert torch.allclose(scores, torch.tensor(expected))


def test_a_users_function_scores_and_infos_are_refused() -> None:
    agents = ("x", "y")
    sides = {agent: (agent,) for agent in agents}
    reference = f"{__name__}:by_highest"
    many = make_batched_score(
        reference, sides=sides, agents=agents, launch_directory=ASSETS, device=CPU
    )
    assert many(torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double()).tolist() == [
        [1.0, 0.0],
        [0.5, 0.5],
    ]
    with pytest.raises(ConfigError, match="a batched game has no infos"):
        make_batched_score(
            InfoOutcome(info="winner"),
            sides=sides,
            agents=agents,
            launch_directory=ASSETS,
            device=CPU,
        )


def test_cooperation_has_no_score() -> None:
    env = make(HUNT, HUNTERS, sides={"team": ("hunter_0", "hare_0", "hunter_1")})
    turn = env.reset(range(4))
    for _ in range(5):
        turn = env.step(hunt_actions(turn))
        assert turn.score.shape == (4, 1)
        assert turn.score.isnan().all()


def test_agents_with_different_spaces_are_no_population() -> None:
    with pytest.raises(ConfigError, match=r"populations.mixed.agents must have equal spaces"):
        make(HUNT, {"mixed": ("hunter_0", "hare_0"), "rest": ("hunter_1",)})
