"""Exploring of hyperparameters for pending decisions, on the worker thread.

Rules of exploring may be slow (they fit models) and may be users' own. After a crash the request is
repeated and has the same answer, because all of its inputs are in the journal.
"""

from __future__ import annotations

import math
from collections.abc import Set
from itertools import chain

import numpy as np

from arena.types import Hyperparameters, PolicyId
from arena.users_code import guarded
from populations.choices import Categories, Choices, number_of
from populations.controller.evolution.changes import values_of
from populations.controller.evolution.generations import history_now
from populations.controller.indexes.pbt_members import MemberIndex
from populations.controller.state.epoch import Phase, Settings
from populations.controller.state.events import ExploreHyperparameters, HyperparametersExplored
from populations.controller.state.state import Indexes
from populations.controller.state.transaction import Transaction
from populations.core import Exploration, SearchSpace
from populations.pbt.explore import Perturb
from populations.records.rows import Json, PolicyRow
from populations.records.tables import Tables
from populations.search_space import parse_search_space

TOLERANCE = 1e-9
"""Relative tolerance for bounds, which are compared after arithmetic in floating point."""


def ask(settings: Settings, indexes: Indexes, phase: Phase, tx: Transaction) -> None:
    """Request explorations for pending decisions; in deterministic mode only one at a time."""
    config, exploring = settings.config, indexes.members.exploring
    # An epoch that only evaluates leaves decisions pending for a later one that trains. After a
    # resume requests wait for the first fit, because the deviations of gains are not durable.
    if phase.evaluation_only is not None or (indexes.fits.running and not indexes.fits.last):
        return
    for policy in waiting(tx.tables, exploring):
        # The history of the next request includes the last answer, so its order must be fixed.
        if config.deterministic and exploring:
            return
        exploring.add(policy.policy)
        tx.commands.append(
            ExploreHyperparameters(
                policy=policy.policy,
                rule=settings.explore[policy.population],
                hyperparameters=values_of(policy.pending["hyperparameters"]),
                search_space=config.populations[policy.population].search_space,
                history=history_now(settings, indexes.fits, policy),
                agent_steps=policy.agent_steps,
                seed=tuple(int(word) for word in _words(policy.pending["seed"])),
            )
        )


def waiting(tables: Tables, exploring: Set[PolicyId]) -> list[PolicyRow]:
    """Return the policies with a pending decision that is not being explored, oldest first."""
    pending = chain.from_iterable(rows.values() for rows in tables.policies.by("pending").values())
    # The last word of a seed is its decision number (`Transaction.draw_words`), so a resumed run
    # makes the requests in the same order as an uninterrupted one.
    return sorted(
        (row for row in pending if row.policy not in exploring),
        key=lambda row: _words(row.pending["seed"])[-1],
    )


def are_open(tables: Tables, members: MemberIndex, phase: Phase) -> bool:
    """Return whether decisions wait for new hyperparameters that this epoch requests."""
    is_open = members.exploring or tables.policies.by("pending")
    return bool(is_open) and phase.evaluation_only is None


def _words(value: Json) -> list[int]:
    assert isinstance(value, list | tuple), f"a seed is a list of integers, got {value!r}"
    return [word for word in value if isinstance(word, int)]


def answer(command: ExploreHyperparameters) -> HyperparametersExplored:
    """Explore as a command requests; a pure function of the command that never raises.

    If the rule fails, or returns invalid values, values are perturbed instead.
    """

    def explore() -> HyperparametersExplored:
        exploration = command.rule.explore(
            command.hyperparameters,
            command.search_space,
            history=command.history,
            agent_steps=command.agent_steps,
            rng=_rng(command.seed),
        )
        if not isinstance(exploration, Exploration):
            raise TypeError(f"explore must return an Exploration, got {exploration!r}")
        problem = problem_of(
            exploration.new, hyperparameters=command.hyperparameters, space=command.search_space
        )
        if problem is not None:
            return perturb(problem)
        return HyperparametersExplored(policy=command.policy, exploration=exploration)

    def perturb(problem: str) -> HyperparametersExplored:
        # The seed is that of the command, so that a repeated request has the same answer.
        exploration = Perturb().explore(
            command.hyperparameters, command.search_space, rng=_rng(command.seed)
        )
        return HyperparametersExplored(
            policy=command.policy, exploration=exploration, problem=problem
        )

    return guarded(explore, perturb, what=f"exploring for {command.policy}")


def _rng(seed: tuple[int, ...]) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(list(seed)))


def problem_of(
    new: Hyperparameters, *, hyperparameters: Hyperparameters, space: SearchSpace
) -> str | None:
    """Return why explored values must not be used, in words; None if they may.

    Args:
        new: All hyperparameters after the exploration.
        hyperparameters: All hyperparameters before it.
        space: Hyperparameters that may change, and their bounds.
    """
    known = set(hyperparameters) | set(space)
    if not set(hyperparameters) <= set(new) <= known:
        return f"it must give {sorted(known)}, got {sorted(new)}"
    dimensions = parse_search_space(space, start=hyperparameters)
    for name, value in new.items():
        dimension, old = dimensions.get(name), hyperparameters.get(name)
        # An unchanged value need not be in the bounds, because it was in use before.
        if value == old and isinstance(value, bool) == isinstance(old, bool):
            continue
        number = math.nan if isinstance(value, bool) else value
        is_number = isinstance(number, int | float) and math.isfinite(number)
        if not is_number and not isinstance(dimension, Categories):
            return f"{name} must be a finite number, got {value!r}"
        if dimension is None:
            return f"{name} is not in the search space, but changed to {value!r}"
        if isinstance(dimension, Choices):
            if dimension.place(value) is None:
                return f"{name} must be one of {dimension.choices}, got {value!r}"
        else:
            slack = TOLERANCE * max(abs(dimension.low), abs(dimension.high))
            number = number_of(value)
            if not dimension.low - slack <= number <= dimension.high + slack:
                return f"{name} must be in [{dimension.low}, {dimension.high}], got {value!r}"
            if dimension.integral and number != int(number):
                return f"{name} must be an integer, got {value!r}"
    return None
