from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from arena.config import LearnerSetup
from tests.support import exit_code

# Installed, the folder tools/ has this name.
main = importlib.import_module("populations.commands.main").main
RUN = Path(__file__).parents[1] / "assets" / "golden_runs" / "0.1.0" / "run.yaml"


def learner(*options: object) -> int:
    return exit_code("learner", RUN, "--connect", "tcp://127.0.0.1:1", *options)


@pytest.mark.parametrize("name", ["nowhere", "file.py"])
def test_code_must_be_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "file.py").touch()
    assert learner("--code", tmp_path / name) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--code must be a directory, got" in said
    assert name in said.replace(" ", "")


def test_code_takes_the_place_of_the_launch_directory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setups: list[LearnerSetup] = []

    def serve(setup: LearnerSetup, **_: Any) -> int:
        setups.append(setup)
        return 0

    monkeypatch.setattr("arena.learners.process.serve", serve)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    assert learner() == 0
    assert learner("--code", "code") == 0
    plain, with_code = setups
    assert with_code.launch_directory == str((tmp_path / "code").resolve())
    assert with_code == plain.model_copy(update={"launch_directory": with_code.launch_directory})
    assert with_code.digest == plain.digest
