"""Does a curriculum teach what flat training does not?

    python -m experiments.learning.curriculum --seeds 1 2 3

Not a test that passes or fails: for each seed it trains two populations of the sparse grid-world
`experiments.learning.treasure`, once at full size alone and once in lessons of growing size, with
equal agent steps, through the whole of Arena. One JSON line per run: the mean return of each
population's best player in matches at full size, which is the share of episodes that succeed, and
the agent steps of the run at which each lesson began.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from experiments.commands import launch
from experiments.learning.treasure import FULL
from populations.controller.evolution.curriculum import LESSON_BEGAN
from populations.views.questions.inspection import Inspection

ENVIRONMENT: dict[str, object] = {
    "id": "experiments.learning.treasure:parallel_env",
    "kwargs": {"size": FULL},
    "num_envs": 64,
    "sides": {"team": ["fetcher", "opener"]},
}
LESSONS: list[dict[str, object]] = [
    *({"kwargs": {"size": size}, "until": {"return": 0.8}} for size in (3, 5, 8, 11)),
    {},
]
HYPERPARAMETERS: dict[str, object] = {"rollout_length": 64, "entropy_coef": 0.01}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--agent-steps", type=int, default=750_000, help="of each policy")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            for arm, lessons in (("flat", []), ("lessons", LESSONS)):
                run = Path(scratch) / f"{arm}-{seed}"
                config = Path(scratch) / f"{arm}.yaml"
                config.write_text(
                    json.dumps(document(lessons, agent_steps=options.agent_steps)), encoding="utf8"
                )
                launch(str(config), run, seed=seed)
                line = {"arm": arm, "seed": seed, **facts(run)}
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


def document(lessons: list[dict[str, object]], *, agent_steps: int) -> dict[str, object]:
    """Return the configuration of an arm."""
    return {
        "environment": {**ENVIRONMENT, "curriculum": lessons},
        "populations": {
            name: {
                "agents": [name],
                "size": 1,
                "network": {"hidden_sizes": [64, 64]},
                "hyperparameters": HYPERPARAMETERS,
            }
            for name in ("fetcher", "opener")
        },
        "pbt": {"exploit": "none"},
        "metrics": {"sinks": []},
        "stop": {"agent_steps_per_policy": agent_steps},
    }


def facts(run: Path) -> dict[str, object]:
    """Return the figures of a finished run."""
    inspection = Inspection.open(run)
    try:
        began = inspection.reader.events(kinds=[LESSON_BEGAN])
        standings = {
            name: max((line.mean_return or 0.0 for line in lines), default=0.0)
            for name, lines in inspection.standings(None).items()
        }
        row = inspection.tables.run
        return {
            "agent_steps": row.agent_steps,
            "elapsed_s": round(row.elapsed_s, 1),
            "lesson": row.lesson,
            "began": {event.subject: event.data["agent_steps"] for event in began},
            "success": {name: round(value, 3) for name, value in standings.items()},
        }
    finally:
        inspection.close()


if __name__ == "__main__":
    main()
