from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from arena.errors import ConfigError
from arena.metrics.jsonl import LINES_PER_FILE, JsonlSink, is_sealed, numbered_lines
from arena.metrics.rotation import Rotation
from arena.metrics.sink import find_sinks
from arena.metrics.tensorboard import TensorboardSink, scalars_record, version_record


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def scalars(directory: Path) -> list[tuple[str, int, float]]:
    """Read TensorBoard's record format: length u64, crc u32, bytes, crc u32."""
    found = []
    for path in sorted(directory.glob("events.out.tfevents.*")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            length = int.from_bytes(data[position : position + 8], "little")
            payload = data[position + 12 : position + 12 + length]
            crc = int.from_bytes(data[position + 12 + length : position + 16 + length], "little")
            assert crc == masked_crc32c(payload)
            event = Event.FromString(payload)
            found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
            position += 16 + length
    return found


def test_jsonl_appends_lines_that_are_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write("player/p001", 128, {"losses/policy": -0.5})
    sink.write("player/p002", 256, {"losses/policy": 0.25, "rollout/length": 3})
    assert lines(path) == [
        {"policy": "player/p001", "agent_steps": 128, "losses/policy": -0.5, "crc32": "90377264"},
        {
            "policy": "player/p002",
            "agent_steps": 256,
            "losses/policy": 0.25,
            "rollout/length": 3,
            "crc32": "7b39a446",
        },
    ]
    sink.close()


@given(bit=st.integers(min_value=0), data=st.data())
def test_no_flipped_bit_of_a_line_is_another_number(
    tmp_path_factory: pytest.TempPathFactory, bit: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    with contextlib.closing(JsonlSink(path)) as sink:
        sink.write("player/p001", 128, {"losses/policy": data.draw(st.floats(-1e9, 1e9))})
    (line,) = path.read_bytes().splitlines(keepends=True)
    assert is_sealed(line)
    # The checksum key is not flipped: without it a line counts as another program's.
    flipped = bytearray(line)
    at = bit % (8 * (line.index(b', "crc32"')))
    flipped[at // 8] ^= 1 << at % 8
    assert not is_sealed(bytes(flipped))


def test_jsonl_refuses_a_number_that_is_not_finite(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="JSON compliant"):
        sink.write("player/p001", 1, {"losses/policy": float("nan")})
    sink.close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


@given(cut=st.integers(min_value=0, max_value=200))
def test_jsonl_survives_a_crash_at_any_byte(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    sink = JsonlSink(path)
    for step in range(4):
        sink.write("player/p001", step, {"losses/value": 1.0})
    sink.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    complete = whole[:cut].count(b"\n")

    again = JsonlSink(path)
    again.write("player/p001", 99, {})
    again.close()
    assert [line["agent_steps"] for line in lines(path)] == [*range(complete), 99]


def test_jsonl_cuts_a_torn_line_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"agent_steps": 1}\n' + b"x" * 200_000)
    JsonlSink(path).close()
    assert path.read_bytes() == b'{"agent_steps": 1}\n'


def steps_in(path: Path) -> list[object]:
    return [line["agent_steps"] for line in lines(path)]


def test_jsonl_begins_a_new_file_at_its_size_and_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    (tmp_path / "metrics.kept.jsonl").write_text("of the user\n")
    # A line has 55 bytes with its newline, so the third one exceeds 112.
    sink = JsonlSink(path, rotation=Rotation(file_bytes=112))
    for step in range(1, 6):
        sink.write("p", step, {})
    sink.close()
    assert len('{"policy": "p", "agent_steps": 1, "crc32": "01234567"}\n') == 55
    assert [steps_in(tmp_path / name) for name in ("metrics.0001.jsonl", "metrics.jsonl")] == [
        [1, 2, 3],
        [4, 5],
    ]
    # A resumed run continues with the size and the numbers, also after gaps.
    (tmp_path / "metrics.0001.jsonl").rename(tmp_path / "metrics.0007.jsonl")
    again = JsonlSink(path, rotation=Rotation(file_bytes=112))
    for step in range(6, 8):
        again.write("p", step, {})
    again.close()
    assert steps_in(tmp_path / "metrics.0008.jsonl") == [4, 5, 6]
    assert steps_in(path) == [7]
    assert (tmp_path / "metrics.kept.jsonl").read_text() == "of the user\n"


def test_jsonl_goes_on_in_the_old_file_where_no_new_one_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path, rotation=Rotation(file_bytes=1))
    sink.write("p", 1, {})
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> object:
            raise OSError("Too many open files")

        patched.setattr("arena.metrics.jsonl.append_own", refuse)
        for step in (2, 3):
            with pytest.raises(OSError, match="Too many open files"):
                sink.write("p", step, {})
    sink.write("p", 4, {})
    sink.close()
    assert steps_in(tmp_path / "metrics.0001.jsonl") == [1]
    assert steps_in(path) == [4]


def test_jsonl_writes_through_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    path, notes = tmp_path / "metrics.jsonl", tmp_path / "notes"
    # The text has no newline, so all of it would be cut as a torn line.
    notes.write_text("of the user")
    path.symlink_to(notes)
    with pytest.raises(OSError, match="a symbolic link"):
        JsonlSink(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError):
        JsonlSink(path)
    assert notes.read_text() == "of the user"


def test_jsonl_keeps_the_newest_of_the_files_that_were_set_aside(tmp_path: Path) -> None:
    """Each file has one line of 55 bytes; 112 are those of two."""
    path = tmp_path / "metrics.jsonl"
    (tmp_path / "metrics.kept.jsonl").write_text(
        "of the user, and longer than all that is kept\n" * 2
    )
    sink = JsonlSink(path, rotation=Rotation(file_bytes=1, keep_bytes=112))
    for step in range(1, 8):
        sink.write("p", step, {})
    sink.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "metrics.0005.jsonl", "metrics.0006.jsonl", "metrics.jsonl", "metrics.kept.jsonl",
    ]  # fmt: skip
    assert [steps_in(tmp_path / f"metrics.000{n}.jsonl") for n in (5, 6)] == [[5], [6]]
    assert steps_in(path) == [7]
    # The run is resumed with a smaller bound.
    JsonlSink(path, rotation=Rotation(file_bytes=10**6, keep_bytes=60)).close()
    assert not (tmp_path / "metrics.0005.jsonl").exists()
    assert steps_in(tmp_path / "metrics.0006.jsonl") == [6]


def test_tensorboard_begins_new_files_of_all_policies_and_loses_no_point(tmp_path: Path) -> None:
    sink = TensorboardSink(tmp_path, rotation=Rotation(file_bytes=200), max_open_files=1)
    expected = []
    for step in range(20):
        for policy in ("player/p000", "player/p001"):
            sink.write(policy, step, {"a/b": 1.0})
        expected.append(("a/b", step, 1.0))
    sink.close()
    for policy in ("player/p000", "player/p001"):
        files = list((tmp_path / policy).iterdir())
        # A record has 12 + 4 bytes around some 30, and the records of both policies count.
        assert 5 <= len(files) <= 15
        assert all(file.stat().st_size < 400 for file in files)
        assert sorted(scalars(tmp_path / policy)) == expected


def test_tensorboard_keeps_the_newest_files_of_all_processes(tmp_path: Path) -> None:
    for process in range(6):
        sink = TensorboardSink(tmp_path)
        for policy in ("player/p000", "player/p001"):
            sink.write(policy, process, {"a/b": 1.0})
        sink.close()
        for path in tmp_path.rglob(f"events.*.{os.getpid()}.*"):
            # The file is renamed as another process would have named it an hour later.
            named = path.with_name(path.name.replace(f".{os.getpid()}.", f".p{process}."))
            path.rename(named)
            os.utime(named, ns=(0, 3600 * 10**9 * (process + 1)))
    other = tmp_path / "player/p000/notes.txt"
    other.write_text("of the user" * 1000)
    size = max(path.stat().st_size for path in tmp_path.rglob("events.*"))
    TensorboardSink(tmp_path, rotation=Rotation(keep_bytes=5 * size)).close()
    left = sorted(step for p in ("p000", "p001") for _, step, _ in scalars(tmp_path / "player" / p))
    assert left in ([3, 4, 4, 5, 5], [3, 3, 4, 4, 5, 5])
    assert other.exists()
    # While a run goes on, its current file is not among the older files.
    sink = TensorboardSink(tmp_path, rotation=Rotation(file_bytes=1, keep_bytes=0))
    assert not list(tmp_path.rglob("events.*"))
    for step in (6, 7):
        sink.write("player/p000", step, {"a/b": 1.0})
    sink.close()
    assert [step for _, step, _ in scalars(tmp_path / "player/p000")] == [7]


def test_find_sinks_opens_what_is_named(tmp_path: Path) -> None:
    makers = find_sinks(["tensorboard", "jsonl"], tmp_path)
    assert not list(tmp_path.iterdir()), "nothing is opened before it is asked for"
    for make in makers.values():
        sink = make()
        sink.write("player/p001", 7, {"a/b": 3.0})
        sink.flush()
        sink.close()
    assert lines(tmp_path / "metrics.jsonl")[0]["agent_steps"] == 7
    assert scalars(tmp_path / "tensorboard/player/p001") == [("a/b", 7, 3.0)]


def test_find_sinks_takes_a_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "my_sinks.py"
    module.write_text(
        "import sys\n"
        "class Mine:\n"
        "    def __init__(self, run_dir):\n"
        "        self.path = run_dir / 'points'\n"
        "    def write(self, policy, agent_steps, metrics):\n"
        "        sys.setrecursionlimit(1234)\n"
        "        self.path.write_text(f'{policy} {agent_steps} {metrics}')\n"
        "    def flush(self): pass\n"
        "    def close(self): pass\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    makers = find_sinks(["my_sinks:Mine"], tmp_path, launch_directory=str(tmp_path))
    sink, before = makers["my_sinks:Mine"](), sys.getrecursionlimit()
    sink.write("player/p001", 7, {"a/b": 3.0})
    assert (tmp_path / "points").read_text() == "player/p001 7 {'a/b': 3.0}"
    # Settings that the sink changes are restored.
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("name", ["wandbox", "no_such_module:Sink", "json:NoSuchSink"])
def test_find_sinks_names_what_it_cannot_open(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        find_sinks([name], tmp_path)


def test_a_tracker_reads_the_lines_of_jsonl_and_is_refused_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModuleSpec("wandb", None, origin="wandb/__init__.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec if name == "wandb" else None)
    assert list(find_sinks(["wandb"], tmp_path)) == ["jsonl"]
    assert list(find_sinks(["tensorboard", "jsonl", "wandb"], tmp_path)) == ["tensorboard", "jsonl"]
    with pytest.raises(ConfigError, match="mlflow is not installed: pip install"):
        find_sinks(["wandb", "mlflow"], tmp_path)
    with pytest.raises(ConfigError, match="keep_mb must be more than"):
        find_sinks(["wandb"], tmp_path, rotate_mb=5, keep_mb=5)
    # A folder that an earlier run has left is not the package.
    spec.origin = None
    with pytest.raises(ConfigError, match="wandb is not installed"):
        find_sinks(["wandb"], tmp_path)


def steps_of(lines: Iterator[Any], limit: int = 100) -> list[tuple[int, int]]:
    """The next lines: their numbers and agent steps."""
    return [(n, line["agent_steps"]) for n, line in islice(iter(lines.__next__, None), limit)]


@given(data=st.data())
def test_numbered_lines_are_all_read_once_while_files_are_set_aside(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("lines") / "metrics.jsonl"
    # A line has 55 bytes, so a file holds two lines.
    rotation = Rotation(file_bytes=110)
    read: list[tuple[int, int]] = []
    written = 0
    with (
        contextlib.closing(numbered_lines(path)) as lines,
        contextlib.closing(JsonlSink(path, rotation=rotation)) as sink,
    ):
        for _ in range(data.draw(st.integers(1, 4))):
            for _ in range(data.draw(st.integers(0, 5))):
                sink.write("p", written % 10, {})
                written += 1
            read += steps_of(lines, data.draw(st.integers(1, 4)))
        with path.open("ab") as file:
            file.write(b'{"policy": "p", "age')
        read += steps_of(lines)
    # By hand: the n-th line is in file n // 2.
    numbers = [n // 2 * LINES_PER_FILE + n % 2 for n in range(written)]
    assert read == [(number, n % 10) for n, number in enumerate(numbers)]
    with contextlib.closing(numbered_lines(path)) as again:
        assert steps_of(again) == read


def test_numbers_of_lines_stay_where_older_files_are_gone_or_a_line_is_damaged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    with contextlib.closing(JsonlSink(path, rotation=Rotation(file_bytes=110))) as sink:
        for step in range(1, 7):
            sink.write("p", step, {})
    (tmp_path / "metrics.0001.jsonl").unlink()
    damaged = path.read_bytes().replace(b'"agent_steps": 5', b'"agent_steps": 7')
    path.write_bytes(damaged)
    with path.open("ab") as file:
        file.write(b'null\n{}\n{"policy": "p", "agent_steps": "8"}\n')
    with contextlib.closing(numbered_lines(path)) as lines:
        assert steps_of(lines) == [
            (LINES_PER_FILE, 3),
            (LINES_PER_FILE + 1, 4),
            (2 * LINES_PER_FILE + 1, 6),
        ]


def test_the_controller_can_write_to_sinks_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from arena.metrics.sink import find_sinks\n"
        "for make in find_sinks(['tensorboard', 'jsonl'], Path(sys.argv[1])).values():\n"
        "    make().write('player/p001', 7, {'a/b': 3.0})\n"
        "assert not {'torch', 'tensorboardX', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)


@given(
    step=st.integers(0, 2**62),
    metrics=st.dictionaries(
        st.text(min_size=1, max_size=200), st.floats(allow_nan=False), max_size=4
    ),
    wall_time_s=st.floats(1.0, 1e10),
)
def test_a_record_is_the_one_that_protocol_buffers_would_be(
    step: int, metrics: dict[str, float], wall_time_s: float
) -> None:
    record = scalars_record(step, metrics, wall_time_s=wall_time_s)
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()]
    event = Event(wall_time=wall_time_s, step=step, summary=Summary(value=values))
    length = len(record) - 16
    assert int.from_bytes(record[:8], "little") == length
    assert int.from_bytes(record[8:12], "little") == masked_crc32c(record[:8])
    assert record[12:-4] == event.SerializeToString()
    assert int.from_bytes(record[-4:], "little") == masked_crc32c(record[12:-4])


def test_the_first_record_names_the_version() -> None:
    event = Event(wall_time=2.5, file_version="brain.Event:2").SerializeToString()
    assert version_record(wall_time_s=2.5)[12:-4] == event


def test_jsonl_leaves_no_half_line_where_the_disk_takes_a_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write("player/p001", 1, {"losses/policy": 0.5})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # The size limit lets a part of the next line be written, as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                sink.write("player/p001", 2, {"losses/policy": 0.25})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    sink.write("player/p001", 3, {"losses/policy": 0.125})
    sink.close()
    assert [line["agent_steps"] for line in lines(path)] == [1, 3]
