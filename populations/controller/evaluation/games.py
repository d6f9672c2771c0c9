"""Games of evaluations that are kept, up to ``replays.keep`` of each population.

Tests: `tests/populations/controller/evaluation/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict, replace

from arena.config import LearnerSetup
from arena.types import Game, PlayerId, is_external
from arena.wire.messages import Evaluate
from populations.controller.state.epoch import Settings
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.records.games import MAX_HELD, defeats, kept_games, played_as, populations_of
from populations.records.rows import AssignmentRow, GameRow
from populations.records.tables import Tables

SLACK = 16
"""A full table loses one game in ``SLACK`` at once, so that it is searched only now and then."""


def take(
    state: ControllerState, tx: Transaction, row: AssignmentRow, games: Sequence[Game]
) -> None:
    """Keep the games of an evaluation, and remove some if there are too many."""
    message, keep = row.message, state.settings.config.replays.keep
    # A resume may have set ``replays.keep`` to 0 after the evaluation was sent.
    if not games or not keep or not isinstance(message, Evaluate):
        return
    for number, game in enumerate(games):
        players = [message.pairings[game.pairing].seating.players[seat] for seat in game.seats]
        tx.put(
            GameRow(
                **asdict(game),
                game=f"{row.assignment_id}.{number}",
                time=tx.now.utc,
                players=tuple(played_as(one, state.league.checkpoints) for one in players),
                entrants=tuple(one.entrant for one in players),
                keys=tuple("" if one.weights is None else one.weights.key for one in players),
            )
        )
    if len(state.tables.games) > keep * len(state.settings.setup.populations):
        _thin(state.settings.setup, tx, keep=keep - keep // SLACK)
    hold(state.settings, tx)


def _thin(setup: LearnerSetup, tx: Transaction, *, keep: int) -> None:
    games, seats = list(tx.tables.games.values()), setup.seats
    stay: set[str] = set()
    for population in setup.populations:
        own = [game for game in games if population in populations_of(game, seats=seats)]
        rated = tx.tables.ratings.get(population)
        champion = None if rated is None else rated.champion
        stay |= kept_games(own, keep=keep, champion=champion, seats=seats)
    for game in games:
        if game.game not in stay:
            tx.delete(game)


def hold(settings: Settings, tx: Transaction) -> None:
    """Mark only the newest defeats of each champion, whose players' weights are retained."""
    games = tx.tables.games
    held: set[str] = set()
    most, pool = MAX_HELD, settings.config.ghosts.keep
    if pool is not None:
        # A retained ghost keeps its place in the pool, most of which must be free for new ghosts.
        most = min(most, pool // (4 * len(settings.setup.populations)))
    for rated in tx.tables.ratings.values():
        if rated.champion is not None:
            lost = defeats(games.values(), rated.champion, seats=settings.setup.seats)
            # Only games whose weights still exist can be marked.
            kept = [game.game for game in lost if game.holds or _is_there(tx.tables, game)]
            held.update(kept[max(0, len(kept) - most) :])
    for game in list(games.values()):
        if game.holds != (game.game in held):
            tx.put(replace(game, holds=not game.holds))


def _is_there(tables: Tables, game: GameRow) -> bool:
    """Return whether the weights of all players of a game still exist."""
    for player, key in zip(game.players, game.keys, strict=True):
        ghost, checkpoint = tables.ghosts.get(PlayerId(player)), tables.checkpoints.get(key)
        is_ghost = ghost is not None and ghost.key == key and ghost.is_present
        is_checkpoint = checkpoint is not None and checkpoint.state == "present"
        if not (is_ghost or is_checkpoint or is_external(player)):
            return False
    return True
