"""A copy of a checkout, in which an edit is planted and the tests nearest to it are run."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import cache_from_source
from itertools import takewhile
from pathlib import Path
from typing import Literal, Self

from experiments.faults.mutants.mutations import Edit
from experiments.house import module_of

BATCHES = (4, 20)
"""Test files that run together. The first are the nearest, so most mutants need no others."""
QUICK = "not slow and not faults"
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", re.MULTILINE)
IMPORT = re.compile(r"^ *(?:from|import) ([\w.]+)(?: import (\([^)]*\)|.*))?$", re.MULTILINE)
NAMED = re.compile(r"[\"']((?:arena|populations|tools)(?:\.\w+)+)")
"""Modules that are imported by their names, when something in them is first used."""
MARKER = "ARENA_PLANTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of the tests of an edit.

    Attributes:
        outcome: ``timeout``: a test did not end, or a module that all tests import; ``over``: the
            time was over while tests passed.
        found_by: The test that failed or did not end; None if none did.
        num_files: Test files that were begun.
    """

    outcome: Literal["found", "lived", "timeout", "over"]
    found_by: str | None = None
    num_files: int = 0


class Copy:
    """A copy of a checkout, and the tests that reach each of its modules.

    Tests that fail without an edit are noticed when they find their first one, and left out.
    """

    def __init__(self, checkout: Path, root: Path, *, limit_s: float) -> None:
        """Copy what git knows of a checkout, and what it does not ignore.

        Args:
            checkout: Directory with the virtual environment that runs this.
            root: Directory that is made.
            limit_s: Most seconds that tests of an edit take, and half of it a single one.
        """
        self.root = root
        self._limit_s = limit_s
        self._passes: dict[str, bool] = {}
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=checkout,
            capture_output=True,
            check=True,
        )
        for name in listed.stdout.decode().split("\0"):
            if name and (checkout / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / name, root / name, follow_symlinks=False)
        # The finder of an editable installation contains the checkout's path. A copy of it with the
        # path of the mutated tree comes first, so that commands and child processes import that
        # tree.
        for finder in Path(sysconfig.get_path("purelib")).glob("__editable___arena_*_finder.py"):
            text = finder.read_text(encoding="utf8").replace(str(checkout), str(root))
            (root / ".finder").mkdir()
            (root / ".finder" / finder.name).write_text(text, encoding="utf8")
        self._importers = _importers(root)
        paths = os.pathsep.join((str(root / ".finder"), str(root)))
        self._runner = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("runner.py"))],
            cwd=root,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process that runs tests."""
        self._runner.kill()
        self._runner.wait()
        for pipe in filter(None, (self._runner.stdin, self._runner.stdout)):
            pipe.close()

    @contextmanager
    def planted(self, edit: Edit) -> Iterator[None]:
        """Hold an edit for a while."""
        path = self.root / edit.file
        before = path.read_bytes()
        path.write_bytes(edit.planted(before))
        # The stale bytecode would be used: both contents may have the same size and modification
        # second.
        bytecode = Path(cache_from_source(str(path)))
        bytecode.unlink(missing_ok=True)
        try:
            yield
        finally:
            path.write_bytes(before)
            bytecode.unlink(missing_ok=True)

    def tests_of(self, file: str) -> list[str]:
        """Return the test files that reach a module, the nearest first.

        The test of its name comes first, then those that import it, then those that import what
        imports it, last those in its folder; of equally near ones those in nearer folders.
        """
        ranks: dict[str, int] = {}
        level = {file}
        for rank in range(4):
            for name in level:
                ranks.setdefault(name, rank)
            level = {i for name in level for i in self._importers[name]} - set(ranks)
        own = Path("tests", file)
        mirror = own.with_name(f"test_{own.name}").as_posix()
        # Tests of commands do not import the modules of the command, so they are found by their
        # folder.
        for path in (self.root / own.parent).rglob("test_*.py"):
            ranks.setdefault(path.relative_to(self.root).as_posix(), 4)

        def nearness(name: str) -> tuple[bool, int, int, str]:
            pairs = zip(Path(mirror).parts, Path(name).parts, strict=False)
            num_shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            return name != mirror, ranks[name], -num_shared, name

        return sorted((n for n in ranks if Path(n).name.startswith("test_")), key=nearness)

    def test(self, files: Sequence[str], *, marks: str = QUICK) -> Outcome:
        """Run tests, the nearest files first, until one fails or the time is over."""
        end_s = time.monotonic() + self._limit_s
        begun, outcome = 0, Outcome(outcome="lived")
        for size in BATCHES:
            batch = files[begun : begun + size]
            if not batch or outcome.outcome != "lived":
                break
            begun += len(batch)
            outcome = self._run(batch, end_s=end_s, marks=marks)
        return replace(outcome, num_files=begun)

    def is_sound(self, test: str, *, marks: str = QUICK) -> bool:
        """Return whether a test passes in the copy as it is now; if not, leave it out from now."""
        if test not in self._passes:
            outcome = self._run([test], end_s=time.monotonic() + self._limit_s, marks=marks)
            self._passes[test] = outcome.outcome == "lived"
        return self._passes[test]

    def _run(self, tests: Sequence[str], *, end_s: float, marks: str) -> Outcome:
        marker = str(uuid.uuid4())
        output = self.root / ".output"
        args = ["-x", "-q", "--tb=no", "-rfE", "-n", "0", "-p", "no:randomly", "-m", marks]
        args += [f"--timeout={self._limit_s / 2:g}", "--hypothesis-seed=1", *tests]
        args += [f"--deselect={test}" for test, passes in self._passes.items() if not passes]
        request = {"args": args, "environ": {MARKER: marker}, "output": str(output)}
        stdin, stdout = self._runner.stdin, self._runner.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()
        fork = int(stdout.readline())
        is_over = not select.select([stdout], [], [], max(1.0, end_s - time.monotonic()))[0]
        if is_over:
            os.kill(fork, signal.SIGKILL)
        code = int(stdout.readline())
        _kill_marked(marker)
        text = output.read_text(encoding="utf8", errors="replace")
        if failed := FAILED.search(text):
            is_slow = (failed[2] or "").startswith("Failed: Timeout")
            return Outcome(outcome="timeout" if is_slow else "found", found_by=failed[1])
        if is_over:
            has_passed = re.search(r"^\.", text, re.MULTILINE)
            return Outcome(outcome="over" if has_passed else "timeout")
        # Exit code 5 means that all tests of these files are marked slow.
        found_by = None if code in {0, 5} else f"exit code {code}"
        return Outcome(outcome="found" if found_by else "lived", found_by=found_by)


def _kill_marked(marker: str) -> None:
    """Kill what tests started and a planted edit kept from ending."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARKER}={marker}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue  # The process has ended, or belongs to another user.


def _importers(root: Path) -> Mapping[str, set[str]]:
    """Return for each file those that import it."""
    paths = [path.relative_to(root) for path in sorted(root.rglob("*.py"))]
    files = {module_of(path): path for path in paths}
    found: dict[str, set[str]] = defaultdict(set)
    for path in files.values():
        # Imports are found by regular expressions, because `ast` needs 15 s for all files.
        text = (root / path).read_text(encoding="utf8")
        for module, names in [*IMPORT.findall(text), *((name, "") for name in NAMED.findall(text))]:
            name = module.lstrip(".")
            level = len(module) - len(name)
            above = path.parts[: len(path.parts) - level] if level else ()
            parts = (*above, *filter(None, name.split(".")))
            # An imported name may be a module, or something inside one.
            named = {(*parts, name) for name in re.findall(r"\w+", names)} & files.keys()
            for other in named or {parts} & files.keys():
                found[files[other].as_posix()].add(path.as_posix())
    return found
