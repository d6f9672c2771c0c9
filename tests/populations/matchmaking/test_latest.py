"""Self-play: the trainee itself, or the latest of the others."""

from __future__ import annotations

import numpy as np
import pytest

from populations.matchmaking.latest import LatestMatchmaker
from tests.populations.matchmaking.toy_league import (
    by_player,
    ghost,
    latest,
    request,
    shares,
)


def test_in_the_own_population_it_is_mirror_self_play() -> None:
    asked = request(ghosts=5, others=[latest(1), latest(2)])
    assert shares(LatestMatchmaker(), asked, num_draws=20) == {"mirror": 1.0}


def test_of_another_population_the_latest_are_alike_and_ghosts_are_not_met() -> None:
    prey = [latest(number, population="prey") for number in range(4)]
    asked = request(ghosts=5, others=prey, is_own=False, num_opponents=1)
    found = shares(LatestMatchmaker(), asked, num_draws=4000)
    assert found == pytest.approx({player.player: 0.25 for player in prey}, abs=0.03)


def test_where_no_other_is_active_its_ghosts_stand_in() -> None:
    ghosts = [ghost(number) for number in (1, 2)]
    asked = request(ghosts=ghosts, is_own=False)
    found = LatestMatchmaker().distribution(asked, rng=np.random.default_rng(0))
    assert by_player(asked, found) == {one.player: 0.5 for one in ghosts}
