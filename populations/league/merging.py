"""Results of players that are gone: what they say of those that stay, and their sums.

Weights that are gone tie together those that they met. With the results of each pair as a normal
distribution of the difference of two strengths, taking one player out of the fit leaves a normal
distribution of the others: the star of its pairs becomes a mesh (the Schur complement of one row of
the information matrix). For neighbours i and j at w_i and w_j, with differences d_i and d_j to the
player that goes:

    w_ij = w_i w_j / sum_k w_k,    d_ij = d_j - d_i

That is kept as a result of i against j, with as many parts of matches won and lost as have this
mean and this information. Only the best known neighbours are tied, so that no pair becomes too
many; the rest is forgotten, which makes ratings less sure, not wrong.

Matches, wins and returns go to the sums of the policy's generation. Training results only choose
opponents, so those with players that cannot be drawn any more are forgotten. Generations that a
policy has left long ago are merged into a later one: their sums are added up, and their training
results fade with the later matches of the same two, as they do where opponents are chosen.

A merge is a fact of the journal (event ``results_merged``), and the rows after it follow from the
tallies and the merges between them: `apply_merge` is what a run does, and what `arena verify` does
again.

Source: the star-mesh transform of resistor networks (Rosen, "A new network theorem", 1924), which
is Gaussian elimination of one variable.

Tests: `tests/populations/league/test_merging.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import NamedTuple, cast

from arena.types import Entrant, is_trainee
from populations.league.league import League
from populations.league.pairs import added
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairKey, PairRow, RecordKey, RecordRow
from populations.records.rows import EventRow, Json

MERGED = "results_merged"
"""Kind of event of a merge; its subject is the population."""

MAX_NEIGHBOURS = 8
"""Players that one who goes ties together; each is tied to each."""

MAX_DIFFERENCE = 8.0
"""Of two strengths, in natural units: 1,390 Elo. Beyond it a result says nothing."""

MIN_WEIGHT = 1e-3
"""Least information of a pair, a deviation of 5,500 Elo. What is passed on from merge to merge says
ever less: it would end at 0, which has no logarithm."""


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
    """

    population: str
    num_tallies: int
    pair_deviation: float
    into: Mapping[Entrant, tuple[Entrant, ...]] = field(default_factory=dict)
    forgotten: tuple[Entrant, ...] = ()

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
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Rows that a merge changed.

    Attributes:
        kept: Rows that stay, as they are now.
        gone: Rows that are no more.
    """

    kept: tuple[RecordRow | PairRow, ...]
    gone: tuple[RecordRow | PairRow, ...]


class Link(NamedTuple):
    """Knowledge of the difference of two strengths, in natural units.

    Attributes:
        weight: Information, the inverse of its variance.
        difference: Strength of the player that goes minus that of the other.
    """

    weight: float
    difference: float


def link_of_results(counts: Counts, *, pair_deviation: float) -> Link:
    """Return what matches say of the difference, pairs deviating by so many Elo."""
    # Anscombe: with half a match more on both sides the logarithm of the odds is nearly unbiased.
    won, lost = counts.points + 0.5, counts.lost_points + 0.5
    share = won / (won + lost)
    # n p (1 - p), and the pair's own deviation beside it
    weight = counts.matches * share * (1.0 - share)
    variance = 1.0 / weight + (pair_deviation / ELO_PER_UNIT) ** 2
    return Link(1.0 / variance, math.log(won / lost))


def link_of_mesh(counts: Counts) -> Link:
    """Return what an earlier merge has said of the difference."""
    share = counts.wins / counts.matches
    return Link(counts.matches * share * (1.0 - share), math.log(counts.wins / counts.losses))


def together(links: Sequence[Link]) -> Link:
    """Return what several say of one difference."""
    weight = sum(link.weight for link in links)
    return Link(weight, sum(link.weight * link.difference for link in links) / weight)


def mesh(star: Mapping[Rated, Link]) -> Iterator[tuple[Rated, Rated, float, float]]:
    """Yield the pairs of neighbours that a player ties together, with parts of matches won and
    lost.

    Args:
        star: Knowledge of the player that goes against each neighbour.
    """
    groups: defaultdict[str, list[tuple[Rated, Link]]] = defaultdict(list)
    for rated, link in star.items():
        # Populations have scales of their own, which only matches between them tie.
        groups[rated[0]].append((rated, link))
    for known in groups.values():
        # The best known ones; of equals the first by name, whatever the order of the results.
        known.sort(key=lambda entry: (-entry[1].weight, entry[0]))
        chosen = sorted(known[:MAX_NEIGHBOURS])
        total = sum(link.weight for _, link in chosen)
        for (first, a), (second, b) in combinations(chosen, 2):
            weight = a.weight * b.weight / total
            if weight < MIN_WEIGHT:
                continue
            ahead = min(max(b.difference - a.difference, -MAX_DIFFERENCE), MAX_DIFFERENCE)
            share = 1.0 / (1.0 + math.exp(-ahead))
            # n p (1 - p) = weight, so n p = weight / (1 - p)
            yield first, second, weight / (1.0 - share), weight / share


class _Changes:
    """Rows that change within a merge; those that it makes and takes away again are none."""

    def __init__(self, league: League) -> None:
        self._league = league
        self._kept: dict[RecordKey | PairKey, RecordRow | PairRow] = {}
        self._gone: dict[RecordKey | PairKey, RecordRow | PairRow] = {}
        self._new: set[RecordKey | PairKey] = set()

    def put(self, row: RecordRow | PairRow, *, is_new: bool) -> None:
        """Put a row, and note whether there was none."""
        self._league.put(row)
        self.note_kept(row, is_new=is_new)

    def note_kept(self, row: RecordRow | PairRow, *, is_new: bool) -> None:
        """Note a row that the payoff has changed by itself."""
        self._kept[row.key] = row
        if is_new:
            self._new.add(row.key)

    def drop(self, row: RecordRow | PairRow) -> None:
        """Take a row of an evaluated entrant out."""
        self._league.drop(row)
        self.note_gone(row)

    def note_gone(self, row: RecordRow | PairRow) -> None:
        """Note that a row is no more."""
        self._kept.pop(row.key, None)
        if row.key in self._new:
            self._new.discard(row.key)
        else:
            self._gone[row.key] = row

    def merged(self) -> Merged:
        """Return the changes."""
        return Merged(kept=tuple(self._kept.values()), gone=tuple(self._gone.values()))


def apply_merge(league: League, merge: Merge) -> Merged:
    """Take players out of a league that are gone; keep what they say of others, and their sums.

    Returns:
        Changed rows, to be committed together.

    Raises:
        ValueError: If weights that are gone have no results.
    """
    population, changes = merge.population, _Changes(league)
    for entrant, generation in merge.gone.items():
        record = league.records.get((population, entrant))
        if record is None:
            # A generation without evaluation matches has training results all the same.
            if is_trainee(entrant):
                continue
            raise ValueError(f"{entrant} of {population} has no results")
        sums = league.record(population, generation)
        changes.put(merged_record(sums, record), is_new=sums.key not in league.records)
        star = _star(league, record.key, pair_deviation=merge.pair_deviation)
        pairs = league.pairs_of(record.key)
        changes.drop(record)
        for pair in pairs:
            changes.drop(pair)
        for first, second, won, lost in mesh(star):
            seat = next(
                index for index, seat in enumerate(league.seats) if seat.population == first[0]
            )
            old = league.link(first[1], second[1], seat=seat)
            new = PairRow(
                kind="merged",
                first=first[1],
                second=second[1],
                first_seat=seat,
                second_seat=seat,
                wins=won,
                losses=lost,
            )
            changes.put(added(old, new), is_new=old is None)
    weights = (gone for gone in merge.gone if not is_trainee(gone))
    for row in league.payoff.forget((*weights, *merge.forgotten)):
        changes.note_gone(row)
    for former, later in merge.folds():
        _fold(league, changes, former, later)
    league.compact()
    return changes.merged()


def _fold(league: League, changes: _Changes, former: Entrant, later: Entrant) -> None:
    """Add the training results of a former generation to those of a later one."""
    known = {row.key for row in league.payoff.rows(later)}
    gone, kept = league.payoff.fold(former, later)
    for row in gone:
        changes.note_gone(row)
    for row in kept:
        changes.note_kept(row, is_new=row.key not in known)


def _star(league: League, rated: Rated, *, pair_deviation: float) -> dict[Rated, Link]:
    """Return what is known of a player's strength against each that it met."""
    played: defaultdict[Rated, list[Counts]] = defaultdict(list)
    for (first, second, _), counts in league.results.of_entrant(rated):
        if first == rated:
            played[second].append(counts)
        else:
            played[first].append(counts.turned())
    links: defaultdict[Rated, list[Link]] = defaultdict(list)
    for other, found in played.items():
        # Over all seats: each player has had every seat equally often.
        total = Counts(*(sum(values) for values in zip(*found, strict=True)))
        links[other].append(link_of_results(total, pair_deviation=pair_deviation))
    for (first, second, _), counts in league.links.of_entrant(rated):
        if first == rated:
            links[second].append(link_of_mesh(counts))
        else:
            links[first].append(link_of_mesh(counts.turned()))
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
    if not (
        isinstance(num_tallies, int)
        and isinstance(deviation, int | float)
        and isinstance(into, Mapping)
        and all(isinstance(gone, Sequence) for gone in into.values())
        and isinstance(forgotten, Sequence)
    ):
        raise ValueError(f"event {event.sequence}: its data are no merge")
    return Merge(
        population=event.subject,
        num_tallies=num_tallies,
        pair_deviation=float(deviation),
        into={Entrant(name): _entrants(gone) for name, gone in into.items()},
        forgotten=_entrants(forgotten),
    )


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
