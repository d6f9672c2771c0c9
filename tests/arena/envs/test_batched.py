"""The batched view against PettingZoo's own loop: same actions and seeds, same everything."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arena.config import InfoOutcome, ThresholdOutcome
from arena.envs.chance import episode_seed
from arena.errors import ConfigError
from tests.arena.samples import make_env

from .conftest import Episode, Made, Make, Replay, assert_same, play_batched, random_actions

REAL: list[tuple[str, int, dict[str, object]]] = [
    ("classic/connect_four-v3", 100, {}),
    ("classic/tictactoe-v3", 40, {}),
    ("classic/rps-v2", 40, {}),
    ("pettingzoo.classic.rps.rps:env", 80, {}),
    ("mpe2/simple_spread_v3", 25, {"max_cycles": 8}),
    ("mpe2.simple_spread_v3:env", 70, {"max_cycles": 8}),
    ("mpe2/simple_tag_v3", 25, {"max_cycles": 8}),
    ("mpe2.simple_tag_v3:env", 90, {"max_cycles": 8}),
]
TOYS: list[tuple[str, dict[str, object]]] = [
    ("environments:MaskedTurns", {"where": "info"}),
    ("environments:MaskedTurns", {"where": "observation"}),
    ("environments:StartsAtOne", {}),
    ("environments:AliasingTurns", {}),
]


def compare(made: Made, *, num_steps: int, seeds: list[int]) -> list[list[Episode]]:
    played = play_batched(made, seeds=seeds, num_steps=num_steps)
    for seed, episodes in zip(seeds, played, strict=True):
        assert len(episodes) > 2
        for k, episode in enumerate(episodes[:-1]):
            plain = Replay(made, seed=episode_seed(seed, episode=k), recorded=episode)
            assert_same(episode, plain.episode)
    return played


@pytest.mark.parametrize(("environment_id", "num_steps", "kwargs"), REAL)
def test_real_environments(
    environment_id: str, num_steps: int, kwargs: dict[str, object], make: Make
) -> None:
    made = make(environment_id, kwargs=kwargs)
    played = compare(made, num_steps=num_steps, seeds=[5, 2**62, 11])
    for episode in [episode for episodes in played for episode in episodes[:-1]]:
        sides = [episode.returns[agent] for agent in made.spec.agents]
        if len(sides) == 2:
            difference = sides[0] - sides[1]
            expected = 0.5 if difference == 0 else float(difference > 0)
            assert episode.score == [expected, 1.0 - expected]
        else:
            # Each pair of sides shares one point.
            assert sum(episode.score) == pytest.approx(math.comb(len(sides), 2))


@pytest.mark.parametrize(("environment_id", "kwargs"), TOYS)
def test_masks_starts_and_reused_arrays(
    environment_id: str, kwargs: dict[str, object], make: Make
) -> None:
    compare(make(environment_id, kwargs=kwargs), num_steps=60, seeds=[1, 2, 3])


NAMES = ("a", "b", "c", "d")
some_agents = st.lists(st.sampled_from(NAMES), max_size=2)
rewards = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([-1.0, 0.5, 3.0]), max_size=3)
happenings = {
    "rewards": rewards,
    "terminate": some_agents,
    "truncate": some_agents,
    "join": some_agents,
}
entries = st.fixed_dictionaries({"agent": st.sampled_from(NAMES)}, optional=happenings)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(entries, min_size=1, max_size=9),
    first=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
    dead_first=st.booleans(),
)
@pytest.mark.slow
def test_any_turns(
    script: list[dict[str, Any]], first: list[str], dead_first: bool, make: Make
) -> None:
    """Early deaths, late arrivals, two turns in a row, rewards and ends off turn."""
    # At least one agent must act first.
    script[0]["agent"] = first[0]
    kwargs = {"agents": NAMES, "first": first, "script": script, "dead_first": dead_first}
    made = make("environments:ScriptedTurns", kwargs=kwargs, num_envs=2)
    played = play_batched(made, seeds=[3, 4], num_steps=3 * len(script))
    for seed, episodes in zip([3, 4], played, strict=True):
        assert len(episodes) > 1
        for k, episode in enumerate(episodes[:-1]):
            plain = Replay(made, seed=episode_seed(seed, episode=k), recorded=episode).episode
            if not dead_first:
                # PettingZoo's loop reports a truncated agent's last observation only at its next
                # turn.
                assert set(plain.truncated) == set(episode.truncated)
                plain.truncated = episode.truncated
            assert_same(episode, plain)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(st.fixed_dictionaries({}, optional=happenings), min_size=1, max_size=6),
    first=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
)
@pytest.mark.slow
def test_any_simultaneous_moves(script: list[dict[str, Any]], first: list[str], make: Make) -> None:
    kwargs = {"agents": NAMES, "first": first, "script": script}
    made = make("environments:ScriptedParallel", kwargs=kwargs, num_envs=2)
    played = play_batched(made, seeds=[3, 4], num_steps=3 * len(script))
    for seed, episodes in zip([3, 4], played, strict=True):
        assert len(episodes) > 1
        for k, episode in enumerate(episodes[:-1]):
            plain = Replay(made, seed=episode_seed(seed, episode=k), recorded=episode).episode
            assert_same(episode, plain)


def test_by_hand(make: Make) -> None:
    """b dies at once, c comes late, a acts twice in a row and is truncated."""
    script = [
        {"agent": "a", "rewards": {"b": 2.0}, "terminate": ["b"]},
        {"agent": "a", "rewards": {"a": 1.0}, "join": ["c"]},
        {"agent": "c", "rewards": {"a": 5.0}, "truncate": ["a"]},
        {"agent": "c"},
    ]
    kwargs = {"agents": ["a", "b", "c"], "first": ["a", "b"], "script": script}
    env = make("environments:ScriptedTurns", kwargs=kwargs, num_envs=1).env
    turn = env.reset([1])
    group = turn.groups["a"]
    action = {"a": torch.tensor([[2]])}

    def said() -> tuple[int, list[float], list[bool], list[bool], bool]:
        return (
            int(turn.groups["a"].agent_index),
            turn.reward[0].tolist(),
            turn.terminated[0].tolist(),
            turn.truncated[0].tolist(),
            bool(turn.episode_over),
        )

    no = [False, False, False]
    assert (group.agent_index.shape, group.observation.shape) == ((1, 1), (1, 1, 3))
    assert group.action_mask is None
    turn = env.step(action)
    assert said() == (0, [2.0, 2.0, 0.0], [False, True, False], no, False)
    turn = env.step(action)
    assert said() == (2, [3.0, 0.0, 0.0], no, no, False)
    assert turn.groups["a"].observation[0, 0, 1:].tolist() == [2.0, 2.0]
    turn = env.step(action)
    assert said() == (2, [5.0, 0.0, 2.0], no, [True, False, False], False)
    assert turn.final_observation["a"][0, 0, 1:].tolist() == [3.0, 0.0]
    assert math.isnan(turn.score[0, 0])
    turn = env.step(action)
    # The turn has the next episode's first decision and the last one's end: returns 2 + 3 + 5, 2
    # and 2 + 2.
    assert said() == (0, [0.0, 0.0, 2.0], [False, False, True], no, True)
    assert turn.groups["a"].observation[0, 0, 1:].tolist() == [0.0, 0.0]
    # With returns 10, 2 and 4, a has beaten two sides, b none, c one.
    assert turn.score[0].tolist() == [2.0, 0.0, 1.0]


def test_who_is_hidden_is_not_asked(make: Make) -> None:
    script: list[dict[str, object]] = [{"hide": ["b"]}, {}, {}]
    kwargs = {"script": script}
    env = make("environments:ScriptedParallel", kwargs=kwargs, num_envs=1).env
    asked = [env.reset([1]).groups["a"].agent_index[0].tolist()]
    zeros = {"a": torch.zeros(1, 3, dtype=torch.int64)}
    asked += [env.step(zeros).groups["a"].agent_index[0].tolist() for _ in range(3)]
    assert asked == [[0, 1, 2], [0, -1, 2], [0, 1, 2], [0, 1, 2]]


def test_a_truncated_and_terminated_agent_has_terminated(make: Make) -> None:
    script = [{"agent": "a", "terminate": ["a"], "truncate": ["a", "b"]}]
    env = make("environments:ScriptedTurns", kwargs={"script": script}, num_envs=1).env
    env.reset([1])
    turn = env.step({"a": torch.zeros(1, 1, dtype=torch.int64)})
    assert turn.terminated[0].tolist() == [True, False]
    assert turn.truncated[0].tolist() == [False, True]
    assert bool(turn.episode_over)


def test_an_illegal_move_ends_connect_four_only_by_pettingzoo(make: Make) -> None:
    env = make("classic/connect_four-v3", num_envs=1).env
    env.reset([1])
    column_0 = {"player_0": torch.zeros(1, 1, dtype=torch.int64)}
    for _ in range(6):
        env.step(column_0)
    with pytest.raises(ValueError, match=r"must be legal and in \[0, 7\), got 0 in environment 0"):
        env.step(column_0)


@pytest.mark.parametrize("environment_id", ["environments:NeverRemovesTheDead"])
def test_the_dead_who_stay_end_the_episode(environment_id: str, make: Make) -> None:
    made = make(environment_id)
    for episodes in play_batched(made, seeds=[1, 2, 3], num_steps=12):
        assert len(episodes) == 4
        assert [len(episode.decisions) for episode in episodes] == [4, 4, 4, 0]
        assert episodes[0].terminated == {"a", "b"}


def test_who_vanishes_with_the_episode_has_terminated(make: Make) -> None:
    made = make("environments:EmptiesAgents")
    for episodes in play_batched(made, seeds=[1, 2, 3], num_steps=6):
        assert [len(episode.decisions) for episode in episodes] == [3, 3, 0]
        assert episodes[0].terminated == {"a", "b"}


@pytest.mark.parametrize("environment_id", ["classic/rps-v2", "mpe2.simple_spread_v3:env"])
def test_an_episode_depends_on_its_own_seed_only(environment_id: str, make: Make) -> None:
    made = make(environment_id)
    first = play_batched(made, seeds=[1, 2, 3], num_steps=40)
    play_batched(made, seeds=[8, 9, 10], num_steps=7, policy_seed=5)
    assert play_batched(made, seeds=[1, 2, 3], num_steps=40) == first
    other = make(environment_id)
    assert play_batched(other, seeds=[1, 2, 3], num_steps=40) == first


@pytest.mark.parametrize(
    "environment_id", ["classic/tictactoe-v3", "mpe2/simple_spread_v3", "openspiel:kuhn_poker"]
)
def test_resumed_environments_begin_their_episode_and_others_notice_nothing(
    environment_id: str, make: Make
) -> None:
    made, plain = make(environment_id), make(environment_id)
    names = list(made.populations)
    one, two = (torch.Generator().manual_seed(1) for _ in range(2))
    turn, expected = made.env.reset([1, 2, 3]), plain.env.reset([1, 2, 3])
    begins = {
        name: (group.agent_index[1].clone(), group.observation[1].clone())
        for name, group in turn.groups.items()
    }
    made.env.halt(torch.tensor([False, True, False]))
    others = torch.tensor([0, 2])
    ended = 0
    for step in range(80):
        if step == 6:
            made.env.resume(torch.tensor([False, True, False]))
        turn = made.env.step(random_actions(made, turn, one))
        expected = plain.env.step(random_actions(plain, expected, two))
        assert torch.equal(turn.reward[others], expected.reward[others])
        assert torch.equal(turn.episode_over[others], expected.episode_over[others])
        asked = [bool((turn.groups[name].agent_index[1] >= 0).any()) for name in names]
        assert any(asked) is (step >= 6)
        if step == 6:
            for name, (index, observation) in begins.items():
                assert torch.equal(turn.groups[name].agent_index[1], index)
                seen = index >= 0
                assert torch.equal(turn.groups[name].observation[1][seen], observation[seen])
        if step <= 6:
            assert not turn.reward[1].any()
            assert not turn.episode_over[1]
            assert not (turn.terminated[1] | turn.truncated[1]).any()
            assert turn.score[1].isnan().all()
        ended += int(turn.episode_over[1])
    assert ended >= 2
    made.env.halt(torch.ones(3, dtype=torch.bool))
    turn = made.env.reset([1, 2, 3])
    assert (turn.groups[names[0]].agent_index >= 0).any(dim=1).all()


def test_each_step_of_an_environment_is_told(make: Make) -> None:
    """A learner whose environments are slow makes progress within a step of the batch."""
    told: list[None] = []
    made = make("classic/tictactoe-v3", on_step=lambda: told.append(None))
    generator = torch.Generator().manual_seed(1)
    turn = made.env.reset([1, 2, 3])
    made.env.step(random_actions(made, turn, generator))
    assert len(told) == 3
    made.env.halt(torch.tensor([False, True, False]))
    made.env.step(random_actions(made, turn, generator))
    assert len(told) == 5


def test_tensors_are_the_buffers_themselves(make: Make) -> None:
    env = make("classic/tictactoe-v3").env
    before = env.reset([1, 2, 3])
    after = env.step({"player_1": before.groups["player_1"].action_mask.int().argmax(-1)})  # type: ignore[union-attr]
    for one, two in (
        (before.reward, after.reward),
        (before.groups["player_1"].observation, after.groups["player_1"].observation),
    ):
        assert one.data_ptr() == two.data_ptr()
    assert after.reward.dtype == torch.float32
    assert after.groups["player_1"].agent_index.dtype == torch.int64
    assert after.groups["player_1"].action_mask is not None
    assert after.groups["player_1"].action_mask.dtype == torch.bool


@pytest.mark.parametrize("bad", [[1, 2], [1, 2, -1], [1, 2, 2**63]])
def test_seeds_are_checked(bad: list[int], make: Make) -> None:
    with pytest.raises(ValueError, match="seed"):
        make("classic/tictactoe-v3").env.reset(bad)


@pytest.mark.parametrize(
    "actions",
    [
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(3, 1),
        torch.full((3, 1), 9),
        torch.full((3, 1), -1),
    ],
)
def test_actions_are_checked(actions: torch.Tensor, make: Make) -> None:
    env = make("classic/tictactoe-v3").env
    env.reset([1, 2, 3])
    with pytest.raises(ValueError, match="actions of player_1 must be"):
        env.step({"player_1": actions})


@pytest.mark.parametrize(
    ("winner", "score"), [("b", [0.0, 1.0]), ("left", [1.0, 0.0]), (None, [0.5, 0.5])]
)
def test_the_winner_may_be_in_info(winner: str | None, score: list[float], make: Make) -> None:
    made = make(
        "environments:WinnerInInfo",
        kwargs={"winner": winner},
        sides={"left": ("a",), "right": ("b",)},
        outcome=InfoOutcome(info="winner"),
    )
    for episodes in play_batched(made, seeds=[1, 2, 3], num_steps=8):
        assert episodes[0].score == score


def test_cooperation_has_no_score(make: Make) -> None:
    made = make(
        "mpe2/simple_spread_v3",
        kwargs={"max_cycles": 3},
        sides={"all": ("agent_0", "agent_1", "agent_2")},
    )
    for episodes in play_batched(made, seeds=[1, 2, 3], num_steps=3):
        assert episodes[0].over
        assert np.isnan(episodes[0].score).all()


def test_a_threshold_on_what_predators_get(make: Make) -> None:
    made = make(
        "mpe2/simple_tag_v3",
        kwargs={"max_cycles": 12},
        sides={"prey": ("agent_0",), "predators": ("adversary_0", "adversary_1", "adversary_2")},
        outcome=ThresholdOutcome(threshold=10.0, side="predators"),
        num_envs=8,
    )
    scores = []
    for episodes in play_batched(made, seeds=list(range(8)), num_steps=48):
        for episode in episodes[:-1]:
            mean = sum(episode.returns[f"adversary_{i}"] for i in range(3)) / 3
            scores.append(episode.score)
            assert episode.score == [float(mean < 10.0), float(mean >= 10.0)]
    assert {tuple(score) for score in scores} == {(0.0, 1.0), (1.0, 0.0)}


def test_another_environment_than_inspected_is_refused(make: Make) -> None:
    spec = make("mpe2/simple_spread_v3", kwargs={"N": 2}).spec
    agents = {"agent": spec.agents}
    for changed, text in (
        (replace(spec, kwargs={"N": 4}), "must have the agents"),
        (replace(spec, kwargs={"N": 2, "continuous_actions": True}), r"action=\{'kind': 'Box'"),
        (replace(spec, id="mpe2/simple_reference_v3", kwargs={}), "the spaces of agent 'agent_0'"),
    ):
        with pytest.raises(ConfigError, match=text):
            make_env(changed, num_envs=1, sides=agents, populations=agents)


def test_populations_must_have_every_agent_once(make: Make) -> None:
    spec = make("classic/rps-v2").spec
    for populations in ({"p": ("player_0",)}, {"p": spec.agents, "q": ("player_1",)}):
        with pytest.raises(ConfigError, match="populations must have every agent"):
            make_env(spec, num_envs=1, populations=populations)
