r"""Does what a league ends on beat what plain self-play ends on?

    python -m experiments.leagues.mixtures connect_four --keep runs
    python -m experiments.leagues.head_to_head --league runs/connect_four-pfsp-{1,2,3} \
        --plain runs/connect_four-latest-{1,2,3}

For games that are too large for an exact figure. Prints one JSON line per pair of runs: scores, in
both seats equally often and all sampling, of the league's champion, last policy and Nash mixture
(as ``arena export --mixture`` writes it) against plain self-play's champion and last policy, with
95% intervals over matches.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from experiments.commands import arena
from experiments.leagues.scores import meet

LAST = "player/p000"
"""The one policy of a run, as it ended."""


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--league", type=Path, nargs="+", required=True, help="run directories")
    parser.add_argument(
        "--plain", type=Path, nargs="+", required=True, help="as many other run directories"
    )
    parser.add_argument("--matches", type=int, default=1000, help="matches of each pair, per seat")
    options = parser.parse_args()
    for league, plain in zip(options.league, options.plain, strict=True):
        line = {"league": league.name, "plain": plain.name}
        line |= compare(league, plain, matches=options.matches)
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def compare(league: Path, plain: Path, *, matches: int) -> dict[str, object]:
    """Return the scores of a league's last players against those of plain self-play."""
    with tempfile.TemporaryDirectory() as scratch:
        ours = {"champion": str(league), "last": f"{league}:{LAST}"}
        ours["mixture"] = str(exported_mixture(league, Path(scratch) / "mixture"))
        theirs = {"champion": str(plain), "last": f"{plain}:{LAST}"}
        met = meet([*ours.values(), *theirs.values()], matches=matches)
    return {
        f"{name} against plain {other}": met[ours[name], theirs[other]].summary()
        for name in ours
        for other in theirs
    }


def exported_mixture(run: Path, directory: Path) -> Path:
    """Write a run's Nash mixture. Returns the directory."""
    arena("export", run, "--mixture", "--to", directory, "--matches", "20")
    return directory


if __name__ == "__main__":
    main()
