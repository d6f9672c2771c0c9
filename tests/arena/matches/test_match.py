from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.core import Actor, ActorInput, ActorOutput
from arena.errors import EnvironmentFault
from arena.matches.match import MAX_ROUNDS, Block, Stopped, play_matches, share_envs
from arena.matches.seating import make_seats
from arena.types import Entrant, Tally

DUEL, TOGETHER = {"a": ("a",), "b": ("b",)}, {"all": ("a", "b")}


class Fixed(Actor):
    """Always the same action; remembers what it saw."""

    reads_agent = False

    def __init__(self, action: int = 1) -> None:
        self.action = action
        self.seen: list[list[float]] = []
        self.calls = 0

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        observation = inputs.observation
        self.calls += 1
        self.seen += observation.tolist()
        return ActorOutput(action=torch.full((len(observation),), self.action))


class PerAgent(Fixed):
    """Wants to know who decides."""

    reads_agent = True

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        assert set(inputs.observation[:, 3].tolist()) == {float("ab".index(agent))}
        return super().act(inputs, agent=agent, generator=generator)


def block(home: Fixed, away: Fixed, names: str, *, num_envs: int, num_matches: int) -> Block:
    return Block(
        entrants=(Entrant(names[0]), Entrant(names[1])),
        actors=(home, away),
        num_envs=num_envs,
        num_matches=num_matches,
    )


def play(
    env: Any, *blocks: Block, sides: Mapping[str, tuple[str, ...]] = DUEL, **options: Any
) -> tuple[Tally, ...]:
    return play_matches(
        env,
        blocks=blocks,
        seats=make_seats(agents=env.agents, sides=sides, populations=env.populations),
        sides=sides,
        seeds=range(env.num_envs),
        generator=torch.Generator().manual_seed(1),
        **options,
    )


def test_every_environment_plays_its_number_of_matches_to_the_end(scripted_env: Any) -> None:
    env = scripted_env(num_envs=4, length=lambda seed, episode: 1 + 3 * seed + episode)
    home, away = Fixed(1), Fixed(2)
    (tally,) = play(env, block(home, away, "AB", num_envs=4, num_matches=2))
    expected = [
        (seed, episode, step, step % 2, 1 if step % 2 == 0 else 2)
        for seed in range(4)
        for episode in range(2)
        for step in range(1 + 3 * seed + episode)
    ]
    # No match is lost or counted twice, and short games do not get more matches.
    assert sorted(env.decisions) == expected
    assert tally.matches == 8
    assert tally.length_sum == len(expected)
    assert sorted(home.seen + away.seen) == [list(map(float, row[:4])) for row in expected]


def test_an_actor_gets_all_its_rows_of_a_turn_in_one_call(scripted_env: Any) -> None:
    env = scripted_env(num_envs=6, length=lambda seed, episode: 4)
    one, other = Fixed(), Fixed()
    play(
        env,
        block(one, other, "AB", num_envs=3, num_matches=1),
        block(other, one, "BA", num_envs=3, num_matches=1),
    )
    assert (one.calls, other.calls) == (4, 4)


def test_an_actor_that_reads_the_agent_is_asked_once_per_agent(scripted_env: Any) -> None:
    env = scripted_env(num_envs=4, length=lambda seed, episode: 1 + seed)
    reader = PerAgent()
    (tally,) = play(env, block(reader, reader, "AA", num_envs=4, num_matches=3))
    assert len(reader.seen) == tally.length_sum == 3 * (1 + 2 + 3 + 4)


@pytest.mark.parametrize("in_turns", [True, False])
def test_blocks_have_their_own_players_and_spare_environments_stand_still(
    scripted_env: Any, in_turns: bool
) -> None:
    env = scripted_env(
        num_envs=5,
        in_turns=in_turns,
        reward=lambda seed, episode, step, agent: float(agent == seed % 2),
    )
    tallies = play(
        env,
        block(Fixed(1), Fixed(2), "AB", num_envs=2, num_matches=3),
        block(Fixed(2), Fixed(1), "BA", num_envs=1, num_matches=1),
    )
    assert {row[0] for row in env.decisions} == {0, 1, 2}
    actions = {(row[0], row[3]): row[4] for row in env.decisions}
    assert actions == {(0, 0): 1, (0, 1): 2, (1, 0): 1, (1, 1): 2, (2, 0): 2, (2, 1): 1}
    # Seat a wins with even seeds, seat b with odd seeds.
    assert [(t.matches, t.pairs[0].wins, t.pairs[0].losses) for t in tallies] == [
        (6, 3, 3),
        (1, 1, 0),
    ]


def test_in_cooperation_the_higher_return_on_the_same_seed_wins(scripted_env: Any) -> None:
    passes: list[int] = []

    def reward(seed: int, episode: int, step: int, agent: int) -> float:
        if (seed, episode, step, agent) == (0, 0, 0, 0):
            passes.append(len(passes))
        away = len(passes) == 2
        # Away gains 2 in environment 0, nothing in 1, and loses 2 in environment 2.
        return float(10 * seed + episode + (2 * (1 - seed) if away else 0))

    env = scripted_env(num_envs=4, num_sides=1, reward=reward)
    (tally,) = play(
        env,
        block(Fixed(1), Fixed(2), "AB", num_envs=3, num_matches=2),
        sides=TOGETHER,
    )
    assert [row[:3] for row in env.decisions[: len(env.decisions) // 2]] == [
        row[:3] for row in env.decisions[len(env.decisions) // 2 :]
    ]
    assert [(p.wins, p.draws, p.losses) for p in tally.pairs] == [(2, 2, 2)]
    # An episode has three steps: home gets 3 * (10 seed + episode), away the same plus 6 (1 -
    # seed).
    assert tally.matches == 6
    assert tally.return_sum == (189.0, 189.0)
    assert tally.return_sum_of_squares[0] == sum(
        (3 * (10 * seed + episode)) ** 2 for seed in range(3) for episode in range(2)
    )
    assert tally.length_sum == 2 * 6 * 3


def test_in_cooperation_rounding_wins_nothing(scripted_env: Any) -> None:
    passes: list[int] = []

    def reward(seed: int, episode: int, step: int, agent: int) -> float:
        if (seed, episode, step, agent) == (0, 0, 0, 0):
            passes.append(len(passes))
        # Home gets .1 and then .2, away .3 at once: as float32 these sums differ.
        return (0.0, 0.3, 0.0)[step] if len(passes) == 2 else (0.0, 0.1, 0.2)[step]

    env = scripted_env(num_envs=3, num_sides=1, reward=reward)
    (tally,) = play(
        env,
        block(Fixed(1), Fixed(2), "AB", num_envs=3, num_matches=2),
        sides=TOGETHER,
    )
    assert tally.return_sum[0] != tally.return_sum[1]
    assert [(p.wins, p.draws, p.losses) for p in tally.pairs] == [(0, 6, 0)]


def test_teams_of_two_populations_are_compared_by_the_mean_return_of_all(scripted_env: Any) -> None:
    sides = {"all": ("a", "b", "c")}
    populations = {"p": ("a", "c"), "q": ("b",)}
    passes: list[int] = []

    def reward(seed: int, episode: int, step: int, agent: int) -> float:
        if (seed, episode, step, agent) == (0, 0, 0, 0):
            passes.append(len(passes))
        # Per agent away's q gains 3 a step; its p loses 1 (environment 0) or 2 (environment 1).
        away = len(passes) == 2
        return (3.0 if agent == 1 else -1.0 - seed) if away else 0.0

    env = scripted_env(
        num_envs=2,
        num_sides=1,
        in_turns=False,
        agents=("a", "b", "c"),
        populations=populations,
        reward=reward,
    )
    actors = (Fixed(1), Fixed(2), Fixed(2), Fixed(1))
    entrants = tuple(map(Entrant, ("p1", "q1", "p2", "q2")))
    blocks = Block(entrants=entrants, actors=actors, num_envs=2, num_matches=1)
    (tally,) = play(env, blocks, sides=sides)
    # The mean over all agents is 3 * (3 - 2) / 3 = 1 for away in environment 0, -1 in environment
    # 1.
    assert [(p.first, p.second, p.wins, p.draws, p.losses) for p in tally.pairs] == [
        (0, 2, 1, 0, 1),
        (1, 3, 1, 0, 1),
    ]
    # A seat's return is that of its own agents: three steps of -1 and of -2, of 3 and 3.
    assert tally.return_sum == (0.0, 0.0, -9.0, 18.0)
    assert tally.return_sum_of_squares == (0.0, 0.0, 9.0 + 36.0, 162.0)
    played = {(agent, action) for *_, agent, action in env.decisions}
    assert played == {(0, 1), (1, 2), (2, 1), (0, 2), (1, 1), (2, 2)}


def test_in_cooperation_an_objective_goes_before_the_return(scripted_env: Any) -> None:
    env = scripted_env(num_envs=3, num_sides=1, reward=lambda *where: 1.0)
    step, steps = env.step, 0

    def with_objective(actions: Any) -> Any:
        nonlocal steps
        steps += 1
        turn = step(actions)
        # Home reaches 5 everywhere; away 4, 5 and 6. Episodes last three steps.
        objective = torch.full((3,), 5.0) if steps <= 3 else torch.tensor([4.0, 5.0, 6.0])
        turn.score = torch.where(turn.episode_over, objective, torch.nan)[:, None]
        return turn

    env.step = with_objective
    (tally,) = play(
        env,
        block(Fixed(1), Fixed(2), "AB", num_envs=3, num_matches=1),
        sides=TOGETHER,
    )
    assert [(p.wins, p.draws, p.losses) for p in tally.pairs] == [(1, 1, 1)]
    assert tally.return_sum == (9.0, 9.0)


def play_in_cooperation(env: Any) -> tuple[Tally, ...]:
    both = block(Fixed(1), Fixed(2), "AB", num_envs=env.num_envs, num_matches=2)
    return play(env, both, sides=TOGETHER)


@pytest.mark.parametrize("num_rounds", [3, MAX_ROUNDS + 1])
def test_in_cooperation_pairs_are_looked_for_on_other_seeds_and_not_for_ever(
    scripted_env: Any, num_rounds: int
) -> None:
    env = scripted_env(num_envs=2, num_sides=1)
    reset, step, seeds = env.reset, env.step, []

    def resets(given: Any) -> Any:
        seeds.append(tuple(given))
        return reset(given)

    def steps(actions: Any) -> Any:
        turn = step(actions)
        # Until the last round home and away have no common episode number, as if each dropped a
        # different one.
        if len(seeds) <= 2 * (num_rounds - 1):
            turn.episode = 2 * turn.episode + len(seeds) % 2
        return turn

    env.reset, env.step = resets, steps
    if num_rounds > MAX_ROUNDS:
        with pytest.raises(EnvironmentFault, match=r"after 16 plays of both teams 4 matches"):
            play_in_cooperation(env)
        num_rounds = MAX_ROUNDS
    else:
        (tally,) = play_in_cooperation(env)
        assert tally.matches == 4
    assert seeds[::2] == seeds[1::2]
    assert len(set(seeds)) == num_rounds


def test_in_cooperation_episodes_without_a_number_are_not_compared(scripted_env: Any) -> None:
    env = scripted_env(num_envs=2, num_sides=1)
    step = env.step
    env.step = lambda actions: dataclasses.replace(step(actions), episode=None)
    with pytest.raises(ValueError, match="number their episodes"):
        play_in_cooperation(env)


def test_play_stops_when_told(scripted_env: Any) -> None:
    answers = iter([False, False, True])
    env = scripted_env(num_envs=1, length=lambda seed, episode: 100)
    with pytest.raises(Stopped):
        play(
            env,
            block(Fixed(), Fixed(), "AB", num_envs=1, num_matches=1),
            should_stop=lambda: next(answers),
        )
    assert len(env.decisions) == 2


def test_too_many_blocks_are_refused(scripted_env: Any) -> None:
    with pytest.raises(ValueError, match="need 3 environments of 2"):
        play(scripted_env(num_envs=2), block(Fixed(), Fixed(), "AB", num_envs=3, num_matches=1))


@given(
    num_matches=st.lists(st.integers(1, 300), min_size=1, max_size=20),
    num_envs=st.integers(1, 64),
)
def test_shares_give_each_pairing_exactly_its_matches(
    num_matches: list[int], num_envs: int
) -> None:
    waves = share_envs(num_matches, num_envs=num_envs)
    played: Counter[int] = Counter()
    for wave in waves:
        assert sum(share.num_envs for share in wave) <= num_envs
        for share in wave:
            assert share.num_envs > 0
            played[share.pairing] += share.num_envs * share.num_matches
    assert [played[pairing] for pairing in range(len(num_matches))] == num_matches
    assert len(waves) == math.ceil(len(num_matches) / num_envs)


def test_shares_use_the_environments_there_are() -> None:
    ((share,),) = share_envs([128], num_envs=64)
    assert (share.num_envs, share.num_matches) == (64, 2)
    (wave,) = share_envs([100, 300], num_envs=40)
    assert [(s.pairing, s.num_envs, s.num_matches) for s in wave] == [(0, 10, 10), (1, 30, 10)]
