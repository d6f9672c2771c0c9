from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from msgspec import structs

from arena.config import NetworkConfig
from arena.envs.batched.find import find_game
from arena.envs.batched.game import BatchedGame
from arena.envs.registry import TWINS
from arena.export.card import POLICY, Card
from arena.export.html.page import GAMES, champion_page
from arena.networks.actor_critic import ActorCritic
from tests.arena.export.conftest import level, policy_of
from tests.layouts import frozen_policy

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IDS = [one for one, twin in TWINS.items() if twin in GAMES]
CONNECT_FOUR = "classic/connect_four-v3"


def make_game(environment: str, num_games: int) -> BatchedGame:
    game = find_game(environment, launch_directory=".")
    assert game is not None
    return game(num_games, device=torch.device("cpu"))


Make = Callable[..., tuple[Card, ActorCritic]]


@pytest.fixture(scope="session")
def champion() -> Make:
    """Make a card and its network."""

    def make(
        environment: str, *, network: NetworkConfig | None = None, **updates: object
    ) -> tuple[Card, ActorCritic]:
        game = make_game(environment, 1)
        card, weights = policy_of(
            game.agent_specs[game.agents[0]],
            network=network or NetworkConfig(hidden_sizes=(16,)),
            environment=environment,
            agents=game.agents,
        )
        return structs.replace(card, **updates), frozen_policy(card, weights).network

    return make


@pytest.fixture(scope="session")
def page_file(champion: Make, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write a page, of a champion or of several levels of it."""

    def write(environment: str, *, temperatures: tuple[float, ...] = (), **options: Any) -> Path:
        card, network = champion(environment, **options)
        levels = tuple(
            level(
                at,
                card,
                player=options.get("player", f"player/p{at:03d}"),
                temperature=one,
                rating=600.0 + 100 * at,
                rating_low=590.0 + 100 * at,
                rating_high=610.0 + 100 * at,
            )
            for at, one in enumerate(temperatures, start=1)
        )
        if levels:
            # Nobody took a point from the champion.
            top = structs.replace(levels[-1], rating_low=900.0, rating_high=None)
            levels = (*levels[:-1], top)
        path = tmp_path_factory.mktemp("page") / "champion.html"
        path.write_bytes(champion_page(structs.replace(card, levels=levels), {POLICY: network}))
        return path

    return write


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    # Here: the browser's package takes long to import.
    from tests.tools.web.browsing import launched

    with launched(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser
