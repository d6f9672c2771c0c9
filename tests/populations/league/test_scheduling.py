"""Which evaluation matches are chosen, against dense covariances and enumeration."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.league.scheduling import BASE_IMPORTANCE, Field, choose_pairs, importance
from populations.ratings.bradley_terry import ELO_PER_UNIT

FloatArray = npt.NDArray[np.float64]


def make_field(
    ratings: list[float] | FloatArray,
    *,
    spread: FloatArray | None = None,
    own: list[float] | FloatArray | None = None,
    population: list[int] | None = None,
    remaining: list[float] | None = None,
    scatter: float = 0.0,
    met: FloatArray | None = None,
) -> Field:
    size = len(ratings)
    return Field(
        ratings=np.array(ratings, dtype=np.float64),
        spread=np.zeros((size, 1)) if spread is None else spread,
        own_variance=np.zeros(size) if own is None else np.array(own, dtype=np.float64),
        is_eligible=np.ones(size, dtype=bool),
        is_ranked=np.ones(size, dtype=bool),
        population=np.array(population or [0] * size, dtype=np.int64),
        remaining=np.ones(size) if remaining is None else np.array(remaining),
        scatter=scatter,
        met=lambda player: np.zeros(size) if met is None else met[player],
    )


def test_only_open_questions_count() -> None:
    """Far apart and well known: nothing is open. By hand for two who cannot be told apart."""
    known = importance(make_field([0.0, 500.0, 1000.0, 1500.0], own=[1.0] * 4), fraction=0.25)
    np.testing.assert_allclose(known, BASE_IMPORTANCE, atol=1e-9)

    # The two best are equals: p is 1/2, each counts 4/4; the bottom one is far from them.
    close = importance(make_field([0.0, 500.0, 1500.0, 1500.0], own=[1.0] * 4), fraction=0.25)
    np.testing.assert_allclose(close - BASE_IMPORTANCE, [0.0, 0.0, 1.0, 1.0], atol=1e-9)


def draws() -> np.random.Generator:
    return np.random.default_rng(3)


def test_the_boundary_of_the_bottom_is_the_best_in_it() -> None:
    """Of five, a fraction of 0.4 is two: the second worst against the others, by hand."""
    field = make_field([0.0, 100.0, 200.0, 5000.0, 9000.0], own=[5000.0] * 5)
    weights = importance(field, fraction=0.4) - BASE_IMPORTANCE
    # Differences of 100 with a deviation of 100 are one standard deviation.
    ahead = 0.5 * math.erfc(1.0 / math.sqrt(2.0))
    openness = 4.0 * ahead * (1.0 - ahead)
    np.testing.assert_allclose(weights, [openness, openness, openness, 0.0, 0.0], atol=1e-6)


def test_common_uncertainty_decides_nothing() -> None:
    """Everybody shares one error, one player has an error of its own: that one is chosen."""
    spread = np.full((4, 1), 300.0)
    field = make_field([0.0, 0.0, 0.0, 0.0], spread=spread, own=[0.0, 0.0, 50.0**2, 0.0])
    pairs = choose_pairs(
        field,
        weights=np.ones(4),
        may_play=np.ones(4, dtype=bool),
        num_pairs=1,
        matches_per_pair=8,
        rng=draws(),
    )
    assert pairs[0][0] == 2


def test_each_population_is_centred_on_its_own_ranked_players_by_hand() -> None:
    spread = np.array([[300.0, 0.0], [10.0, 4.0], [0.0, 8.0], [320.0, 0.0], [2.0, 0.0]])
    # Populations 0 and 2 have unordered players; only the second player of 2 is ranked.
    field = replace(
        make_field([0.0] * 5, spread=spread, population=[0, 2, 2, 0, 2]),
        is_ranked=np.array([True, True, False, True, False]),
    )
    np.testing.assert_allclose(
        field.centred_spread(), [[-10.0, 0.0], [0.0, 0.0], [-10.0, 4.0], [10.0, 0.0], [-8.0, -4.0]]
    )
    # If no player is ranked, all count.
    unranked = replace(field, is_ranked=np.array([True, False, False, True, False]))
    np.testing.assert_allclose(
        unranked.centred_spread(),
        [[-10.0, 0.0], [6.0, 0.0], [-4.0, 4.0], [10.0, 0.0], [-2.0, -4.0]],
    )


def dense_update(covariance: FloatArray, i: int, j: int, *, noise: float) -> FloatArray:
    """The covariance after the difference of two was observed: conditioning a Gaussian."""
    contrast = np.zeros(len(covariance))
    contrast[i], contrast[j] = 1.0, -1.0
    column = covariance @ contrast
    return covariance - np.outer(column, column) / (contrast @ column + noise)


def match_noise(ratings: FloatArray, i: int, j: int, *, num_matches: float) -> float:
    chance = 1.0 / (1.0 + math.exp(-(ratings[i] - ratings[j]) / ELO_PER_UNIT))
    return float(ELO_PER_UNIT**2 / (num_matches * chance * (1.0 - chance)))


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 7), num_pairs=st.integers(1, 8))
def test_pairs_are_those_of_dense_covariances(seed: int, size: int, num_pairs: int) -> None:
    rng = np.random.default_rng(seed)
    ratings = rng.normal(0.0, 200.0, size)
    spread = rng.normal(0.0, 80.0, (size, 3))
    own = rng.uniform(1.0, 10_000.0, size)
    weights = rng.uniform(0.1, 2.0, size)
    scatter = float(rng.choice([0.0, 50.0**2]))
    met = rng.integers(0, 500, (size, size)).astype(np.float64)
    met += met.T
    field = make_field(ratings, spread=spread, own=own, scatter=scatter, met=met.copy())

    def noise_between(one: int, other: int) -> float:
        """Of 16 more matches: what all together tell, less what is known."""

        def told(matches: float) -> float:
            if matches == 0.0:
                return 0.0
            return 1.0 / (scatter + match_noise(ratings, one, other, num_matches=matches))

        return 1.0 / (told(met[one, other] + 16.0) - told(met[one, other]))

    centred = spread - spread.mean(axis=0)
    covariance = centred @ centred.T + np.diag(own)
    expected = []
    for _ in range(num_pairs):
        focus = int(np.argmax(weights * np.diag(covariance)))
        gains = {}
        for rival in set(range(size)) - {focus}:
            noise = noise_between(focus, rival)
            after = dense_update(covariance, focus, rival, noise=noise)
            lost = np.diag(covariance - after)
            gains[rival] = weights[focus] * lost[focus] + weights[rival] * lost[rival]
        rival = max(gains, key=lambda player: gains[player])
        covariance = dense_update(covariance, focus, rival, noise=noise_between(focus, rival))
        met[focus, rival] += 16.0
        met[rival, focus] += 16.0
        expected.append((focus, rival))

    pairs = choose_pairs(
        field,
        weights=weights,
        may_play=np.ones(size, dtype=bool),
        num_pairs=num_pairs,
        matches_per_pair=16,
        rng=draws(),
        far_share=0.0,
    )
    assert pairs == expected


def test_ten_thousand_players_need_no_matrix_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    size = 10_000
    field = make_field(rng.normal(0.0, 200.0, size), spread=rng.normal(0.0, 80.0, (size, 8)))
    tracemalloc.start()
    try:
        weights = importance(field, fraction=0.2)
        pairs = choose_pairs(
            field,
            weights=weights,
            may_play=np.ones(size, dtype=bool),
            num_pairs=32,
            matches_per_pair=16,
            rng=draws(),
        )
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(pairs) == 32
    # A matrix of all pairs would take 800 MB.
    assert most_bytes < 64 * 2**20


def test_the_only_player_that_matters_is_the_one_that_plays() -> None:
    """Centred on itself it would seem to be known."""
    rng = np.random.default_rng(0)
    field = make_field([0.0] * 6, spread=rng.normal(0.0, 50.0, (6, 4)))
    weights = np.zeros(6)
    weights[3] = 1.0
    pairs = choose_pairs(
        field,
        weights=weights,
        may_play=np.ones(6, dtype=bool),
        num_pairs=4,
        matches_per_pair=8,
        rng=draws(),
    )
    assert [first for first, _ in pairs] == [3] * 4


def test_matches_are_spread_over_those_who_are_alike() -> None:
    """Thirty players of whom nothing is known: everybody plays, nobody more than a few times."""
    field = make_field([0.0] * 30, own=[400.0**2] * 30)
    pairs = choose_pairs(
        field,
        weights=np.ones(30),
        may_play=np.ones(30, dtype=bool),
        num_pairs=60,
        matches_per_pair=8,
        rng=draws(),
    )
    played = np.bincount(np.array(pairs).ravel(), minlength=30)
    assert played.min() >= 2
    assert played.max() <= 10


def test_in_a_game_of_several_populations_nobody_meets_its_own() -> None:
    field = make_field([0.0] * 6, own=[100.0**2] * 6, population=[0, 0, 0, 1, 1, 1])
    pairs = choose_pairs(
        field,
        weights=np.ones(6),
        may_play=np.ones(6, dtype=bool),
        num_pairs=12,
        matches_per_pair=8,
        rng=draws(),
    )
    assert all((first < 3) != (second < 3) for first, second in pairs)


@pytest.mark.parametrize("may_play", [[True, False, False], [False, False, False]])
def test_without_two_who_may_play_there_is_no_pair(may_play: list[bool]) -> None:
    field = make_field([0.0, 1.0, 2.0], own=[1.0] * 3)
    pairs = choose_pairs(
        field,
        weights=np.ones(3),
        may_play=np.array(may_play),
        num_pairs=3,
        matches_per_pair=8,
        rng=draws(),
    )
    assert pairs == []


def test_who_may_not_play_is_not_chosen() -> None:
    field = make_field([0.0, 1.0, 2.0], own=[1.0, 1e6, 1.0])
    may_play = np.array([True, False, True])
    pairs = choose_pairs(
        field, weights=np.ones(3), may_play=may_play, num_pairs=4, matches_per_pair=8, rng=draws()
    )
    assert {player for pair in pairs for player in pair} == {0, 2}


def test_a_third_of_the_pairs_is_at_all_distances_alike() -> None:
    """One player matters, and its nearest rival would tell most of it."""
    ratings = [1000.0, *(100.0 * level for level in range(10))]
    field = make_field(ratings, own=[100.0**2, *[1.0] * 10])
    weights = np.array([1.0, *[0.0] * 10])
    may_play, rng = np.ones(11, dtype=bool), draws()
    played = np.zeros(11, dtype=np.int64)
    for _ in range(750):
        # A third of four pairs is spread over time, too.
        pairs = choose_pairs(
            field, weights=weights, may_play=may_play, num_pairs=4, matches_per_pair=8, rng=rng
        )
        assert [focus for focus, _ in pairs] == [0] * 4
        played += np.bincount([rival for _, rival in pairs], minlength=11)
    # 1,000 of 3,000 are drawn, a ninth of them next to each inner level, half as many at the ends.
    assert played[10] == pytest.approx(2000 + 1000 / 18, abs=60)
    assert played[2:10] == pytest.approx(1000 / 9, abs=30)
    assert played[1] == pytest.approx(1000 / 18, abs=25)


def test_a_pair_that_scatters_is_not_asked_again_and_again() -> None:
    """Beside a rival of its own strength, who it has met often, an unknown pair tells more."""
    met = np.zeros((3, 3))
    met[0, 1] = met[1, 0] = 400.0
    rivals = {}
    for scatter in (0.0, 50.0**2):
        field = make_field([0.0, 0.0, 150.0], own=[100.0**2, 1.0, 1.0], scatter=scatter, met=met)
        ((_, rivals[scatter]),) = choose_pairs(
            field,
            weights=np.array([1.0, 0.0, 0.0]),
            may_play=np.ones(3, dtype=bool),
            num_pairs=1,
            matches_per_pair=64,
            rng=draws(),
            far_share=0.0,
        )
    assert rivals == {0.0: 1, 50.0**2: 2}
