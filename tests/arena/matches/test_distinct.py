from __future__ import annotations

from typing import Any

import pytest
import torch

from arena.config import MarginOutcome
from arena.core import Actor, ActorInput, ActorOutput
from arena.environment_spec import EnvironmentSpec
from arena.envs.base import BatchedEnv, Turn
from arena.envs.batched.find import find_game, game_facts
from arena.envs.make import make_game_batch
from arena.envs.probe.chance import has_chance
from arena.envs.random_play import action_layouts
from arena.matches.actors import make_bot
from arena.matches.match import Block, play_matches
from arena.matches.pair_scores import points
from arena.matches.seating import make_seats
from arena.matches.tournament import play_tournament
from arena.types import Entrant, Tally
from tests.arena.samples import Always, each_alone, make_request

CPU = torch.device("cpu")
GAMES = {
    "openspiel:kuhn_poker": "kuhn_poker:KuhnPoker",
    "classic/tictactoe-v3": "tictactoe:TicTacToe",
    "classic/rps-v2": "rock_paper_scissors:RockPaperScissors",
}


def batch(
    name: str, *, num_envs: int, outcome: Any = "return"
) -> tuple[BatchedEnv, EnvironmentSpec]:
    """A native game, and its facts."""
    kind = find_game(f"arena.envs.batched.{GAMES[name]}", launch_directory="")
    assert kind is not None
    spec = game_facts(name, kind, kwargs={})
    env = make_game_batch(
        make_request(
            spec,
            num_envs=num_envs,
            populations={"player": spec.agents},
            config={"outcome": outcome},
        ),
        kind,
    )
    return env, spec


class Watched:
    """A batch that writes down who decided what in each game, and what came of it."""

    def __init__(self, env: BatchedEnv) -> None:
        self._env = env
        self.num_envs, self.agents = env.num_envs, env.agents
        self.games: list[tuple[object, ...]] = []
        self._open: list[list[object]] = []
        self._returns = torch.zeros(env.num_envs, len(env.agents))
        self._halted = torch.zeros(env.num_envs, dtype=torch.bool)

    def reset(self, seeds: Any) -> Turn:
        self._open = [[] for _ in range(self.num_envs)]
        self._turn = self._env.reset(seeds)
        return self._turn

    def halt(self, environments: torch.Tensor) -> None:
        self._halted |= environments
        self._env.halt(environments)

    def step(self, actions: Any) -> Turn:
        (group,), (chosen,) = self._turn.groups.values(), actions.values()
        asked = zip(group.agent_index.tolist(), chosen.tolist(), strict=True)
        for game, (agents, answers) in zip(self._open, asked, strict=True):
            game += [(a, c) for a, c in zip(agents, answers, strict=True) if a >= 0]
        self._turn = self._env.step(actions)
        self._returns += self._turn.reward
        for b in self._turn.episode_over.nonzero().flatten().tolist():
            self.games.append((*self._open[b], *self._returns[b].tolist()))
            self._open[b] = []
            self._returns[b] = 0.0
        return self._turn


def random_tally(env: Any, spec: EnvironmentSpec, *, num_matches: int) -> Tally:
    """Matches of bot:random against itself."""
    populations = {"player": spec.agents}
    layouts, sides = action_layouts(spec, populations=populations), each_alone(spec)
    bot = make_bot(
        "bot:random",
        facts=spec.agent_specs[spec.agents[0]],
        actions=layouts["player"],
        launch_directory="",
    )
    (tally,) = play_matches(
        env,
        blocks=[
            Block(
                entrants=(Entrant("A"), Entrant("B")),
                actors=(bot, bot),
                num_envs=env.num_envs,
                num_matches=num_matches,
            )
        ],
        seats=make_seats(agents=spec.agents, sides=sides, populations=populations),
        sides=sides,
        seeds=range(env.num_envs),
        generator=torch.Generator().manual_seed(1),
    )
    return tally


@pytest.mark.parametrize("name", GAMES)
def test_games_are_different_where_a_decision_or_a_return_is(name: str) -> None:
    env, spec = batch(name, num_envs=40)
    watched = Watched(env)
    tally = random_tally(watched, spec, num_matches=3)
    assert tally.matches == len(watched.games) == 120
    assert tally.distinct == len(set(watched.games))


def test_in_kuhn_poker_there_are_few_games() -> None:
    """Five sequences of bets: two end with a fold, three with one of two showdowns."""
    env, spec = batch("openspiel:kuhn_poker", num_envs=500)
    assert random_tally(env, spec, num_matches=2).distinct == 2 + 3 * 2


@pytest.mark.parametrize(
    ("name", "expected"), [("openspiel:kuhn_poker", True), ("classic/tictactoe-v3", False)]
)
def test_chance_is_seen_in_what_seeds_change(name: str, expected: bool) -> None:
    env, spec = batch(name, num_envs=16)
    populations = {"player": spec.agents}
    layouts = action_layouts(spec, populations=populations)
    assert has_chance(env, populations=populations, actions=layouts, num_steps=60) == expected


class Folder(Actor):
    """Checks; calls with the king, and in the first seat with the queen."""

    reads_agent = False

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        observation = inputs.observation
        is_first, has_queen, has_king = observation[:, [0, 3, 4]].bool().T
        # The other player's bet is in the second place of the history, or in the first.
        is_bet = observation[:, [6, 8]].bool().any(dim=1)
        calls: torch.Tensor = is_bet & (has_king | (has_queen & is_first))
        return ActorOutput(action=calls.long())


@pytest.mark.parametrize(
    ("outcome", "score"), [("return", 5 / 12), (MarginOutcome(margin=2.0), 1 / 2 + 1 / 6 / 4)]
)
def test_who_folds_wins_fewer_games_and_more_chips(outcome: Any, score: float) -> None:
    """Facing a bet: king wins 2, queen called wins 0 on average, all that is folded loses 1.

    Both seats together: 1/3 x 2 + 1/6 x 0 - 1/2 x 1 = 1/6 a game; won are 1/3 + 1/6 x 1/2 = 5/12.
    """
    env, spec = batch("openspiel:kuhn_poker", num_envs=1024, outcome=outcome)
    sides = each_alone(spec)
    seats = make_seats(agents=spec.agents, sides=sides, populations={"player": spec.agents})
    result = play_tournament(
        env,
        contenders={"folder": {"player": Folder()}, "bettor": {"player": Always(1)}},
        num_matches=6000,
        seats=seats,
        sides=sides,
        seed=1,
        generator=torch.Generator().manual_seed(1),
    )
    at_home, away = result.pairs
    assert (at_home.score + 1.0 - away.score) / 2 == pytest.approx(score, abs=0.02)
    returns = (at_home.mean_return - away.mean_return) / 2
    assert returns == pytest.approx(1 / 6, abs=0.05)
    for tally in result.tallies:
        (pair,) = tally.pairs
        margin = tally.return_sum[0] / tally.matches
        if outcome != "return":
            assert points(pair) / tally.matches == pytest.approx(0.5 + margin / 4)
