"""The stored conversations: each is made, played again, and compared.

A golden is a directory: ``setting.yaml`` (by hand) says what is run, ``talk.jsonl`` is the record,
the other files are what users saw at the looks that the setting names, and at the end. All but the
setting are compressed, and are read by `stored`.
"""

from __future__ import annotations

import json
import lzma
import os
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.goldens.conversations.crew import Crew
from tests.goldens.conversations.looks import LOGS, QUICK, VIEWS, compare, findings, look
from tests.goldens.conversations.script import Parted, Script
from tests.goldens.conversations.stage import Cast, Stage
from tests.goldens.conversations.today import serve
from tests.goldens.forms import Document

HERE = Path(__file__).parent
TALK = "talk.jsonl"
NAMES = sorted(path.parent.name for path in HERE.glob("*/setting.yaml"))
MOST_DIFFERENCES = 20


def make(name: str) -> Mapping[str, str]:
    """Hold a conversation with simulated learners; return the content of each stored file."""
    setting = _setting(name)
    crew = Crew(setting)
    found = _play(setting, crew)
    # A tick's time has no more digits than the stored line.
    lines = [json.dumps(line, separators=(",", ":"), allow_nan=False) for line in crew.lines]
    return {TALK: "".join(f"{line}\n" for line in lines), **found}


def parting(name: str, *, is_quick: bool = False) -> list[str]:
    """Play the record of a conversation, and say what is not as it was, the first thing first.

    Quickly means: only some views at the end, and nothing on the way.
    """
    return list(_parting(name, is_quick=is_quick))


def _parting(name: str, *, is_quick: bool) -> Iterator[str]:
    script = Script([json.loads(line) for line in stored(name, TALK).splitlines()])
    try:
        found = _play(_setting(name), script, is_quick=is_quick)
        script.finish()
    except Parted as parted:
        yield str(parted)
        return
    except Exception:
        yield f"the controller raised {script.place}:\n{traceback.format_exc(limit=-4)}"
        return
    for file, content in found.items():
        expected = stored(name, file)
        if is_quick:
            whole = json.loads(expected)
            expected = json.dumps({view: whole[view] for view in QUICK})
        for number, difference in enumerate(compare(file, expected, content)):
            if number == MOST_DIFFERENCES:
                yield f"{file}: and more"
                break
            yield f"{file} {difference}"


@contextmanager
def played(name: str, **changes: Any) -> Iterator[Path]:
    """Play the record of a conversation, with other keys of its configuration.

    Yields:
        Its run directory, which is gone afterwards.
    """
    script = Script([json.loads(line) for line in stored(name, TALK).splitlines()])
    setting = _setting(name)
    setting["config"].update(changes)
    with _place() as place:
        serve(place / "run", setting, Stage(script, lambda moment: None))
        yield place / "run"


def stored(name: str, file: str, *, root: Path = HERE) -> str:
    """Return the content of a stored file; empty if there is none."""
    path = root / name / f"{file}.xz"
    return lzma.decompress(path.read_bytes()).decode() if path.exists() else ""


def store(name: str, content: Mapping[str, str], *, root: Path = HERE) -> None:
    """Write what differs from what is stored."""
    (root / name).mkdir(parents=True, exist_ok=True)
    for file, text in content.items():
        # An unchanged text keeps its bytes, because another library may compress it differently.
        if stored(name, file, root=root) != text:
            (root / name / f"{file}.xz").write_bytes(lzma.compress(text.encode()))


def _setting(name: str) -> Document:
    setting: Document = yaml.safe_load((HERE / name / "setting.yaml").read_text(encoding="utf8"))
    return setting


def _play(setting: Document, cast: Cast, *, is_quick: bool = False) -> dict[str, str]:
    """Let a server talk to a cast; what users see, by file."""
    found: dict[str, str] = {}
    with _place() as place:
        run, players = place / "run", setting["why"]

        def save(moment: str, forms: Sequence[str], views: Sequence[str], *why: str) -> None:
            for form, text in look(run, views, why, forms=forms).items():
                name = f"{moment}.{form}" + (".txt" if form.isdigit() else "")
                found[name] = text

        def look_on(moment: str) -> None:
            if not is_quick:
                save(moment, ["json"], [view for view in VIEWS if view not in LOGS], *players)

        serve(run, setting, Stage(cast, look_on))
        if is_quick:
            save("end", ["json"], QUICK)
        else:
            save("end", ["json", "csv", "80", "140"], VIEWS, *players)
            found["verify.json"] = findings(run)
    return found


@contextmanager
def _place() -> Iterator[Path]:
    """A directory that is gone afterwards; launches are recorded in it, not at home."""
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_STATE_HOME"] = directory
        try:
            yield Path(directory).resolve()
        finally:
            os.environ.pop("XDG_STATE_HOME")
            if before is not None:
                os.environ["XDG_STATE_HOME"] = before
