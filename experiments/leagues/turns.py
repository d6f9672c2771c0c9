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
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from experiments.commands import arena, launch
from populations.views.questions.inspection import Inspection

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
    arms = {
        arm: (f"matchmaking.learning_side_turns={turns.format(every=options.every)}",)
        for arm, turns in ARMS.items()
    }
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            runs = train(
                options.preset, arms, Path(scratch), seed=seed, agent_steps=options.agent_steps
            )
            champions = {str(run): arm for arm, run in runs.items()}
            line = {
                "seed": seed,
                "every": options.every,
                "first_side_wins": first_side_wins(champions, matches=options.matches),
                **{arm: figures(run) for arm, run in runs.items()},
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def train(
    preset: str, arms: Mapping[str, tuple[str, ...]], root: Path, *, seed: int, agent_steps: int
) -> dict[str, Path]:
    """Train a preset once for each arm, with equal agent steps of each policy and without PBT.

    Args:
        preset: Name of the preset.
        arms: Overrides of each arm.
        root: Directory of the runs; those that are there go on.
        seed: Seed of all runs.
        agent_steps: Agent steps of each policy.

    Returns:
        Directory of each arm's run.
    """
    runs = {}
    for arm, overrides in arms.items():
        runs[arm] = root / f"{arm}-{seed}"
        equal = (
            f"stop.agent_steps_per_policy={agent_steps}",
            "stop.duration_s=null",
            "pbt.exploit=none",
        )
        launch(preset, runs[arm], seed=seed, overrides=(*overrides, *equal))
    return runs


def first_side_wins(players: Mapping[str, str], *, matches: int) -> dict[str, float]:
    """Return the share of matches that the first side wins, arm against arm.

    Args:
        players: Players as ``arena evaluate`` takes them, and the arm of each.
        matches: Matches of each pair of players.
    """
    text = arena("evaluate", *players, "--matches", str(matches), "--json")
    wins, played = Counter[str](), Counter[str]()
    for pair in json.loads(text)["pairs"]:
        name = f"{players[pair['home']]} against {players[pair['away']]}"
        wins[name] += pair["wins"]
        played[name] += pair["matches"]
    return {name: round(wins[name] / played[name], 4) for name in played}


def figures(run: Path) -> dict[str, object]:
    """Return agent steps and seconds of a run."""
    inspection = Inspection.open(run)
    try:
        row = inspection.tables.run
        return {
            "agent_steps": row.agent_steps,
            "elapsed_s": round(row.elapsed_s, 1),
            "training_s": round(row.training_s, 1),
        }
    finally:
        inspection.close()


if __name__ == "__main__":
    main()
