"""A person plays a policy of a run that goes on: it stays as it was when the game began."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arena.types import PolicyId
from experiments.faults.killing import KilledRun
from populations.views.questions.inspection import Inspection
from tests.tools.league.test_watch import TIMEOUT_S
from tests.tools.play.test_terminal import Table, last_move, seated, to_its_end
from tests.tools.web.browsing import mistakes_of, served_by
from tests.tools.web.test_live import training
from tools.play.answers import answer
from tools.play.game import PersonsGame
from tools.play.table import sit_down

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["seated"]
pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(600)]
GROWS_S = 240.0
"""Seconds within which a policy learns something, on a busy machine."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KilledRun]:
    directory = tmp_path_factory.mktemp("trains")
    with training(directory, "ghosts.every_agent_steps=5000") as run:
        yield run


def newest(run: Path) -> tuple[int, str]:
    """The number of ghosts of p000, and the digest of its newest weights."""
    with closing(Inspection.open(run)) as inspection:
        tables = inspection.tables
    number = sum(row.policy == "player/p000" for row in tables.ghosts.values())
    (latest,) = (
        row
        for row in tables.checkpoints.values()
        if row.key == tables.policies[PolicyId("player/p000")].checkpoint
    )
    return number, str(latest.weights.digest)


def advice(table: Table) -> str:
    table.type("?")
    found = re.search(r"it would play .*", " ".join(table.until("> ").split()))
    assert found is not None
    return found[0].removesuffix(" >")


def test_a_players_weights_are_those_of_the_start(
    run: KilledRun, seated: list[Table], tmp_path: Path
) -> None:
    player = f"{run.run}:player/p000"
    table = Table(player, "--seed", "5")
    seated.append(table)
    table.until("> ")
    first, (num_ghosts, _) = advice(table), newest(run.run)
    deadline_s = time.monotonic() + GROWS_S
    while True:
        assert time.monotonic() < deadline_s, run.log.read_text()
        with closing(PersonsGame(sit_down(player), seed=5)) as other:
            learned = answer(other, {"do": "think"})["answer"]
        if learned != first and newest(run.run)[0] > num_ghosts:
            break
    # What is taken back is played again, by the weights that the game began with.
    table.type("4")
    told = table.until("> ")
    table.type("undo")
    table.until("> ")
    assert advice(table) == first
    table.type("4")
    again = table.until("> ")
    assert re.findall(r"player_1: \d", told) == re.findall(r"player_1: \d", again)
    table.type(last_move(again))
    to_its_end(table)
    table.type(f"save {tmp_path / 'game.json'}")
    table.until("> ")
    table.type("quit")
    assert table.process.wait(timeout=TIMEOUT_S) == 0
    _, weights = json.loads((tmp_path / "game.json").read_text())["row"]["entrants"]
    assert weights != newest(run.run)[1]
    assert run.process is not None
    assert run.process.poll() is None


def test_a_game_on_a_page_beside_a_run_that_trains(run: KilledRun, browser: Browser) -> None:
    before = newest(run.run)
    with served_by("play", "--web", f"{run.run}:player/p001") as address:
        page = browser.new_page()
        wrong = mistakes_of(page, address.split("/")[2])
        page.goto(address)
        buttons = page.locator(".moves button")
        buttons.first.wait_for(timeout=120_000)
        over = page.get_by_text("The game is over")
        number = 0
        while not over.is_visible():
            buttons.last.click()
            number += 1
            page.wait_for_function(
                "number => document.querySelectorAll('.board [data-piece]').length >= number"
                " || document.body.textContent.includes('game is over')",
                arg=2 * number,
            )
        assert number >= 4
        assert not wrong
        page.close()
    assert run.process is not None
    assert run.process.poll() is None
    assert newest(run.run) != before
