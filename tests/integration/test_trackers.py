"""Runs in wandb, MLflow and Trackio, offline: their own files have what ``metrics.jsonl`` has."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.metrics.jsonl import SEAL
from arena.metrics.tracker import TRACKERS
from arena.types import PolicyId
from arena.wire.messages import Train
from populations.config.run_file import RUN_FILE, RunFile
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from tests.integration.conftest import ARENA, STEPS, launch_arguments
from tests.support import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.integration,
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in TRACKERS),
        reason="the trackers are not installed: make test-slow installs constraints-trackers.txt",
    ),
]

SECRET = "a-key-that-nobody-may-see"
END_S = 280.0
WANDB_FILES = "wandb/offline-run-*/run-*.wandb"

Curves = dict[str, list[tuple[int, float]]]
"""Points of each curve, in order: agent steps and figure."""


class Kept(NamedTuple):
    """What a tracker has of a run: its points, the alerts, the ids of its runs, and games."""

    curves: Curves
    notes: list[str]
    runs: set[str]
    games: list[Path]


def started(run: Path, *more: str | Path, **variables: str) -> subprocess.Popen[str]:
    offline = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(run.parent / "trackio")}
    return subprocess.Popen(
        [str(word) for word in (*ARENA, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **offline, "WANDB_API_KEY": SECRET, **variables},
        cwd=run.parent,
    )


def lines_of(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose controller was killed twice: once between a commit and the points of it."""
    run = tmp_path_factory.mktemp("trackers") / "run"
    launch = launch_arguments(
        run,
        "metrics.sinks=[wandb,mlflow,trackio,json:loads]",
        STEPS,
    )
    first = started(
        run, *launch, ARENA_TESTING="1", ARENA_FAILPOINTS="controller.before_acknowledge=kill@9"
    )
    _, error = first.communicate(timeout=END_S)
    assert first.returncode == -signal.SIGKILL, error
    known, former = len(lines_of(run)), {*run.glob(WANDB_FILES)}
    assert known
    resume = ("launch", "--resume", "--run-dir", run)
    second = started(run, *resume)
    try:
        # Wait until each tracker has points of this process; wandb is the slowest to open.
        wait_until(
            lambda: (
                len(lines_of(run)) > known + 12
                and any(file.stat().st_size for file in run.glob(WANDB_FILES) if file not in former)
            ),
            timeout_s=END_S,
        )
    finally:
        second.kill()
        second.communicate()
    last = started(run, *resume)
    _, error = last.communicate(timeout=END_S)
    assert last.returncode == 0, error
    return run


def own(run: Path) -> Curves:
    """The curves of ``metrics.jsonl``, without figures that did not change at a step."""
    curves: Curves = {}
    for line in lines_of(run):
        policy, steps = line.pop("policy"), line.pop("agent_steps")
        del line[SEAL]
        for name, value in line.items():
            points = curves.setdefault(f"{policy}/{name}", [])
            if points[-1:] != [(steps, value)]:
                points.append((steps, value))
    return curves


def of_wandb(run: Path, uuid: str) -> Kept:
    from wandb.proto.wandb_internal_pb2 import Record

    from arena.metrics.wandb_tracker import read_records

    rows: list[tuple[int, dict[str, Any]]] = []
    notes, runs = [], set()
    folders = sorted(run.glob("wandb/offline-run-*"))
    # Each process has a folder of the same run; the first process may be killed before wandb has
    # made its own.
    assert len(folders) in (2, 3)
    files = [folder / f"run-{uuid}.wandb" for folder in folders]
    for file in files if files[0].exists() else files[1:]:
        for data in read_records(file):
            record = Record.FromString(data)
            if record.HasField("run"):
                runs.add(record.run.run_id)
            if record.HasField("alert"):
                notes.append(record.alert.text)
            if record.HasField("history"):
                items = record.history.item
                row = {one.key or one.nested_key[0]: json.loads(one.value_json) for one in items}
                rows.append((record.history.step.num, row))
    numbers = [number for number, _ in rows]
    assert numbers == sorted(set(numbers)), "a step is there twice"
    curves: Curves = {}
    games = [path for folder in folders for path in folder.glob("files/media/html/game_*")]
    assert len([row for _, row in rows if "game_id" in row]) == len(games)
    for _, row in rows:
        ((policy, steps),) = [
            (key.removesuffix("/agent_steps"), value)
            for key, value in row.items()
            if key.endswith("/agent_steps")
        ]
        for key, value in row.items():
            if key.startswith(f"{policy}/") and not key.endswith("/agent_steps"):
                curves.setdefault(key, []).append((steps, value))
    return Kept(curves, notes, runs, games)


def of_mlflow(run: Path, uuid: str) -> Kept:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("arena")
    (found,) = client.search_runs([experiment.experiment_id])
    curves = {
        name: [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, name)]
        for name in found.data.metrics
    }
    tags = found.data.tags
    assert found.info.status == "FINISHED"
    notes = [text for tag, text in sorted(tags.items()) if tag.startswith("arena.note.")]
    games = [*(run / "mlartifacts").rglob("*.html")]
    assert [tag for tag in tags if tag.startswith("arena.game.")] == [
        f"arena.game.{path.stem}" for path in games
    ]
    return Kept(curves, notes, {tags["arena.run"]}, games)


def of_trackio(run: Path, uuid: str) -> Kept:
    with sqlite3.connect(run.parent / "trackio" / "arena.db") as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
        runs = {one for (one,) in database.execute("SELECT DISTINCT run_id FROM metrics")}
        notes = [text for (text,) in database.execute("SELECT text FROM alerts ORDER BY id")]
    database.close()
    curves: Curves = {}
    games = []
    for step, document in rows:
        for name, value in json.loads(document).items():
            if name == "game":
                games.append(run.parent / "trackio" / "media" / value["file_path"])
            else:
                curves.setdefault(name, []).append((step, value))
    return Kept(curves, notes, runs, games)


READERS = {"wandb": of_wandb, "mlflow": of_mlflow, "trackio": of_trackio}


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's warning
@pytest.mark.parametrize("name", TRACKERS)
def test_after_two_kills_there_is_one_run_and_no_point_is_missing_or_double(
    run: Path, name: str
) -> None:
    uuid = RunFile.load(run / RUN_FILE).run
    kept = READERS[name](run, uuid)
    assert kept.runs == {uuid}
    expected = own(run)
    assert set(kept.curves) == set(expected)
    for curve, points in expected.items():
        assert Counter(kept.curves[curve]) == Counter(points), curve
    # One of the three processes was alive at the end of the run.
    (page,) = kept.games
    assert 'id="step-1"' in page.read_text()
    # A failing sink is reported once.
    failing = [note for note in kept.notes if "sink_failed" in note]
    assert len(failing) == 1
    assert "json:loads" in failing[0]


SHOWING = """
import json, os, signal, sys
from pathlib import Path
from arena.metrics.tracker import Point, TrackedRun
from populations.tracking import open_tracker
name, directory, number, game, ending = sys.argv[1:]
run = TrackedRun(id="0123", name="run", directory=Path(directory), facts={})
tracker = open_tracker(name, run)
reached = tracker.reached()
page = Path(directory) / f"{game}.html"
page.write_text(f"<!doctype html><p>{game}")
tracker.write([Point(int(number), "run", 5, {"a/b": 1.0})], [])
tracker.show(game, page)
page.unlink()
print(json.dumps([reached.number, sorted(reached.games)]))
sys.stdout.flush()
if ending == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
tracker.close()
"""


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_knows_the_games_that_it_was_shown(name: str, tmp_path: Path) -> None:
    def shown(number: int, game: str, ending: str) -> list[Any]:
        done = subprocess.run(
            [sys.executable, "-c", SHOWING, name, str(tmp_path), str(number), game, ending],
            env={**os.environ, "WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio")},
            stdout=subprocess.PIPE,
            text=True,
            check=ending != "kill",
        )
        found: list[Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    assert shown(3, "3.1", "close") == [-1, []]
    assert shown(7, "12.0", "kill") == [3, ["3.1"]]
    # wandb loses the seconds before a kill: both the game and the point of its row.
    known = [3, ["3.1"]] if name == "wandb" else [7, ["12.0", "3.1"]]
    assert shown(9, "20.4", "close") == known
    pages = [one.read_text() for one in tmp_path.rglob("*.html")]
    assert "<!doctype html><p>3.1" in pages
    assert "<!doctype html><p>20.4" in pages


def test_every_training_assignment_has_one_point_though_the_controller_was_killed(
    run: Path,
) -> None:
    with JournalReader(run / JOURNAL) as reader:
        rows = reader.assignments(kind="train", statuses=["finished"])
        policies = reader.load().policies
    begun: dict[PolicyId, list[int]] = {policy: [] for policy in policies}
    for row in rows:
        assert isinstance(row.message, Train)
        for trainee in row.message.trainees:
            begun[trainee.policy].append(trainee.agent_steps)
    for policy, starts in begun.items():
        # Each assignment ends where the policy's next one begins.
        ends = [*sorted(set(starts)), policies[policy].agent_steps][1:]
        points = own(run)[f"{policy}/pbt/generation_count"]
        assert [steps for steps, _ in points] == ends


def test_no_secret_is_in_the_files_of_a_tracker_or_in_a_log(run: Path) -> None:
    def written() -> Iterator[Path]:
        for folder in (run / "wandb", run / "logs", run.parent / "trackio"):
            yield from (path for path in folder.rglob("*") if path.is_file())
        yield run / "mlflow.db"

    files = list(written())
    assert len(files) > 10
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def log_of(records: list[bytes]) -> tuple[bytes, list[int]]:
    """A file as LevelDB's specification has it, after wandb's header, and where records end."""
    data, ends = bytearray(b":W&B\xe1\xbe\x00"), []
    for record in records:
        rest, is_first = record, True
        while is_first or rest:
            left = 32768 - len(data) % 32768
            if left < 7:
                data += bytes(left)
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = {(1, 1): 1, (1, 0): 2, (0, 0): 3, (0, 1): 4}[is_first, not rest]
            data += bytes(4) + len(part).to_bytes(2, "little") + bytes([kind]) + part
            is_first = False
        ends.append(len(data))
    return bytes(data), ends


@given(
    sizes=st.lists(st.sampled_from([0, 1, 9, 32747, 32754, 32761, 70_000]), max_size=6),
    share=st.floats(0.0, 1.0),
)
def test_a_file_of_wandb_is_read_up_to_where_it_is_torn(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], share: float
) -> None:
    from arena.metrics.wandb_tracker import read_records

    records = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data, ends = log_of(records)
    path = tmp_path_factory.mktemp("wandb") / "run.wandb"
    length = round(share * len(data))
    path.write_bytes(data[:length])
    assert list(read_records(path)) == records[: sum(end <= length for end in ends)]
