"""A game in a browser: from a file, and from the server."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from populations.inspection.views import Inspection
from tests.tools.web.browsing import mistakes_of, served
from tests.tools.web.test_export import check_addresses
from tools.replay import files
from tools.replay.retelling import find_game, retold
from tools.web import export

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


@pytest.mark.slow
def test_an_export_has_the_champions_worst_games_and_the_newest(
    kept_run: Path, tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MAX_GAMES", 4)
    target = tmp_path / "page"
    check_addresses(kept_run, target)
    with closing(Inspection.open(kept_run)) as inspection:
        worst = [find_game(inspection, player="p000", worst=n).game for n in (1, 2)]
    assert {path.name for path in target.glob("kept/game-*")} == {
        *(f"game-{one.replace('.', '-')}.html" for one in worst),
        "game-4-2.html",
        "game-4-1.html",
    }
    for name, number in (("games.html", 4), ("player-p000.html", 2)):
        assert len(re.findall('href="game-', (target / "kept" / name).read_text())) >= number
    shown = browser.new_page()
    wrong = mistakes_of(shown, "")
    shown.goto((target / "index.html").as_uri())
    shown.get_by_role("link", name="Games").click()
    assert "arena replay RUN --id ID" in shown.locator("main").inner_text()
    shown.get_by_role("link", name="4.2", exact=True).press("Enter")
    shown.keyboard.press("End")
    assert shown.locator('section[id^="step-"]:visible svg').count() == 1
    assert wrong == []
    shown.close()


@pytest.mark.slow
def test_an_export_tells_no_game_after_its_time(
    kept_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "GAMES_S", 0.0)
    check_addresses(kept_run, tmp_path)
    assert not list(tmp_path.glob("kept/game-*"))
