"""Work of healthy learners beside faulty ones, in a simulated league.

Of some learners a few fail each assignment at once; the rest is measured against the same number of
healthy learners alone, over the same simulated time. One JSON line per kind of failure and size.

    python -m experiments.planted_league.faulty_learners --learners 4 --policies 8
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from populations.config.run_config import validate_config
from populations.records.aggregates import Row
from populations.records.rows import EventRow
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.world import World, make_world, start

KINDS = ("error", "environment", "non_finite", "checkpoint", "storage", "stopped")


def make_league(*, learners: int, policies: int, seed: int) -> World:
    """Make a league of one population that nothing but time ends."""
    document = {
        "environment": {"id": "planted:duel", "num_envs": 16},
        "populations": {"player": {"size": policies}},
        "assignment": {"target_s": 3.0},
        "learners": learners,
        "seed": seed,
        "stop": {"agent_steps_per_policy": 10**12},
    }
    config = simulated_config(validate_config(document))
    return make_world(simulated_run(config), default_model(config))


def play(world: World, *, seconds: float) -> tuple[int, list[EventRow]]:
    """Let simulated time pass.

    Returns:
        Assignments that were finished, and all events.
    """
    events: list[EventRow] = []

    def watch(rows: Sequence[Row]) -> None:
        events.extend(row for row in rows if isinstance(row, EventRow))

    world.watch = watch
    start(world)
    world.play(seconds)
    return world.state.tables.run.assignments_finished, events


def measure(
    kind: str, *, learners: int, faulty: int, policies: int, seconds: float, seed: int
) -> dict[str, object]:
    """Compare healthy learners beside faulty ones with as many alone."""
    healthy = learners - faulty
    alone, _ = play(make_league(learners=healthy, policies=policies, seed=seed), seconds=seconds)
    world = make_league(learners=learners, policies=policies, seed=seed)
    world.fault = lambda slot, message, now_s: kind if 0 <= slot < faulty else None
    beside, events = play(world, seconds=seconds)
    rows = world.state.tables.policies.values()
    return {
        "kind": kind,
        "learners": learners,
        "faulty": faulty,
        "policies": policies,
        "seconds": seconds,
        "seed": seed,
        "share_of_alone": round(beside / alone, 4),
        "dismissals": sum(event.kind == "learner_dismissed" for event in events),
        "failures": sum(event.kind == "assignment_failed" for event in events),
        "quarantined": sum(event.kind == "quarantined" for event in events),
        "policies_rescued": sum(row.rescues > 0 for row in rows),
        "phase": world.state.phase,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", type=int, default=4, help="all learners, faulty ones too")
    parser.add_argument("--faulty", type=int, default=1, help="learners that fail everything")
    parser.add_argument("--policies", type=int, default=8, help="size of the population")
    parser.add_argument("--seconds", type=float, default=600.0, help="simulated time")
    parser.add_argument("--seeds", type=int, default=3, help="leagues for each kind")
    options = parser.parse_args(argv)
    for kind in KINDS:
        for seed in range(options.seeds):
            figures = measure(
                kind,
                learners=options.learners,
                faulty=options.faulty,
                policies=options.policies,
                seconds=options.seconds,
                seed=seed,
            )
            sys.stdout.write(f"{json.dumps(figures)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
