"""A page as people meet it: whole games by touch and by keys, offline, for everybody.

Its rules are compared with those of the batched games.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from msgspec import structs

from arena.config import NetworkConfig
from arena.environment_spec import EnvironmentSpec
from arena.errors import ConfigError
from arena.export.html.page import page_game
from tests.arena.export.html.conftest import IDS, Open, champion
from tests.arena.export.html.random_games import random_games

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("html")

HIDDEN = re.compile(r"the other: paid \d+, face down")
OVER = re.compile(r"You win|You lose|A draw")


def said(page: Page) -> str:
    # The champion waits a moment before its move, which the clock skips.
    page.clock.run_for(1_000)
    return page.get_by_role("status").inner_text()


def moves(page: Page) -> Any:
    return page.locator("#moves button")


def legal(page: Page) -> Any:
    return page.locator('#moves button[aria-disabled="false"]')


@pytest.mark.parametrize("environment", IDS)
def test_a_whole_game_is_played_by_touch_on_a_phone(open_page: Open, environment: str) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = open_page(environment, how=phone)
    for side in ("0", "1"):
        page.get_by_label("You play").select_option(side)
        # The opponent's cards are hidden until the end.
        drawing, num_moves = page.locator("#board svg"), 0
        hidden = HIDDEN.search(str(drawing.get_attribute("aria-label")))
        assert bool(hidden) == environment.startswith("openspiel:")
        while not OVER.search(said(page)):
            assert "Your move" in said(page)
            legal(page).last.tap()
            num_moves += 1
        assert num_moves > 0
        assert not HIDDEN.search(str(drawing.get_attribute("aria-label")))
        assert legal(page).count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("button", name="New game").tap()
        assert "A new game: you are" in page.get_by_role("status").inner_text()


def test_a_stone_falls_where_it_is_put_and_is_taken_back(open_page: Open) -> None:
    page = open_page()
    column = page.get_by_role("button", name="column 3")
    assert column.get_attribute("aria-label") == "column 3, empty"
    column.click()
    assert "You: column 3. The champion thinks." in page.get_by_role("status").inner_text()
    # A click has no effect when the person is not on turn.
    column.click(force=True)
    assert str(column.get_attribute("aria-label")).startswith("column 3, from the bottom red")
    assert "Your move" in said(page)
    assert page.evaluate("now().cells.filter((cell) => cell >= 0).length") == 2
    page.get_by_role("button", name="Undo").click()
    assert page.get_by_role("status").inner_text() == "Taken back. Your move."
    assert column.get_attribute("aria-label") == "column 3, empty"
    # The champion's answer to a move that was taken back is dropped.
    column.click()
    page.get_by_role("button", name="Undo").click()
    assert said(page) == "Taken back. Your move."
    # Undo has no effect before the first decision.
    page.get_by_role("button", name="Undo").click(force=True)
    assert page.evaluate("game.length") == 1
    # The number below a column is clickable too; a full column says so and ignores the click.
    box = page.locator("#board svg").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 2.5 / 7, box["y"] + box["height"] - 4)
    assert "You: column 3." in page.get_by_role("status").inner_text()
    page.evaluate("game = [Array(6).fill(2).reduce(GAME.step, GAME.start())]; go('')")
    column.click(force=True)
    assert said(page) == "You cannot play column 3 now. Your move."
    assert page.evaluate("game.length") == 1
    # The whole winning line is marked, not only the last stone: the lowest row from column 2.
    moved = "(position, column) => GAME.step(position, column)"
    won = page.evaluate(f"[3, 0, 2, 0, 1, 0, 4].reduce({moved}, GAME.start()).marked")
    assert sorted(won) == [36, 37, 38, 39]


def test_keys_play_ask_and_take_back(open_page: Open) -> None:
    page = open_page("classic/tictactoe-v3")
    # Keys number the moves in reading order, independent of the action numbers.
    page.keyboard.press("2")
    assert "You: row 1, column 2." in page.get_by_role("status").inner_text()
    said(page)
    page.keyboard.press("h")
    assert "the champion would play row" in said(page)
    assert re.search(r"It expects -?\d\.\d\d for you on average, where a win is 1", said(page))
    shown = page.locator(".chance").all_inner_texts()
    assert len(shown) == legal(page).count() == 7
    assert sum(int(one.rstrip("%")) for one in shown) == pytest.approx(100, abs=4)
    page.keyboard.press("u")
    assert page.locator(".chance").count() == 0
    assert legal(page).count() == 9
    moves(page).first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    assert "You: row 3, column 1." in page.get_by_role("status").inner_text()
    page.keyboard.press("n")
    assert "A new game" in said(page)
    # With the other seat chosen, keys reach the game and not the menu.
    page.get_by_label("You play").select_option("1")
    assert "A new game: you are ring. The champion: row" in said(page)
    free = "(all) => all.findIndex((one) => one.ariaDisabled === 'false')"
    page.keyboard.press(str(1 + moves(page).evaluate_all(free)))
    assert "You: row" in page.get_by_role("status").inner_text()


def test_levels_are_chosen_by_names_that_are_text_and_share_their_weights(
    open_page: Open, tmp_path: Path
) -> None:
    name = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    one = open_page(player=name, run=name)
    page = open_page(player=name, run=name, temperatures=(3.0, 2.0, 1.0))
    alone, together = ((tmp_path / file).stat().st_size for file in ("0.html", "1.html"))
    assert together < alone + 1_000
    assert not one.get_by_label("Level").is_visible()
    level, opponent = page.get_by_label("Level"), page.locator("#opponent")
    assert level.input_value() == "2"
    assert f"{name}, 3, rated 150+" in opponent.inner_text()
    level.select_option("0")
    assert f"{name}, 1, rated 100 (95%: 50 to 150)" in opponent.inner_text()
    assert name in page.locator("#about").inner_text()
    assert page.locator("img").count() == 0
    page.get_by_role("button", name="column 4").click()
    assert "Level 1: column" in said(page)


@pytest.mark.slow
@pytest.mark.parametrize("environment", IDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everybody_can_read_a_page(
    open_page: Open, environment: str, scheme: str, width: int
) -> None:
    how = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    page = open_page(environment, how=how, temperatures=(2.0, 1.0))
    for key in ("1", "h"):
        said(page)
        page.keyboard.press(key)
    said(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Axe waits for timers, so the clock must run.
    page.clock.resume()
    assert Axe().run(page).violations_count == 0


def test_what_a_page_cannot_play_is_refused_by_name() -> None:
    card, _ = champion()
    spec = card.environment.spec

    def refused(spec: EnvironmentSpec = spec, **network: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            page_game(spec, NetworkConfig(**network))
        return str(caught.value)

    other = structs.replace(card.environment, id="classic/rps-v2").spec
    assert refused(other) == f"--html plays {', '.join(IDS)}, not classic/rps-v2"
    larger = structs.replace(card.environment, kwargs={"players": 3}).spec
    assert "without environment.kwargs, got {'players': 3}" in refused(larger)
    assert "without network.core, got gru" in refused(core="gru")
    assert "without network.agent_id" in refused(agent_id=True)
    assert "residual_cnn, got mine:Encoder" in refused(encoder="mine:Encoder")


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


@pytest.mark.parametrize("environment", IDS)
@pytest.mark.parametrize("num_games", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_page_has_the_rules_of_the_batched_game(
    open_page: Open, environment: str, num_games: int
) -> None:
    page = open_page(environment)
    games = random_games(environment, num_games, seed=num_games)
    # Games run in parts, because the output has some hundred bytes per step.
    for at in range(0, num_games, 500):
        some = games[at : at + 500]
        told = page.evaluate(REPLAY, [{"cards": one.cards, "actions": one.actions} for one in some])
        assert told == [one.lines for one in some]
