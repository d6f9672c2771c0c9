"""What a run gives to other programs and to browsers: points, hooks, figures for Prometheus, pages.

    python -m tests.goldens.outlets            # compare with what is stored
    python -m tests.goldens.outlets --make     # store what is given now

A stored conversation is played with a sink of a user's own. Of its run directory hooks are called,
a function and commands, and ``arena web`` is asked for its metrics. Pages are those of its export:
their charts as specifications, and the rest as lines.
"""

from __future__ import annotations

import http
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.goldens.conversations.golden import played
from tests.goldens.conversations.looks import dump
from tests.goldens.forms import Document, plain
from tests.goldens.recorder import CALLS, POINTS
from tests.goldens.store import main
from tests.goldens.today import call_hooks, pages_of

STORED = Path(__file__).parent / "outlets"
CONVERSATION = "competition"
TOKEN = "golden-token"
CHART = re.compile('<script type="application/json">(.*?)</script>', re.DOTALL)
ATTEMPTS = 300
ARENA = Path(sys.executable).with_name("arena")
FUNCTION = "tests.goldens.recorder:keep"
KEEP = '(cat; echo) >> "$0/calls.jsonl"; echo "$*" >> "$0/arguments.txt"'
FILLED_IN = ("run", "player", "population", "kind", "subject", "sequence")
COMMAND = ["sh", "-c", KEEP, *(f"{{{name}}}" for name in FILLED_IN)]
HOOKS = {
    "on_event": [FUNCTION],
    **{
        name: [FUNCTION, COMMAND]
        for name in ("on_ghost", "on_champion", "on_exploit", "on_evaluation", "on_end")
    },
}


@cache
def given() -> Mapping[str, str]:
    """Return the content of each file."""
    sinks = ["jsonl", "tests.goldens.recorder:Recorder"]
    with played(CONVERSATION, metrics={"sinks": sinks}) as run:
        call_hooks(run, HOOKS)
        return {
            "points.json.xz": dump(list(_lines(run, POINTS))),
            "metrics.json.xz": dump(list(_lines(run, "metrics.jsonl"))),
            "hooks.json.xz": dump(_hooks(run)),
            "prometheus.json": dump(_samples(_asked(run, "*/*"))),
            "pages.json.xz": dump({name: _parts(page) for name, page in pages_of(run).items()}),
            "openmetrics.json": dump(_samples(_asked(run, "application/openmetrics-text"))),
        }


def _lines(run: Path, name: str) -> Iterator[Document]:
    for line in (run / name).read_text(encoding="utf8").splitlines():
        document = json.loads(line.replace(str(run), "RUN"))
        # The checksum covers all digits, the last of which depend on the machine.
        document.pop("crc32", None)
        yield plain(document)


def _hooks(run: Path) -> Document:
    arguments = (run / "arguments.txt").read_text(encoding="utf8").replace(str(run), "RUN")
    return {"calls": list(_lines(run, CALLS)), "arguments": arguments.splitlines()}


def _asked(run: Path, kind: str) -> str:
    """Return the text of ``/metrics``, with its type."""
    headers = {"accept": kind, "authorization": f"Bearer {TOKEN}"}
    with _page(run) as address:
        for _ in range(ATTEMPTS):
            try:
                request = urllib.request.Request(address, headers=headers)
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return f"{answer.headers['content-type']}\n{answer.read().decode()}"
            except urllib.error.HTTPError as error:
                # Until its data are computed, the page answers 503.
                if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
                time.sleep(0.2)
    raise AssertionError(f"{address} is not ready")


def _samples(text: str) -> list[Any]:
    """The lines of a text of figures, values as numbers: they come from fits."""
    lines: list[Any] = []
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        is_sample = "{" in name and not line.startswith("#")
        lines.append([name, plain(float(value))] if is_sample else line)
    return lines


def _parts(page: str) -> Document:
    """A page's specifications of charts, and its other lines, with six digits of their numbers."""
    text = re.sub(r"-?\d+\.\d{7,}", lambda found: f"{float(found[0]):.6g}", CHART.sub("", page))
    charts = [plain(json.loads(one)) for one in CHART.findall(page)]
    return {"charts": charts, "lines": text.splitlines()}


@contextmanager
def _page(run: Path) -> Iterator[str]:
    command = [str(ARENA), "web", str(run), "--port", "0", "--token", TOKEN]
    with (
        TemporaryDirectory() as scratch,
        (Path(scratch) / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            # The first line is the page's address with its token.
            parts = urllib.parse.urlsplit(server.stdout.readline().strip())
            yield urllib.parse.urlunsplit(parts._replace(path="/metrics", query=""))
        finally:
            server.terminate()


FILES = (
    *("points.json.xz", "metrics.json.xz", "hooks.json.xz"),
    *("prometheus.json", "openmetrics.json", "pages.json.xz"),
)


def _content(name: str) -> str:
    return given()[name]


MAKERS: Mapping[str, Callable[[], str]] = {name: partial(_content, name) for name in FILES}


if __name__ == "__main__":
    main(__doc__, STORED, MAKERS, sys.argv[1:])
