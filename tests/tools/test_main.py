from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.errors import (
    CheckpointCorrupt,
    ConfigError,
    EnvironmentUnavailable,
    ExportError,
)
from populations.errors import JournalCorrupt, ResumeRefused, RunFailed, RunInUse, StorageError
from tests.support import exit_code, run_process
from tools.launch.serving import ARENA as CHILD

ARENA = Path(sys.executable).with_name("arena")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("seed: must be a count, got 'x'"), 2),
        (EnvironmentUnavailable("pip install mpe2"), 2),
        (ResumeRefused("seed is 1 in this run"), 2),
        (RunFailed("no active policy is left"), 3),
        (ExportError("differs"), 3),
        (RunInUse("runs/a", 7), 4),
        (StorageError("the disk is full"), 5),
        (JournalCorrupt("not a journal"), 5),
        (CheckpointCorrupt("weights differ"), 5),
    ],
)
def test_an_error_is_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
) -> None:
    def command(**_: object) -> None:
        raise error

    monkeypatch.setattr("populations.commands.main.app", command)
    assert exit_code() == code
    captured = capsys.readouterr()
    assert captured.err == f"arena: {error}\n"
    assert captured.out == ""


def test_what_nobody_expected_has_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def command(**_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("populations.commands.main.app", command)
    assert exit_code() == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["launch", "conect_four"], "arena: there is no preset 'conect_four'; did you mean"),
        (
            ["launch", "nim:env"],
            "arena: there is no preset 'nim:env'; `arena envs check nim:env --write FILE.yaml`",
        ),
        (
            ["launch", "nim.py"],
            "arena: there is no preset 'nim.py'; `arena envs check nim:NAME --write FILE.yaml`",
        ),
        (
            ["launch", "classic/chess-v6"],
            "arena: cannot read classic/chess-v6: No such file or directory; `arena envs check "
            "classic/chess-v6",
        ),
        (
            ["launch", "connect_four", "sede=1"],
            "arena: unknown key sede (= 1); did you mean 'seed'",
        ),
        (["launch", "connect_four", "seed=x"], "arena: seed: must be a whole number, got 'x'"),
        (["launch", "missing.yaml"], "arena: cannot read missing.yaml: No such file"),
    ],
)
def test_a_mistake_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(line)
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_project_may_have_an_arena_of_its_own(tmp_path: Path) -> None:
    root, site, project = Path(__file__).parents[2], tmp_path / "site", tmp_path / "project"
    # As a wheel installs it.
    packages = {"arena": "arena", "populations/commands": "tools", "populations/presets": "configs"}
    packages |= {f"populations/{one.name}": f"populations/{one.name}" for one in
                 (root / "populations").iterdir()}  # fmt: skip
    for name, source in packages.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).symlink_to(root / source)
    project.mkdir()
    (project / "arena.py").write_text("raise SystemExit('this is not Arena')\n")
    environ = os.environ | {"PYTHONPATH": str(site)}
    # So it starts exports of a run, and runs of the Python API.
    said = subprocess.run([*CHILD, "presets"], cwd=project, env=environ, capture_output=True)
    assert (said.returncode, said.stderr) == (0, b"")
    for half in ("arena", "populations", "tools"):
        for path in (root / half).rglob("*.py"):
            assert 'sys.executable, "-m"' not in path.read_text()


def test_unknown_commands_are_bad_usage() -> None:
    for arguments in (["lounch"], ["launch", "--no-such-option"], []):
        assert exit_code(*arguments) == 2


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"'{ARENA}' --version | true"
    done = run_process(["bash", "-c", script], timeout_s=60)
    assert done.stderr == ""


def test_a_json_document_is_finite_and_has_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    output = importlib.import_module("populations.commands.terminal.output")
    output.print_json({"a": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "a": [1, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.print_json({"a": float("nan")})
    assert capsys.readouterr().out == ""
