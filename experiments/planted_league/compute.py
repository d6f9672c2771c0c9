"""Measure what a population makes of its compute: the regret of its champion, by rule.

    python -m experiments.planted_league.compute --to regret.jsonl              # 40 leagues a cell
    python -m experiments.planted_league.compute --rules even,halving --landscapes hill,low_rate

Each league is the real controller with simulated learners, and ends after a number of agent steps
of all policies together. Strength grows as in real runs of Connect Four: twice the steps give 118
Elo at any age. Hyperparameters multiply the steps (`Terrain`), a copy goes on from its donor's
weights, and each line has some luck. Regret is the Elo by which the champion's true skill stays
below that of one policy with the best hyperparameters that trains on one learner from beginning to
end. With one policy for each learner and good hyperparameters it is about 0.

A line of JSON for each league; those that are in the file are not played again. Then a table: means
with their standard errors, and of the difference to the first rule, league by league.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from arena.types import Digest, Hyperparameters
from experiments.harness import add_result, markdown, parser_of, read_results
from populations.choices import number_of
from populations.config.run_config import load_config
from populations.gc_pause import collector_paused
from populations.league.standings import champion, standings
from populations.records.aggregates import Row
from populations.records.rows import EventRow
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.planted import Landscape, PlantedModel, Weights, unit
from populations.simulation.world import make_world, start

GROWTH = 170.0
"""Elo for e times the steps: Connect Four's ladder from 3 to 21 minutes."""

FIRST_STEPS = 13_000.0
"""Steps after which growth is 118 Elo for each doubling."""

WANDER = 8.0
"""Standard deviation of skill by chance, Elo for each doubling of the steps."""

SPEEDS = {"agent_steps_per_s": 68_000.0, "matches_per_s": 6_600.0}
"""Connect Four on one core."""

EARLY = ("pbt.warm_up_agent_steps=250000", "pbt.ready_agent_steps=250000")
BEFORE = (
    *("pbt.warm_up_agent_steps=1000000", "pbt.ready_agent_steps=500000"),
    *("pbt.ready_growth=0", "pbt.share=even", "pbt.initial=same"),
)
HALVING = ("pbt.share=halving", "pbt.initial=sampled")

RULES: Mapping[str, tuple[str, ...]] = {
    "before": BEFORE,
    "even": (*BEFORE, *EARLY, "pbt.ready_growth=0.1"),
    "sampled": (*BEFORE, *EARLY, "pbt.ready_growth=0.1", "pbt.initial=sampled"),
    "halving": (*BEFORE, *EARLY, "pbt.ready_growth=0.1", "pbt.share=halving"),
    "halving_sampled": (*BEFORE, *EARLY, "pbt.ready_growth=0.1", *HALVING),
    "halving_sampled_no_growth": (*BEFORE, *EARLY, *HALVING),
    "halving_sampled_late": (*BEFORE, *HALVING),
    "before_third": (*BEFORE, "pbt.mutation_probability=0.33"),
    "halving_sampled_third": (
        *(*BEFORE, *EARLY, "pbt.ready_growth=0.1", *HALVING),
        "pbt.mutation_probability=0.33",
    ),
}
"""Overrides of Connect Four's preset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingModel(PlantedModel):
    """Truth in which skill grows with the logarithm of steps, and hyperparameters multiply them.

    A potential is the luck of a line: Elo that its speed is worth.
    """

    def trained(
        self,
        weights: Weights,
        *,
        agent_steps: int,
        speed: float,
        opponents: Sequence[Weights],
        rng: np.random.Generator,
    ) -> Weights:
        """Train weights; see `PlantedModel.trained`."""
        del opponents
        # s = g ln(1 + E / E0), and the steps E that count grow by v n e^(z / g).
        before = math.expm1(max(weights.skill, 0.0) / GROWTH)
        after = before + speed * math.exp(weights.potential / GROWTH) * agent_steps / FIRST_STEPS
        doublings = math.log2((1.0 + after) / (1.0 + before))
        # The first doublings are one assignment's.
        chance = WANDER * math.sqrt(min(doublings, 4.0)) * float(rng.normal())
        return replace(weights, skill=GROWTH * math.log1p(after) + chance)


def bell(value: float, *, best: float, width: float) -> float:
    """Return exp(-((value - best) / width)^2 / 2)."""
    return math.exp(-0.5 * ((value - best) / width) ** 2)


def hill(rate: float, entropy: float, gamma: float, done: float) -> float:
    """Return the speed where each hyperparameter has its best value."""
    del done
    slow = bell(rate, best=0.8, width=0.2) * bell(entropy, best=0.2, width=0.3)
    return slow * bell(gamma, best=0.7, width=0.4)


def cliff(rate: float, entropy: float, gamma: float, done: float) -> float:
    """Return the speed where more is better until nothing works any more."""
    del entropy, gamma, done
    return 0.02 if rate > 0.75 else 0.1 + 0.9 * rate / 0.75


def ridge(rate: float, entropy: float, gamma: float, done: float) -> float:
    """Return the speed where one value is right for the other."""
    del gamma, done
    across = bell(rate - entropy, best=0.4, width=0.08)
    return max(across * bell(rate + entropy, best=1.2, width=0.3), 1e-3)


def moving(rate: float, entropy: float, gamma: float, done: float) -> float:
    """Return the speed where the best learning rate falls through its range during the run."""
    del entropy, gamma
    return max(bell(rate, best=0.95 - 0.9 * done, width=0.15), 1e-3)


Shape = Callable[[float, float, float, float], float]
SHAPES: Mapping[str, Shape] = {"hill": hill, "cliff": cliff, "ridge": ridge, "moving": moving}

WIDE = (
    "populations.player.search_space.entropy_coef={low: 0.005, high: 0.3, log: true}",
    "populations.player.search_space.learning_rate={low: 1.0e-5, high: 5.0e-2, log: true}",
)
LANDSCAPES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(SHAPES, ()),
    # Connect Four: its preset's start values, and three bad ones in wide search spaces.
    "good_start": (),
    "low_rate": (*WIDE, "populations.player.hyperparameters.learning_rate=1.0e-4"),
    "high_rate": (*WIDE, "populations.player.hyperparameters.learning_rate=2.0e-2"),
    "low_entropy": (*WIDE, "populations.player.hyperparameters.entropy_coef=0.008"),
}


@dataclass(frozen=True, slots=True)
class Terrain(Landscape):
    """Speed of learning by hyperparameters.

    Attributes:
        kind: Key of `LANDSCAPES`.
        done: Function that returns the share of the run that is over.
    """

    kind: str
    done: Callable[[], float]

    def speed(self, hyperparameters: Hyperparameters) -> float:
        """Return the speed, in (0, 1]."""
        if self.kind in SHAPES:
            names = ("learning_rate", "entropy_coef", "gamma")
            places = [unit(self.dimensions[name], hyperparameters[name]) for name in names]
            return SHAPES[self.kind](places[0], places[1], places[2], self.done())
        # A step is as long as the rate is large, and training breaks where it is too long.
        times = number_of(hyperparameters["learning_rate"]) / 2.5e-3
        power = 0.8 if times < 1.0 else -1.5 if times < 3.0 else -3.0
        entropy = bell(
            math.log(number_of(hyperparameters["entropy_coef"]) / 0.1), best=0.0, width=1.2
        )
        return max(math.pow(times, power) * entropy, 2e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One league."""

    rule: str
    landscape: str
    seed: int
    num_policies: int
    num_learners: int
    agent_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a league at its end.

    Attributes:
        regret: Elo below one policy that trains with speed 1 on one learner for the whole run.
        longest: Agent steps of the policy with the most.
        copies: Copies.
        retired: Policies that left.
    """

    regret: float
    longest: int
    copies: int
    retired: int


@collector_paused()
def play(task: Task) -> Figures:
    """Run a league to its end."""
    overrides = (
        f"seed={task.seed}",
        f"stop.agent_steps={task.agent_steps}",
        f"learners={task.num_learners}",
        *LANDSCAPES[task.landscape],
        *RULES[task.rule],
    )
    loaded = load_config("connect_four", overrides)
    config = simulated_config(loaded, num_policies=task.num_policies)
    model = GrowingModel(spread=40.0)
    world = make_world(simulated_run(config), model, **SPEEDS)
    dimensions = world.learner.landscapes["player"].dimensions

    def done() -> float:
        return min(world.state.tables.run.agent_steps / task.agent_steps, 1.0)

    terrain = Terrain(dimensions, model.width, task.landscape, done)
    world.learner.landscapes = {"player": terrain}
    retired = 0

    def watch(rows: Sequence[Row]) -> None:
        nonlocal retired
        retired += sum(isinstance(row, EventRow) and row.kind == "retired" for row in rows)

    world.watch = watch
    start(world)
    while world.advance():
        pass
    tables = world.state.tables
    best = champion(standings(world.state.league)["player"])
    assert best is not None
    own_steps = task.agent_steps / min(task.num_learners, task.num_policies)
    most = GROWTH * math.log1p(own_steps / FIRST_STEPS)
    return Figures(
        regret=round(most - world.learner.weights[Digest(str(best.weights))].skill, 1),
        longest=max(row.agent_steps for row in tables.policies.values()),
        copies=tables.run.exploits,
        retired=retired,
    )


def summary(found: Mapping[Task, Figures], rules: Sequence[str], names: Sequence[str]) -> str:
    """Return a table: mean regrets, and the mean differences to the first rule."""

    def cell(values: Sequence[float]) -> str:
        error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return f"{np.mean(values):.0f} +- {error:.0f}"

    def of(rule: str, landscape: str) -> dict[int, float]:
        return {
            task.seed: figures.regret
            for task, figures in found.items()
            if (task.rule, task.landscape) == (rule, landscape)
        }

    def line(rule: str) -> Iterator[str]:
        yield rule
        regrets, gains = list[float](), list[float]()
        for name in names:
            own, first = of(rule, name), of(rules[0], name)
            seeds = sorted(own.keys() & first.keys())
            differences = [own[seed] - first[seed] for seed in seeds]
            regrets += own.values()
            gains += differences
            yield cell(list(own.values())) + ("" if rule == rules[0] else f" ({cell(differences)})")
        yield cell(regrets) + ("" if rule == rules[0] else f" ({cell(gains)})")

    rows = [["rule", *names, "mean"], *(list(line(rule)) for rule in rules)]
    return "".join(f"{row}\n" for row in markdown(rows))


def main(argv: Sequence[str] | None = None) -> None:
    """Play the leagues that are missing, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", default=",".join(RULES), help="separated by commas")
    parser.add_argument("--landscapes", default=",".join(LANDSCAPES), help="separated by commas")
    parser.add_argument("--seeds", type=int, default=40, help="leagues of each cell")
    parser.add_argument("--policies", type=int, default=4)
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--agent-steps", type=int, default=23_000_000, help="of all policies")
    parser.add_argument("--to", type=Path, default=Path("regret.jsonl"))
    options = parser.parse_args(argv)
    rules, names = options.rules.split(","), options.landscapes.split(",")
    known = {Task(**line["task"]): Figures(**line["figures"]) for line in read_results(options.to)}
    # Seeds outermost: an unfinished table has as many leagues in each cell.
    tasks = [
        Task(
            rule=rule,
            landscape=name,
            seed=seed,
            num_policies=options.policies,
            num_learners=options.learners,
            agent_steps=options.agent_steps,
        )
        for seed, name, rule in product(range(options.seeds), names, rules)
    ]
    for task in tasks:
        if task not in known:
            known[task] = play(task)
            add_result(options.to, {"task": asdict(task), "figures": asdict(known[task])})
    sys.stdout.write(summary({task: known[task] for task in tasks}, rules, names))


if __name__ == "__main__":
    main()
