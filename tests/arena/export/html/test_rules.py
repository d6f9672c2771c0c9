"""The rules of a page, in a browser, beside those of the batched games."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.arena.export.html.conftest import IDS
from tests.arena.export.html.random_games import Played, random_games

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.xdist_group("html")

REPLAY = """(games) => games.map(({ cards, actions }) => {
  let position = GAME.start(cards);
  return actions.map((action) => {
    const bits = (row) => row.map(Number).join("");
    const seen = [position.turn, bits(GAME.legal(position)), bits(GAME.observe(position))];
    position = GAME.step(position, action);
    return [...seen, JSON.stringify(position.outcome)].join(" ");
  });
})"""
"""What a page sees of games: in each step agent, legal actions, observation, and outcome."""


def lines(game: Played) -> list[str]:
    return [
        f"{agent} {bits(mask)} {bits(seen)} {json.dumps(outcome, separators=(',', ':'))}"
        for agent, mask, seen, outcome in game.steps
    ]


def bits(row: npt.NDArray[Any]) -> str:
    assert np.isin(row, (0, 1)).all()
    return (row.astype(np.uint8) + ord("0")).tobytes().decode()


@pytest.mark.parametrize("environment", IDS)
@pytest.mark.parametrize("num_games", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_page_has_the_rules_of_the_batched_game(
    page_file: Callable[..., Path], browser: Browser, environment: str, num_games: int
) -> None:
    page = browser.new_page()
    page.goto(page_file(environment).as_uri())
    games = random_games(environment, num_games, seed=num_games)
    # A few at a time: what is told is some hundred bytes a step.
    for at in range(0, num_games, 500):
        some = games[at : at + 500]
        told = page.evaluate(REPLAY, [{"cards": one.cards, "actions": one.actions} for one in some])
        assert told == [lines(one) for one in some]
    page.close()
