"""Hooks in a real process, beside a real journal: they fail, die, hang, are many, and go on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from arena.errors import ConfigError
from populations.config.hooks import Hook
from populations.hooks.calls import Place, begin_place, write_place
from populations.hooks.findings import Finding
from populations.hooks.process import HookSettings
from populations.hooks.supervisor import HookProcess, check_hooks
from populations.records.rows import EventRow, RunRow
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal
from tests.support import kept_events, wait_until

ASSETS = str(Path(__file__).parents[2] / "assets")
Make = Callable[..., HookProcess]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.create(tmp_path / JOURNAL, [RunRow(run="test")]) as journal:
        yield journal


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make the process of some hooks; none is left behind."""
    made: list[HookProcess] = []

    def make(*hooks: Hook, time_limit_s: float = 20.0, limit: int = 1000) -> HookProcess:
        settings = settings_of(tmp_path, *hooks, time_limit_s=time_limit_s, limit=limit)
        (tmp_path / "logs").mkdir(exist_ok=True)
        process = HookProcess(settings=settings, end_s=20.0)
        begin_place(tmp_path / settings.place, after=0)
        made.append(process)
        return process

    yield make
    for process in made:
        process.close()


def settings_of(
    run_dir: Path,
    *hooks: Hook,
    time_limit_s: float = 20.0,
    limit: int = 1000,
) -> HookSettings:
    return HookSettings(
        run_dir=str(run_dir),
        launch_directory=ASSETS,
        hooks={"on_event": hooks},
        time_limit_s=time_limit_s,
        limit=limit,
        place="hooks.json",
    )


def commit(journal: Journal, first: int, last: int, kind: str = "kept") -> None:
    journal.commit(
        [
            EventRow(sequence=n, time="now", kind=kind, subject="", data={})
            for n in range(first, last + 1)
        ]
    )


def served(process: HookProcess, until: Callable[[], bool]) -> list[Finding]:
    """Poll until something is so; what was told meanwhile, but for what was well from the start."""
    told: list[Finding] = []

    def look() -> bool:
        told.extend(process.poll())
        return until()

    wait_until(look, timeout_s=30.0)
    return told


def is_idle(process: HookProcess) -> bool:
    """Return whether all calls that were begun have ended, as far as it has said."""
    return process._process is not None and process._process.call is None


def test_every_event_is_handed_over_once_and_in_order(
    tmp_path: Path, journal: Journal, make: Make
) -> None:
    commit(journal, 1, 3)
    process = make("hooked:keep", ("sh", "-c", "cat > command.json; pwd > place.txt"))
    served(process, lambda: len(kept_events(tmp_path)) == 3)
    commit(journal, 4, 5, "run_finished")
    told = process.finish()
    assert kept_events(tmp_path) == [1, 2, 3, 4, 5]
    assert not [one for one in told if one.what]
    assert process.pid is None
    place = Path(ASSETS) / "place.txt"
    try:
        assert place.read_text().strip() == ASSETS, "commands start in the launch directory"
        event = json.loads((Path(ASSETS) / "command.json").read_text())
        assert event["sequence"] == 5
        assert event["run"] == str(tmp_path)
    finally:
        place.unlink()
        (Path(ASSETS) / "command.json").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("hooked:fail_at_first", "it raised ValueError: not the first"),
        ("hooked:die_at_first", "its process ended with code 7 (event 1)"),
        ("hooked:hang_at_first", "it took longer than its time limit, 1 s (event 1)"),
    ],
)
def test_a_hook_that_fails_is_told_and_told_again_when_it_works(
    tmp_path: Path,
    journal: Journal,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    hook: str,
    said: str,
) -> None:
    # The duration is unique, because another test process may search for its sleepers at the same
    # time.
    seconds = f"1234.{os.getpid()}"
    monkeypatch.setenv("SLEEP_S", seconds)
    commit(journal, 1, 2)
    process = make(hook, time_limit_s=1.0)
    told = served(process, lambda: kept_events(tmp_path) == [2])
    told += process.finish()
    name = f"on_event: {hook}"
    problems = [one.what for one in told if (one.kind, one.subject) == ("hook_failed", name)]
    assert len(problems) == 2, problems
    assert problems[0].startswith(said)
    assert problems[1] == ""
    # The event is handed over only once, because it has ended the process.
    assert kept_events(tmp_path) == [2]
    assert not sleepers(seconds), "what a hook started ends with it"


def sleepers(seconds: str) -> list[psutil.Process]:
    line = ["sleep", seconds]
    return [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == line]


def test_a_command_fails_by_its_exit_code(tmp_path: Path, journal: Journal, make: Make) -> None:
    commit(journal, 1, 1)
    process = make(("sh", "-c", "exit 3"))
    told = served(process, lambda: (tmp_path / "hooks.json").read_text().startswith('{"after": 1'))
    told += process.finish()
    assert "its exit code was 3" in [one.what for one in told]


def test_too_many_calls_are_dropped_counted_and_told(
    tmp_path: Path, journal: Journal, make: Make
) -> None:
    commit(journal, 1, 30)
    process = make("hooked:keep", limit=4)
    told = served(process, lambda: len(kept_events(tmp_path)) == 4)
    told += process.finish()
    assert kept_events(tmp_path) == [27, 28, 29, 30]
    behind = [one.what for one in told if one.kind == "hooks_behind"]
    assert behind == ["26 calls were dropped since the run began", ""]


@pytest.mark.slow
def test_the_end_waits_for_a_bounded_time(tmp_path: Path, journal: Journal, make: Make) -> None:
    commit(journal, 1, 3, "run_finished")
    process = make("hooked:hang", time_limit_s=20.0)
    # The start alone takes seconds on a busy machine.
    served(process, lambda: kept_events(tmp_path) == [1])
    process.end_s = 3.0
    begin_s = time.monotonic()
    waits: list[tuple[str, float]] = []
    process.finish(on_wait=lambda name, most_s: waits.append((name, most_s)))
    assert time.monotonic() - begin_s < 10.0
    # The wait is reported once, at least a second after it began: two seconds are left.
    ((name, most_s),) = waits
    assert name == "hooks"
    assert 0.0 < most_s <= 2.0
    assert process.pid is None
    assert kept_events(tmp_path) == [1], "the others are left to a resume"
    assert not sleepers("2345.6")


def test_an_end_without_a_wait_has_no_word_about_it(
    tmp_path: Path, journal: Journal, make: Make
) -> None:
    commit(journal, 1, 3, "run_finished")
    process = make("hooked:keep")
    process.clock = lambda: 0.0
    waits: list[str] = []
    process.finish(wait=lambda _: None, on_wait=lambda name, _: waits.append(name))
    assert kept_events(tmp_path) == [1, 2, 3]
    assert waits == []


def test_a_killed_process_is_started_anew_and_goes_on(
    tmp_path: Path, journal: Journal, make: Make
) -> None:
    commit(journal, 1, 2)
    process = make("hooked:keep")
    served(process, lambda: len(kept_events(tmp_path)) == 2)
    # The last call is running; a process that is killed within it is reported by its name.
    served(process, lambda: is_idle(process))
    assert process.pid is not None
    os.kill(process.pid, 9)
    told = served(process, lambda: process.pid is None)
    assert Finding("hook_failed", "", "", "the process of hooks ended with code -9") in told
    commit(journal, 3, 3)
    told = served(process, lambda: kept_events(tmp_path) == [1, 2, 3])
    told += process.finish()
    assert Finding("hook_failed", "", "", "") in told


@pytest.mark.slow
def test_what_was_made_is_not_made_again_where_the_place_could_not_be_written(
    tmp_path: Path, journal: Journal, make: Make
) -> None:
    commit(journal, 1, 2)
    process = make("hooked:keep")
    served(process, lambda: len(kept_events(tmp_path)) == 2 and process.pid is not None)
    assert process.pid is not None
    os.kill(process.pid, 9)
    served(process, lambda: process.pid is None)
    # A full disk would have left this place.
    write_place(tmp_path / "hooks.json", Place(after=0))
    commit(journal, 3, 3)
    served(process, lambda: 3 in kept_events(tmp_path))
    process.finish()
    assert kept_events(tmp_path) == [1, 2, 3]


def test_a_module_that_breaks_meanwhile_is_told(
    tmp_path: Path, journal: Journal, make: Make
) -> None:
    commit(journal, 1, 1)
    process = make("hooked:gone")
    told = served(process, lambda: process.pid is None and (tmp_path / "hooks.json").exists())
    while not told:
        told += process.poll()
    assert told[0].what.startswith("hooked:gone: hooked has no 'gone' in /")


def test_what_cannot_be_called_is_refused(tmp_path: Path) -> None:
    check_hooks(settings_of(tmp_path, "hooked:keep", ("sh", "-c", "exit 1")))
    bad: tuple[Hook, ...] = (
        "hooked:gone",
        "hooked:not_callable",
        "no_such_module:f",
        ("no-such-command",),
        ("./hooked.txt",),
    )
    with pytest.raises(ConfigError) as refused:
        check_hooks(settings_of(tmp_path, *bad))
    for said, begin in zip(
        str(refused.value).split("; "),
        [
            "hooks.on_event: hooked:gone: hooked has no 'gone'",
            "hooks.on_event: hooked:not_callable must be a function, got int",
            "hooks.on_event: no_such_module:f: there is no module 'no_such_module'",
            "hooks.on_event: there is no command 'no-such-command'",
            "hooks.on_event: there is no command './hooked.txt'",
        ],
        strict=True,
    ):
        assert said.startswith(begin)
