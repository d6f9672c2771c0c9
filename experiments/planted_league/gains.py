"""Measure whether rules that learn from past generations find a planted optimum, and how soon.

    python -m experiments.planted_league.gains --rules pb2,tpe,cma_es,gp --seeds 10

Each league is the real controller with simulated learners, and hyperparameters have one hill in
their search space. `perturb` and `resample` learn nothing from gains and are what others are
compared with. Under the old signals a generation's gain is the difference of a rating by the fit of
its beginning and one by the fit of its end, over all its steps, and all gains are equally sure.

A line of JSON for each league. ``found_after`` is how many generations the population had finished
when the mean speed of its explored policies, as the mean of the last `WINDOW` generations that
began, reached `FOUND`; null where it never did. ``speed`` is that mean over the last third of all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from msgspec.structs import replace

from arena.types import Entrant
from populations.config.run_config import RunConfig, load_config
from populations.core import Exploration, Explore, SearchSpace
from populations.records.aggregates import Row
from populations.records.rows import GenerationRow
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import total_agent_steps
from populations.simulation.planted import PlantedModel
from populations.simulation.world import World, make_world, start

RULES = ("perturb", "resample", "pb2", "gp", "tpe", "cma_es")
BLIND = ("perturb", "resample")
"""Rules that read no gains."""

WINDOW = 16
FOUND = 0.75


@dataclass(slots=True)
class OldSignals:
    """A rule that is told what was recorded before: ratings of two fits.

    Attributes:
        rule: The rule.
        begins: Rating at the beginning of each generation, as it was then.
    """

    rule: Explore
    begins: Mapping[Entrant, float | None]

    def explore(
        self,
        hyperparameters: Mapping[str, float],
        search_space: SearchSpace,
        *,
        history: Sequence[GenerationRow] = (),
        agent_steps: int = 0,
        rng: np.random.Generator,
    ) -> Exploration:
        """Ask the rule."""
        return self.rule.explore(
            hyperparameters,
            search_space,
            history=tuple(self._told(row) for row in history),
            agent_steps=agent_steps,
            rng=rng,
        )

    def _told(self, row: GenerationRow) -> GenerationRow:
        if row.agent_steps_end is None:
            return row
        return replace(
            row,
            rating_begin=self.begins.get(row.entrant),
            gain_agent_steps=row.agent_steps_end - row.agent_steps_begin,
            gain_deviation=0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Figures of one league.

    Attributes:
        rule: Its kind.
        signals: ``one fit``, ``two fits``, or ``none`` for rules that read no gains.
        seed: Seed of the run.
        num_generations: Number of generations that began after another one.
        found_after: Number of them before the optimum was found; None: never found.
        speed: Learning speed with explored hyperparameters at the end, in (0, 1].
        best_skill: Elo of the best policy at the end.
        cpu_s: Seconds of this process.
    """

    rule: str
    signals: str
    seed: int
    num_generations: int
    found_after: int | None
    speed: float
    best_skill: float
    cpu_s: float


@dataclass(slots=True)
class Observer:
    """Observer of the rows that a world commits.

    Attributes:
        world: Watched.
        begins: Rating at the beginning of each generation.
        speeds: Speed of each explored generation, in order of beginning.
    """

    world: World
    begins: dict[Entrant, float | None] = field(default_factory=dict)
    speeds: list[float] = field(default_factory=list)

    def watch(self, rows: Sequence[Row]) -> None:
        """Take in what a transaction commits."""
        for row in rows:
            if isinstance(row, GenerationRow) and row.entrant not in self.begins:
                self.begins[row.entrant] = row.rating_begin
                if row.cause in ("explore", "exploit"):
                    landscape = self.world.learner.landscapes[row.population]
                    self.speeds.append(landscape.speed(row.hyperparameters))


def make_config(rule: str, options: argparse.Namespace, *, seed: int) -> RunConfig:
    """Make a small league in which policies are often ready."""
    changes = [
        f"stop.agent_steps_per_policy={options.agent_steps}",
        "ghosts.every_agent_steps=1000000",
        "pbt.warm_up_agent_steps=200000",
        "pbt.ready_agent_steps=200000",
        "pbt.ready_growth=0",
        "pbt.share=even",
        f"evaluation.share={options.share}",
        f"learners={options.learners}",
        f"pbt.explore={rule}",
        f"seed={seed}",
    ]
    return simulated_config(load_config("connect_four", changes), num_policies=options.policies)


def play(rule: str, options: argparse.Namespace, *, seed: int, is_old: bool) -> Outcome:
    """Run one league until its training ends."""
    began_s = time.process_time()
    config = make_config(rule, options, seed=seed)
    limit = total_agent_steps(config) / options.policies
    # No policy is near its ceiling at the end: what a generation gains depends on hyperparameters.
    model = PlantedModel(ceiling=4000.0, learning_agent_steps=limit)
    world = make_world(
        simulated_run(config), model, agent_steps_per_s=100_000.0, matches_per_s=1000.0
    )
    observer = Observer(world)
    world.watch = observer.watch
    if is_old:
        world.state.explore = {
            name: OldSignals(inner, observer.begins) for name, inner in world.state.explore.items()
        }
    start(world)
    while world.advance() and world.state.phase == "training":
        pass
    speeds = np.array(observer.speeds)
    tables = world.state.tables
    skills = [
        world.learner.weights[tables.checkpoints[row.checkpoint].weights_digest].skill
        for row in tables.policies.values()
        if row.checkpoint is not None
    ]
    means = np.convolve(speeds, np.full(WINDOW, 1.0 / WINDOW), mode="valid")
    found = np.flatnonzero(means >= FOUND)
    return Outcome(
        rule=rule,
        signals="none" if rule in BLIND else "two fits" if is_old else "one fit",
        seed=seed,
        num_generations=len(speeds),
        found_after=int(found[0]) + WINDOW if found.size else None,
        speed=round(float(speeds[-(len(speeds) // 3) :].mean()), 3),
        best_skill=round(max(skills), 1),
        cpu_s=round(time.process_time() - began_s, 2),
    )


def summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Say in a table what the leagues of each rule came to."""
    yield "| rule | gains by | found | generations until then | speed at the end | best skill |"
    yield "|---|---|---|---|---|---|"
    for rule, signals in dict.fromkeys((one.rule, one.signals) for one in outcomes):
        own = [one for one in outcomes if (one.rule, one.signals) == (rule, signals)]
        # The median counts those that never found it as the longest.
        ends = [np.inf if one.found_after is None else one.found_after for one in own]
        speeds = np.array([one.speed for one in own])
        skills = np.array([one.best_skill for one in own])
        error = 1.0 / np.sqrt(len(own))
        yield (
            f"| {rule} | {signals} | {int(np.isfinite(ends).sum())} of {len(own)} | "
            f"{np.median(ends):.0f} | {speeds.mean():.2f} +- {speeds.std() * error:.2f} | "
            f"{skills.mean():.0f} +- {skills.std() * error:.0f} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run leagues, print a line for each, then a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rules", default=",".join(RULES), help="Rules, separated by commas")
    parser.add_argument("--seeds", type=int, default=10, help="Leagues of each rule")
    parser.add_argument("--first-seed", type=int, default=0, help="Seed of the first league")
    parser.add_argument("--policies", type=int, default=8, help="Size of the population")
    parser.add_argument("--learners", type=int, default=4, help="Simulated learners")
    parser.add_argument(
        "--agent-steps", type=int, default=20_000_000, help="Agent steps of each policy"
    )
    parser.add_argument("--share", type=float, default=0.2, help="Share of evaluation")
    options = parser.parse_args(arguments)
    outcomes = []
    for rule in options.rules.split(","):
        for is_old in (False,) if rule in BLIND else (True, False):
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                outcomes.append(play(rule, options, seed=seed, is_old=is_old))
                sys.stdout.write(json.dumps(asdict(outcomes[-1])) + "\n")
                sys.stdout.flush()
    for line in summary(outcomes):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
