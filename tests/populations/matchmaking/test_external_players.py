"""Players from outside: bots and imported ones have a fixed share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import Digest, PlayerId, WeightsRef
from populations.matchmaking.external_players import (
    ExternalPlayer,
    ExternalPlayersMatchmaker,
    external_player_id,
    external_player_key,
)
from populations.matchmaking.latest import LatestMatchmaker
from tests.populations.matchmaking.toy_league import request, shares

WEIGHTS = WeightsRef(digest=Digest("f" * 64), key="outsiders/001/predator")


def player(name: str, share: float) -> ExternalPlayer:
    return ExternalPlayer(player=PlayerId(name), share=share)


@settings(deadline=None, max_examples=60)
@given(
    first=st.floats(0.01, 0.5),
    second=st.floats(0.01, 0.5),
    num_opponents=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_shares_are_met_to_the_next_whole_opponent(
    first: float, second: float, num_opponents: int, seed: int
) -> None:
    external = (player("bot:a", first), player("bot:b", second))
    matchmaker = ExternalPlayersMatchmaker(inner=LatestMatchmaker(), external=external)
    asked = request(num_opponents=num_opponents)
    drawn = matchmaker.draw(asked, rng=np.random.default_rng(seed))
    assert drawn.num_mirrors + len(drawn.players) == num_opponents
    assert abs(len(drawn.players) - (first + second) * num_opponents) < 1.0
    # Systematic sampling: each has its part of the drawn ones, to the next whole one.
    number_of_a = sum(one.player == "bot:a" for one in drawn.players)
    assert abs(number_of_a - first / (first + second) * len(drawn.players)) < 1.0 + 1e-9


def test_a_share_of_all_leaves_nothing_to_the_rule() -> None:
    matchmaker = ExternalPlayersMatchmaker(
        inner=LatestMatchmaker(), external=(player("bot:a", 1.0),)
    )
    assert shares(matchmaker, request(), num_draws=3) == {"bot:a": 1.0}


def test_an_imported_player_is_known_by_its_name_where_all_see_it() -> None:
    assert external_player_id("bot:random") == "bot:random"
    assert external_player_id("my exports/champion") == "outsider:my_exports/champion"
    assert external_player_key(3, "prey") == "outsiders/003/prey"
    one = ExternalPlayer(player=PlayerId("outsider:x"), share=1.0, weights=WEIGHTS)
    matchmaker = ExternalPlayersMatchmaker(inner=LatestMatchmaker(), external=(one,))
    (drawn, *_) = matchmaker.draw(request(), rng=np.random.default_rng(0)).players
    assert drawn.entrant == one.seated.entrant == "outsider:x"


def test_on_average_a_small_share_of_few_opponents_is_met() -> None:
    matchmaker = ExternalPlayersMatchmaker(
        inner=LatestMatchmaker(), external=(player("bot:a", 0.1),)
    )
    found = shares(matchmaker, request(num_opponents=2), num_draws=4000)
    assert found["bot:a"] == pytest.approx(0.1, abs=0.02)
