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
import difflib
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from experiments.faults.mutants.mutations import Edit, mutants
from experiments.faults.mutants.planting import QUICK, Copy, Outcome
from experiments.harness import add_result, parser_of, read_results, say

FAULTS = Path("tests/goldens/faults.yaml")
PLANTED = Path(__file__).with_name("planted.yaml")


def main(argv: Sequence[str] | None = None) -> None:
    """Plant what the arguments say, one after the other."""
    parser = parser_of(__doc__)
    parser.add_argument("--number", type=int, default=200, help="mutants over all packages")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw")
    parser.add_argument("--faults", action="store_true", help="the described faults instead")
    parser.add_argument("--only", nargs="+", default=[], help="ids, or parts of a file's path")
    parser.add_argument("--show", type=int, help="diff of the mutant with this number, from 0")
    parser.add_argument("--limit", type=int, help="most edits that are planted now")
    parser.add_argument("--seconds", type=float, default=60.0, help="most time for tests of one")
    parser.add_argument("--out", type=Path, help="file for results")
    options = parser.parse_args(argv)
    # SIGTERM must raise, so that the copy of the checkout is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    root = Path().resolve()
    if options.faults:
        edits = faults(root)
    else:
        edits = mutants(root, number=options.number, seed=options.seed)
    if options.show is not None:
        sys.stdout.write(diff(root, edits[options.show]))
        return
    if options.out is None:
        parser.error("--out is needed, a file for results")
    if options.only:
        edits = [e for e in edits if any(o == e.id or o in e.file for o in options.only)]
    plant_all(root, edits, options)


def faults(root: Path) -> list[Edit]:
    """Return the edits that plant the described faults.

    Raises:
        ValueError: If an edit's text is not in its file, or not once.
    """
    described = yaml.safe_load((root / FAULTS).read_text(encoding="utf8"))
    found, stale = [], []
    for name, planted in yaml.safe_load(PLANTED.read_text(encoding="utf8")).items():
        before, _, after = (root / planted["file"]).read_text("utf8").partition(planted["text"])
        if not after or planted["text"] in after:
            stale.append(f"{name} ({planted['file']})")
        edit = Edit(
            group=described[name]["area"],
            kind=name,
            file=planted["file"],
            line=before.count("\n") + 1,
            start=len(before.encode()),
            before=planted["text"],
            after=planted["by"],
            tests=tuple(planted["tests"]),
        )
        found.append(edit)
    if stale:
        raise ValueError(f"the text is not in its file, or not once: {', '.join(stale)}")
    return found


def diff(root: Path, edit: Edit) -> str:
    """Return an edit as a diff."""
    source = (root / edit.file).read_bytes()
    old, new = (text.decode().splitlines(True) for text in (source, edit.planted(source)))
    return "".join(difflib.unified_diff(old, new, edit.file, edit.file))


def plant_all(root: Path, edits: Sequence[Edit], options: argparse.Namespace) -> None:
    """Plant the edits that have no result yet, and print results and a summary."""
    done = {result["id"]: result for result in read_results(options.out)}
    ahead = [edit for edit in edits if edit.id not in done][: options.limit]
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as place,
        Copy(root, Path(place, "tree"), limit_s=options.seconds) as copy,
    ):
        for number, edit in enumerate(ahead, start=1):
            result = {"id": edit.id, **asdict(edit), **asdict(planted(copy, edit))}
            add_result(options.out, result)
            done[edit.id] = result
            say(
                f"{number}/{len(ahead)} {edit.id} {edit.file}:{edit.line} {result['outcome']} "
                f"{result['found_by'] or ''}"
            )
    sys.stdout.writelines(summary([done[edit.id] for edit in edits if edit.id in done]))


def planted(copy: Copy, edit: Edit) -> Outcome:
    """Plant an edit, and run tests until one fails that passes without it."""
    tests = copy.tests_of(edit.file) if edit.tests is None else edit.tests
    outcome = _tested(copy, edit, tests, marks=QUICK)
    if outcome.outcome == "lived" and edit.tests is not None:
        # A planted fault names the few tests that must see it, so their slow ones can run, too.
        outcome = _tested(copy, edit, tests, marks=f"not ({QUICK})")
    return outcome


def _tested(copy: Copy, edit: Edit, tests: Sequence[str], *, marks: str) -> Outcome:
    while True:
        with copy.planted(edit):
            outcome = copy.test(tests, marks=marks)
        by = outcome.found_by
        if by is None and outcome.outcome == "timeout":
            # A timeout may be the machine's, so the tests run once more without the edit.
            unbroken = copy.test(tests, marks=marks)
            return replace(outcome, outcome="over") if unbroken.outcome == "timeout" else outcome
        if by is None or by.startswith("exit code") or copy.is_sound(by, marks=marks):
            return outcome


def summary(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines: how many were found of each group and of all, then those that lived."""
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for result in results:
        for group in (result["group"], "all"):
            counts[group][result["outcome"] in {"found", "timeout"}] += 1
    for group in sorted(counts, key=lambda group: (group == "all", group)):
        found, total = counts[group][True], counts[group].total()
        yield f"{group:30}{found:5} of {total:4} found  {found / total:5.0%}\n"
    for result in results:
        if result["outcome"] not in {"found", "timeout"}:
            yield "{outcome}: {id} {file}:{line}\n    {before}\n    -> {after}\n".format(**result)


if __name__ == "__main__":
    main()
