"""Measure how long decisions take after a league has played for days.

    python -m experiments.planted_league.week --days 1,3,7

The rows of so many days at the demo's rate are generated (`LONG_LEAGUE`), a controller is made from
them as a resume does, and simulated learners go on. A line of JSON for each: rows, then how long
the controller took to handle each event that a learner waits for, in milliseconds of processor time
(and the median of the wall clock), and how long of it to decide on the next assignment (``next
train``, ``next evaluate``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from msgspec import structs

from arena.checkpoints.manifest import checkpoint_key, ghost_key
from arena.types import (
    RANDOM_BOT,
    AssignmentId,
    Digest,
    Entrant,
    PolicyId,
    ghost_id,
    trainee_entrant,
)
from arena.wire.messages import Train
from experiments.harness import parser_of, say
from populations.config.run_config import load_config
from populations.config.run_file import RUN_FILE, RunFile, content_digest
from populations.controller.assignments.jobs import Job
from populations.controller.assignments.placement import _decide as placement_decide
from populations.controller.machine import handle
from populations.controller.state.events import AssignmentFinished, Event, Now, RatingsFitted
from populations.controller.state.state import ControllerState, make_state
from populations.controller.state.transaction import Transaction
from populations.gc_pause import collector_paused
from populations.records.aggregates import PairRow, RecordRow, Row
from populations.records.rows import (
    CheckpointRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    RatingsRow,
)
from populations.records.tables import Table, Tables
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.planted import PlantedModel, Weights
from populations.simulation.world import World, make_world, start
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal

POPULATION = "player"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a league, as it has played.

    Attributes:
        checkpoints: Checkpoints of each policy, in one line.
        evaluated_every: Number of checkpoints of which one was evaluated.
        ghosts_every: Number of checkpoints of which one is a ghost.
        generations_every: So many checkpoints a generation has; 0: it is the first one still.
        pairs: Results of each evaluated checkpoint.
        met: Ghosts that each checkpoint was trained against.
        keep: Ghosts of all policies that thinning has left, spread evenly through history; None:
            all of them.
    """

    checkpoints: int
    evaluated_every: int = 5
    ghosts_every: int = 5
    generations_every: int = 0
    pairs: int = 16
    met: int = 8
    keep: int | None = None


DAY = Size(checkpoints=7_000)
"""One day of the demo's eight policies, which keep their generation: the worst case."""

STEPS = 20_000
"""Agent steps of each checkpoint."""


def digest(policy: PolicyId, number: int) -> Digest:
    """Name some weights."""
    return Digest(f"{policy.rpartition('p')[2]:0>6}{number:058d}")


@collector_paused()
def add_past(world: World, size: Size) -> None:
    """Put a past into a new world that has not started, and make its controller from that."""
    tables = world.state.tables
    policies = list(tables.policies)
    for policy in policies:
        _add_line(world, tables, policy, size)
    for row in _results(policies, size):
        if isinstance(row, RecordRow):
            tables.records[row.key] = row
        else:
            tables.pairs[row.key] = row
    tables.num_tallies = tables.last_evaluation_sequence = len(tables.pairs)
    num_assignments = len(policies) * size.checkpoints
    share = world.state.settings.config.evaluation.share
    tables.run = structs.replace(
        tables.run,
        epoch=1,
        next_assignment=AssignmentId(num_assignments + 1),
        training_assignments=num_assignments,
        training_s=float(num_assignments),
        evaluation_s=num_assignments * share / (1.0 - share),
        evaluation_assignments=num_assignments // 10,
        assignments_finished=num_assignments,
    )
    world.state = make_state(world.state.settings.config, world.setup, tables)


def _add_line(world: World, tables: Tables, policy: PolicyId, size: Size) -> None:
    """Add a policy's checkpoints, ghosts and generations, and put it at the end of them."""
    row = tables.policies[policy]
    per_generation = size.generations_every or size.checkpoints
    kept = _kept(size, num_policies=len(tables.policies))
    for number in range(size.checkpoints):
        weights, steps, generation = (
            digest(policy, number),
            number * STEPS,
            number // per_generation,
        )
        key = checkpoint_key(policy, agent_steps=steps, digest=weights)
        made = CheckpointRow(
            key=key,
            digest=weights,
            weights_digest=weights,
            policy=policy,
            generation=generation,
            agent_steps=steps,
            learner_updates=number,
            parent=digest(policy, number - 1) if number else None,
            assignment_id=AssignmentId(number + 1),
            state="present" if number >= size.checkpoints - 2 else "deleted",
        )
        tables.checkpoints[key] = made
        world.learner.origins[weights] = weights
        skill = 800.0 * number / size.checkpoints
        world.learner.weights[weights] = Weights(skill=skill, potential=0.0, kind=0)
        if number % per_generation == 0:
            _add_generation(tables, row, generation, steps, per_generation * STEPS)
        if number in kept:
            _add_ghost(tables, made)
    last = size.checkpoints - 1
    tables.policies[policy] = structs.replace(
        row,
        checkpoint=key,
        agent_steps=steps,
        learner_updates=last,
        generation=last // per_generation,
        generation_at=last // per_generation * per_generation * STEPS,
        validated_generation=last // per_generation,
        ghost_at=last // size.ghosts_every * size.ghosts_every * STEPS,
        ready_at=steps,
        speed=100_000.0,
        episode_length=20.0,
    )


def _kept(size: Size, *, num_policies: int) -> set[int]:
    """Return the checkpoints of a policy whose ghosts are there."""
    ghosts = range(0, size.checkpoints, size.ghosts_every)
    num_kept = len(ghosts) if size.keep is None else size.keep // num_policies
    if num_kept >= len(ghosts):
        return set(ghosts)
    places = np.linspace(0, len(ghosts) - 1, num_kept).round().astype(int)
    return {ghosts[place] for place in places}


def _add_generation(
    tables: Tables, policy: PolicyRow, generation: int, steps: int, num_steps: int
) -> None:
    before = trainee_entrant(policy.policy, generation=generation - 1)
    if generation:
        ended = structs.replace(
            tables.generations[before],
            agent_steps_end=steps,
            rating_begin=10.0 * generation,
            rating_end=10.0 * generation + 20.0,
            gain_deviation=30.0,
            gain_agent_steps=num_steps,
        )
        tables.generations[before] = ended
    entrant = trainee_entrant(policy.policy, generation=generation)
    tables.generations[entrant] = GenerationRow(
        entrant=entrant,
        policy=policy.policy,
        population=POPULATION,
        generation=generation,
        cause="explore" if generation else "start",
        parent=before if generation else None,
        hyperparameters=dict(policy.hyperparameters),
        agent_steps_begin=steps,
    )


def _add_ghost(tables: Tables, made: CheckpointRow) -> None:
    player = ghost_id(made.policy, agent_steps=made.agent_steps)
    tables.ghosts[player] = GhostRow(
        player=player,
        policy=made.policy,
        population=POPULATION,
        agent_steps=made.agent_steps,
        generation=made.generation,
        weights_digest=made.weights_digest,
        key=ghost_key(made.policy, agent_steps=made.agent_steps, digest=made.digest),
        checkpoint=made.key,
        linked=True,
    )


def _results(policies: Sequence[PolicyId], size: Size) -> Iterator[RecordRow | PairRow]:
    """Yield what was evaluated and trained against, folded."""
    bot = Entrant(RANDOM_BOT)
    yield RecordRow(population=POPULATION, entrant=bot, matches=10**6, wins=10**5, losses=9 * 10**5)
    per_generation = size.generations_every or size.checkpoints
    for number in range(0, size.checkpoints, size.evaluated_every):
        for index, policy in enumerate(policies):
            own = Entrant(digest(policy, number))
            yield RecordRow(population=POPULATION, entrant=own, matches=128, wins=64, losses=64)
            for k in range(size.pairs):
                rival = policies[(index + 1 + k % (len(policies) - 1)) % len(policies)]
                other = Entrant(digest(rival, max(number - k // 7 * size.evaluated_every, 0)))
                seats = (0, 1) if k % 2 else (1, 0)
                first, second = (own, bot if k == 0 else other)[:: 1 if k % 2 else -1]
                yield PairRow(
                    kind="evaluate",
                    first=first,
                    second=second,
                    first_seat=min(seats),
                    second_seat=max(seats),
                    wins=4.0,
                    losses=4.0,
                )
    for number in range(size.checkpoints):
        for index, policy in enumerate(policies):
            trainee = trainee_entrant(policy, generation=number // per_generation)
            for k in range(size.met):
                rival = policies[(index + k) % len(policies)]
                ghost = number // size.ghosts_every * size.ghosts_every
                first, second = sorted((trainee, Entrant(digest(rival, ghost))))
                yield PairRow(
                    kind="train",
                    first=first,
                    second=second,
                    first_seat=0,
                    second_seat=1,
                    wins=2.0,
                    losses=2.0,
                )


def long_run_file(size: Size, *, num_policies: int, changes: Sequence[str] = ()) -> RunFile:
    """Return the run file of a league that goes on for as long as its past was."""
    limit = size.checkpoints * STEPS
    document = [
        f"stop.agent_steps_per_policy={limit * 2}",
        f"ghosts.every_agent_steps={size.ghosts_every * STEPS}",
        f"ghosts.keep={'null' if size.keep is None else size.keep}",
        f"assignment.agent_steps={STEPS}",
        "evaluation.share=0.3",
        "pbt.share=even",
        "environment.num_envs=128",
        *changes,
    ]
    config = simulated_config(load_config("connect_four", document), num_policies=num_policies)
    return simulated_run(config)


def make_long_league(size: Size, *, num_policies: int = 8, changes: Sequence[str] = ()) -> World:
    """Make a world with a past, not yet started."""
    run_file = long_run_file(size, num_policies=num_policies, changes=changes)
    world = make_world(run_file, PlantedModel(), agent_steps_per_s=1e5, matches_per_s=1e3)
    add_past(world, size)
    return world


def write_long_league(run_dir: Path, size: Size, *, num_policies: int) -> None:
    """Write run.yaml and the journal of a stopped run with a past, whose players are rated.

    What the results are the sums of is missing: tallies, assignments, and directories of weights.
    """
    world = make_long_league(size, num_policies=num_policies)
    tables = world.state.tables
    run_dir.mkdir(parents=True, exist_ok=True)
    long_run_file(size, num_policies=num_policies).save(run_dir / RUN_FILE)
    tables.run = structs.replace(
        tables.run, state="stopped", configuration=content_digest(run_dir / RUN_FILE)
    )
    tables.ratings[POPULATION] = _ratings(world)
    with Journal.create(run_dir / JOURNAL, all_rows(tables)):
        pass


def _ratings(world: World) -> RatingsRow:
    """Rate everybody who was evaluated as it was planted."""
    tables = world.state.tables
    bot = Entrant(RANDOM_BOT)
    rated = [row.entrant for row in tables.records.values() if row.entrant != bot]
    return RatingsRow(
        population=POPULATION,
        entrants=(bot, *rated),
        ratings=(0.0, *(world.learner.weights[Digest(one)].skill for one in rated)),
        deviations=(0.0, *[30.0] * len(rated)),
        cyclicity=0.0,
        num_tallies=tables.num_tallies,
    )


def all_rows(tables: Tables) -> list[Row]:
    """Return all rows of a league."""
    kept = [getattr(tables, one.name) for one in fields(tables)]
    return [tables.run, *(row for rows in kept if isinstance(rows, Table) for row in rows.values())]


def measure(world: World, *, num_events: int) -> dict[str, list[tuple[float, float]]]:
    """Start a world, and time the events that learners wait for.

    Returns:
        Milliseconds of this thread's processor time and of the wall clock, by kind.
    """
    times: dict[str, list[tuple[float, float]]] = {}

    def add(kind: str, began_s: tuple[float, float]) -> None:
        processor_s, wall_s = clocks_s()
        taken_ms = 1e3 * (processor_s - began_s[0]), 1e3 * (wall_s - began_s[1])
        times.setdefault(kind, []).append(taken_ms)

    def timed(state: ControllerState, event: Event, now: Now) -> Transaction:
        began_s = clocks_s()
        tx = handle(state, event, now)
        if isinstance(event, AssignmentFinished):
            add("trained" if event.manifests else "evaluated", began_s)
        elif isinstance(event, RatingsFitted):
            add("fitted", began_s)
        return tx

    def decide(*arguments: Any) -> Job | None:
        began_s = clocks_s()
        job = placement_decide(*arguments)
        if job is not None:
            add(f"next {'train' if isinstance(job[0], Train) else 'evaluate'}", began_s)
        return job

    with (
        patch("populations.simulation.world.handle", timed),
        patch("populations.controller.assignments.placement._decide", decide),
    ):
        start(world)
        while _num_handled(times) < num_events and world.advance():
            pass
    return times


def clocks_s() -> tuple[float, float]:
    """Return this thread's processor time and the wall clock."""
    return time.thread_time(), time.perf_counter()


def _num_handled(times: Mapping[str, Sequence[object]]) -> int:
    return sum(len(taken) for name, taken in times.items() if not name.startswith("next "))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each number of days."""
    parser = parser_of(__doc__)
    parser.add_argument("--days", default="0.01,1,3", help="Days played, separated by commas")
    parser.add_argument("--events", type=int, default=300, help="Events timed for each")
    parser.add_argument("--keep", type=int, default=512, help="Ghosts that thinning left; 0: all")
    parser.add_argument("--policies", type=int, default=8, help="Policies that share these days")
    options = parser.parse_args(arguments)
    for days in map(float, options.days.split(",")):
        num_checkpoints = max(int(8 * DAY.checkpoints * days / options.policies), 20)
        size = replace(DAY, checkpoints=num_checkpoints, keep=options.keep or None)
        world = make_long_league(size, num_policies=options.policies)
        tables = world.state.tables
        rows = {
            name: len(getattr(tables, name))
            for name in ("checkpoints", "ghosts", "records", "pairs")
        }
        times = measure(world, num_events=options.events)
        figures = {
            kind: {
                "number": len(taken),
                "median_ms": round(float(np.median(taken[:, 0])), 2),
                "p95_ms": round(float(np.percentile(taken[:, 0], 95)), 2),
                "wall_median_ms": round(float(np.median(taken[:, 1])), 2),
            }
            for kind, taken in ((kind, np.array(pairs)) for kind, pairs in times.items())
        }
        say({"days": days, **rows, **figures})


if __name__ == "__main__":
    main()
