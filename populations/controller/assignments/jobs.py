"""Jobs: the assignments that learners are given, as messages.

Tests: `tests/populations/controller/assignments/test_placement.py`.
"""

from __future__ import annotations

import numpy as np

from arena.types import MAX_GAMES, AssignmentId, LearnerId, WeightsRef
from arena.wire.messages import Evaluate, Pairing, Train, Trainee
from populations.config.run_config import RunConfig
from populations.controller.assignments.budgets import team_budget
from populations.controller.assignments.carried_episodes import holder_of
from populations.controller.indexes.teams import Team
from populations.controller.lineups import Lineup, Requests, draw_lineup
from populations.controller.state.settings import Settings
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow
from populations.records.tables import Tables

Job = tuple[Train | Evaluate, Requests]
"""An assignment, and the requests that its opponents answer."""


def training(state: ControllerState, tx: Transaction, learner_id: LearnerId, team: Team) -> Job:
    """Let a team learn; if somebody has no checkpoint yet, let it be made first."""
    # Weights that do not exist yet cannot learn or be seated: they are published first.
    starting = tuple(row for row in team if row.checkpoint is None)
    lineup = Lineup(trainees=starting, requests={}) if starting else draw_lineup(state, tx, team)
    assignment_id = AssignmentId(state.tables.run.next_assignment)
    settings, crew = state.settings, state.crew
    holder = holder_of(settings.config, state.tables, crew, team)
    goes_on = not starting and holder == learner_id
    learner = crew.learners[learner_id]
    message = Train(
        assignment_id=assignment_id,
        attempt=0,
        trainees=tuple(_trainee(settings, state.tables, row) for row in lineup.trainees),
        opponents=lineup.seatings,
        carried=crew.episodes[team[0].policy].seatings if goes_on else (),
        agent_steps=0 if starting else team_budget(state, tx, team, learner=learner),
        episodes=settings.config.assignment.episodes,
        episode_length=state.measured.expected_length(team[0]),
        lesson=state.tables.run.lesson,
        seed=assignment_seed(settings.config, assignment_id),
        # How far it has come when it is told to stop depends on its speed.
        may_stop_early=not settings.config.deterministic,
    )
    return message, lineup.requests


def evaluation(config: RunConfig, tables: Tables, pairings: tuple[Pairing, ...]) -> Job | None:
    """Let players be rated; None: there is nothing to play."""
    if not pairings:
        return None
    assignment_id = AssignmentId(tables.run.next_assignment)
    message = Evaluate(
        assignment_id=assignment_id,
        attempt=0,
        pairings=pairings,
        seed=assignment_seed(config, assignment_id),
        # As many as are kept are asked for.
        games=min(MAX_GAMES, config.replays.keep),
    )
    return message, {}


def assignment_seed(config: RunConfig, assignment_id: int) -> int:
    """Return the seed of an assignment, a function of the run's seed and its number."""
    # Streams of the run's seed: 0 decisions, 1 assignments, 2 restarts, 3 first hyperparameters.
    words = np.random.SeedSequence([config.seed, 1, assignment_id]).generate_state(2)
    # Two words of 32 bits that overlap in one bit: below 2**63, which SQLite can store.
    return int(words[0]) << 31 ^ int(words[1])


def _trainee(settings: Settings, tables: Tables, policy: PolicyRow) -> Trainee:
    checkpoint = tables.checkpoints[policy.checkpoint] if policy.checkpoint is not None else None
    maker = None if checkpoint is None else checkpoint.policy
    return Trainee(
        policy=policy.policy,
        generation=policy.generation,
        agent_steps=policy.agent_steps,
        learner_updates=policy.learner_updates,
        checkpoint=checkpoint.ref if checkpoint is not None else None,
        donor=maker if maker != policy.policy else None,
        initial_weights=initial_weights(settings, tables, policy),
        hyperparameters=dict(policy.hyperparameters),
    )


def initial_weights(settings: Settings, tables: Tables, policy: PolicyRow) -> WeightsRef | None:
    """Return the weights of a policy without a checkpoint; None: fresh random ones."""
    key = policy.initial_weights
    # Empty after an immigration without a source, None for the start of the whole population.
    if policy.checkpoint is not None or key == "":
        return None
    if key is None:
        return settings.initial_weights.get(policy.population)
    # A reset names the directory of a ghost of this run; all other keys are imported.
    ghosts = tables.ghosts.values()
    own = next((ghost.weights for ghost in ghosts if ghost.key == key), None)
    return settings.immigrants[key] if own is None else own
