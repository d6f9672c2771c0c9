"""Successive halving: fewer policies train, and each of them more (``pbt.share``).

At its first decisions a population is larger than what its learners train at once. So the worse
half leaves instead of copying, and nobody copies or explores, until as many are left as there are
places. From then on PBT goes on among them. Each is asked at its own mark, so no policy waits.

Sources: Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization" (2016); Li et al., "A system for massively parallel hyperparameter tuning" (2020), for
its asynchronous form.

Tests: `tests/populations/controller/evolution/test_halving.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from populations.config.run_config import RunConfig
from populations.config.sizing import num_sharing
from populations.controller.evolution.changes import exploit
from populations.controller.evolution.members import is_reference
from populations.controller.evolution.quarantine import donors_of
from populations.controller.indexes.teams import leader_of, team_of
from populations.controller.state.leases import Crew
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.decisions import Decision, ExploitDonor
from populations.records.rows import Json, PolicyRow
from populations.records.tables import Tables

LEAST = 2
"""Policies that train on at least: with one alone nothing could be compared or copied."""


def num_places(config: RunConfig, crew: Crew, population: str) -> int:
    """Return how many policies of a population train on: all, or as many as learners at once."""
    if config.pbt_of(population).share == "even":
        return config.populations[population].num_policies
    if config.deterministic:
        # One assignment is open at a time, however many learners there are.
        return LEAST
    learners = config.learners
    wanted = learners.get(population, 0) if isinstance(learners, Mapping) else learners or 1
    # Learners from elsewhere come and go.
    present = sum(
        learner.hello.slots for learner in crew.learners.values() if learner.may_train(population)
    )
    return max(LEAST, -(-max(wanted, present) // num_sharing(config)))


def num_active(config: RunConfig, tables: Tables, population: str) -> int:
    """Return how many policies of a population train, those that wait for weights included."""
    inactive = tables.policies.by("inactive").values()
    out = chain.from_iterable(rows.values() for rows in inactive)
    num_out = sum(row.population == population and not row.pending for row in out)
    return config.populations[population].num_policies - num_out


def halve(
    config: RunConfig,
    tx: Transaction,
    team: Sequence[PolicyRow],
    decision: Decision,
    *,
    places: int,
    data: Mapping[str, Json],
) -> None:
    """Retire a team if its leader is in the worse half, instead of what was decided about it."""
    evidence = decision.evidence
    if evidence.rank is None:
        # A rule of a user's own need not rank.
        leaves = isinstance(decision, ExploitDonor)
    else:
        leaves = evidence.rank > max(places, (evidence.num_ranked + 1) // 2)
    standing = f"it is in the {'worse' if leaves else 'better'} half"
    active = num_active(config, tx.tables, team[0].population) - leaves
    reason = f"{standing}; {active} train on, until {places} do (pbt.share is halving)"
    for row in team:
        if leaves:
            tx.put(replace(row, state="retired"))
        kind = "retired" if leaves else "promoted"
        tx.add_decision(kind, row.policy, **{**data, "reason": reason, "places": places})


def fill_places(state: ControllerState, tx: Transaction) -> None:
    """Bring retired policies back by copies of the best where there are places for them.

    There are where a learner has joined, a policy has broken, or a resume has changed the setting.
    """
    if state.phase.name != "training":
        return
    config, tables = state.settings.config, state.tables
    for population in sorted({row.population for row in _retired(tables)}):
        active = num_active(config, tables, population)
        free = num_places(config, state.crew, population) - active
        # Almost always: this is asked after every assignment.
        if free <= 0:
            continue
        waiting = sorted(
            row.policy
            for row in _retired(tables)
            if row.population == population
            and not row.pending
            and leader_of(state.league, row.policy).policy == row.policy
        )
        for name in waiting[:free]:
            _bring_back(state, tx, tables.policies[name])


def _retired(tables: Tables) -> Iterable[PolicyRow]:
    return tables.policies.by("inactive").get("retired", {}).values()


def _bring_back(state: ControllerState, tx: Transaction, row: PolicyRow) -> None:
    donors = donors_of(state.settings.config, state.fits, state.blame.ledger, row)
    _, donor = max(donors, default=(0.0, None))
    if donor is not None:
        explore, team = not is_reference(state.settings.config, row), team_of(state.league, row)
        reason = "it was retired, and there is a place for it again"
        exploit(state, tx, team, donor, explore=explore, data={"reason": reason})
