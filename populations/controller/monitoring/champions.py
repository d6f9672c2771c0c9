"""The champion of each population, and events of its change. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterator

from arena.types import Digest, Entrant, is_bot
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.records.rows import Json, RatingsRow

CHAMPION = "champion"
"""Kind of the event of a new champion; its subject is the player."""

RATINGS_FITTED = "ratings_fitted"
"""Kind of the event of a fit that covers new evaluation matches."""


def announce(state: ControllerState, tx: Transaction) -> None:
    """Record that ratings were fitted, and each population whose leading player is another one."""
    leading: dict[str, dict[str, Json]] = {}
    for population, row in state.tables.ratings.items():
        best = leading_entrant(state, population)
        if best is not None:
            leading[population] = _described(state, row, best)
    champions: dict[str, Json] = {
        name: {key: one[key] for key in ("champion", "rating", "rating_low", "rating_high")}
        for name, one in leading.items()
    }
    tx.add_event(RATINGS_FITTED, "", tallies=state.fitted, champions=champions)
    for population, found in leading.items():
        player, previous = str(found.pop("champion")), state.champions.get(population)
        if player != previous:
            state.champions[population] = player
            tx.add_event(CHAMPION, player, population=population, previous=previous, **found)


def _described(state: ControllerState, row: RatingsRow, entrant: Entrant) -> dict[str, Json]:
    interval = state.ratings(row.population).interval(entrant)
    assert interval is not None, "a champion is rated"
    rating, low, high = (end - row.optimism for end in interval)
    champion = _player_of(state, row.population, entrant)
    origin = state.league.checkpoints.get(Digest(entrant))
    return {
        "champion": champion,
        # As a PLAYER of commands: the weights that are rated may be older than the latest ones.
        "player": champion if origin is None else f"{origin.policy}@{origin.agent_steps}",
        "weights": str(entrant),
        "rating": rating,
        "rating_low": low,
        "rating_high": high,
    }


def _player_of(state: ControllerState, population: str, entrant: Entrant) -> str:
    """Return the player with some weights; of several the policy that has trained longest."""
    weights = Digest(entrant)
    policies = [
        row
        for row in state.tables.policies.values()
        if row.population == population
        and row.state == "active"
        and state.league.standing_weights(row, state.tables) == weights
    ]
    if policies:
        return str(max(policies, key=lambda row: row.agent_steps).policy)
    ghosts = [
        row
        for row in state.tables.ghosts.values()
        if row.population == population and row.weights_digest == weights and row.is_present
    ]
    return str(max(ghosts, key=lambda row: row.agent_steps).player)


def leading_entrant(state: ControllerState, population: str) -> Entrant | None:
    """Return the entrant with the best lower bound, of ghosts and standing weights."""
    eligible = set(_eligible(state, population))
    ranked = map(Entrant, state.ratings(population).best_first)
    return next((name for name in ranked if not is_bot(name) and name in eligible), None)


def _eligible(state: ControllerState, population: str) -> Iterator[str]:
    for ghost in state.tables.ghosts.values():
        if ghost.population == population and ghost.is_present:
            yield ghost.weights_digest
    for policy in state.tables.policies.values():
        if policy.population == population and policy.state == "active":
            digest = state.league.standing_weights(policy, state.tables)
            if digest is not None:
                yield digest
