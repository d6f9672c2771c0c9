"""Results of players that are gone: what they say of those that stay, and their sums.

Weights that are gone tie together those that they met: what their results say of these is kept as
a mesh of links between them (`populations.league.elimination`).

Matches, wins and returns go to the sums of the policy's generation. Training results only choose
opponents, so those with players that cannot be drawn any more are forgotten. Generations that a
policy has left long ago are merged into a later one: their sums are added up, and their training
results fade with the later matches of the same two, as they do where opponents are chosen.

A merge is a fact of the journal (event ``results_merged``), and the rows after it follow from the
tallies and the merges between them: `apply_merge` is what a run does, and what `arena verify` does
again.

A fit rates few of all weights that were evaluated: those that decide something or are shown. Near
which difference the results of the others are looked at matters, for an error e of it makes one of
e^2 / 2 in what they are taken to say. While a league learns fast, weights are hundreds of Elo ahead
of the last ones of their line that were rated. So their strengths are settled by all of their
results first, each given the others' in turn (`Meetings`).

Tests: `tests/populations/league/test_merging.py`, `tests/populations/league/test_league.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, cast

from msgspec.structs import replace

from arena.types import Entrant, is_trainee
from populations.league.elimination import (
    Link,
    Seen,
    known_of,
    link_of,
    mesh,
    strength_of,
    together,
)
from populations.league.league import League, ResultRow
from populations.league.pairs import Seats, added, link_row, seat_advantage
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Rated
from populations.records.aggregates import RecordRow
from populations.records.rows import Deletion, EventRow, Json

NUM_SWEEPS = 8
"""Turns in which each strength is settled given the others: steps become ten times smaller."""

Estimate = Callable[[Rated], tuple[float, float]]
"""Rating and variance of a player by the last fit, else by its line, in Elo and its square."""


class Meetings(NamedTuple):
    """Results and links of a player, by the other one, as the player sees them."""

    played: Mapping[Rated, Sequence[Seen]]
    links: Mapping[Rated, Sequence[Link]]

    def of(self, population: str) -> Meetings:
        """Return those with players of one population."""
        return Meetings(
            {other: seen for other, seen in self.played.items() if other[0] == population},
            {other: known for other, known in self.links.items() if other[0] == population},
        )

    def by(
        self, point: Callable[[Rated], float]
    ) -> tuple[list[tuple[float, Sequence[Seen]]], list[tuple[float, Link]]]:
        """Return results and links with the strength of the other one beside each."""
        played = [(point(other), seen) for other, seen in self.played.items()]
        tied = [(point(other), link) for other, known in self.links.items() for link in known]
        return played, tied


def meetings(league: League, rated: Rated, *, advantage: Callable[[Seats], float]) -> Meetings:
    """Find the results and links of a player.

    Args:
        league: League with all results.
        rated: The player.
        advantage: Worth of the first of two seats against the second, in natural units.
    """
    played: defaultdict[Rated, list[Seen]] = defaultdict(list)
    for (first, second, seats), counts in league.results.of_entrant(rated):
        worth = advantage(seats)
        if first == rated:
            played[second].append((counts, worth))
        else:
            played[first].append((counts.turned(), -worth))
    links: defaultdict[Rated, list[Link]] = defaultdict(list)
    for (first, second, _), counts in league.links.of_entrant(rated):
        known = Link.from_counts(counts)
        if first == rated:
            links[second].append(known)
        else:
            links[first].append(known.turned())
    return Meetings(played, links)


def settled_points(
    league: League,
    gone: Iterable[Rated],
    *,
    estimate: Estimate,
    is_rated: Callable[[Rated], bool],
    advantage: Callable[[Seats], float],
) -> dict[Rated, float]:
    """Return the strengths of some players and of all that they met.

    Args:
        league: League with all results.
        gone: The players.
        estimate: Rating and variance of each, its results left out.
        is_rated: Whether the last fit rated one: then that is its strength.
        advantage: Worth of the first of two seats against the second, in natural units.

    Returns:
        Elo, in the order of ``gone``, each followed by those that it met.
    """
    points: dict[Rated, float] = {}
    asked: dict[Rated, None] = {}
    for own in gone:
        met = meetings(league, own, advantage=advantage)
        asked.update(dict.fromkeys((own, *met.played, *met.links)))
    # Entrants are sorted, as a resumed league may have them in another order.
    unrated = sorted(rated for rated in asked if not is_rated(rated))
    found = {rated: meetings(league, rated, advantage=advantage) for rated in unrated}

    def point(rated: Rated) -> float:
        if rated not in points:
            points[rated] = estimate(rated)[0] / ELO_PER_UNIT
        return points[rated]

    lines = {rated: (point(rated), ELO_PER_UNIT**2 / estimate(rated)[1]) for rated in unrated}
    for _ in range(NUM_SWEEPS):
        for rated, met in found.items():
            line, weight = lines[rated]
            points[rated] = strength_of(line, *met.by(point), line_weight=weight)
    return {rated: ELO_PER_UNIT * point(rated) for rated in asked}


MERGED = "results_merged"
"""Kind of event of a merge; its subject is the population."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Players of one population that are gone, and what becomes of their results.

    Attributes:
        population: Their population.
        num_tallies: Tallies that were committed before.
        pair_deviation: Elo by which pairs deviate from their ratings, by the last fit.
        into: Evaluated weights that are gone, and former generations, ascending, by policy and
            generation that they count for.
        forgotten: Entrants whose training results go.
        points: Strengths in Elo of the weights that are gone and of those that they met: ratings of
            the last fit, of others by their results (`populations.league.merging`).
        advantages: Elo that one seat is worth against another, row by row of the table; empty: 0.
    """

    population: str
    num_tallies: int
    pair_deviation: float
    into: Mapping[Entrant, tuple[Entrant, ...]] = field(default_factory=dict)
    forgotten: tuple[Entrant, ...] = ()
    points: Mapping[Rated, float] = field(default_factory=dict)
    advantages: tuple[float, ...] = ()

    def point(self, rated: Rated) -> float:
        """Return a player's strength, in natural units."""
        return self.points.get(rated, 0.0) / ELO_PER_UNIT

    def advantage(self, seats: tuple[int, int]) -> float:
        """Return what the first of two seats is worth against the second, in natural units."""
        return seat_advantage(self.advantages, seats) / ELO_PER_UNIT

    @property
    def gone(self) -> dict[Entrant, Entrant]:
        """Return the policy and generation that each one which is gone counts for."""
        return {gone: entrant for entrant, merged in self.into.items() for gone in merged}

    def folds(self) -> Iterator[tuple[Entrant, Entrant]]:
        """Yield each former generation with the one that takes its training results.

        That is the next one: results fade with each later generation's matches.
        """
        for generation, merged in self.into.items():
            former = [gone for gone in merged if is_trainee(gone)]
            yield from pairwise((*former, generation))

    def data(self) -> dict[str, Json]:
        """Return the data of its event."""
        return {
            "tallies": self.num_tallies,
            "pair_deviation": self.pair_deviation,
            "into": {entrant: list(gone) for entrant, gone in self.into.items()},
            "forgotten": list(self.forgotten),
            "points": [[*rated, point] for rated, point in self.points.items()],
            "advantages": list(self.advantages),
        }


def apply_merge(league: League, merge: Merge) -> list[ResultRow | Deletion]:
    """Take players out of a league that are gone; keep what they say of others, and their sums.

    Returns:
        Changes in their order, to be committed together.

    Raises:
        ValueError: If weights that are gone have no results.
    """
    population = merge.population
    changes: list[ResultRow | Deletion] = []
    for entrant, generation in merge.gone.items():
        record = league.tables.records.get((population, entrant))
        if record is None:
            # A generation without evaluation matches has training results all the same.
            if is_trainee(entrant):
                continue
            raise ValueError(f"{entrant} of {population} has no results")
        changes.append(league.put(merged_record(league.record(population, generation), record)))
        star = _star(league, record.key, merge)
        changes.append(league.drop(record))
        changes += map(league.drop, league.pairs_of(record.key))
        for first, second, tie in mesh(star):
            seat = next(
                index for index, seat in enumerate(league.seats) if seat.population == first[0]
            )
            old = league.link(first[1], second[1], seat=seat)
            changes.append(league.put(added(old, link_row(tie, first[1], second[1], seat=seat))))
    weights = (gone for gone in merge.gone if not is_trainee(gone))
    changes += map(league.drop, league.payoff.forget((*weights, *merge.forgotten)))
    for former, later in merge.folds():
        # The training results of a former generation are added to those of a later one.
        gone, kept = league.payoff.fold(former, later)
        changes += map(league.drop, gone)
        changes += map(league.put, kept)
    league.compact()
    return changes


def _star(league: League, rated: Rated, merge: Merge) -> dict[Rated, Link]:
    """Return what is known of a player's strength against each that it met."""
    met = meetings(league, rated, advantage=merge.advantage)
    played, tied = met.by(merge.point)
    own = strength_of(merge.point(rated), played, tied)
    links = {other: list(known) for other, known in met.links.items()}
    # Those of one population are tied together, as if the player were another one for each: what is
    # known of it by the others takes no bias away there.
    total = {
        population: known_of(own, *met.of(population).by(merge.point))
        for population in dict.fromkeys(name for name, _ in met.played)
    }
    for other, seen in met.played.items():
        ahead = own - merge.point(other)
        known = total[other[0]]
        link = link_of(seen, point=ahead, pair_deviation=merge.pair_deviation, known=known)
        if link is not None:
            links.setdefault(other, []).append(link)
    return {other: together(known) for other, known in links.items()}


def merges(events: Iterable[EventRow]) -> Iterator[Merge]:
    """Yield the merges among some events, in their order.

    Raises:
        ValueError: If the data of one are damaged.
    """
    for event in events:
        if event.kind == MERGED:
            yield _merge(event)


def _merge(event: EventRow) -> Merge:
    into, forgotten = event.data.get("into"), event.data.get("forgotten")
    num_tallies, deviation = event.data.get("tallies"), event.data.get("pair_deviation")
    points, advantages = event.data.get("points"), event.data.get("advantages")
    if not (
        isinstance(num_tallies, int)
        and isinstance(deviation, int | float)
        and isinstance(into, Mapping)
        and all(isinstance(gone, Sequence) for gone in into.values())
        and isinstance(forgotten, Sequence)
        and isinstance(points, Sequence)
        and isinstance(advantages, Sequence)
    ):
        raise ValueError(f"event {event.sequence}: its data are no merge")
    return Merge(
        population=event.subject,
        num_tallies=num_tallies,
        pair_deviation=float(deviation),
        into={Entrant(name): _entrants(gone) for name, gone in into.items()},
        forgotten=_entrants(forgotten),
        points=dict(_point(entry, event) for entry in points),
        advantages=tuple(float(cast("float", value)) for value in advantages),
    )


def _point(entry: Json, event: EventRow) -> tuple[Rated, float]:
    match entry:
        case [str(population), str(entrant), int() | float() as point]:
            return (population, Entrant(entrant)), float(point)
    raise ValueError(f"event {event.sequence}: its data are no merge")


def _entrants(names: Json) -> tuple[Entrant, ...]:
    return tuple(Entrant(str(name)) for name in cast("Sequence[Json]", names))


def merged_record(sums: RecordRow, gone: RecordRow) -> RecordRow:
    """Add the evaluation matches of weights that are gone to the sums of their generation."""
    is_summed = sums.score_sum is not None or gone.score_sum is not None
    return replace(
        sums,
        matches=sums.matches + gone.matches,
        wins=sums.wins + gone.wins,
        draws=sums.draws + gone.draws,
        losses=sums.losses + gone.losses,
        return_sum=sums.return_sum + gone.return_sum,
        return_sum_of_squares=sums.return_sum_of_squares + gone.return_sum_of_squares,
        score_sum=sums.points + gone.points if is_summed else None,
    )
