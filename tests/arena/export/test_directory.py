from __future__ import annotations

import os
from pathlib import Path

import pytest
from gymnasium import spaces
from msgspec import structs

from arena.errors import ConfigError
from arena.export import directory as export_directory
from arena.export.directory import check_target, prune, replace_directory
from tests.arena.export.conftest import make_policy

OLD = {"card.json": b"old", "champion.py": b"old player"}
NEW = {"card.json": b"new", "policy.onnx": b"graph"}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_it_makes_parents_and_leaves_nothing_else(tmp_path: Path) -> None:
    replace_directory(tmp_path / "runs" / "champion", NEW)
    assert contents(tmp_path / "runs" / "champion") == NEW
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["champion"]


def test_a_replaced_export_is_gone(tmp_path: Path) -> None:
    replace_directory(tmp_path / "champion", OLD)
    replace_directory(tmp_path / "champion", NEW)
    assert contents(tmp_path / "champion") == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["champion"]


def test_where_names_cannot_be_swapped_it_takes_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_directory(tmp_path / "champion", OLD)
    monkeypatch.setattr(export_directory, "_exchange", lambda first, second: False)
    replace_directory(tmp_path / "champion", NEW)
    assert contents(tmp_path / "champion") == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["champion"]


def test_what_the_living_write_is_not_cleaned_up(tmp_path: Path) -> None:
    replace_directory(tmp_path / "champion", OLD)
    with export_directory._temporary_beside(tmp_path / "champion") as mine:
        replace_directory(tmp_path / "champion", NEW)
        assert mine.is_dir()
    stranger = tmp_path / ".champion.new-mine"
    stranger.mkdir()
    export_directory.clean_up(tmp_path / "champion")
    assert stranger.is_dir()


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    (tmp_path / "champion").mkdir()
    replace_directory(tmp_path / "champion", NEW)
    assert contents(tmp_path / "champion") == NEW


@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt("No space")])
@pytest.mark.parametrize("failing_call", range(1, 3))
def test_a_rename_that_fails_leaves_the_old_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int, error: BaseException
) -> None:
    replace_directory(tmp_path / "champion", OLD)
    monkeypatch.setattr(export_directory, "_exchange", lambda first, second: False)
    rename, calls = os.rename, []

    def failing_rename(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == failing_call:
            raise error
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing_rename)
    with pytest.raises(type(error), match="No space"):
        replace_directory(tmp_path / "champion", NEW)
    assert contents(tmp_path / "champion") == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["champion"]


@pytest.mark.parametrize("failing_call", range(1, 4))
def test_a_disk_that_refuses_to_sync_leaves_a_whole_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    replace_directory(tmp_path / "champion", OLD)
    calls = []

    def failing_fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == failing_call:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing_fsync)
    with pytest.raises(OSError, match="Input/output"):
        replace_directory(tmp_path / "champion", NEW)
    assert contents(tmp_path / "champion") == OLD


def test_what_is_no_export_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years of work")
    with pytest.raises(ConfigError, match=r"it has no card\.json"):
        check_target(tmp_path, force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="must be a directory"):
        check_target(tmp_path / "file", force=True)


def test_an_export_is_replaced_by_force_only(tmp_path: Path) -> None:
    check_target(tmp_path / "champion", force=False)
    replace_directory(tmp_path / "champion", OLD)
    with pytest.raises(ConfigError, match="--force"):
        check_target(tmp_path / "champion", force=False)
    check_target(tmp_path / "champion", force=True)


def test_older_exports_go_and_those_that_were_asked_for_by_hand_stay(tmp_path: Path) -> None:
    card, _ = make_policy(spaces.Box(-1.0, 1.0, (3,)), actions=spaces.Discrete(2), mask=None)
    assert card.record
    by_itself = structs.replace(card, record=())
    for name, written in {
        "000000000100": card,
        **dict.fromkeys(("000000000200", "000000000300", "000000000400", "best"), by_itself),
        # A kill leaves a half removed export without its card, or a half written one.
        **dict.fromkeys(("000000000050", ".000000000060.new-0123456789abcdef"), None),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.onnx").touch()
        if written is not None:
            (tmp_path / name / "card.json").write_text(written.to_json().decode())
    prune(tmp_path, keep=2)
    stayed = {path.name for path in tmp_path.iterdir()}
    assert stayed == {"000000000100", "000000000300", "000000000400", "best"}
