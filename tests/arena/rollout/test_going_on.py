"""Episodes that go on from one assignment to the next, and environments that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arena.core import ActorInput, AlgorithmOutput
from arena.experience import Rollout
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.phases import Phases
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.types import Entrant, PolicyId
from tests.arena.rollout.test_collector import EchoAlgorithm
from tests.arena.samples import Always, make_collector
from tests.layouts import discrete

ROLLOUT = EchoAlgorithm.rollout_length


class Chance(EchoAlgorithm):
    """Acts at random."""

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        action = torch.randint(1, 3, (len(inputs.observation),), generator=generator)
        value = self.value(inputs)
        return AlgorithmOutput(action=action, log_prob=-value, value=value)


def trainee() -> Learning:
    return Learning(policy=PolicyId("player/p000"), algorithm=Chance())


def block(name: str, *players: SeatedPlayer) -> TrainingBlock:
    entrants = tuple(Entrant(f"{name}-{seat}") for seat in range(len(players)))
    return TrainingBlock(entrants=entrants, players=players)


def collect(env: Any, *blocks: TrainingBlock, **options: Any) -> Collector:
    return make_collector(
        env,
        blocks,
        sides={"a": ("a",), "b": ("b",)},
        populations=env.populations,
        action=discrete(3),
        **options,
    )


def rollouts(collector: Collector, number: int) -> list[Rollout]:
    return [rollout for _ in range(number) for _, rollout in collector.collect()]


def rows(collected: Sequence[Rollout]) -> list[tuple[float, ...]]:
    return [
        (*observation, action, advantage)
        for rollout in collected
        for observation, action, advantage in zip(
            rollout.observation.tolist(),
            rollout.action.tolist(),
            rollout.advantage.tolist(),
            strict=True,
        )
    ]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.integers(1, 3), min_size=1, max_size=4), data=st.data())
@pytest.mark.slow
def test_cut_into_assignments_it_is_the_same_play(
    scripted_env: Any, cuts: list[int], data: st.DataObject
) -> None:
    """An oracle: with the same players, as if there were no assignments."""
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=5, max_size=5))

    def make_env() -> Any:
        return scripted_env(num_envs=5, length=lambda seed, episode: lengths[seed] + episode % 3)

    me = trainee()
    blocks = (block("one", me, Always(1)), block("two", Always(2), me))
    whole_env, cut_env = make_env(), make_env()
    whole = collect(whole_env, *blocks)
    expected = rows(rollouts(whole, sum(cuts)))
    generator = torch.Generator().manual_seed(1)
    cut = collect(cut_env, *blocks)
    found, tallies, steps = [], Counter[Any](), 0
    state = None
    for number in cuts:
        if state is not None:
            generator.set_state(state)
            becomes = {index: index for index in cut.in_flight()}
            cut.rest()
            cut.go_on(blocks, num_new=2, becomes=becomes, generator=generator)
        found += rows(rollouts(cut, number))
        state = cut._generator.get_state()
        steps += cut.agent_steps[PolicyId("player/p000")]
        for tally in cut.tallies():
            tallies[tally.entrants, "matches"] += tally.matches
            tallies[tally.entrants, "length"] += tally.length_sum
    assert found == expected
    assert cut_env.decisions == whole_env.decisions
    assert steps == whole.agent_steps[PolicyId("player/p000")]
    for tally in whole.tallies():
        assert tallies[tally.entrants, "matches"] == tally.matches
        assert tallies[tally.entrants, "length"] == tally.length_sum


def test_an_episode_keeps_its_players_to_its_end_and_counts_for_them(scripted_env: Any) -> None:
    env = scripted_env(num_envs=4, length=lambda seed, episode: 10)
    me, old, new = trainee(), Always(1), Always(2)
    collector = collect(env, block("old", me, old))
    collector.collect()
    assert collector.tallies() == ()
    assert collector.in_flight() == {0: 4}
    generator = torch.Generator().manual_seed(2)
    collector.go_on(
        [block("new", new, me), block("old", me, old)],
        num_new=1,
        becomes={0: 1},
        generator=generator,
    )
    before = old.decisions
    collector.collect()
    # The old episodes have steps 7, 8 and 9, of which the old opponent (agent 1) decides 7 and 9.
    assert old.decisions - before == 2 * 4
    # The new episodes have steps 0 to 3, in which agent 0 is the new opponent's.
    assert new.decisions == 2 * 4
    (tally,) = collector.tallies()
    assert (tally.entrants, tally.matches, tally.length_sum) == (("old-0", "old-1"), 4, 40)
    assert collector.in_flight() == {0: 4}
    collector.collect()
    assert {t.entrants[0]: t.matches for t in collector.tallies()} == {"old-0": 4, "new-0": 4}


def test_an_episode_that_ends_changes_no_players_of_others(scripted_env: Any) -> None:
    env = scripted_env(num_envs=2, length=lambda seed, episode: 10 + 20 * seed)
    me, old, new = trainee(), Always(1), Always(2)
    collector = collect(env, block("old", me, old))
    collector.collect()
    collector.go_on(
        [block("new", new, me), block("old", me, old)],
        num_new=1,
        becomes={0: 1},
        generator=torch.Generator().manual_seed(2),
    )
    before = old.decisions
    collector.collect()
    # The old opponent, agent 1, has steps 7 and 9 of the first environment's old episode, and 7, 9,
    # 11 and 13 of the second one's, which goes on.
    assert old.decisions - before == 2 + 4
    # The first environment's new episode has steps 0 to 3, in which agent 0 is the new opponent's.
    assert new.decisions == 2
    assert collector.in_flight() == {0: 1, 1: 1}
    (tally,) = collector.tallies()
    assert (tally.entrants, tally.matches, tally.length_sum) == (("old-0", "old-1"), 1, 10)


def test_rewards_are_measured_for_those_who_had_the_seat(scripted_env: Any) -> None:
    # Agent a gets 1 and b -5; in the second episodes a gets -7 and b 2.
    rewards = {(0, 0): 1.0, (0, 1): -5.0, (1, 0): -7.0, (1, 1): 2.0}
    env = scripted_env(
        num_envs=4,
        length=lambda seed, episode: 10 if episode == 0 else 4 + seed,
        reward=lambda seed, episode, step, agent: rewards.get((episode, agent), 0.0),
    )
    me, other = trainee(), Always(1)
    collector = collect(env, block("old", me, other))
    collector.collect()
    found = collector.measured()[PolicyId("player/p000")].metrics()
    assert (found["reward/min"], found["reward/max"]) == (1.0, 1.0)
    collector.go_on(
        [block("new", other, me), block("old", me, other)],
        num_new=1,
        becomes={0: 1},
        generator=torch.Generator().manual_seed(2),
    )
    # The policy plays three steps of the old episodes as a, four of the new ones as b.
    collector.collect()
    found = collector.measured()[PolicyId("player/p000")].metrics()
    assert (found["reward/min"], found["reward/max"]) == (1.0, 2.0)


def test_what_is_in_flight_must_be_gone_on_with(scripted_env: Any) -> None:
    env = scripted_env(num_envs=4, length=lambda seed, episode: 10)
    me = trainee()
    blocks = [block("one", me, me), block("two", me, Always(1))]
    collector = collect(env, *blocks)
    collector.collect()
    assert collector.in_flight() == {0: 2, 1: 2}
    with pytest.raises(KeyError):
        collector.go_on(
            blocks[:1], num_new=1, becomes={0: 0}, generator=torch.Generator().manual_seed(2)
        )


def test_where_an_episode_has_just_ended_the_new_players_begin_at_once(scripted_env: Any) -> None:
    env = scripted_env(num_envs=2, length=lambda seed, episode: ROLLOUT)
    me = trainee()
    collector = collect(env, block("old", me, Always(1)))
    collector.collect()
    assert collector.in_flight() == {}
    new = Always(2)
    collector.go_on(
        [block("new", me, new)], num_new=1, becomes={}, generator=torch.Generator().manual_seed(2)
    )
    collector.collect()
    assert new.decisions == 3 * 2


@pytest.mark.slow
def test_every_episode_counts_once_however_short_assignments_are(scripted_env: Any) -> None:
    """Wins of 15 steps, losses of 35, half of the episodes each (review B3: .60 were counted)."""

    def reward(seed: int, episode: int, step: int, agent: int) -> float:
        is_short = (seed * 7919 + episode * 104729) % 1009 % 2 == 0
        return (1.0 if (agent == 0) == is_short else -1.0) if step == 14 else 0.0

    def length(seed: int, episode: int) -> int:
        return 15 if (seed * 7919 + episode * 104729) % 1009 % 2 == 0 else 35

    env = scripted_env(num_envs=32, length=length, reward=reward)
    me = trainee()
    blocks = [block("me", me, me)]
    collector = collect(env, *blocks)
    wins = matches = 0
    for index in range(60):
        if index:
            becomes = {at: 0 for at in collector.in_flight()}
            generator = torch.Generator().manual_seed(index)
            collector.go_on(blocks, num_new=1, becomes=becomes, generator=generator)
        rollouts(collector, 2)
        for tally in collector.tallies():
            matches += tally.matches
            wins += tally.pairs[0].wins
    assert matches > 1000
    ended = [length(b, episode) for b in range(32) for episode in range(env.episode[b])]
    assert matches == len(ended)
    assert wins == ended.count(15)
    assert wins / matches == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("episodes", [1, 3])
def test_whole_episodes_end_when_each_environment_has_played_its_number(
    scripted_env: Any, episodes: int
) -> None:
    env = scripted_env(num_envs=6, length=lambda seed, episode: 3 + 4 * seed + episode)
    me = trainee()
    collector = collect(env, block("me", me, me), episodes=episodes)
    collected: list[Rollout] = []
    while not collector.is_done:
        collected += rollouts(collector, 1)
    (tally,) = collector.tallies()
    assert tally.matches == 6 * episodes
    played = sum(3 + 4 * b + k for b in range(6) for k in range(episodes))
    assert tally.length_sum == played == len(env.decisions)
    assert collector.agent_steps == {"player/p000": played}
    assert collector.in_flight() == {}
    # Only decisions that wait for the other agent's turn at the end of a rollout are not trained
    # on.
    assert sum(map(len, collected)) >= played - 6 * len(collected)


def decided_phases(env: Any, *, since: int) -> Counter[int]:
    """Decisions of each tenth of the episode, after so many in all."""
    return Counter(step * 10 // 100 for _, _, step, _, _ in env.decisions[since:])


@pytest.mark.slow
def test_equal_episodes_are_spread_over_their_phases(scripted_env: Any) -> None:
    env = scripted_env(num_envs=20, length=lambda seed, episode: 100)
    me = trainee()
    collector = collect(env, block("me", me, me))
    rollouts(collector, 29)  # two episodes: all in one phase, then one after the other
    since = len(env.decisions)
    rollouts(collector, 29)
    counts = decided_phases(env, since=since)
    assert min(counts.values()) > 0.5 * sum(counts.values()) / 10
    # The spread also holds within a single rollout.
    since = len(env.decisions)
    rollouts(collector, 1)
    assert len(decided_phases(env, since=since)) == 10
    (tally,) = collector.tallies()
    assert tally.length_sum == 100 * tally.matches


def test_with_a_known_length_they_are_spread_from_the_start(scripted_env: Any) -> None:
    env = scripted_env(num_envs=20, length=lambda seed, episode: 100)
    me = trainee()
    collector = collect(env, block("me", me, me), episode_length=100.0)
    rollouts(collector, 15)
    since = len(env.decisions)
    assert since == sum(100 - 5 * k for k in range(20)) + sum(5 - 5 * k % 5 for k in range(20))
    rollouts(collector, 1)
    assert len(decided_phases(env, since=since)) == 10
    (tally,) = collector.tallies()
    assert tally.length_sum == 100 * tally.matches


def phases(num_envs: int = 100, rollout_length: int = 10) -> Phases:
    return Phases(num_envs=num_envs, rollout_length=rollout_length, device=torch.device("cpu"))


def test_short_episodes_are_not_spread() -> None:
    generator = torch.Generator().manual_seed(0)
    everywhere = torch.ones(100, dtype=torch.bool)
    assert phases().begin(19.0, generator=generator) is None
    assert phases().begin(0.0, generator=generator) is None
    assert phases().end(everywhere, length=19.0, generator=generator) is None
    assert phases().end(everywhere, length=20.0, generator=generator) is not None


def test_episodes_that_end_one_after_the_other_are_left_alone() -> None:
    over = torch.zeros(100, dtype=torch.bool)
    over[:4] = True  # an even spread of 100 environments over 100 steps: one in a step
    generator = torch.Generator().manual_seed(0)
    assert phases().end(over, length=100.0, generator=generator) is None
    over[4] = True
    assert phases().end(over, length=100.0, generator=generator) is not None


def test_waits_are_spread_evenly_and_end() -> None:
    some = phases(num_envs=10)
    waiting = some.begin(100.0, generator=torch.Generator().manual_seed(0))
    assert waiting is not None
    assert int(waiting.sum()) == 9
    ends = {}
    for step in range(1, 101):
        resumed = some.tick()
        if resumed is not None:
            ends[step] = int(resumed.sum())
    assert ends == {10 * k: 1 for k in range(1, 10)}
    assert some.waiting is None
