from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.candidates import FloatArray
from populations.core import OpponentRequest
from populations.matchmaking.drawing import (
    Rule,
    RuleMatchmaker,
    draw_count,
    draw_indices,
    normalized,
)
from populations.matchmaking.window import UniformRule
from tests.populations.matchmaking.toy_league import by_player, ghost, latest, request, shares


@dataclass(frozen=True)
class Planted:
    values: tuple[float, ...]

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        del request, rng
        return np.array(self.values)


def test_the_share_of_the_latest_is_exact_on_average() -> None:
    # 0.3 x 8 = 2.4: two or three blocks.
    matchmaker = RuleMatchmaker(rule=UniformRule(), latest_ratio=0.3)
    rng = np.random.default_rng(1)
    mirrors = [matchmaker.draw(request(), rng=rng).num_mirrors for _ in range(2000)]
    assert set(mirrors) == {2, 3}
    # standard deviation of the mean: sqrt(0.24 / 2000) = 0.011
    assert np.mean(mirrors) == pytest.approx(2.4, abs=0.05)


def test_a_whole_share_needs_no_chance() -> None:
    rng = np.random.default_rng(1)
    # 0.1 * 30 is a bit more than 3 in binary.
    matchmaker = RuleMatchmaker(rule=UniformRule(), latest_ratio=0.1)
    drawn = {matchmaker.draw(request(num_opponents=30), rng=rng).num_mirrors for _ in range(50)}
    assert drawn == {3}
    assert {draw_count(0.7 + 0.1 * 3, of=8, rng=rng) for _ in range(50)} == {8}


def test_ghosts_are_drawn_as_often_as_they_weigh() -> None:
    matchmaker = RuleMatchmaker(rule=Planted((1.0, 0.0, 3.0)), latest_ratio=0.5)
    asked = request(ghosts=3)
    expected = {ghost(0).player: 0.125, ghost(2).player: 0.375, "mirror": 0.5}
    distribution = matchmaker.distribution(asked, rng=np.random.default_rng(0))
    assert by_player(asked, distribution) == pytest.approx(expected)
    # 6000 ghosts: standard deviation of a share of 12000 opponents at most 0.004
    assert shares(matchmaker, asked, num_draws=1500) == pytest.approx(expected, abs=0.016)


def test_the_latest_of_another_population_are_drawn_alike() -> None:
    others = [latest(number, population="prey") for number in range(2)]
    matchmaker = RuleMatchmaker(rule=UniformRule(), latest_ratio=0.5)
    asked = request(ghosts=1, others=others, is_own=False)
    expected = {"prey/p000": 0.25, "prey/p001": 0.25, ghost(0).player: 0.5}
    distribution = matchmaker.distribution(asked, rng=np.random.default_rng(0))
    assert by_player(asked, distribution) == pytest.approx(expected)


def test_in_the_own_population_the_latest_is_the_trainee_itself() -> None:
    asked = request(ghosts=1, others=[latest(1)])
    matchmaker = RuleMatchmaker(rule=UniformRule(), latest_ratio=0.5)
    distribution = matchmaker.distribution(asked, rng=np.random.default_rng(0))
    assert by_player(asked, distribution) == {"mirror": 0.5, ghost(0).player: 0.5}


@pytest.mark.parametrize("rule", [UniformRule(), Planted(())])
def test_whoever_is_not_there_leaves_its_share_to_the_other(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    matchmaker = RuleMatchmaker(rule=rule, latest_ratio=0.5)
    asked = request(ghosts=0)
    assert by_player(asked, matchmaker.distribution(asked, rng=rng)) == {"mirror": 1.0}
    asked = request(ghosts=0, others=[latest(0, population="prey")], is_own=False)
    assert by_player(asked, matchmaker.distribution(asked, rng=rng)) == {"prey/p000": 1.0}
    asked = request(ghosts=1, is_own=False)
    only = RuleMatchmaker(rule=UniformRule(), latest_ratio=0.5).distribution(asked, rng=rng)
    assert by_player(asked, only) == {ghost(0).player: 1.0}
    with pytest.raises(ValueError, match="nobody to be drawn"):
        matchmaker.draw(request(ghosts=0, is_own=False), rng=rng)


def test_weights_that_say_nothing_are_uniform() -> None:
    assert normalized(np.zeros(4)).tolist() == [0.25] * 4
    assert normalized(np.zeros(0)).tolist() == []


@pytest.mark.parametrize("weights", [[1.0, -0.1], [np.nan, 1.0], [np.inf]])
def test_weights_must_be_weights(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must be finite and at least 0"):
        normalized(np.array(weights))


@settings(deadline=None)
@given(
    weights=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30).filter(lambda w: sum(w) > 0.0),
    seed=st.integers(0, 2**32),
)
def test_what_weighs_nothing_is_never_drawn(weights: list[float], seed: int) -> None:
    drawn = draw_indices(np.array(weights), size=50, rng=np.random.default_rng(seed))
    assert drawn.shape == (50,)
    assert all(weights[index] > 0.0 for index in drawn)


class AlmostOne(np.random.Generator):
    """Draws so near to 1 that a product with the sum is the sum."""

    def random(self, *args: object, **kwargs: object) -> FloatArray:  # type: ignore[override]
        return np.array([np.nextafter(1.0, 0.0)])


def test_rounding_never_draws_beyond_the_last_weight() -> None:
    rng = AlmostOne(np.random.PCG64(0))
    for weights in ([1e-320, 0.0], [3.0, 5e-324, 0.0, 0.0]):
        drawn = draw_indices(np.array(weights), size=1, rng=rng)
        assert weights[int(drawn[0])] > 0.0


def test_errors_name_the_rule_and_the_value() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"latest_ratio must be in \[0, 1\], got 2.0"):
        RuleMatchmaker(rule=UniformRule(), latest_ratio=2.0).draw(request(), rng=rng)
