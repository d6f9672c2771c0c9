"""Compare a champion's rating in its league with direct games against the anchor.

    python -m experiments.ratings.champions_by_direct_games --out direct.jsonl
    python -m experiments.ratings.champions_by_direct_games --out direct.jsonl --games kuhn
    python -m experiments.ratings.champions_by_direct_games --out direct.jsonl --table [KEY=VALUE]

One policy trains against itself and its ghosts for --seconds, then its champion plays --matches
games against bot:random, half of them in each seat. The score of those is a rating by the formula
that ratings are defined by: 400 log10(score / (1 - score)). Intervals overlap, or the test of the
league's fit says why not. A line of JSON for each run, in the file of --out; games that have their
line there are not played again, so it can be stopped and started at any time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments.leagues.mixtures import configuration, train
from experiments.leagues.scores import Counts, meet
from populations.inspection.views import Inspection
from populations.league.standings import champion
from populations.ratings.fitting.misfit import MISFIT

ANCHOR = "bot:random"
GAMES = ("tictactoe", "connect_four", "kuhn", "leduc", "rock_paper_scissors")
COLUMNS = ("game", "seed", "league", "direct", "overlap", "misfit", "pair_deviation")

Line = dict[str, object]


def elo(score: float) -> float:
    """Return rating against the anchor of a player with a score; infinite where it always won or
    lost.
    """
    if score <= 0.0 or score >= 1.0:
        return math.copysign(math.inf, score - 0.5)
    return 400.0 * math.log10(score / (1.0 - score))


def compared(run: Path, *, matches: int) -> Line:
    """Let a run's champion play the anchor, and set both ratings beside each other."""
    inspection = Inspection.open(run)
    try:
        ((population, lines),) = inspection.standings().items()
        row = inspection.tables.ratings[population]
        best = champion(lines)
    finally:
        inspection.close()
    if best is None or best.rating_low is None or best.rating_high is None:
        raise ValueError(f"{run} has no champion: no player is rated")
    player = f"{run}:{best.player}"
    counts: Counts = meet([player, ANCHOR], matches=matches // 2)[player, ANCHOR]
    low, high = (elo(end) for end in counts.interval())
    return {
        "league": [best.rating_low, best.rating_high],
        "direct": [low, high],
        "overlap": best.rating_low <= high and low <= best.rating_high,
        "misfit": row.misfit,
        "pair_deviation": row.pair_deviation,
        **counts.summary(),
    }


def lines_of(out: Path) -> list[Line]:
    """Read the lines of a file; one that was cut off is none."""
    text = out.read_text() if out.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def main(argv: Sequence[str] | None = None) -> None:
    """Train, play and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="file of finished lines")
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=120.0, help="length of the training")
    parser.add_argument("--matches", type=int, default=4000, help="direct games")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="configuration changes")
    options = parser.parse_args(argv)
    for game in () if options.table else options.games:
        for seed in options.seeds:
            key: Line = {
                "game": game,
                "seed": seed,
                "seconds": options.seconds,
                "asked": options.matches,
                "overrides": options.overrides,
            }
            if any(key.items() <= line.items() for line in lines_of(options.out)):
                continue
            stop = [f"stop.duration_s={options.seconds}", "stop.agent_steps_per_policy=null"]
            with tempfile.TemporaryDirectory() as scratch:
                run = Path(scratch) / "run"
                config = configuration(
                    game, kind="pfsp", seed=seed, overrides=[*options.overrides, *stop]
                )
                train(config, run, is_biased=game == "rock_paper_scissors")
                found = compared(run, matches=options.matches)
            with options.out.open("a") as file:
                file.write(json.dumps({**key, **found}) + "\n")
    sys.stdout.write(table(lines_of(options.out)))


def table(lines: Sequence[Line]) -> str:
    """Set the lines below each other; a misfit that explains a difference is marked by a star."""
    rows = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    rows += [
        "| " + " | ".join(_cell(name, line[name]) for name in COLUMNS) + " |" for line in lines
    ]
    return "\n".join(rows) + "\n"


def _cell(name: str, value: object) -> str:
    if isinstance(value, list):
        return f"[{value[0]:.0f}, {value[1]:.0f}]"
    if isinstance(value, float):
        return f"{value:.1f}{'*' if name == 'misfit' and value >= MISFIT else ''}"
    return str(value)


if __name__ == "__main__":
    main()
