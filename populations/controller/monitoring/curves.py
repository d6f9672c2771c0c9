"""Points of curves for the sinks: metrics and standings of each policy, and metrics of the run.

They follow from the rows of each transaction and decide nothing. Points are written after the
commit of what they describe, so a kill may prevent that. A resume reads from ``metrics.jsonl``
which ones were written (`go_on`), so that it repeats none and leaves none out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from arena.metrics.jsonl import files_of, point_of
from arena.metrics.sink import RUN
from arena.types import BOT_PREFIX, Digest, Entrant, PolicyId, population_of
from arena.wire.messages import Train, Trainee
from populations.choices import figures
from populations.config.run_config import RunConfig
from populations.controller.indexes.trainee_metrics import metrics_of_trainee
from populations.controller.monitoring.champions import leading_entrant
from populations.controller.state.epoch import Curves, HeldPoints
from populations.controller.state.events import WriteMetrics
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.lineage import num_copies
from populations.matchmaking.external_players import external_player_id
from populations.records.rows import AssignmentRow, PolicyRow, RatingsRow
from populations.records.tables import Tables

RUN_EVERY_S = 5.0
"""Seconds between two points of the run's own curves."""

_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]+")


def follow(state: ControllerState, tx: Transaction) -> None:
    """Add commands to write the points that follow from a transaction's rows."""
    curves = state.measured.curves
    fitted = []
    unwritten, curves.unwritten = curves.unwritten, []
    for row in [*unwritten, *tx.rows]:
        if isinstance(row, AssignmentRow) and row.status == "finished" and row.agent_steps:
            assert isinstance(row.message, Train), "only training has agent steps"
            _write_training(state, tx, row, row.message)
        # A repeated fit, or a changed row of the same fit, makes no new point.
        elif isinstance(row, RatingsRow) and row.num_tallies > curves.fitted.get(row.population, 0):
            curves.fitted[row.population] = row.num_tallies
            fitted.append(row.population)
    is_over = state.phase.name == "over"
    if is_over:
        # At the end the last point of each curve is written, even if it is near to the one before.
        for policy in list(curves.held):
            _write_held(curves.held, tx, policy)
    is_resumed, curves.is_resumed = curves.is_resumed, False
    # After a fit only its populations are written; at the end of a run, and after a resume, when
    # points may be missing, all of them.
    for population in state.tables.ratings if is_over or is_resumed else fitted:
        depth = 3 if is_over else 2 if population in fitted else 1
        _write_standings(state, tx, population, depth=depth)
    now_s = tx.now.monotonic_s
    steps = state.tables.run.agent_steps
    is_time = bool(tx.rows) and now_s - curves.run_at_s >= RUN_EVERY_S
    is_time = is_time and steps != curves.run_shown_at
    if is_over or (is_time and is_due(state.settings.config, curves.run_at_steps, steps)):
        curves.run_at_s, curves.run_at_steps = now_s, steps
        metrics = _run_metrics(state.settings.config, state.fits)
        tx.commands.append(WriteMetrics(policy=RUN, agent_steps=steps, metrics=metrics))


def _write_training(
    state: ControllerState, tx: Transaction, row: AssignmentRow, message: Train
) -> None:
    config, held = state.settings.config, state.measured.curves.held
    for trainee in message.trainees:
        steps = state.tables.policies[trainee.policy].agent_steps
        # An assignment that only made initial weights has no point.
        if steps > trainee.agent_steps:
            metrics = metrics_of_trainee(row.metrics, message.trainees, of=trainee.policy)
            metrics |= _lineage_metrics(config, state.tables, trainee)
            held[trainee.policy] = (steps, metrics)
            if is_due(config, trainee.agent_steps, steps):
                _write_held(held, tx, trainee.policy)


def _write_held(held: HeldPoints, tx: Transaction, policy: PolicyId) -> None:
    steps, metrics = held.pop(policy)
    tx.commands.append(WriteMetrics(policy=policy, agent_steps=steps, metrics=metrics))


def is_due(config: RunConfig, before: int | None, now: int) -> bool:
    """Return whether a curve gets a point: one for each ``metrics.every_agent_steps``.

    Intervals lie between multiples of it, so that a resume does not shift them.

    Args:
        config: Configuration of the run.
        before: Agent steps at the last point, or at the last possible one; None: there was none.
        now: Agent steps of the point.
    """
    every = config.metrics.every_agent_steps
    return not every or before is None or now // every > before // every


def _lineage_metrics(config: RunConfig, tables: Tables, trainee: Trainee) -> dict[str, float]:
    """Return a policy's hyperparameters and counts in an assignment, as metrics.

    Decisions that followed the assignment do not change them.
    """
    space = config.populations[population_of(trainee.policy)].search_space
    values, row = figures(trainee.hyperparameters, space), tables.generations.get(trainee.entrant)
    # The factors of schedules are those of the generation that was trained.
    factors = {} if row is None else row.factors
    return {
        **{f"hyperparameter/{name}": value for name, value in values.items()},
        "pbt/generation_count": float(trainee.generation),
        "pbt/copies_count": float(num_copies(tables.generations, trainee.policy)),
        "league/ghosts_count": float(len(tables.ghosts.by("kept").get(trainee.policy, ()))),
        **{f"hyperparameter/{name}_factor": factor for name, factor in factors.items()},
    }


def _write_standings(
    state: ControllerState, tx: Transaction, population: str, *, depth: int
) -> None:
    """Write points of a population's standings: ratings and results of its active policies.

    Args:
        state: State of the run.
        tx: Transaction that takes the commands.
        population: Population of the policies.
        depth: Change that makes a point: 1, other weights than those of the last point; 2, also
            further matches; 3, also other ratings, even if the last point is near.
    """
    config, league, curves = state.settings.config, state.league, state.measured.curves
    for row in state.tables.policies.values():
        if row.population != population or row.state != "active":
            continue
        digest = league.standing_weights(row)
        if digest is None:
            continue
        ratings = _rating_metrics(state.fits, population, digest, prefix="rating/")
        point = (digest, league.record(population, digest).matches, ratings)
        known = curves.written.get(row.policy)
        # Each fit moves all ratings a little, so ``depth`` limits which changes make a point.
        is_new = known is None or known[:depth] != point[:depth]
        steps = evaluated_steps(league, row, digest)
        rated_at = curves.rated_at.get(row.policy)
        if ratings and is_new and (depth == 3 or is_due(config, rated_at, steps)):
            curves.written[row.policy] = point
            curves.rated_at[row.policy] = steps
            metrics = {**ratings, **_record_metrics(league, population, digest)}
            metrics |= _bot_metrics(config, league, digest, prefix="evaluation/")
            tx.commands.append(WriteMetrics(policy=row.policy, agent_steps=steps, metrics=metrics))


def evaluated_steps(league: League, row: PolicyRow, digest: Digest) -> int:
    """Return the policy's agent steps when it had these weights, or when it copied them."""
    origin = league.checkpoints[digest]
    return origin.agent_steps if origin.policy == row.policy else row.generation_at


def _rating_metrics(fits: Fits, population: str, digest: str, *, prefix: str) -> dict[str, float]:
    interval = fits.ratings(population).interval(digest)
    if interval is None:
        return {}
    names = (f"{prefix}mean_elo", f"{prefix}low_elo", f"{prefix}high_elo")
    # An interval that is open above has no upper end that a sink could write.
    return {name: end for name, end in zip(names, interval, strict=True) if math.isfinite(end)}


def _record_metrics(league: League, population: str, digest: Digest) -> dict[str, float]:
    record = league.record(population, digest)
    metrics = {"evaluation/matches_count": float(record.matches)}
    if record.matches:
        metrics["evaluation/return_mean"] = record.return_sum / record.matches
    if record.score is not None:
        metrics["evaluation/score_mean"] = record.score
    return metrics


def _bot_metrics(
    config: RunConfig, league: League, digest: str, *, prefix: str
) -> dict[str, float]:
    """Return score and return against each bot that these weights have played in evaluation."""
    metrics: dict[str, float] = {}
    for bot, name in curve_names(config.rated_players).items():
        met = league.evaluated_against(Entrant(digest), Entrant(external_player_id(bot)))
        if met is not None:
            metrics[f"{prefix}score_vs_{name}"], metrics[f"{prefix}return_vs_{name}"] = met
    return metrics


def curve_names(bots: Sequence[str]) -> dict[str, str]:
    """Return distinct names of bots for curves, of characters that every reader accepts."""
    names: dict[str, str] = {}
    for bot in bots:
        # Two bots' names may differ only in characters that are replaced.
        name = base = _UNUSUAL.sub("_", bot.removeprefix(BOT_PREFIX)).strip("_")
        number = 1
        while name in names.values():
            number += 1
            name = f"{base}_{number}"
        names[bot] = name
    return names


def _run_metrics(config: RunConfig, fits: Fits) -> dict[str, float]:
    """Return the metrics of the whole run."""
    run, policies = fits.league.tables.run, fits.league.tables.policies.values()
    metrics = {
        "run/elapsed_s": run.elapsed_s,
        "run/assignments_count": float(run.assignments_finished),
        "run/matches_count": float(run.matches),
        "run/generations_count": float(sum(row.generation for row in policies)),
        "run/copies_count": float(run.exploits),
        "run/ghosts_count": float(len(fits.league.tables.ghosts)),
        "run/quarantined_count": float(sum(row.state == "quarantined" for row in policies)),
    }
    if run.training_s + run.evaluation_s > 0.0:
        metrics["run/evaluation_share"] = run.evaluation_s / (run.training_s + run.evaluation_s)
    metrics |= _mean_hyperparameters(config, fits.league.tables)
    for population, row in fits.league.tables.ratings.items():
        metrics[f"rating/{population}_cyclicity"] = row.cyclicity
        best = leading_entrant(fits, population)
        if best is not None:
            prefix = f"champion/{population}_"
            metrics |= _rating_metrics(fits, population, best, prefix=prefix)
            metrics |= _bot_metrics(config, fits.league, best, prefix=prefix)
    return metrics


def _mean_hyperparameters(config: RunConfig, tables: Tables) -> Mapping[str, float]:
    """Return the means of explored hyperparameters over each population's active policies."""
    means: dict[str, float] = {}
    for population, section in config.populations.items():
        for name in section.search_space:
            # Hyperparameters with text values have no mean.
            values = [
                value
                for row in tables.policies.values()
                if row.population == population
                and row.state == "active"
                and (value := row.hyperparameters.get(name)) is not None
                and not isinstance(value, str)
            ]
            if values:
                means[f"hyperparameter/{population}_{name}_mean"] = sum(values) / len(values)
    return means


MAX_ASSIGNMENTS = 1000
"""Bound on the assignments whose points can be missing after a kill: those of one commit."""


Written = tuple[dict[str, int], dict[str, tuple[int, Mapping[str, float]]], int | None]
"""Last points of each curve: agent steps of each policy's last training point, agent steps and
metrics of its last standing, and agent steps of the run's last point; None: it has none."""


def read_written(path: Path) -> Written | None:
    """Read the last point of each curve; None if nothing was ever written.

    Raises:
        OSError: If the disk refuses.
    """
    # The newest file may have just been begun, so the one before is read, too.
    files = [file for file in files_of(path)[-2:] if file.exists()]
    if not files:
        return None
    trained: dict[str, int] = {}
    rated: dict[str, tuple[int, Mapping[str, float]]] = {}
    run_steps = None
    for file in files:
        with open(file, "rb") as lines:
            for line in lines:
                point = point_of(line)
                if point is None:
                    continue
                policy, steps = point["policy"], point["agent_steps"]
                if policy == RUN:
                    run_steps = steps
                elif "pbt/generation_count" in point:
                    trained[policy] = steps
                else:
                    rated[policy] = (steps, point)
    return trained, rated, run_steps


def go_on(league: League, curves: Curves, written: Written, rows: Iterable[AssignmentRow]) -> None:
    """Restore the state of a resumed run's curves from the points that were written.

    Args:
        league: Players and results.
        curves: State of the curves, which is updated.
        written: Last points that were written.
        rows: Last finished training assignments, in order of their ids.
    """
    policies = league.tables.policies
    trained, rated, curves.run_shown_at = written
    for row in policies.values():
        digest = league.standing_weights(row)
        if digest is None or row.policy not in rated:
            continue
        steps, figures = rated[row.policy]
        if steps == evaluated_steps(league, row, digest):
            matches = int(figures["evaluation/matches_count"])
            ratings = {name: one for name, one in figures.items() if name.startswith("rating/")}
            curves.written[row.policy] = (digest, matches, ratings)
            curves.rated_at[row.policy] = steps
    last = {
        trainee.policy: row
        for row in rows
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    }
    missing = {
        row.assignment_id: row
        for policy, row in last.items()
        if trained.get(policy, -1) < policies[policy].agent_steps
    }
    curves.unwritten = list(missing.values())
    curves.is_resumed = True
