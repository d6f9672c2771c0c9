"""Nash mixtures of leagues that are made by hand, and of random ones by the definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.types import Digest, Entrant, PlayerId, Seat
from populations.league.mixture import (
    MAX_MEMBERS,
    MIN_PROBABILITY,
    Mixture,
    nash_mixtures,
)
from populations.league.standings import Standing
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
    # The dominated one may even have the highest rating, and bots have no place.
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
    # 40 rocks would have less than 1/100 each. What is dropped goes to the other rocks.
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
    # Nothing but rare members was dropped.
    assert 0.45 <= mixture.worst_score <= 0.5 + 1e-9


def test_two_populations_have_a_mixture_each() -> None:
    # Matching pennies: hunter h0 catches prey p0, h1 catches p1. h2 never catches anybody.
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
    # All results: hunters win 3 of 4. So they are expected to where nobody met, though ratings of
    # both populations are equal; the pure strategies that follow show it.
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
