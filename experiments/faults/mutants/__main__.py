"""Plant mutants or described faults in a copy of this checkout, and say which of them tests find.

    python -m experiments.faults.mutants --number 200 --seed 1 --out FILE
    python -m experiments.faults.mutants --number 200 --seed 1 --show 17    # its diff
    python -m experiments.faults.mutants --faults --out FILE

A mutant is a small edit of one statement (`mutations`). Quick tests that reach its module run, the
nearest first, until one fails: a minute at most. The faults are those of
`tests/goldens/faults.yaml`; `planted.yaml` says by which edits of this code each is planted, and
which tests are to find it. Each result is a line of FILE at once; what is there is not done again.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import yaml

from experiments.faults.mutants.mutations import mutants
from experiments.faults.mutants.planting import QUICK, Copy, Outcome

FAULTS = Path("tests/goldens/faults.yaml")
PLANTED = Path(__file__).with_name("planted.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planting:
    """An edit to plant.

    Attributes:
        id: What a stored result is found again by.
        group: What the summary counts it in.
        content: The file with the edit.
        tests: Test files that are to find it; None: those that reach the file.
    """

    id: str
    group: str
    file: str
    line: int
    before: str
    after: str
    content: bytes
    tests: tuple[str, ...] | None


def main(argv: Sequence[str] | None = None) -> None:
    """Plant what the arguments say, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=200, help="mutants over all packages")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw")
    parser.add_argument("--faults", action="store_true", help="the described faults instead")
    parser.add_argument("--only", nargs="+", default=[], help="ids, or parts of a file's path")
    parser.add_argument("--show", type=int, help="diff of the mutant with this number, from 0")
    parser.add_argument("--limit", type=int, help="most edits that are planted now")
    parser.add_argument("--seconds", type=float, default=60.0, help="most time for tests of one")
    parser.add_argument("--out", type=Path, help="file for results")
    options = parser.parse_args(argv)
    # The copy is removed then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    root = Path().resolve()
    found = faults(root) if options.faults else drawn(root, options.number, options.seed)
    if options.show is not None:
        sys.stdout.write(diff(root, found[options.show]))
        return
    wanted = [
        edit
        for edit in found
        if not options.only or any(o == edit.id or o in edit.file for o in options.only)
    ]
    if options.out is None:
        parser.error("--out is needed, a file for results")
    _plant_all(root, wanted, options=options)


def drawn(root: Path, number: int, seed: int) -> list[Planting]:
    """Return drawn mutants."""
    return [
        Planting(
            id=mutant.id,
            group=mutant.package,
            file=mutant.file,
            line=mutant.line,
            before=mutant.before,
            after=mutant.after,
            content=mutant.planted((root / mutant.file).read_bytes()),
            tests=None,
        )
        for mutant in mutants(root, number=number, seed=seed)
    ]


def faults(root: Path) -> list[Planting]:
    """Return the edits that plant the described faults.

    Raises:
        ValueError: If a fault has no edit, an edit no fault, or its text is not in the file once.
    """
    described = yaml.safe_load((root / FAULTS).read_text(encoding="utf8"))
    edits = yaml.safe_load(PLANTED.read_text(encoding="utf8"))
    if described.keys() != edits.keys():
        raise ValueError(
            f"faults without an edit, or edits without a fault: "
            f"{sorted(described.keys() ^ edits.keys())}"
        )
    found, stale = [], []
    for name, edit in edits.items():
        text = (root / edit["file"]).read_text(encoding="utf8")
        if text.count(edit["text"]) != 1:
            stale.append(f"{name} ({edit['file']})")
            continue
        found.append(
            Planting(
                id=name,
                group=described[name]["area"],
                file=edit["file"],
                line=text[: text.index(edit["text"])].count("\n") + 1,
                before=edit["text"],
                after=edit["by"],
                content=text.replace(edit["text"], edit["by"]).encode(),
                tests=tuple(edit["tests"]),
            )
        )
    if stale:
        raise ValueError(f"the text is not in its file, or not once: {', '.join(stale)}")
    return found


def diff(root: Path, edit: Planting) -> str:
    """Return a planted edit as a diff."""
    before = (root / edit.file).read_text(encoding="utf8").splitlines(keepends=True)
    after = edit.content.decode().splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, edit.file, edit.file))


def _plant_all(root: Path, edits: Sequence[Planting], *, options: argparse.Namespace) -> None:
    done = {str(result["id"]): result for result in _results(options.out)}
    ahead = [edit for edit in edits if edit.id not in done][: options.limit]
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as place,
        Copy(root, Path(place, "tree"), limit_s=options.seconds) as copy,
        options.out.open("a") as results,
    ):
        for number, edit in enumerate(ahead, start=1):
            result = {
                **{k: v for k, v in asdict(edit).items() if k not in {"content", "tests"}},
                **asdict(planted(copy, edit)),
            }
            # Before it, because a kill may have cut the last line short.
            results.write(f"\n{json.dumps(result)}")
            results.flush()
            done[edit.id] = result
            by = f" by {result['found_by']}" if result["found_by"] else ""
            sys.stdout.write(
                f"{number}/{len(ahead)} {edit.id} {edit.file}:{edit.line} {result['outcome']}{by}\n"
            )
            sys.stdout.flush()
    sys.stdout.writelines(summary([done[edit.id] for edit in edits if edit.id in done]))


def planted(copy: Copy, edit: Planting) -> Outcome:
    """Plant an edit, and run the tests until one fails that passes without it."""
    tests = copy.tests_of(edit.file) if edit.tests is None else edit.tests
    # A fault may need slow tests; who described it named few.
    marks = QUICK if edit.tests is None else ""
    while True:
        with copy.planted(edit.file, edit.content):
            outcome = copy.test(tests, marks=marks)
        by = outcome.found_by
        if by is None and outcome.outcome == "timeout" and copy.test(tests, marks=marks).was_over:
            # Not the edit is slow, but the machine.
            return replace(outcome, outcome="lived")
        if by is None or by.startswith("exit code") or copy.is_sound(by, marks=marks):
            return outcome


def summary(results: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Yield lines: how many were found of each group and of all, then those that lived."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for group in (str(result["group"]), "all"):
            counts[group]["lived" if result["outcome"] == "lived" else "found"] += 1
    for group in sorted(counts, key=lambda group: (group == "all", group)):
        found, total = counts[group]["found"], counts[group].total()
        yield f"{group:30}{found:5} of {total:4} found  {found / total:5.0%}\n"
    for result in results:
        if result["outcome"] == "lived":
            why = " (time was over)" if result["was_over"] else ""
            yield (
                f"lived{why}: {result['id']} {result['file']}:{result['line']}\n"
                f"    {result['before']}\n    -> {result['after']}\n"
            )


def _results(out: Path) -> Iterator[dict[str, object]]:
    for line in out.read_text(encoding="utf8").split("\n") if out.is_file() else ():
        # A line that a kill cut short is done again.
        with contextlib.suppress(ValueError):
            yield json.loads(line)


if __name__ == "__main__":
    main()
