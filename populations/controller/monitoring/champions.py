"""Title of each population's champion, and the events of its change, which decide nothing else."""

from __future__ import annotations

from msgspec.structs import replace

from arena.types import Digest, Entrant, PlayerId
from populations.controller.state.epoch import Phase
from populations.controller.state.fits import Fits
from populations.controller.state.transaction import Transaction
from populations.league.ratings import interval_fields
from populations.league.standings import champion_of, holders_of, name_of, next_champion
from populations.records.rows import Json

CHAMPION = "champion"
"""Kind of the event of a new champion; its subject is the player."""

RATINGS_FITTED = "ratings_fitted"
"""Kind of the event of a fit that covers new evaluation matches."""


def announce(fits: Fits, phase: Phase, tx: Transaction) -> None:
    """Update each population's champion by the last fit; record the fit and changes as events."""
    leading: dict[str, dict[str, Json]] = {}
    previous: dict[str, PlayerId | None] = {}
    for population, row in list(tx.tables.ratings.items()):
        holders = holders_of(fits.league, population)
        found = next_champion(
            fits.ratings(population),
            holders,
            fits.league,
            agent_steps=tx.tables.run.agent_steps,
            is_over=phase.name != "training",
        )
        if found is not None:
            weights, since = found
            player = name_of(holders[weights], fits.league, weights)
            # Another player with the same weights (a copy or a ghost) is not a new champion.
            if player != row.champion_player and weights != row.champion:
                previous[population] = row.champion_player
                row = replace(row, champion_player=player)
            tx.put(replace(row, champion=weights, champion_agent_steps=since))
            leading[population] = _described(fits, population, weights, player)
    champions: dict[str, Json] = {
        name: {key: one[key] for key in ("champion", *interval_fields(None))}
        for name, one in leading.items()
    }
    tx.add_event(RATINGS_FITTED, "", tallies=fits.covered, champions=champions)
    for population, before in previous.items():
        champion = str(leading[population].pop("champion"))
        about = leading[population]
        tx.add_event(CHAMPION, champion, population=population, previous=before, **about)


def _described(fits: Fits, population: str, weights: Entrant, player: str) -> dict[str, Json]:
    interval = fits.ratings(population).interval(weights)
    assert interval is not None, "a champion is rated"
    origin = fits.league.checkpoints.get(Digest(weights))
    return {
        "champion": player,
        # The name that commands take includes agent steps, because the rated weights may be older
        # than the policy's latest ones.
        "player": player if origin is None else f"{origin.policy}@{origin.agent_steps}",
        "weights": str(weights),
        **interval_fields(interval),
    }


def leading_entrant(fits: Fits, population: str) -> Entrant | None:
    """Return the weights of a population's champion; None before any player is rated."""
    holders = holders_of(fits.league, population)
    return champion_of(fits.ratings(population), holders, fits.league)
