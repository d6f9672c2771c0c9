"""Random games of a batched game, which is the other implementation of a page's rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tests.arena.export.html.conftest import make_game


@dataclass(kw_only=True)
class Played:
    """A game: its cards in the order of dealing (none on boards), its actions, and its steps.

    Attributes:
        seen: What was seen at each decision. float32 [F].
        lines: Agent, legal actions, observation and outcome of each, as a page tells them.
    """

    cards: list[int]
    actions: list[int] = field(default_factory=list)
    seen: list[npt.NDArray[Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


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
            games[at].seen.append(seen[at])
            told = f"{agents[at]} {bits(mask[at].numpy())} {bits(seen[at])}"
            outcome = json.dumps(rewards[at] if over[at] else None, separators=(",", ":"))
            games[at].lines.append(f"{told} {outcome}")
        goes_on &= ~over
    return games


def bits(row: npt.NDArray[Any]) -> str:
    assert np.isin(row, (0, 1)).all()
    return (row.astype(np.uint8) + ord("0")).tobytes().decode()
