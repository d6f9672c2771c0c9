"""Random games of a batched game, which is the other implementation of a page's rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from tests.arena.export.html.conftest import make_game


class Step(NamedTuple):
    """What was seen at a decision, and what it brought.

    Attributes:
        agent: Agent that decided.
        mask: Its legal actions. bool [n].
        observation: What it saw. float32 [F].
        outcome: Rewards after it; None while the game goes on.
    """

    agent: int
    mask: npt.NDArray[Any]
    observation: npt.NDArray[Any]
    outcome: list[int] | None


@dataclass(kw_only=True)
class Played:
    """A game: its cards in the order of dealing (none on boards), its actions, and its steps."""

    cards: list[int]
    actions: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def random_games(environment: str, num_games: int, *, seed: int) -> list[Played]:
    """Play games to their ends by uniform legal actions."""
    generator = torch.Generator().manual_seed(seed)
    game: Any = make_game(environment, num_games)
    keys = torch.randint(2**31, (num_games,), generator=generator)
    game.reset(torch.ones(num_games, dtype=torch.bool), key=keys)
    dealt = game.dealt().tolist() if hasattr(game, "dealt") else [[]] * num_games
    games = [Played(cards=cards) for cards in dealt]
    goes_on = np.ones(num_games, dtype=bool)
    while goes_on.any():
        (group,) = game.decisions()
        mask = group.action_mask[:, 0].clone()
        mask[~torch.from_numpy(goes_on)] = True
        actions = torch.multinomial(mask.float(), 1, generator=generator)
        seen, agents = group.observation[:, 0].numpy().copy(), group.agent_index[:, 0].tolist()
        result = game.step([actions])
        over, rewards = result.terminated.all(dim=1).numpy(), result.reward.int().tolist()
        for at in goes_on.nonzero()[0].tolist():
            games[at].actions.append(int(actions[at, 0]))
            outcome = rewards[at] if over[at] else None
            games[at].steps.append(Step(agents[at], mask[at].numpy(), seen[at], outcome))
        goes_on &= ~over
    return games
