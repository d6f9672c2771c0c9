"""The process of a tracker, with a tool in the place of wandb that raises, hangs or works."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from arena.metrics.jsonl import JsonlSink
from arena.metrics.tracker import Note, Point, Reached
from arena.types import SHOWN_BYTES, Entrant, PlayerId
from populations import tracking
from populations.hooks.findings import Finding
from populations.hooks.process import Control, TrackerSettings
from populations.hooks.supervisor import HookProcess
from populations.records.rows import EventRow, GameRow, RunRow
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal
from populations.tracking import PAGE, points_of, redacted, tracked_run
from tests.populations.rows import make_ratings
from tests.support import wait_until

GOLDEN = Path(__file__).parents[1] / "assets" / "golden_runs" / "0.1.0"
SECRET = "a-key-that-nobody-may-see"

TOOL = """
import json, os, time
from pathlib import Path
class Settings:
    def __init__(self, **settings): pass
class Run:
    offline, summary, step = True, {}, 0
    def __init__(self, directory): self.path = Path(directory) / "told.jsonl"
    def tell(self, *what):
        with self.path.open("a") as file: file.write(json.dumps(what) + "\\n")
    def define_metric(self, name, step_metric): pass
    def log(self, row, step, commit): self.tell(step, row)
    def alert(self, title, text, level, wait_duration): self.tell(level, text)
    def finish(self): self.tell("finished")
def Html(path, inject):
    return Path(path).read_text()
def init(dir, **settings):
    fault = Path(dir) / "fault"
    if fault.exists():
        exec(fault.read_text())
    return Run(dir)
"""

REPLAY = """
import sys
from pathlib import Path
run, _, game, _, page = sys.argv[1:]
if (Path(run) / "untellable").exists():
    sys.exit(f"arena: nobody has the environment of {game}")
Path(page).write_text(f"page of {game}")
"""

ME, OTHER = Entrant("a" * 64), Entrant("bot:random")
FIT = make_ratings(entrants=(ME,), ratings=(0.0,), deviations=(1.0,), champion=ME)  # fmt: skip


def settings_of(run: Path) -> TrackerSettings:
    return TrackerSettings(
        run_dir=str(run),
        launch_directory=str(run),
        time_limit_s=5.0,
        tracker="wandb",
        replay_command=("replay_of_a_test",),
    )


def lost(number: int, *, points: tuple[float, float]) -> GameRow:
    return GameRow(
        game=f"{number}.0",
        time="now",
        seats=(0, 1),
        players=(PlayerId("player/p000@000000000100"), PlayerId("bot:random")),
        entrants=(ME, OTHER),
        keys=("somewhere", ""),
        seed=number,
        steps=1,
        points=points,
        returns=points,
        actions=b"a",
        shown=bytes(2 * SHOWN_BYTES),
        pairing=0,
    )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.create(tmp_path / JOURNAL, [RunRow(run="test")]) as journal:
        yield journal


@pytest.fixture
def process(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HookProcess]:
    """The process of a tracker whose tool runs what is in the file ``fault``."""
    proto = tmp_path / "tools" / "wandb" / "proto"
    proto.mkdir(parents=True)
    (proto.parent / "__init__.py").write_text(TOOL)
    (proto / "wandb_internal_pb2.py").write_text("Record = None\n")
    (tmp_path / "tools" / "replay_of_a_test.py").write_text(REPLAY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "tools"))
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    (tmp_path / "logs").mkdir()
    (tmp_path / "run.yaml").write_bytes((GOLDEN / "run.yaml").read_bytes())
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write("player/p000", 128, {"loss/policy": -0.5})
    sink.close()
    made = HookProcess(
        settings=settings_of(tmp_path),
        module="populations.tracking",
        name="wandb",
        alert="sink_failed",
        subject="wandb",
        end_s=30.0,
    )
    yield made
    made.close()


def heard(process: HookProcess, until: Callable[[list[Finding]], bool]) -> list[Finding]:
    told: list[Finding] = []

    def look() -> bool:
        told.extend(process.poll())
        return until(told)

    wait_until(look, timeout_s=60.0)
    return told


def told_to(run_dir: Path) -> list[list[object]]:
    path = run_dir / "told.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (
            "raise OSError('no answer to ' + os.environ['WANDB_API_KEY'])",
            "no answer to ***",
        ),
        ("time.sleep(600)", "it took longer than its time limit, 5 s (event 0)"),
        ("os._exit(7)", "its process ended with code 7 (event 0)"),
    ],
)
def test_a_tool_that_fails_is_an_alert_and_gets_all_when_it_works(
    process: HookProcess, tmp_path: Path, fault: str, problem: str
) -> None:
    (tmp_path / "fault").write_text(fault)
    told = heard(process, bool)
    assert [(one.kind, one.subject) for one in told] == [("sink_failed", "wandb")]
    assert problem in told[0].what
    assert SECRET not in (tmp_path / "logs" / "wandb.log").read_text()
    (tmp_path / "fault").unlink()
    told = heard(process, lambda told: bool(told) and not told[-1].what)
    assert told[-1] == Finding("sink_failed", "wandb", "wandb", "")
    row = {"player/p000/loss/policy": -0.5, "player/p000/agent_steps": 128}
    assert told_to(tmp_path) == [[0, row]]


@pytest.mark.slow
def test_points_and_notes_go_on_to_the_end_of_the_run(
    process: HookProcess, journal: Journal, tmp_path: Path
) -> None:
    heard(process, lambda _: len(told_to(tmp_path)) == 1)
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write("run", 256, {"run/ghosts_count": 1.0})
    sink.close()
    data = {"name": "no_steps", "what": "the run ended"}
    journal.commit(
        [
            EventRow(sequence=1, time="now", kind="kept", subject="", data={}),
            EventRow(sequence=2, time="now", kind="alert", subject="player", data=data),
        ]
    )
    process.finish()
    kinds = [one[0] for one in told_to(tmp_path)]
    assert kinds == [0, 1, "WARN", "finished"]
    assert str(told_to(tmp_path)[2][1]).startswith("#2 Alert no_steps about player: the run ended")


@pytest.mark.slow
@pytest.mark.parametrize("is_told", [True, False])
def test_the_end_of_a_run_shows_a_champions_worst_game(
    process: HookProcess, journal: Journal, tmp_path: Path, is_told: bool
) -> None:
    journal.commit([FIT, lost(1, points=(0.0, 1.0)), lost(2, points=(1.0, 0.0))])
    if not is_told:
        (tmp_path / "untellable").touch()
    told = heard(process, lambda _: len(told_to(tmp_path)) == 1)
    told += process.finish()
    shown = [[0, {"game": "page of 1.0", "game_id": "1.0"}]]
    assert told_to(tmp_path)[1:] == [*(shown if is_told else []), ["finished"]]
    # No later note says that the sink works.
    problem = "" if is_told else "game 1.0: nobody has the environment of 1.0"
    assert told[-1] == Finding("sink_failed", "wandb", "wandb", problem)


def test_a_game_is_shown_once_and_each_after_a_while(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.commit([FIT, *(lost(n, points=(0.0, n / 10)) for n in (1, 2, 3))])
    (tmp_path / "replay_of_a_test.py").write_text(REPLAY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "run.yaml").write_bytes((GOLDEN / "run.yaml").read_bytes())
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    control = Control(io.StringIO())
    control.woken.set()
    shown: list[str] = []

    class Tool:
        def reached(self) -> Reached:
            return Reached(games=frozenset({"2.0"}))

        def write(self, points: Sequence[Point], notes: Sequence[Note]) -> None:
            # There is a game to show three times, and twice the environment is missing.
            if points[-1].agent_steps == 3:
                control.backlog_s = 0.0

        def show(self, game: str, page: Path) -> None:
            assert page.read_text() == f"page of {game}"
            shown.append(game)
            if len(shown) < 3:
                sink.write("run", len(shown) + 1, {"a/b": 1.0})

        def close(self) -> None:
            shown.append("closed")

    monkeypatch.setattr(tracking, "GAME_EVERY_S", 0.0)
    monkeypatch.setattr(tracking, "open_tracker", lambda name, run: Tool())
    sink.write("run", 1, {"a/b": 1.0})
    tracking._serve(settings_of(tmp_path), control, lambda **_: None)
    sink.close()
    assert shown == ["3.0", "1.0", "closed"]


def test_a_figure_that_has_not_changed_at_a_step_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"

    def read(points: Iterator[Point | None]) -> list[Point]:
        return list(iter(points.__next__, None))

    with closing(JsonlSink(path)) as sink, closing(points_of(path, after=-1)) as points:
        assert read(points) == []
        sink.write("run", 5, {"a/b": 1.0, "a/c": 2.0})
        sink.write("run", 5, {"a/b": 1.0, "a/c": 3.0})
        sink.write("run", 5, {"a/b": 1.0, "a/c": 3.0})
        sink.write("run", 6, {"a/b": 1.0})
        rest = [Point(1, "run", 5, {"a/c": 3.0}), Point(3, "run", 6, {"a/b": 1.0})]
        assert read(points) == [Point(0, "run", 5, {"a/b": 1.0, "a/c": 2.0}), *rest]
        # A reader that has only the first points gets the same rest.
        with closing(points_of(path, after=0)) as again:
            assert read(again) == rest
        for step in range(2 * PAGE):
            sink.write("run", step, {"a/b": 1.0})
        assert [point.agent_steps for point in read(points)] == list(range(2 * PAGE))


def test_secrets_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "correct-horse")
    monkeypatch.setenv("SHORT_KEY", "the")
    text = "http://me:word@host/api refused correct-horse of the user"
    assert redacted(text) == "http://***@host/api refused *** of the user"


def test_a_run_is_known_by_its_uuid_and_settings_without_secrets() -> None:
    run = tracked_run(GOLDEN)
    assert run.id == "caa5abeb-135c-4692-a576-dd0f3841bed7"
    assert {"environment", "seed", "player.size", "player.learning_rate"} <= set(run.facts)
    assert not [key for key in run.facts if "hook" in key or "kwargs" in key]
