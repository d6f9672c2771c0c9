"""Are teams that take turns to learn stronger than teams that learn at once?

    python -m experiments.leagues.turns --seeds 1 2 3 --agent-steps 160000

Not a test that passes or fails: for each seed it trains Simple Tag twice with equal agent steps of
each policy and without PBT, once with ``matchmaking.learning_side_turns`` and once with both
populations learning all the time. One JSON line per seed: the share of matches that each arm's
predators win against each arm's prey, champions of both, and the seconds that training took.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from experiments.commands import arena, launch
from populations.inspection.views import Inspection

ARMS = {"at_once": "null", "turns": "{{every_agent_steps: {every}}}"}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="simple_tag")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--agent-steps", type=int, default=160_000, help="of each policy")
    parser.add_argument("--every", type=int, default=20_000, help="agent steps of a turn")
    parser.add_argument("--matches", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            runs = {}
            for arm, turns in ARMS.items():
                runs[arm] = Path(scratch) / f"{arm}-{seed}"
                overrides = (
                    f"matchmaking.learning_side_turns={turns.format(every=options.every)}",
                    f"stop.agent_steps_per_policy={options.agent_steps}",
                    "stop.duration_s=null",
                    "pbt.exploit=none",
                )
                launch(options.preset, runs[arm], seed=seed, overrides=overrides)
            line = {"seed": seed, "every": options.every, **facts(runs, matches=options.matches)}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def facts(runs: dict[str, Path], *, matches: int) -> dict[str, object]:
    """Return the shares of matches that the first side wins, arm against arm, and times."""
    text = arena("evaluate", *runs.values(), "--matches", str(matches), "--json")
    names = {str(run): arm for arm, run in runs.items()}
    won = {
        f"{names[pair['home']]} against {names[pair['away']]}": pair["wins"] / pair["matches"]
        for pair in json.loads(text)["pairs"]
    }
    found: dict[str, object] = {"first_side_wins": won}
    for arm, run in runs.items():
        inspection = Inspection.open(run)
        try:
            row = inspection.tables.run
            found[arm] = {"agent_steps": row.agent_steps, "elapsed_s": round(row.elapsed_s, 1)}
        finally:
            inspection.close()
    return found


if __name__ == "__main__":
    main()
