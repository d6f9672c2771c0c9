"""The kinds of matchmaking, each made from its defaults."""

from __future__ import annotations

import numpy as np
import pytest

from populations.matchmaking.drawing import Rule
from populations.matchmaking.kinds import KINDS
from populations.matchmaking.settings import MatchmakingConfig
from populations.matchmaking.window import WindowRule
from tests.populations.matchmaking.toy_league import request


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_listed_by_its_name_and_answers(name: str) -> None:
    kind = KINDS[name]
    assert kind.name == name
    made = kind.from_sections(MatchmakingConfig(), ghosts=WindowRule())
    rng = np.random.default_rng(0)
    if isinstance(made, Rule):
        weights = made.weights(request(), rng=rng)
        assert weights.shape == (6,)
        assert (weights >= 0.0).all()
    else:
        drawn = made.draw(request(), rng=rng)
        assert drawn.num_mirrors + len(drawn.players) == 8


def test_only_quality_has_another_usual_share_of_the_latest() -> None:
    usual = {name: dict(kind.usual) for name, kind in KINDS.items() if kind.usual}
    assert usual == {"quality": {"latest_ratio": 0.8}}
