"""Successive halving: fewer and fewer policies train, and each of them more (``pbt.share``).

At first a population has more policies than its learners can train at once (places). Until only as
many are left as there are places, a decision retires a policy of the worse half instead of letting
it copy, and none copies or explores. Then PBT goes on among the rest. Decisions are made at each
policy's own mark, so no policy waits for others.

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
"""Least number of policies that train on, because a single one has nothing to copy."""


def num_places(config: RunConfig, crew: Crew, population: str) -> int:
    """Return how many policies of a population train on: all, or as many as learners can train."""
    if config.pbt_of(population).share == "even":
        return config.populations[population].num_policies
    if config.deterministic:
        # One assignment is open at a time, however many learners there are.
        return LEAST
    learners = config.learners
    wanted = learners.get(population, 0) if isinstance(learners, Mapping) else learners or 1
    # Learners from elsewhere join and leave, so those that are present count, too.
    present = sum(
        learner.hello.slots for learner in crew.learners.values() if learner.may_train(population)
    )
    return max(LEAST, -(-max(wanted, present) // num_sharing(config)))


def num_active(config: RunConfig, tables: Tables, population: str) -> int:
    """Return how many policies of a population train, including those with a pending copy."""
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
    """Retire a team if its leader is in the worse half, instead of carrying out the decision."""
    evidence = decision.evidence
    if evidence.rank is None:
        # A user's own rule may give no rank; then a decision to copy stands for the worse half.
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
    """Bring retired policies back as copies of the best policy while places are free.

    Places become free when a learner joins, a policy fails, or a resume changes the setting.
    """
    if state.phase.name != "training":
        return
    config, tables = state.settings.config, state.tables
    for population in sorted({row.population for row in _retired(tables)}):
        active = num_active(config, tables, population)
        free = num_places(config, state.crew, population) - active
        # This runs after every assignment, and nearly always no place is free.
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
