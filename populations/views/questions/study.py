"""Generations of a run as an Optuna study, for Optuna's own tools and its dashboard.

A trial is a generation: its parameters are the hyperparameters of the search space, its value is
the gain in Elo per million agent steps. The gains of all trials are by one fit of ratings, that of
the views ``lineage`` and ``why``. Each population and role has its own study.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.types import Value
from populations.choices import number_of
from populations.config.run_config import RunConfig
from populations.pbt.generations import MILLION
from populations.ratings.model import Z95
from populations.records.rows import GenerationRow
from populations.roles import MAIN
from populations.search_space import Choices, Range, parse_search_space
from populations.views.parts import Document, picked
from populations.views.questions.inspection import Inspection
from populations.views.questions.lives import gains

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

UNIT = "Elo gained per million agent steps"
"""Unit of a trial's value."""


def study_name(run: str, population: str, *, role: str = MAIN) -> str:
    """Return the name of the study of a population's policies of one role.

    Args:
        run: Run's id.
        population: Name of the population.
        role: Role; the name contains it for exploiters.
    """
    return f"{population}-{run[:8]}" if role == MAIN else f"{population}-{role}-{run[:8]}"


def write_studies(run: Inspection, path: Path, *, population: str | None = None) -> dict[str, int]:
    """Write all generations of a run as Optuna studies into an SQLite file.

    Args:
        run: Run to read.
        path: SQLite file; it may contain studies of other runs.
        population: Population to write. None: all.

    Returns:
        Number of trials, by study.

    Raises:
        ConfigError: If the file has a study of this run already, or cannot be written.
    """
    # The imports are here, so that other views do not wait for them.
    from optuna import create_study
    from optuna.exceptions import DuplicatedStudyError
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    if not path.parent.is_dir():
        raise ConfigError(f"--optuna {path}: there is no directory {path.parent}")
    written = {}
    try:
        storage = RDBStorage(f"sqlite:///{path.absolute()}")
        try:
            for name, role in _ranked_together(run):
                if population not in (None, name):
                    continue
                study = create_study(
                    study_name=study_name(run.tables.run.run, name, role=role),
                    storage=storage,
                    direction="maximize",
                )
                study.set_user_attr("value", UNIT)
                study.set_user_attr("run", run.tables.run.run)
                study.set_user_attr("population", name)
                study.set_user_attr("role", role)
                trials = trials_of(run, name, role=role)
                study.add_trials(trials)
                written[study.study_name] = len(trials)
        finally:
            # Connections to the file would stay open otherwise.
            storage.remove_session()
            storage.engine.dispose()
    except DuplicatedStudyError as error:
        raise ConfigError(f"--optuna {path}: it has a study of this run already") from error
    except SQLAlchemyError as error:
        raise ConfigError(f"--optuna {path}: {error}") from error
    return written


def _ranked_together(run: Inspection) -> list[tuple[str, str]]:
    """Return populations and the roles of their policies."""
    # PBT ranks within these: an exploiter's settings are not bad because it loses to others.
    rows = run.tables.policies.values()
    return list(dict.fromkeys((row.population, row.role) for row in rows))


def trials_of(run: Inspection, population: str, *, role: str = MAIN) -> list[FrozenTrial]:
    """Return the generations of a population's policies with a role as trials, in order of
    beginning.

    Unfinished generations are running as long as the run is; those of unknown gain count as pruned.
    """
    policies, generations = run.tables.policies, run.history().generations
    known = gains(run.rated, generations)
    is_running = run.tables.run.state == "running"
    return [
        _trial(row, known[row.entrant], config=run.run_file.config, is_running=is_running)
        for row in generations.values()
        if row.population == population and policies[row.policy].role == role
    ]


def _trial(
    row: GenerationRow, known: Document, *, config: RunConfig, is_running: bool
) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    space = config.populations[row.population].search_space
    distributions: dict[str, BaseDistribution] = {}
    others = dict(row.hyperparameters)
    for name, dimension in parse_search_space(space, start=row.hyperparameters).items():
        distribution = _distribution(dimension, value=row.hyperparameters.get(name))
        if distribution is not None:
            distributions[name] = distribution
            del others[name]
    # The gain and not the rating: the strength it began with is no merit of the hyperparameters.
    rate, state = None, TrialState.PRUNED
    if row.agent_steps_end is None and is_running:
        state = TrialState.RUNNING
    elif known["elo_gain"] is not None and known["elo_gain_agent_steps"] is not None:
        rate = known["elo_gain"] * MILLION / known["elo_gain_agent_steps"]
        state = TrialState.COMPLETE
    return create_trial(
        state=state,
        value=rate,
        params={name: row.hyperparameters[name] for name in distributions},
        distributions=distributions,
        user_attrs={**_attributes(row, known), "other_hyperparameters": others},
    )


def _attributes(row: GenerationRow, known: Document) -> Mapping[str, object]:
    low, high = known["elo_gain_low"], known["elo_gain_high"]
    return {
        **picked(row, "policy", "generation", "cause", "parent"),
        "factors": dict(row.factors),
        **picked(row, "agent_steps_begin", "agent_steps_end"),
        "rating_begin": known["elo_begin"],
        "rating_end": known["elo_end"],
        "gain_deviation": None if low is None else (high - low) / (2.0 * Z95),
        "gain_agent_steps": known["elo_gain_agent_steps"],
    }


def _distribution(dimension: Range | Choices, *, value: Value | None) -> BaseDistribution | None:
    """Return Optuna's distribution of a dimension, widened to hold a value; None if it cannot."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if value is None:
        return None
    if isinstance(dimension, Choices):
        # Choices cannot be widened: a study has the same ones in all trials.
        is_choice = dimension.place(value) is not None
        return CategoricalDistribution(dimension.choices) if is_choice else None
    # Start values may be outside the search space, and Optuna refuses such a trial.
    number = number_of(value)
    low, high = min(dimension.low, number), max(dimension.high, number)
    # A sampler draws 1 - x of a complement, but people know the hyperparameter by x, whose scale is
    # not logarithmic then.
    # Widened to 0 or below, a range has no logarithm.
    log = dimension.log and not dimension.complement and low > 0.0
    if dimension.integral:
        return IntDistribution(int(low), int(high), log=log)
    return FloatDistribution(float(low), float(high), log=log)
