"""Merges of players that are gone, by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from msgspec.structs import replace

from arena.types import (
    RANDOM_BOT,
    AssignmentId,
    Digest,
    Entrant,
    PolicyId,
    Seat,
)
from populations.league.league import League
from populations.league.merging import (
    MERGED,
    Link,
    Merge,
    apply_merge,
    known_of,
    link_of,
    link_row,
    merged_record,
    merges,
    strength_of,
)
from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.model import Fit
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairRow, RecordRow
from populations.records.rows import CheckpointRow, Deletion, EventRow, TallyRow
from populations.records.tables import table_of
from tests.populations.payoffs import met
from tests.populations.rows import make_checkpoint, make_tally, make_tally_row, tables_with


def test_sums_are_added_by_hand() -> None:
    generation, gone = Entrant("player/p000#1"), Entrant("0" * 64)
    sums = RecordRow(population="player", entrant=generation, matches=4, wins=1, draws=2, losses=1)
    record = RecordRow(
        population="player", entrant=gone, matches=3, wins=1, losses=2, score_sum=1.25
    )
    both = merged_record(sums, record)
    assert (both.entrant, both.matches) == (generation, 7)
    assert (both.wins, both.draws, both.losses) == (2, 2, 3)
    assert both.points == 2.0 + 1.25


SEATS = (
    Seat(name="player_0", agents=("player_0",), population="player", side="0"),
    Seat(name="player_1", agents=("player_1",), population="player", side="1"),
)


def checkpoint(name: str, parent: str | None) -> CheckpointRow:
    return make_checkpoint(name, generation=2, agent_steps=1, parent=parent)


def test_a_league_without_a_player_by_hand() -> None:
    league = League(tables_with(), seats=SEATS, half_life_matches=100.0)
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        league.tables.put(checkpoint(name, parent))
    sequence = 0
    for home, away, wins in (("b", "x", 6), ("x", "b", 2), ("b", "y", 3), ("a", "x", 5)):
        sequence += 1
        league.add_tally(two_sided(sequence, "evaluate", home, away, wins))
    league.add_tally(two_sided(sequence + 1, "train", "player/p000#2", "b", 4))
    league.add_tally(two_sided(sequence + 2, "train", "player/p000#2", "x", 4))
    assert league.nearest_evaluated("player", Digest("c")) == "b"
    before = dict(league.tables.records)
    merge = Merge(
        population="player",
        num_tallies=sequence,
        pair_deviation=0.0,
        into={Entrant("player/p000#2"): (Entrant("b"),)},
        forgotten=(),
        # b is known by its line alone; x and y by a fit, on whose scale the first seat is worth 40
        # Elo.
        points=told(
            {
                ("player", Entrant("b")): 20.0,
                ("player", Entrant("x")): -30.0,
                ("player", Entrant("y")): 60.0,
            }
        ),
        advantages=(0.0, 40.0, -40.0, 0.0),
    )
    changes = apply_merge(league, merge)
    kept = [row for row in changes if not isinstance(row, Deletion)]
    gone = [change.row for change in changes if isinstance(change, Deletion)]
    # Now that b is removed, a is the nearest evaluated ancestor of c.
    assert league.nearest_evaluated("player", Digest("c")) == "a"
    own, sums = (
        before["player", Entrant("b")],
        league.tables.records["player", Entrant("player/p000#2")],
    )
    assert (sums.matches, sums.wins, sums.losses) == (own.matches, own.wins, own.losses)
    assert sums.matches == 24
    # Of 8 matches in each seat it won 6 at home and 6 away against x, 3 at home against y.
    unit = ELO_PER_UNIT
    of_x = [(won(6), 40.0 / unit), (won(6), -40.0 / unit)]
    of_y = [(won(3), 40.0 / unit)]
    at = strength_of(20.0 / unit, [(-30.0 / unit, of_x), (60.0 / unit, of_y)])
    known = known_of(at, [(-30.0 / unit, of_x), (60.0 / unit, of_y)])
    x = link_of(of_x, point=at + 30.0 / unit, pair_deviation=0.0, known=known)
    y = link_of(of_y, point=at - 60.0 / unit, pair_deviation=0.0, known=known)
    assert x is not None
    assert y is not None
    tie = Link(x.weight * y.weight / (x.weight + y.weight), y.difference - x.difference)
    (link,) = (row for row in kept if isinstance(row, PairRow))
    assert (link.kind, link.first, link.second) == ("merged", "x", "y")
    assert (link.wins, link.losses) == pytest.approx((2.0 * tie.weight, 2.0 * tie.weight))
    half = 2.0 * tie.weight
    assert link.score_sum == pytest.approx(half + tie.weight * tie.difference)
    assert {table_of(row).key_of(row) for row in gone} == {
        ("player", "b"),
        ("evaluate", "b", "x", 0, 1),
        ("evaluate", "x", "b", 0, 1),
        ("evaluate", "b", "y", 0, 1),
        ("train", "b", "player/p000#2", 1, 0),
    }
    # The other records are unchanged.
    assert league.tables.records["player", Entrant("x")] == before["player", Entrant("x")]
    assert list(met(league.payoff, Entrant("player/p000#2"))) == [("x", 4.0, 4.0)]
    with pytest.raises(ValueError, match="b of player has no results"):
        apply_merge(league, merge)


def test_what_a_population_knows_of_a_player_takes_no_bias_away_in_another() -> None:
    # Each population is linked as if the player were another one for it. When results within the
    # predators were included, prey ended hundreds of Elo too far from their anchor.
    seats = (
        Seat(name="hunter", agents=("hunter",), population="predator", side="0"),
        Seat(name="hunted", agents=("hunted",), population="prey", side="1"),
    )
    league = League(tables_with(), seats=seats, half_life_matches=100.0)
    for name in ("a", "b", "c"):
        league.tables.put(replace(checkpoint(name, None), policy=PolicyId("predator/p000")))
    league.add_tally(two_sided(1, "evaluate", "b", "x", 6))
    league.add_tally(two_sided(2, "evaluate", "b", "y", 3))
    tied = Link(50.0, 0.1)
    league.put(link_row(tied, Entrant("b"), Entrant("c"), seat=0))
    b, c = ("predator", Entrant("b")), ("predator", Entrant("c"))
    x, y = ("prey", Entrant("x")), ("prey", Entrant("y"))
    unit = ELO_PER_UNIT
    points = {b: 20.0, c: 10.0, x: -30.0, y: 60.0}
    merge = Merge(
        population="predator",
        num_tallies=2,
        pair_deviation=0.0,
        into={Entrant("predator/p000#2"): (Entrant("b"),)},
        forgotten=(),
        points=told(points),
        advantages=(0.0, 40.0, -40.0, 0.0),
    )
    kept = [row for row in apply_merge(league, merge) if not isinstance(row, Deletion)]
    met = [(points[other] / unit, [(won(n), 40.0 / unit)]) for other, n in ((x, 6), (y, 3))]
    at = strength_of(20.0 / unit, met, [(10.0 / unit, tied)])
    known = known_of(at, met)
    first, second = (
        link_of(seen, point=at - other, pair_deviation=0.0, known=known) for other, seen in met
    )
    assert first is not None
    assert second is not None
    (row,) = (row for row in kept if isinstance(row, PairRow))
    assert (row.kind, row.first, row.second) == ("merged", "x", "y")
    weight = first.weight * second.weight / (first.weight + second.weight)
    assert row.wins == pytest.approx(2.0 * weight)
    difference = second.difference - first.difference
    assert row.score_sum == pytest.approx(2.0 * weight + weight * difference)


def won(number: int) -> Counts:
    """Eight matches, some of them won and the others lost."""
    return Counts(float(number), 0.0, 8.0 - number, points=float(number), squares=float(number))


def two_sided(
    sequence: int, kind: Literal["train", "evaluate"], home: str, away: str, wins: int
) -> TallyRow:
    """Eight matches, of which the first player won some and lost the others."""
    losses = 8 - wins
    tally = make_tally(
        (home, away),
        (0, 1, wins, 0, losses),
        matches=8,
        return_sum=(float(wins - losses), float(losses - wins)),
        return_sum_of_squares=(8.0, 8.0),
        length_sum=80,
    )
    return TallyRow(sequence=sequence, assignment_id=AssignmentId(1), kind=kind, tally=tally)


def told(points: dict[Rated, float]) -> tuple[tuple[str, Entrant, float], ...]:
    return tuple((*rated, point) for rated, point in points.items())


NOTHING = Merge(
    population="player",
    num_tallies=7,
    pair_deviation=0.0,
    into={},
    forgotten=(),
    points=(),
    advantages=(),
)


def event(**data: object) -> EventRow:
    return EventRow(sequence=3, time="", kind=MERGED, subject="player", data=data)  # type: ignore[arg-type]


def test_a_merge_is_what_its_event_says() -> None:
    first, second, third = (Entrant(letter * 64) for letter in "abc")
    merge = Merge(
        population="player",
        num_tallies=7,
        pair_deviation=1.5,
        into={Entrant("player/p000#1"): (first, second)},
        forgotten=(third,),
        points=(("player", first, 12.5), ("prey", Entrant("bot:random"), 0.0)),
        advantages=(0.0, 3.5, -3.5, 0.0),
    )
    other = EventRow(sequence=1, time="", kind="exploited", subject="player", data={})
    assert list(merges([other, event(**merge.data())])) == [merge]
    assert merge.gone == {first: "player/p000#1", second: "player/p000#1"}


@pytest.mark.parametrize(
    "key", ["tallies", "pair_deviation", "into", "forgotten", "points", "advantages"]
)
def test_damaged_data_are_no_merge(key: str) -> None:
    data = NOTHING.data()
    without = {name: value for name, value in data.items() if name != key}
    for damaged in ({**data, key: None}, without):
        with pytest.raises(ValueError, match="event 3: its data are no merge"):
            list(merges([event(**damaged)]))


LADDER_SEATS = tuple(
    Seat(name=name, agents=(name,), population="player", side=name) for name in ("one", "two")
)
GENERATION = Entrant("player/p000#0")
ANCHOR = ("player", Entrant(RANDOM_BOT))

POOL = 12
"""Players that stay."""

EVERY = 5
"""Players between two fits."""


@dataclass(frozen=True, kw_only=True)
class Regime:
    """Steps of a ladder, and what is played.

    Attributes:
        rungs: Players.
        step: Elo from one player to the next.
        rivals: Players that each meets when it comes.
        matches: Matches against each of them.
    """

    rungs: int
    step: float
    rivals: int
    matches: int


class Ladder:
    """A league whose skills are known."""

    def __init__(self, regime: Regime, seed: int) -> None:
        self.regime = regime
        self.rng = np.random.default_rng(seed)
        self.league = League(tables_with(), seats=LADDER_SEATS, half_life_matches=100.0)
        self.skills: dict[Rated, float] = {ANCHOR: 0.0}
        self.pool = [ANCHOR]
        self.num_tallies = 0

    def climb(self) -> Rated:
        """Add a player that is better than all before, and let it meet some of them."""
        number = len(self.skills)
        name = f"{number:03d}"
        new = ("player", Entrant(name))
        self.skills[new] = self.regime.step * number + self.rng.normal(0.0, 20.0)
        self.league.tables.put(make_checkpoint(name, agent_steps=number, learner_updates=number))
        rivals = self.rng.permutation(len(self.pool))[: self.regime.rivals]
        for rival in rivals:
            self.play(new, self.pool[rival])
        self.pool.append(new)
        return new

    def play(self, home: Rated, away: Rated) -> None:
        """Let two play some matches, as often in each seat."""
        share = 1.0 / (1.0 + 10.0 ** ((self.skills[away] - self.skills[home]) / 400.0))
        each = self.regime.matches // 2
        for first, second, p in ((home, away, share), (away, home, 1.0 - share)):
            wins = int(self.rng.binomial(each, p))
            losses = each - wins
            tally = make_tally((first[1], second[1]), (0, 1, wins, 0, losses), matches=each)
            self.num_tallies += 1
            self.league.add_tally(make_tally_row(tally, self.num_tallies))

    def fit(self) -> Fit[Rated]:
        """Rate those that stay."""
        league = self.league
        trained = self.pool[1:]
        return BradleyTerry(num_rounds=0, reduces_bias=True).fit(
            league.results.snapshot().select(self.pool),
            links=league.links.snapshot().select(self.pool),
            entrants=self.pool,
            parents=dict(zip(trained[1:], trained, strict=False)),
            anchors=[ANCHOR],
        )

    def merge(self, fit: Fit[Rated]) -> None:
        """Merge all but the newest."""
        gone, self.pool = self.pool[1:-POOL], [ANCHOR, *self.pool[-POOL:]]
        points = dict(zip(fit.entrants, fit.ratings.tolist(), strict=True))
        apply_merge(
            self.league,
            Merge(
                population="player",
                num_tallies=self.num_tallies,
                pair_deviation=0.0,
                into={GENERATION: tuple(entrant for _, entrant in gone)},
                forgotten=(),
                points=told(points),
                advantages=(),
            ),
        )


def top_of_ladder(regime: Regime, seed: int) -> tuple[float, float]:
    """Climb a ladder, and return error and deviation of the newest player's rating, in Elo."""
    ladder = Ladder(regime, seed)
    for number in range(1, regime.rungs + 1):
        newest = ladder.climb()
        if number % EVERY == 0:
            fit = ladder.fit()
            if len(ladder.pool) > POOL + 1:
                ladder.merge(fit)
    fit = ladder.fit()
    at = fit.entrants.index(newest)
    return float(fit.ratings[at] - ladder.skills[newest]), float(fit.deviations[at])


@pytest.mark.slow
def test_a_ladder_of_merges() -> None:
    regime = Regime(rungs=200, step=25.0, rivals=6, matches=16)
    found = np.array([top_of_ladder(regime, seed) for seed in range(8)])
    errors, deviations = found.T
    # 5000 Elo by 187 merges have an error of a few hundredths, as the intervals say.
    assert abs(errors.mean()) < 100.0
    assert errors.std() < 120.0
    assert deviations.mean() == pytest.approx(100.0, rel=0.3)
    assert (np.abs(errors) < 1.96 * deviations).sum() >= 7


@pytest.mark.slow
def test_a_ladder_of_few_matches_is_not_stretched() -> None:
    # Maximum likelihood would rate it a twelfth too high, by 250 Elo.
    regime = Regime(rungs=60, step=50.0, rivals=3, matches=4)
    errors, deviations = np.array([top_of_ladder(regime, seed) for seed in range(30)]).T
    assert abs(errors.mean()) < 120.0
    assert (np.abs(errors) < 1.96 * deviations).sum() >= 27
