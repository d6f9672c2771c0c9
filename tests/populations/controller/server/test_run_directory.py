"""A run's directory: made whole or not at all, opened and closed without anything left open."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from arena.checkpoints.files import STORE_ID
from arena.failpoints import armed
from arena.types import Digest, WeightsRef
from populations.config.run_config import RunConfig, validate_config
from populations.config.run_file import RunFile
from populations.controller.evolution.initial_policies import initial_policies
from populations.controller.evolution.resets import immigrant_key
from populations.controller.monitoring.sinks import Sinks
from populations.controller.server import run_directory
from populations.controller.server.run_directory import (
    OpenRun,
    clear_run,
    create_run,
    has_run,
    imported_immigrants,
    imported_players_weights,
    make_run_directory,
)
from populations.errors import StorageError
from populations.storage.journal import Journal, JournalReader
from tests.populations.small_run import duel_run_file

FILES = {"weights.safetensors": b"w", "manifest.json": b"{}"}
DIGEST = Digest(hashlib.sha256(b"w").hexdigest())


def config(**sections: object) -> RunConfig:
    """A configuration of four policies whose learning rate may change."""
    population: dict[str, object] = {
        "size": 4,
        "hyperparameters": {"learning_rate": 1e-3},
        "search_space": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
    }
    environment = {"id": "tests.duel:env"}
    populations = {"player": population}
    return validate_config({"environment": environment, "populations": populations, **sections})


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """An empty directory."""
    make_run_directory(tmp_path / "runs" / "run")
    return tmp_path / "runs" / "run"


def create(run_dir: Path) -> RunFile:
    """Make a run of weights that came from elsewhere."""
    run_file = duel_run_file()
    create_run(
        run_dir,
        run_file,
        initial_weights={"player": FILES},
        origins={"player": {"from": "elsewhere"}},
        immigrants={"immigrants/player/000": FILES},
        utc="2026-01-01T00:00:00+00:00",
    )
    return run_file


def open_files(run_dir: Path) -> list[str]:
    """Files of a run that this process holds open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue  # the fault is in the listing itself
        if target.startswith(str(run_dir)):
            found.append(target)
    return found


def test_a_directory_that_is_there_is_taken_and_one_in_the_way_of_a_file_refused(
    tmp_path: Path,
) -> None:
    make_run_directory(tmp_path / "a" / "b")
    make_run_directory(tmp_path / "a" / "b")
    assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "b"]
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        make_run_directory(tmp_path / "file" / "run")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("run.yaml", True), ("journal.db", True), ("controller.lock", False), ("logs", False)],
)
def test_a_directory_has_a_run_by_its_two_files(run_dir: Path, name: str, expected: bool) -> None:
    assert not has_run(run_dir)
    (run_dir / name).touch()
    assert has_run(run_dir) == expected


def test_a_new_run_holds_its_policies_and_says_where_they_came_from(run_dir: Path) -> None:
    run_file = create(run_dir)
    assert {path.name for path in run_dir.iterdir()} == {
        "run.yaml", "journal.db", "journal.backup.db", "populations", "logs", "imports",
        "immigrants",
    }  # fmt: skip
    assert RunFile.load(run_dir / "run.yaml") == run_file
    for key in ("imports/player", "immigrants/player/000"):
        found = {path.name: path.read_bytes() for path in (run_dir / key).iterdir()}
        assert found == FILES
    with JournalReader(run_dir / "journal.db") as reader:
        events = list(reader.events())
    policies = initial_policies(run_file.config)
    assert [(event.sequence, event.kind, event.subject) for event in events] == [
        (1, "weights_imported", "player"),
        *((2 + row.index, "policy_created", row.policy) for row in policies),
    ]
    assert {event.time for event in events} == {"2026-01-01T00:00:00+00:00"}
    assert events[0].data == {"from": "elsewhere"}
    assert [event.data["reference"] for event in events[1:]] == [row.index == 0 for row in policies]
    with Journal.open(run_dir / "journal.db") as journal:
        tables = journal.load()
    assert list(tables.policies.values()) == policies
    assert [(row.policy, row.cause) for row in tables.generations.values()] == [
        (row.policy, "start") for row in policies
    ]
    with Journal.open(run_dir / "journal.backup.db") as backup:
        assert backup.load() == tables


def test_a_run_that_was_half_made_is_made_anew(run_dir: Path) -> None:
    with armed("create.journal=raise:EIO"), pytest.raises(StorageError):
        create(run_dir)
    # The journal exists, but not run.yaml, without which the run cannot continue.
    assert has_run(run_dir)
    assert not (run_dir / "run.yaml").exists()
    run_file = create(run_dir)
    with OpenRun(run_dir) as run:
        assert run.state.tables.run.run == run_file.run


def test_what_is_cleared_is_gone_but_for_the_lock_and_what_links_name(
    run_dir: Path, tmp_path: Path
) -> None:
    create(run_dir)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (run_dir / "link").symlink_to(elsewhere)
    (run_dir / "controller.lock").touch()
    clear_run(run_dir)
    assert [path.name for path in run_dir.iterdir()] == ["controller.lock"]
    assert (elsewhere / "kept").exists()
    create(run_dir)


def test_a_run_that_is_half_thrown_away_is_none(run_dir: Path) -> None:
    create(run_dir)
    with armed("create.clear=raise:EIO"), pytest.raises(StorageError):
        clear_run(run_dir)
    assert not (run_dir / "run.yaml").exists()
    assert (run_dir / "journal.db").exists()


def test_an_opened_run_resumes_as_it_was_left(run_dir: Path) -> None:
    run_file = create(run_dir)
    with OpenRun(run_dir) as run:
        assert (run.run_dir, run.run_file) == (run_dir, run_file)
        assert run.state.tables == run.journal.load()
        digest = run.setup.digest
        assert json.loads((run_dir / "learner.json").read_text())["root"] == str(run_dir)
        reference = WeightsRef(digest=DIGEST, key="imports/player")
        assert run.state.settings.initial_weights == {"player": reference}
        run.note_event("settings_changed", {}, utc="now")
        assert run.journal.load() == run.state.tables
        run.note_event("settings_changed", {"learners": 3}, utc="then")
        tables = run.journal.load()
        assert run.state.tables == tables
        store = run.state.settings.store
    assert open_files(run_dir) == []
    (run_dir / "learner.json").unlink()
    (run_dir / "logs").rmdir()
    with OpenRun(run_dir) as run:
        assert run.state.tables == tables
        assert (run.setup.digest, run.state.settings.store) == (digest, store)
        assert (run_dir / "learner.json").exists()
        assert (run_dir / "logs").is_dir()
    with JournalReader(run_dir / "journal.db") as reader:
        (event,) = reader.events(kinds=["settings_changed"])
    assert (event.time, event.subject, event.data) == ("then", "", {"learners": 3})


def test_a_directory_without_a_run_is_refused(run_dir: Path) -> None:
    with pytest.raises(Exception, match=r"run\.yaml"):
        OpenRun(run_dir)
    create(run_dir)
    (run_dir / "journal.db").unlink()
    with pytest.raises(StorageError, match="there is no journal"):
        OpenRun(run_dir)
    assert open_files(run_dir) == []


def fail(*arguments: object, **named: object) -> None:
    raise RuntimeError("it broke")


@pytest.mark.parametrize(
    "name", ["make_store_id", "recover", "imported_weights", "make_state", "Sinks"]
)
def test_a_failure_while_opening_leaves_nothing_open(
    run_dir: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(run_dir)
    opened: list[list[str]] = []
    open_journal = Journal.open

    def watched(path: Path) -> Journal:
        journal = open_journal(path)
        opened.append(open_files(run_dir))
        return journal

    monkeypatch.setattr(Journal, "open", watched)
    monkeypatch.setattr(run_directory, name, fail)
    with pytest.raises(RuntimeError, match="it broke"):
        OpenRun(run_dir)
    assert str(run_dir / "journal.db") in opened[0], "it was open when that failed"
    assert open_files(run_dir) == []
    monkeypatch.undo()
    with OpenRun(run_dir):
        pass


def test_sinks_are_closed_while_the_journal_is_open(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(run_dir)
    seen: list[list[str]] = []
    # The method is replaced before the opening, which stores a reference to it.
    close = Sinks.close

    def watched(sinks: Sinks) -> None:
        seen.append(open_files(run_dir))
        close(sinks)

    monkeypatch.setattr(Sinks, "close", watched)
    with OpenRun(run_dir):
        assert seen == []
    (at_closing,) = seen
    assert str(run_dir / "journal.db") in at_closing
    assert open_files(run_dir) == []


def test_immigrants_are_those_of_the_configuration_and_must_be_there(run_dir: Path) -> None:
    create(run_dir)
    assert imported_immigrants(run_dir, config()) == {}
    named = config(pbt={"immigration": {"probability": 0.5, "from": ["a", "b"]}})
    keys = [immigrant_key("player", index) for index in range(2)]
    for key in keys:
        with pytest.raises(StorageError, match=r"cannot be read: No such file"):
            imported_immigrants(run_dir, named)
        (run_dir / key).mkdir(parents=True, exist_ok=True)
        (run_dir / key / "weights.safetensors").write_bytes(b"w")
    expected = {key: WeightsRef(digest=DIGEST, key=key) for key in keys}
    assert imported_immigrants(run_dir, named) == expected


def test_players_of_other_runs_are_what_was_copied_of_them(run_dir: Path) -> None:
    named = config(
        matchmaking={"bots": {"bot:random": 0.25, "exports/one": 0.5}},
        evaluation={"bots": ["bot:random", "exports/one", "exports/two"]},
    )
    # The second player has weights for this population, the third has none.
    key = "outsiders/001/player"
    (run_dir / key).mkdir(parents=True)
    weights = run_dir / key / "weights.safetensors"
    weights.write_bytes(b"w")
    expected = {key: WeightsRef(digest=DIGEST, key=key)}
    # Earlier releases did not record the digests.
    for recorded in ({}, {key: DIGEST}):
        assert imported_players_weights(run_dir, named, recorded) == expected
    weights.write_bytes(b"x")
    with pytest.raises(
        StorageError, match=r"not what was copied of exports/one at launch: its sha"
    ):
        imported_players_weights(run_dir, named, {key: DIGEST})
    weights.unlink()
    with pytest.raises(StorageError, match=r"cannot be read: No such file"):
        imported_players_weights(run_dir, named, {key: DIGEST})


def test_a_run_finds_the_weights_of_other_runs_by_what_it_has_recorded(run_dir: Path) -> None:
    run_file = duel_run_file()
    evaluation = run_file.config.evaluation.model_copy(update={"bots": ("bot:random", "elsewhere")})
    named = run_file.config.model_copy(update={"evaluation": evaluation})
    key = "outsiders/001/player"
    create_run(
        run_dir,
        replace(run_file, config=named),
        initial_weights={},
        immigrants={key: FILES},
        outsiders={key: {"origin": "elsewhere", "weights": DIGEST}},
        utc="2026-01-01T00:00:00+00:00",
    )
    with OpenRun(run_dir) as run:
        found = [
            one for one in run.state.settings.external_players["player"] if one.weights is not None
        ]
        assert [(one.player, one.is_rated) for one in found] == [("outsider:elsewhere", True)]
    (run_dir / key / "weights.safetensors").write_bytes(b"x")
    with pytest.raises(StorageError, match="not what was copied of elsewhere"):
        OpenRun(run_dir)


@pytest.mark.parametrize("form", ["learner.json", f".{STORE_ID}.{{}}.tmp"])
def test_a_run_writes_through_no_link(run_dir: Path, form: str) -> None:
    """Of a directory from elsewhere it could lead to any file of the user."""
    create(run_dir)
    # Each process writes to a temporary file with a name of its own.
    name = form.format(os.getpid())
    (run_dir / STORE_ID).unlink(missing_ok=True)
    notes = run_dir.parent / "notes"
    notes.write_text("of the user")
    (run_dir / name).unlink(missing_ok=True)
    (run_dir / name).symlink_to(notes)
    with pytest.raises(StorageError, match=f"{name}: a symbolic link"):
        OpenRun(run_dir)
    assert notes.read_text() == "of the user"


def test_a_launch_that_cannot_be_noted_says_why(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file where a directory is needed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    why_not = create_run(run_dir, duel_run_file(), initial_weights={}, utc="now")
    assert why_not is not None
    assert why_not.endswith(": Not a directory")
    assert has_run(run_dir)
