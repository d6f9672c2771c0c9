from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import optimize

from arena.checkpoints.manifest import Manifest
from arena.types import RANDOM_BOT, AssignmentId, Entrant, PairScore, Seat, Tally
from arena.wire.messages import Evaluate, Finished, Train
from populations.audit.tally_checks import differences, refold
from populations.league.league import League
from populations.league.merging import Link, link_row, meetings, settled_points
from populations.league.standings import champion, standings
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Counts, Rated
from populations.records.rows import AssignmentRow, TallyRow
from tests.populations.controller.simulated import DUEL, SimpleLearner, World, make_world
from tests.populations.payoffs import record
from tests.populations.rows import make_tally, make_tally_row, tables_with

BOT, WEIGHTS = Entrant("bot:random"), Entrant("a" * 64)
SEATS = tuple(
    Seat(name=name, side=name, population=population, agents=(name,))
    for name, population in (("hunter", "predator"), ("runner", "prey"))
)


def row(
    kind: Literal["train", "evaluate"], first: Entrant, second: Entrant, *outcome: int
) -> TallyRow:
    wins, draws, losses = outcome
    return make_tally_row(
        make_tally((first, second), (0, 1, wins, draws, losses), matches=sum(outcome)), kind=kind
    )


def fold(rows: list[TallyRow], seats: tuple[Seat, ...]) -> League:
    league = League(tables_with(), seats=seats, half_life_matches=1e12)
    for sequence, tally in enumerate(rows, start=1):
        league.tables.put(replace(tally, sequence=sequence))
        league.add_tally(replace(tally, sequence=sequence))
    return league


def counts(wins: float, draws: float, losses: float) -> Counts:
    """Results whose scores follow from wins and draws."""
    return Counts(wins, draws, losses, points=wins + draws / 2, squares=wins + draws / 4)


def test_only_evaluation_counts_and_each_population_has_its_own_scale() -> None:
    rows = [
        row("train", BOT, WEIGHTS, 100, 0, 0),
        row("evaluate", BOT, WEIGHTS, 1, 2, 3),
        row("evaluate", BOT, WEIGHTS, 10, 20, 30),
        row("evaluate", BOT, BOT, 7, 0, 1),
    ]
    league = fold(rows, SEATS)
    predator, prey = ("predator", BOT), ("prey", BOT)
    assert league.results == {
        (predator, ("prey", WEIGHTS), (0, 1)): counts(11, 22, 33),
        (predator, prey, (0, 1)): counts(7, 0, 1),
    }
    assert {rated: record.matches for rated, record in league.tables.records.items()} == {
        predator: 74,
        prey: 8,
        ("prey", WEIGHTS): 66,
    }
    assert record(league.payoff, BOT, WEIGHTS).wins == 100
    assert league.tables.last_evaluation_sequence == 4


def test_one_player_against_itself_is_no_result() -> None:
    seats = tuple(Seat(name=name, side=name, population="player", agents=(name,)) for name in "xy")
    assert fold([row("evaluate", WEIGHTS, WEIGHTS, 3, 0, 1)], seats).results == {}


def test_in_cooperation_no_seat_is_better_than_the_other() -> None:
    seats = tuple(
        Seat(name=name, side="team", population="agent", agents=("agent_0",))
        for name in ("home", "away")
    )
    league = fold([row("evaluate", BOT, WEIGHTS, 3, 0, 1)], seats)
    assert league.results == {(("agent", BOT), ("agent", WEIGHTS), (0, 0)): counts(3, 0, 1)}


def test_where_games_repeat_each_counts_once() -> None:
    """By hand: a game of 7 equal ones counts as one, of 5 with 2 different ones as 2."""
    seats = tuple(Seat(name=name, side=name, population="player", agents=(name,)) for name in "xy")
    other, script = Entrant("b" * 64), Entrant("bot:script:Bot")

    def played(tally: TallyRow, distinct: int | None) -> TallyRow:
        return replace(tally, tally=replace(tally.tally, distinct=distinct))

    rows = [
        played(row("evaluate", WEIGHTS, other, 7, 0, 0), 1),
        # The same game is repeated with another number of matches.
        played(row("evaluate", WEIGHTS, other, 4, 0, 0), 1),
        # Exchanged seats make another game.
        played(row("evaluate", other, WEIGHTS, 0, 5, 0), 1),
        # A bot that draws at random has more distinct games, and random play has any number.
        played(row("evaluate", WEIGHTS, script, 5, 0, 5), 4),
        played(row("evaluate", WEIGHTS, BOT, 3, 0, 1), 2),
        played(row("evaluate", WEIGHTS, BOT, 4, 0, 0), 1),
        # The number of distinct games was not counted.
        played(row("evaluate", other, script, 3, 0, 0), None),
    ]
    sampled = fold(rows, seats)
    league = League(tables_with(), seats=seats, half_life_matches=1e12, repeats_games=True)
    for sequence, tally in enumerate(rows, start=1):
        league.add_tally(replace(tally, sequence=sequence))
    me, you = ("player", WEIGHTS), ("player", other)
    them, bot = ("player", script), ("player", BOT)
    assert league.results == {
        (me, you, (0, 1)): counts(1, 0, 0),
        (you, me, (0, 1)): counts(0, 1, 0),
        (me, them, (0, 1)): counts(2, 0, 2),
        (me, bot, (0, 1)): counts(7, 0, 1),
        (you, them, (0, 1)): counts(3, 0, 0),
    }
    assert sampled.results[me, you, (0, 1)] == counts(11, 0, 0)
    # Records count all matches that were played.
    assert league.tables.records == sampled.tables.records
    # A check folds the same rows from the same tallies.
    tallies = [replace(tally, sequence=sequence) for sequence, tally in enumerate(rows, start=1)]
    folded = refold(tallies, seats=seats, half_life_matches=1e12, repeats_games=True)
    assert {row.key: Counts.from_results(row) for row in folded.pairs.values()} == {
        ("evaluate", first, second, *both): counted
        for ((_, first), (_, second), both), counted in league.results.items()
    }


def test_of_three_sides_a_comparison_counts_half_a_match() -> None:
    seats = tuple(Seat(name=name, side=name, population="player", agents=(name,)) for name in "xyz")
    # The weights at x play the bot at y and z: 6 matches with two comparisons each.
    tally = make_tally(
        (WEIGHTS, BOT, BOT),
        (0, 1, 4, 0, 2),
        (0, 2, 2, 2, 2),
        (1, 2, 3, 0, 3),
        matches=6,
        return_sum=(6.0, 0.0, 0.0),
        return_sum_of_squares=(6.0, 0.0, 0.0),
    )
    kinds: tuple[Literal["train", "evaluate"], ...] = ("evaluate", "train")
    for kind in kinds:
        league = League(tables_with(), seats=seats, half_life_matches=1e12)
        league.add_tally(replace(row(kind, BOT, BOT, 1, 0, 0), tally=tally))
        if kind == "evaluate":
            me, bot = ("player", WEIGHTS), ("player", BOT)
            assert league.results == {
                (me, bot, (0, 1)): counts(2.0, 0.0, 1.0),
                (me, bot, (0, 2)): counts(1.0, 1.0, 1.0),
            }
            # The score is 7 of the 12 points of its comparisons; divided by its 6 matches it would
            # be 1.17.
            assert league.record("player", WEIGHTS).score == 7 / 12
            met = league.evaluated_against(WEIGHTS, BOT)
            assert met is not None
            assert met[0] == 7 / 12
        else:
            found = record(league.payoff, WEIGHTS, BOT)
            assert (found.wins, found.draws, found.losses) == (3.0, 1.0, 2.0)
            assert (found.matches, found.return_sum) == (6.0, 6.0)


def test_of_many_sides_two_players_have_one_result_over_all_seats() -> None:
    seats = tuple(
        Seat(name=f"s{i}", side=f"s{i}", population="player", agents=(f"a{i}",)) for i in range(22)
    )

    def alone(seat: int, *, wins: int, losses: int) -> TallyRow:
        """Weights in one seat against the bot in 21 others, in 2 matches."""
        entrants = [BOT] * 22
        entrants[seat] = WEIGHTS
        # Pairs are named by their lowest seats, so seen from the bot except for the first seat.
        other = 1 if seat == 0 else 0
        first, second = min(seat, other), max(seat, other)
        wins, losses = (wins, losses) if seat == 0 else (losses, wins)
        tally = make_tally(
            tuple(entrants),
            (first, second, wins, 0, losses),
            matches=2,
            return_sum=tuple(8.0 if index == seat else -1.0 for index in range(22)),
            return_sum_of_squares=(64.0,) * 22,
            length_sum=10,
        )
        return replace(row("evaluate", BOT, BOT, 1, 0, 0), tally=tally)

    rows = [alone(0, wins=42, losses=0), alone(7, wins=21, losses=21)]
    league = fold(rows, seats)
    me, bot = ("player", WEIGHTS), ("player", BOT)
    # One row, whoever sits where, has (42 + 21) / 21 wins of 4 matches, and 21 / 21 losses.
    assert league.results == {(me, bot, (0, 0)): counts(3.0, 0.0, 1.0)}
    # The record has 3 points and returns of 16 in 4 matches.
    assert league.evaluated_against(WEIGHTS, BOT) == (0.75, 4.0)
    assert league.evaluated_against(BOT, WEIGHTS) == (0.25, -0.5)
    assert league.num_met(me, bot) == 4.0
    total = league.record("player", WEIGHTS)
    assert (total.matches, total.wins, total.losses, total.return_sum) == (4, 63, 21, 16.0)
    # A match of 21 seats counts once, too, or a policy would soon have its minimum of matches.
    assert league.record("player", BOT).matches == 4
    assert league.record("player", BOT).return_sum == -2.0
    # Matchmaking gets the same from training.
    train = replace(rows[1], kind="train")
    learning = League(tables_with(), seats=seats, half_life_matches=1e12)
    learning.add_tally(train)
    found = record(learning.payoff, WEIGHTS, BOT)
    assert (found.wins, found.losses, found.return_sum) == (1.0, 1.0, 8.0)


def test_of_many_sides_a_match_is_one_result_however_seats_are_shared() -> None:
    seats = tuple(
        Seat(name=f"s{i}", side=f"s{i}", population="pq"[i % 2], agents=(f"a{i}",))
        for i in range(12)
    )
    tally = make_tally(
        (WEIGHTS, BOT) * 6,
        # Each match has 36 pairs of seats.
        (0, 1, 120, 20, 40),
        matches=5,
        return_sum=(10.0, 5.0) * 6,
        return_sum_of_squares=(64.0,) * 12,
        length_sum=10,
    )
    league = fold([replace(row("evaluate", BOT, BOT, 1, 0, 0), tally=tally)], seats)
    (outcome,) = league.results.values()
    assert outcome == pytest.approx(counts(120 / 36, 20 / 36, 40 / 36))
    assert list(league.results) == [(("p", WEIGHTS), ("q", BOT), (0, 1))]
    # Each player has the mean return of its seats.
    (pair,) = league.pairs_of(("p", WEIGHTS))
    assert (pair.first_return_sum, pair.second_return_sum) == pytest.approx((10.0, 5.0))


def test_a_member_of_a_team_has_one_result_of_a_match() -> None:
    seats = tuple(
        Seat(name=f"{side}/{name}", side=side, population=name, agents=(f"{name}_{side}",))
        for side in "xy"
        for name in ("p", "q")
    )
    entrants = tuple(Entrant(letter * 64) for letter in "bcde")
    pairs = [(0, 2), (0, 3), (1, 2), (1, 3)]
    tally = make_tally(entrants, *((first, second, 3, 2, 1) for first, second in pairs))
    league = fold([replace(row("evaluate", BOT, BOT, 1, 0, 0), tally=tally)], seats)
    assert all(outcome == counts(1.5, 1.0, 0.5) for outcome in league.results.values())
    for seat, entrant in zip(seats, entrants, strict=True):
        own = [
            outcome.matches
            for key, outcome in league.results.items()
            if (seat.population, entrant) in key[:2]
        ]
        assert sum(own) == 6.0


def test_a_team_against_itself_is_no_result_but_against_another_it_is() -> None:
    seats = tuple(
        Seat(name=f"{team}/{name}", side="all", population=name, agents=(name,))
        for team in ("home", "away")
        for name in ("p", "q")
    )
    one, two, other = (Entrant(letter * 64) for letter in "bcd")
    for away, expected in (((one, two), 0), ((one, other), 1), ((BOT, BOT), 2)):
        tally = make_tally((one, two, *away), (0, 2, 3, 1, 1), (1, 3, 3, 1, 1))
        league = fold([replace(row("evaluate", BOT, BOT, 1, 0, 0), tally=tally)], seats)
        assert len(league.results) == expected
        assert bool(league.tables.records) == (expected > 0)
        assert all(outcome == counts(3.0, 1.0, 1.0) for outcome in league.results.values())


SEATS_OF_MEETINGS = tuple(
    Seat(name=name, agents=(name,), population="player", side=name) for name in ("one", "two")
)
ADVANTAGE = 0.2
"""What the first seat is worth, in natural units."""


def rated(name: str) -> Rated:
    return "player", Entrant(name)


def league_of(*played: tuple[str, str, int, int]) -> League:
    """A league in which the first of two has won some matches in the first seat, and lost some."""
    league = League(tables_with(), seats=SEATS_OF_MEETINGS, half_life_matches=100.0)
    for sequence, (first, second, wins, losses) in enumerate(played, start=1):
        tally = make_tally((first, second), (0, 1, wins, 0, losses))
        league.add_tally(
            TallyRow(sequence=sequence, assignment_id=AssignmentId(1), kind="evaluate", tally=tally)
        )
    return league


def advantage(seats: tuple[int, int]) -> float:
    return {(0, 1): ADVANTAGE, (1, 0): -ADVANTAGE}[seats]


def test_meetings_are_as_the_player_sees_them() -> None:
    league = league_of(("a", "b", 3, 1), ("b", "a", 2, 6), ("c", "a", 1, 0))
    league.put(link_row(Link(2.0, 0.5), Entrant("a"), Entrant("d"), seat=0))
    met = meetings(league, rated("a"), advantage=advantage)
    assert set(met.played) == {rated("b"), rated("c")}
    seen = sorted((counts.wins, counts.losses, worth) for counts, worth in met.played[rated("b")])
    assert seen == [(3.0, 1.0, ADVANTAGE), (6.0, 2.0, -ADVANTAGE)]
    assert list(met.links) == [rated("d")]
    assert met.links[rated("d")][0] == pytest.approx((2.0, 0.5))
    (back,) = meetings(league, rated("d"), advantage=advantage).links[rated("a")]
    assert back == pytest.approx((2.0, -0.5))
    played, tied = met.by({rated("b"): 1.0, rated("c"): 2.0, rated("d"): 3.0}.__getitem__)
    assert sorted(point for point, _ in played) == [1.0, 2.0]
    assert [point for point, _ in tied] == [3.0]


def test_unrated_players_are_settled_at_the_mode_of_all_of_them() -> None:
    # u, v and w came after the last fit, all 500 ahead of their line; u is removed.
    league = league_of(
        ("u", "v", 9, 7),
        ("v", "w", 10, 6),
        ("u", "old", 15, 1),
        ("old", "w", 2, 14),
        ("u", "bot:random", 16, 0),
    )
    league.put(link_row(Link(1.5, 2.0), Entrant("old"), Entrant("v"), seat=0))
    fitted = {"old": 100.0, RANDOM_BOT: 0.0}
    line, variance = 80.0, 250.0**2
    found = settled_points(
        league,
        [rated("u")],
        estimate=lambda one: (fitted.get(one[1], line), variance),
        is_rated=lambda one: one[1] in fitted,
        advantage=advantage,
    )
    # Nothing is said about w, which u has not played, but w determines v.
    assert next(iter(found)) == rated("u")
    assert set(found) == {rated("u"), rated("v"), rated("old"), rated(RANDOM_BOT)}
    assert found[rated("old")] == pytest.approx(100.0)

    def against(point: float, other: float, wins: int, losses: int) -> float:
        ahead = point - other
        return float(wins * np.logaddexp(0.0, -ahead) + losses * np.logaddexp(0.0, ahead))

    def loss(points: np.ndarray) -> float:  # minus log posterior
        u, v = points
        # w has its line's strength, because u has not played it.
        w, old = line / ELO_PER_UNIT, 100.0 / ELO_PER_UNIT
        prior = 0.5 * ELO_PER_UNIT**2 / variance * ((u - w) ** 2 + (v - w) ** 2)
        return float(
            prior
            + against(u + ADVANTAGE, v, 9, 7)
            + against(v + ADVANTAGE, w, 10, 6)
            + against(u + ADVANTAGE, old, 15, 1)
            + against(u + ADVANTAGE, 0.0, 16, 0)
            + 0.5 * 1.5 * (v - old + 2.0) ** 2
        )

    mode = optimize.minimize(loss, np.zeros(2), tol=1e-10).x * ELO_PER_UNIT
    assert [found[rated("u")], found[rated("v")]] == pytest.approx(mode.tolist(), abs=0.5)
    assert found[rated("u")] > 200.0


HUSTLER = Entrant("bot:scripted:Hustler")
SCALE = 10.0
LITTLE, MUCH = 0.5 + 1.0 / (2 * SCALE), 0.5 + 4.0 / (2 * SCALE)


@dataclass(slots=True, kw_only=True)
class StakesLearner(SimpleLearner):
    """Players win and lose 1; the hustler wins 4 and loses 1.

    It wins 4 of 10 games of a policy, so 1.0 a game, and half of those of bot:random. A policy
    takes less from bot:random than the hustler does, whatever its skill.
    """

    has_margins: bool

    def carry_out(self, message: Train | Evaluate) -> tuple[Finished, dict[str, Manifest]]:
        finished, manifests = SimpleLearner.carry_out(self, message)
        rng = np.random.default_rng((message.seed, 1))
        tallies = tuple(self.staked(tally, rng) for tally in finished.tallies)
        return replace(finished, tallies=tallies), manifests

    def staked(self, tally: Tally, rng: np.random.Generator) -> Tally:
        """The same matches, with the stakes."""
        (pair,) = tally.pairs
        wins, won, lost = pair.wins, LITTLE, 1.0 - LITTLE
        if HUSTLER in tally.entrants and tally.entrants[0] != tally.entrants[1]:
            rate = 0.5 if "bot:random" in tally.entrants else 0.4
            wins = int(rng.binomial(tally.matches, rate))
            won = MUCH
            if tally.entrants[1] == HUSTLER:
                wins, won, lost = tally.matches - wins, LITTLE, 1.0 - MUCH
        losses = tally.matches - wins
        staked = PairScore(first=0, second=1, wins=wins, draws=0, losses=losses)
        if self.has_margins:
            staked = replace(
                staked,
                score_sum=wins * won + losses * lost,
                square_sum=wins * won**2 + losses * lost**2,
            )
        return replace(tally, pairs=(staked,))


def played(*, has_margins: bool) -> World:
    """A league of two policies and two bots, trained and evaluated to its end."""
    outcome = {"margin": SCALE} if has_margins else "return"
    world = make_world(
        {
            **DUEL,
            "environment": {"id": "tests.duel:env", "num_envs": 8, "outcome": outcome},
            "populations": {"player": {"size": 2}},
            "stop": {"agent_steps_per_policy": 2000},
            "evaluation": {"share": 0.5, "bots": ["bot:random", HUSTLER]},
        }
    )
    assert isinstance(world.learner, SimpleLearner)
    known = {
        field.name: getattr(world.learner, field.name)
        for field in fields(SimpleLearner)
        if field.init
    }
    world.learner = StakesLearner(has_margins=has_margins, **known)
    world.join()
    world.run()
    return world


@pytest.mark.parametrize("has_margins", [True, False])
def test_who_wins_seldom_but_much_leads_where_margins_count(has_margins: bool) -> None:
    world = played(has_margins=has_margins)
    tables, league = world.state.tables, world.state.league
    failed = [
        row for row in world.committed if isinstance(row, AssignmentRow) and row.status == "failed"
    ]
    assert failed == []
    lines = standings(league)["player"]
    best = champion(lines)
    (hustler,) = (line for line in lines if line.player == str(HUSTLER))
    assert best is not None
    assert best.rating is not None
    assert hustler.rating is not None
    # It loses more games than it wins in every scoring.
    assert hustler.wins < hustler.losses
    assert (hustler.rating > best.rating) == has_margins
    record = league.record("player", HUSTLER)
    assert record.matches > 100
    # 0.4 x 0.7 + 0.6 x 0.45 = 0.55, and a little more against bot:random.
    expected = 0.555 if has_margins else 0.42
    assert record.points / record.matches == pytest.approx(expected, abs=0.04)
    # Standings show the score of the rating, even if it is not of wins and draws.
    assert hustler.score == record.points / record.matches
    tallies = [row for row in world.committed if isinstance(row, TallyRow)]
    half_life = world.state.settings.config.payoffs.half_life_matches
    folded = refold(tallies, seats=world.state.settings.setup.seats, half_life_matches=half_life)
    assert list(differences(tables, folded)) == []
    assert all((row.score_sum is not None) == has_margins for row in tables.pairs.values())
