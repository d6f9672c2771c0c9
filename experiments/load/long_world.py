"""A league of simulated learners that runs for weeks: for `month`.

Its rows are committed to a journal, its fits take simulated time, and what was planted about
weights that are gone is dropped.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from populations.config.run_config import load_config
from populations.config.run_file import RunFile, learner_setup
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import fit_input
from populations.controller.state.events import Command, FitRatings, RatingsFitted
from populations.controller.state.state import make_state
from populations.records.tables import Tables
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.planted import PlantedModel
from populations.simulation.world import World, make_learner, make_tables

HOUR_S = 3600.0
NEWEST = 1000
GHOST_AGENT_STEPS = 500_000
DEMO = ("stop.agent_steps_per_policy=1000000000000", "pbt.share=even")
AGENT_STEPS_PER_S = 35_000.0

GENERATED_FIT_FACTOR = 400.0
"""Simulated seconds of a second's fit in hours that are passed quickly: one in six minutes."""


@dataclass(slots=True)
class LongWorld(World):
    """A world whose rows are committed to a journal, and whose fits take simulated time.

    Attributes:
        fit_factor: Simulated seconds of a second's fit.
        timings_ms: Measurements since the last line, by kind.
    """

    fit_factor: float = 1.0
    timings_ms: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def carry_out(self, command: Command) -> None:
        """Carry out a command; a fit answers later."""
        if not isinstance(command, FitRatings):
            # `super()` fails here, because dataclasses with slots are created a second time.
            World.carry_out(self, command)
            return
        began_s = time.thread_time()
        fitted = fit_ratings(fit_input(command.known))
        took_s = time.thread_time() - began_s
        self.timings_ms["fit"].append(1e3 * took_s)
        event = RatingsFitted(ratings=fitted)
        self._plan(self.fit_factor * took_s, lambda: self._take(event))

    def _take(self, event: RatingsFitted) -> None:
        self.handle(event)

    def forget_weights(self) -> None:
        """Drop what was planted about weights that nothing can name any more."""
        tables = self.state.tables
        digests = {row.weights_digest for row in tables.checkpoints.values()}
        digests |= {ghost.weights_digest for ghost in tables.ghosts.values()}
        learner = self.learner
        # The newest weights may belong to assignments that are carried out but not committed yet.
        digests |= set(list(learner.weights)[-NEWEST:])
        learner.weights = {one: truth for one, truth in learner.weights.items() if one in digests}
        learner.origins = {one: own for one, own in learner.origins.items() if own in digests}


def run_file_of(options: argparse.Namespace, *, coarseness: int = 1) -> RunFile:
    """Return the run file of the league.

    Args:
        options: Arguments of the command.
        coarseness: Ghosts, decisions of PBT and evaluations are as many times fewer; where it is
            above 1, an assignment lasts until the next ghost.
    """
    steps = coarseness * GHOST_AGENT_STEPS
    coarse = (
        f"assignment.target_s={1.1 * steps / AGENT_STEPS_PER_S}",
        f"pbt.ready_agent_steps={steps}",
        f"evaluation.share={0.05 / coarseness}",
        "journal.backup_every_s=86400",
    )
    changes = [
        *DEMO,
        f"ghosts.every_agent_steps={steps}",
        f"learners={options.learners}",
        *(coarse if coarseness > 1 else ()),
        *options.override,
    ]
    config = load_config("connect_four", changes)
    return simulated_run(simulated_config(config, num_policies=options.policies))


def make_long_world(
    run_file: RunFile,
    *,
    fit_factor: float,
    tables: Tables | None = None,
    before: LongWorld | None = None,
) -> LongWorld:
    """Make the league, not yet started.

    Args:
        run_file: Its run file.
        fit_factor: Simulated seconds of a second's fit.
        tables: Rows of its journal. None: a new run.
        before: The league that the rows are of, whose controller is gone.
    """
    setup = learner_setup(run_file, root=Path("simulated"))
    # Planted skills grow ever more slowly, as in a league of weeks.
    learner = make_learner(
        setup,
        run_file.config,
        PlantedModel(),
        agent_steps_per_s=AGENT_STEPS_PER_S,
        matches_per_s=1000.0,
    )
    world = LongWorld(
        state=make_state(run_file.config, setup, tables or make_tables(run_file)),
        setup=setup,
        learner=learner,
        fit_factor=fit_factor,
    )
    if before is not None:
        learner.weights, learner.origins = before.learner.weights, before.learner.origins
        world.now_s, world.num_learners = before.now_s, before.num_learners
    return world
