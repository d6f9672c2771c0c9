"""Files that are none, have no end, or are no text."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arena.files import (
    MAX_LINE_BYTES,
    MAX_SKIPPED_BYTES,
    NotRegular,
    append_own,
    json_object,
    open_regular,
    read_json_object,
    read_lines,
    read_regular,
    require_regular,
    words_of,
    write_own,
)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


REFUSED = r"not a regular file|Too many levels|Is a directory"


@pytest.mark.parametrize("make", [pipe, Path.mkdir, zeros, loop])
def test_nothing_but_a_regular_file_is_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(path := tmp_path / "file")
    # Opening a pipe without a writer would block, and the device has no end.
    for read in (open_regular, lambda p: read_regular(p, limit_bytes=9), require_regular):
        with pytest.raises(OSError, match=REFUSED):
            read(path)
    with pytest.raises(OSError, match=REFUSED):
        list(read_lines(path))


def test_a_file_behind_a_link_is_one_unless_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (link := tmp_path / "link").symlink_to("file")
    require_regular(link)
    assert read_regular(link, limit_bytes=4) == b"text"
    with pytest.raises(OSError, match="Too many levels"):
        read_regular(link, limit_bytes=4, follows_links=False)


def linked(path: Path) -> None:
    """A link to a file of the user."""
    path.with_name("notes").write_text("of the user")
    path.symlink_to("notes")


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [pipe, Path.mkdir, zeros, loop, linked, dangling])
def test_nothing_is_written_but_to_a_regular_file(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(path := tmp_path / "file")
    for write in (lambda path: write_own(path, "text"), append_own):
        with pytest.raises(OSError, match=r"a symbolic link|No such device|Is a directory"):
            write(path)
    assert not (tmp_path / "nowhere").exists()
    if make is linked:
        assert (tmp_path / "notes").read_text() == "of the user"


def test_a_file_of_a_run_is_written_anew_or_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("a longer one", "text"):
        write_own(path, text)
        assert path.read_text() == text
    with append_own(path) as file:
        file.write(b" and more")
        assert path.read_text() == "text and more"


def test_a_file_that_is_not_there_is_told_apart(tmp_path: Path) -> None:
    require_regular(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_a_hole_of_six_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "hole"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(6 << 30)
    with pytest.raises(OSError, match="at most 100 bytes"):
        read_regular(path, limit_bytes=100)
    assert list(read_lines(path)) == [b"first\n", None]
    # The unit is kB, and the bound is far below the file's size.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20


def test_a_line_that_is_too_long_is_left_out_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n" + b"x" * (3 * MAX_LINE_BYTES) + b"\nb\n\nlast")
    assert list(read_lines(path)) == [b"a\n", None, b"b\n", b"\n", b"last"]
    assert 3 * MAX_LINE_BYTES < MAX_SKIPPED_BYTES


DEEP = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize("text", [b"null", b"[]", b"3", b'{"a": NaN}', b'{"a": ', b"\xff", DEEP])
def test_what_is_no_object_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_object(text)


def test_a_number_beyond_all_floats_is_refused_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"a": [1, {"b": 0.5}]}')
    assert read_json_object(path) == {"a": [1, {"b": 0.5}]}
    path.write_text('{"a": [1, {"b": 1e400}]}')
    with pytest.raises(ValueError, match="not JSON compliant"):
        read_json_object(path)


@contextmanager
def all_in_use() -> Iterator[None]:
    """Use up the descriptors of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (used[0] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(used[0])


def test_words_name_descriptors_where_none_is_left(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_text("")
    with all_in_use(), pytest.raises(OSError, match="Too many open files") as caught:
        open_regular(path)
    assert "no file descriptor is left" in words_of(caught.value)
    assert words_of(NotRegular(1, "not a regular file")) == "not a regular file"
