"""A person plays a policy of a run that goes on: it stays as it was when the game began."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arena.types import PolicyId
from experiments.faults.killing import KilledRun
from populations.views.questions.inspection import Inspection
from tests.tools.play.test_browser import opened
from tests.tools.web.browsing import served_by
from tests.tools.web.test_live import training
from tools.play.answers import answer
from tools.play.game import PersonsGame
from tools.play.table import sit_down

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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


def test_a_players_weights_are_those_of_the_start_beside_a_run_that_trains(
    run: KilledRun, browser: Browser
) -> None:
    player = f"{run.run}:player/p000"
    with served_by("play", "--web", player) as address, opened(browser, address) as page:

        def told(button: str, text: str) -> str:
            page.get_by_role("button", name=button, exact=True).click()
            page.locator("main[aria-busy]").wait_for(state="detached")
            return page.get_by_text(text).inner_text()

        first, (num_ghosts, _) = told("What would it play?", "It would"), newest(run.run)
        deadline_s = time.monotonic() + GROWS_S
        while True:
            assert time.monotonic() < deadline_s, run.log.read_text()
            with closing(PersonsGame(sit_down(player), seed=5)) as other:
                learned = answer(other, {"do": "think"})["answer"]
            if learned not in first.lower() and newest(run.run)[0] > num_ghosts:
                break
        # After an undo the same weights play as at the beginning of the game.
        answered = told("4", "Your move.")
        told("Undo", "Your move.")
        assert told("What would it play?", "It would") == first
        assert told("4", "Your move.") == answered
        over = page.get_by_text("The game is over")
        while not over.is_visible():
            page.locator(".moves button:enabled").last.click()
            page.locator("main[aria-busy]").wait_for(state="detached")
        with page.expect_download() as download:
            page.get_by_role("link", name="Save").click()
        _, weights = json.loads(download.value.path().read_text())["row"]["entrants"]
    assert weights != newest(run.run)[1]
    assert run.process is not None
    assert run.process.poll() is None
