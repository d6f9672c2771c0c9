"""What a player that is gone says of others: by hand, by quadratic forms, and by fits."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.types import Entrant
from populations.league.elimination import (
    LINE_WEIGHT,
    MAX_NEIGHBOURS,
    MIN_WEIGHT,
    Link,
    Seen,
    expected,
    link_of,
    mesh,
    parts_of,
    strength_of,
    together,
)
from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.model import Result
from populations.ratings.results import Counts, Rated


def rated(number: int, population: str = "player") -> Rated:
    return population, Entrant(f"{number:02d}")


def won(points: float, matches: float) -> Counts:
    return Counts(points, 0.0, matches - points, points=points, squares=points)


def slope_and_curvature(won: float, lost: float, *, at: float) -> tuple[float, float]:
    """Of the log likelihood of matches won and lost, by differences."""

    def log_likelihood(ahead: float) -> float:
        return won * math.log(expected(ahead)) + lost * math.log(expected(-ahead))

    step = 1e-4
    low, mid, high = (log_likelihood(at + k * step) for k in (-1, 0, 1))
    return (high - low) / (2 * step), -(high - 2 * mid + low) / step**2


LINKS = st.lists(
    st.builds(Link, st.floats(1.0, 100.0), st.floats(-2.0, 2.0)), min_size=2, max_size=8
)


@given(links=LINKS, data=st.data())
def test_a_mesh_is_the_star_without_its_centre(links: list[Link], data: st.DataObject) -> None:
    strengths = st.lists(st.floats(-1, 1), min_size=len(links), max_size=len(links))
    star = {rated(number): link for number, link in enumerate(links)}
    points = data.draw(strengths)
    found = list(mesh(star, lambda one: points[int(one[1])]))
    assert len(found) == math.comb(len(links), 2)

    def of_star(strengths: list[float]) -> float:
        """Least sum of w (x - y - d)^2 over the strength x of the player that goes."""
        weights = np.array([link.weight for link in links])
        sums = np.array([link.difference for link in links]) + strengths
        centre = (weights * sums).sum() / weights.sum()
        return float((weights * (centre - sums) ** 2).sum())

    # Slopes at the points, by each strength: those of the parts of matches are the star's.
    slopes = np.zeros(len(links))
    for first, second, parts, others in found:
        i, j = int(first[1]), int(second[1])
        share = expected(points[i] - points[j])
        slope = parts - (parts + others) * share
        slopes[i] += slope
        slopes[j] -= slope
    step = 1e-5
    for index in range(len(links)):
        high, low = points.copy(), points.copy()
        high[index] += step
        low[index] -= step
        change = -(of_star(high) - of_star(low)) / (4 * step)
        assert slopes[index] == pytest.approx(change, rel=1e-4, abs=1e-4)


@given(
    link=st.builds(Link, st.floats(MIN_WEIGHT, 100.0), st.floats(-6.0, 6.0)),
    point=st.floats(-6.0, 6.0),
)
def test_parts_of_matches_have_slope_and_curvature_of_a_link(link: Link, point: float) -> None:
    wins, losses = parts_of(link, point=point)
    assert wins >= 0.0
    assert losses >= 0.0
    share = expected(point)
    slope = wins - (wins + losses) * share
    assert slope == pytest.approx(link.weight * (link.difference - point), rel=1e-6, abs=1e-9)
    curvature = (wins + losses) * share * (1.0 - share)
    # More only where all of so few matches, won or lost, would be less steep.
    is_steep = min(wins, losses) <= 1e-9 * (wins + losses)
    assert curvature == pytest.approx(link.weight) or (is_steep and curvature > link.weight)


def test_slopes_and_curvatures_are_the_likelihoods() -> None:
    link = link_of([Seen(won(7.0, 12.0), 0.4)], point=0.3, pair_deviation=0.0)
    assert link is not None
    slope, curvature = slope_and_curvature(7.0, 5.0, at=0.7)
    assert link.weight == pytest.approx(curvature, rel=1e-4)
    assert link.weight * (link.difference - 0.3) == pytest.approx(slope, rel=1e-4)


def test_results_become_themselves_again() -> None:
    # All won by a player that is 4 ahead: no more is said than that, however far ahead it is.
    link = link_of([Seen(won(16.0, 16.0), 0.0)], point=4.0, pair_deviation=0.0)
    assert link is not None
    assert parts_of(link, point=4.0) == pytest.approx((16.0, 0.0))


def test_players_far_apart_say_nothing() -> None:
    assert link_of([Seen(won(16.0, 16.0), 0.0)], point=12.0, pair_deviation=0.0) is None
    # But that the weaker one won does say something.
    upset = link_of([Seen(won(12.0, 16.0), 0.0)], point=8.0, pair_deviation=0.0)
    assert upset is not None
    assert upset.weight * (upset.difference - 8.0) == pytest.approx(12.0 - 16.0 * expected(8.0))


def test_links_by_hand() -> None:
    # 7.5 of 12 at even strengths: w = 12/4, d = (7.5 - 6) / 3.
    counts = Counts(6.0, 3.0, 3.0, points=7.5, squares=6.75)
    assert link_of([Seen(counts, 0.0)], point=0.0, pair_deviation=0.0) == Link(3.0, 0.5)
    # A pair's own deviation of one natural unit is added to the variance.
    wide = link_of([Seen(counts, 0.0)], point=0.0, pair_deviation=ELO_PER_UNIT)
    assert wide is not None
    assert 1 / wide.weight == pytest.approx(1 / 3 + 1.0)
    # In both seats as often, what a seat is worth says nothing.
    both = [Seen(won(8.0, 12.0), 0.5), Seen(won(4.0, 12.0), -0.5)]
    fair = link_of(both, point=0.0, pair_deviation=0.0)
    assert fair is not None
    assert fair.difference == pytest.approx(0.0)
    assert together([Link(1.0, 2.0), Link(3.0, 4.0)]) == (4.0, 3.5)


def test_a_strength_by_its_results_and_its_line() -> None:
    # Against an equal of its line 30 of 40 won; the line holds it back a little.
    met = [(0.0, [Seen(won(30.0, 40.0), 0.0)])]
    found = strength_of(0.0, met)
    assert 30.0 - 40.0 * expected(found) == pytest.approx(LINE_WEIGHT * found, abs=1e-6)
    assert 0.5 < found < math.log(3)
    # Whoever has won all is no further ahead than its line allows.
    assert strength_of(1.0, [(-9.0, [Seen(won(16.0, 16.0), 0.0)])]) == pytest.approx(1.0, abs=0.01)
    assert strength_of(1.0, []) == 1.0


def test_the_best_known_neighbours_are_tied_each_population_for_itself() -> None:
    star = {rated(number): Link(1.0 + number, 0.0) for number in range(MAX_NEIGHBOURS + 4)}
    star |= {rated(number, "prey"): Link(9.0, 0.0) for number in range(3)}
    pairs = {(first, second) for first, second, _, _ in mesh(star, lambda one: 0.0)}
    chosen = [rated(number) for number in range(4, MAX_NEIGHBOURS + 4)]
    assert pairs == {
        *combinations(chosen, 2),
        *combinations([rated(number, "prey") for number in range(3)], 2),
    }
    # The others are as if they had not been met.
    few = {one: star[one] for one in star if one in chosen or one[0] == "prey"}
    assert list(mesh(star, lambda one: 0.0)) == list(mesh(few, lambda one: 0.0))
    alone = {rated(0): Link(1.0, 0.5)}
    assert list(mesh(alone, lambda one: 0.0)) == [], "one alone is tied to nobody"


def test_what_is_passed_on_for_ever_ends_before_it_is_nothing() -> None:
    # Each merge ties the ends of a chain by what the one before said, beside a strong neighbour.
    weak = Link(0.1, 0.5)
    for _ in range(20):
        star = {rated(0): weak, rated(1): weak, rated(2): Link(100.0, 0.0)}
        tied = {(first, second): parts for first, second, *parts in mesh(star, lambda one: 0.0)}
        if (rated(0), rated(1)) not in tied:
            break
        wins, losses = tied[rated(0), rated(1)]
        again = link_of([Seen(won(wins, wins + losses), 0.0)], point=0.0, pair_deviation=0.0)
        assert again is not None
        assert again.weight >= MIN_WEIGHT * (1.0 - 1e-9)
        weak = again
    else:
        raise AssertionError("it is passed on for ever")


@pytest.mark.parametrize("spread", [0.6, 4.0])
def test_a_fit_says_of_others_what_it_said_with_the_player_that_is_gone(spread: float) -> None:
    # One that goes has met four others, of whom two have met each other. Far apart too: of some
    # next to all matches are won.
    rng = np.random.default_rng(7)
    shares = {"a": 0.0, "b": 1.0, "c": -0.7, "d": 0.5, "x": 0.3}
    strengths = {name: spread * share for name, share in shares.items()}
    results = []
    for first, second in ("ax", "bx", "cx", "dx", "ab"):
        share = expected(strengths[first] - strengths[second])
        wins = int(rng.binomial(4000, share))
        results.append(
            Result(first=first, second=second, seats=(0, 0), wins=wins, draws=0, losses=4000 - wins)
        )
    model = BradleyTerry(num_rounds=0, child_deviation=1000.0)
    whole = model.fit(results, anchors=["a"])
    at = {name: place for place, name in enumerate(whole.entrants)}
    points = {name: whole.ratings[place] / ELO_PER_UNIT for name, place in at.items()}
    star: dict[Rated, Link] = {}
    for one in results:
        if one.second == "x":
            seen = [Seen(Counts.from_results(one).turned(), 0.0)]
            link = link_of(seen, point=points["x"] - points[one.first], pair_deviation=0.0)
            assert link is not None
            star["player", Entrant(one.first)] = link
    tied = [
        Result(
            first=str(first[1]),
            second=str(second[1]),
            seats=(0, 0),
            wins=wins,
            draws=0,
            losses=lost,
        )
        for first, second, wins, lost in mesh(star, lambda one: points[str(one[1])])
    ]
    rest = model.fit([*(one for one in results if one.second != "x"), *tied], anchors=["a"])
    for place, name in enumerate(rest.entrants):
        if name == "a":
            continue
        tolerance = 0.1 * whole.deviations[at[name]] + 0.5
        assert rest.ratings[place] == pytest.approx(whole.ratings[at[name]], abs=tolerance)
        assert rest.deviations[place] == pytest.approx(whole.deviations[at[name]], rel=0.1)
    # Without the links nothing would be known of c and d.
    alone = model.fit([results[-1]], entrants=["c"], anchors=["a"])
    assert alone.deviations[list(alone.entrants).index("c")] > 3 * whole.deviations[at["c"]]
