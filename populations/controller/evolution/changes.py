"""Changes that PBT has decided: a policy copies a donor, or explores its own hyperparameters.

A change that needs new hyperparameters waits for them in ``PolicyRow.pending``
until the worker thread has answered, because rules of exploring may be slow (they fit models) and
may be users' own; it is committed, with its event, when they are there. After a crash the question
is asked again, and has the same answer, because all that it depends on is in the journal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from itertools import chain

import numpy as np
from msgspec.structs import replace

from arena.types import Hyperparameters, PolicyId, Value, trainee_entrant
from arena.users_code import guarded
from populations.choices import Categories, Choices, number_of
from populations.controller.evolution.generations import begin_generation, explored_on, history_now
from populations.controller.indexes.pbt_members import MemberIndex
from populations.controller.indexes.teams import team_of
from populations.controller.state.epoch import Phase, Settings
from populations.controller.state.events import ExploreHyperparameters, HyperparametersExplored
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState, Indexes
from populations.controller.state.transaction import Transaction
from populations.core import Exploration, SearchSpace
from populations.hyperparameter_schedules import ScheduledValues
from populations.pbt.explore import Perturb
from populations.records.rows import Json, PolicyRow
from populations.records.tables import Tables
from populations.search_space import parse_search_space


def exploit(
    state: ControllerState,
    tx: Transaction,
    team: Sequence[PolicyRow],
    donor_id: PolicyId,
    *,
    explore: bool,
    data: Mapping[str, Json],
) -> None:
    """Put each of a team on the checkpoint of the one in its donor's team that plays its part.

    At once, or when its hyperparameters are explored.
    """
    scheduled = state.settings.scheduled
    donors = team_of(state.league, state.tables.policies[donor_id])
    # Both are in the order of their populations (`team_of`).
    for policy, donor in zip(team, donors, strict=True):
        # The donor's factors, but the values of the policy's own clock.
        copied = scheduled[policy.population].values(
            donor.hyperparameters, factors=donor.factors, agent_steps=policy.agent_steps
        )
        pending: dict[str, Json] = {
            # The donor as it is now; it may train on before the answer comes.
            "kind": "exploit",
            "donor": donor.policy,
            "donor_generation": donor.generation,
            "donor_agent_steps": donor.agent_steps,
            "checkpoint": donor.checkpoint,
            "hyperparameters": copied,
            **_told(donor.factors),
            "decision": {**data, "donor": donor.policy},
        }
        if explore and state.settings.config.pbt_of(policy.population).explore != "none":
            _wait(tx, policy, pending)
        else:
            same = Exploration(old=copied, new=copied, moves={})
            commit(scheduled, state.fits, tx, replace(policy, pending=pending), same)


def explore_own(tx: Transaction, policy: PolicyRow, *, data: Mapping[str, Json]) -> None:
    """Change a policy's own hyperparameters when they are explored; its weights stay."""
    pending: dict[str, Json] = {
        "kind": "explore",
        "hyperparameters": dict(policy.hyperparameters),
        **_told(policy.factors),
        "decision": dict(data),
    }
    _wait(tx, policy, pending)


def _wait(tx: Transaction, policy: PolicyRow, pending: dict[str, Json]) -> None:
    # Drawn and journaled now: the question after a crash has the same seed.
    seed: list[Json] = list(tx.draw_words())
    tx.put(replace(policy, pending={**pending, "seed": seed}))


def commit(
    scheduled: Mapping[str, ScheduledValues],
    fits: Fits,
    tx: Transaction,
    policy: PolicyRow,
    exploration: Exploration,
) -> None:
    """Change a policy as its pending decision says, with the hyperparameters that it waited for.

    Identity and counters stay the policy's own; its generation rises, so its statistics start anew.
    """
    pending, is_copy = policy.pending, policy.pending["kind"] == "exploit"
    base = values_of(pending["hyperparameters"])
    new, factors = scheduled[policy.population].explored(
        exploration.new,
        old=base,
        # A decision without any has none.
        factors=numbers(pending.get("factors", {})),
        agent_steps=policy.agent_steps,
    )
    changed = replace(policy, hyperparameters=new, factors=factors)
    if is_copy:
        after, about = _copied(fits, tx, changed)
        tx.count(exploits=1)
    else:
        after, about = explored_on(fits, tx, changed, cause="explore"), {}
    tx.add_decision(
        "exploited" if is_copy else "explored",
        policy.policy,
        **{
            # The decision comes first: where names are equal, the values of the copy replace its
            # own.
            **decision_of(pending),
            **about,
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
            "old": dict(policy.hyperparameters if is_copy else exploration.old),
            **({"donor_hyperparameters": base} if is_copy else {}),
            "new": dict(new),
            "moves": dict(exploration.moves),
            **_told(factors),
        },
    )


def _copied(fits: Fits, tx: Transaction, policy: PolicyRow) -> tuple[PolicyRow, dict[str, Json]]:
    """Put a policy on its donor's checkpoint, as it was when its pending decision was made.

    Returns:
        The policy as it was put, and what its event says of the donor.
    """
    pending = policy.pending
    # The donor may have trained on, or be quarantined by now: retention kept its checkpoint.
    checkpoint = tx.tables.checkpoints[str(pending["checkpoint"])]
    donor = PolicyId(str(pending["donor"]))
    generation, agent_steps = pending["donor_generation"], pending["donor_agent_steps"]
    assert isinstance(generation, int)
    assert isinstance(agent_steps, int)
    after = begin_generation(
        fits,
        tx,
        # A quarantined policy comes back by its donor's weights.
        replace(
            policy,
            state="active",
            checkpoint=checkpoint.key,
            parent=donor,
            ready_at=policy.agent_steps,
        ),
        cause="exploit",
        parent=trainee_entrant(donor, generation=generation),
        parent_agent_steps=agent_steps,
    )
    return after, {
        "donor": donor,
        "donor_generation": generation,
        "donor_agent_steps": agent_steps,
        "checkpoint": checkpoint.key,
        "weights": checkpoint.weights_digest,
    }


def _told(factors: Mapping[str, float]) -> dict[str, Json]:
    """Return factors for an event or a decision: nothing where no hyperparameter has a schedule."""
    return {"factors": dict(factors)} if factors else {}


def decision_of(pending: Mapping[str, Json]) -> dict[str, Json]:
    """Return the numbers of the decision that waits."""
    decision = pending["decision"]
    assert isinstance(decision, Mapping), f"a decision's numbers are a mapping, got {decision!r}"
    return dict(decision)


TOLERANCE = 1e-9
"""Relative: bounds are compared after arithmetic in floating point."""


def ask(settings: Settings, indexes: Indexes, phase: Phase, tx: Transaction) -> None:
    """Send the questions that wait; in deterministic mode one after the other's answer."""
    config, exploring = settings.config, indexes.members.exploring
    # Decisions stay pending in the journal; an epoch that trains asks about them. Questions wait
    # for the first fit after a resume, because the certainty of gains is not durable.
    if phase.evaluation_only is not None or (indexes.fits.running and not indexes.fits.last):
        return
    for policy in waiting(tx.tables, exploring):
        # An answer is in the history of the next question, which must not depend on speed.
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
    """Return the policies with a decision for which nobody explores yet, first come first."""
    pending = chain.from_iterable(rows.values() for rows in tables.policies.by("pending").values())
    # The last word of a seed is its decision number (`Transaction.draw_words`): a resumed run asks
    # in the order in which the run before would have asked.
    return sorted(
        (row for row in pending if row.policy not in exploring),
        key=lambda row: _words(row.pending["seed"])[-1],
    )


def are_open(tables: Tables, members: MemberIndex, phase: Phase) -> bool:
    """Return whether decisions wait for new hyperparameters, for which this epoch asks."""
    is_open = members.exploring or tables.policies.by("pending")
    return bool(is_open) and phase.evaluation_only is None


def values_of(value: Json) -> dict[str, Value]:
    """Return hyperparameters, from plain data."""
    assert isinstance(value, Mapping), f"hyperparameters are a mapping, got {value!r}"
    return {name: one for name, one in value.items() if isinstance(one, int | float | str)}


def numbers(value: Json) -> dict[str, float]:
    """Return factors of hyperparameters, from plain data."""
    return {name: number_of(one) for name, one in values_of(value).items()}


def _words(value: Json) -> list[int]:
    assert isinstance(value, list | tuple), f"a seed is a list of integers, got {value!r}"
    return [word for word in value if isinstance(word, int)]


def answer(command: ExploreHyperparameters) -> HyperparametersExplored:
    """Explore, as a function of the command alone; never raises.

    Where the rule fails, or gives what must not be used, values are perturbed instead.
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
        # The same seed, so a repeated question has this answer, too.
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
    """Say why explored values must not be used, in words; None if they may.

    Args:
        new: Every hyperparameter.
        hyperparameters: Before.
        space: Hyperparameters that may change, and their bounds.
    """
    known = set(hyperparameters) | set(space)
    if not set(hyperparameters) <= set(new) <= known:
        return f"it must give {sorted(known)}, got {sorted(new)}"
    dimensions = parse_search_space(space, start=hyperparameters)
    for name, value in new.items():
        dimension, old = dimensions.get(name), hyperparameters.get(name)
        # A value that stays is not compared with the bounds: it was in use before.
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
