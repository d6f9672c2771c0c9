"""A run that trains, is killed and resumed, while somebody looks: in a browser, in a terminal."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from experiments.faults.killing import KilledRun, killed_run
from tests.tools.web.browsing import served, visited

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(600)]

SMALL = (
    *("connect_four", "learners=1", "environment.num_envs=64", "populations.player.size=2"),
    *("populations.player.network.hidden_sizes=[32]", "assignment.target_s=1.0"),
    *("evaluation.share=0.2", "metrics.sinks=[]", "stop.duration_s=900"),
)
"""Connect Four with a small network: agent steps rise each second."""

GROWS_MS = 120_000
"""Milliseconds within which a page that polls has something new, on a busy machine."""


@contextmanager
def training(directory: Path, *more: str) -> Iterator[KilledRun]:
    """A run that trains, and has finished an assignment or two."""
    with killed_run(directory) as run:
        run.start(*SMALL, *more)
        assert run.await_finished(2, timeout_s=120.0), run.log.read_text()
        yield run
        assert run.process is not None
        run.process.terminate()
        run.wait(timeout_s=60.0)
        run.verify()
        assert not run.faults


@pytest.fixture
def run(tmp_path: Path) -> Iterator[KilledRun]:
    with training(tmp_path) as run:
        yield run


def kill_all(run: KilledRun) -> None:
    """Kill the controller's process group at once."""
    assert run.process is not None
    os.killpg(run.process.pid, signal.SIGKILL)
    run.process.wait()
    run.await_nobody()


def agent_steps(page: Page) -> int:
    """Return the agent steps that the overview shows, by which rows would be sorted."""
    cell = page.locator("#progress tr", has_text="agent steps").first.locator("td").nth(1)
    return round(float(cell.get_attribute("data-value") or "nan"))


def await_more(page: Page, steps: int) -> int:
    """Wait until the overview shows more agent steps, without being asked."""
    page.wait_for_function(
        """steps => {
            const row = Array.from(document.querySelectorAll("#progress tr"))
                .find(row => row.cells[0].textContent === "agent steps");
            return row && Number(row.cells[1].dataset.value) > steps;
        }""",
        arg=steps,
        timeout=GROWS_MS,
    )
    return agent_steps(page)


def test_a_page_follows_a_run_through_sigkill_and_resume(browser: Browser, run: KilledRun) -> None:
    with served(run.run) as first, visited(browser, first) as page:
        page.locator("#being-computed").wait_for(state="detached")
        expect(page.locator("#state")).to_have_text("running")
        seen = await_more(page, agent_steps(page))
        kill_all(run)
        expect(page.locator("#state")).to_have_text("crashed", timeout=GROWS_MS)
        # The server still runs and shows all that was committed.
        page.reload()
        expect(page.locator("#state")).to_have_text("crashed")
        assert agent_steps(page) >= seen
        page.evaluate("window.marker = 1")
        run.resume()
        # The state changes without a reload of the page.
        expect(page.locator("#state")).to_have_text("running", timeout=GROWS_MS)
        await_more(page, seen)
        assert page.evaluate("window.marker") == 1
        assert re.match("updated ", page.locator("#freshness").inner_text())
