from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from populations.errors import RunInUse, StorageError
from populations.storage.lock import LOCK, UNKNOWN_PID, RunLock, is_released, lock_holder
from populations.storage.status import STATUS, read_status, write_status

HOLD = """
import sys
from pathlib import Path
from populations.storage.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_one_at_a_time_and_the_second_is_told_by_whom(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        assert lock_holder(tmp_path) == os.getpid()
        with pytest.raises(RunInUse, match=str(os.getpid())) as caught:
            RunLock(tmp_path)
        assert caught.value.pid == os.getpid()
        assert lock_holder(tmp_path) == os.getpid()
    assert lock_holder(tmp_path) is None
    with RunLock(tmp_path) as again:
        again.release()
        assert lock_holder(tmp_path) is None


def test_sigkill_frees_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"held\n"
            for _ in range(50):
                assert lock_holder(tmp_path) == process.pid
            with pytest.raises(RunInUse, match=str(process.pid)):
                RunLock(tmp_path)
        finally:
            process.kill()
        process.wait()
        assert lock_holder(tmp_path) is None
        with RunLock(tmp_path):
            assert lock_holder(tmp_path) == os.getpid()


def test_a_holder_without_a_number_is_still_a_holder(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / LOCK).write_text("")
        assert lock_holder(tmp_path) == UNKNOWN_PID
        with pytest.raises(RunInUse, match="unknown"):
            RunLock(tmp_path)


def test_nobody_holds_what_is_not_there(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "nothing") is None
    with pytest.raises(StorageError):
        RunLock(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_lock_file_that_was_replaced_does_not_admit_two(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / LOCK).rename(tmp_path / "moved")
        with RunLock(tmp_path), pytest.raises(RunInUse):
            RunLock(tmp_path)


def test_a_pipe_or_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    # Opening must not wait for a writer of the pipe.
    for look in (is_released, RunLock):
        with pytest.raises(StorageError, match="not a regular file"):
            look(tmp_path)
    (tmp_path / LOCK).unlink()
    (tmp_path / "notes").write_text("of the user")
    (tmp_path / LOCK).symlink_to("notes")
    with pytest.raises(StorageError, match="a symbolic link"):
        RunLock(tmp_path)
    assert (tmp_path / "notes").read_text() == "of the user"


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
    # A link in place of the file is replaced; one in place of the temporary file is refused.
    (tmp_path / STATUS).symlink_to("notes")
    write_status(tmp_path, {"speed": 1.0})
    (tmp_path / f".{STATUS}.{os.getpid()}.tmp").symlink_to("notes")
    with pytest.raises(StorageError, match="a symbolic link"):
        write_status(tmp_path, {"speed": 2.0})
    assert read_status(tmp_path) == {"speed": 1.0}
    assert (tmp_path / "notes").read_text() == "of the user"
