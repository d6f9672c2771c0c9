"""Does Arena still learn? Runs presets over several seeds and compares with the random bot.

    python -m tests.checks.learning tictactoe --seeds 1 2 3 -- stop.duration_s=90

Not a test that passes or fails: it prints a table (one JSON line per seed) to be compared with the
one in arena/learning/README.md. Two-player games: the champion's greedy wins against uniformly
random play, in each seat. Others: the mean return of checkpoints from the last quarter of training
against the random bot's in the same company, with the standard error of the difference.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from arena.types import RANDOM_BOT, Digest
from populations.league.views import Inspection

ARENA = (sys.executable, "-m", "populations.commands.main")


@dataclass(slots=True)
class Returns:
    """Returns of one kind of player: count, sum and sum of squares over matches."""

    matches: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, matches: int, total: float, squares: float) -> None:
        """Take in a tally's."""
        self.matches += matches
        self.total += total
        self.squares += squares

    @property
    def mean(self) -> float:
        """Per match."""
        return self.total / self.matches if self.matches else math.nan

    @property
    def squared_error(self) -> float:
        """Squared standard error of the mean."""
        if self.matches < 2:
            return math.inf
        variance = max(self.squares / self.matches - self.mean**2, 0.0)
        return variance / (self.matches - 1)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--matches", type=int, default=1000)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            run = Path(scratch) / f"{options.preset}-{seed}"
            arena("launch", options.preset, f"seed={seed}", *options.overrides, "--run-dir", run)
            line = {"preset": options.preset, "seed": seed, **facts(run, options.matches)}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def arena(*arguments: str | Path) -> str:
    """Standard output of a command that must succeed."""
    command = [*ARENA, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def facts(run: Path, matches: int) -> dict[str, object]:
    """What a finished run shows."""
    inspection = Inspection.open(run)
    try:
        row = inspection.tables.run
        found: dict[str, object] = {
            "agent_steps": row.agent_steps,
            "agent_steps_per_s": round(row.agent_steps / row.elapsed_s),
            "ghosts": len(inspection.tables.ghosts),
            "exploits": row.exploits,
        }
        seats = inspection.league.seats
        if len(seats) == 2 and not inspection.league.is_cooperation:
            if seats[0].population == seats[1].population:
                return found | _wins(run, matches)
            return found | {
                seat.population: _late_returns(inspection, index, company=1 - index)
                for index, seat in enumerate(seats)
            }
        return found | {seats[0].population: _late_returns(inspection, 0, company=None)}
    finally:
        inspection.close()


def _wins(run: Path, matches: int) -> dict[str, object]:
    text = arena("evaluate", run, RANDOM_BOT, "--matches", str(matches), "--greedy", "--json")
    first, second = json.loads(text)["pairs"]
    return {
        "wins_first": first["wins"] / matches,
        "losses_first": first["losses"] / matches,
        "wins_second": second["losses"] / matches,
        "losses_second": second["wins"] / matches,
    }


def _late_returns(run: Inspection, seat: int, *, company: int | None) -> dict[str, float | int]:
    """Returns in a seat of late checkpoints and of the random bot, in the same company.

    Args:
        run: A finished run.
        seat: Whose returns.
        company: The seat where ``bot:random`` must sit; None: any (cooperation).
    """
    population = run.league.seats[seat].population
    late, random = Returns(), Returns()
    final = {p.policy: p.agent_steps for p in run.tables.policies.values()}
    for row in run.tables.tallies:
        tally = row.tally
        if row.kind != "evaluate":
            continue
        if company is not None and str(tally.entrants[company]) != str(RANDOM_BOT):
            continue
        for index, entrant in enumerate(tally.entrants):
            if run.league.seats[index].population != population:
                continue
            origin = run.league.checkpoints.get(Digest(entrant))
            numbers = (tally.matches, tally.return_sum[index], tally.return_sum_of_squares[index])
            if str(entrant) == str(RANDOM_BOT):
                random.add(*numbers)
            elif origin is not None and origin.agent_steps >= 0.75 * final[origin.policy]:
                late.add(*numbers)
    error = math.sqrt(late.squared_error + random.squared_error)
    return {
        "return": round(late.mean, 3),
        "random_return": round(random.mean, 3),
        "standard_errors_above": round((late.mean - random.mean) / error, 1),
        "matches": late.matches,
        "random_matches": random.matches,
    }


if __name__ == "__main__":
    main()
