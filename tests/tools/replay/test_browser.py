"""A game in a browser: from a file, and from the server."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from arena.types import RANDOM_BOT
from populations.views.questions.inspection import Inspection
from tests.support import run_process
from tests.tools.conftest import CODE, player_run
from tests.tools.replay.conftest import record
from tests.tools.web.browsing import served, visited
from tests.tools.web.test_browser import obstacles
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
    with visited(
        browser, path.as_uri(), viewport={"width": width, "height": 900}, color_scheme=scheme
    ) as page:
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


@pytest.mark.slow
def test_a_game_comes_by_itself_and_is_gone_through(kept_run: Path, browser: Browser) -> None:
    with served(kept_run) as address, visited(browser, address) as page:
        page.get_by_role("link", name="Games").click()
        page.get_by_role("link", name="1.0", exact=True).click()
        # At first the page says that it is being computed.
        page.get_by_role("slider", name="Step").wait_for(timeout=120_000)
        page.keyboard.press("ArrowRight")
        assert page.locator('section[id^="step-"]:visible').get_attribute("id") == "step-1"


@pytest.mark.slow
def test_games_of_two_players_are_reached_by_keys_and_by_the_map(
    kept_run: Path, browser: Browser
) -> None:
    with served(kept_run) as address, visited(browser, address) as page:
        page.get_by_role("link", name="Payoff").click()
        page.locator(".chart .mark-text.layer_2_marks text").first.click()
        page.wait_for_url("**/games.html?player=*&opponent=*")
        by_map = page.url
        page.go_back()
        page.locator("td a[title^='games of ']").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/games.html?player=*&opponent=*")
        assert page.url == by_map
        assert page.locator("tbody tr").count() == 3
        page.get_by_role("button", name="steps").focus()
        page.keyboard.press("Enter")
        assert page.locator("th[aria-sort]").inner_text().startswith("steps")
        assert not obstacles(page)
        page.locator("td a[href^='game-']").first.focus()
        page.keyboard.press("Enter")
        page.get_by_role("slider", name="Step").wait_for(timeout=120_000)
        assert not obstacles(page)


LOST = """
from gymnasium.spaces import Discrete
from pettingzoo import ParallelEnv


class make(ParallelEnv):
    metadata = {"name": "own", "render_modes": ["ansi"]}
    possible_agents = AGENTS

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def observation_space(self, agent):
        return Discrete(4)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.step_number = list(AGENTS), 0
        return dict.fromkeys(AGENTS, 0), {agent: {} for agent in AGENTS}

    def step(self, actions):
        self.step_number += 1
        over = self.step_number == 3
        won = sum(actions.values()) % 2
        rewards = {agent: over * (1 - 2 * (won == place)) for place, agent in enumerate(AGENTS)}
        seen = dict.fromkeys(AGENTS, self.step_number)
        ends = dict.fromkeys(AGENTS, over)
        self.agents = [] if over else self.agents
        return seen, rewards, ends, dict.fromkeys(AGENTS, False), {agent: {} for agent in AGENTS}

    def render(self):
        return "after " + " and ".join(AGENTS)
"""
AGENTS = ["</script><img src=x onerror=alert(1)>", "<a href='javascript:alert(1)'>x</a>"]


@pytest.fixture
def own_run(tmp_path: Path) -> Path:
    """A run in an environment of a module, whose agents have hostile names."""
    (tmp_path / "lostgame.py").write_text(LOST.replace("AGENTS", repr(AGENTS)))
    built = player_run(tmp_path / "own", "lostgame:make", code=tmp_path)
    latest = built.checkpoint("player/p000", agent_steps=60, seed=1)
    built.policy("player/p000", index=0, latest=latest)
    built.met(latest.weights_digest, RANDOM_BOT)
    built.rate("player", {latest.weights_digest: 20.0})
    run = built.write()
    record(run, [("player/p000", "bot:random")], each=2)
    return run


@pytest.mark.slow
def test_a_game_of_agents_with_hostile_names_is_shown(
    own_run: Path, tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "game.html"
    files.write_file(retold(own_run), path)
    with visited(browser, path.as_uri()) as page:
        assert page.locator("#step-0 td:first-child").all_inner_texts() == AGENTS
        assert not Axe().run(page).violations_count


@pytest.mark.slow
def test_where_an_environment_is_not_installed_it_is_named(
    own_run: Path, tmp_path: Path, browser: Browser
) -> None:
    (tmp_path / "lostgame.py").unlink()
    what = "lostgame:make: there is no module 'lostgame' in "
    command = [sys.executable, "-m", "tools.main", "replay", str(own_run)]
    done = run_process(command, cwd=CODE)
    assert done.returncode == 2
    assert done.stderr.startswith(f"arena: {what}{tmp_path}")
    assert done.stderr.count("\n") == 1
    with served(own_run) as address, visited(browser, address) as page:
        page.get_by_role("link", name="Games").click()
        page.locator("tbody tr").nth(1).wait_for(timeout=120_000)
        assert page.locator("tbody tr").count() == 2
        page.get_by_role("link", name="1.0", exact=True).click()
        page.get_by_text(what).wait_for(timeout=120_000)
        assert not obstacles(page)


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
    with visited(browser, (target / "index.html").as_uri()) as shown:
        shown.get_by_role("link", name="Games").click()
        assert "arena replay RUN --id ID" in shown.locator("main").inner_text()
        # Until its script has run, the page shows all steps.
        with shown.expect_navigation():
            shown.get_by_role("link", name="4.2", exact=True).press("Enter")
        shown.keyboard.press("End")
        assert shown.locator('section[id^="step-"]:visible svg').count() == 1


@pytest.mark.slow
def test_an_export_tells_no_game_after_its_time(
    kept_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "GAMES_S", 0.0)
    check_addresses(kept_run, tmp_path)
    assert not list(tmp_path.glob("kept/game-*"))
