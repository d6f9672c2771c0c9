"""Measure which share of learner seconds evaluation gets, and which PBT decisions are made.

    python -m experiments.planted_league.shares                    # fast and slow matches, the grid
    python -m experiments.planted_league.shares --speeds slow --learners 2 8 --policies 4
    python -m experiments.planted_league.shares --learners 4 --policies 8 --slots equal unequal

Each row is one run of a preset to the end of its training. ``share`` is evaluation's part of all
learner seconds, as part of what was asked. ``due`` counts marks of policies' clocks as if every
decision were made on time: warm-up, then one for each interval. ``made`` counts decisions.
``possible`` is the part of them for which the share that was asked has the matches: each match is
about two policies, and each decision needs ``pbt.min_matches``. With ``--slots unequal`` the first
slot's learner trains at a fifth of the speed, and the second's plays ten times as many matches.

JSON, one line for each run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from statistics import median

from arena.types import LearnerId, PolicyId
from arena.wire.messages import Evaluate
from populations.config.run_config import RunConfig, load_config
from populations.controller.evaluation.pairings import validated_policy
from populations.gc_pause import collector_paused
from populations.records.aggregates import Row
from populations.records.rows import AssignmentRow, EventRow, Json, PolicyRow
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.world import Speeds, World, make_world, start

PRESET = "connect_four"

NUM_MARKS = 6
"""Decisions of PBT about each policy, if each is made on time."""

OVERRIDES: dict[str, tuple[str, ...]] = {
    # Every policy trains to the end, and each interval is as long as the first.
    "demo": (
        "pbt.share=even",
        "pbt.ready_agent_steps=500000",
        "pbt.warm_up_agent_steps=1000000",
    ),
    "slow": (
        "pbt.share=even",
        "environment.num_envs=16",
        "ghosts.every_agent_steps=15000",
        "pbt.ready_agent_steps=15000",
        "pbt.warm_up_agent_steps=30000",
        "pbt.min_matches=60",
        "evaluation.share=0.1",
    ),
}
SPEEDS: dict[str, Speeds] = {
    # As Connect Four's demo on one core.
    "demo": {"agent_steps_per_s": 40_000.0, "matches_per_s": 4900.0},
    # An environment whose matches have about 50 steps of 5 ms.
    "slow": {"agent_steps_per_s": 100.0, "matches_per_s": 4.0},
}


SLOTS: dict[str, dict[int, tuple[float, float]]] = {
    "equal": {},
    "unequal": {0: (0.2, 1.0), 1: (1.0, 10.0)},
}
"""Speeds of training and of matches by slot, as parts of all others'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run.

    Attributes:
        num_learners: Processes.
        num_policies: Size of the one population.
        speed: Key of ``SPEEDS`` and ``OVERRIDES``.
        slots: Key of ``SLOTS``.
        seed: Seed of the run.
        overrides: KEY=VALUE, after those of the speed.
    """

    num_learners: int
    num_policies: int
    speed: str
    seed: int
    slots: str = "equal"
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a run at the end of its training.

    Attributes:
        share: Evaluation's part of all learner seconds.
        asked: ``evaluation.share``.
        of_asked: One divided by the other.
        rating_evaluations: Evaluations of two players.
        validations: Evaluations in which newcomers played only themselves.
        matches: Matches of all evaluations.
        due: Decisions of PBT that policies' clocks asked for.
        made: Decisions of PBT.
        of_due: One divided by the other.
        possible: Part of the due ones for which there can be matches, at most 1.
        exploits: Copies.
        agent_steps: Trained.
        simulated_s: Length of the run.
        agent_steps_per_s: One divided by the other.
        training_s: By slot, the median and the longest training assignment, but for the first.
        evaluations: By slot, evaluations.
        idle: Part of all learners' seconds in which they did nothing.
        max_open: Evaluations open at once.
        seconds: Seconds that the simulation took.
    """

    share: float
    asked: float
    of_asked: float
    rating_evaluations: int
    validations: int
    matches: int
    due: int
    made: int
    of_due: float
    possible: float
    exploits: int
    agent_steps: int
    simulated_s: float
    agent_steps_per_s: float
    training_s: list[tuple[float, float]]
    evaluations: list[int]
    idle: float
    max_open: int
    seconds: float


@dataclass(slots=True)
class Counter:
    """Counter of a world's committed rows."""

    world: World
    rating_evaluations: int = 0
    validations: int = 0
    matches: int = 0
    made: int = 0
    max_open: int = 0
    training_s: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    evaluations: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    _ready_at: dict[PolicyId, int] = field(default_factory=dict)

    def watch(self, rows: Sequence[Row]) -> None:
        """Take in what a transaction commits."""
        for row in rows:
            match row:
                case AssignmentRow(status="finished", message=Evaluate() as message):
                    self._count_evaluation(message)
                    self.matches += row.matches
                    self.evaluations[self._slot(row)] += 1
                case AssignmentRow(status="finished") if row.agent_steps:
                    self.training_s[self._slot(row)].append(row.duration_s)
                case PolicyRow():
                    self.made += row.ready_at > self._ready_at.get(row.policy, 0)
                    self._ready_at[row.policy] = row.ready_at
                case EventRow(kind="evaluation_assigned") if self.world.state.phase == "training":
                    is_open = (
                        isinstance(row.message, Evaluate)
                        for row in self.world.state.tables.assignments.values()
                    )
                    self.max_open = max(self.max_open, sum(is_open))

    def _slot(self, row: AssignmentRow) -> int:
        learner = self.world.state.learners[LearnerId(row.learner or "")]
        return -1 if learner.slot is None else learner.slot

    def _count_evaluation(self, message: Evaluate) -> None:
        state = self.world.state
        if all(validated_policy(state, pairing) is not None for pairing in message.pairings):
            self.validations += 1
        else:
            self.rating_evaluations += 1


def config_of(task: Task) -> RunConfig:
    """Resolve the configuration of a run, which ends when every policy has had all its marks."""
    base = load_config(PRESET, OVERRIDES[task.speed])
    pbt = base.pbt
    # Half an interval more, so that what a learner trains past a mark costs none at the end.
    steps = pbt.warm_up_agent_steps + (NUM_MARKS - 1) * pbt.ready_agent_steps
    steps += pbt.ready_agent_steps // 2
    overrides = (
        *OVERRIDES[task.speed],
        f"learners={task.num_learners}",
        f"stop.agent_steps_per_policy={steps}",
        f"seed={task.seed}",
        *task.overrides,
    )
    return simulated_config(load_config(PRESET, overrides), num_policies=task.num_policies)


@collector_paused()
def measure(task: Task) -> Figures:
    """Run a league to the end of its training."""
    started_s = time.process_time()
    config, speeds = config_of(task), SPEEDS[task.speed]
    world = make_world(simulated_run(config), default_model(config), **speeds)
    for slot, (training, matches) in SLOTS[task.slots].items():
        world.speeds[slot] = {
            "agent_steps_per_s": training * speeds["agent_steps_per_s"],
            "matches_per_s": matches * speeds["matches_per_s"],
        }
    counter = Counter(world)
    world.watch = counter.watch
    start(world)
    while world.state.phase == "training" and world.advance():
        pass
    run, pbt = world.state.tables.run, config.pbt
    due = sum(
        1 + (row.agent_steps - pbt.warm_up_agent_steps) // pbt.ready_agent_steps
        for row in world.state.tables.policies.values()
        if row.agent_steps >= pbt.warm_up_agent_steps
    )
    asked = config.evaluation.share
    busy_s = run.training_s + run.evaluation_s
    affordable = 2.0 * asked * busy_s * speeds["matches_per_s"] / max(pbt.min_matches, 1)
    return Figures(
        share=round(run.evaluation_s / busy_s, 4),
        asked=asked,
        of_asked=round(run.evaluation_s / busy_s / asked, 3),
        rating_evaluations=counter.rating_evaluations,
        validations=counter.validations,
        matches=counter.matches,
        due=due,
        made=counter.made,
        of_due=round(counter.made / due, 3),
        possible=round(min(affordable / due, 1.0), 3),
        exploits=run.exploits,
        agent_steps=run.agent_steps,
        simulated_s=round(world.now_s, 1),
        agent_steps_per_s=round(run.agent_steps / world.now_s, 1),
        training_s=[
            (round(median(times), 3), round(max(times), 3))
            for slot in range(task.num_learners)
            if (times := counter.training_s[slot][1:])
        ],
        evaluations=[counter.evaluations[slot] for slot in range(task.num_learners)],
        idle=round(1.0 - busy_s / (world.now_s * task.num_learners), 3),
        max_open=counter.max_open,
        seconds=round(time.process_time() - started_s, 1),
    )


def tasks_of(options: argparse.Namespace) -> Iterator[Task]:
    """Make a task for each combination that was asked for."""
    for speed in options.speeds:
        for num_learners in options.learners:
            for num_policies in options.policies:
                for slots, seed in product(options.slots, options.seeds):
                    yield Task(
                        num_learners=num_learners,
                        num_policies=num_policies,
                        speed=speed,
                        slots=slots,
                        seed=seed,
                        overrides=tuple(options.overrides),
                    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the grid and print its lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--policies", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--speeds", choices=list(SPEEDS), nargs="+", default=list(SPEEDS))
    parser.add_argument("--slots", choices=list(SLOTS), nargs="+", default=["equal"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE, after those of the experiment")
    for task in tasks_of(parser.parse_intermixed_args(argv)):
        line: dict[str, Json] = {**asdict(task), **asdict(measure(task))}
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
