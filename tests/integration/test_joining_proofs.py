"""Who may join a run, by what a learner proves: real processes against a real controller."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from arena.wire.keys import key_path
from populations.config.run_file import RUN_FILE, RunFile
from tests.faults.runs import ASSETS, check_left, document, finished, launch
from tests.integration.conftest import ARENA
from tests.support import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("processes")]

TIMEOUT_S = 110.0
TCP: dict[str, object] = {"endpoint": "tcp://127.0.0.1:*", "remote_learners": 1}
NETWORK = {"hidden_sizes": [64]}
"""Wide enough that kinds of CPUs sum products in another order."""

JsonCommand = Callable[..., dict[str, Any]]


def deterministic(**sections: object) -> dict[str, object]:
    config = document(deterministic=True, seed=3, **sections)
    populations: Any = config["populations"]
    populations["player"]["network"] = NETWORK
    return config


def other_process(python: str = "") -> tuple[str, ...]:
    """The command `arena`, with some Python before it."""
    if not python:
        return ARENA
    run = "from populations.commands.main import main; import sys; main(sys.argv[1:])"
    return (sys.executable, "-c", f"{python}; {run}")


@dataclass
class Joined:
    """A deterministic run at work that others can join."""

    run: Path
    endpoint: str

    def guest(
        self,
        *options: str | Path,
        run: Path | None = None,
        key: Path | None = None,
        environment: Mapping[str, str] | None = None,
        python: str = "",
    ) -> subprocess.Popen[str]:
        """Start `arena learner`; in all that is not named as the run wants it."""
        arguments: Sequence[str | Path] = (
            *("learner", run or self.run / RUN_FILE, "--connect", self.endpoint),
            *("--keys", key or key_path(self.run / "keys", "remote-0"), *options),
        )
        return subprocess.Popen(
            [*other_process(python), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        )


@contextlib.contextmanager
def at_work(run: Path, config: Mapping[str, object]) -> Iterator[subprocess.Popen[str]]:
    process = launch(run, config)
    try:
        wait_until(lambda: finished(run) >= 1, timeout_s=TIMEOUT_S)
        yield process
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 143, said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """The run that all guests of this module knock at; it must not come to harm."""
    run = tmp_path_factory.mktemp("joined") / "run"
    with at_work(run, deterministic(**TCP)):
        yield Joined(run, json.loads((run / "status.json").read_text())["endpoint"])
        before = finished(run)
        wait_until(lambda: finished(run) > before, timeout_s=TIMEOUT_S)
    check_left(run)


def ends(guest: subprocess.Popen[str], *, code: int) -> str:
    try:
        _, said = guest.communicate(timeout=TIMEOUT_S)
    finally:
        if guest.poll() is None:
            guest.kill()
            guest.communicate()
    assert guest.returncode == code, said
    assert "Traceback" not in said
    return " ".join(said.split())


def learners_of(arena_json: JsonCommand, run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = arena_json("league", run, "learners")["learners"]
    return found


def test_a_learner_with_the_same_results_is_of_the_group_and_joins(
    joined: Joined, arena_json: JsonCommand
) -> None:
    guest = joined.guest("--code", ASSETS)

    def is_there() -> bool:
        return any(
            one["learner"].startswith("remote-0.") for one in learners_of(arena_json, joined.run)
        )

    try:
        wait_until(is_there, timeout_s=TIMEOUT_S)
    finally:
        guest.send_signal(signal.SIGTERM)
        said = ends(guest, code=143)
    assert " INFO arena.learners.loop: learner remote-0." in said
    assert {one["group"] for one in learners_of(arena_json, joined.run)} == {1}
    events = arena_json("league", joined.run, "events", "--kind", "learner_joined")["events"]
    assert len({event["proof"] for event in events}) == 1
    assert all(event["versions"] == {} for event in events)


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="there is no other kind of CPU"
)
def test_a_learner_of_another_kind_of_cpu_is_refused(joined: Joined) -> None:
    """It computes as a CPU without vector instructions does."""
    guest = joined.guest(environment={"ATEN_CPU_CAPABILITY": "default"})
    said = ends(guest, code=2)
    assert "results differ: the proof of the run's learners has digest" in said
    assert "usually the CPU type or the version of torch differs" in said


def changed_code(directory: Path) -> Path:
    """The game of the run, with an action more."""
    code = (ASSETS / "faulty.py").read_text()
    assert "NUM_ACTIONS = 2" in code
    (directory / "faulty.py").write_text(code.replace("NUM_ACTIONS = 2", "NUM_ACTIONS = 3"))
    return directory


def other_package(directory: Path) -> dict[str, str]:
    """An environment in which pip would say that an old pettingzoo is installed."""
    facts = directory / "pettingzoo-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: pettingzoo\nVersion: 1.0\n")
    return {"PYTHONPATH": str(directory)}


def test_another_environment_and_other_versions_are_refused_with_the_command_that_installs_them(
    joined: Joined, tmp_path: Path
) -> None:
    guest = joined.guest("--code", changed_code(tmp_path), environment=other_package(tmp_path))
    said = ends(guest, code=2)
    recorded = RunFile.load(joined.run / RUN_FILE).versions["pettingzoo"]
    assert "environment differs: the run's has digest" in said
    assert (
        f"pettingzoo {recorded} (the learner has 1.0): pip install pettingzoo=={recorded}" in said
    )


def test_code_that_is_missing_is_told_before_anything_is_sent(
    joined: Joined, tmp_path: Path
) -> None:
    said = ends(joined.guest("--code", tmp_path), code=2)
    assert f"faulty:Rounds: there is no module 'faulty' in {tmp_path}" in said
    assert "--code DIR" in said


def weights_of(run: Path) -> list[str]:
    return sorted(
        f"{path.parent.name.partition('-')[0]} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in (run / "populations").rglob("weights.safetensors")
    )


def test_a_run_that_others_can_join_has_the_weights_of_one_that_they_cannot(
    arena_json: JsonCommand, tmp_path: Path
) -> None:
    limit = {"agent_steps_per_policy": 2000}
    for name, sections in (("alone", {}), ("open", TCP)):
        run = tmp_path / name
        process = launch(run, deterministic(stop=limit, **sections))
        _, said = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, said
    alone, open_ = tmp_path / "alone", tmp_path / "open"
    assert weights_of(alone)
    assert weights_of(alone) == weights_of(open_)
    groups = [learners_of(arena_json, run)[0]["group"] for run in (alone, open_)]
    assert groups == [None, 1]
