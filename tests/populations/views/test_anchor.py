"""Scores against the anchor: of the champion's very weights, over all seats."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from arena.matches.pair_scores import wilson
from arena.types import RANDOM_BOT, Entrant
from populations.league.standings import champion
from populations.records.rows import TallyRow
from populations.views.league import standings_document
from populations.views.players import champion_document
from populations.views.questions.champions import anchor_score, anchor_scores
from populations.views.run import status_document
from tests.populations.controller.simulated import World
from tests.populations.views.test_unproven import inspected, league


@pytest.fixture(scope="module")
def learned() -> World:
    return league(200.0)


def test_it_is_what_the_tallies_say_and_the_same_in_every_view(
    learned: World, tmp_path: Path
) -> None:
    with inspected(learned, tmp_path / "run") as run:
        best = champion(run.standings()["player"])
        assert best is not None
        found = cast(Any, anchor_score(run, "player", best))
        own, anchor = Entrant(str(best.weights)), Entrant(RANDOM_BOT)
        won = matches = 0.0
        for row in learned.committed:
            if not isinstance(row, TallyRow) or {*row.tally.entrants} != {own, anchor}:
                continue
            (pair,) = row.tally.pairs
            first = pair.wins + pair.draws / 2.0
            won += first if row.tally.entrants[0] == own else row.tally.matches - first
            matches += row.tally.matches
        assert matches > 100
        assert found["matches"] == matches
        assert found["score"] == pytest.approx(won / matches)
        assert (found["score_low"], found["score_high"]) == wilson(won / matches, int(matches))
        assert found["player"] == best.player
        assert anchor_scores(run) == {"player": found}
        assert cast(Any, standings_document(run, None))["anchor"]["player"] == found
        assert cast(Any, status_document(run, None))["champion"]["player"]["anchor"] == found
        (one,) = cast(Any, champion_document(run, None))["champions"]
        assert one["anchor"] == found
        # Who never met it has no score.
        assert anchor_score(run, "player", best._replace(weights=None)) is None
