"""A game in a browser: from a file, and from the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.tools.web.browsing import mistakes_of, served
from tools.replay import files
from tools.replay.retelling import retold

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_is_gone_through_by_keys_and_by_buttons(
    kept_run: Path, tmp_path: Path, browser: Browser, width: int, scheme: Any
) -> None:
    path = tmp_path / "game.html"
    told = retold(kept_run, game="1.0")
    files.write_file(told, path)
    last = len(told.document["steps"]) - 1
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    wrong = mistakes_of(page, "")
    page.goto(path.as_uri())
    shown = page.locator('section[id^="step-"]:visible')

    def step() -> str:
        assert shown.count() == 1
        return str(shown.get_attribute("id"))

    assert step() == "step-0"
    page.keyboard.press("ArrowRight")
    assert step() == "step-1"
    page.keyboard.press("End")
    assert step() == f"step-{last}"
    page.keyboard.press("ArrowRight")
    assert step() == f"step-{last}"
    page.keyboard.press("Home")
    page.get_by_role("button", name="Step on").click()
    page.get_by_role("button", name="Step on").click()
    assert step() == "step-2"
    page.get_by_role("slider", name="Step").fill("5")
    assert step() == "step-5"
    assert page.evaluate("location.hash") == "#step-5"
    page.reload()
    assert step() == "step-5"
    page.get_by_label("Speed").select_option("fast")
    page.get_by_role("button", name="Play").click()
    page.wait_for_selector(f"#step-{last}:visible")
    page.get_by_role("button", name="Play").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert Axe().run(page).violations_count == 0
    assert wrong == []
    page.close()


@pytest.mark.slow
def test_a_game_comes_by_itself_and_is_gone_through(kept_run: Path, browser: Browser) -> None:
    with served(kept_run) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        wrong = mistakes_of(page, urlsplit(address).netloc)
        page.goto(address)
        page.get_by_role("link", name="Games").click()
        page.get_by_role("link", name="1.0", exact=True).click()
        # First it says that it is being computed.
        page.get_by_role("slider", name="Step").wait_for(timeout=120_000)
        page.keyboard.press("ArrowRight")
        assert page.locator('section[id^="step-"]:visible').get_attribute("id") == "step-1"
        assert not wrong
        page.close()
