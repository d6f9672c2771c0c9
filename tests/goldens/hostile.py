"""What becomes of frames, manifests and journals that are not what they should be.

    python -m tests.goldens.hostile            # compare with what is stored
    python -m tests.goldens.hostile --make     # store what is found now

`hostile.yaml` has the cases. `frames.json` says what a controller takes, notes and answers,
`fields.json` what becomes of each field with each wrong value, `damages.json` what ``arena verify``
finds in a run with a forged manifest or a damaged journal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgpack
import yaml

from tests.goldens.conversations.golden import played
from tests.goldens.conversations.looks import command, dump
from tests.goldens.forms import Document
from tests.goldens.store import main
from tests.goldens.today import BAD_ROWS, WRONG_ROWS, Door, damage_rows

HERE = Path(__file__).parent
STORED = HERE / "hostile"
MESSAGES = HERE.parent / "assets" / "wire_v3"
FROM_LEARNERS = ("hello", "heartbeat", "finished", "failed", "goodbye")
DAMAGE = "a row that is damaged: "

MAGIC, KIND, HEADER, BODY = range(4)


@cache
def cases() -> Document:
    """Read the cases."""
    document: Document = yaml.safe_load((HERE / "hostile.yaml").read_text(encoding="utf8"))
    return document


@cache
def _stored(message: str) -> tuple[bytes, ...]:
    text = (MESSAGES / f"{message}.hex").read_text(encoding="utf8")
    return tuple(bytes.fromhex(line) for line in text.split())


def frames_of(case: Document) -> list[bytes]:
    """Return the frames of a case."""
    if "frames" in case:
        return [bytes.fromhex(frame) for frame in case["frames"]]
    frames = list(_stored(case["message"]))
    for index, name in ((MAGIC, "magic"), (KIND, "kind"), (HEADER, "header"), (BODY, "body")):
        match case.get(name):
            case str(text):
                frames[index] = bytes.fromhex(text)
            case dict(changes):
                frames[index] = _changed(frames[index], changes)
    if "with" in case or "without" in case:
        frames[BODY] = _changed(frames[BODY], case.get("with", {}), without=case.get("without"))
    # Byte 0x91 begins a list of one element, so the repetition nests lists.
    first, rest = frames[BODY][:1], frames[BODY][1:]
    frames[BODY] = first * case.get("deep", 1) + rest
    if "wide" in case:
        frames[BODY] = b"\xdc" + case["wide"].to_bytes(2, "big") + frames[BODY] * case["wide"]
    return frames


def _changed(data: bytes, changes: Mapping[str, Any], *, without: str | None = None) -> bytes:
    """MessagePack with other values at paths."""
    document = msgpack.unpackb(data)
    for path, value in changes.items():
        _put(document, path, value)
    if without is not None:
        del document[without]
    packed: bytes = msgpack.packb(document)
    return packed


def _put(document: Any, path: str, value: Any) -> None:
    """Set a value at a path."""
    *way, last = (int(step) if step.isdigit() else step for step in path.split(">"))
    for step in way:
        document = document[step]
    document[last] = value


def _words(case: Document) -> str:
    return ", ".join(f"{key} {value}" for key, value in case.items())


def frames() -> str:
    """Return what becomes of each case, which is a peer of its own."""
    found = {}
    for case in cases()["frames"]:
        about = msgpack.unpackb(_stored("hello")[HEADER])
        door = Door(run=about["run"], epoch=about["epoch"])
        identity = case.get("identity", about["learner"]).encode()
        sent = frames_of(case)
        answers = [
            door.hear(identity, sent, now_s=0.1 * time) for time in range(case.get("times", 1))
        ]
        # Of many equal answers only the first one is kept, and all that were answered.
        told = [answers[0], *(one for one in answers[1:] if "answered" in one)]
        assert _words(case) not in found
        found[_words(case)] = {"answers": told, "dropped": door.counts}
    return dump(found)


def fields() -> str:
    """Return what becomes of each field of each message with each wrong value."""
    found: dict[str, Mapping[str, object]] = {}
    for message in FROM_LEARNERS:
        body = msgpack.unpackb(_stored(message)[BODY])
        for path in _paths(body):
            found[f"{message} {path}"] = {
                json.dumps(value): _outcome(message, path, value) for value in cases()["values"]
            }
        cut = Counter(
            _outcome_of([*_stored(message)[:BODY], _stored(message)[BODY][:length]])
            for length in range(len(_stored(message)[BODY]))
        )
        found[f"{message} cut off anywhere"] = dict(cut)
    return dump(found)


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """Paths of all parts of a document; of a list, of its first one."""
    if path:
        yield path.removeprefix(">")
    parts = value if isinstance(value, dict) else {}
    if isinstance(value, list) and value:
        parts = {0: value[0]}
    for name, part in parts.items():
        yield from _paths(part, f"{path}>{name}")


def _outcome(message: str, path: str, value: Any) -> str:
    stored = _stored(message)
    try:
        body = _changed(stored[BODY], {path: value})
    except OverflowError:
        return "cannot be written"
    return _outcome_of([*stored[:BODY], body])


def _outcome_of(sent: list[bytes]) -> str:
    about = msgpack.unpackb(sent[HEADER])
    heard = Door(run=about["run"], epoch=about["epoch"]).hear(
        about["learner"].encode(), sent, now_s=0.0
    )
    return "taken" if "taken" in heard else str(heard["noted"]["kind"])


def damages() -> str:
    """Return what ``arena verify`` finds in a run with a wrong manifest or row, and mends of it."""
    found = {}
    with played(cases()["conversation"]) as run:
        for name, damage in _damages():
            copy = run.parent / "damaged" / run.name
            shutil.copytree(run, copy)
            damage(copy)
            found[name] = {"found": _verified(copy)}
            if name.startswith(DAMAGE):
                found[name]["mended"] = _verified(copy, "--repair")
                found[name]["left"] = _verified(copy)
            shutil.rmtree(copy)
    return dump(found)


def _damages() -> Iterator[tuple[str, Callable[[Path], None]]]:
    for name in (*WRONG_ROWS, *BAD_ROWS):
        kind = "a row that is wrong: " if name in WRONG_ROWS else DAMAGE
        yield f"{kind}{name}", partial(damage_rows, what=name)
    for case in cases()["manifests"]:
        yield f"a manifest: {_words(case)}", partial(_forge, case=case)


def _forge(run: Path, *, case: Document) -> None:
    """Change the newest manifest. It is JSON that begins with the sha256 of what comes after."""
    path = sorted(run.glob("populations/*/*/checkpoints/0*/manifest.json"))[-1]
    text = path.read_text(encoding="utf8")
    document = json.loads(text)
    del document["sha256"]
    for place, value in case.get("with", {}).items():
        _put(document, place, value)
    for name in case.get("without", ()):
        del document[name]
    body = json.dumps(document, indent=2).removeprefix("{") + "\n"
    seal = hashlib.sha256(body.encode()).hexdigest() if case.get("sealed", True) else "0" * 64
    path.unlink()
    path.write_text(case.get("text", f'{{\n  "sha256": "{seal}",{body}'), encoding="utf8")


def _verified(run: Path, *options: str) -> Document:
    with contextlib.chdir(run.parent):
        code, output, errors = command(["verify", run.name, *options, "--json"])
    if not output:
        return {"exit_code": code, "error": errors.replace(str(run), "RUN").splitlines()}
    # Names of files that are set aside contain the time.
    output = re.sub(r"\b\d{8}T\d+Z", "MOMENT", output)
    document = json.loads(output.replace(str(run), "RUN"))
    del document["schema"], document["run"]
    return {"exit_code": code, **document}


MAKERS: Mapping[str, Callable[[], str]] = {
    "frames.json": frames,
    "fields.json": fields,
    "damages.json": damages,
}


if __name__ == "__main__":
    main(__doc__, STORED, MAKERS, sys.argv[1:])
