"""Nash mixtures of leagues that are made by hand, and of random ones by the definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.types import Digest, Entrant, PlayerId, Seat
from populations.league.merging import (
    LINE_WEIGHT,
    MAX_NEIGHBOURS,
    MIN_WEIGHT,
    Link,
    expected,
    known_of,
    link_of,
    mesh,
    strength_of,
    together,
)
from populations.league.mixture import (
    MAX_MEMBERS,
    MIN_PROBABILITY,
    Mixture,
    nash_mixtures,
)
from populations.league.standings import Standing
from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.model import Result
from populations.ratings.results import Counts, Rated, result_columns
from populations.records.aggregates import PairRow

DUEL = (
    Seat(name="player_0", side="player_0", population="player", agents=("player_0",)),
    Seat(name="player_1", side="player_1", population="player", agents=("player_1",)),
)
TAG = (
    Seat(name="predators", side="predators", population="predator", agents=("adversary_0",)),
    Seat(name="prey", side="prey", population="prey", agents=("agent_0",)),
)


def line(
    player: str,
    *,
    rating: float | None = 0.0,
    kind: Literal["policy", "ghost", "bot"] = "ghost",
    weights: str | None = None,
    state: str = "active",
    agent_steps: int = 0,
) -> Standing:
    return Standing(
        player=PlayerId(player),
        kind=kind,
        role="main",
        generation=0,
        agent_steps=agent_steps,
        evaluated_agent_steps=agent_steps,
        rating=rating,
        rating_low=None,
        rating_high=None,
        rank_low=None,
        rank_high=None,
        matches=0,
        wins=0,
        draws=0,
        losses=0,
        score=None,
        mean_return=None,
        checkpoint=Digest(player),
        weights=Digest(weights or player) if kind != "bot" else None,
        parent=None,
        hyperparameters={},
        state=state,
        key=player if kind != "bot" else None,
    )


def met(
    first: str, second: str, *, wins: float = 0, draws: float = 0, losses: float = 0
) -> PairRow:
    return PairRow(
        kind="evaluate",
        first=Entrant(first),
        second=Entrant(second),
        first_seat=0,
        second_seat=1,
        wins=wins,
        draws=draws,
        losses=losses,
    )


def probabilities(mixture: Mixture) -> dict[str, float]:
    return {line.player: probability for line, probability in mixture.members}


def circle(num: int, *, wins: float = 100) -> list[PairRow]:
    """Three players beat each other in a circle; the others lose to all of them."""
    rows = [met(a, b, wins=wins) for a, b in (("a", "b"), ("b", "c"), ("c", "a"))]
    rows += [met(winner, f"x{i}", wins=wins) for winner in "abc" for i in range(num)]
    return rows


def test_who_beat_each_other_in_a_circle_share_alike_and_who_loses_has_nothing() -> None:
    # The dominated player may even have the highest rating, and bots are not in the mixture.
    lines = [
        line("x0", rating=100.0),
        line("a"),
        line("b"),
        line("c"),
        line("bot:random", kind="bot"),
    ]
    (mixture,) = nash_mixtures({"player": lines}, circle(1), seats=DUEL).values()
    assert probabilities(mixture) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
    assert mixture.population == "player"
    assert mixture.num_players == 4
    assert mixture.worst_score == pytest.approx(0.5)


def test_unequal_circles_have_unequal_shares() -> None:
    # Payoffs minus 1/2 with k = 8 even prior matches: a beats b by 0.4, b beats c by 0.25, c beats
    # a by 0.1; in equilibrium everyone's share is in proportion to the payoff of the other two.
    rows = [met("a", "b", wins=32), met("b", "c", wins=8, losses=0), met("c", "a", wins=2)]
    payoffs = [0.5 * n / (n + 8) for n in (32, 8, 2)]
    lines = {"player": [line(name) for name in "abc"]}
    (mixture,) = nash_mixtures(lines, rows, seats=DUEL).values()
    ab, bc, ca = payoffs
    expected = {"a": bc / sum(payoffs), "b": ca / sum(payoffs), "c": ab / sum(payoffs)}
    assert payoffs == pytest.approx([0.4, 0.25, 0.1])
    assert probabilities(mixture) == pytest.approx(expected)


def test_ratings_stand_in_for_matches_that_were_not_played() -> None:
    lines = {"player": [line("a", rating=10.0), line("b", rating=200.0), line("c", rating=-5.0)]}
    (mixture,) = nash_mixtures(lines, [], seats=DUEL).values()
    assert probabilities(mixture) == {"b": 1.0}


def test_equal_weights_count_once_and_only_who_is_frozen_and_rated_takes_part() -> None:
    lines = [
        line("player/p000", kind="policy", weights="a"),
        line("player/p000@1", weights="a"),
        line("b"),
        line("c"),
        line("d", rating=None),
        line("player/p007", kind="policy", state="quarantined", rating=500.0),
    ]
    (mixture,) = nash_mixtures({"player": lines}, circle(0), seats=DUEL).values()
    assert probabilities(mixture) == pytest.approx({"player/p000@1": 1 / 3, "b": 1 / 3, "c": 1 / 3})
    assert mixture.num_players == 3


def test_of_many_copies_few_remain_and_do_the_work_of_all() -> None:
    # Each of 40 rocks would have less than 1/100. The share of dropped ones goes to the other
    # rocks.
    rocks = [f"rock{index:02d}" for index in range(40)]
    rows = [
        row
        for rock in rocks
        for row in (met("paper", rock, wins=100), met(rock, "scissors", wins=100))
    ]
    rows.append(met("scissors", "paper", wins=100))
    lines = [line(name) for name in (*rocks, "paper", "scissors")]
    (mixture,) = nash_mixtures({"player": lines}, rows, seats=DUEL).values()
    shares = probabilities(mixture)
    assert len(shares) <= MAX_MEMBERS
    assert shares["paper"] == pytest.approx(1 / 3)
    assert shares["scissors"] == pytest.approx(1 / 3)
    assert mixture.worst_score == pytest.approx(0.5)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 30))
def test_few_members_that_nearly_nobody_beats(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"g{index:02d}" for index in range(size)]
    rows = [
        met(names[i], names[j], wins=float(rng.integers(0, 60)), losses=float(rng.integers(0, 60)))
        for i in range(size)
        for j in range(i)
    ]
    lines = {"player": [line(name, rating=float(rng.normal(0, 50))) for name in names]}
    mixture = nash_mixtures(lines, rows, seats=DUEL)["player"]
    assert nash_mixtures(lines, rows, seats=DUEL)["player"] == mixture
    shares = [probability for _, probability in mixture.members]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0)
    assert len(shares) <= MAX_MEMBERS
    assert min(shares) >= MIN_PROBABILITY
    # Only rare members were dropped.
    assert 0.45 <= mixture.worst_score <= 0.5 + 1e-9


def test_two_populations_have_a_mixture_each() -> None:
    # In matching pennies hunter h0 catches prey p0, h1 catches p1, and h2 never catches any.
    rows = [
        met(hunter, prey, **({"wins": 100} if hunter[1] == prey[1] else {"losses": 100}))
        for hunter in ("h0", "h1", "h2")
        for prey in ("p0", "p1")
    ]
    lines = {
        "predator": [line("h2", rating=0.0), line("h0", rating=40.0), line("h1", rating=40.0)],
        "prey": [line("p0"), line("p1")],
    }
    mixtures = nash_mixtures(lines, rows, seats=TAG)
    assert probabilities(mixtures["predator"]) == pytest.approx({"h0": 0.5, "h1": 0.5}, abs=1e-6)
    assert probabilities(mixtures["prey"]) == pytest.approx({"p0": 0.5, "p1": 0.5}, abs=1e-6)
    values = [mixtures[name].worst_score for name in ("predator", "prey")]
    assert sum(values) == pytest.approx(1.0)


def test_between_populations_the_prediction_knows_which_side_has_it_easier() -> None:
    # Overall hunters win 3 of 4, which is expected of pairs without matches, though the ratings of
    # both populations are equal; the pure strategies show it.
    rows = [met("h0", "p0", wins=300, losses=100)]
    lines = {"predator": [line("h0"), line("h1")], "prey": [line("p0"), line("p1")]}
    mixtures = nash_mixtures(lines, rows, seats=TAG)
    assert mixtures["predator"].worst_score == pytest.approx(0.75, abs=0.01)
    assert mixtures["prey"].worst_score == pytest.approx(0.25, abs=0.01)


def seat(side: str, population: str) -> Seat:
    return Seat(name=f"{side}_{population}", side=side, population=population, agents=(side,))


@pytest.mark.parametrize(
    ("seats", "complaint"),
    [
        ([seat("team", "player")], "cooperation"),
        ([seat("a", "player"), seat("b", "player"), seat("c", "player")], "two sides"),
        ([seat("a", "player"), seat("a", "keeper"), seat("b", "player")], "player and keeper"),
    ],
)
def test_games_without_such_a_mixture_are_refused(seats: Sequence[Seat], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        nash_mixtures({"player": [line("a")], "keeper": [line("b")]}, [], seats=seats)


def test_nobody_rated_is_said() -> None:
    lines = {"player": [line("a", rating=None), line("bot:random", kind="bot")]}
    with pytest.raises(ConfigError, match="player has no mixture: no frozen player is rated"):
        nash_mixtures(lines, [], seats=DUEL)


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
    found = list(mesh(star))
    assert len(found) == math.comb(len(links), 2)

    def of_star(strengths: list[float]) -> float:
        """Least sum of w (x - y - d)^2 over the strength x of the player that goes."""
        weights = np.array([link.weight for link in links])
        sums = np.array([link.difference for link in links]) + strengths
        centre = (weights * sums).sum() / weights.sum()
        return float((weights * (centre - sums) ** 2).sum())

    # Slopes at any strengths, by each of them: those of the mesh are the star's.
    slopes = np.zeros(len(links))
    for first, second, link in found:
        i, j = int(first[1]), int(second[1])
        slope = link.weight * (link.difference - (points[i] - points[j]))
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
    link=st.builds(Link, st.floats(1e-6, 100.0), st.floats(-30.0, 30.0)),
    other=st.builds(Link, st.floats(1e-6, 100.0), st.floats(-30.0, 30.0)),
)
def test_links_are_kept_as_matches_between_equals_and_add_up_so(link: Link, other: Link) -> None:
    counts, more = link.counts(), other.counts()
    assert Link.from_counts(counts) == pytest.approx(link)
    assert Link.from_counts(counts.turned()) == pytest.approx(link.turned())
    # Of so many matches between equals: w = n / 4, and the slope at 0 is s - n / 2.
    assert counts.matches / 4.0 == pytest.approx(link.weight)
    slope = link.weight * link.difference
    assert counts.points - 0.5 * counts.matches == pytest.approx(slope, abs=1e-9)
    added = Counts(*(one + two for one, two in zip(counts, more, strict=True)))
    assert Link.from_counts(added) == pytest.approx(together([link, other]), rel=1e-6, abs=1e-6)


def test_slopes_and_curvatures_are_the_likelihoods() -> None:
    link = link_of([(won(7.0, 12.0), 0.4)], point=0.3, pair_deviation=0.0, known=math.inf)
    assert link is not None
    slope, curvature = slope_and_curvature(7.0, 5.0, at=0.7)
    assert link.weight == pytest.approx(curvature, rel=1e-4)
    assert link.weight * (link.difference - 0.3) == pytest.approx(slope, rel=1e-4)


def test_players_far_apart_say_nothing() -> None:
    assert link_of([(won(16.0, 16.0), 0.0)], point=12.0, pair_deviation=0.0, known=math.inf) is None
    # But that the weaker one won does say something.
    upset = link_of([(won(12.0, 16.0), 0.0)], point=8.0, pair_deviation=0.0, known=math.inf)
    assert upset is not None
    assert upset.weight * (upset.difference - 8.0) == pytest.approx(12.0 - 16.0 * expected(8.0))


def test_links_by_hand() -> None:
    # 7.5 of 12 at even strengths: w = 12/4, d = (7.5 - 6) / 3.
    counts = Counts(6.0, 3.0, 3.0, points=7.5, squares=6.75)
    assert link_of([(counts, 0.0)], point=0.0, pair_deviation=0.0, known=math.inf) == Link(3.0, 0.5)
    # A third of all that is known of a player at log 3: w = 12 * 3/16, h = 1/3, s + h / 2 of n + h.
    third = link_of([(counts, 0.0)], point=math.log(3.0), pair_deviation=0.0, known=6.75)
    assert third is not None
    assert third.weight == 2.25
    assert third.difference == pytest.approx(math.log(3.0) + (7.5 + 1 / 6 - 37 / 3 * 0.75) / 2.25)
    assert known_of(1.0, [(1.0, [(counts, 0.0)])], [(9.0, Link(0.75, 0.0))]) == 3.75
    # A pair's own deviation of one natural unit is added to the variance.
    wide = link_of([(counts, 0.0)], point=0.0, pair_deviation=ELO_PER_UNIT, known=math.inf)
    assert wide is not None
    assert 1 / wide.weight == pytest.approx(1 / 3 + 1.0)
    # In both seats as often, what a seat is worth says nothing.
    both = [(won(8.0, 12.0), 0.5), (won(4.0, 12.0), -0.5)]
    fair = link_of(both, point=0.0, pair_deviation=0.0, known=math.inf)
    assert fair is not None
    assert fair.difference == pytest.approx(0.0)
    assert together([Link(1.0, 2.0), Link(3.0, 4.0)]) == (4.0, 3.5)


def test_a_strength_by_its_results_and_its_line() -> None:
    # Against an equal of its line 30 of 40 won; the line holds it back a little.
    met = [(0.0, [(won(30.0, 40.0), 0.0)])]
    found = strength_of(0.0, met)
    assert 30.0 - 40.0 * expected(found) == pytest.approx(LINE_WEIGHT * found, abs=1e-6)
    assert 0.5 < found < math.log(3)
    # Whoever has won all is no further ahead than its line allows.
    assert strength_of(1.0, [(-9.0, [(won(16.0, 16.0), 0.0)])]) == pytest.approx(1.0, abs=0.01)
    assert strength_of(1.0, []) == 1.0


def test_the_best_known_neighbours_are_tied_each_population_for_itself() -> None:
    star = {rated(number): Link(1.0 + number, 0.0) for number in range(MAX_NEIGHBOURS + 4)}
    star |= {rated(number, "prey"): Link(9.0, 0.0) for number in range(3)}
    pairs = {(first, second) for first, second, _ in mesh(star)}
    chosen = [rated(number) for number in range(4, MAX_NEIGHBOURS + 4)]
    assert pairs == {
        *combinations(chosen, 2),
        *combinations([rated(number, "prey") for number in range(3)], 2),
    }
    # The others are as if they had not been met.
    few = {one: star[one] for one in star if one in chosen or one[0] == "prey"}
    assert list(mesh(star)) == list(mesh(few))
    alone = {rated(0): Link(1.0, 0.5)}
    assert list(mesh(alone)) == [], "one alone is tied to nobody"


def test_bots_are_tied_however_little_is_known_of_them() -> None:
    bots = [("player", Entrant(f"bot:{name}")) for name in ("random", "tactical")]
    star = {rated(number): Link(9.0, 0.0) for number in range(MAX_NEIGHBOURS + 4)}
    star |= dict.fromkeys(bots, Link(0.1 * MIN_WEIGHT, 12.0))
    found = {(first, second): link for first, second, link in mesh(star)}
    others = {one for pair in found for one in pair if one not in bots}
    assert len(others) == MAX_NEIGHBOURS
    assert all((other, bot) in found for bot in bots for other in others)
    # Sorted, so a bot comes after a name of digits: seen from the other one.
    assert found[rated(0), bots[0]].difference == pytest.approx(12.0)


def test_what_is_passed_on_for_ever_ends_before_it_is_nothing() -> None:
    # Each merge ties the ends of a chain by what the one before said, beside a strong neighbour.
    weak = Link(0.1, 0.5)
    for _ in range(20):
        star = {rated(0): weak, rated(1): weak, rated(2): Link(100.0, 0.0)}
        tied = {(first, second): link for first, second, link in mesh(star)}
        if (rated(0), rated(1)) not in tied:
            break
        weak = tied[rated(0), rated(1)]
        assert weak.weight >= MIN_WEIGHT
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
            seen = [(Counts.from_results(one).turned(), 0.0)]
            link = link_of(
                seen, point=points["x"] - points[one.first], pair_deviation=0.0, known=math.inf
            )
            assert link is not None
            star["player", Entrant(one.first)] = link
    tied = [
        Result(
            first=str(first[1]),
            second=str(second[1]),
            seats=(0, 0),
            wins=2.0 * link.weight,
            draws=0,
            losses=2.0 * link.weight,
            score_sum=link.counts().points,
            square_sum=link.counts().squares,
        )
        for first, second, link in mesh(star)
    ]
    others = [one for one in results if one.second != "x"]
    rest = model.fit(others, links=result_columns(tied), anchors=["a"])
    for place, name in enumerate(rest.entrants):
        if name == "a":
            continue
        tolerance = 0.1 * whole.deviations[at[name]] + 0.5
        assert rest.ratings[place] == pytest.approx(whole.ratings[at[name]], abs=tolerance)
        assert rest.deviations[place] == pytest.approx(whole.deviations[at[name]], rel=0.1)
    # Without the links nothing would be known of c and d.
    alone = model.fit([results[-1]], entrants=["c"], anchors=["a"])
    assert alone.deviations[list(alone.entrants).index("c")] > 3 * whole.deviations[at["c"]]
