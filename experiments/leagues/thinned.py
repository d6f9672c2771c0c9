"""Does thinning cost strength? Trains Connect Four with few ghosts and with all of them.

    python -m experiments.leagues.thinned --root runs --seeds 1 2 3 --arms thinned
    python -m experiments.leagues.thinned --root runs --seeds 1 2 3 --arms whole
    python -m experiments.leagues.thinned --root runs --seeds 1 2 3 --table

One learner and equal agent steps of all policies together; each assignment leaves a ghost, so that
a run of 40 minutes has more than a thousand to thin. Runs stay under --root: one that was
interrupted goes on, one that has ended is not done again, and two arms may be trained side by side.
The table has a JSON line for each seed: ghosts left and thinned, score of the thinned run's
champion against that of the other, and of both against a player that looks one move ahead. The last
line has the scores between champions of different seeds, without thinning: the difference that
chance makes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import cast

from experiments.commands import launch
from experiments.leagues.scores import meet
from experiments.learning.presets import TACTICAL
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.views.questions.inspection import Inspection

ARMS = {"thinned": "64", "whole": "null"}
"""Value of ``ghosts.keep`` of each arm."""


def main() -> None:
    """Train what is missing, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="directory of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--agent-steps", type=int, default=100_000_000, help="of all policies")
    parser.add_argument("--matches", type=int, default=1000, help="of two players, per seat")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="configuration changes")
    options = parser.parse_intermixed_args()
    if not options.table:
        for seed in options.seeds:
            for arm in options.arms:
                run = run_of(options.root, arm, seed)
                train(run, arm, seed, options.agent_steps, options.overrides)
        return
    for line in table(options.root, options.seeds, matches=options.matches):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def run_of(root: Path, arm: str, seed: int) -> Path:
    """Return the directory of a run."""
    return root / f"{arm}-{seed}"


def train(run: Path, arm: str, seed: int, agent_steps: int, overrides: list[str]) -> None:
    """Train a run to its end, unless it has ended."""
    if (run / "run.yaml").is_file() and facts(run)["state"] == "finished":
        return
    equal = (
        f"ghosts.keep={ARMS[arm]}",
        "ghosts.every_agent_steps=1",
        "assignment.target_s=1.5",
        "learners=1",
        f"stop.agent_steps={agent_steps}",
        "stop.duration_s=null",
    )
    launch("connect_four", run, seed=seed, overrides=(*equal, *overrides))


def facts(run: Path) -> dict[str, object]:
    """Return the state of a run, its agent steps, and how many ghosts it has and has thinned."""
    inspection = Inspection.open(run)
    try:
        row, ghosts = inspection.tables.run, len(inspection.tables.ghosts)
    finally:
        inspection.close()
    with JournalReader(run / JOURNAL) as reader:
        events = reader.events(kinds=["ghosts_thinned"])
    gone = [ghost for event in events for ghost in cast("Sequence[str]", event.data["ghosts"])]
    return {
        "state": row.state,
        "agent_steps": row.agent_steps,
        "seconds": round(row.elapsed_s),
        "ghosts": ghosts,
        "ghosts_thinned": len(gone),
    }


def table(root: Path, seeds: list[int], *, matches: int) -> list[dict[str, object]]:
    """Return the lines of the table."""
    champions = {(arm, seed): str(run_of(root, arm, seed)) for arm in ARMS for seed in seeds}
    met = meet([*champions.values(), TACTICAL], matches=matches)

    def score(first: str, second: str) -> dict[str, object]:
        return met[first, second].summary()

    lines: list[dict[str, object]] = []
    for seed in seeds:
        thinned, whole = (champions[arm, seed] for arm in ("thinned", "whole"))
        lines.append(
            {
                "seed": seed,
                **{arm: facts(run_of(root, arm, seed)) for arm in ARMS},
                "thinned against whole": score(thinned, whole),
                "thinned against tactical": score(thinned, TACTICAL),
                "whole against tactical": score(whole, TACTICAL),
            }
        )
    between = {
        f"{first} against {second}": score(champions["whole", first], champions["whole", second])
        for first, second in combinations(seeds, 2)
    }
    return [*lines, {"seeds without thinning": between}]


if __name__ == "__main__":
    main()
