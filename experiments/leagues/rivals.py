"""Are populations stronger that learn against each other in one assignment?

    python -m experiments.leagues.rivals --seeds 1 2 3 --agent-steps 60000 --keep runs

Not a test that passes or fails: for each seed it trains Simple Tag with equal agent steps of each
policy and without PBT, with ``matchmaking.rivals`` ``frozen`` and ``learning``. Rivals share the
environments, so a third arm has frozen ones and as many environments as one of two rivals. One JSON
line per seed: the share of matches that each arm's predators win against each arm's prey, over all
pairs of last policies, and the seconds that training took. ``--keep`` keeps the runs; called again,
it goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from experiments.leagues.turns import figures, first_side_wins, train
from populations.views.questions.inspection import Inspection

ARMS = {
    "frozen": ("matchmaking.rivals=frozen",),
    "learning": ("matchmaking.rivals=learning",),
    # Of 8 opponents 2 are the latest: a rival is seated in 8 of 14 seatings, so in 37 of 64
    # environments, and learns from smaller rollouts.
    "frozen_small": ("matchmaking.rivals=frozen", "environment.num_envs=37"),
}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="simple_tag")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--agent-steps", type=int, default=60_000, help="of each policy")
    parser.add_argument("--matches", type=int, default=500, help="of each pair of policies")
    parser.add_argument("--keep", type=Path, help="directory in which the runs stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch)
        for seed in options.seeds:
            runs = train(options.preset, ARMS, root, seed=seed, agent_steps=options.agent_steps)
            last = {f"{run}:{policy}": arm for arm, run in runs.items() for policy in policies(run)}
            line = {
                "seed": seed,
                "first_side_wins": first_side_wins(last, matches=options.matches),
                **{arm: figures(run) for arm, run in runs.items()},
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def policies(run: Path) -> list[str]:
    """Return the names of a run's policies."""
    inspection = Inspection.open(run)
    try:
        return list(inspection.tables.policies)
    finally:
        inspection.close()


if __name__ == "__main__":
    main()
