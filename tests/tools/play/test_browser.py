"""`arena play --web` in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.tools.web.browsing import served_by, visited
from tools.replay.retelling import retold

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

TIMEOUT_MS = 120_000


@pytest.fixture(scope="module")
def address(board_run: Path) -> Iterator[str]:
    with served_by("play", "--web", str(board_run)) as address:
        yield address


@contextmanager
def opened(browser: Browser | BrowserContext, address: str, **how: Any) -> Iterator[Page]:
    """Open a page whose game can be played."""
    with visited(browser, address, **how) as page:
        page.locator(".moves button").first.wait_for(timeout=TIMEOUT_MS)
        yield page


def pieces(page: Page) -> int:
    return page.locator(".board [data-piece]").count()


def after(page: Page, number: int) -> None:
    """Wait until there are so many pieces."""
    page.wait_for_function(
        "number => document.querySelectorAll('.board [data-piece]').length === number", arg=number
    )


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_click_hint_undo_save_and_reload(
    address: str, browser: Browser, tmp_path: Path, width: int, scheme: Any
) -> None:
    viewport = {"width": width, "height": 844}
    with opened(browser, address, viewport=viewport, color_scheme=scheme) as page:
        assert "player_0 against" in page.locator("h1").inner_text()
        page.locator('.cell[data-open="0,3"]').click()
        after(page, 2)
        assert page.locator('.board [data-piece="x"]').get_attribute("data-cell") == "5,3"
        page.get_by_role("button", name="Hint").click()
        page.locator(".moves .is-hint").wait_for()
        assert page.locator(".cell.is-hint").count() > 0
        page.get_by_role("button", name="What would it play?").click()
        page.get_by_text("It would play").wait_for()
        assert Axe().run(page).violations_count == 0
        # Moves can be made by keys and by buttons.
        page.locator("h1").click()
        page.keyboard.press("1")
        after(page, 4)
        page.get_by_role("button", name="7", exact=True).press("Enter")
        after(page, 6)
        assert page.evaluate("document.activeElement.textContent") == "7"
        page.get_by_role("button", name="Undo").click()
        after(page, 4)
        page.reload()
        page.locator(".moves button").first.wait_for()
        after(page, 4)
        with page.expect_download() as download:
            page.get_by_role("link", name="Save").click()
        path = tmp_path / "game.json"
        download.value.save_as(path)
        told = retold(path).document
        assert [step["decisions"][0]["action"] for step in told["steps"][:-1:2]] == [3, 0]
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_two_tabs_are_two_games_or_one(address: str, browser: Browser) -> None:
    context = browser.new_context()
    # The printed address begins another game.
    with opened(context, address) as first, opened(context, address) as other:
        assert other.url != first.url
        first.get_by_role("button", name="4", exact=True).click()
        after(first, 2)
        assert pieces(other) == 0
        # The game's own address opens the same game; an outdated tab is updated.
        with opened(context, first.url) as same:
            assert pieces(same) == 2
            first.get_by_role("button", name="4", exact=True).click()
            after(first, 4)
            same.get_by_role("button", name="1", exact=True).click()
            after(same, 4)
            assert "went on in another tab" in same.locator(".said").inner_text()
    context.close()


@pytest.mark.slow
def test_a_piece_of_chess_is_moved_by_two_clicks(browser: Browser) -> None:
    player = "bot:tests.tools.play.fool:Fool"
    arguments = ("play", "--web", player, "--env", "classic/chess-v6", "--seat", "2")
    with served_by(*arguments) as address, opened(browser, address) as page:
        page.locator('.cell[data-open="1,4"]').click()
        page.get_by_text("Where to?").wait_for()
        assert page.locator(".moves button").all_inner_texts() == ["e7e6", "e7e5"]
        # Another piece is chosen, then the first one again.
        page.locator('.cell[data-open="1,3"]').click()
        assert page.locator(".cell.is-chosen").get_attribute("data-open") == "1,3"
        page.locator('.cell[data-open="1,4"]').click()
        page.locator('.cell[data-open="3,4"]').click()
        page.get_by_text("player_0: g2g4. Your move.").wait_for()
        page.locator('.cell[data-open="0,3"]').click()
        page.locator('.cell[data-open="4,7"]').click()
        page.get_by_text("The game is over: you won, with 1").wait_for()
        assert page.locator(".moves").is_hidden()


@pytest.mark.slow
def test_numbers_are_typed_and_pixels_are_shown(browser: Browser, steering_run: Path) -> None:
    arguments = ("play", "--web", str(steering_run))
    with served_by(*arguments) as address, opened(browser, address) as page:
        typed = page.get_by_label("5 numbers")
        assert page.locator(".board img").count() == 1
        typed.fill("0 0 0 0 7")
        typed.press("Enter")
        page.get_by_text("an action is 5 numbers").wait_for()
        page.get_by_label("5 numbers").fill("0 1 0 0 0")
        page.get_by_label("5 numbers").press("Enter")
        page.get_by_text("agent_1: ").wait_for()
        assert Axe().run(page).violations_count == 0
