"""Cards of all players whose weights are there: what `arena export` writes.

Tests: `tests/tools/web/test_player.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from arena.codec import plain
from arena.errors import CheckpointError

from ..export.card import Cards
from ..players.game import Game
from ..players.resolve import CHAMPION, exports_at

if TYPE_CHECKING:
    from arena.export.card import Card
    from populations.league.standings import Standing
    from populations.views.questions.inspection import Inspection


def cards_document(run: Inspection) -> dict[str, object]:
    """Return the cards of a run's policies and ghosts, by player.

    ``summary`` are the names and values of `card.md`; ``lineage`` the ancestors, nearest first;
    ``record`` the matches that an export of these weights in the run's directory has played.
    """
    from populations.config.run_file import learner_setup

    game = Game.of_setup(learner_setup(run.run_file, root=run.run_dir))
    cards = Cards.of(run, game)
    records = _records(run.run_dir)
    return {
        "run": run.tables.run.run,
        "cards": {
            line.player: {**_document(card), "record": records.get(card.weights_digest, [])}
            for population, lines in run.standings().items()
            for line in lines
            for card in _card(cards, line, population)
        },
    }


def _records(run_dir: Path) -> dict[str, list[dict[str, object]]]:
    """Return the records of the exports in a run's directory, by the digests of their weights."""
    from arena.export.card import Card, read_any_card

    found: dict[str, list[dict[str, object]]] = {}
    for directory in exports_at(str(run_dir / CHAMPION)):
        try:
            card = read_any_card(directory)
        except CheckpointError:
            # The card may be of another release or just being replaced; the rest of the page is
            # still shown.
            continue
        if isinstance(card, Card):
            found[card.weights_digest] = [plain(line) for line in card.record]
    return found


def _card(cards: Cards, line: Standing, population: str) -> Iterator[Card]:
    """Yield a player's card, if its weights are there."""
    from arena.checkpoints.files import read_manifest

    # Weights of removed checkpoints cannot be read.
    if line.key is None or not cards.inspection.is_kept(line):
        return
    try:
        manifest = read_manifest(cards.inspection.run_dir / line.key)
    except CheckpointError:
        # The checkpoint is damaged, which `arena verify` reports, or was just removed; the rest of
        # the page is still shown.
        return
    yield cards.make(line.player, manifest, population=population)


def _document(card: Card) -> dict[str, object]:
    from arena.export.card_text import summary

    shared = ("run", "created", "value")
    return {
        "summary": {name: _plain(value) for name, value in summary(card) if name not in shared},
        "lineage": [plain(line) for line in card.lineage],
    }


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | list) else str(value)
