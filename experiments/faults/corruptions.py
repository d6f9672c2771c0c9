"""Random corruptions of run directories: what do `arena verify`, its repair and the views say?

    python -m experiments.faults.corruptions RUN [RUN ...] --number 2000 --json > found.json

Each trial copies a run that nobody has open, changes one file in one place, and has `verify`, three
views, `verify --repair`, `verify` and the views again: in a child of one warm process, as commands
of their own would need seconds for imports. Every file of a run is as likely as any other, every
place in it, too; one flipped bit is as likely as all else: a block of other bytes, a block of
zeros, a cut, a tail.

Nothing may end in a traceback or hang, and no view may say other numbers than before while `verify`
finds nothing. What came of each kind of place is kept (`tests/assets/corruptions.json`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from experiments.faults.byte_places import Places, file_kind
from experiments.harness import add_result, parser_of, say_document

VIEWS = (
    *("standings", "payoff", "lineage", "hyperparameters", "matches", "checkpoints", "events"),
    *("status", "ratings", "learners", "champion", "openings", "metrics"),
)
TIMEOUT_S = 120
Outcome = Literal["found", "harmless", "silent", "traceback", "hang", "unrepaired"]
Answer = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one file.

    Attributes:
        run: The run.
        file: Relative path.
        kind: Kind of the file.
        place: Owner of its bytes, ``several`` of them, or ``tail`` or ``cut``.
        how: Kind of the change.
        offset: First byte.
    """

    run: str
    file: str
    kind: str
    place: str
    how: str
    offset: int


@dataclass(slots=True, kw_only=True)
class Trial:
    """Outcome of one change.

    Attributes:
        change: The change.
        outcome: ``found`` by verify; ``harmless``; ``silent``: other numbers, and verify said
            nothing; ``traceback``; ``hang``; ``unrepaired``: a repair ended well, and left faults.
        repaired: ``mended``, ``refused`` (it says what it cannot mend), or empty.
        said: Explanation of a bad outcome.
    """

    change: Change
    outcome: Outcome
    repaired: str = ""
    said: str = ""


SIZES = {"bit": 1, "bytes": 16, "zeros": 512}
"""Bytes that a change is of, at most."""


@dataclass(slots=True)
class Baseline:
    """An undamaged run: its files, their places, and what its views say."""

    run: Path
    files: Sequence[str]
    documents: Mapping[str, str]
    places: dict[str, Places] = field(default_factory=dict)

    def place(self, file: str, offset: int, *, size: int = 1) -> str:
        """Return what some bytes belong to; ``several`` if that is more than one thing."""
        if file not in self.places:
            self.places[file] = Places(self.run / file)
        end = min(offset + size, (self.run / file).stat().st_size)
        owners = {self.places[file].at(at) for at in range(offset, end)}
        return owners.pop() if len(owners) == 1 else "several"


@cache
def baseline(run: Path) -> Baseline:
    """Read an undamaged run."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / run.name
        copy_run(run, copy)
        answers = {view: answer(["league", str(copy), view, "--json"]) for view in VIEWS}
        # Some views fail for an undamaged run too, because it has no data for them.
        documents = {view: normal(said[1], copy) for view, said in answers.items() if not said[0]}
    files = sorted(
        path.relative_to(run).as_posix()
        for path in run.rglob("*")
        if path.is_file() and path.stat().st_size and path.suffix != ".sock"
    )
    return Baseline(run=run, files=files, documents=documents)


def normal(text: str, run: Path) -> str:
    """Return a document without what the run's place changes."""
    return text.replace(str(run), "RUN")


def copy_run(run: Path, target: Path) -> None:
    """Copy a run; files of checkpoints, which nobody writes to in place, are links."""

    def copy(source: str, destination: str) -> str:
        if "populations" not in Path(source).relative_to(run).parts:
            return shutil.copy2(source, destination)
        os.link(source, destination)
        return destination

    shutil.copytree(run, target, copy_function=copy, ignore=shutil.ignore_patterns("*.sock"))


def answer(argv: Sequence[str]) -> Answer:
    """Call `arena` in this process; its exit code and all that it has printed."""
    from tools.main import main

    output = io.StringIO()
    code = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main(list(argv))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            return 99, output.getvalue() + traceback.format_exc()
    return code, output.getvalue()


def changed(data: bytes, rng: random.Random) -> tuple[bytes, str, int]:
    """Return damaged bytes, how they were damaged, and where."""
    offset = rng.randrange(len(data))
    how = rng.choice(("bit", "bit", "bit", "bytes", "zeros", "cut", "tail"))
    end = min(offset + SIZES.get(how, 0), len(data))
    match how:
        case "bit":
            flipped = data[offset] ^ 1 << rng.randrange(8)
            return data[:offset] + bytes([flipped]) + data[offset + 1 :], how, offset
        case "bytes":
            return data[:offset] + rng.randbytes(end - offset) + data[end:], how, offset
        case "zeros":
            return data[:offset] + bytes(end - offset) + data[end:], how, offset
        case "cut":
            return data[:offset], how, offset
        case _:
            return data + rng.randbytes(rng.randrange(1, 4096)), how, len(data) - 1


def damage(base: Baseline, copy: Path, rng: random.Random) -> Change:
    """Change one file of a copy: kinds of files are equally likely."""
    kinds = sorted({file_kind(file) for file in base.files})
    kind = rng.choice(kinds)
    file = rng.choice([name for name in base.files if file_kind(name) == kind])
    data, how, offset = changed((base.run / file).read_bytes(), rng)
    # A cut or an added tail can span several owners, so the first byte does not name its place.
    place = base.place(file, offset, size=SIZES[how]) if how in SIZES else how
    # The copy may be a link to the original, which must not be overwritten.
    (copy / file).unlink()
    (copy / file).write_bytes(data)
    return Change(run=base.run.name, file=file, kind=kind, place=place, how=how, offset=offset)


def judge(base: Baseline, copy: Path, change: Change, views: Sequence[str]) -> Trial:
    """Ask all commands about a damaged copy."""
    trial = Trial(change=change, outcome="harmless")

    def ask(*argv: str) -> Answer:
        code, text = answer(argv)
        if code in (1, 99) or "Traceback (most recent call last)" in text:
            raise _Traceback(f"{argv}: {text[-1500:]}")
        return code, text

    def documents() -> dict[str, Answer]:
        asked = {view: ask("league", str(copy), view, "--json") for view in views}
        return {view: (code, normal(text, copy)) for view, (code, text) in asked.items()}

    try:
        code, text = ask("verify", str(copy))
        shown = documents()
        if code:
            trial.outcome = "found"
        else:
            other = [
                view
                for view, (view_code, said) in shown.items()
                if view_code == 0 and said != base.documents[view]
            ]
            # The view reports how many lines it has left out; a file that was cut has fewer lines.
            if other == ["metrics"] and '"left_out"' in shown["metrics"][1]:
                trial.outcome = "found"
            elif other == ["metrics"] and _has_fewer(shown["metrics"][1], base.documents):
                trial.outcome = "harmless"
            elif other:
                trial.outcome, trial.said = "silent", f"{other}: {shown[other[0]][1][:500]}"
            elif any(view_code for view_code, _ in shown.values()):
                trial.outcome, trial.said = "silent", f"verify is content, but {shown}"[:800]
        repair_code, said = ask("verify", str(copy), "--repair")
        after, text = ask("verify", str(copy))
        documents()
        if code:
            trial.repaired = "refused" if after else "mended"
        if after and not repair_code:
            trial.outcome, trial.said = "unrepaired", f"{said[-500:]} THEN {text[:500]}"
        if after:
            again, said_again = ask("verify", str(copy), "--repair")
            if "nothing to repair" in said_again or not again:
                trial.outcome, trial.said = "unrepaired", said_again[-800:]
    except _Traceback as error:
        trial.outcome, trial.said = "traceback", str(error)
    return trial


def _has_fewer(text: str, documents: Mapping[str, str]) -> bool:
    """Return whether the lines of metrics are some of those that there were."""
    before = json.loads(documents["metrics"])["metrics"]
    return all(line in before for line in json.loads(text)["metrics"])


class _Traceback(Exception):
    """A command ended with one."""


def in_child(work: Any, timeout_s: int) -> dict[str, Any] | None:
    """Return what a function returns in a forked child; None if it takes too long."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(reader)
            signal.alarm(timeout_s)
            os.write(writer, json.dumps(work()).encode()[:60_000])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return json.loads(data) if data else None


def run_trial(run: Path, seed: str) -> Trial:
    """Make one trial of a run."""
    rng = random.Random(seed)
    base = baseline(run)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / run.name
        copy_run(run, copy)
        change = damage(base, copy, rng)
        views = rng.sample(list(base.documents), 3)
        found = in_child(lambda: asdict(judge(base, copy, change, views)), TIMEOUT_S)
    if found is None:
        return Trial(change=change, outcome="hang")
    return Trial(**{**found, "change": change})


def trials(runs: Sequence[Path], *, number: int, seed: int) -> Iterator[Trial]:
    """Make trials, of one run after the other."""
    preload()
    for index in range(number):
        yield run_trial(runs[index % len(runs)], f"{seed}/{index}")


def preload() -> None:
    """Do once what each command does at its start, so that children do not."""
    import importlib

    import typer.main

    # Building the commands reads the annotations of all functions, which takes long for each trial.
    typer.main.get_command = cache(typer.main.get_command)
    for name in (
        *(
            "populations.audit.repair",
            "populations.views.questions.inspection",
            "populations.audit.verify",
        ),
        *("tools.league.tables", "tools.league.documents", "tools.league.watch", "tools.verify"),
        *("populations.controller.rating_fit", "populations.ratings.bootstrap", "scipy.optimize"),
    ):
        importlib.import_module(name)


def table(found: Sequence[Trial]) -> dict[str, dict[str, int]]:
    """Return the number of trials by kind of file and outcome."""
    rows: dict[str, Counter[str]] = {}
    for trial in found:
        rows.setdefault(trial.change.kind, Counter())[trial.outcome] += 1
    return {kind: dict(rows[kind]) for kind in sorted(rows)}


def kinds(found: Sequence[Trial]) -> dict[str, list[str]]:
    """Return the outcomes of each kind of place."""
    rows: dict[str, set[str]] = {}
    for trial in found:
        rows.setdefault(f"{trial.change.kind}: {trial.change.place}", set()).add(trial.outcome)
    return {kind: sorted(rows[kind]) for kind in sorted(rows)}


def main() -> None:
    """Read the arguments, make the trials, print what came of them."""
    parser = parser_of(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories that nobody has open")
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=Path, help="file that takes a line of JSON for each trial")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()
    found = []
    for trial in trials(arguments.runs, number=arguments.number, seed=arguments.seed):
        found.append(trial)
        # Each trial is saved at once, so that an interrupted run keeps its results.
        add_result(arguments.trials, asdict(trial))
        if trial.outcome not in ("found", "harmless"):
            sys.stderr.write(f"{json.dumps(asdict(trial))}\n")
        if len(found) % 100 == 0:
            sys.stderr.write(f"{len(found)} of {arguments.number}\n")
    document = {
        "schema": 1,
        "seed": arguments.seed,
        "trials": len(found),
        "table": table(found),
        "kinds": kinds(found),
        "repaired": dict(Counter(trial.repaired for trial in found if trial.repaired)),
    }
    say_document(document if arguments.json else table(found), as_json=arguments.json)


if __name__ == "__main__":
    main()
