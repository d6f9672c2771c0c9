"""What players that are gone say of others: Gaussian elimination, by hand and by fits."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.types import (
    AssignmentId,
    Digest,
    Entrant,
    PairScore,
    PolicyId,
    Seat,
    Tally,
)
from populations.league.league import League
from populations.league.merging import (
    MAX_DIFFERENCE,
    MAX_NEIGHBOURS,
    MERGED,
    MIN_WEIGHT,
    Link,
    Merge,
    apply_merge,
    link_of_mesh,
    link_of_results,
    merged_record,
    merges,
    mesh,
    together,
)
from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.model import Result
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairRow, RecordRow
from populations.records.rows import CheckpointRow, EventRow, TallyRow


def rated(number: int, population: str = "player") -> Rated:
    return population, Entrant(f"{number:02d}")


LINKS = st.lists(
    st.builds(Link, st.floats(1.0, 100.0), st.floats(-2.0, 2.0)), min_size=2, max_size=8
)


@given(links=LINKS, data=st.data())
def test_a_mesh_is_the_star_without_its_centre(links: list[Link], data: st.DataObject) -> None:
    star = {rated(number): link for number, link in enumerate(links)}
    found = list(mesh(star))
    assert len(found) == math.comb(len(links), 2)

    def of_star(strengths: list[float]) -> float:
        """Least sum of w (x - y - d)^2 over the strength x of the player that goes."""
        weights = np.array([link.weight for link in links])
        sums = np.array([link.difference for link in links]) + strengths
        centre = (weights * sums).sum() / weights.sum()
        return float((weights * (centre - sums) ** 2).sum())

    def of_mesh(strengths: list[float]) -> float:
        total = 0.0
        for first, second, won, lost in found:
            share, n = won / (won + lost), won + lost
            weight, ahead = n * share * (1.0 - share), math.log(won / lost)
            difference = strengths[int(first[1])] - strengths[int(second[1])]
            total += weight * (difference - ahead) ** 2
        return total

    strengths = st.lists(st.floats(-3, 3), min_size=len(links), max_size=len(links))
    ours, theirs = data.draw(strengths), data.draw(strengths)
    # Up to a constant, which says nothing of strengths.
    change = of_star(ours) - of_star(theirs)
    assert of_mesh(ours) - of_mesh(theirs) == pytest.approx(change, rel=1e-6, abs=1e-6)


def test_the_best_known_neighbours_are_tied_each_population_for_itself() -> None:
    star = {rated(number): Link(1.0 + number, 0.0) for number in range(MAX_NEIGHBOURS + 4)}
    star |= {rated(number, "prey"): Link(9.0, 0.0) for number in range(3)}
    pairs = {(first, second) for first, second, _, _ in mesh(star)}
    chosen = [rated(number) for number in range(4, MAX_NEIGHBOURS + 4)]
    assert pairs == {
        *combinations(chosen, 2),
        *combinations([rated(number, "prey") for number in range(3)], 2),
    }
    # The others are as if they had not been met.
    few = {one: star[one] for one in star if one in chosen or one[0] == "prey"}
    assert list(mesh(star)) == list(mesh(few))
    assert list(mesh({rated(0): Link(1.0, 0.5)})) == [], "one alone is tied to nobody"


def test_what_is_beyond_all_measure_is_bounded() -> None:
    star = {rated(0): Link(1.0, 100.0), rated(1): Link(1.0, -100.0)}
    ((_, _, won, lost),) = mesh(star)
    assert math.log(won / lost) == pytest.approx(-MAX_DIFFERENCE)


def test_what_is_passed_on_for_ever_ends_before_it_is_nothing() -> None:
    # Each merge ties the ends of a chain by what the one before said, beside a strong neighbour.
    weak = Link(0.1, 0.5)
    for _ in range(20):
        star = {rated(0): weak, rated(1): weak, rated(2): Link(100.0, 0.0)}
        tied = {(first, second): (won, lost) for first, second, won, lost in mesh(star)}
        assert all(math.isfinite(won / lost) for won, lost in tied.values())
        if (rated(0), rated(1)) not in tied:
            break
        won, lost = tied[rated(0), rated(1)]
        weak = link_of_mesh(Counts(won, 0.0, lost, points=won, squares=won))
        assert weak.weight >= MIN_WEIGHT * (1.0 - 1e-9)
    else:
        raise AssertionError("it is passed on for ever")


def test_links_by_hand() -> None:
    # 7.5 of 12 with half a match on both sides: 8 to 5, p = 8/13, 12 p (1 - p).
    counts = Counts(6.0, 3.0, 3.0, points=7.5, squares=6.75)
    link = link_of_results(counts, pair_deviation=0.0)
    assert link.difference == pytest.approx(math.log(8 / 5))
    assert link.weight == pytest.approx(12 * 8 * 5 / 13**2)
    # A pair's own deviation of one natural unit is added to the variance.
    wide = link_of_results(counts, pair_deviation=ELO_PER_UNIT)
    assert 1 / wide.weight == pytest.approx(1 / link.weight + 1.0)
    # 3 of 4 parts: n p (1 - p) = 4 * 3/16.
    part = link_of_mesh(Counts(3.0, 0.0, 1.0, points=3.0, squares=3.0))
    assert part.weight == pytest.approx(0.75)
    assert part.difference == pytest.approx(math.log(3))
    assert together([Link(1.0, 2.0), Link(3.0, 4.0)]) == (4.0, 3.5)


def test_a_fit_says_of_others_what_it_said_with_the_player_that_is_gone() -> None:
    # One that goes has met four others, of whom two have met each other.
    rng = np.random.default_rng(7)
    strengths = {"a": 0.0, "b": 0.6, "c": -0.4, "d": 0.3, "x": 0.2}
    results = []
    for first, second in ("ax", "bx", "cx", "dx", "ab"):
        share = 1.0 / (1.0 + math.exp(strengths[second] - strengths[first]))
        wins = int(rng.binomial(4000, share))
        results.append(
            Result(first=first, second=second, seats=(0, 0), wins=wins, draws=0, losses=4000 - wins)
        )
    star: dict[Rated, Link] = {}
    for one in results:
        if one.second == "x":
            seen = Counts.from_results(one).turned()
            star["player", Entrant(one.first)] = link_of_results(seen, pair_deviation=0.0)
    tied = [
        Result(
            first=str(first[1]), second=str(second[1]), seats=(0, 0), wins=won, draws=0, losses=lost
        )
        for first, second, won, lost in mesh(star)
    ]
    model = BradleyTerry()
    whole = model.fit(results, anchors=["a"])
    rest = model.fit([*(one for one in results if one.second != "x"), *tied], anchors=["a"])
    at = {name: place for place, name in enumerate(whole.entrants)}
    for place, name in enumerate(rest.entrants):
        if name == "a":
            continue
        assert rest.ratings[place] == pytest.approx(whole.ratings[at[name]], abs=1.5)
        assert rest.deviations[place] == pytest.approx(whole.deviations[at[name]], rel=0.1)
    # Without the links nothing would be known of c and d.
    alone = model.fit([results[-1]], entrants=["c"], anchors=["a"])
    assert alone.deviations[list(alone.entrants).index("c")] > 5 * whole.deviations[at["c"]]


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
    return CheckpointRow(
        key=name,
        digest=Digest(name),
        weights_digest=Digest(name),
        policy=PolicyId("player/p000"),
        generation=2,
        agent_steps=1,
        learner_updates=1,
        parent=None if parent is None else Digest(parent),
        assignment_id=AssignmentId(1),
    )


def test_a_league_without_a_player_by_hand() -> None:
    league = League(seats=SEATS, half_life_matches=100.0)
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        league.add_checkpoint(checkpoint(name, parent))
    sequence = 0
    for home, away, wins in (("b", "x", 6), ("x", "b", 2), ("b", "y", 3), ("a", "x", 5)):
        sequence += 1
        league.add_tally(two_sided(sequence, "evaluate", home, away, wins))
    league.add_tally(two_sided(sequence + 1, "train", "player/p000#2", "b", 4))
    league.add_tally(two_sided(sequence + 2, "train", "player/p000#2", "x", 4))
    assert league.nearest_evaluated("player", Digest("c")) == "b"
    before = dict(league.records)
    merge = Merge(
        population="player",
        num_tallies=sequence,
        pair_deviation=0.0,
        into={Entrant("player/p000#2"): (Entrant("b"),)},
    )
    changed = apply_merge(league, merge)
    # What it was found for had the gone one as the nearest.
    assert league.nearest_evaluated("player", Digest("c")) == "a"
    own, sums = before["player", Entrant("b")], league.records["player", Entrant("player/p000#2")]
    assert (sums.matches, sums.wins, sums.losses) == (own.matches, own.wins, own.losses)
    assert sums.matches == 24
    # Of 8 matches each: 6 + 6 of 16 against x, 3 of 8 against y; half a match more on both sides.
    x = Link(16 * 12.5 * 4.5 / 17**2, math.log(12.5 / 4.5))
    y = Link(8 * 3.5 * 5.5 / 9**2, math.log(3.5 / 5.5))
    (link,) = (row for row in changed.kept if isinstance(row, PairRow))
    assert (link.kind, link.first, link.second) == ("merged", "x", "y")
    assert math.log(link.wins / link.losses) == pytest.approx(y.difference - x.difference)
    parts = link.wins + link.losses
    assert link.wins * link.losses / parts == pytest.approx(
        x.weight * y.weight / (x.weight + y.weight)
    )
    assert {row.key for row in changed.gone} == {
        ("player", "b"),
        ("evaluate", "b", "x", 0, 1),
        ("evaluate", "x", "b", 0, 1),
        ("evaluate", "b", "y", 0, 1),
        ("train", "b", "player/p000#2", 1, 0),
    }
    # The others keep theirs.
    assert league.records["player", Entrant("x")] == before["player", Entrant("x")]
    assert list(league.payoff.met(Entrant("player/p000#2"))) == [("x", 4.0, 4.0)]
    with pytest.raises(ValueError, match="b of player has no results"):
        apply_merge(league, merge)


def two_sided(
    sequence: int, kind: Literal["train", "evaluate"], home: str, away: str, wins: int
) -> TallyRow:
    """Eight matches, of which the first player won some and lost the others."""
    losses = 8 - wins
    tally = Tally(
        entrants=(Entrant(home), Entrant(away)),
        matches=8,
        pairs=(PairScore(first=0, second=1, wins=wins, draws=0, losses=losses),),
        return_sum=(float(wins - losses), float(losses - wins)),
        return_sum_of_squares=(8.0, 8.0),
        length_sum=80,
    )
    return TallyRow(sequence=sequence, assignment_id=AssignmentId(1), kind=kind, tally=tally)


def event(**data: object) -> EventRow:
    return EventRow(sequence=3, time="", kind=MERGED, subject="player", data=data)  # type: ignore[arg-type]


def test_a_merge_is_what_its_event_says() -> None:
    merge = Merge(
        population="player",
        num_tallies=7,
        pair_deviation=1.5,
        into={Entrant("player/p000#1"): (Entrant("a"), Entrant("b"))},
        forgotten=(Entrant("c"),),
    )
    other = EventRow(sequence=1, time="", kind="exploited", subject="player", data={})
    assert list(merges([other, event(**merge.data())])) == [merge]
    assert merge.gone == {"a": "player/p000#1", "b": "player/p000#1"}


@pytest.mark.parametrize("key", ["tallies", "pair_deviation", "into", "forgotten"])
def test_damaged_data_are_no_merge(key: str) -> None:
    data = {**Merge(population="player", num_tallies=7, pair_deviation=0.0).data(), key: None}
    with pytest.raises(ValueError, match="event 3: its data are no merge"):
        list(merges([event(**data)]))
