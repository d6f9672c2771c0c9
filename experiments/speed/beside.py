"""Compare speed and work of two checkouts, in rounds that alternate between them.

    python -m experiments.speed.beside ../before --out FILE           # this checkout is the other
    python -m experiments.speed.beside ../before ../after --parts decisions work --out FILE

Both have a ``.venv`` of their own, and are measured by their own commands and experiments, of which
nothing but the command line and the output must be the same. Parts:

- ``bench``: `arena bench`, each stage's speed and its share of the bound;
- ``throughput``: agent steps per second of a Connect Four run of a minute;
- ``decisions``: `experiments.planted_league.week` with 64 policies, milliseconds of the processor
  and of the wall clock;
- ``bounds``: `experiments.load.bounds`, 10,000 policies and 100,000 tallies;
- ``work``: `experiments.speed.work`, which counts. Equal work has equal counts, so one round says
  all.

Prints for each figure the medians of both, the median of the rounds' ratios (after to before) and
their range. The side that begins changes from round to round. What was measured is a line of FILE
at once; what is there is not measured again, so a comparison that was ended goes on. It takes half
an hour at most on two quiet cores.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from experiments.harness import add_result, parser_of, read_results, say

SIDES = ("before", "after")
DECISIONS = ("--days", "7", "--policies", "64", "--events", "100")
RUN_S = 60
COUNTED = "work"

Figures = dict[str, float]


class CheckoutError(Exception):
    """Command of a checkout that failed, or results of another checkout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """Checkout that is measured.

    Attributes:
        side: ``before`` or ``after``.
        root: Its directory.
        scratch: Directory for what its commands leave, which later rounds find.
    """

    side: str
    root: Path
    scratch: Path

    @property
    def commit(self) -> str:
        """Commit that is checked out, with a word where files differ from it."""
        return self._run(
            "git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"
        ).strip()

    def arena(self, *arguments: str | Path) -> Any:
        """Return what its ``arena`` prints as JSON."""
        return json.loads(self._run(self.root / ".venv/bin/arena", *arguments) or "null")

    def experiment(self, module: str, *arguments: str | Path) -> Any:
        """Return what one of its experiments prints as JSON."""
        python = self.root / ".venv/bin/python"
        return json.loads(self._run(python, "-m", f"experiments.{module}", *arguments))

    def _run(self, *command: str | Path) -> str:
        # PYTHONPATH is removed, because it would put one checkout's code before the other's.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words, cwd=self.root, env=environment, capture_output=True, text=True, check=True
            )
        except subprocess.CalledProcessError as error:
            told = error.stderr.strip().rpartition("\n")[2]
            raise CheckoutError(f"{self.side}: {' '.join(words)}: {told}") from None
        except OSError as error:
            raise CheckoutError(f"{self.side}: {error}") from None
        return done.stdout


def bench(checkout: Checkout, number: int) -> Figures:
    """Measure the stages of a learner."""
    found: Figures = {}
    for stage in checkout.arena("bench", "--json")["measurements"]:
        found[f"{stage['name']}, {stage['unit']}"] = stage["value"]
        found[f"{stage['name']}, of its bound"] = stage["ratio"]
    return found


def throughput(checkout: Checkout, number: int) -> Figures:
    """Train for a minute, with the round as seed."""
    run = checkout.scratch / f"run-{number}"
    # An interrupted first attempt may have left a run directory.
    shutil.rmtree(run, ignore_errors=True)
    checkout.arena(
        *("launch", "connect_four", f"seed={number}", f"stop.duration_s={RUN_S}", "--run-dir", run)
    )
    status = checkout.arena("league", run, "status", "--json")
    return {
        "agent steps/s": status["agent_steps"] / status["elapsed_s"],
        "assignments/s": status["assignments_finished"] / status["elapsed_s"],
    }


def decisions(checkout: Checkout, number: int) -> Figures:
    """Time decisions of a league with a week's rows."""
    times = checkout.experiment("planted_league.week", *DECISIONS)
    kinds = {kind: taken for kind, taken in times.items() if isinstance(taken, Mapping)}
    return {
        f"{kind}, {clock} ms": taken[name]
        for kind, taken in kinds.items()
        for clock, name in (("processor", "median_ms"), ("wall", "wall_median_ms"))
    }


def bounds(checkout: Checkout, number: int) -> Figures:
    """Measure a large run, which the first round writes."""
    document = checkout.experiment("load.bounds", "--run", checkout.scratch / "large", "--json")
    return dict(document["measured"])


def work(checkout: Checkout, number: int) -> Figures:
    """Count what decisions do."""
    return dict(checkout.experiment("speed.work"))


PARTS: Mapping[str, Callable[[Checkout, int], Figures]] = {
    part.__name__: part for part in (bench, throughput, decisions, bounds, work)
}


def turns(parts: Sequence[str], *, rounds: int) -> Iterator[tuple[str, int, str]]:
    """Yield part, round and side of all measurements in their order: A B, B A, A B, ..."""
    for part in parts:
        for number in range(1 if part == COUNTED else rounds):
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                yield part, number, side


def measure(
    checkouts: Mapping[str, Checkout],
    *,
    parts: Sequence[str],
    rounds: int,
    out: Path,
    ways: Mapping[str, Callable[[Checkout, int], Figures]] = PARTS,
) -> list[dict[str, Any]]:
    """Measure what FILE does not have yet, and return all that it has then.

    Raises:
        CheckoutError: If a command fails, or FILE is about other commits.
    """
    results = list(read_results(out))
    commits = {side: checkout.commit for side, checkout in checkouts.items()}
    for result in results:
        if result["commit"] != commits[result["side"]]:
            raise CheckoutError(
                f"{out} has {result['side']} at commit {result['commit'][:8]}, "
                f"the checkout is at {commits[result['side']][:8]}: choose another file"
            )
    done = {(result["part"], result["round"], result["side"]) for result in results}
    for part, number, side in turns(parts, rounds=rounds):
        if (part, number, side) in done:
            continue
        sys.stderr.write(f"{part}: round {number + 1}, {side}\n")
        result = {
            "part": part,
            "round": number,
            "side": side,
            "commit": commits[side],
            "figures": ways[part](checkouts[side], number),
        }
        add_result(out, result)
        results.append(result)
    return results


def compared(results: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each figure of both sides, its ratios and their median.

    Ratios are of one round's two sides; a figure that only one side has has none.
    """
    rounds: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for result in results:
        for figure, value in result["figures"].items():
            sides = rounds.setdefault((result["part"], figure), {side: {} for side in SIDES})
            sides[result["side"]][result["round"]] = value
    for (part, figure), sides in rounds.items():
        before, after = (sides[side] for side in SIDES)
        ratios = [after[one] / before[one] for one in sorted(before.keys() & after) if before[one]]
        yield {
            "part": part,
            "figure": figure,
            "before": median(before.values()) if before else None,
            "after": median(after.values()) if after else None,
            "ratio": median(ratios) if ratios else None,
            "ratios": ratios,
        }


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of 80 columns."""
    part = None
    for line in lines:
        if line["part"] != part:
            part = line["part"]
            yield f"{part:<38}{'before':>10}{'after':>10}{'ratio':>7}{'lowest-highest':>15}"
        ratios = line["ratios"]
        spread = f"{min(ratios):.3f}-{max(ratios):.3f}" if len(ratios) > 1 else ""
        values = "".join(f"{_short(line[side]):>10}" for side in SIDES)
        ratio = "" if line["ratio"] is None else f"{line['ratio']:.3f}"
        yield f"  {line['figure'][:35]:<36}{values}{ratio:>7}{spread:>15}"


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000.0 or value == int(value) else f"{value:.4g}"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what the arguments say, and print the comparison."""
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="root of a checkout")
    parser.add_argument("after", type=Path, nargs="?", default=Path(), help="default: this one")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    parser.add_argument("--out", type=Path, required=True, help="file for results")
    parser.add_argument("--json", action="store_true", help="a document in place of the table")
    options = parser.parse_args(argv)
    # SIGTERM must raise, so that the measured processes end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="beside-") as scratch:
        checkouts = {}
        for side in SIDES:
            place = Path(scratch, side)
            place.mkdir()
            root = getattr(options, side).resolve()
            checkouts[side] = Checkout(side=side, root=root, scratch=place)
        try:
            results = measure(
                checkouts, parts=options.parts, rounds=options.rounds, out=options.out
            )
        except CheckoutError as error:
            parser.exit(2, f"{error}\n")
    lines = list(compared(results))
    if options.json:
        commits = {result["side"]: result["commit"] for result in results}
        say({"schema": 1, "commits": commits, "figures": lines})
    else:
        sys.stdout.writelines(f"{line}\n" for line in table(lines))


if __name__ == "__main__":
    main()
