"""Calls that follow from events: which, in which order, and where one goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from populations.config.hooks import Hook
from populations.config.run_config import RunConfig, validate_config
from populations.hooks.calls import CallQueue, Place, filled, read_place, write_place
from populations.hooks.make import make_hook_processes
from populations.hooks.process import HookSettings
from populations.hooks.supervisor import HookProcess
from populations.records.rows import EventRow, Json


def event(sequence: int, kind: str = "kept", subject: str = "", **data: Json) -> EventRow:
    return EventRow(sequence=sequence, time="now", kind=kind, subject=subject, data=data)


def queue_of(
    hooks: Mapping[str, tuple[Hook, ...]], *, limit: int = 100, place: Place | None = None
) -> CallQueue:
    return CallQueue(hooks=hooks, run_dir="/run", limit=limit, place=place or Place(after=0))


def made(queue: CallQueue) -> list[tuple[int, str]]:
    """Make all calls that wait."""
    names = []
    while (call := queue.take()) is not None:
        names.append((call.sequence, call.name))
        queue.record(call)
    return names


EVERY: dict[str, tuple[Hook, ...]] = {"on_end": ("m:end",), "on_event": ("m:one", ("two", "x"))}


def test_each_kind_of_hook_has_its_events() -> None:
    kinds = {
        "ghost_created": "on_ghost",
        "champion": "on_champion",
        "exploited": "on_exploit",
        "ratings_fitted": "on_evaluation",
        "run_stopped": "on_end",
        "export_due": "export",
    }
    hooks: dict[str, tuple[Hook, ...]] = {kind: ("m:f",) for kind in kinds.values()}
    queue = queue_of(hooks)
    queue.add([event(n, kind) for n, kind in enumerate(["kept", *kinds], start=1)])
    assert [name.partition(":")[0] for _, name in made(queue)] == list(kinds.values())


def test_a_hook_gets_the_event_as_the_view_has_it_with_run_and_kind() -> None:
    queue = queue_of({"on_exploit": ("m:f",)})
    queue.add([event(7, "exploited", "player/p001", donor="player/p000", gap=31.5)])
    call = queue.take()
    assert call is not None
    assert call.document == {
        "sequence": 7,
        "time": "now",
        "kind": "exploited",
        "subject": "player/p001",
        "donor": "player/p000",
        "gap": 31.5,
        "run": "/run",
        "hook": "on_exploit",
    }


def test_from_any_place_exactly_the_calls_that_were_not_made_follow() -> None:
    events = [event(1), event(2, "run_finished"), event(3), event(4)]
    whole = queue_of(EVERY)
    whole.add(events)
    expected = made(whole)
    assert len(expected) == 9
    for number in range(len(expected) + 1):
        first = queue_of(EVERY)
        first.add(events)
        for _ in range(number):
            call = first.take()
            assert call is not None
            first.record(call)
        again = queue_of(EVERY, place=first.place)
        again.add([row for row in events if row.sequence > first.place.after])
        assert made(again) == expected[number:]


def test_beyond_the_limit_the_oldest_calls_are_dropped_and_counted_but_the_end_is_told() -> None:
    queue = queue_of(EVERY, limit=4)
    queue.add([event(1, "run_stopped"), *(event(n) for n in range(2, 8))])
    calls = made(queue)
    assert calls == [
        (1, "on_end: m:end"),
        (6, "on_event[1]: two"),
        (7, "on_event: m:one"),
        (7, "on_event[1]: two"),
    ]
    assert queue.place == Place(after=7, dropped=11)


def test_exports_that_would_be_removed_at_once_are_not_made() -> None:
    queue = CallQueue(
        hooks={"export": ("m:f",), "on_event": ("m:f",)},
        run_dir="/run",
        limit=100,
        place=Place(after=0),
        keep_exports=2,
    )
    subjects = ["player/p000", "player/p001", *["player/p000"] * 3]
    queue.add([event(n, "export_due", subject) for n, subject in enumerate(subjects, start=1)])
    calls = made(queue)
    assert [sequence for sequence, name in calls if name == "export"] == [2, 4, 5]
    assert len(calls) == 3 + len(subjects)
    assert queue.place == Place(after=5)


def test_without_time_only_the_end_is_told_where_somebody_wants_to_hear_of_it() -> None:
    queue = queue_of(EVERY)
    queue.add([event(1), event(2, "run_finished")])
    queue.drop_all_but_ends()
    assert made(queue) == [(2, "on_end: m:end")]
    assert queue.place.dropped == 4
    others = queue_of({"on_event": ("m:one",)})
    others.add([event(1), event(2, "run_finished")])
    # A resume makes these calls, so dropping them loses nothing.
    others.drop_all_but_ends()
    assert len(others) == 2


def test_placeholders_are_filled_from_the_event_and_other_braces_stay() -> None:
    queue = queue_of({"on_champion": ("m:f",), "on_ghost": ("m:f",), "on_end": ("m:f",)})
    queue.add(
        [
            event(1, "champion", "player/p001", population="player", player="player/p001@70"),
            event(2, "ghost_created", "prey/p002@000000000500"),
            event(3, "run_failed"),
        ]
    )
    documents = []
    while (call := queue.take()) is not None:
        documents.append(call.document)
    command = ("{run}/x", "{player}", "{population}-{sequence}", "{kind}", "{other} {'a': 1}")
    rest = "{other} {'a': 1}"
    assert [filled(command, document) for document in documents] == [
        ["/run/x", "player/p001@70", "player-1", "champion", rest],
        ["/run/x", "prey/p002@000000000500", "prey-2", "ghost_created", rest],
        ["/run/x", "", "-3", "run_failed", rest],
    ]


def config_of(**sections: object) -> RunConfig:
    return validate_config({"environment": {"id": "a:b"}, **sections})


def made_processes(config: RunConfig, run: Path, *, is_new: bool = False) -> list[HookProcess]:
    return make_hook_processes(
        config,
        run,
        launch_directory="/launch",
        command=("python",),
        num_events=40,
        is_new=is_new,
    )


HOOKED = config_of(hooks={"on_end": ["a:b", ["c"]], "time_limit_s": 7})
EXPORTING = config_of(checkpoints={"export_every_agent_steps": 10})


@pytest.mark.parametrize("every", [None, 0])
def test_without_hooks_and_exports_there_is_no_process(tmp_path: Path, every: int | None) -> None:
    config = config_of(checkpoints={"export_every_agent_steps": every})
    assert made_processes(config, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_end_waits_one_limit_for_the_backlog_and_one_for_each_hook(tmp_path: Path) -> None:
    (process,) = made_processes(HOOKED, tmp_path)
    assert process.end_s == 21.0
    assert isinstance(process.settings, HookSettings)
    assert process.settings.hooks == {"on_end": ("a:b", ("c",))}
    assert process.settings.launch_directory == "/launch"


def test_an_export_has_a_process_and_an_alert_of_its_own(tmp_path: Path) -> None:
    (process,) = made_processes(EXPORTING, tmp_path)
    assert process.alert == "export_failed"
    assert isinstance(process.settings, HookSettings)
    ((command,),) = process.settings.hooks.values()
    assert command[:3] == ("python", "export", "--trust")
    assert "{run}/exports/{to}" in command
    # The export plays no matches.
    assert command[command.index("--matches") + 1] == "0"


def test_hooks_begin_with_the_run_or_with_the_resume_that_brings_them(tmp_path: Path) -> None:
    path = tmp_path / "hooks.json"
    made_processes(HOOKED, tmp_path, is_new=True)
    assert read_place(path) == Place(after=0)
    path.unlink()
    made_processes(HOOKED, tmp_path)
    assert read_place(path) == Place(after=40)
    # Later resumes continue after the last call that is known to be done.
    write_place(path, Place(after=17))
    made_processes(HOOKED, tmp_path)
    assert read_place(path) == Place(after=17)
    # Without hooks the place is removed, so hooks that are added again start anew.
    made_processes(EXPORTING, tmp_path)
    assert read_place(path) is None
    assert read_place(tmp_path / "exports.json") == Place(after=40)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"after": "x", "done": [], "dropped": 0}'])
def test_what_is_no_place_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hooks.json"
    assert read_place(path) is None
    path.write_text(text)
    assert read_place(path) is None
