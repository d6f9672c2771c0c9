"""Checks that tallies are complete, belong to known assignments, and add up to the aggregates.

Tests: `tests/populations/audit/test_verify.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec.structs import fields

from arena.matches.comparisons import comparisons, is_tally_by_seats, numbers_of
from arena.matches.openings import openings_problem
from arena.matches.pair_scores import adds_up
from arena.types import AssignmentId, Seat, Tally
from populations.config.run_file import RunFile, learner_setup
from populations.league.league import League
from populations.league.merging import MERGED, Merge, apply_merge
from populations.records.aggregates import PairRow, RecordRow
from populations.records.rows import RunRow, TallyRow
from populations.records.tables import Tables


class TallyChecks:
    """Checks of a stream of tallies, which are not all in memory at once.

    Attributes:
        faults: Faults of single tallies.
        played: Matches of each assignment.
        num_tallies: Number of tallies read so far.
    """

    def __init__(self, *, seats: Mapping[str, tuple[Seat, ...]] | None) -> None:
        """Prepare the checks.

        Args:
            seats: Seats by kind of assignment; None if they are unknown.
        """
        self._seats = seats
        self.faults: list[str] = []
        self.played: Counter[AssignmentId] = Counter()
        self.num_tallies = 0

    def pass_sound(self, tallies: Iterable[TallyRow]) -> Iterator[TallyRow]:
        """Yield the tallies without faults, and record the faults of the others."""
        has_gap = False
        for row in tallies:
            self.num_tallies += 1
            # Report a gap once, as all later sequence numbers are off by it.
            if row.sequence != self.num_tallies and not has_gap:
                has_gap = True
                self.faults.append("tallies: sequence numbers have gaps")
            # Tallies with faults count, too, as an assignment's row sums all of its tallies.
            self.played[row.assignment_id] += row.tally.matches
            seats = None if self._seats is None else self._seats[row.kind]
            problem = _problem(row.tally, seats=seats)
            if problem is None:
                yield row
            else:
                self.faults.append(f"tally {row.sequence}: {problem}")


def check_tallies(
    tallies: Iterable[TallyRow],
    *,
    tables: Tables,
    matches_of: Mapping[AssignmentId, int],
    run_file: RunFile | None,
    merges: Iterable[Merge] = (),
) -> list[str]:
    """Return faults of tallies, of the assignments' matches, and of aggregates.

    Args:
        tallies: All tallies, in order of commit.
        tables: Rows of the same commit.
        matches_of: Matches of each assignment.
        run_file: Run file with seats and half-life; if None, aggregates are not checked.
        merges: All merges, in order of commit.
    """
    setup = None if run_file is None else learner_setup(run_file, root=Path())
    checks = TallyChecks(
        seats=None if setup is None else {"train": setup.training_seats, "evaluate": setup.seats}
    )
    found: list[str] = []
    sound = checks.pass_sound(tallies)
    if run_file is not None and setup is not None:
        try:
            folded = refold(
                sound,
                seats=setup.seats,
                half_life_matches=run_file.config.payoffs.half_life_matches,
                mixes_teammates=bool(setup.agent_seats),
                repeats_games=setup.repeats_games,
                merges=merges,
            )
            found += differences(tables, folded)
        except ValueError as error:
            found.append(f"event {MERGED}: {error}")
    # Without a fold, or after its error, the remaining tallies still have to be checked.
    for _ in sound:
        continue
    # `checks.faults` is complete only now, after all tallies have been read.
    return [*checks.faults, *_check_assignments(checks.played, matches_of), *found]


def _check_assignments(
    played: Counter[AssignmentId], matches_of: Mapping[AssignmentId, int]
) -> Iterator[str]:
    for assignment_id, matches in matches_of.items():
        if played[assignment_id] != matches:
            yield (
                f"assignment {assignment_id}: {matches} matches, but its tallies have "
                f"{played[assignment_id]}"
            )
    for assignment_id in played:
        if assignment_id not in matches_of:
            yield f"assignment {assignment_id}: has tallies, but was never decided"


def _problem(tally: Tally, *, seats: tuple[Seat, ...] | None) -> str | None:
    num_seats = len(tally.entrants)
    if seats is not None and len(seats) != num_seats:
        return f"{num_seats} entrants in {len(seats)} seats"
    if not num_seats == len(tally.return_sum) == len(tally.return_sum_of_squares):
        return f"{num_seats} entrants, but returns of {len(tally.return_sum)}"
    numbers = _numbers(tally, seats)
    for pair in tally.pairs:
        number = numbers.get((pair.first, pair.second), 0)
        if not 0 <= pair.first < pair.second < num_seats or not number:
            return f"a pair of seats {pair.first} and {pair.second} of {num_seats}"
        if not adds_up(pair, matches=number * tally.matches):
            results: list[float | None] = [pair.wins, pair.draws, pair.losses]
            if pair.score_sum is not None:
                results += [pair.score_sum, pair.square_sum]
            return f"results {tuple(results)} of {tally.matches} matches"
    if tally.distinct is not None and not 1 <= tally.distinct <= tally.matches:
        return f"{tally.distinct} different games of {tally.matches} matches"
    return openings_problem(tally)


def _numbers(tally: Tally, seats: tuple[Seat, ...] | None) -> Mapping[tuple[int, int], int]:
    """Return how many pairs of seats each result of a tally sums, by its two seats."""
    if seats is not None and not is_tally_by_seats(tally, seats):
        compared = comparisons(seats, entrants=tally.entrants)
        return {one.names: one.number for one in compared}
    if seats is None and tally.matches > 0:
        # Without a run file the sides are unknown, so take the counts from the tally itself.
        return {names: max(number, 1) for names, number in numbers_of(tally).items()}
    return {(pair.first, pair.second): 1 for pair in tally.pairs}


Aggregate = RecordRow | PairRow
KeyT = TypeVar("KeyT", bound=tuple[object, ...])


def refold(
    tallies: Iterable[TallyRow],
    *,
    seats: tuple[Seat, ...],
    half_life_matches: float,
    mixes_teammates: bool = False,
    repeats_games: bool = False,
    merges: Iterable[Merge] = (),
) -> Tables:
    """Compute the aggregates of tallies again, from nothing.

    Args:
        tallies: All tallies, in order of commit.
        seats: Seats of the environment.
        half_life_matches: See `Payoff`.
        mixes_teammates: See `League`.
        repeats_games: See `League`.
        merges: Merges between the tallies, in order of commit.

    Returns:
        Tables with only records and pairs, whose rows are in the order of their first tallies.

    Raises:
        ValueError: If a merge is about players without results.
    """
    league = League(
        Tables(run=RunRow(run="")),
        seats=seats,
        half_life_matches=half_life_matches,
        mixes_teammates=mixes_teammates,
        repeats_games=repeats_games,
    )
    # The tallies of a month do not fit into memory, so they are read as a stream.
    waiting = iter(merges)
    merge = next(waiting, None)
    for tally in tallies:
        while merge is not None and merge.num_tallies < tally.sequence:
            apply_merge(league, merge)
            merge = next(waiting, None)
        league.add_tally(tally)
    while merge is not None:
        apply_merge(league, merge)
        merge = next(waiting, None)
    return league.tables


def differences(tables: Tables, folded: Tables) -> Iterator[str]:
    """Describe how recorded aggregates differ from those of the folded tallies."""
    yield from _differences("record", tables.records, folded.records)
    yield from _differences("pair", tables.pairs, folded.pairs)


def _differences(
    name: str, kept: Mapping[KeyT, Aggregate], added_up: Mapping[KeyT, Aggregate]
) -> Iterator[str]:
    # A union of sets would not keep the order of the tallies.
    for key in dict.fromkeys((*added_up, *kept)):
        text = f"{name} {' '.join(str(part) for part in key)}"
        row, expected = kept.get(key), added_up.get(key)
        if row is None:
            yield f"{text}: missing, but there are tallies of it"
        elif expected is None:
            yield f"{text}: there is no tally of it"
        # Compare exactly, as equal sums in equal order have equal rounding.
        elif row != expected:
            for column in fields(row):
                value, sum_of_all = getattr(row, column.name), getattr(expected, column.name)
                if value != sum_of_all and not _is_rounding(row, value, sum_of_all):
                    yield f"{text}: {column.name} is {value}, but its tallies give {sum_of_all}"


def _is_rounding(row: Aggregate, value: object, expected: object) -> bool:
    """Return whether two numbers differ only as far as logarithms do between machines."""
    return (
        isinstance(row, PairRow)
        and row.kind == "merged"
        and isinstance(value, float)
        and isinstance(expected, float)
        and math.isclose(value, expected, rel_tol=1e-9)
    )
