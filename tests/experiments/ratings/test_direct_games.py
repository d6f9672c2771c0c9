"""What `experiments.ratings.direct_games` makes of games."""

from __future__ import annotations

import math

import pytest

from experiments.ratings.direct_games import direct_differences


def test_a_difference_is_the_log_odds_of_the_score_over_both_seats_by_hand() -> None:
    games: dict[str, object] = {
        "players": ["runs/a:player/p0", "bot:random"],
        "names": ["player/p0", "bot:random"],
        "pairs": [
            {"home": "runs/a:player/p0", "away": "bot:random", "matches": 100, "score": 0.995},
            {"home": "bot:random", "away": "runs/a:player/p0", "matches": 100, "score": 0.1},
        ],
    }
    found = direct_differences(games)
    # 99.5 + 90 of 200 won, and half a win for each.
    own, other = 190.0, 11.0
    assert found.keys() == {("player/p0", "bot:random")}
    one = found["player/p0", "bot:random"]
    assert one.elo == pytest.approx(400.0 * math.log10(own / other))
    assert one.error == pytest.approx(400.0 / math.log(10.0) * math.sqrt(1.0 / own + 1.0 / other))
