"""Configurations that cannot be: F40. One line that says where, and nothing is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import exit_code

GOOD = "environment: {id: classic/rps-v2}\n"
LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"
KNOWN = """\
environment: {id: classic/rps-v2}
populations:
  player:
"""


@pytest.mark.parametrize(
    ("document", "said"),
    [
        # What is no YAML, or more of it than a configuration needs.
        (GOOD + "seed: [1", ("config.yaml, line 2",)),
        (GOOD + "seed: 'x", ("config.yaml, line 2",)),
        (GOOD + "pbt:\n\tfraction: 0.2\n", ("config.yaml, line 3",)),
        (GOOD + "seed: 1\nseed: 2\n", ("config.yaml, line 3", "'seed' is there twice")),
        (GOOD + LAUGHS, ("config.yaml, line 2", "anchors and aliases are not allowed")),
        (GOOD + "seed: !!python/object/apply:os.getpid []\n", ("line 2", "tag")),
        (GOOD + "1: 2\n", ("config.yaml, line 2", "a key must be text")),
        (GOOD + f"seed: {'[' * 30}{']' * 30}\n", ("line 2", "nested deeper than 20")),
        (GOOD + "#" * 1_000_000, ("config.yaml", "at most 1000000 bytes")),
        (b"\xff\xfe\x00seed", ("config.yaml",)),
        (GOOD + 'device: "\\ud83d"\n', ("config.yaml, line 2", "half of a character")),
        (b"PK\x03\x04\x00\x00\x00\x00", ("config.yaml",)),
        ("", ("mapping", "None")),
        ("- 1\n- 2\n", ("mapping",)),
        # Keys that there are not.
        (GOOD + "populatons: {}\n", ("populatons", "did you mean 'populations'")),
        (KNOWN + "    sise: 4\n", ("populations.player.sise", "populations.player.size")),
        (GOOD + "pbt: {exploits: none}\n", ("pbt.exploits", "pbt.exploit")),
        (
            KNOWN + "    hyperparameters: {learning_rat: 1e-3}\n",
            ("hyperparameters", "learning_rat", "did you mean 'learning_rate'"),
        ),
        # Values that break a rule.
        (GOOD + "seed: soon\n", ("seed:", "whole number", "'soon'")),
        (GOOD + "seed: 99999999999999999999999\n", ("seed:",)),
        (GOOD + "seed: .nan\n", ("seed:",)),
        (GOOD + "stop: {duration_s: -1}\n", ("stop.duration_s:", "-1")),
        (GOOD + "device: tpu\n", ("device must be", "tpu")),
        (GOOD + "launcher: locla\n", ("launcher:", "local")),
        (KNOWN + "    size: 0\n", ("populations.player.size:", "0")),
        ("environment: null\n", ("environment",)),
        ("environment: {id: classic/rpx-v2}\n", ("classic/rps-v2",)),
        ("environment: {id: 'no_such_module:env'}\n", ("no_such_module",)),
        (GOOD + 'device: "\\e[2Jcpu"\n', ("device must be", "\\x1b[2J")),
    ],
)  # fmt: skip
def test_a_corrupt_configuration_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    document: str | bytes,
    said: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    data = document.encode() if isinstance(document, str) else document
    (tmp_path / "config.yaml").write_bytes(data)
    ended = exit_code("launch", "config.yaml", "--run-dir", "run")
    error = capsys.readouterr().err
    assert ended == 2, error
    assert error.startswith("arena: ")
    assert error.count("\n") == 1
    assert error[:-1].isprintable()
    for part in said:
        assert part in error
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sede=1", "did you mean 'seed'"),
        ("populations.player.sise=3", "populations.player.size"),
        ("seed", "KEY=VALUE"),
        ("seed=[1", "seed"),
        ("seed=*x", "seed"),
        ("environment.num_envs=many", "environment.num_envs must be auto or a number"),
    ],
)
def test_so_is_an_override(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    override: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = exit_code("launch", "rock_paper_scissors", override, "--run-dir", "run")
    error = capsys.readouterr().err
    assert ended == 2, error
    assert said in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_an_environment_whose_import_fails_ends_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_import.py").write_text("import no_package_of_this_name\n")
    (tmp_path / "config.yaml").write_text("environment: {id: 'broken_import:env'}\n")
    ended = exit_code("launch", "config.yaml", "--run-dir", "run")
    error = capsys.readouterr().err
    assert ended == 2, error
    assert "no_package_of_this_name" in error
    assert not (tmp_path / "run").exists()
