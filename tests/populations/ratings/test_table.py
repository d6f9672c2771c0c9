from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.model import Result
from populations.ratings.table import (
    MatchTable,
    Model,
    RatedTable,
    Settings,
    nash_mixture,
    rate_table,
    share_of_pairs_met,
    share_told_apart,
)
from tests.populations.ratings.sequential_elo import elo_ratings

MODELS: tuple[Model, ...] = get_args(Model)
FEW = Settings(num_resamples=30)
Match = tuple[str, str, float]

# d loses to all others; a, b and c form a cycle.
CYCLE: list[Match] = [("a", "b", 1.0), ("b", "c", 1.0), ("c", "a", 1.0)] * 30
CYCLE += [(player, "d", 1.0) for player in "abc"] * 30


def ladder(rng: np.random.Generator, *, num_matches: int) -> list[Match]:
    """Players 200 points apart: p0 is the best."""
    matches = []
    for _ in range(num_matches):
        i, j = rng.choice(4, size=2, replace=False)
        chance = 1.0 / (1.0 + 10.0 ** (200.0 * (int(i) - int(j)) / 400.0))
        matches.append((f"p{i}", f"p{j}", float(rng.random() < chance)))
    return matches


def by_player(rated: RatedTable) -> dict[str, float]:
    return dict(zip(rated.players, rated.ratings.tolist(), strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_every_model_orders_a_ladder(model: Model) -> None:
    table = MatchTable.from_matches(ladder(np.random.default_rng(0), num_matches=600))
    rated = rate_table(table, model=model, settings=FEW)
    ratings = by_player(rated)
    assert max(ratings, key=lambda player: ratings[player]) == "p0"
    if model != "alpha_rank":  # only the first one has mass there
        assert sorted(ratings, key=lambda player: -ratings[player]) == ["p0", "p1", "p2", "p3"]
    assert rated.cyclicity < 0.1
    found = rated.intervals
    assert found is not None
    assert np.all(found.lows <= rated.ratings)
    assert np.all(rated.ratings <= found.highs)
    assert found.ranks[0][0] == 1
    for best, worst in found.ranks:
        assert 1 <= best <= worst <= 4


@pytest.mark.parametrize("model", ["bradley_terry", "elo", "weng_lin", "nash_averaging"])
def test_the_anchor_is_at_zero_and_differences_stay(model: Model) -> None:
    table = MatchTable.from_matches(ladder(np.random.default_rng(1), num_matches=200))
    free = by_player(rate_table(table, model=model, settings=FEW))
    anchored = rate_table(table, model=model, settings=Settings(anchor="p2", num_resamples=30))
    assert by_player(anchored)["p2"] == 0.0
    assert anchored.intervals is not None
    assert (anchored.intervals.lows[2], anchored.intervals.highs[2]) == (0.0, 0.0)
    if model != "bradley_terry":  # its prior is about the anchor
        shift = free["p2"]
        expected = {player: rating - shift for player, rating in free.items()}
        assert by_player(anchored) == pytest.approx(expected, abs=1e-9)
    if model != "nash_averaging":
        assert sum(free.values()) == pytest.approx(0.0, abs=1e-6)


def test_the_ratings_are_those_of_the_models() -> None:
    matches: list[Match] = [("a", "b", 1.0), ("b", "c", 0.5), ("a", "c", 0.0), ("a", "b", 1.0)]
    table = MatchTable.from_matches(matches)
    elo = elo_ratings(matches, initial=0.0, k_factor=10)
    rated = rate_table(table, model="elo", settings=Settings(k_factor=10.0, num_resamples=0))
    assert by_player(rated) == pytest.approx(elo)
    assert rated.intervals is None
    fit = BradleyTerry().fit(
        [
            Result(first="a", second="b", seats=(0, 1), wins=2, draws=0, losses=0),
            Result(first="b", second="c", seats=(0, 1), wins=0, draws=1, losses=0),
            Result(first="a", second="c", seats=(0, 1), wins=0, draws=0, losses=1),
        ]
    )
    rated = rate_table(table, model="bradley_terry")
    assert by_player(rated) == pytest.approx({p: fit.rating(p) for p in fit.entrants})
    assert rated.intervals is not None
    low, high = fit.interval("b")
    assert (rated.intervals.lows[1], rated.intervals.highs[1]) == pytest.approx((low, high))


def test_a_cycle_has_a_mixture_and_no_ranking() -> None:
    table = MatchTable.from_matches(CYCLE)
    assert nash_mixture(table) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=1e-9)
    nash = rate_table(table, model="nash_averaging", settings=FEW)
    # 30 wins of 30 with a Jeffreys prior are odds of 61:1.
    points = 400.0 * np.log10(61.0)
    assert by_player(nash) == pytest.approx({"a": 0.0, "b": 0.0, "c": 0.0, "d": -points}, abs=1e-6)
    assert nash.mixture == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=1e-9)
    evolved = rate_table(table, model="alpha_rank", settings=FEW)
    assert by_player(evolved) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": 0.0})
    rounds = [match for match in CYCLE if match[1] != "d"]
    # Each of three pairs has 15^2 / 30, less what chance does in 95 of 100 leagues: 7.815 / 4.
    for kind in MODELS:
        measured = rate_table(MatchTable.from_matches(rounds), model=kind, settings=FEW).cyclicity
        assert measured == pytest.approx(1.0 - 7.815 / 4 / 22.5, abs=1e-3)


@pytest.mark.parametrize("model", ["elo", "nash_averaging", "alpha_rank"])
def test_the_seed_decides_the_resamples(model: Model) -> None:
    table = MatchTable.from_matches(ladder(np.random.default_rng(2), num_matches=60))

    def highs(seed: int) -> list[float]:
        settings = Settings(num_resamples=20, seed=seed)
        found = rate_table(table, model=model, settings=settings).intervals
        assert found is not None
        return [*found.lows.tolist(), *found.highs.tolist()]

    assert highs(1) == highs(1)
    assert highs(1) != highs(2)


def test_pairs_that_never_met() -> None:
    assert share_of_pairs_met(MatchTable.from_matches([("a", "b", 1.0)])) == 1.0
    assert share_of_pairs_met(MatchTable.from_matches([("a", "b", 1.0), ("a", "c", 0.0)])) == 2 / 3


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    table = MatchTable.from_matches([("a", "b", 1.0), ("b", "a", 0.5)])
    for model in ("weng_lin", "nash_averaging"):
        rate_table(
            table,
            model=model,
            settings=Settings(num_resamples=2),
            progress=lambda done, total: seen.append((done, total)),
        )
    assert seen == [(0, 2), (1, 2)] * 2


def test_an_anchor_must_have_played() -> None:
    with pytest.raises(ValueError, match="anchor must be one of the players, got 'z'"):
        rate_table(
            MatchTable.from_matches([("a", "b", 1.0)]), model="elo", settings=Settings(anchor="z")
        )


MATCHES = st.lists(
    st.tuples(st.permutations("abcd"), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    min_size=1,
    max_size=15,
)


@settings(deadline=None, max_examples=15)
@given(MATCHES, st.sampled_from(MODELS))
def test_every_table_has_ratings_that_are_finite(
    drawn: list[tuple[list[str], float]], model: Model
) -> None:
    table = MatchTable.from_matches([(names[0], names[1], score) for names, score in drawn])
    rated = rate_table(table, model=model, settings=Settings(num_resamples=3))
    found = rated.intervals
    assert found is not None
    for values in (rated.ratings, found.lows, found.highs):
        assert np.isfinite(values).all()
    assert 0.0 <= rated.cyclicity <= 1.0
    if model == "alpha_rank":
        assert rated.ratings.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        # Each pair is played in both orders.
        (["ab", "ba", "bc", "cb"], 1.0),
        # In this chain x = 0, 1, 2 makes every difference 1.
        (["ba", "cb", "cb"], 0.0),
        # This is a cycle, whose differences sum to 0.
        (["ab", "bc", "ca"], 1.0),
        # x = 0, 2/3, 4/3: what is left of three matches are 1/3, 1/3 and -1/3.
        (["ba", "cb", "ca"], 1.0 / 9.0),
        # Two groups never play each other: a chain, and a pair in both orders.
        (["ba", "dc", "cd"], 2.0 / 3.0),
    ],
)
def test_how_far_an_advantage_is_told_from_skill_by_hand(pairs: list[str], expected: float) -> None:
    table = MatchTable.from_matches([(pair[0], pair[1], 0.5) for pair in pairs])
    assert share_told_apart(table) == pytest.approx(expected, abs=1e-9)
