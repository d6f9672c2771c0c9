from __future__ import annotations

import os
from pathlib import Path

import pytest

from populations.errors import StorageError
from populations.storage.status import STATUS, read_status, write_status


def test_what_was_written_is_read_and_replaced(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    for count in range(3):
        write_status(tmp_path, {"agent_steps": count, "learners": [{"pid": 7}]})
        assert read_status(tmp_path) == {"agent_steps": count, "learners": [{"pid": 7}]}
    assert [entry.name for entry in tmp_path.iterdir()] == [STATUS]


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff\xfe", b"null"])
def test_what_cannot_be_read_is_absent(tmp_path: Path, data: bytes) -> None:
    (tmp_path / STATUS).write_bytes(data)
    assert read_status(tmp_path) is None


def test_bad_numbers_and_bad_disks_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_status(tmp_path, {"speed": float("nan")})
    with pytest.raises(StorageError):
        write_status(tmp_path / "gone", {})
    assert read_status(tmp_path) is None


def test_it_is_written_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("of the user")
    # One in its place is replaced; one in that of the new file is refused.
    (tmp_path / STATUS).symlink_to("notes")
    write_status(tmp_path, {"speed": 1.0})
    (tmp_path / f".{STATUS}.{os.getpid()}.tmp").symlink_to("notes")
    with pytest.raises(StorageError, match="a symbolic link"):
        write_status(tmp_path, {"speed": 2.0})
    assert read_status(tmp_path) == {"speed": 1.0}
    assert (tmp_path / "notes").read_text() == "of the user"
