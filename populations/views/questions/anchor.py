"""Scores against ``bot:random``: what champions win where they meet the anchor itself.

A rating rests on all matches, at every distance; from it the score against one opponent does not
follow beyond the scatter of pairs. So whoever shows how strong a champion is shows both.

Tests: `tests/populations/views/test_anchor.py`.
"""

from __future__ import annotations

from arena.matches.pair_scores import wilson
from arena.types import RANDOM_BOT
from populations.league.standings import Standing
from populations.views.questions.cells import payoff_cells
from populations.views.questions.inspection import Document, Inspection


def anchor_scores(run: Inspection, population: str | None = None) -> Document:
    """Return `anchor_score` of each population's champion."""
    return {n: anchor_score(run, n, best) for n, best in run.champions(population).items()}


def anchor_score(run: Inspection, population: str, player: Standing) -> Document | None:
    """Return what a player has won against ``bot:random`` in evaluation; None: they never met.

    Returns:
        ``player``; ``matches``; ``score`` per match, a draw half; ``score_low`` and ``score_high``,
        the ends of its 95% interval.
    """
    weights = player.weights or ""
    populations = dict.fromkeys(seat.population for seat in run.league.seats)
    names = {(name, str(RANDOM_BOT)): str(RANDOM_BOT) for name in populations}
    cells = payoff_cells(
        run.reader.pairs(kind="evaluate", between=(weights, RANDOM_BOT)),
        seats=run.league.seats,
        names={**names, (population, weights): player.player},
    )
    # Of several other populations each may have met it.
    own = [
        (cell["score"], cell["matches"])
        for cell in cells
        if (cell["population"], cell["player"]) == (population, player.player) and cell["matches"]
    ]
    if not own:
        return None
    matches = sum(num for _, num in own)
    score = sum(mean * num for mean, num in own) / matches
    low, high = wilson(score, matches)
    return {
        "player": player.player,
        "matches": matches,
        "score": score,
        "score_low": low,
        "score_high": high,
    }
