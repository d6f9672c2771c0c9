from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
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
from tests.tools.web.browsing import mistakes_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IDS = [one for one, twin in TWINS.items() if twin in GAMES]
CONNECT_FOUR = "classic/connect_four-v3"
Open = Callable[..., "Page"]


def make_game(environment: str, num_games: int) -> BatchedGame:
    game = find_game(environment, launch_directory=".")
    assert game is not None
    return game(num_games, device=torch.device("cpu"))


def champion(
    environment: str = CONNECT_FOUR, *, network: NetworkConfig | None = None, **updates: object
) -> tuple[Card, ActorCritic]:
    """Make a card and its network."""
    game = make_game(environment, 1)
    card, weights = policy_of(
        game.agent_specs[game.agents[0]],
        network=network or NetworkConfig(hidden_sizes=(16,)),
        environment=environment,
        agents=game.agents,
    )
    return structs.replace(card, **updates), frozen_policy(card, weights).network


def write_page(
    path: Path, environment: str, *, temperatures: tuple[float, ...] = (), **options: Any
) -> None:
    """Write a page, of a champion or of several levels of it."""
    card, network = champion(environment, **options)
    levels = tuple(
        level(
            at,
            card,
            player=f"{card.player}, {at}",
            temperature=one,
            # No opponent took a point from the champion, so its interval is open.
            rating_high=None if at == len(temperatures) else 150.0 * at,
        )
        for at, one in enumerate(temperatures, start=1)
    )
    path.write_bytes(champion_page(structs.replace(card, levels=levels), {POLICY: network}))


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open pages without a network, where nothing goes wrong and nothing is asked for."""
    wrong: dict[str, list[str]] = {}
    asked: list[str] = []
    with ExitStack() as stack:

        def open_page(
            environment: str = CONNECT_FOUR, *, how: Mapping[str, Any] | None = None, **options: Any
        ) -> Page:
            path = tmp_path / f"{len(wrong)}.html"
            write_page(path, environment, **options)
            context = stack.enter_context(browser.new_context(offline=True, **(how or {})))
            page = context.new_page()
            wrong[path.as_uri()] = mistakes_of(page, "")
            page.on("request", lambda request: asked.append(request.url))
            # The clock stands still unless a test advances it.
            page.clock.install(time=0)
            page.goto(path.as_uri())
            page.clock.pause_at(3_600)
            return page

        yield open_page
        assert not any(wrong.values())
        assert asked == [*wrong]
