"""Folding as one goes, going on from stored rows, and folding all tallies again: the same bits."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.types import Digest, Entrant, PairScore, Seat, Tally
from populations.audit.tally_checks import differences, refold
from populations.league.league import League
from populations.records.aggregates import Row
from populations.records.rows import CheckpointRow, RunRow
from populations.storage.journal import Journal, JournalReader
from tests.populations.rows import (
    make_checkpoint,
    make_policy,
    make_tally,
    make_tally_row,
    tables_with,
)

HALF_LIFE = 7.0
ENTRANTS = [Entrant(name) for name in ("bot:random", "d" * 64, "e" * 64, "player/p000#1")]
LAYOUTS = {
    "duel": (("x", "player"), ("y", "player")),
    "tag": (("predators", "predator"), ("prey", "prey")),
    "teams": (("x", "player"), ("y", "player"), ("z", "player")),
    "cooperation": (("team", "agent"), ("team", "agent")),
}


def make_seats(layout: str) -> tuple[Seat, ...]:
    return tuple(
        Seat(name=f"seat {index}", side=side, population=population, agents=(f"a_{index}",))
        for index, (side, population) in enumerate(LAYOUTS[layout])
    )


@st.composite
def tallies(draw: st.DrawFn, num_seats: int) -> Tally:
    matches = draw(st.integers(1, 40))
    pairs = []
    for second in range(1, num_seats):
        for first in range(second):
            wins = draw(st.integers(0, matches))
            draws = draw(st.integers(0, matches - wins))
            losses = matches - wins - draws
            pairs.append(
                PairScore(first=first, second=second, wins=wins, draws=draws, losses=losses)
            )
    returns = st.floats(-1e6, 1e6)
    return Tally(
        entrants=tuple(draw(st.sampled_from(ENTRANTS)) for _ in range(num_seats)),
        matches=matches,
        pairs=tuple(pairs),
        return_sum=tuple(draw(returns) for _ in range(num_seats)),
        return_sum_of_squares=tuple(abs(draw(returns)) for _ in range(num_seats)),
        length_sum=matches,
    )


def state_of(league: League) -> object:
    """All that a league says, exactly."""
    payoff = league.payoff
    per_seat = {
        (first, second, seats): payoff.record(first, second, seats=seats)
        for first in ENTRANTS
        for second in ENTRANTS
        for seats in ((0, 1), (1, 0), (0, 2), (2, 1))
    }
    return repr(
        (
            list(league.tables.records.items()),
            sorted((key, tuple(value)) for key, value in league.results.items()),
            sorted(payoff.records.items()),
            [[payoff.win_rate(one, other) for other in ENTRANTS] for one in ENTRANTS],
            per_seat,
            league.tables.last_evaluation_sequence,
        )
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.slow
def test_what_is_kept_is_what_all_tallies_add_up_to(layout: str, data: st.DataObject) -> None:
    seats = make_seats(layout)
    league = League(tables_with(), seats=seats, half_life_matches=HALF_LIFE)
    num_tallies = 0
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "journal.db")
        with Journal.create(path, [RunRow(run="r")]) as journal:
            for _ in range(data.draw(st.integers(0, 6))):
                rows: list[Row] = []
                for _ in range(data.draw(st.integers(1, 5))):
                    num_tallies += 1
                    kind: Literal["train", "evaluate"] = data.draw(
                        st.sampled_from(["train", "evaluate"])
                    )
                    row = make_tally_row(data.draw(tallies(len(seats))), num_tallies, kind=kind)
                    league.tables.put(row)
                    rows += [row, *league.add_tally(row)]
                journal.commit(rows)
                again = League(journal.load(), seats=seats, half_life_matches=HALF_LIFE)
                assert state_of(again) == state_of(league)
                if data.draw(st.booleans()):
                    league = again
        with JournalReader(path) as reader:
            tables = reader.load()
            folded = refold(reader.all_tallies(), seats=seats, half_life_matches=HALF_LIFE)
            evaluated = [row.tally for row in reader.tallies() if row.kind == "evaluate"]
    assert list(differences(tables, folded)) == []
    assert list(folded.records) == list(tables.records)
    assert list(folded.pairs) == list(tables.pairs)
    matches: Counter[tuple[str, str]] = Counter()
    for tally in evaluated:
        seated = [
            (seat.population, entrant) for seat, entrant in zip(seats, tally.entrants, strict=True)
        ]
        if len(set(seated)) > 1:  # who plays only itself shows nothing
            for key in seated:
                matches[key] += tally.matches
    assert {key: row.matches for key, row in tables.records.items()} == dict(matches)


def checkpoint(name: str, *, parent: str | None, generation: int = 0) -> CheckpointRow:
    return make_checkpoint(
        name,
        weights_digest=name * 64,
        generation=generation,
        agent_steps=ord(name),
        parent=None if parent is None else Digest(parent * 64),
    )


def evaluated(league: League, *names: str) -> None:
    league.add_tally(
        make_tally_row(
            make_tally(
                tuple(name * 64 for name in names),
                (0, 1, 4, 0, 0),
                return_sum=(1.0, 2.0),
                return_sum_of_squares=(1.0, 2.0),
                length_sum=4,
            )
        )
    )


@given(
    parents=st.lists(st.integers(-1, 8), min_size=1, max_size=9),
    order=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=8),
)
def test_remembered_standings_are_those_of_a_walk(
    parents: list[int], order: list[tuple[int, int]]
) -> None:
    """Each answer is asked for before and after every evaluation."""
    names = [chr(ord("a") + index) for index in range(len(parents))]
    league = League(tables_with(), seats=make_seats("duel"), half_life_matches=HALF_LIFE)
    for index, parent in enumerate(parents):
        above = names[parent] if 0 <= parent < index else None
        league.tables.put(checkpoint(names[index], parent=above))
    for first, second in [(0, 0), *order]:
        for name in names:
            policy = make_policy(checkpoint=name)
            digest = Digest(name * 64)
            line = [digest, *league.ancestors(digest)]
            found = [other for other in line if league.is_evaluated("player", other)]
            assert league.standing_weights(policy) == (found[0] if found else None)
        if max(first, second) < len(names) and first != second:
            evaluated(league, names[first], names[second])


def test_matches_count_for_the_generation_that_made_the_weights() -> None:
    league = League(tables_with(), seats=make_seats("duel"), half_life_matches=HALF_LIFE)
    for name, generation in (("a", 0), ("b", 1), ("c", 1)):
        league.tables.put(checkpoint(name, parent=None, generation=generation))
    evaluated(league, "a", "b")
    evaluated(league, "c", "b")
    policy = make_policy(generation=1)
    again = League(league.tables, seats=league.seats, half_life_matches=HALF_LIFE)
    for one in (league, again):
        assert one.matches_in_generation(policy) == 4 + 4 + 4
        assert one.matches_in_generation(replace(policy, generation=0)) == 4
