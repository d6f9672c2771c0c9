"""The document of metrics: lines of the sink's files, in order."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, cast

import pytest

from arena.metrics.jsonl import JsonlSink
from arena.metrics.rotation import Rotation
from populations.views.questions.inspection import Inspection
from populations.views.training import metrics_document


def inspected(run_dir: Path) -> Inspection:
    fields = {field.name: None for field in dataclasses.fields(Inspection)}
    return Inspection(**cast("Any", {**fields, "run_dir": run_dir}))


@pytest.fixture
def run(tmp_path: Path) -> Inspection:
    # Each line is a file of its own; the first two files are rotated away.
    sink = JsonlSink(tmp_path / "metrics.jsonl", rotation=Rotation(file_bytes=1))
    sink.write("player/p000", 100, {"loss/value": 0.5, "policy/entropy": 1.5})
    sink.write("playerless/p000", 100, {"loss/value": 0.6})
    sink.write("run", 200, {"run/ghosts_count": 3.0})
    sink.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"policy": "player/p000", "agent_st')
    return inspected(tmp_path)


def test_lines_of_all_files_come_in_order_without_a_torn_one(run: Inspection) -> None:
    assert sorted(path.name for path in run.run_dir.iterdir()) == [
        "metrics.0001.jsonl",
        "metrics.0002.jsonl",
        "metrics.jsonl",
    ]
    assert metrics_document(run, None) == {
        "names": None,
        "metrics": [
            {
                "policy": "player/p000",
                "agent_steps": 100,
                "loss/value": 0.5,
                "policy/entropy": 1.5,
            },
            {"policy": "playerless/p000", "agent_steps": 100, "loss/value": 0.6},
            {"policy": "run", "agent_steps": 200, "run/ghosts_count": 3.0},
        ],
    }


def test_a_line_with_another_digit_is_left_out_and_counted(run: Inspection) -> None:
    path = run.run_dir / "metrics.0001.jsonl"
    path.write_text(path.read_text().replace("1.5", "1.6"))
    view = metrics_document(run, None)
    assert view["left_out"] == 1
    lines = cast("list[dict[str, object]]", view["metrics"])
    assert [line["agent_steps"] for line in lines] == [100, 200]


def test_names_and_a_population_restrict_lines(run: Inspection) -> None:
    assert metrics_document(run, "player", names=["policy/entropy", "none/such"]) == {
        "names": ["policy/entropy", "none/such"],
        "metrics": [{"policy": "player/p000", "agent_steps": 100, "policy/entropy": 1.5}],
    }
    assert metrics_document(run, None, names=["none/such"])["metrics"] == []


def test_without_the_sink_there_are_no_lines(tmp_path: Path) -> None:
    assert metrics_document(inspected(tmp_path), None)["metrics"] == []


BAD = (
    b"\xff\xfe",
    b"{",
    b"null",
    b"[1]",
    b'{"policy": 3, "agent_steps": 1, "loss/value": 0.5}',
    b'{"policy": "player/p000", "agent_steps": "1", "loss/value": 0.5}',
    b'{"policy": "player/p000", "agent_steps": 1, "loss/value": 1e400}',
    b'{"policy": "player/p000", "agent_steps": 1, "loss/value": NaN}',
    b'{"policy": "player/p000", "agent_steps": 1, "loss/value": "x"}',
    b'{"policy": "player/p000", "agent_steps": 1, "loss/value": true}',
    b'{"a":' * 100_000,
    b"0" * 5_000_000,
)


def test_a_bad_line_is_left_out_and_counted_and_the_others_stand(run: Inspection) -> None:
    before = metrics_document(run, None)
    path = run.run_dir / "metrics.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in BAD) + path.read_bytes())
    assert metrics_document(run, None) == {**before, "left_out": len(BAD)}


def test_what_is_in_the_place_of_the_file_counts_as_a_line(run: Inspection) -> None:
    (run.run_dir / "metrics.0002.jsonl").unlink()
    os.mkfifo(run.run_dir / "metrics.0002.jsonl")
    document = metrics_document(run, None)
    assert document["left_out"] == 1
    assert len(cast("list[object]", document["metrics"])) == 2
