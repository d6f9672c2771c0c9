"""Uniform random play of tic-tac-toe, whose exact values are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
import torch

from arena.envs.base import Group, Turn
from arena.envs.spaces.actions import ActionLayout
from arena.matches.actors import RandomActor
from arena.matches.match import Block, play_matches
from arena.matches.seating import make_seats
from arena.types import Entrant

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
SIDES = {"x": ("x",), "o": ("o",)}
SEATS = make_seats(agents=("x", "o"), sides=SIDES, populations={"player": ("x", "o")})


class TicTacToe:
    """B boards in torch: 0 empty, 1 x, -1 o."""

    agents = ("x", "o")

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self, seeds: Sequence[int]) -> Turn:
        self.board = torch.zeros(self.num_envs, 9)
        self.halted = torch.zeros(self.num_envs, dtype=torch.bool)
        return self._turn(torch.zeros(self.num_envs), torch.zeros(self.num_envs, dtype=torch.bool))

    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        playing = (~self.halted).nonzero().squeeze(1)
        action = actions["player"][playing, 0]
        assert bool((self.board[playing, action] == 0).all())
        mark = torch.where(self._on_turn() == 0, 1.0, -1.0)
        self.board[playing, action] = mark[playing]
        sums = torch.stack([self.board[:, list(line)].sum(dim=1) for line in LINES], dim=1)
        winner = (sums == 3).any(dim=1).float() - (sums == -3).any(dim=1).float()
        over = ((winner != 0) | (self.board != 0).all(dim=1)) & ~self.halted
        return self._turn(winner, over)

    def halt(self, environments: torch.Tensor) -> None:
        self.halted |= environments

    def resume(self, environments: torch.Tensor) -> None:
        raise NotImplementedError("matches never resume")

    def close(self) -> None:
        pass

    def _on_turn(self) -> torch.Tensor:
        return (self.board != 0).sum(dim=1) % 2

    def _turn(self, winner: torch.Tensor, over: torch.Tensor) -> Turn:
        self.board[over] = 0.0
        reward = torch.stack((winner, -winner), dim=1) * over[:, None]
        ended = over[:, None].expand(-1, 2)
        agent = torch.where(self.halted, -1, self._on_turn())
        return Turn(
            groups={
                "player": Group(
                    agent_index=agent[:, None],
                    observation=self.board[:, None].clone(),
                    action_mask=(self.board == 0)[:, None],
                )
            },
            reward=reward,
            terminated=ended,
            truncated=torch.zeros_like(ended),
            final_observation={},
            episode_over=over,
            score=torch.where(over[:, None], (reward + 1) / 2, torch.nan),
        )


@pytest.mark.parametrize("num_matches", [1, 16])
def test_random_against_random_has_the_exact_values(num_matches: int) -> None:
    num_envs = 4000 // num_matches
    nine = ActionLayout.from_json({"kind": "Discrete", "n": 9, "start": 0}, continuous="squashed")
    one, other = RandomActor(nine), RandomActor(nine)
    (tally,) = play_matches(
        TicTacToe(num_envs),
        blocks=[
            Block(
                entrants=(Entrant("one"), Entrant("other")),
                actors=(one, other),
                num_envs=num_envs,
                num_matches=num_matches,
            )
        ],
        seats=SEATS,
        sides=SIDES,
        seeds=range(num_envs),
        generator=torch.Generator().manual_seed(num_matches),
    )
    (pair,) = tally.pairs
    assert tally.matches == 4000
    for count, exact in (
        (pair.wins, 0.584921),
        (pair.draws, 0.126984),
        (pair.losses, 0.288095),
    ):
        deviation = math.sqrt(exact * (1 - exact) / tally.matches)
        assert abs(count / tally.matches - exact) < 5 * deviation
    # Every win is a return of 1 for one side and -1 for the other.
    assert tally.return_sum == (pair.wins - pair.losses, pair.losses - pair.wins)
    # Exact, like the values above, by recursion over positions: mean 7.626190, deviation 1.2987.
    assert abs(tally.length_sum / tally.matches - 7.626190) < 5 * 1.2987 / math.sqrt(4000)
