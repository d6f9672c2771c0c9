"""Random games of a batched game, which is the other implementation of a page's rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tests.arena.export.html.conftest import make_game


@dataclass(kw_only=True)
class Played:
    """A game: its cards, its actions, and what was seen at each of them.

    Attributes:
        cards: Cards in the order of dealing; none on boards.
        actions: Actions until the end.
        agents: Agent that took each.
        masks: Legal actions before each. bool [n].
        observations: What its agent saw. float32 [F].
        outcomes: Rewards after each; None while the game goes on.
    """

    cards: list[int]
    actions: list[int] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)
    masks: list[npt.NDArray[Any]] = field(default_factory=list)
    observations: list[npt.NDArray[Any]] = field(default_factory=list)
    outcomes: list[list[int] | None] = field(default_factory=list)


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
        observation, agents = (
            group.observation[:, 0].numpy().copy(),
            group.agent_index[:, 0].tolist(),
        )
        result = game.step([actions])
        over, rewards = result.terminated.all(dim=1).numpy(), result.reward.int().tolist()
        for at in goes_on.nonzero()[0].tolist():
            one = games[at]
            one.actions.append(int(actions[at, 0]))
            one.agents.append(agents[at])
            one.masks.append(mask[at].numpy())
            one.observations.append(observation[at])
            one.outcomes.append(rewards[at] if over[at] else None)
        goes_on &= ~over
    return games
