"""The life of a run that names code: launched, moved, edited, copied to another home."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import run_process

GAME = """
from pettingzoo.classic.rps_v2 import parallel_env


def env(**kwargs):
    with open({mark!r}, "a") as mark:
        mark.write("made ")
    return parallel_env(max_cycles=5)
"""

CONFIG = """
environment: {id: "game_of_a_life:env", num_envs: 8}
populations: {player: {size: 1, network: {hidden_sizes: [8]}, hyperparameters: {rollout_length: 8}}}
launcher: inline
metrics: {sinks: []}
stop: {agent_steps_per_policy: 64}
deterministic: true
"""


class Machine:
    """A user's home, and a directory to stand in."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "project"
        self.place.mkdir(parents=True)
        self._home = directory / "home"

    def arena(self, *arguments: object, code: int = 0) -> str:
        ended = run_process(
            [Path(sys.executable).with_name("arena"), *map(str, arguments)],
            cwd=self.place,
            env={**os.environ, "XDG_STATE_HOME": str(self._home)},
        )
        assert ended.returncode == code, ended.stderr
        return ended.stderr if code else ended.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_life_of_a_run_that_names_code(tmp_path: Path) -> None:
    mine, theirs, fresh = (Machine(tmp_path / name) for name in ("mine", "theirs", "fresh"))
    mark = tmp_path / "mark"
    game = GAME.format(mark=str(mark))
    for machine in (mine, fresh):
        (machine.place / "game_of_a_life.py").write_text(game)
        (machine.place / "life.yaml").write_text(CONFIG)
    # The code is not in the current directory.
    code = mine.place / "code"
    code.mkdir()
    (mine.place / "game_of_a_life.py").rename(code / "game_of_a_life.py")
    said = mine.arena("launch", "life.yaml", "--run-dir", "run", code=2)
    assert f"no module 'game_of_a_life' in {mine.place}" in said
    mine.arena("launch", "life.yaml", "--run-dir", "run", "--code", "code")
    play = ("bot:random", "--matches", 1, "--json")
    # The run was launched here, so it needs no option wherever the directory has moved.
    mine.arena("evaluate", "run:player/p000", *play)
    (mine.place / "run").rename(mine.place / "moved")
    mine.arena("evaluate", "moved:player/p000", *play)
    # The code moves, too: a resume with its new place is recorded.
    code.rename(mine.place / "src")
    mine.arena("evaluate", "moved:player/p000", *play, code=2)
    mine.arena("evaluate", "moved:player/p000", *play, "--code", "src")
    more = "stop.agent_steps_per_policy=128"
    mine.arena("launch", "--resume", "--run-dir", "moved", "--code", "src", more)
    mine.arena("evaluate", "moved:player/p000", *play)
    # In another home directory the run needs --trust, although the code is beside it.
    for machine in (theirs, fresh):
        shutil.copytree(mine.place / "moved", machine.place / "copy")
    shutil.copy(mine.place / "src" / "game_of_a_life.py", theirs.place)
    shutil.rmtree(mine.place)
    mark.unlink()
    resume = ("launch", "--resume", "--run-dir", "copy")
    further = "stop.agent_steps_per_policy=192"
    for arguments in (
        ("evaluate", "copy:player/p000", *play),
        ("export", "copy", "--player", "p000", "--matches", 1),
        ("pin", "copy:player/p000"),
        (*resume, further),
    ):
        said = theirs.arena(*arguments, code=2)
        assert "copy/run.yaml names code: game_of_a_life:env" in said
        assert "--trust" in said
    assert not mark.exists()
    theirs.arena("evaluate", "copy:player/p000", *play, "--trust")
    theirs.arena("evaluate", "copy:player/p000", *play, code=2)
    theirs.arena(*resume, further, "--trust")
    # A resume counts as a launch on this machine.
    document = json.loads(theirs.arena("evaluate", "copy:player/p000", *play))
    assert document["environment"] == "game_of_a_life:env"
    # An unattended restart in a fresh home names its CONFIG, which grants trust for that file
    # alone.
    fresh.arena(*resume, "life.yaml", further)
    fresh.arena(*resume, "stop.agent_steps_per_policy=256")
    path = fresh.place / "copy" / "run.yaml"
    path.write_text(path.read_text().replace("on_end: []", "on_end: [[touch, ran]]"))
    said = fresh.arena(*resume, "life.yaml", "stop.agent_steps_per_policy=320", code=2)
    assert "touch ran (hooks.on_end)" in said
    assert not list(tmp_path.rglob("ran"))
