"""How fast a tournament is: 64 players at once, and the same games one decision at a time.

    python -m experiments.speed.tournament     # 64 * 63 pairs * 100 games of Connect Four
    python -m experiments.speed.tournament --players 16 --matches 20

Players are networks (MLP 128x128) with random weights, which sample their moves. Prints games per
second of the tournament; of a sample of single games through PettingZoo, where a network gets one
row at a time, as people write such a loop; and of the same through OpenSpiel where it is installed.
One thread each; seconds are of processor time, because others may use the machine too.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
from collections.abc import Callable, Sequence

import torch

from arena.config import EnvironmentConfig
from arena.core import Actor, ActorInput
from arena.envs.batched.connect_four import ConnectFour
from arena.envs.batched.find import game_facts
from arena.envs.make import make_game_batch
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.registry import make_environment
from arena.matches.seating import make_seats
from arena.matches.tournament import TournamentResult, play_tournament
from experiments.speed.stacking import random_policy, say

ENVIRONMENT = "classic/connect_four-v3"
AGENTS = ConnectFour.agents
SIDES = {agent: (agent,) for agent in AGENTS}
POPULATIONS = {"player": AGENTS}

Game = Callable[[Actor, Actor, torch.Generator], None]
"""Function that plays one game between home and away."""


def tournament(
    players: Sequence[Actor], *, num_matches: int, num_envs: int
) -> tuple[TournamentResult, float]:
    """Let every ordered pair play ``num_matches``; return the result and seconds."""
    env = make_game_batch(
        EnvsRequest(
            EnvironmentConfig(id=ENVIRONMENT),
            spec=game_facts(ENVIRONMENT, ConnectFour, kwargs={}),
            sides=SIDES,
            populations=POPULATIONS,
            num_envs=num_envs,
            launch_directory="",
        ),
        ConnectFour,
    )
    started = time.process_time()
    result = play_tournament(
        env,
        contenders={str(index): {"player": player} for index, player in enumerate(players)},
        num_matches=num_matches,
        seats=make_seats(agents=AGENTS, sides=SIDES, populations=POPULATIONS),
        sides=SIDES,
        seed=1,
        generator=torch.Generator().manual_seed(1),
    )
    return result, time.process_time() - started


def pettingzoo() -> Game:
    """Play games through PettingZoo, row by row."""
    env = make_environment(ENVIRONMENT, kwargs={}, api="aec", launch_directory="")

    def play(home: Actor, away: Actor, generator: torch.Generator) -> None:
        env.reset()
        actors = dict(zip(AGENTS, (home, away), strict=True))
        for agent in env.agent_iter():
            seen, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
                continue
            observation = torch.as_tensor(seen["observation"]).float().reshape(1, -1)
            mask = torch.as_tensor(seen["action_mask"]).bool()[None]
            action = (
                actors[agent]
                .act(
                    ActorInput(observation=observation, action_mask=mask),
                    agent=agent,
                    generator=generator,
                )
                .action
            )
            env.step(int(action))

    return play


def openspiel() -> Game:
    """Play games through OpenSpiel, row by row."""
    game = importlib.import_module("pyspiel").load_game("connect_four")

    def play(home: Actor, away: Actor, generator: torch.Generator) -> None:
        state = game.new_initial_state()
        while not state.is_terminal():
            player = state.current_player()
            # Three planes, of which a network with random weights may get the first two.
            observation = torch.tensor(state.observation_tensor(player)[:84])[None]
            mask = torch.tensor(state.legal_actions_mask(player)).bool()[None]
            action = (
                (home, away)[player]
                .act(
                    ActorInput(observation=observation, action_mask=mask),
                    agent=AGENTS[player],
                    generator=generator,
                )
                .action
            )
            state.apply_action(int(action))

    return play


def sampled_speed(play: Game, players: Sequence[Actor], *, num_games: int) -> float:
    """Return the games per second of a sample, in pairs as they come in a tournament."""
    generator = torch.Generator().manual_seed(1)
    pairs = itertools.cycle(itertools.permutations(players, 2))
    play(*next(pairs), generator)
    started = time.process_time()
    for home, away in itertools.islice(pairs, num_games):
        play(home, away, generator)
    return num_games / (time.process_time() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--players", type=int, default=64)
    parser.add_argument("--matches", type=int, default=100)
    parser.add_argument("--envs", type=int, default=4096)
    parser.add_argument("--sample", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    players = [random_policy(seed) for seed in range(arguments.players)]
    result, seconds = tournament(players, num_matches=arguments.matches, num_envs=arguments.envs)
    num_games = sum(pair.matches for pair in result.pairs)
    speed = num_games / seconds
    say(f"tournament: {num_games} games in {seconds:.1f} s, {speed:.0f} games/s")
    games = {"PettingZoo": pettingzoo()}
    if importlib.util.find_spec("pyspiel") is not None:
        games["OpenSpiel"] = openspiel()
    for name, play in games.items():
        speeds = sorted(
            sampled_speed(play, players, num_games=arguments.sample)
            for _ in range(arguments.rounds)
        )
        middle = speeds[len(speeds) // 2]
        say(
            f"{name}, one decision at a time: {middle:.1f} games/s "
            f"({speeds[0]:.1f}-{speeds[-1]:.1f} in {len(speeds)} rounds), "
            f"ratio {speed / middle:.0f}"
        )


if __name__ == "__main__":
    main()
