"""A run that goes on in another world than it was made in: refused or said, before it writes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from experiments.faults.killing import counters
from populations.records.rows import EventRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from tests.integration.conftest import ARENA
from tests.support import digests_of, run_process
from tests.test_imports import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("processes")]

GAME = (ROOT / "examples" / "own_game" / "nim.py").read_text()
RULES = """
class First:
    def act(self, observation, action_mask, *, agent, rng):
        return action_mask.argmax(axis=1)
"""
CONFIG = """
environment: {id: "game:Nim", num_envs: 16}
populations: {player: {size: 2, network: {hidden_sizes: [8]}, hyperparameters: {rollout_length: 8}}}
assignment: {agent_steps: 512}
evaluation: {bots: ["bot:random", "bot:rules:First"]}
metrics: {sinks: [jsonl]}
launcher: inline
stop: {agent_steps: 1000}
"""


def launch(code: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `arena launch` where the code is, as its author does."""
    return run_process(
        [*ARENA, "launch", "--run-dir", "run", *arguments],
        cwd=code,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout_s=110.0,
    )


def write_code(code: Path) -> None:
    (code / "game.py").write_text(GAME)
    (code / "rules.py").write_text(RULES)


def events(code: Path, kind: str) -> list[EventRow]:
    with JournalReader(code / "run" / JOURNAL) as reader:
        return reader.events(kinds=[kind])


def further(code: Path) -> int:
    """The agent steps of a goal that the run has not reached, whichever tests ran before."""
    row = counters(code / "run")
    assert row is not None
    return row.agent_steps + 500


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of an author's, with a finished run of two modules."""
    code = tmp_path_factory.mktemp("author")
    write_code(code)
    (code / "config.yaml").write_text(CONFIG)
    done = launch(code, "config.yaml")
    assert done.returncode == 0, done.stderr
    return code


def edited(old: str, new: str) -> str:
    assert old in GAME
    return GAME.replace(old, new)


REFUSALS = {
    "a wider observation": (
        "game.py",
        edited("num_sticks: int = 12", "num_sticks: int = 13"),
        r"the environment game:Nim is not the one .*observation\.shape was \[13\] and is \[14\]",
    ),
    "more actions": (
        "game.py",
        edited("MOST = 3", "MOST = 4"),
        r"action\.n was 3 and is 4 \(of player_0, player_1\)",
    ),
    "another agent": (
        "game.py",
        edited('AGENTS = ("player_0", "player_1")', 'AGENTS = ("player_0", "player_2")'),
        r"agents was \['player_0', 'player_1'\] and is \['player_0', 'player_2'\]",
    ),
    "no mask": (
        "game.py",
        edited("Dict(seen)", "heap").replace(
            'return {"observation": heap, "action_mask": mask}', "return heap"
        ),
        r"mask was 'observation' and is None",
    ),
    "it cannot be made": (
        "game.py",
        edited("super().__init__()", 'raise RuntimeError("no licence")'),
        r"cannot go on as it is: .*RuntimeError: no licence",
    ),
    "another name": ("game.py", edited("class Nim", "class Nimm"), r"game has no 'Nim'"),
    "no module": ("game.py", None, r"there is no module 'game'"),
    "a bot's module is gone": ("rules.py", None, r"evaluation\.bots\[1\]: .*no module 'rules'"),
    "a bot is gone": ("rules.py", "", r"evaluation\.bots\[1\]: .*rules has no 'First'"),
    "a bot's module breaks": ("rules.py", "1 / 0", r"importing rules raised ZeroDivisionError"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_another_environment_is_refused_by_name_and_nothing_is_written(
    code: Path, case: str
) -> None:
    module, text, told = REFUSALS[case]
    before = digests_of(code / "run")
    try:
        (code / module).unlink()
        if text is not None:
            (code / module).write_text(text)
        done = launch(code, "--resume", "stop.agent_steps=9000", "ghosts.keep=64")
    finally:
        write_code(code)
    assert done.returncode == 2, done.stderr
    assert re.search(told, done.stderr), done.stderr
    assert digests_of(code / "run") == before


@pytest.mark.parametrize("key", ["hooks={on_end: [gone:hook]}", "metrics.sinks=[gone:Sink]"])
def test_a_change_to_code_that_is_gone_is_refused_before_anything_is_written(
    code: Path, key: str
) -> None:
    before = digests_of(code / "run")
    done = launch(code, "--resume", key)
    assert done.returncode == 2, done.stderr
    assert "no module 'gone'" in done.stderr
    assert digests_of(code / "run") == before


def test_with_the_change_undone_it_goes_on_and_nothing_is_said(code: Path) -> None:
    before = events(code, "code_differs")
    goal = further(code)
    done = launch(code, "--resume", f"stop.agent_steps={goal}")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert events(code, "code_differs") == before
    row = counters(code / "run")
    assert row is not None
    assert row.agent_steps >= goal


def test_other_code_of_the_same_interface_is_said_and_an_event_at_the_start(code: Path) -> None:
    goal = further(code)
    (code / "rules.py").write_text(RULES.replace("return", "return 0 *"))
    try:
        done = launch(code, "--resume", f"stop.agent_steps={goal}")
    finally:
        write_code(code)
    assert done.returncode == 0, done.stderr
    assert "warning: the code of rules is other than when the run was made" in done.stderr
    (event,) = events(code, "code_differs")
    assert event.data.keys() == {"rules"}
    # The event comes before any decision of this epoch.
    assert event.sequence < events(code, "controller_started")[-1].sequence
