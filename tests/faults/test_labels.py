"""Hostile texts wherever a user's words are shown or stored: F36."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.checkpoints.files import resolve_key
from arena.errors import CheckpointError, ConfigError
from populations.config.run_config import validate_config
from populations.storage.journal import JournalReader
from tests.populations.small_run import SmallRun
from tests.support import exit_code

LABELS = (
    "../../x",
    "/etc/passwd",
    "..",
    "a/b",
    "a\\b",
    "<script>alert(1)</script>",
    "\u202egnp.exe",
    "two\nlines\r\nand more",
    "x" * 10_000,
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "back\x08space\x7f",
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "[bold]bold[/bold]",
    "[/]",
    "[link=https://example.org]here[/link]",
    ":smile:",
    "nul\0byte",
    "zero\u200bwidth\u2028separator",
    "$(reboot)`reboot`",
    "'; DROP TABLE events; --",
    '"quoted", and a comma',
    "%s%n{0}",
    "~root/.ssh",
    "💥é",
)
main = importlib.import_module("populations.commands.main").main
texts = importlib.import_module("populations.views.texts")
screens = importlib.import_module("populations.commands.terminal.screen")
ids = [ascii(label)[:30] for label in LABELS]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run whose events have each label once as their subject and once in their reason."""
    run_dir = tmp_path_factory.mktemp("labels") / "run"
    run_dir.mkdir()
    small = SmallRun(run_dir)
    with small.journal:
        for label in LABELS:
            small.note("assignment_failed", label, reason=label)
        yield run_dir


def lines_are_harmless(text: str) -> bool:
    """Nothing in it does anything to a terminal."""
    return all(line.isprintable() for line in text.split("\n"))


def test_they_come_back_from_the_journal_as_they_went_in(run: Path) -> None:
    with JournalReader(run / "journal.db") as reader:
        events = [row for row in reader.events() if row.kind == "assignment_failed"]
    assert tuple(row.subject for row in events) == LABELS
    assert tuple(row.data["reason"] for row in events) == LABELS


def test_json_has_them_as_they_are(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("league", str(run), "events", "--json") == 0
    text = capsys.readouterr().out
    assert lines_are_harmless(text)
    events = [e for e in json.loads(text)["events"] if e["kind"] == "assignment_failed"]
    assert tuple(event["subject"] for event in events) == LABELS
    assert tuple(event["reason"] for event in events) == LABELS


def test_no_cell_of_csv_begins_a_formula(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("league", str(run), "events", "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
    found = [row["subject"] for row in rows if row["kind"] == "assignment_failed"]
    assert len(found) == len(LABELS)
    for label, cell in zip(LABELS, found, strict=True):
        assert cell[0] not in "=+-@\t\r"
        guard = "'" if label[0] in "=+-@\t\r" else ""
        assert cell.replace("\r\n", "\n") == guard + escaped(label).replace("\r\n", "\n")


def escaped(label: str) -> str:
    """What a terminal would obey, as Python writes it."""
    return "".join(
        char if char.isprintable() or char in "\n\r\t" else char.encode("unicode_escape").decode()
        for char in label
    )


def test_a_table_shows_them_and_obeys_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("league", str(run), "events") == 0
    text = capsys.readouterr().out
    assert lines_are_harmless(text)
    assert "[bold]bold[/bold]" in text
    assert "\\x1b[31mred" in text
    assert "\\u202egnp.exe" in text


@pytest.mark.parametrize("label", LABELS, ids=ids)
def test_on_a_terminal_only_our_own_codes_do_anything(label: str) -> None:
    from rich.table import Table

    stream = io.StringIO()
    screen = screens.Screen(stream, force_terminal=True, width=200, color_system=None)
    table = Table(title=label)
    table.add_column(label)
    table.add_row(label)
    screen.print(table)
    screen.print(f"event: {label}", soft_wrap=True)
    assert lines_are_harmless(stream.getvalue())
    assert lines_are_harmless(texts.one_line(label))
    assert "\n" not in texts.one_line(label)
    assert len(texts.one_line(label, max_chars=400)) <= 403


@pytest.mark.parametrize("label", LABELS, ids=ids)
def test_none_of_them_names_a_population_or_a_path(label: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must match"):
        validate_config({"environment": {"id": "a:b"}, "populations": {label: {}}})
    for key in (f"populations/player/{label}", f"{label}/x"):
        with contextlib.suppress(CheckpointError):
            path = resolve_key(tmp_path, key)
            assert path.relative_to(tmp_path.resolve()).as_posix() == key
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("label", LABELS, ids=ids)
def test_what_complains_about_them_is_harmless_lines(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    document = json.dumps({"environment": {"id": label}, label: 1, "device": label})
    (tmp_path / "config.yaml").write_text(document)
    assert exit_code("launch", "config.yaml", "--run-dir", "run") == 2
    assert exit_code("launch", "rock_paper_scissors", f"device={json.dumps(label)}") == 2
    error = capsys.readouterr().err
    # There is one line for each fault, and a label adds no lines of its own.
    assert all(line.startswith(("arena: ", "  ")) for line in error.splitlines())
    assert error.count("\n") <= 5
    assert lines_are_harmless(error)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("label", LABELS, ids=ids)
def test_players_of_rated_results_may_be_called_anything(
    label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matches = tmp_path / "matches.csv"
    name = label.strip()
    with matches.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("home", "away", "score"))
        writer.writerows([(name, "other", "1"), ("other", name, "0.5")])
    assert exit_code("rate", str(matches), "--model", "elo", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    players = {line["player"].replace("\r\n", "\n") for line in document["ratings"]}
    assert players == {name.replace("\r\n", "\n"), "other"}
    assert exit_code("rate", str(matches), "--model", "elo") == 0
    shown = capsys.readouterr()
    assert lines_are_harmless(shown.out)
    assert lines_are_harmless(shown.err)
