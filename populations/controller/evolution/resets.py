"""Policies that begin anew from other weights: exploiters after a ghost, and immigrants.

An exploiter that has left a ghost starts again, so that it finds a new way to win. ``roles.reset``
names the weights; if they do not exist, they are those of the exploiter's own first checkpoint, and
the event says so. Identity, counters and hyperparameters stay, the generation rises and statistics
start anew.

Immigrants have fresh weights or weights of another run. With some probability one replaces a policy
instead of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from arena.types import Digest, Entrant, PlayerId, PolicyId, ghost_id
from populations.config.role_settings import INITIAL, NEAREST_EVEN
from populations.controller.evolution.generations import begin_generation
from populations.controller.evolution.members import is_reference
from populations.controller.state.epoch import Settings
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.core import PRIOR_MATCHES, FloatArray
from populations.league.league import League
from populations.league.scores import Outcome, counted
from populations.matchmaking.rating_proximate import expected_scores
from populations.pbt.explore import initial_hyperparameters
from populations.records.rows import GhostRow, Json, PolicyRow
from populations.records.tables import Tables
from populations.roles import MAIN, is_reset, nearest_even, reset_probability

RESETS = "resets"


class Origin(Struct, frozen=True, kw_only=True):
    """Weights that a policy goes on from.

    Attributes:
        player: Player that has these weights, for the event.
        checkpoint: Checkpoint to go on from, optimizer included; None: there are only weights.
        initial_weights: Value of `PolicyRow.initial_weights` if there is no checkpoint.
        parent: Policy and generation, or a player of another run; None for fresh weights.
        parent_agent_steps: Agent steps of the parent at these weights, if it is of this run.
        numbers: Numbers that explain the choice, for the event.
    """

    player: str
    checkpoint: str | None = None
    initial_weights: str | None = None
    parent: Entrant | None = None
    parent_agent_steps: int | None = None
    numbers: Mapping[str, Json] = {}


def reset_key(population: str) -> str:
    """Return the directory of imported weights for resets, relative to the run's directory."""
    return f"{RESETS}/{population}"


def try_reset(state: ControllerState, tx: Transaction, policy_id: PolicyId) -> None:
    """Decide whether a policy that has just left a ghost is reset, and carry that out.

    Main agents are never reset, nor are policies that have reached their limit of agent steps.
    """
    policy, config = state.tables.policies[policy_id], state.settings.config
    limit, roles = config.stop.agent_steps_per_policy, config.roles
    is_done = limit is not None and policy.agent_steps >= limit
    if policy.role == MAIN or is_done or state.phase.name == "evaluating":
        return
    probability = reset_probability(policy.role, league_exploiter=roles.reset_probability)
    # The policy has just left a ghost, whose id has the same agent steps.
    left = ghost_id(policy.policy, agent_steps=policy.agent_steps)
    data: dict[str, Json] = {"ghost": left, "probability": probability}
    if is_reset(probability, rng=tx.draw()):
        _start_again(state, tx, policy, _origin(state.settings, state.fits, policy), data=data)
    else:
        tx.add_event("kept", policy.policy, role=policy.role, reason="no reset was drawn", **data)


def without_weights(state: ControllerState, tx: Transaction, key: str, *, reason: str) -> None:
    """Reset exploiters that were to start from damaged weights to their own first checkpoint."""
    for policy in list(state.tables.policies.values()):
        row = state.tables.generations.get(policy.trainee)
        is_waiting = policy.checkpoint is None and policy.initial_weights == key
        # Only an exploiter after a reset has an own first checkpoint to start from instead.
        if is_waiting and row is not None and row.cause == "reset":
            origin = _initial(state.tables, policy, instead_of=key, because=reason)
            _start_again(state, tx, policy, origin, data={})


def _start_again(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    origin: Origin,
    *,
    data: Mapping[str, Json],
) -> None:
    checkpoint = state.tables.checkpoints.get(origin.checkpoint or "")
    is_others = checkpoint is not None and checkpoint.policy != policy.policy
    after = begin_generation(
        state.fits,
        tx,
        replace(
            policy,
            checkpoint=origin.checkpoint,
            initial_weights=origin.initial_weights,
            # The exploiter's own first checkpoint is not a copy of another policy.
            parent=checkpoint.policy if checkpoint is not None and is_others else None,
            ready_at=policy.agent_steps,
        ),
        cause="reset",
        parent=origin.parent,
        parent_agent_steps=origin.parent_agent_steps,
    )
    tx.add_event(
        "reset",
        policy.policy,
        **{
            **data,
            **origin.numbers,
            "role": policy.role,
            "rule": state.settings.config.roles.reset,
            "to": origin.player,
            "checkpoint": origin.checkpoint,
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
        },
    )


def _origin(settings: Settings, fits: Fits, policy: PolicyRow) -> Origin:
    rule, tables = settings.config.roles.reset, fits.league.tables
    if rule == INITIAL:
        return _initial(tables, policy)
    if rule == NEAREST_EVEN:
        return _nearest_even(fits, policy)
    key = reset_key(policy.population)
    if settings.config.roles.is_imported and key in settings.immigrants:
        return Origin(player=rule, initial_weights=key, parent=Entrant(rule))
    # Otherwise the rule is the id of a player of this run: a ghost, or a policy with its latest
    # checkpoint.
    ghost = tables.ghosts.get(PlayerId(rule))
    if ghost is not None and ghost.is_present:
        return _of_ghost(ghost)
    row = tables.policies.get(PolicyId(rule))
    if row is not None and row.checkpoint is not None and row.state == "active":
        return Origin(
            player=row.policy,
            checkpoint=row.checkpoint,
            parent=row.trainee,
            parent_agent_steps=row.agent_steps,
        )
    return _initial(tables, policy, instead_of=rule, because="it is not there")


def _initial(tables: Tables, policy: PolicyRow, **numbers: Json) -> Origin:
    """Return a policy's first checkpoint; if it is lost, the start of the whole population."""
    # Retention keeps the checkpoint of an exploiter's first ghost for this use (`named_by`).
    ghost = tables.ghosts.get(ghost_id(policy.policy, agent_steps=0))
    if ghost is None or tables.checkpoints[ghost.checkpoint].state != "present":
        return Origin(player="the population's start", numbers=numbers)
    return Origin(
        player=ghost.player,
        checkpoint=ghost.checkpoint,
        parent=ghost.trainee,
        parent_agent_steps=ghost.agent_steps,
        numbers=numbers,
    )


def _of_ghost(ghost: GhostRow, **numbers: Json) -> Origin:
    """Return a ghost as an origin, with a fresh optimizer, because a ghost has only weights."""
    return Origin(
        player=ghost.player,
        initial_weights=ghost.key,
        parent=ghost.trainee,
        parent_agent_steps=ghost.agent_steps,
        numbers=numbers,
    )


def _nearest_even(fits: Fits, policy: PolicyRow) -> Origin:
    ghosts = {
        ghost.player: ghost
        for ghost in fits.league.tables.ghosts.values()
        if ghost.population == policy.population and ghost.role == policy.role and ghost.is_present
    }
    win_rates = win_rates_against_mains(fits, list(ghosts.values()))
    player, number = nearest_even(win_rates), len(win_rates)
    if player is not None:
        return _of_ghost(ghosts[player], win_rate=win_rates[player], num_candidates=number)
    numbers: dict[str, Json] = {
        "instead_of": NEAREST_EVEN,
        "because": "no former exploiter wins almost half of its matches",
        "num_candidates": number,
    }
    return _initial(fits.league.tables, policy, **numbers)


def win_rates_against_mains(fits: Fits, ghosts: list[GhostRow]) -> dict[PlayerId, float]:
    """Return the win rates of one population's ghosts against present main agents, draws half.

    A win rate is the mean over active main agents' standing weights of evaluation results, filled
    by what ratings predict. Against main agents of another population, whose ratings cannot be
    compared, only results count. Ghosts without any of these are missing.
    """
    mains = [
        (row.population, digest)
        for row in fits.league.tables.policies.values()
        if row.role == MAIN
        and row.state == "active"
        and (digest := fits.league.standing_weights(row)) is not None
    ]
    predicted = _predicted(fits, ghosts, mains)
    points, matches = counted(_outcomes(fits.league, ghosts, mains), shape=predicted.shape)
    prior = np.where(np.isnan(predicted), 0.0, PRIOR_MATCHES)
    known = matches + prior > 0.0
    # The score is (points + k p) / (matches + k), with k = 0 where ratings predict nothing.
    scores = (points + prior * np.nan_to_num(predicted)) / np.where(known, matches + prior, 1.0)
    found = {}
    for ghost, row, is_known in zip(ghosts, scores, known, strict=True):
        if is_known.any():
            found[ghost.player] = float(row[is_known].mean())
    return found


def _predicted(fits: Fits, ghosts: list[GhostRow], mains: list[tuple[str, Digest]]) -> FloatArray:
    """Return scores predicted by ratings; NaN where unrated. float64 [ghosts, mains]."""
    populations = {ghost.population for ghost in ghosts}

    def rating(population: str, digest: Digest) -> float:
        interval = fits.ratings(population).interval(digest)
        # Ratings of different populations cannot be compared.
        return np.nan if interval is None or population not in populations else interval[0]

    rows = np.array([rating(ghost.population, ghost.weights_digest) for ghost in ghosts])
    columns = np.array([rating(*main) for main in mains])
    # [ghosts, 1] against [1, mains] -> [ghosts, mains]
    scores = expected_scores(rows[:, np.newaxis], columns[np.newaxis, :])
    is_rated = ~np.isnan(rows)[:, np.newaxis] & ~np.isnan(columns)[np.newaxis, :]
    return np.where(is_rated, scores, np.nan)


def _outcomes(
    league: League, ghosts: list[GhostRow], mains: list[tuple[str, Digest]]
) -> Iterator[Outcome]:
    """Yield evaluation results of ghosts (rows) against main agents (columns), in all seats."""
    for (i, ghost), (j, (population, digest)) in product(enumerate(ghosts), enumerate(mains)):
        own = (ghost.population, Entrant(ghost.weights_digest))
        main = (population, Entrant(digest))
        # Results name the entrant of the lower seat first, so both orders are read.
        for seen in league.results_of(own, main):
            yield i, j, seen.points, seen.matches
        for seen in league.results_of(main, own):
            yield i, j, seen.lost_points, seen.matches


IMMIGRANTS = "immigrants"
FRESH = "fresh"


def immigrant_key(population: str, index: int) -> str:
    """Return the directory of an immigrant's weights, relative to the run's directory.

    Args:
        population: Population of the policy that it replaces.
        index: Position in ``pbt.immigration.from``.
    """
    return f"{IMMIGRANTS}/{population}/{index:03d}"


def try_immigrate(
    state: ControllerState,
    tx: Transaction,
    team: Sequence[PolicyRow],
    *,
    data: Mapping[str, Json],
) -> bool:
    """Replace a team by immigrants with the configured probability; return whether it was.

    Hyperparameters are drawn as for a new member. The reference member is never replaced, nor is a
    policy that has reached its limit of agent steps.

    Args:
        state: The controller.
        tx: Transaction that takes the rows.
        team: Policies that would copy a donor and its teammates; the first one leads.
        data: Numbers of the decision to copy.
    """
    policy, config = team[0], state.settings.config
    immigration = config.pbt_of(policy.population).immigration
    limit = config.stop.agent_steps_per_policy
    is_done = limit is not None and policy.agent_steps >= limit
    if immigration.probability <= 0.0 or is_done or is_reference(config, policy):
        return False
    # The draw comes after the conditions, so that it takes no decision number without immigration.
    rng = tx.draw()
    if rng.random() >= immigration.probability:
        return False
    for row in team:
        _immigrate(state, tx, row, rng=rng, data=data)
    return True


def _immigrate(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    *,
    rng: np.random.Generator,
    data: Mapping[str, Json],
) -> None:
    immigration = state.settings.config.pbt_of(policy.population).immigration
    players = immigration.players
    index = int(rng.integers(len(players))) if players else None
    population = state.settings.config.populations[policy.population]
    # Hyperparameters are those of a new member, at the agent steps of the policy that it replaces.
    scheduled = state.settings.scheduled[policy.population]
    first = scheduled.first_factors
    start = scheduled.values(population.start_values, factors=first, agent_steps=policy.agent_steps)
    new, factors = scheduled.explored(
        initial_hyperparameters(start, population.search_space, rng=rng),
        old=start,
        factors=first,
        agent_steps=policy.agent_steps,
    )
    after = begin_generation(
        state.fits,
        tx,
        replace(
            policy,
            # The next assignment makes a checkpoint of the new weights; until then the policy is
            # not seated.
            checkpoint=None,
            # An empty key means fresh weights; None would mean those that the population starts
            # from.
            initial_weights="" if index is None else immigrant_key(policy.population, index),
            parent=None,
            hyperparameters=new,
            factors=factors,
            ready_at=policy.agent_steps,
        ),
        cause="immigrate",
        parent=None if index is None else Entrant(players[index]),
    )
    # The event has the donor that the policy would have copied as ``instead_of``.
    numbers = {name: value for name, value in data.items() if name != "donor"}
    tx.add_decision(
        "immigrated",
        policy.policy,
        **{
            **numbers,
            "instead_of": data.get("donor"),
            "from": FRESH if index is None else players[index],
            "immigration_probability": immigration.probability,
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
            "old": dict(policy.hyperparameters),
            "new": dict(new),
        },
    )
